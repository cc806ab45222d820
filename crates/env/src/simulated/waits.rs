//! Waiting for a simulated time: a call at a time, and a sleep. Each is an action among the
//! universe's timers, which goes when this is dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::timers::{Action, TimerId};
use super::universe::Host;

impl Host {
    /// A call at `at`; nothing for a process that has crashed.
    pub(crate) fn call_at(
        self: &Arc<Self>,
        at: Duration,
        call: Box<dyn FnOnce() + Send>,
    ) -> SimulatedTimer {
        let mut core = self.universe.lock();
        if !self.is_alive(&core) {
            drop(core);
            drop(call);
            return SimulatedTimer::new(self.clone(), None);
        }
        let action = Action::Call { process: self.process, incarnation: self.incarnation, call };
        let at = core.processes[self.process].clock.when(at);
        let id = core.timers.add(at, action);
        drop(core);
        SimulatedTimer::new(self.clone(), Some(id))
    }
}

/// A call at a time, cancelled by dropping it.
pub(crate) struct SimulatedTimer {
    host: Arc<Host>,
    id: Option<TimerId>,
}

impl SimulatedTimer {
    pub(crate) fn new(host: Arc<Host>, id: Option<TimerId>) -> Self {
        Self { host, id }
    }

    pub(crate) fn detach(mut self) {
        self.id = None;
    }
}

impl Drop for SimulatedTimer {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let action = self.host.universe.lock().timers.remove(id);
            drop(action);
        }
    }
}

/// Ready at a time.
pub(crate) struct SimulatedSleep {
    host: Arc<Host>,
    at: Duration,
    waiting: Option<(TimerId, Waker)>,
}

impl SimulatedSleep {
    pub(crate) fn new(host: Arc<Host>, at: Duration) -> Self {
        Self { host, at, waiting: None }
    }

    fn stop(&mut self) {
        if let Some((id, _)) = self.waiting.take() {
            let action = self.host.universe.lock().timers.remove(id);
            drop(action);
        }
    }
}

impl Future for SimulatedSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        assert!(
            crate::park::is_simulating(),
            "a simulated wait outside of its simulation would never end: use Simulation::run_until"
        );
        if self.waiting.as_ref().is_some_and(|(_, waker)| !waker.will_wake(context.waker())) {
            self.stop();
        }
        let this = &mut *self;
        let mut core = this.host.universe.lock();
        if core.now >= this.at {
            drop(core);
            this.stop();
            return Poll::Ready(());
        }
        if this.waiting.is_none() {
            let waker = context.waker().clone();
            let id = core.timers.add(this.at, Action::Wake(waker.clone()));
            this.waiting = Some((id, waker));
        }
        Poll::Pending
    }
}

impl Drop for SimulatedSleep {
    fn drop(&mut self) {
        self.stop();
    }
}
