//! How much memory connections may take, each and all together.
//!
//! A connection is charged for a request that waits with what carrying it out takes *and* with the
//! largest reply that it can have, before it is known how large that is: otherwise requests of a
//! few bytes could wait together and be answered together with gigabytes. That bounds one
//! connection. For all of them together what they really hold is counted here: half frames, replies
//! that clients don't take, watches, requests under way. Who holds little isn't counted at all, so
//! that cores don't fight over one number.
//!
//! ```text
//!   held     0 ................ half of the bound ........................ the bound
//!            as limits say  |   a connection has one request   |   those who hold the most
//!                           |   under way, and little output   |   are cut off
//! ```

use plinth_types::RangeRead;
use plinth_types::limits::{REPLY_BYTES, SYSTEM_KEY_SIZE, VALUE_SIZE};
use plinth_types::rows::row_overhead;
use std::ops::{AddAssign, SubAssign};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// What a connection may hold without being counted, in bytes. Beyond it, everything is.
pub(crate) const UNCOUNTED: usize = 16 << 10;
/// What a request under way takes beyond its bytes: a promise, whoever keeps it, a place among
/// others who wait.
pub(crate) const REQUEST_OVERHEAD: usize = 512;
/// How long those who were cut off have to let go of what they hold before more of them are.
const RESPITE: Duration = Duration::from_millis(10);

/// Largest key in a reply, and what stands around it.
const KEY: usize = SYSTEM_KEY_SIZE + 64;
/// Largest row in a reply.
const ROW: usize = KEY + VALUE_SIZE + row_overhead();

/// Bytes of the largest reply with the values of so many keys.
pub(crate) const fn values(keys: usize) -> usize {
    keys * (VALUE_SIZE + 4)
}

/// Bytes of the largest reply to a read of a range: the row that reaches the target is among it.
pub(crate) fn rows(read: &RangeRead) -> usize {
    read.limit.saturating_mul(ROW).min(read.target_bytes.min(REPLY_BYTES) + ROW)
}

/// Bytes of the largest reply that is a key.
pub(crate) const ONE_KEY: usize = KEY;
/// Bytes of the largest reply that is a list of keys, or a document.
pub(crate) const LIST: usize = 1 << 20;
/// Bytes of the changes in a reply, but for a batch that is larger by itself.
pub(crate) const CHANGES: usize = 1 << 20;
/// Bytes of a reply that is small whatever happens, or not much larger than its request.
pub(crate) const SMALL: usize = 64;

/// What a request under way is charged with, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Charge {
    /// What it takes until it is answered.
    pub(crate) request: usize,
    /// The largest reply that it can have.
    pub(crate) reply: usize,
}

impl Charge {
    /// For a request of so many bytes, whose reply has at most as many as that.
    pub(crate) fn new(request: usize, reply: usize) -> Self {
        Self { request: request + REQUEST_OVERHEAD, reply }
    }

    pub(crate) fn sum(self) -> usize {
        self.request + self.reply
    }
}

impl AddAssign for Charge {
    fn add_assign(&mut self, other: Self) {
        self.request += other.request;
        self.reply += other.reply;
    }
}

impl SubAssign for Charge {
    fn sub_assign(&mut self, other: Self) {
        self.request -= other.request;
        self.reply -= other.reply;
    }
}

/// What all connections of a server hold together. Relaxed: the numbers order nothing.
#[derive(Debug)]
pub(crate) struct Memory {
    held: AtomicUsize,
    most: usize,
    /// Milliseconds of the clock before which nobody is cut off again.
    respite: AtomicU64,
}

impl Memory {
    /// Of which at most so many bytes may be held.
    pub(crate) fn new(most: usize) -> Self {
        Self { held: AtomicUsize::new(0), most, respite: AtomicU64::new(0) }
    }

    /// Bytes that are held, of those who are counted.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Bytes that are too many.
    pub(crate) fn excess(&self) -> usize {
        self.held().saturating_sub(self.most)
    }

    /// Whether connections have to make do with less.
    pub(crate) fn is_tight(&self) -> bool {
        self.held() > self.most / 2
    }

    /// Whether there is an excess.
    pub(crate) fn is_short(&self) -> bool {
        self.excess() > 0
    }

    /// Whether so many bytes more would be too many.
    pub(crate) fn has_no_room_for(&self, bytes: usize) -> bool {
        self.held().saturating_add(bytes) > self.most
    }

    /// Somebody who held so many bytes holds so many now.
    pub(crate) fn change(&self, before: usize, now: usize) {
        if before != now {
            self.held.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Whether somebody is to be cut off now: there is an excess, and those before had time to let
    /// go.
    pub(crate) fn is_cut_due(&self, now: Duration) -> bool {
        if !self.is_short() {
            return false;
        }
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (now, next) = (millis(now), millis(now + RESPITE));
        let respite = self.respite.load(Ordering::Relaxed);
        now >= respite
            && self
                .respite
                .compare_exchange(respite, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_types::KeySelector;

    #[test]
    fn the_largest_reply_to_a_range_has_its_target_and_a_row() {
        let read = |limit, target_bytes| {
            let selector = || KeySelector::first_greater_or_equal(&b""[..]);
            rows(&RangeRead {
                begin: selector(),
                end: selector(),
                limit,
                target_bytes,
                reverse: false,
            })
        };
        assert_eq!(read(0, usize::MAX), 0);
        assert_eq!(read(1, usize::MAX), ROW);
        assert_eq!(read(usize::MAX, 1000), 1000 + ROW);
        assert_eq!(read(usize::MAX, usize::MAX), REPLY_BYTES + ROW);
    }

    #[test]
    fn who_is_cut_off_has_time_before_others_are() {
        let memory = Memory::new(100);
        let at = Duration::from_millis;
        memory.change(0, 100);
        assert!(memory.is_tight() && !memory.is_cut_due(at(5)));
        memory.change(20, 60);
        assert_eq!((memory.held(), memory.excess()), (140, 40));
        assert!(
            memory.is_cut_due(at(5)) && !memory.is_cut_due(at(14)) && memory.is_cut_due(at(15))
        );
        memory.change(60, 10);
        assert!(!memory.is_short() && !memory.is_cut_due(at(99)));
    }
}
