//! What came and isn't saved, of all senders together: bodies of requests, and what connections on
//! lines have in hand while the store makes them wait. So many of them at once cost no more memory
//! than there is for them.

use plinth_env::Signal;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What all of them hold, bodies as they came and decompressed.
pub(super) struct Bodies {
    /// How many bytes that may be.
    most: usize,
    bytes: AtomicUsize,
    /// Has a permit while nobody reads a large one on a thread of its own.
    reading: Signal,
}

/// The turn of whoever reads a large body.
pub(super) struct Reading<'a>(&'a Signal);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.notify();
    }
}

/// What one request, or connection, holds of them.
pub(super) struct Held<'a> {
    bodies: &'a Bodies,
    bytes: usize,
}

impl Bodies {
    /// So many bytes of them.
    pub(super) fn up_to(most: usize) -> Self {
        let reading = Signal::new();
        reading.notify();
        Self { most, bytes: AtomicUsize::new(0), reading }
    }

    /// Somebody who holds nothing yet.
    pub(super) fn hold(&self) -> Held<'_> {
        Held { bodies: self, bytes: 0 }
    }

    /// Waits until nobody else reads a large body: so however many there are, they take one thread.
    pub(super) async fn reading(&self) -> Reading<'_> {
        self.reading.wait().await;
        Reading(&self.reading)
    }

    /// Bytes that are held.
    pub(super) fn held(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Held<'_> {
    /// Holds so many bytes more. Whether there was room for them.
    pub(super) fn add(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.bodies.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.bodies.most
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.bodies.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
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
        drop(one);
        assert_eq!(bodies.held(), 0);
    }
}
