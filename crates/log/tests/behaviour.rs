//! What a log does when nothing goes wrong: order, epochs, leases, consumers, segments.
//!
//! On simulated files, because they are quick and because the background task's work is over when
//! simulated time has passed.

mod support;

use std::path::Path;
use std::time::Duration;

use plinth_env::Env;
use plinth_env::simulated::{Simulation, Unsynced};
use plinth_format::Keys;
use plinth_log::{Identity, LocalLog, LogConfig, LogError, Reader, verify};
use plinth_types::{Error, Version};
use support::{
    DIR, IDENTITY, body, check, commit, create, create_leased, open, read, small, versions,
};

fn in_simulation<F: Future>(test: impl FnOnce(Env) -> F) -> F::Output {
    let sim = Simulation::new(1);
    let env = sim.process("node");
    sim.run_until(test(env))
}

/// Lets the background task finish what it has begun.
async fn rest(env: &Env) {
    env.sleep(Duration::from_secs(1)).await;
}

/// Where a segment's header says that its file held another one before.
const IS_RECYCLED: usize = 80;

#[test]
fn entries_come_back_in_order_after_a_restart() {
    in_simulation(|env| async move {
        let mut log = create_leased(&env, LogConfig::default()).await;
        for version in [3, 4, 10] {
            commit(&mut log, version, &body(version, 100)).await;
        }
        assert_eq!(versions(&read(&log, 0).await.unwrap()), [3, 4, 10]);
        assert_eq!(versions(&read(&log, 4).await.unwrap()), [4, 10]);
        assert_eq!(log.known_durable(), 10);
        log.close().await.unwrap();

        let (log, recovery) = open(&env, LogConfig::default()).await.unwrap();
        assert_eq!((recovery.first_index, recovery.last_index, recovery.last_version), (1, 4, 10));
        assert_eq!(
            (recovery.known_committed, recovery.lease, recovery.cut_tail),
            (10, 1_000_000, None)
        );
        let entries = read(&log, 0).await.unwrap();
        check(&entries).unwrap();
        assert_eq!(entries[2].index, 4, "the lease is an entry too");
        assert_eq!(entries[2].term, 1);
        log.close().await.unwrap();
    });
}

#[test]
fn each_opening_begins_a_new_term() {
    in_simulation(|env| async move {
        let mut log = create_leased(&env, LogConfig::default()).await;
        for term in 1..6 {
            assert_eq!(log.term(), term);
            commit(&mut log, term as i64, b"").await;
            log.close().await.unwrap();
            let (next, recovery) = open(&env, LogConfig::default()).await.unwrap();
            assert_eq!(recovery.term, term + 1);
            log = next;
        }
        let terms: Vec<_> = read(&log, 0).await.unwrap().iter().map(|entry| entry.term).collect();
        assert_eq!(terms, [1, 2, 3, 4, 5]);
    });
}

#[test]
fn versions_stay_below_the_lease_and_the_lease_outlives_a_restart() {
    in_simulation(|env| async move {
        let mut log = create(&env, LogConfig::default()).await;
        assert_eq!(log.append(1, &[b"x"]).await, Err(LogError::Version(String::new())));
        let position = log.extend_lease(5).await.unwrap();
        assert_eq!(log.lease(), 0, "a lease that is not durable is none");
        log.syncer().sync(position).await.unwrap();
        assert_eq!(log.lease(), 5);
        assert_eq!(log.extend_lease(4).await.unwrap(), position, "a lease never shrinks");
        commit(&mut log, 5, b"x").await;
        assert_eq!(log.append(6, &[b"x"]).await, Err(LogError::Version(String::new())));
        assert_eq!(log.append(5, &[b"x"]).await, Err(LogError::Version(String::new())));
        let position = log.extend_lease(100).await.unwrap();
        log.syncer().sync(position).await.unwrap();
        log.close().await.unwrap();
        let (log, recovery) = open(&env, LogConfig::default()).await.unwrap();
        assert_eq!((recovery.lease, recovery.last_version), (100, 5));
        assert_eq!(log.lease(), 100);
    });
}

