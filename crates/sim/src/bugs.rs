//! Bugs to have on purpose, to show that the simulation finds them: the test of the tests.
//!
//! Each is a mistake that somebody could make, in one place of the product, behind the feature
//! `planted-bugs`. Those of the resolver and the log are settings of theirs; the others are asked
//! for by name where they are made.

#[cfg(feature = "planted-bugs")]
use plinth_log::planted::Planted as InLog;
use plinth_pipeline::NodeConfig;
#[cfg(feature = "planted-bugs")]
use plinth_resolver::Planted as InResolver;

macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident $name:literal)*) => {
        /// A bug to have on purpose.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Bug {
            $($(#[$doc])* $bug,)*
        }

        impl Bug {
            /// Every bug that can be planted.
            pub const ALL: &[Bug] = &[$(Self::$bug),*];

            /// Its name: that of the mark in the product, where it has one.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)*
                }
            }
        }
    };
}

bugs! {
    /// The resolver lets every transaction commit whatever it has read.
    IgnoreReads "reads do not conflict"
    /// Transactions of one batch don't see one another's writes.
    IgnoreSameBatch "transactions of a batch do not conflict"
    /// What was written exactly at a transaction's read version conflicts.
    IncludeReadVersion "writes at the read version conflict"
    /// What a rejected transaction would have written conflicts with others.
    RecordRejected "rejected writes conflict"
    /// The log says that it has synced, and hasn't.
    SkipSync "syncs are skipped"
    /// Recovery believes log records whose bodies never arrived.
    ReplayTornTail "torn tails are replayed"
    /// A batch is shown to readers before it is synced.
    VisibleEarly "visible before it is durable"
    /// The positions of a batch are counted from its end.
    StampsBackwards "stamps run backwards in a batch"
    /// The records of idempotency ids are not written.
    IdsForgotten "idempotency ids are forgotten"
    /// A checkpoint releases log that it does not replace.
    CheckpointTooNew "checkpoints let go of newer log"
    /// A watch is not compared with the value that is there when it is registered.
    WatchMisses "a watch misses what came before it"
    /// A restart goes on right behind the last commit, not beyond what readers may have seen.
    LeaseForgotten "leases are forgotten at a restart"
    /// A transaction reads what is locked.
    LockedRangesRead "ranges that are locked are read"
    /// Clearing a range removes its end too.
    ClearTooFar "range clears take the end with them"
    /// A commit that arrives twice doesn't conflict with itself.
    NoSelfConflict "commits do not conflict with themselves"
    /// A read doesn't see the clears of its own transaction.
    OwnClearUnseen "own clears are not seen"
    /// A range read conflicts only with writes up to its last row.
    GapForgotten "range reads forget the gap behind the last row"
    /// A table is believed to be on the disk before it is.
    TablesUnsynced "tables are not synced"
    /// What a flush writes doesn't say which ranges were cleared.
    ClearsUnflushed "flushes forget cleared ranges"
    /// A merge drops the marks of removed keys though deeper levels hold rows of them.
    MarksMerged "merges forget what hides deeper rows"
    /// A flush tells the log that it has more than it has.
    FlushTooNew "flushes let go of newer log"
    /// A restart applies only the first of a batch's writes of a key.
    FirstWriteWins "replay lets the first write of a key win"
    /// A leader whose term ends acknowledges what it has appended.
    AcksAtTheEnd "what is in flight is acknowledged when a term ends"
    /// A member acknowledges entries that it has not synced.
    AckedUnsynced "entries are acknowledged before they are synced"
    /// A leader believes that it leads, and gives read versions without asking others.
    VersionUnproven "read versions are not proven"
    /// A transaction begins with what it read first, although that is older than its version.
    FirstReadTooOld "a first read may be older than what was granted"
    /// A leader writes what only its own program can read.
    ProtocolTooNew "the protocol rises before all members speak it"
    /// A member that is opened again applies all that its log has, be it committed or not.
    AppliedTooMuch "a restart applies what is not known committed"
    /// A new leader's versions go on right behind those of the last one, and what was read in its
    /// term may commit.
    JumpForgotten "a term goes on right behind the last version"
    /// A leader's read versions follow the clock beyond what a majority knows of, and the next one
    /// begins right behind what that knows: as with a lease that is used before a majority has it.
    UsedTooEarly "versions are used before a majority has them"
    /// A leader that learns that it leads no more gives those who wait for a read version what it
    /// has.
    AnsweredAtTheEnd "who waits for a proof is answered when a term ends"
    /// Clients of a cluster don't make sure that a commit of unknown fate takes effect once.
    AnswersNeverLost "a member says that it loses no answers"
    /// A clear comes to the consumer of a stream as it was made.
    ClearUncut "a clear isn't cut to the ranges of a stream"
    /// A stream leaves a version out.
    VersionSkipped "a version of a stream is skipped"
    /// What the consumer of a stream acknowledges is not written down.
    PositionLost "an acknowledged position is lost"
    /// A backup's files of the log leave the version between them out.
    LogOneLate "a file of the log begins one version late"
    /// A backup that is ended leaves out what it has read and not put.
    LastUnput "the last batch of a backup isn't put when it ends"
    /// Expiring a backup removes files of the log behind the snapshot that is kept.
    ExpiredTooMuch "expire removes a log that is needed"
    /// A restore applies the log to rows that have it already.
    AppliedTwice "a restore applies what its snapshot has"
    /// A second site notes what it has got after it has got it.
    PlaceBehind "dr: the position comes behind what leads to it"
    /// What a version of the first clears is cleared last in the second.
    ClearedLast "dr: clears are applied last"
    /// What is committed right behind a round of the first copy is left out.
    RoundLate "dr: what follows a round begins late"
    /// When sides are changed the second takes writes before it has all of the first's.
    UnlockedEarly "dr: the second is unlocked before it has everything"
}

impl Bug {
    /// The bug of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|bug| bug.name() == name)
    }
}

/// Has the run on this thread make this mistake, or none.
#[cfg(feature = "planted-bugs")]
pub(crate) fn plant(bug: Option<Bug>) {
    plinth_types::marks::plant(bug.map(Bug::name));
}

/// Without the feature no bug can be had.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) fn plant(bug: Option<Bug>) {
    assert!(bug.is_none(), "bugs can be planted only with the feature planted-bugs");
}

/// Has a node make the mistakes that are settings.
#[cfg(feature = "planted-bugs")]
pub(crate) fn configure(config: &mut NodeConfig, bug: Option<Bug>) {
    match bug {
        Some(Bug::IgnoreReads) => config.planted = Some(InResolver::IgnoreReads),
        Some(Bug::IgnoreSameBatch) => config.planted = Some(InResolver::IgnoreSameBatch),
        Some(Bug::IncludeReadVersion) => config.planted = Some(InResolver::IncludeReadVersion),
        Some(Bug::RecordRejected) => config.planted = Some(InResolver::RecordRejected),
        Some(Bug::SkipSync) => config.log.planted = InLog::SkipSync,
        Some(Bug::ReplayTornTail) => config.log.planted = InLog::ReplayTornTail,
        _ => {}
    }
}

/// Without the feature there are no such settings.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) fn configure(_config: &mut NodeConfig, _bug: Option<Bug>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bugs_are_found_by_their_names() {
        assert!(Bug::ALL.len() >= 10);
        assert!(Bug::ALL.iter().all(|bug| Bug::named(bug.name()) == Some(*bug)));
        assert_eq!(Bug::named("off by one"), None);
    }
}
