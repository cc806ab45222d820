//! Tasks: what [`Env::spawn`](crate::Env::spawn) gives back.
//!
//! A handle can be awaited or, in the real world, waited for on a thread; dropping it lets the task
//! run on. Why a task ended badly is told to whoever holds the handle.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use plinth_types::Error;

use crate::cell::{Receiver, Sender, cell};

/// A running task.
pub struct Task {
    receiver: Receiver<Result<(), TaskFailed>>,
    ended: bool,
}

/// A task ended without coming to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskFailed {
    /// The name given when it was spawned.
    pub name: String,
    /// What happened: the panic's message, or that the process crashed.
    pub reason: String,
}

impl Task {
    pub(crate) fn new(name: &str) -> (Completion, Self) {
        let (sender, receiver) = cell();
        (Completion { sender, name: name.to_string() }, Self { receiver, ended: false })
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.ended || self.receiver.is_full()
    }

    /// Parks the thread until the task has ended.
    ///
    /// # Errors
    /// If it panicked, could not be started, or (in simulation) this would wait for ever.
    pub fn wait(self) -> Result<(), TaskFailed> {
        if crate::park::is_simulating() && !self.is_finished() {
            let reason = "a simulated task must await it, not block its thread".to_string();
            return Err(TaskFailed { name: String::new(), reason });
        }
        self.receiver.wait().unwrap_or(Ok(()))
    }
}

impl Future for Task {
    type Output = Result<(), TaskFailed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.receiver.poll(context);
        self.ended |= polled.is_ready();
        polled
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("finished", &self.is_finished()).finish()
    }
}

impl fmt::Display for TaskFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {:?} failed: {}", self.name, self.reason)
    }
}

impl std::error::Error for TaskFailed {}

impl From<TaskFailed> for Error {
    fn from(failed: TaskFailed) -> Self {
        Self::internal_error().with_detail(failed.to_string())
    }
}

/// The running side of a task. Dropped before it is told how the task ended: the task failed.
pub(crate) struct Completion {
    sender: Sender<Result<(), TaskFailed>>,
    name: String,
}

impl Completion {
    pub(crate) fn finish(mut self) {
        self.sender.complete(Ok(()));
    }

    pub(crate) fn fail(mut self, reason: String) {
        self.fail_in_place(reason);
    }

    fn fail_in_place(&mut self, reason: String) {
        let name = std::mem::take(&mut self.name);
        self.sender.complete(Err(TaskFailed { name, reason }));
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if !self.sender.is_spent() {
            self.fail_in_place("it was dropped before its end".to_string());
        }
    }
}

/// The text of a panic.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic".to_string())
}
