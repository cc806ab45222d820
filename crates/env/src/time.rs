//! Waiting for a time: [`Sleep`] and [`Timer`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::real::timers::{RealSleep, RealTimer};
use crate::simulated::waits::{SimulatedSleep, SimulatedTimer};

/// A future that is ready when its time has come. See [`Env::sleep`](crate::Env::sleep).
#[must_use = "a future does nothing unless it is awaited"]
pub struct Sleep {
    kind: SleepKind,
}

enum SleepKind {
    Real(RealSleep),
    Simulated(SimulatedSleep),
}

/// A function that will be called at its time. Dropping the timer cancels the call, unless it has
/// begun.
#[must_use = "dropping a timer cancels it"]
pub struct Timer {
    kind: TimerKind,
}

enum TimerKind {
    Real(RealTimer),
    Simulated(SimulatedTimer),
}

impl Sleep {
    pub(crate) fn real(sleep: RealSleep) -> Self {
        Self { kind: SleepKind::Real(sleep) }
    }

    pub(crate) fn simulated(sleep: SimulatedSleep) -> Self {
        Self { kind: SleepKind::Simulated(sleep) }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.kind {
            SleepKind::Real(sleep) => sleep.poll(context),
            SleepKind::Simulated(sleep) => Pin::new(sleep).poll(context),
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sleep")
    }
}

impl Timer {
    pub(crate) fn real(timer: RealTimer) -> Self {
        Self { kind: TimerKind::Real(timer) }
    }

    pub(crate) fn simulated(timer: SimulatedTimer) -> Self {
        Self { kind: TimerKind::Simulated(timer) }
    }

    /// Lets the call happen although nobody keeps the timer.
    pub fn detach(self) {
        match self.kind {
            TimerKind::Real(timer) => timer.detach(),
            TimerKind::Simulated(timer) => timer.detach(),
        }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timer")
    }
}
