//! Probes: marks on rare paths, counted, so that a report can say which of them no run has reached.
//!
//! A rare path that no seed reaches is a test that isn't there. Each probe has its line in [`ALL`]:
//! those of the harness here, and those that stand in the product (`probe!`), of which a test
//! compares the table with the sources. The counts of a run are part of its report, and those of
//! many runs add up.

use std::collections::BTreeMap;

/// Every probe there is, by name.
pub const ALL: &[&str] = &[
    "all machines without power",
    "attempt cut off by the end of the node",
    "backup agent died with its machine",
    "backup agent exchanged",
    "backup expired",
    "backup expired while it runs",
    "backup restored to a drawn version",
    "backup restored while it runs",
    "backup stands still",
    "bit turned over",
    "changes acknowledged",
    "changes begun anew",
    "client: a feed acknowledges what it has looked over",
    "client: a first read came to nothing",
    "client: a read of changes is tried again",
    "client: lost commit fenced",
    "client: lost commit found by its record",
    "client: lost commit known to have come to nothing",
    "clock drifts",
    "closed gracefully",
    "commit refused: disk full",
    "commit refused: i/o error",
    "commit refused: shutting down",
    "commit result unknown",
    "commit too old",
    "conflict",
    "crash",
    "crash during recovery",
    "crash while rows take the place of others",
    "crash while the database is made",
    "crash: all unsynced data kept",
    "crash: all unsynced data lost",
    "damage found and named",
    "disk full",
    "disk lost",
    "i/o errors",
    "killed",
    "leader isolated",
    "link: a first read is of use",
    "link: answer to a commit lost",
    "link: commit late",
    "link: commit lost",
    "link: double after its answer",
    "link: double after its connection broke",
    "link: too few votes for a read version",
    "link: votes for a read version are counted",
    "links bad",
    "log: a reader leaves a segment that has become another one",
    "log: consumer dropped",
    "log: durable without a record that says so",
    "log: poisoned",
    "log: records not known durable written again",
    "log: segment behind the end removed",
    "log: segment made of a spare",
    "log: smaller segment in the room that is left",
    "log: spare of another key removed",
    "log: torn tail cut",
    "log: unused segment adopted",
    "log: unused segment of another key removed",
    "machine beside the nodes died",
    "machine taken in",
    "member excluded",
    "network disturbed",
    "node upgraded",
    "node went back",
    "one direction cut",
    "open failed and was tried again",
    "pipeline: a leader hands over",
    "pipeline: a leader that can't write its tables hands over",
    "pipeline: a leader that is to have no vote has another one lead",
    "pipeline: a leader whose disk is full hands over",
    "pipeline: a member has the entries that it missed",
    "pipeline: a member needs rows",
    "pipeline: a member whose tables are damaged ends",
    "pipeline: a new node is taken in",
    "pipeline: a node has another address",
    "pipeline: a node that is cut off doesn't say that there is nothing new",
    "pipeline: a node was removed",
    "pipeline: a read version waits for the next proof",
    "pipeline: a step to other members",
    "pipeline: a stream gives way on a full disk",
    "pipeline: a stream has lost what it held back",
    "pipeline: a stream in memory is dropped",
    "pipeline: a task of the node ended early",
    "pipeline: a term could not be begun",
    "pipeline: an entry moves the version that reads are at",
    "pipeline: append failed and left bytes behind",
    "pipeline: append refused",
    "pipeline: as many batches are in flight as may be",
    "pipeline: batch waits for room",
    "pipeline: checkpoint failed",
    "pipeline: checkpoint written",
    "pipeline: clears appended in the room of the reserve",
    "pipeline: commits refused",
    "pipeline: creating the database was begun before",
    "pipeline: entries came before the rows were put in place",
    "pipeline: forming the cluster was begun before",
    "pipeline: idle log could not be tended",
    "pipeline: lease extended while idle",
    "pipeline: members have changed while a node was taken in",
    "pipeline: read of a version to come",
    "pipeline: reserve on the disk let go of",
    "pipeline: rows can't be given any more",
    "pipeline: rows taken in part are given up",
    "pipeline: several transactions in a batch",
    "pipeline: the leader resigns",
    "pipeline: the protocol of a cluster rises",
    "pipeline: the version moves for who needs rows",
    "pipeline: watch fires as it is registered",
    "pipeline: who sent rows sends no more",
    "process stopped",
    "replication: a change of members takes effect",
    "replication: a frame is refused",
    "replication: a leader whose disk stalls gives way",
    "replication: a member fails",
    "replication: a member has lost what it acknowledged",
    "replication: a member has what the cluster has lost",
    "replication: a member waits for room on its disk",
    "replication: a proof waits for a sync of this node",
    "replication: checksums of entries are read from the disk",
    "replication: entries that lost are voided",
    "replication: rows take the place of entries that can't be read",
    "restore into a cluster cut short",
    "restore into a cluster given up",
    "restored into a cluster",
    "restored into a cluster, which went on",
    "second site compared",
    "second site failed until the next life",
    "second site made free alone",
    "second site stands still",
    "second site: agent died with its machine",
    "second site: agent exchanged",
    "second site: change of sides cut short",
    "second site: sides changed in the end",
    "second site: sides changed under faults",
    "slow disk",
    "snapshot held through changes",
    "ssd: blocks read from a file",
    "ssd: cleared rows skipped",
    "ssd: cleared table dropped unread",
    "ssd: flush given up",
    "ssd: flushes merged for what they clear",
    "ssd: leftover of a crash removed",
    "ssd: merge given up",
    "ssd: small flushes merged among themselves",
    "ssd: table could not be removed yet",
    "ssd: table of another key written anew",
    "ssd: tables merged",
    "ssd: tables moved down unread",
    "ssd: which manifest is on the disk is not known",
    "ssd: window flushed",
    "stalls",
    "storage: checkpoint given up half-way",
    "storage: old row kept for a checkpoint",
    "sync failures",
    "target of backups disturbed",
    "wall clock moved",
    "watch ended with its node",
    "watch fired",
];

