//! From one task to another, in order, a few at a time: whoever is ahead waits.

use plinth_env::sync::Signal;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    /// Something came, or nothing more will.
    filled: Signal,
    /// Something was taken, or nothing more will be.
    emptied: Signal,
    most: usize,
}

struct Queue<T> {
    items: VecDeque<T>,
    /// One of the two ends is gone.
    is_closed: bool,
}

/// The end that gives.
pub(super) struct Sender<T>(Arc<Shared<T>>);

/// The end that takes.
pub(super) struct Receiver<T>(Arc<Shared<T>>);

/// Two ends with room for `most` items between them.
pub(super) fn handover<T>(most: usize) -> (Sender<T>, Receiver<T>) {
    let queue = Mutex::new(Queue { items: VecDeque::new(), is_closed: false });
    let shared = Arc::new(Shared { queue, filled: Signal::new(), emptied: Signal::new(), most });
    (Sender(shared.clone()), Receiver(shared))
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify();
        self.emptied.notify();
    }
}

impl<T> Sender<T> {
    /// Gives an item as soon as there is room. False if nobody will take it.
    pub async fn send(&self, item: T) -> bool {
        let mut item = Some(item);
        loop {
            {
                let mut queue = self.0.lock();
                if queue.is_closed {
                    return false;
                }
                if queue.items.len() < self.0.most {
                    queue.items.extend(item.take());
                    assert!(
                        queue.items.len() <= self.0.most,
                        "more lie between two tasks than may"
                    );
                    drop(queue);
                    self.0.filled.notify();
                    return true;
                }
            }
            self.0.emptied.wait().await;
        }
    }
}

impl<T> Receiver<T> {
    /// The next item; `None` when all were taken and no more will come.
    pub async fn next(&mut self) -> Option<T> {
        loop {
            {
                let mut queue = self.0.lock();
                if let Some(item) = queue.items.pop_front() {
                    drop(queue);
                    self.0.emptied.notify();
                    return Some(item);
                }
                if queue.is_closed {
                    return None;
                }
            }
            self.0.filled.wait().await;
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}
