//! How far something is that takes longer than a moment: a bar on a terminal; elsewhere lines on
//! standard error, few of them.
//!
//! What goes to a file or to another program gets nothing in the first two seconds, then a line at
//! once and at each further step: a tenth of the whole, or another thing that is waited for.
//! Always: standard output has results alone.

use crate::terminal;
use plinth::Result;
use plinth_bench::words::bytes;
use plinth_bench::{Progress, Task};
use plinth_env::reply::promise;
use plinth_env::sync::{First, race};
use plinth_env::{Env, block_on};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What takes less time gets no line.
const WORTH_A_LINE: Duration = Duration::from_secs(2);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(50);

/// Which steps are told in lines.
struct Steps<S> {
    began: Duration,
    told: Option<S>,
}

impl<S: PartialEq> Steps<S> {
    /// Whether a line is due.
    fn is_due(&mut self, now: Duration, step: S) -> bool {
        let is_due =
            now.saturating_sub(self.began) >= WORTH_A_LINE && self.told.as_ref() != Some(&step);
        if is_due {
            self.told = Some(step);
        }
        is_due
    }
}

/// Does something that counts bytes, and shows how far it is.
pub fn watched<T: Send + 'static>(
    env: &Env,
    title: &str,
    total: u64,
    done: &Arc<AtomicU64>,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let words = |so_far| format!("{} of about {}", bytes(so_far), bytes(total));
    let bar = bar(|bars| bars.counted(title, total.max(1), "bytes"));
    let mut steps = Steps { began: env.now(), told: None };
    looked_at(env, done, work, |so_far| match &bar {
        Some(bar) => bar.set(so_far.min(total.max(1)), words(so_far)),
        None if steps.is_due(env.now(), tenth(so_far, total)) => {
            plinth_env::tell(format_args!("{title}: {}", words(so_far)))
        }
        None => {}
    })
}

/// Which tenth of a whole something is in, counted from 0; what goes beyond it is in the last one.
pub fn tenth(so_far: u64, total: u64) -> u64 {
    (u128::from(so_far) * 10 / u128::from(total.max(1))).min(9) as u64
}

/// Does something, and has `show` look at its counter meanwhile.
fn looked_at<T: Send + 'static>(
    env: &Env,
    done: &Arc<AtomicU64>,
    work: impl Future<Output = Result<T>> + Send + 'static,
    mut show: impl FnMut(u64),
) -> Result<T> {
    let (sender, reply) = promise();
    let task = env.spawn("backup-work", async move { sender.send(work.await) });
    while !task.is_finished() {
        block_on(env.sleep(LOOK));
        show(done.load(Ordering::Relaxed));
    }
    reply.wait()
}

/// Something that another process does and this one waits for.
pub struct Waiting<S> {
    title: String,
    bar: Option<Task>,
    steps: Steps<S>,
}

impl<S: PartialEq> Waiting<S> {
    pub fn begin(env: &Env, title: String) -> Self {
        let bar = bar(|bars| bars.unknown(&title));
        Self { bar, title, steps: Steps { began: env.now(), told: None } }
    }

    /// Tells how it is, in words; a line is worth it when it is at another `step`.
    pub fn set(&mut self, env: &Env, step: S, words: String) {
        match &self.bar {
            Some(bar) => bar.set(0, words),
            None if self.steps.is_due(env.now(), step) => {
                plinth_env::tell(format_args!("{}: {words}", self.title))
            }
            None => {}
        }
    }
}

/// Waits for an answer that may never come, and tells after a moment that it does, with what is
/// known of why. `None` if it takes longer than `most`.
pub fn answered<T>(
    env: &Env,
    title: String,
    most: Duration,
    trouble: impl Fn() -> Option<String>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let (began, mut work) = (env.now(), std::pin::pin!(work));
    let mut waiting = Waiting::begin(env, title);
    loop {
        if let First::Left(answer) = block_on(race(work.as_mut(), env.sleep(LOOK))) {
            return Some(answer);
        }
        if env.now().saturating_sub(began) >= most {
            return None;
        }
        let words = trouble().unwrap_or_else(|| "no answer yet".to_owned());
        waiting.set(env, words.clone(), words);
    }
}

/// A bar, where there is a terminal.
fn bar(begin: impl FnOnce(Progress) -> Task) -> Option<Task> {
    let progress = terminal::progress();
    (progress == Progress::Bars).then(|| begin(progress))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth::Error;

    #[test]
    fn lines_are_told_late_and_seldom() {
        let at = Duration::from_millis;
        let mut steps = Steps { began: at(5000), told: None };
        let told: Vec<u64> =
            (0..2000_u64).filter(|n| steps.is_due(at(5000 + 50 * n), tenth(*n, 2000))).collect();
        assert_eq!(told, [40, 200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800]);
        assert_eq!(
            [(0, 0), (5, 0), (999, 1000), (2000, 1000)].map(|(of, all)| tenth(of, all)),
            [0, 9, 9, 9]
        );
        let mut quick = Steps { began: at(0), told: None };
        assert!(!(0..2000).any(|now| quick.is_due(at(now), now)), "it takes less than two seconds");
    }

    /// The work waits until it has been seen at its first byte, and again at its second one.
    #[test]
    fn what_is_done_so_far_is_shown_while_it_is_done() {
        let env = Env::real();
        let done = Arc::new(AtomicU64::new(0));
        let seen = Arc::new(AtomicU64::new(0));
        let (inner, counted, looked) = (env.clone(), done.clone(), seen.clone());
        let work = async move {
            for byte in 1..=2 {
                counted.store(byte, Ordering::SeqCst);
                let is_seen = async {
                    while looked.load(Ordering::SeqCst) < byte {
                        inner.sleep(Duration::from_millis(1)).await;
                    }
                };
                let too_long = inner.sleep(Duration::from_secs(60));
                if let First::Right(()) = race(is_seen, too_long).await {
                    return Err(Error::timed_out());
                }
            }
            Ok("done")
        };
        let result = looked_at(&env, &done, work, |so_far| seen.store(so_far, Ordering::SeqCst));
        assert_eq!(result, Ok("done"));
    }
}
