//! Memory for the bodies of cached blocks: what one block leaves behind, the next one takes.
//!
//! A general allocator gives memory back to the part of it that it came from, and the C library has
//! such a part for each of many threads. Blocks are read by one thread and let go by another; so
//! each part came to hold as much as the cache had ever had from it, and a process with a budget of
//! 256 MiB took 481. With what is let go kept here, for whoever reads next, the cache takes from
//! the allocator what it is allowed once, and no more (345 MiB; what is left beyond the budget is
//! not the cache).
//!
//! Buffers come in classes, multiples of [`STEP`] bytes, so that one fits the next block though no
//! two are equally long. Those of unusually large blocks are not kept.

use std::array;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Capacities are multiples of this.
const STEP: usize = 512;
/// Capacities kept: up to so many steps.
const CLASSES: usize = 32;

type Class = Mutex<Vec<Vec<u8>>>;

/// Buffers that wait to be used again.
pub(crate) struct Buffers {
    /// By capacity: in place n those of n + 1 steps.
    classes: [Class; CLASSES],
    bytes: AtomicUsize,
}

impl Default for Buffers {
    fn default() -> Self {
        Self { classes: array::from_fn(|_| Mutex::default()), bytes: AtomicUsize::new(0) }
    }
}

impl Buffers {
    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A buffer of so many bytes, whatever they are.
    pub fn take(&self, len: usize) -> Vec<u8> {
        let steps = len.div_ceil(STEP).max(1);
        // One that is a step too large will do.
        for class in self.classes.iter().skip(steps - 1).take(2) {
            let taken = lock(class).pop();
            if let Some(mut buffer) = taken {
                self.bytes.fetch_sub(buffer.capacity(), Ordering::Relaxed);
                buffer.resize(len, 0);
                return buffer;
            }
        }
        let mut buffer = Vec::with_capacity(steps * STEP);
        buffer.resize(len, 0);
        buffer
    }

    /// Keeps a buffer, unless more than `most` bytes would wait then.
    pub fn give(&self, buffer: Vec<u8>, most: usize) {
        let capacity = buffer.capacity();
        let class = (capacity / STEP).checked_sub(1).and_then(|place| self.classes.get(place));
        let Some(class) = class.filter(|_| capacity.is_multiple_of(STEP)) else { return };
        if self.bytes.fetch_add(capacity, Ordering::Relaxed) + capacity > most {
            self.bytes.fetch_sub(capacity, Ordering::Relaxed);
            return;
        }
        lock(class).push(buffer);
    }

    /// Lets buffers go until no more than `most` bytes wait.
    pub fn shrink(&self, most: usize) {
        for class in &self.classes {
            while self.bytes() > most {
                let taken = lock(class).pop();
                let Some(buffer) = taken else { break };
                self.bytes.fetch_sub(buffer.capacity(), Ordering::Relaxed);
            }
        }
    }
}

fn lock(class: &Class) -> MutexGuard<'_, Vec<Vec<u8>>> {
    class.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_was_given_is_taken_again_by_what_fits() {
        let buffers = Buffers::default();
        let first = buffers.take(4100);
        assert_eq!((first.len(), first.capacity()), (4100, 9 * STEP));
        let place = first.as_ptr();
        buffers.give(first, 1 << 20);
        assert_eq!(buffers.bytes(), 9 * STEP);
        assert_eq!(buffers.take(9 * STEP + 1).capacity(), 10 * STEP, "it is too small for that");
        assert_eq!(buffers.take(7 * STEP).capacity(), 7 * STEP, "it is two steps too large");
        let again = buffers.take(8 * STEP);
        assert_eq!(
            (again.as_ptr(), again.len(), buffers.bytes()),
            (place, 8 * STEP, 0),
            "a step too large, and as long as was asked for"
        );
    }

    #[test]
    fn no_more_waits_than_may() {
        let buffers = Buffers::default();
        let give = |most| buffers.give(Vec::with_capacity(STEP), most);
        (0..5).for_each(|_| give(3 * STEP));
        assert_eq!(buffers.bytes(), 3 * STEP);
        buffers.give(Vec::with_capacity((CLASSES + 1) * STEP), usize::MAX);
        buffers.give(Vec::with_capacity(STEP + 1), usize::MAX);
        buffers.give(Vec::new(), usize::MAX);
        assert_eq!(buffers.bytes(), 3 * STEP, "only capacities of a class");
        buffers.shrink(STEP);
        assert_eq!(buffers.bytes(), STEP);
        buffers.shrink(0);
        assert_eq!(buffers.bytes(), 0);
    }
}
