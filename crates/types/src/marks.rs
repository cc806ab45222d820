//! Marks in the product for its simulation: probes on rare paths, and mistakes that can be planted.
//!
//! [`probe!`](crate::probe) counts how often a rare path was taken, so that a report can say which
//! paths no run has reached. [`planted!`](crate::planted) asks whether a mistake is to be made on
//! purpose, by which the tests of the simulation prove that it would notice one. Names are texts;
//! the simulation has a table of each kind.
//!
//! Both are kept for each thread: a simulation runs on one, and several run side by side. Without
//! the features `probes` and `planted-bugs` the two leave nothing behind in the program: the one is
//! an empty function, the other a constant.

#[cfg(feature = "planted-bugs")]
use std::cell::Cell;
#[cfg(feature = "probes")]
use std::{cell::RefCell, collections::BTreeMap};

/// Counts that this place was reached: `probe!("log: torn tail cut")`.
#[macro_export]
macro_rules! probe {
    ($name:literal) => {
        $crate::marks::hit($name)
    };
}

/// Whether the mistake of this name is to be made: `planted!("a watch does not fire")`.
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        $crate::marks::is_planted($name)
    };
}

#[cfg(feature = "probes")]
thread_local! {
    static HITS: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

#[cfg(feature = "planted-bugs")]
thread_local! {
    static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// What [`probe!`](crate::probe) does.
#[cfg(feature = "probes")]
pub fn hit(name: &'static str) {
    // A thread that is ending has nobody to report to.
    let _ = HITS.try_with(|hits| *hits.borrow_mut().entry(name).or_insert(0) += 1);
}

/// What [`probe!`](crate::probe) does without the feature `probes`: nothing.
#[cfg(not(feature = "probes"))]
#[inline(always)]
pub const fn hit(_name: &'static str) {}

/// How often this thread has reached each probe since it was last asked.
#[cfg(feature = "probes")]
pub fn take_hits() -> BTreeMap<&'static str, u64> {
    HITS.take()
}

/// What [`planted!`](crate::planted) asks.
#[cfg(feature = "planted-bugs")]
pub fn is_planted(name: &'static str) -> bool {
    PLANTED.get() == Some(name)
}

/// What [`planted!`](crate::planted) asks; without the feature `planted-bugs` no mistake is ever
/// planted.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn is_planted(_name: &'static str) -> bool {
    false
}

/// From now on this thread makes the mistake of this name, or none.
#[cfg(feature = "planted-bugs")]
pub fn plant(name: Option<&'static str>) {
    PLANTED.set(name);
}

#[cfg(all(test, feature = "probes", feature = "planted-bugs"))]
mod tests {
    use super::*;

    #[test]
    fn hits_are_counted_by_name_until_they_are_taken() {
        drop(take_hits());
        probe!("one");
        probe!("two");
        probe!("one");
        assert_eq!(take_hits().into_iter().collect::<Vec<_>>(), [("one", 2), ("two", 1)]);
        assert!(take_hits().is_empty());
    }

    #[test]
    fn a_mistake_is_made_only_while_it_is_planted() {
        assert!(!planted!("wrong"));
        plant(Some("wrong"));
        assert!(planted!("wrong") && !planted!("other"));
        plant(None);
        assert!(!planted!("wrong"));
    }
}
