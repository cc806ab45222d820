//! When memory that readers may still look at can be given back: epochs.
//!
//! A reader announces the epoch in which it began in a slot of its own and clears the slot when it
//! is done. The writer tags what it has unlinked with the current epoch and begins the next one.
//! Whoever announces a later epoch has seen the unlinking, so a batch of garbage is free once no
//! slot holds its tag or an earlier one.
//!
//! Claiming a slot is one compare-and-swap on a cache line that no other thread uses at that
//! moment: every thread begins its search at a place of its own, and nothing has to be registered
//! or released when threads come and go.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// Readers inside at one moment. A reader beyond that spins until one of them leaves, microseconds
/// later.
const SLOTS: usize = if cfg!(miri) { 8 } else { 256 };
const FREE: u64 = 0;

/// The slots of the readers, and the epoch.
pub(crate) struct Epochs {
    slots: Box<[Slot]>,
    /// No slot at or beyond this index has ever been used.
    used: AtomicUsize,
    epoch: Line<AtomicU64>,
}

#[repr(align(64))]
struct Line<T>(T);

type Slot = Line<AtomicU64>;

/// Proof that its holder is inside: what it can reach now stays allocated until this is dropped.
pub(crate) struct Pin<'a> {
    slot: &'a AtomicU64,
}

thread_local! {
    static HINT: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

impl Epochs {
    pub(crate) fn new() -> Self {
        let slots = (0..SLOTS).map(|_| Line(AtomicU64::new(FREE))).collect();
        Self { slots, used: AtomicUsize::new(0), epoch: Line(AtomicU64::new(1)) }
    }

    /// Enters. Everything that is unlinked from now on stays readable until the pin is dropped.
    #[inline]
    pub(crate) fn pin(&self) -> Pin<'_> {
        let mut at = HINT.with(|hint| *hint) % SLOTS;
        loop {
            let epoch = self.epoch.0.load(Ordering::Acquire);
            let slot = &self.slots[at].0;
            if slot.compare_exchange(FREE, epoch, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                if self.used.load(Ordering::Relaxed) <= at {
                    self.used.fetch_max(at + 1, Ordering::SeqCst);
                }
                // Pairs with the fence in `oldest_pinned`: either the writer sees this slot, or
                // what we load from here on is what the writer had stored before it looked.
                fence(Ordering::SeqCst);
                return Pin { slot };
            }
            at = (at + 1) % SLOTS;
            std::hint::spin_loop();
        }
    }

    /// Ends the current epoch and gives it: the tag of what was unlinked so far. Writer only.
    pub(crate) fn advance(&self) -> u64 {
        let tag = self.epoch.0.load(Ordering::Relaxed);
        self.epoch.0.store(tag + 1, Ordering::Release);
        tag
    }

    /// What was tagged below this can be freed. Writer only.
    pub(crate) fn oldest_pinned(&self) -> u64 {
        fence(Ordering::SeqCst);
        let used = self.used.load(Ordering::SeqCst);
        let slots = self.slots[..used].iter().map(|slot| slot.0.load(Ordering::Acquire));
        slots.filter(|epoch| *epoch != FREE).min().unwrap_or(u64::MAX)
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.store(FREE, Ordering::Release);
    }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "frees what the epochs say can be freed")]
mod tests {
    use super::*;
    use plinth_env::Env;
    use std::sync::Arc;
    use std::sync::atomic::AtomicPtr;

    #[test]
    fn garbage_waits_for_the_readers_that_began_before() {
        let epochs = Epochs::new();
        let early = epochs.pin();
        let tag = epochs.advance();
        assert!(epochs.oldest_pinned() <= tag);
        let late = epochs.pin();
        drop(early);
        assert!(epochs.oldest_pinned() > tag);
        drop(late);
        assert_eq!(epochs.oldest_pinned(), u64::MAX);
    }

    #[test]
    fn a_thread_may_enter_twice() {
        let epochs = Epochs::new();
        let first = epochs.pin();
        let second = epochs.pin();
        assert!(!std::ptr::eq(first.slot, second.slot));
        drop(first);
        assert_eq!(epochs.oldest_pinned(), 1);
        drop(second);
    }

    /// Readers follow a pointer again and again, while the writer replaces what it points to and
    /// frees the old. Miri tells if one of them comes too late, with as many schedules and as weak
    /// a memory as it is asked for (`MIRIFLAGS=-Zmiri-many-seeds`).
    #[test]
    fn nothing_is_freed_under_a_reader() {
        let env = Env::real();
        let shared = Arc::new((Epochs::new(), AtomicPtr::new(Box::into_raw(Box::new(0u64)))));
        let rounds = if cfg!(miri) { 12 } else { 20_000 };
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                env.spawn("reader", async move {
                    let (epochs, pointer) = &*shared;
                    let mut last = 0;
                    while last < rounds {
                        let _pin = epochs.pin();
                        // SAFETY: it was reachable after we entered, so it is not freed before we
                        // leave.
                        let seen = unsafe { *pointer.load(Ordering::Acquire) };
                        assert!(seen >= last && seen <= rounds, "{seen} after {last}");
                        last = seen;
                    }
                })
            })
            .collect();
        let (epochs, pointer) = &*shared;
        let mut garbage = Vec::new();
        for round in 1..=rounds {
            let old = pointer.swap(Box::into_raw(Box::new(round)), Ordering::AcqRel);
            garbage.push((epochs.advance(), old));
            let oldest = epochs.oldest_pinned();
            garbage.retain(|(tag, old)| {
                let free = *tag < oldest;
                if free {
                    // SAFETY: it is out of reach, and who began before that has left.
                    drop(unsafe { Box::from_raw(*old) });
                }
                !free
            });
        }
        for reader in readers {
            reader.wait().expect("a reader saw what was freed");
        }
        for old in garbage.into_iter().map(|(_, old)| old).chain([pointer.load(Ordering::Acquire)])
        {
            // SAFETY: all readers have left.
            drop(unsafe { Box::from_raw(old) });
        }
    }
}
