//! The test of the tests: bugs planted on purpose are caught, each within a bounded number of
//! seeds, and the seeds that catch them pass without the bug.

use plinth_sim::{Bug, Plan, Spec, run};
use std::sync::Arc;

/// Some seed of at most `seeds` notices the bug under the spec. It must pass without the bug.
fn is_caught(bug: Bug, spec: &str, seeds: u64) {
    let spec = Arc::new(Spec::find(spec).unwrap());
    let runs = (1..=seeds).map(|seed| run(&Plan::new(spec.clone(), seed).with_bug(bug)));
    let caught = runs.into_iter().find(|report| report.failure.is_some());
    let report = caught
        .unwrap_or_else(|| panic!("{bug:?} is not noticed by {seeds} seeds of {}", spec.name));
    println!("{bug:?}, after {} seeds: {report}", report.plan.seed);
    let healthy = run(&Plan::new(spec, report.plan.seed));
    assert!(healthy.failure.is_none(), "{healthy}");
}

macro_rules! caught {
    ($($test:ident: $bug:ident by $($spec:literal within $seeds:literal),+;)*) => {
        $(
            #[test]
            fn $test() {
                $(is_caught(Bug::$bug, $spec, $seeds);)+
            }
        )*

        #[test]
        fn every_bug_has_a_test() {
            for bug in Bug::ALL {
                assert!([$(Bug::$bug),*].contains(bug), "{bug:?}");
            }
        }
    };
}

caught! {
    reads_that_do_not_conflict: IgnoreReads
        by "cycle" within 20, "serializability" within 20, "conflict_range" within 20, "history_network" within 20,
        "conflict_range_network" within 20;
    batches_that_do_not_see_themselves: IgnoreSameBatch by "serializability" within 100;
    writes_at_the_read_version_that_conflict: IncludeReadVersion by "conflict_range" within 100;
    rejected_writes_that_conflict: RecordRejected by "conflict_range" within 100;
    skipped_syncs: SkipSync
        by "increment" within 20, "serializability" within 20, "disk_durability" within 20, "history_network" within 20;
    torn_tails_that_are_replayed: ReplayTornTail by "increment" within 300;
    batches_that_are_visible_too_early: VisibleEarly by "serializability" within 100;
    stamps_that_run_backwards: StampsBackwards by "serializability" within 100;
    forgotten_idempotency_ids: IdsForgotten by "automatic_idempotency" within 100;
    checkpoints_that_release_too_much: CheckpointTooNew by "increment" within 500;
    watches_that_miss_a_change: WatchMisses by "watches" within 300;
    leases_that_are_forgotten: LeaseForgotten by "serializability" within 300;
    clears_that_go_too_far: ClearTooFar by "write_during_read" within 20;
    commits_that_do_not_conflict_with_themselves: NoSelfConflict by "doubled" within 20;
    own_clears_that_are_not_seen: OwnClearUnseen
        by "ryow_correctness" within 20, "write_during_read" within 20;
    range_reads_that_forget_a_gap: GapForgotten by "conflict_range" within 100;
    tables_that_are_not_synced: TablesUnsynced by "increment" within 300;
    flushes_that_forget_cleared_ranges: ClearsUnflushed by "write_during_read" within 300;
    merges_that_forget_what_hides_deeper_rows: MarksMerged by "write_during_read" within 500;
    flushes_that_release_too_much: FlushTooNew by "increment" within 500;
    entries_that_are_acknowledged_before_they_are_synced: AckedUnsynced by "cluster_increment" within 20;
    terms_that_end_with_an_acknowledgement: AcksAtTheEnd by "cluster_increment" within 20;
    read_versions_without_proof: VersionUnproven by "cluster_history" within 100;
    first_reads_that_are_too_old: FirstReadTooOld by "cluster_increment" within 20;
    protocols_that_rise_too_early: ProtocolTooNew by "cluster_upgrade" within 20;
    restarts_that_apply_what_is_not_committed: AppliedTooMuch by "cluster_increment" within 50;
    terms_that_begin_right_behind_the_last: JumpForgotten by "cluster_history" within 20;
    versions_that_no_majority_has: UsedTooEarly by "cluster_history" within 50;
    proofs_that_are_answered_when_a_term_ends: AnsweredAtTheEnd by "cluster_history" within 300;
    members_that_say_they_lose_no_answers: AnswersNeverLost by "cluster_disks" within 20, "cluster_mixed" within 100;
    clears_that_are_not_cut: ClearUncut by "changes" within 20, "cluster_changes" within 20;
    versions_that_a_stream_skips: VersionSkipped by "changes" within 50, "cluster_changes" within 50;
    acknowledged_positions_that_are_lost: PositionLost by "changes" within 20, "cluster_changes" within 20;
    files_of_a_backup_s_log_that_begin_late: LogOneLate by "backup" within 20, "cluster_backup" within 20;
    last_batches_of_a_backup_that_are_not_put: LastUnput by "backup" within 50, "cluster_backup" within 50;
    files_that_expire_too_early: ExpiredTooMuch by "backup" within 20, "cluster_backup" within 20;
    ranges_that_are_locked_and_read: LockedRangesRead by "cluster_backup" within 50;
    restores_that_apply_what_is_there: AppliedTwice by "backup" within 50;
    places_that_come_behind: PlaceBehind by "dr" within 50;
    clears_that_come_last: ClearedLast by "dr" within 20, "cluster_dr" within 20;
    rounds_that_leave_out_what_follows: RoundLate by "dr" within 50;
    seconds_that_take_writes_too_early: UnlockedEarly by "dr" within 20, "cluster_dr" within 20;
    replays_that_forget_later_writes: FirstWriteWins by "increment" within 100;
}
