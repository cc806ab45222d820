//! The test of the tests: bugs planted on purpose are caught, each within a bounded number of seeds, and the seeds that
//! catch them pass without the bug.

use plinth_sim::{Bug, Plan, run};

/// The first of `seeds` seeds that catches the bug. It must pass without it.
fn is_caught(bug: Bug, workload: &str, seeds: u64) {
    let caught = (1..=seeds).map(|seed| run(&Plan::new(workload, seed).with_bug(bug)));
    let caught = caught.into_iter().find(|report| report.failure.is_some());
    let report = caught.unwrap_or_else(|| panic!("{bug:?} is not noticed by {seeds} seeds of {workload}"));
    println!("{bug:?}: {report}");
    let healthy = run(&Plan::new(workload, report.plan.seed));
    assert!(healthy.failure.is_none(), "{healthy}");
}

#[test]
fn a_resolver_that_ignores_reads_is_caught_by_every_oracle_of_isolation() {
    for workload in ["cycle", "serializability", "conflict_range"] {
        is_caught(Bug::IgnoreReads, workload, 5);
    }
}

#[test]
fn a_skipped_fsync_is_caught() {
    for workload in ["increment", "serializability", "version_stamp"] {
        is_caught(Bug::SkipSync, workload, 10);
    }
}

#[test]
fn a_torn_tail_that_is_replayed_is_caught() {
    is_caught(Bug::ReplayTornTail, "increment", 100);
}