#[test]
fn readers_see_what_is_durable_and_go_on_when_there_is_more() {
    in_simulation(|env| async move {
        let mut log = create_leased(&env, small(8192, 8192)).await;
        let mut reader = log.reader(0);
        assert_eq!(reader.next().await, Ok(None));
        let position = log.append(1, &[&body(1, 10)]).await.unwrap();
        assert_eq!(reader.next().await, Ok(None), "nothing is read before it is durable");
        log.syncer().sync(position).await.unwrap();
        assert_eq!(reader.next().await.unwrap().unwrap().version, 1);
        for version in 2..100 {
            commit(&mut log, version, &body(version, 500)).await;
            assert_eq!(reader.next().await.unwrap().unwrap().version, version);
            assert_eq!(reader.next().await, Ok(None));
        }
        check(&read(&log, 50).await.unwrap()).unwrap();
    });
}

#[test]
fn bodies_of_any_size_pass_even_those_larger_than_a_segment() {
    in_simulation(|env| async move {
        let config = small(8192, 16_384);
        let mut log = create_leased(&env, config.clone()).await;
        let sizes = [0, 1, 7, 8, 9, 4031, 4032, 4033, 8192, 70_000, 3, 300_000, 0, 16_000, 12_000];
        for (version, size) in (1..).zip(sizes) {
            commit(&mut log, version, &body(version, size)).await;
        }
        let entries = read(&log, 0).await.unwrap();
        check(&entries).unwrap();
        assert_eq!(entries.iter().map(|entry| entry.body.len()).collect::<Vec<_>>(), sizes);
        log.close().await.unwrap();
        assert_eq!(verify(&env, DIR, &Keys::none()).await.unwrap().problems, []);
        let (log, _) = open(&env, config).await.unwrap();
        assert_eq!(read(&log, 0).await.unwrap(), entries);
        log.close().await.unwrap();
    });
}

#[test]
fn parts_are_one_body() {
    in_simulation(|env| async move {
        let mut log = create_leased(&env, LogConfig::default()).await;
        let parts: [&[u8]; 4] = [b"one ", b"", b"body", b"."];
        let position = log.append(1, &parts).await.unwrap();
        log.syncer().sync(position).await.unwrap();
        assert_eq!(read(&log, 1).await.unwrap()[0].body, "one body.");
    });
}

#[test]
fn the_slowest_consumer_holds_segments_back_and_places_survive_restarts() {
    in_simulation(|env| async move {
        let config = small(8192, 8192);
        let mut log = create_leased(&env, config.clone()).await;
        assert_eq!(log.register("storage", 1, None), Ok(1));
        assert_eq!(log.register("backup", 0, None), Ok(1));
        for version in 1..200 {
            commit(&mut log, version, &body(version, 400)).await;
        }
        log.pop("storage", 150).unwrap();
        log.mark_durable().await.unwrap();
        let all = log.bytes();
        assert_eq!(read(&log, 1).await.unwrap().len(), 199, "backup needs everything");
        log.pop("backup", 100).unwrap();
        log.pop("backup", 90).unwrap();
        log.close().await.unwrap();

        let (mut log, recovery) = open(&env, config.clone()).await.unwrap();
        assert_eq!(log.consumers(), [("backup".to_string(), 101), ("storage".to_string(), 151)]);
        assert_eq!(log.register("backup", 1, None), Ok(101), "a known consumer stays where it is");
        commit(&mut log, 200, &body(200, 400)).await;
        rest(&env).await;
        log.close().await.unwrap();
        let (log, later) = open(&env, config).await.unwrap();
        assert!(log.bytes() < all * 2 / 3, "{} of {all} bytes are left", log.bytes());
        assert!(recovery.first_index <= later.first_index && later.first_index <= 101);
        assert_eq!(read(&log, 101).await.unwrap().len(), 100);
        assert_eq!(read(&log, 1).await, Err(LogError::Version(String::new())));
        assert_eq!(log.register("late", 1, None), Err(LogError::Version(String::new())));
        assert_eq!(log.pop("nobody", 1), Err(LogError::Misused(String::new())));
        assert_eq!(log.register("", 101, None), Err(LogError::Option(String::new())));
        log.unregister("backup");
        assert_eq!(log.consumers().len(), 1);
        log.close().await.unwrap();
    });
}

