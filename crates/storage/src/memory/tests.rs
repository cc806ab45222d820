//! The engine against the model, and what is particular to it.

use super::*;
use crate::conformance;

fn make(version: Version) -> Box<dyn Storage> {
    Box::new(MemoryStorage::new(version))
}

#[test]
#[cfg(not(miri))]
fn conformance_suite() {
    conformance::test_all(&make, 150, 150);
}

#[test]
#[cfg(miri)]
fn random_programs() {
    for seed in 0..4 {
        conformance::random::run(&make, seed, 12);
    }
}
