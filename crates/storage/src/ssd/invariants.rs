//! What is true of the engine between any two of its steps: called by simulations and model tests,
//! while flushes and merges go on.
//!
//! 1. **State:** runs go from the newest flush down to the deepest level, one a level below the
//!    first; a table stands in one place, has a number that was given out, and nothing newer than
//!    the state.
//! 2. **Window:** marks ascend, and what cleared ranges take is what they are counted for.
//! 3. **Cache:** each block that can be found is in a slot, and slots are counted as they are.
//! 4. **Pins:** a pinned state is none that is still to come.

use super::state::{DEEPEST, State};
use super::{Engine, SsdReader};
use std::collections::HashSet;
use std::sync::atomic::Ordering;

impl SsdReader {
    /// # Panics
    /// If an invariant doesn't hold.
    pub(super) fn check(&self) {
        let engine = &self.engine;
        // Before the state: numbers are given out before tables come to stand in one.
        let pinned = engine.lock_pins().clone();
        let state = engine.state();
        let next_id = engine.making.next_id.load(Ordering::Relaxed);
        state.check_invariants(next_id);
        for pin in pinned {
            assert!(pin.serial <= state.serial, "a state is pinned that is still to come");
            assert!(pin.at.version <= state.at.version, "a pinned state has what this one hasn't");
        }
        engine.window.check_invariants();
        engine.making.cache.check_invariants();
        engine.check_places();
    }
}

impl Engine {
    /// The window holds nothing that readers may see and the tables have forgotten.
    fn check_places(&self) {
        let (oldest, newest) = (self.window.overlay().oldest(), self.window.overlay().newest());
        assert!(oldest <= newest, "the window begins at {oldest} and ends at {newest}");
    }
}

impl State {
    /// # Panics
    /// If an invariant doesn't hold. Numbers of tables from `next_id` on are still to be given out.
    fn check_invariants(&self, next_id: u64) {
        for pair in self.runs.windows(2) {
            let order = |at: usize| (pair[at].level, u64::MAX - pair[at].flush);
            assert!(order(0) < order(1), "runs stand from the newest to the deepest");
        }
        let mut ids = HashSet::new();
        for run in &self.runs {
            assert!(run.level <= DEEPEST, "a run of level {}", run.level);
            assert!(run.level > 0 || run.flush < self.next_flush, "a flush that is still to come");
            assert!(!run.tables.is_empty(), "a run without tables");
            let clears = run.tables.iter().any(|table| !table.clears().is_empty());
            assert_eq!(run.has_clears, clears, "whether a run clears ranges");
            for table in &run.tables {
                let id = table.id();
                assert!(ids.insert(id), "table {id} stands in two places");
                assert!(id < next_id, "table {id} has a number that was not given out");
                let version = table.header().version;
                assert!(version <= self.at.version, "table {id} has what the state hasn't");
                assert!(table.lower() <= table.upper(), "table {id} ends before it begins");
                assert!(table.clears().are_sound(), "cleared ranges of table {id}");
            }
        }
    }
}
