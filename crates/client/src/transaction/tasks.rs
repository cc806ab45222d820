//! Operations that take several steps, driven by the answers they wait for.
//!
//! An operation is an ordinary future. [`launch`](super::Inner::launch) polls it on the caller's
//! thread; if all its answers are there already it is over before the call returns, and nothing was
//! registered. Otherwise it becomes a [`Task`]: each answer that arrives polls it on the thread
//! that brought the answer, so that it goes on whether or not anybody awaits its reply. Reset,
//! cancel and timeout end it with an error.

use plinth_env::reply::Promise;
use plinth_types::{Error, Result};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

pub(crate) type Operation<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

type Finished<T> = Box<dyn FnOnce(&Result<T>) + Send>;

/// Something outstanding that can be ended with an error.
pub(crate) trait Abort: Send + Sync {
    fn abort(&self, error: Error);
}

/// The tasks of one transaction that are not over, by number.
#[derive(Default)]
pub(crate) struct Tasks {
    slots: Vec<Option<Arc<dyn Abort>>>,
    free: Vec<usize>,
}

impl Tasks {
    pub(crate) fn insert(&mut self, task: Arc<dyn Abort>) -> usize {
        if let Some(slot) = self.free.pop() {
            self.slots[slot] = Some(task);
            return slot;
        }
        self.slots.push(Some(task));
        self.slots.len() - 1
    }

    pub(crate) fn remove(&mut self, slot: usize) -> Option<Arc<dyn Abort>> {
        let task = self.slots.get_mut(slot)?.take();
        if task.is_some() {
            self.free.push(slot);
        }
        task
    }

    pub(crate) fn take_all(&mut self) -> Vec<Arc<dyn Abort>> {
        self.free.clear();
        self.slots.drain(..).flatten().collect()
    }
}

/// An operation and the promise of its result.
pub(crate) struct Task<T> {
    run: Mutex<Run<T>>,
}

struct Run<T> {
    /// Away while it is polled.
    operation: Option<Operation<T>>,
    promise: Option<Promise<T>>,
    /// Called when the operation is over by itself, before its promise is kept.
    finished: Option<Finished<T>>,
    polling: bool,
    woken: bool,
}

impl<T: Send + 'static> Task<T> {
    pub(crate) fn new(operation: Operation<T>, promise: Promise<T>) -> Arc<Self> {
        Arc::new(Self {
            run: Mutex::new(Run {
                operation: Some(operation),
                promise: Some(promise),
                finished: None,
                polling: false,
                woken: false,
            }),
        })
    }

    /// Runs an operation that belongs to no transaction, until it is over or nobody waits for it
    /// any more.
    pub(crate) fn detached(
        operation: impl Future<Output = Result<T>> + Send + 'static,
        mut promise: Promise<T>,
    ) {
        if promise.is_cancelled() {
            return;
        }
        let task = Arc::new_cyclic(|itself: &Weak<Self>| {
            let itself = itself.clone();
            promise.on_cancel(move || {
                if let Some(task) = itself.upgrade() {
                    task.abort(Error::operation_cancelled());
                }
            });
            let operation: Operation<T> = Box::pin(operation);
            Self {
                run: Mutex::new(Run {
                    operation: Some(operation),
                    promise: Some(promise),
                    finished: None,
                    polling: false,
                    woken: false,
                }),
            }
        });
        let is_cancelled = task.lock().promise.as_ref().is_some_and(Promise::is_cancelled);
        if is_cancelled {
            return task.abort(Error::operation_cancelled());
        }
        task.run();
    }

    pub(crate) fn on_finish(&self, f: impl FnOnce(&Result<T>) + Send + 'static) {
        self.lock().finished = Some(Box::new(f));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Run<T>> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls the operation until it waits for something or is over.
    pub(crate) fn run(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut run = self.lock();
        if run.polling {
            run.woken = true;
            return;
        }
        loop {
            let Some(mut operation) = run.operation.take() else { return };
            run.polling = true;
            run.woken = false;
            drop(run);
            let polled = operation.as_mut().poll(&mut Context::from_waker(&waker));
            run = self.lock();
            run.polling = false;
            match polled {
                Poll::Ready(result) => {
                    let (promise, finished) = (run.promise.take(), run.finished.take());
                    drop(run);
                    drop(operation);
                    if let Some(promise) = promise {
                        if let Some(finished) = finished {
                            finished(&result);
                        }
                        promise.send(result);
                    }
                    return;
                }
                Poll::Pending if run.promise.is_none() => {
                    // Aborted meanwhile: the operation is dropped here because it was not at home
                    // then.
                    drop(run);
                    return;
                }
                Poll::Pending => {
                    run.operation = Some(operation);
                    if !run.woken {
                        return;
                    }
                }
            }
        }
    }
}

impl<T: Send + 'static> Wake for Task<T> {
    fn wake(self: Arc<Self>) {
        self.run();
    }
}

impl<T: Send + 'static> Abort for Task<T> {
    fn abort(&self, error: Error) {
        let mut run = self.lock();
        let (operation, promise, finished) =
            (run.operation.take(), run.promise.take(), run.finished.take());
        drop(run);
        drop(operation);
        drop(finished);
        if let Some(promise) = promise {
            promise.send(Err(error));
        }
    }
}
