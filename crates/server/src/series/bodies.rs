//! What came and isn't saved, of all senders together: bodies of requests, and what connections on
//! lines have in hand while the store makes them wait. So many of them at once cost no more memory
//! than there is for them.

use plinth_env::reply::promise;
use plinth_env::{Env, Signal};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What all of them hold, bodies as they came and decompressed.
pub(super) struct Bodies {
    all: Arc<All>,
    /// Has a permit while nobody reads a large one on a thread of its own.
    reading: Arc<Signal>,
}

struct All {
    /// How many bytes that may be.
    most: usize,
    bytes: AtomicUsize,
}

/// The turn of whoever reads a large body.
struct Reading(Arc<Signal>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.notify();
    }
}

/// What one request, or connection, holds of them.
pub(super) struct Held {
    all: Arc<All>,
    bytes: usize,
    /// What of that a session has in hand.
    in_hand: usize,
}

impl Bodies {
    /// So many bytes of them.
    pub(super) fn up_to(most: usize) -> Self {
        let reading = Arc::new(Signal::new());
        reading.notify();
        Self { all: Arc::new(All { most, bytes: AtomicUsize::new(0) }), reading }
    }

    /// Somebody who holds nothing yet.
    pub(super) fn hold(&self) -> Held {
        Held { all: self.all.clone(), bytes: 0, in_hand: 0 }
    }

    /// Does what takes longer than others on the thread should wait for, on a thread of its own,
    /// once nobody else does: so however many bodies are large, they take one thread. What it takes
    /// along has so many bytes, which are held until it is done, be whoever sent them gone or not.
    /// `None` if there is no room for those, or it failed.
    pub(super) async fn apart<T: Send + 'static>(
        &self,
        env: &Env,
        (name, bytes): (&str, usize),
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let mut along = self.hold();
        if !along.add(bytes) {
            return None;
        }
        self.reading.wait().await;
        let turn = Reading(self.reading.clone());
        let (done, told) = promise();
        drop(env.spawn(name, async move {
            let answer = work();
            drop((turn, along));
            done.send(Ok(answer));
        }));
        told.await.ok()
    }

    /// Bytes that are held.
    pub(super) fn held(&self) -> usize {
        self.all.bytes.load(Ordering::Relaxed)
    }
}

impl Held {
    /// Holds so many bytes more. Whether there was room for them.
    pub(super) fn add(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.all.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.all.most
    }

    /// Gives so many bytes back, or all that it holds.
    pub(super) fn give_back(&mut self, bytes: usize) {
        let given = bytes.min(self.bytes);
        self.bytes -= given;
        self.all.bytes.fetch_sub(given, Ordering::Relaxed);
    }

    /// Holds what a session has in hand, which was something else before. Whether there is room
    /// for that.
    pub(super) fn has_in_hand(&mut self, bytes: usize) -> bool {
        let before = std::mem::replace(&mut self.in_hand, bytes);
        match bytes.checked_sub(before) {
            Some(more) => self.add(more),
            None => {
                self.give_back(before - bytes);
                true
            }
        }
    }

    /// Holds what another one did.
    pub(super) fn join(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What is said of a request for which there is no room.
pub(super) const NO_ROOM: &str =
    "other requests take all the memory that there is for bodies: send it again";

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 1 << 20;

    #[test]
    fn what_requests_hold_together_is_bounded_and_given_back() {
        let bodies = Bodies::up_to(MOST);
        let (mut one, mut other) = (bodies.hold(), bodies.hold());
        assert!(one.add(MOST / 2) && other.add(MOST / 4));
        assert!(!other.add(MOST / 2), "that is more than there is");
        drop(other);
        assert_eq!(bodies.held(), MOST / 2);
        assert!(one.add(MOST / 2));
        assert!(!one.has_in_hand(10), "there is no more");
        assert!(one.has_in_hand(4), "a session that has less has room");
        assert_eq!(bodies.held(), MOST + 4);
        let mut other = bodies.hold();
        assert!(!other.add(7));
        one.join(other);
        one.give_back(5);
        assert_eq!(bodies.held(), MOST + 6);
        drop(one);
        assert_eq!(bodies.held(), 0);
    }
}
