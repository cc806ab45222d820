//! An alarm that rings on the thread that waits for answers too: for arrivals that come every few
//! microseconds.
//!
//! `Env`'s timers have a thread of their own, which is woken to wake another: right for seconds,
//! too slow for arrivals. On Linux a timer is a file like a socket, and the reactor of the calling
//! network task waits for both. Elsewhere `Env`'s timers do.

#[cfg(target_os = "linux")]
pub(crate) use linux::Alarm;
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::Alarm;

#[cfg(target_os = "linux")]
mod linux {
    use plinth_env::Env;
    use plinth_types::{Error, Result};
    use rustix::io::Errno;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use std::os::fd::OwnedFd;
    use std::task::{Context, Poll, ready};
    use std::time::Duration;
    use tokio::io::unix::AsyncFd;

    /// So far apart it rings at least.
    const SPACING: Duration = Duration::from_micros(100);

    /// Wakes a network task at a moment.
    pub(crate) struct Alarm {
        env: Env,
        timer: AsyncFd<OwnedFd>,
        /// When it will ring.
        set_to: Option<Duration>,
    }

    impl Alarm {
        /// One that is not set. Only a network task can have one.
        #[expect(
            deprecated,
            reason = "what takes its place is unsafe, for files unlike this one that may close early"
        )]
        pub(crate) fn new(env: &Env) -> Result<Self> {
            let no_timer =
                |error| Error::platform_error().with_detail(format!("no timer: {error}"));
            let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)
                .map_err(std::io::Error::from)
                .and_then(AsyncFd::new)
                .map_err(no_timer)?;
            Ok(Self { env: env.clone(), timer, set_to: None })
        }

        /// Has the task polled at `due`, or a little later if that is soon. The task sets it each
        /// time that it is polled.
        pub(crate) fn set(&mut self, due: Duration, context: &mut Context<'_>) {
            // A virtual processor leaves its machine to set a timer, for some microseconds. While
            // answers come anyway, an arrival is noticed without one.
            let due = due.max(self.env.now() + SPACING);
            if self.set_to.is_some_and(|set_to| set_to <= due)
                && self.poll_rung(context).is_pending()
            {
                return;
            }
            self.set_to = Some(due);
            let after = due.saturating_sub(self.env.now());
            // Zero would unset it.
            let after = after.clamp(Duration::from_nanos(1), Duration::from_secs(3_600));
            let time =
                Timespec { tv_sec: after.as_secs() as _, tv_nsec: after.subsec_nanos() as _ };
            let once = Itimerspec { it_interval: Timespec::default(), it_value: time };
            let is_set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
            if is_set.is_err() || self.poll_rung(context).is_ready() {
                self.set_to = None;
                context.waker().wake_by_ref();
            }
        }

        /// Whether it rang since it was set; if not, the task is woken when it does.
        fn poll_rung(&self, context: &mut Context<'_>) -> Poll<()> {
            loop {
                let Ok(mut guard) = ready!(self.timer.poll_read_ready(context)) else {
                    return Poll::Ready(());
                };
                match rustix::io::read(&self.timer, &mut [0; 8]) {
                    Err(Errno::AGAIN) => guard.clear_ready(),
                    _ => return Poll::Ready(()),
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod portable {
    use plinth_env::{Env, Timer};
    use plinth_types::Result;
    use std::task::Context;
    use std::time::Duration;

    /// Wakes a task at a moment.
    pub(crate) struct Alarm {
        env: Env,
        timer: Option<Timer>,
    }

    impl Alarm {
        /// One that is not set.
        pub(crate) fn new(env: &Env) -> Result<Self> {
            Ok(Self { env: env.clone(), timer: None })
        }

        /// Has the task polled at `due`, instead of when it was set to before. The task sets it
        /// each time that it is polled.
        pub(crate) fn set(&mut self, due: Duration, context: &mut Context<'_>) {
            let waker = context.waker().clone();
            self.timer = Some(self.env.call_at(due, move || waker.wake()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::Env;
    use plinth_env::reply::promise;
    use std::future::poll_fn;
    use std::task::Poll;
    use std::time::Duration;

    /// Each moment lies a little behind the last; nothing but the alarm wakes the task, so one that
    /// is lost is waited for in vain.
    #[test]
    fn an_alarm_rings_each_time_that_it_is_set() {
        let env = Env::real();
        let (promise, reply) = promise();
        let clock = env.clone();
        env.spawn_network("alarm", async move {
            let mut alarm = Alarm::new(&clock).unwrap();
            for micros in [0, 1, 20, 99, 100, 101, 500, 3_000].repeat(20) {
                let due = clock.now() + Duration::from_micros(micros);
                poll_fn(|context| {
                    if clock.now() >= due {
                        return Poll::Ready(());
                    }
                    alarm.set(due, context);
                    Poll::Pending
                })
                .await;
            }
            promise.send(Ok(clock.now()));
        });
        assert!(reply.wait().unwrap() <= env.now());
    }
}