/// What the names of the product's own probes begin with, and of those of the link that stands in
/// for a part of it; the others are the workloads'.
const OF_PRODUCT: [&str; 7] =
    ["client: ", "link: ", "log: ", "pipeline: ", "replication: ", "ssd: ", "storage: "];

/// Whether the product's probes are built in. Without them nobody knows which of them were reached.
pub const PRODUCT_IS_COUNTED: bool = cfg!(feature = "probes");

/// Whether a probe stands in the product.
pub fn is_of_product(name: &str) -> bool {
    OF_PRODUCT.iter().any(|begin| name.starts_with(begin))
}

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
        self.add(name, 1);
    }

    fn add(&mut self, name: &'static str, hits: u64) {
        assert!(ALL.contains(&name), "the probe {name:?} has no line in the table");
        *self.counts.entry(name).or_insert(0) += hits;
    }

    /// Adds what this thread has reached in the product since it was last asked.
    #[cfg(feature = "probes")]
    pub(crate) fn take_hits(&mut self) {
        for (name, hits) in plinth_types::marks::take_hits() {
            self.add(name, hits);
        }
    }

    /// Without the feature the product counts nothing.
    #[cfg(not(feature = "probes"))]
    pub(crate) fn take_hits(&mut self) {}

    /// Forgets what this thread has reached in the product before.
    pub(crate) fn forget_hits() {
        #[cfg(feature = "probes")]
        drop(plinth_types::marks::take_hits());
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

    /// The probes that were never reached, of those that are built in.
    pub fn never_reached(&self) -> Vec<&'static str> {
        let is_built_in = |name: &&str| PRODUCT_IS_COUNTED || !is_of_product(name);
        ALL.iter().copied().filter(is_built_in).filter(|name| self.count(name) == 0).collect()
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