#[test]
fn segments_are_reused_and_the_log_stays_small() {
    in_simulation(|env| async move {
        let config = small(8192, 32_768);
        let mut log = create_leased(&env, config.clone()).await;
        log.register("storage", 1, None).unwrap();
        let mut most = 0;
        for version in 1..3000 {
            commit(&mut log, version, &body(version, 700)).await;
            log.pop("storage", version - 40).unwrap();
            most = most.max(log.disk_bytes());
        }
        assert!(most <= 9 * 32_768, "{most} bytes of files");
        log.close().await.unwrap();
        let newest = env
            .files()
            .list(DIR)
            .await
            .unwrap()
            .into_iter()
            .rfind(|name| name.starts_with("segment-"));
        let newest = env.files().read(Path::new(DIR).join(newest.unwrap())).await.unwrap();
        assert_eq!(newest[IS_RECYCLED], 1, "the newest segment was another one before");
        assert_eq!(verify(&env, DIR, &Keys::none()).await.unwrap().problems, []);
        let (log, recovery) = open(&env, config).await.unwrap();
        assert!(recovery.first_index > 2800);
        check(&read(&log, 2959).await.unwrap()).unwrap();
        log.close().await.unwrap();
    });
}

/// A log of 99 entries of which nobody needs any, and a reader in the first segment, which keeps it
/// and all behind it.
async fn held_by_a_reader(env: &Env, config: LogConfig) -> (LocalLog, Reader) {
    let mut log = create_leased(env, config).await;
    log.register("storage", 1, None).unwrap();
    commit(&mut log, 1, &body(1, 400)).await;
    let mut reader = log.reader(1);
    reader.next().await.unwrap().unwrap();
    for version in 2..100 {
        commit(&mut log, version, &body(version, 400)).await;
        log.pop("storage", version).unwrap();
    }
    (log, reader)
}

#[test]
fn a_reader_keeps_the_segment_it_stands_in() {
    in_simulation(|env| async move {
        let (log, mut reader) = held_by_a_reader(&env, small(8192, 8192)).await;
        let held = log.bytes();
        for version in 2..100 {
            assert_eq!(reader.next().await.unwrap().unwrap().version, version);
        }
        drop(reader);
        rest(&env).await;
        log.close().await.unwrap();
        let (log, recovery) = open(&env, small(8192, 8192)).await.unwrap();
        assert!(recovery.first_index > 50 && log.bytes() < held / 2);
        log.close().await.unwrap();
    });
}

/// A consumer came and went while segments were about to leave. The record that said what it needed
/// was written and not synced; a crash kept it, and lost the next one, which said that it had gone:
/// the log didn't open, for want of the segments.
#[test]
fn a_consumer_that_has_gone_holds_back_what_a_crash_would_want_for_it() {
    let sim = Simulation::new(1);
    let env = sim.process("node");
    let config = small(8192, 8192);
    let log = sim.run_until(async {
        let (mut log, reader) = held_by_a_reader(&env, config.clone()).await;
        commit(&mut log, 100, b"this says so durably").await;
        log.register("guest", 1, None).unwrap();
        log.append(101, &[b"not synced"]).await.unwrap();
        log.unregister("guest");
        drop(reader);
        log.pop("storage", 100).unwrap();
        rest(&env).await;
        log
    });
    sim.crash_with(&env, Unsynced::Kept);
    drop(log);
    let env = sim.restart(&env);
    sim.run_until(async {
        let (mut log, recovery) = open(&env, config).await.unwrap();
        assert_eq!((recovery.last_version, recovery.first_index), (101, 1));
        // Once it is durable that guests have gone, what was kept for them goes.
        log.unregister("guest");
        log.register("another guest", 1, None).unwrap();
        commit(&mut log, 102, b"it has come").await;
        log.unregister("another guest");
        commit(&mut log, 103, b"it has gone").await;
        log.pop("storage", 102).unwrap();
        rest(&env).await;
        log.close().await.unwrap();
        let (log, recovery) = open(&env, small(8192, 8192)).await.unwrap();
        assert!(recovery.first_index > 50, "{recovery:?}");
        log.close().await.unwrap();
    });
}

