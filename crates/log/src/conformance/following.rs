//! Readers that wait, consumers, and bounds.
//!
//! A reader that waits goes back and forth between memory and files; whatever it does, it gets each
//! committed entry once, in order. Consumers hold the log back, each for itself, within their
//! bounds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use plinth_types::Version;

use super::{Bench, Make, check};
use crate::failure::LogError;

pub(super) fn run_all(make: Make<'_>) {
    a_reader_that_waits_gets_each_entry_once(make);
    a_reader_that_waits_gets_nothing_before_it_is_committed(make);
    waiting_ends_with_the_log(make);
    the_slowest_consumer_holds_the_log_back(make);
    a_consumer_beyond_its_bound_is_dropped_and_nobody_else(make);
}

fn a_reader_that_waits_gets_each_entry_once(make: Make<'_>) {
    // Small segments and large entries: what is in memory and what is in the files changes all the
    // time.
    for (seed, len) in [(1, 10), (2, 3000), (3, 90_000)] {
        let mut bench = Bench::new(make, seed, 1 << 14);
        bench.commit(1, len);
        bench.commit(2, len);
        let last = 60;
        let got = Arc::new(Mutex::new(Vec::<Version>::new()));
        let process = bench.site.process();
        let readers: Vec<_> = [0, 2, 3, 40]
            .into_iter()
            .map(|from: Version| {
                let (mut reader, got, env) =
                    (bench.view.reader(from), got.clone(), process.clone());
                process.spawn("reader", async move {
                    let mut before = None;
                    loop {
                        let entry = reader.wait().await.expect("an entry");
                        check(before.as_ref(), &entry);
                        assert!(entry.version >= from);
                        got.lock().expect("nobody panics").push(entry.version);
                        if entry.version == last {
                            return;
                        }
                        // One of them is too slow for what memory keeps.
                        if from == 2 {
                            env.sleep(Duration::from_millis(20)).await;
                        }
                        before = Some(entry);
                    }
                })
            })
            .collect();
        for version in 3..=last {
            bench.commit(version, len);
            bench.site.world().run_for(Duration::from_millis(2));
        }
        for reader in readers {
            bench.run(reader).expect("the reader ends");
        }
        let mut got = got.lock().expect("nobody panics").clone();
        got.sort_unstable();
        let mut expected: Vec<Version> =
            (1..=last).chain(2..=last).chain(3..=last).chain(40..=last).collect();
        expected.sort_unstable();
        assert_eq!(got, expected, "each reader gets each entry once");
    }
}

fn a_reader_that_waits_gets_nothing_before_it_is_committed(make: Make<'_>) {
    let mut bench = Bench::new(make, 7, 1 << 16);
    bench.commit(1, 10);
    let mut reader = bench.view.reader(1);
    let first = bench.run(reader.wait()).expect("an entry");
    // Twice: the second time the reader stands in memory already.
    for version in [2, 3] {
        let position = bench.append(version, 10);
        assert_eq!(bench.run(reader.next()), Ok(None));
        let waited = Duration::from_millis(50);
        if !bench.commits_by_itself() {
            assert!(bench.site.world().run_until_within(waited, reader.wait()).is_none());
        }
        bench.run(bench.view.sync(position)).expect("a commit");
        let entry = bench.run(reader.wait()).expect("an entry");
        assert_eq!(entry.version, version);
        check(Some(&first), &entry);
    }
}

fn waiting_ends_with_the_log(make: Make<'_>) {
    let mut bench = Bench::new(make, 4, 1 << 16);
    bench.commit(1, 10);
    let process = bench.site.process();
    let (mut reader, view) = (bench.view.reader(2), bench.view.clone());
    let ended = process.spawn("reader", async move {
        assert_eq!(reader.wait().await, Err(LogError::Closed(String::new())));
        assert_eq!(reader.next().await, Ok(None));
        let committed = view.committed().position;
        assert_eq!(view.until_committed(committed).await, Err(LogError::Closed(String::new())));
    });
    bench.site.world().run_for(Duration::from_millis(10));
    let Bench { site, log, .. } = bench;
    site.world().run_until(log.close()).expect("a close");
    site.world().run_until(ended).expect("the reader ends");
}

