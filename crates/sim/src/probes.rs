//! Probes: marks on rare paths, counted, so that a report can say which of them no run has reached.
//!
//! A rare path that no seed reaches is a test that isn't there. Each probe has its line in [`ALL`]; the
//! counts of a run are part of its report, and those of many runs add up.

use std::collections::BTreeMap;

/// Every probe there is, by name.
pub const ALL: &[&str] = &[
    "attempt cut off by the end of the node",
    "closed gracefully",
    "commit refused: disk full",
    "commit refused: i/o error",
    "commit refused: shutting down",
    "commit result unknown",
    "commit too old",
    "conflict",
    "crash",
    "crash: all unsynced data kept",
    "crash: all unsynced data lost",
    "crash during recovery",
    "disk full",
    "i/o errors",
    "killed",
    "open failed and was tried again",
    "stalls",
    "sync failures",
    "watch fired",
    "watch ended with its node",
];

/// How often each probe was reached.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Probes {
    counts: BTreeMap<&'static str, u64>,
}

impl Probes {
    /// The rare path `name` was reached.
    ///
    /// # Panics
    /// If the probe has no line in [`ALL`]: the report could not tell that it was never reached.
    pub fn hit(&mut self, name: &'static str) {
        assert!(ALL.contains(&name), "the probe {name:?} has no line in the table");
        *self.counts.entry(name).or_insert(0) += 1;
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Self) {
        for (name, count) in &other.counts {
            *self.counts.entry(name).or_insert(0) += count;
        }
    }

    /// How often `name` was reached.
    pub fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// The probes that were never reached.
    pub fn never_reached(&self) -> Vec<&'static str> {
        ALL.iter().copied().filter(|name| self.count(name) == 0).collect()
    }

    /// All probes with their counts, in the table's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        ALL.iter().map(|name| (*name, self.count(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_what_was_never_reached_is_named() {
        let (mut one, mut two) = (Probes::default(), Probes::default());
        one.hit("crash");
        two.hit("crash");
        two.hit("conflict");
        one.merge(&two);
        assert_eq!((one.count("crash"), one.count("conflict"), one.count("killed")), (2, 1, 0));
        assert!(one.never_reached().contains(&"killed") && !one.never_reached().contains(&"crash"));
    }

    #[test]
    #[should_panic(expected = "no line in the table")]
    fn a_probe_without_a_line_is_refused() {
        Probes::default().hit("something else");
    }
}