#[test]
fn a_small_log_takes_little_room() {
    in_simulation(|env| async move {
        let mut log = create_leased(&env, LogConfig::default()).await;
        commit(&mut log, 1, b"x").await;
        assert!(log.disk_bytes() <= 1 << 20);
        log.close().await.unwrap();
        assert_eq!(
            env.files().list(DIR).await.unwrap(),
            ["DURABLE", "segment-0000000000000001.log"]
        );
    });
}

#[test]
fn others_logs_and_missing_logs_are_refused_by_name() {
    in_simulation(|env| async move {
        assert_eq!(
            Error::from(open(&env, LogConfig::default()).await.unwrap_err()),
            Error::file_not_found()
        );
        create(&env, LogConfig::default()).await.close().await.unwrap();
        let again = LocalLog::create(&env, DIR, IDENTITY, LogConfig::default()).await.unwrap_err();
        assert_eq!(Error::from(again), Error::client_invalid_operation());
        let strangers = [
            (Identity { cluster_id: [9; 16], ..IDENTITY }, 0, "cluster c1c1"),
            (Identity { node_id: [9; 16], ..IDENTITY }, 0, "node 0d0d"),
            (IDENTITY, 7, "log 0000000000000000"),
        ];
        for (identity, log_id, named) in strangers {
            let config = LogConfig { log_id, ..LogConfig::default() };
            let error = LocalLog::open(&env, DIR, identity, config).await.unwrap_err();
            assert_eq!(Error::from(&error), Error::client_invalid_operation());
            let detail = error.to_string();
            assert!(
                detail.contains(named) && detail.contains("segment-0000000000000001.log"),
                "{detail}"
            );
        }
        let tiny = LocalLog::open(&env, DIR, IDENTITY, small(100, 100)).await.unwrap_err();
        assert_eq!(Error::from(&tiny), Error::invalid_option_value());
    });
}

#[test]
fn a_log_created_by_a_crashed_process_is_whole_or_not_there() {
    for seed in 0..200 {
        let sim = Simulation::new(seed);
        let env = sim.process("node");
        let limit = std::time::Duration::from_micros(sim.random().below(2500));
        let created =
            sim.run_until_within(limit, LocalLog::create(&env, DIR, IDENTITY, small(8192, 8192)));
        sim.crash(&env);
        let env = sim.restart(&env);
        sim.run_until(async {
            match open(&env, small(8192, 8192)).await {
                Ok((log, _)) => log.close().await.unwrap(),
                Err(error) => {
                    assert!(created.is_none(), "seed {seed}: created, and then {error}");
                    assert_eq!(Error::from(&error), Error::file_not_found(), "seed {seed}");
                    create(&env, small(8192, 8192)).await.close().await.unwrap();
                }
            }
        });
    }
}

#[test]
fn marking_twice_writes_once() {
    in_simulation(|env| async move {
        let mut log = create_leased(&env, LogConfig::default()).await;
        commit(&mut log, 1 as Version, b"x").await;
        log.mark_durable().await.unwrap();
        let marked = log.written();
        log.mark_durable().await.unwrap();
        assert_eq!(log.written(), marked);
        log.register("storage", 1, None).unwrap();
        log.mark_durable().await.unwrap();
        assert!(log.written() > marked, "a new consumer is written down");
    });
}

/// A reader for a consumer pins nothing. What it stands in may go, since everything in it was
/// popped, before it has looked at what is behind the last entry.
#[test]
fn a_reader_goes_on_behind_a_segment_that_has_become_another_one() {
    in_simulation(|env| async move {
        let mut config = small(8192, 8192);
        config.spare_bytes = 64 << 10;
        let mut log = create_leased(&env, config).await;
        log.register("feed", 1, None).unwrap();
        for version in 1..6 {
            commit(&mut log, version, &body(version, 1000)).await;
        }
        log.mark_durable().await.unwrap();
        let mut reader = log.reader_of("feed").unwrap();
        for version in 1..6 {
            assert_eq!(reader.next().await.unwrap().unwrap().version, version);
        }
        log.pop("feed", 5).unwrap();
        for version in 6..12 {
            commit(&mut log, version, &body(version, 5000)).await;
            rest(&env).await;
        }
        for version in 6..12 {
            assert_eq!(reader.next().await.unwrap().unwrap().version, version);
        }
    });
}