fn the_slowest_consumer_holds_the_log_back(make: Make<'_>) {
    let mut bench = Bench::new(make, 5, 1 << 13);
    assert_eq!(bench.view.register("storage", 1, None), Ok(1));
    assert_eq!(bench.view.register("backup", 0, None), Ok(1));
    for version in 1..200 {
        bench.commit(version, 400);
    }
    bench.view.pop("storage", 150).expect("a pop");
    bench.tend();
    let all = bench.view.bytes();
    assert_eq!(bench.read(1).expect("entries").len(), 199, "backup needs everything");
    bench.view.pop("backup", 100).expect("a pop");
    bench.view.pop("backup", 90).expect("a pop backwards does nothing");
    let mut bench = bench.reopened();
    assert_eq!(bench.view.consumers(), [("backup".to_string(), 101), ("storage".to_string(), 151)]);
    assert_eq!(
        bench.view.register("backup", 1, None),
        Ok(101),
        "a known consumer stays where it is"
    );
    bench.commit(200, 400);
    bench.tend();
    assert!(bench.view.bytes() < all * 2 / 3, "{} of {all} bytes are left", bench.view.bytes());
    assert_eq!(bench.read(101).expect("entries").len(), 100);
    assert_eq!(bench.read(1), Err(LogError::Version(String::new())));
    assert_eq!(bench.view.register("late", 1, None), Err(LogError::Version(String::new())));
    assert_eq!(bench.view.pop("nobody", 1), Err(LogError::Misused(String::new())));
    assert_eq!(bench.view.reader_of("nobody").err(), Some(LogError::Misused(String::new())));
    assert_eq!(bench.view.reader_for("nobody", 1).err(), Some(LogError::Misused(String::new())));
    assert_eq!(
        bench.view.reader_for("backup", 100).err(),
        Some(LogError::Version(String::new())),
        "it was popped"
    );
    let mut behind = bench.view.reader_for("backup", 170).expect("a reader");
    assert_eq!(bench.run(behind.next()).expect("an entry").map(|entry| entry.version), Some(170));
    behind.follow();
    assert_eq!(bench.run(behind.next()).expect("an entry").map(|entry| entry.version), Some(171));
    drop(behind);
    assert_eq!(bench.view.register("", 101, None), Err(LogError::Option(String::new())));
    bench.view.unregister("backup");
    assert_eq!(bench.view.consumers(), [("storage".to_string(), 151)]);
}

fn a_consumer_beyond_its_bound_is_dropped_and_nobody_else(make: Make<'_>) {
    let mut bench = Bench::new(make, 6, 1 << 13);
    let bound = 64 << 10;
    bench.view.register("storage", 1, None).expect("a consumer");
    bench.view.register("feed", 1, Some(bound)).expect("a consumer");
    bench.view.register("brisk", 1, Some(bound)).expect("a consumer");
    bench.commit(1, 400);
    let mut feed = bench.view.reader_of("feed").expect("a reader");
    assert_eq!(bench.run(feed.next()).expect("an entry").map(|entry| entry.version), Some(1));
    let process = bench.site.process();
    let mut follower = bench.view.reader_of("feed").expect("a reader");
    let told = process.spawn("follower", async move {
        while follower.wait().await.map_err(|error| assert!(names_feed(&error), "{error}")).is_ok()
        {
        }
    });
    let mut most = 0;
    for version in 2..600 {
        bench.commit(version, 400);
        bench.view.pop("brisk", version - 3).expect("a consumer within its bound stays");
        bench.view.pop("storage", version - 3).expect("a consumer without a bound stays");
        most = most.max(bench.view.bytes());
    }
    assert!(
        most > bound && most < 3 * bound,
        "{most} bytes were kept at most, the bound is {bound}"
    );
    bench.run(told).expect("a reader that waits is told");
    for error in [
        bench.view.pop("feed", 2).expect_err("it was dropped"),
        bench.run(feed.next()).expect_err("it was dropped"),
        bench.view.reader_of("feed").err().expect("it was dropped"),
    ] {
        assert!(names_feed(&error), "{error}");
    }
    let names: Vec<_> = bench.view.consumers().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["brisk", "storage"]);
    assert_eq!(bench.versions(597), [597, 598, 599]);
    assert_eq!(bench.view.register("feed", 1, Some(bound)), Err(LogError::Version(String::new())));
    assert_eq!(bench.view.register("feed", 598, Some(bound)), Ok(598), "and may come back");
    assert_eq!(bench.view.pop("feed", 598), Ok(()));
}

fn names_feed(error: &LogError) -> bool {
    *error == LogError::Version(String::new())
        && error.to_string().contains("consumer feed was dropped")
}
