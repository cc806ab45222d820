//! How often a first read that is sent before there is a version comes to something.

use std::sync::atomic::{AtomicU32, Ordering};

/// Of the share of reads that came to something the last one counts for a sixteenth.
const WEIGHT: u32 = 16;
const ALL: u32 = 1 << 16;
/// After so many that weren't sent one is, to see whether that is better by now.
const RETRY: u32 = 64;

/// How often first reads come to something: where rows change all the time and whoever is asked
/// lags, most of them don't, and only cost.
pub(super) struct Luck {
    share: AtomicU32,
    passed: AtomicU32,
}

impl Default for Luck {
    fn default() -> Self {
        Self { share: AtomicU32::new(ALL), passed: AtomicU32::new(0) }
    }
}

impl Luck {
    /// Whether the next first read is to be sent before there is a version.
    pub fn is_tried(&self) -> bool {
        self.share.load(Ordering::Relaxed) >= ALL / 2
            || self.passed.fetch_add(1, Ordering::Relaxed) % RETRY == RETRY - 1
    }

    /// One came to something, or not. Of two at a time one may go uncounted.
    pub fn note(&self, hit: bool) {
        let share = self.share.load(Ordering::Relaxed);
        let of_last = if hit { ALL / WEIGHT } else { 0 };
        let next = share - share / WEIGHT + of_last;
        if next != share {
            self.share.store(next.min(ALL), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_come_to_nothing_are_left_out_until_they_would_again() {
        let luck = Luck::default();
        let sent = |luck: &Luck| (0..640).filter(|_| luck.is_tried()).count();
        assert_eq!(sent(&luck), 640);
        (0..100).for_each(|at| luck.note(at % 4 > 0));
        assert_eq!(sent(&luck), 640, "most come to something");
        (0..100).for_each(|_| luck.note(false));
        assert_eq!(sent(&luck), 10, "one of sixty-four");
        (0..100).for_each(|_| luck.note(true));
        assert_eq!(sent(&luck), 640);
    }
}
