//! Appending, committing, terms and leases.

use std::time::Duration;

use super::{Bench, Make};
use crate::failure::LogError;

pub(super) fn run_all(make: Make<'_>) {
    entries_come_back_in_order(make);
    written_comes_before_committed(make);
    a_drive_commits_what_is_written_on_the_callers_thread(make);
    committed_positions_are_a_stream(make);
    versions_rise_and_stay_below_the_lease(make);
    each_opening_is_a_new_term(make);
    a_log_begins_where_it_was_told(make);
}

fn entries_come_back_in_order(make: Make<'_>) {
    let mut bench = Bench::new(make, 1, 1 << 16);
    for (version, len) in [(3, 100), (4, 0), (10, 70_000), (11, 1)] {
        bench.commit(version, len);
    }
    assert_eq!(bench.versions(0), [3, 4, 10, 11]);
    assert_eq!(bench.versions(4), [4, 10, 11]);
    assert_eq!(bench.versions(12), [0; 0]);
    let bench = bench.reopened();
    assert_eq!(bench.versions(5), [10, 11]);
}

fn written_comes_before_committed(make: Make<'_>) {
    let mut bench = Bench::new(make, 2, 1 << 16);
    let first = bench.commit(1, 10);
    let before = bench.view.committed();
    assert_eq!((before.position, before.version), (first, 1));
    let second = bench.append(2, 10);
    assert!(second > first && bench.log.written() == second);
    assert_eq!(bench.versions(0), [1], "nothing is read before it is committed");
    bench.run(bench.view.sync(second)).expect("a commit");
    assert_eq!(bench.view.committed().position, second);
    assert!(
        bench.view.durable() <= bench.view.committed() || bench.view.durable().position >= second
    );
    assert_eq!(bench.versions(0), [1, 2]);
    let beyond = bench.append(3, 1);
    let unknown = bench.site.world().run_until(async {
        let view = bench.view.clone();
        view.sync(beyond).await?;
        view.sync(crate::Position::from_sequence(beyond.sequence() + 1)).await
    });
    assert_eq!(unknown, Err(LogError::Misused(String::new())), "nothing was appended there");
}

fn a_drive_commits_what_is_written_on_the_callers_thread(make: Make<'_>) {
    let mut bench = Bench::new(make, 3, 1 << 16);
    bench.rest();
    assert_eq!(bench.run(bench.view.drive()), Ok(None), "nothing is written that isn't committed");
    let position = bench.append(1, 100);
    let mut committed = bench.view.committed();
    while committed.position < position {
        // A log that commits by itself has nothing to drive.
        committed = match bench.run(bench.view.drive()).expect("a drive") {
            Some(progress) => progress,
            None => bench.run(bench.view.until_committed(committed.position)).expect("a commit"),
        };
    }
    assert_eq!(committed, bench.view.committed());
    assert_eq!(bench.run(bench.view.drive()), Ok(None));
}

fn committed_positions_are_a_stream(make: Make<'_>) {
    let mut bench = Bench::new(make, 4, 1 << 16);
    let began = bench.view.committed().position;
    let (told, end) = (std::sync::Arc::new(std::sync::Mutex::new(Vec::new())), 20);
    let process = bench.site.process();
    let task = {
        let (view, told) = (bench.view.clone(), told.clone());
        process.spawn("stream", async move {
            let mut seen = began;
            while view.committed().version < end {
                let progress = view.until_committed(seen).await.expect("progress");
                assert!(progress.position > seen);
                seen = progress.position;
                told.lock().expect("nobody panics").push(progress);
            }
        })
    };
    for version in 1..=end {
        bench.commit(version, 10);
        bench.site.world().run_for(Duration::from_millis(1));
    }
    bench.run(task).expect("the stream ends");
    let told = told.lock().expect("nobody panics");
    assert!(told.is_sorted() && told.len() > 10, "{told:?}");
    assert_eq!(told.last().map(|progress| progress.version), Some(end));
}

fn versions_rise_and_stay_below_the_lease(make: Make<'_>) {
    let mut bench = Bench::new(make, 5, 1 << 16);
    bench.commit(5, 1);
    for version in [5, 4, 1_000_001] {
        let refused = bench.site.world().run_until(bench.log.append(version, &[b"x"]));
        assert_eq!(refused, Err(LogError::Version(String::new())), "version {version}");
    }
    let written = bench.log.written();
    let shorter = bench.site.world().run_until(bench.log.extend_lease(7));
    assert_eq!(shorter, Ok(written), "a lease never shrinks");
    bench.extend_lease(2_000_000);
    assert_eq!(bench.versions(0), [5], "a lease is no entry with mutations");
    bench.commit(1_000_001, 1);
    let bench = bench.reopened();
    assert!(bench.view.committed().lease >= 2_000_000, "a lease outlives a restart");
}

fn each_opening_is_a_new_term(make: Make<'_>) {
    let mut bench = Bench::new(make, 6, 1 << 16);
    let mut terms = Vec::new();
    for version in 1..5 {
        terms.push(bench.log.term());
        bench.commit(version, 1);
        bench = bench.reopened();
    }
    assert!(terms.is_sorted_by(|a, b| a < b), "{terms:?}");
    let found: Vec<_> = bench.read(0).expect("entries").iter().map(|entry| entry.term).collect();
    assert_eq!(found, terms);
}

fn a_log_begins_where_it_was_told(make: Make<'_>) {
    let mut site = make(7, 1 << 16);
    let log = site.create((70, 3, 500));
    let mut bench = Bench { view: log.view(), log, site };
    assert!(bench.log.term() > 3);
    assert_eq!(bench.view.committed().version, 500);
    assert!(bench.view.committed().lease >= 500);
    assert_eq!(
        bench.read(500),
        Err(LogError::Version(String::new())),
        "entries up to 500 are not there"
    );
    assert_eq!(bench.view.register("late", 500, None), Err(LogError::Version(String::new())));
    assert_eq!(bench.view.register("storage", 501, None), Ok(501));
    bench.extend_lease(1000);
    let position = bench.commit(501, 10);
    let bench = bench.reopened();
    let entries = bench.read(501).expect("entries");
    assert!(entries.len() == 1 && entries[0].index > 70 && entries[0].version == 501);
    assert_eq!(position.entry(501), entries[0].position(), "index and term come with the position");
    assert_eq!(bench.view.consumers(), [("storage".to_string(), 501)]);
}
