//! A member that was away for longer than the others keep entries takes all rows from one of them,
//! then entries, and serves again.
//!
//! Whatever fails meanwhile: the one that sends, the one that takes at any of its file calls, the
//! links. What it had promised stays promised, and in the end it has what the others have.

mod machines;

use machines::{DIR, Machines};
use plinth_client::Endpoint;
use plinth_env::Open;
use plinth_env::simulated::CallKind;
use plinth_pipeline::{EngineKind, NodeConfig, RowsConfig, SsdSettings};
use plinth_replication::{Parcel, ParcelKind};
use plinth_types::{Bytes, Error, KeySelector, KeySpace, RangeRead, Result};
use std::path::Path;
use std::time::Duration;

const ENGINES: [EngineKind; 2] = [EngineKind::Memory, EngineKind::Ssd];

/// Segments, checkpoints and tables of a few entries, chunks of a few rows, and nothing kept for
/// others.
fn config(engine: EngineKind) -> NodeConfig {
    let mut config = NodeConfig {
        engine,
        checkpoint_bytes: 2_000,
        follower_log_bytes: 4_000,
        rows: RowsConfig { chunk_bytes: 1_500, ..RowsConfig::default() },
        window: 500_000,
        ssd: SsdSettings {
            flush_bytes: 2_000,
            flush_after: Duration::from_millis(200),
            ..SsdSettings::with_memory(8 << 20)
        },
        ..NodeConfig::default()
    };
    config.log.first_segment_bytes = plinth_log::LogConfig::MIN_SEGMENT_BYTES;
    config.log.max_segment_bytes = plinth_log::LogConfig::MIN_SEGMENT_BYTES;
    config.log.spare_bytes = 0;
    config
}

/// Writes so many times one of fifty rows of some hundred bytes, so that checkpoints let go of the
/// log.
fn fill(machines: &Machines, leader: usize, from: usize, rows: usize) {
    for n in from..from + rows {
        machines
            .set(leader, &format!("key{:05}", n % 50), &format!("{n:->300}"))
            .expect("a commit");
        if n % 10 == 0 {
            machines.sim.run_for(Duration::from_millis(100));
        }
    }
}

/// Three members of which one was away while so much was written that its entries are gone.
fn with_one_behind(seed: u64, engine: EngineKind) -> (Machines, usize, usize) {
    with_one_behind_of(seed, config(engine))
}

fn with_one_behind_of(seed: u64, config: NodeConfig) -> (Machines, usize, usize) {
    let mut machines = Machines::new(seed, 3, config);
    let leader = machines.await_leader(|_| true);
    machines.set(leader, "old", "1").expect("a commit");
    machines.sim.run_for(Duration::from_millis(500));
    let behind = (leader + 1) % 3;
    machines.crash(behind);
    let is_gone = |at: usize| {
        let names = machines
            .sim
            .run_until(machines.envs[at].files().list("/db/gen-1/log"))
            .expect("a list");
        let first = names.into_iter().filter(|name| name.starts_with("segment-")).min();
        first.is_some_and(|first| *first > *"segment-0000000000000006.log")
    };
    let others: Vec<usize> = (0..3).filter(|at| *at != behind).collect();
    for round in 0.. {
        assert!(round < 50, "the log is never let go of");
        fill(&machines, leader, 20 * round, 20);
        machines.sim.run_for(Duration::from_millis(500));
        if others.iter().all(|at| is_gone(*at)) {
            break;
        }
    }
    machines.open(behind).expect("it opens");
    (machines, leader, behind)
}

fn rows(machines: &Machines, leader: usize, at: usize) -> Result<Vec<(Bytes, Bytes)>> {
    let version = machines
        .sim
        .run_until(machines.database(leader).create_transaction().get_read_version())?;
    let read = RangeRead {
        begin: KeySelector::first_greater_or_equal(Bytes::new()),
        end: KeySelector::first_greater_or_equal(Bytes::from_static(
            plinth_types::system::SYSTEM_END,
        )),
        limit: usize::MAX,
        target_bytes: usize::MAX,
        reverse: false,
    };
    let endpoint = machines.host(at).endpoint();
    let found = machines.sim.run_until(endpoint.get_range(version, KeySpace::System, &read))?;
    let copy =
        |(key, value): (&[u8], &[u8])| (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
    Ok(found.rows.iter().map(copy).collect())
}

/// Waits until a node has all that the leader has.
fn await_equal(machines: &Machines, at: usize, what: &str) {
    for _ in 0..4000 {
        let leader = machines.await_leader(|_| true);
        if let (Ok(ours), Ok(theirs)) = (rows(machines, leader, at), rows(machines, leader, leader))
        {
            assert!(
                ours == theirs,
                "{what}: node {at} has {} rows, {} are there",
                ours.len(),
                theirs.len()
            );
            return;
        }
        machines.sim.run_for(Duration::from_millis(10));
    }
    panic!(
        "{what}: node {at} doesn't catch up: {:?}",
        rows(machines, machines.await_leader(|_| true), at)
    );
}

fn generation(machines: &Machines, at: usize) -> String {
    let names = machines.sim.run_until(machines.envs[at].files().list(DIR)).expect("a list");
    names.into_iter().filter(|name| name.starts_with("gen-")).collect()
}

/// How a member stands, as it says itself.
fn member_status(machines: &Machines, at: usize) -> serde_json::Value {
    let status = machines.sim.run_until(machines.host(at).endpoint().status_json());
    let status: serde_json::Value = serde_json::from_str(&status.unwrap()).unwrap();
    status["cluster"]["plinth"]["member"].clone()
}

#[test]
fn a_member_that_was_away_too_long_takes_rows_then_entries() {
    for engine in ENGINES {
        for seed in 0..4 {
            let (machines, leader, behind) = with_one_behind(seed, engine);
            let what = format!("{engine:?}, seed {seed}");
            let mut refused = false;
            for _ in 0..2000 {
                machines.sim.run_for(Duration::from_millis(1));
                if machines.host(behind).is_catching_up() {
                    let error =
                        machines.get_at(leader, behind, "old").expect_err("it serves nothing");
                    refused = error == Error::process_behind();
                    let member = member_status(&machines, behind);
                    assert!(member["catching_up"]["stage"].is_string(), "{what}: {member}");
                    assert!(member["rows_taken"].is_null(), "{what}: {member}");
                    break;
                }
            }
            assert!(refused, "{what}: it never noticed that it is behind");
            // The others go on.
            fill(&machines, leader, 300, 20);
            await_equal(&machines, behind, &what);
            assert_ne!(
                generation(&machines, behind),
                "gen-1",
                "{what}: these are not the old rows"
            );
            assert!(!machines.host(behind).is_catching_up());
            let taken = &member_status(&machines, behind)["rows_taken"];
            assert!(taken["bytes"].as_u64() > Some(0), "{what}: {taken}");
            assert!(taken["seconds"].as_f64() > Some(0.0), "{what}: {taken}");
            // It is a member as any: with it alone the leader goes on, and it leads.
            machines.set(leader, "more", "1").expect("a commit");
            machines.sim.run_until(machines.host(leader).hand_over());
            let third = 3 - leader - behind;
            machines.isolate(third);
            machines.sim.run_for(Duration::from_secs(2));
            let leader = machines.await_leader(|at| at != third);
            machines.set(leader, "last", "1").expect("a commit");
            await_equal(&machines, behind, &what);
        }
    }
}

/// What others say meanwhile, who answer that they keep entries, is neither silence of the one that
/// sends nor its answer: rows were asked for again whenever one of them spoke, and given up after
/// seven times.
#[test]
fn rows_come_while_others_talk() {
    let (machines, _, behind) = with_one_behind(50, EngineKind::Memory);
    let mut was_behind = false;
    for step in 0..20_000 {
        machines.sim.run_for(Duration::from_micros(500));
        let host = machines.host(behind);
        let now = host.is_catching_up();
        if was_behind && !now {
            return await_equal(&machines, behind, "others talk");
        }
        was_behind |= now;
        for from in (1..=3).filter(|from| *from != behind as u64 + 1) {
            host.receive_parcel(Parcel::bare(ParcelKind::Held, from, behind as u64 + 1, step));
        }
    }
    panic!("it doesn't catch up");
}

/// A node with a number of its own and an empty disk has nothing of the log, of which the beginning
/// is long gone: it takes rows as any that is behind, and who is a member with them.
#[test]
fn a_new_node_gets_its_rows_from_members_that_have_no_first_entry_any_more() {
    for engine in ENGINES {
        let (mut machines, leader, behind) = with_one_behind(40, engine);
        let what = format!("{engine:?}");
        let new = machines.join(leader, "10.0.0.9:4500").expect("it is taken in");
        fill(&machines, leader, 1000, 20);
        await_equal(&machines, new, &what);
        await_equal(&machines, behind, &what);
        let membership = machines.node(new).membership().expect("a member");
        assert_eq!(membership.node as usize, new + 1, "{what}");
        assert!(!membership.members.voters().contains(&membership.node), "{what}: it only follows");
        // Again with its power lost: it begins with what it has.
        machines.crash(new);
        machines.open(new).expect("it opens");
        fill(&machines, leader, 2000, 20);
        await_equal(&machines, new, &what);
    }
}

/// All entries are there, and rows are less to send than they are: a new node got 10 million rows
/// as entries, at half the speed and a third of the others' commits. Of a short log it takes
/// entries: that takes no opening anew.
#[test]
fn a_new_node_takes_rows_where_the_log_is_whole_and_long() {
    for engine in ENGINES {
        for is_long in [false, true] {
            let what = format!("{engine:?}, a long log: {is_long}");
            let follower_log_bytes = if is_long { 80_000 } else { 8_000_000 };
            let whole =
                NodeConfig { checkpoint_bytes: 1 << 20, follower_log_bytes, ..config(engine) };
            let mut machines = Machines::new(60, 3, whole);
            let leader = machines.await_leader(|_| true);
            fill(&machines, leader, 0, 60);
            let log = machines.envs[leader].files().list("/db/gen-1/log");
            let log = machines.sim.run_until(log).expect("a list");
            let first = log.iter().filter(|name| name.starts_with("segment-")).min();
            let first = first.map(String::as_str);
            assert_eq!(
                first,
                Some("segment-0000000000000001.log"),
                "{what}: all entries are there"
            );
            let new = machines.join(leader, "10.0.0.9:4500").expect("it is taken in");
            fill(&machines, leader, 1000, 20);
            await_equal(&machines, new, &what);
            assert_eq!(generation(&machines, new) != "gen-1", is_long, "{what}");
            // One that has something gets what it lacks as entries, however long the log is.
            machines.crash(new);
            fill(&machines, leader, 2000, 60);
            let before = generation(&machines, new);
            machines.open(new).expect("it opens");
            await_equal(&machines, new, &what);
            assert_eq!(generation(&machines, new), before, "{what}");
        }
    }
}

/// With `ssd` rows that can be given reach as far as the window's beginning, and that stood still
/// while nobody read or wrote: a new member of a cluster at rest waited until somebody did.
#[test]
fn a_new_node_takes_rows_from_a_cluster_at_rest() {
    for engine in ENGINES {
        for behind_rows in [false, true] {
            let what = format!("{engine:?}, entries without rows at the end: {behind_rows}");
            let long = NodeConfig {
                checkpoint_bytes: 1 << 20,
                follower_log_bytes: 80_000,
                ..config(engine)
            };
            let mut machines = Machines::new(61, 3, long);
            let leader = machines.await_leader(|_| true);
            fill(&machines, leader, 0, 60);
            if behind_rows {
                // Versions alone move by what they are read at.
                for _ in 0..10 {
                    machines.sim.run_for(Duration::from_secs(2));
                    await_equal(&machines, leader, &what);
                }
            }
            let new = machines.join(leader, "10.0.0.9:4500").expect("it is taken in");
            machines.sim.run_for(Duration::from_secs(30));
            assert!(!machines.host(new).is_catching_up(), "{what}");
            assert_ne!(generation(&machines, new), "gen-1", "{what}: as rows");
            await_equal(&machines, new, &what);
        }
    }
}

/// All file calls of a machine so far.
fn calls(machines: &Machines, at: usize) -> u64 {
    let kinds = [CallKind::Read, CallKind::Write, CallKind::Sync, CallKind::Open, CallKind::Rename];
    kinds.iter().map(|kind| machines.sim.call_count(&machines.envs[at], *kind)).sum()
}

/// The power of the one that takes rows fails at file calls all along its way; then it begins anew,
/// or goes on with what it has, and never takes a part of the rows for all of them.
#[test]
fn a_crash_at_any_file_call_of_taking_rows_leaves_a_member_that_catches_up() {
    for engine in ENGINES {
        let (mut machines, _, behind) = with_one_behind(11, engine);
        let (mut crashes, mut swapped, mut bound) = (0, 0, 1);
        loop {
            let before = calls(&machines, behind);
            let what = format!("{engine:?}, crash at call {bound}");
            let mut is_done = false;
            let mut was_behind = false;
            for _ in 0..200_000 {
                machines.sim.run_for(Duration::from_micros(50));
                let now = machines.host(behind).is_catching_up();
                was_behind |= now;
                is_done = was_behind && !now;
                if is_done || calls(&machines, behind) - before >= bound {
                    break;
                }
            }
            if is_done {
                assert_eq!(machines.host(behind).failure(), None, "{what}");
                await_equal(&machines, behind, &what);
                break;
            }
            machines.crash(behind);
            let report = plinth_pipeline::check(&machines.envs[behind], Path::new(DIR));
            assert_eq!(machines.sim.run_until(report).expect(&what).problems, [], "{what}");
            swapped += u32::from(!generation(&machines, behind).starts_with("gen-1"));
            crashes += 1;
            machines.open(behind).expect(&what);
            if swapped > 0 {
                // It is on its new state: there it has what is missing as any member.
                await_equal(&machines, behind, &what);
                break;
            }
            bound += 1 + bound / 16;
        }
        assert!(crashes > 20, "{engine:?}: {crashes} crashes");
    }
}

#[test]
fn a_sender_that_goes_away_is_replaced_by_another() {
    for engine in ENGINES {
        for seed in 0..4 {
            // At a pace, so that not all rows are on their way before it goes away.
            let mut config = config(engine);
            config.rows.bytes_per_second = 4_000;
            let (mut machines, leader, behind) = with_one_behind_of(20 + seed, config);
            let what = format!("{engine:?}, seed {seed}");
            let third = 3 - leader - behind;
            let given = |machines: &Machines, at: usize| {
                let text = machines.host(at).metrics_text();
                let line =
                    text.lines().find(|line| line.starts_with("plinth_rows_given_bytes_total "));
                line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                    .expect("a figure")
            };
            for _ in 0..20_000 {
                machines.sim.run_for(Duration::from_micros(200));
                if given(&machines, third) > 0.0 {
                    break;
                }
            }
            assert!(given(&machines, third) > 0.0, "{what}: one that follows is asked first");
            if seed % 2 == 0 {
                machines.crash(third);
            } else {
                machines.isolate(third);
            }
            await_equal(&machines, behind, &what);
            assert!(
                given(&machines, leader) > 0.0,
                "{what}: the leader gives what the other one didn't"
            );
            machines
                .set(leader, "more", "1")
                .expect("with the one that came back there is a majority");
        }
    }
}

/// While somebody commits rows are given at a pace, so that commits keep what they need; while
/// nobody does, as fast as they are taken.
#[test]
fn rows_are_given_at_a_pace_while_somebody_commits() {
    let mut config = config(EngineKind::Memory);
    config.rows.bytes_per_second = 4_000;
    // There is no pace any more once twice as much was written.
    config.follower_log_bytes = 40_000;
    let took = |commits: bool| {
        let (machines, leader, behind) = with_one_behind_of(60, config.clone());
        for n in 0..100_000 {
            if commits {
                machines.set(leader, "now", &format!("{n:->300}")).expect("a commit");
            }
            machines.sim.run_for(Duration::from_millis(10));
            let taken = member_status(&machines, behind)["rows_taken"].clone();
            if let (Some(bytes), Some(seconds)) =
                (taken["bytes"].as_f64(), taken["seconds"].as_f64())
            {
                await_equal(&machines, behind, "in the end");
                return bytes / seconds;
            }
        }
        panic!("it gets no rows");
    };
    let (quiet, busy) = (took(false), took(true));
    assert!((2_000.0..5_500.0).contains(&busy), "{busy} bytes a second");
    // Whether anybody commits is looked at twice a second.
    assert!(quiet > 3.0 * busy, "{quiet} bytes a second, {busy} beside commits");
}

#[test]
fn links_that_lose_a_third_of_everything_only_make_it_slower() {
    for engine in ENGINES {
        for seed in 0..3 {
            let (machines, _, behind) = with_one_behind(30 + seed, engine);
            machines.lose(300);
            machines.sim.run_for(Duration::from_secs(20));
            machines.lose(0);
            await_equal(&machines, behind, &format!("{engine:?}, seed {seed}"));
        }
    }
}

/// Chunks that took longer than it was waited for were sent again and again, and those that came
/// twice were no sign of life: rows never came over a slow link.
#[test]
fn rows_come_over_a_link_that_is_slower_than_anybody_waits() {
    for engine in ENGINES {
        for (seed, chunk) in [(40, 700), (41, 1_500), (42, 6_000)] {
            let (machines, _, behind) = with_one_behind(seed, engine);
            machines.narrow(behind, Duration::from_millis(chunk) / 1_500);
            let mut left = 600;
            while machines.host(behind).is_catching_up() {
                left -= 1;
                assert!(left > 0, "{engine:?}, {chunk} ms for a chunk: it doesn't get its rows");
                machines.sim.run_for(Duration::from_secs(1));
            }
            machines.narrow(behind, Duration::ZERO);
            await_equal(&machines, behind, &format!("{engine:?}, {chunk} ms for a chunk"));
        }
    }
}

/// The leader can't read what a member lacks: it was sent nothing, and told nothing, for ever.
#[test]
fn a_member_whose_entries_can_be_read_no_more_takes_rows() {
    for engine in ENGINES {
        let mut whole = config(engine);
        (whole.follower_log_bytes, whole.log.tail_bytes) = (8_000_000, 1);
        let mut machines = Machines::new(50, 3, whole);
        let leader = machines.await_leader(|_| true);
        fill(&machines, leader, 0, 20);
        let behind = (leader + 1) % 3;
        machines.crash(behind);
        fill(&machines, leader, 100, 80);
        let files = machines.envs[leader].files();
        let log = Path::new("/db/gen-1/log");
        machines.sim.run_until(async {
            let mut names = files.list(log).await.expect("a list");
            names.retain(|name| name.starts_with("segment-"));
            names.sort();
            assert!(names.len() > 4, "{engine:?}: {names:?}");
            let middle = log.join(&names[names.len() / 2]);
            let mut bytes = files.read(&middle).await.expect("a segment");
            let at = bytes.len() / 2;
            bytes[at] ^= 1;
            let file = files.open(&middle, Open::Write).await.expect("a segment");
            file.write_all_at(at as u64, &bytes[at..=at]).await.expect("a bit");
        });
        machines.open(behind).expect("it opens");
        await_equal(&machines, behind, &format!("{engine:?}"));
        assert_ne!(generation(&machines, behind), "gen-1", "{engine:?}: by rows");
        let third = 3 - leader - behind;
        machines.crash(third);
        machines.set(leader, "more", "1").expect("the two are a majority");
    }
}

/// What is kept for others was counted from each start on: a member that was started often let go
/// of nothing.
#[test]
fn a_member_that_is_started_often_keeps_no_more_for_others() {
    for engine in ENGINES {
        let follower_log_bytes = 40_000;
        let often = NodeConfig { follower_log_bytes, ..config(engine) };
        let mut machines = Machines::new(55, 3, often);
        let leader = machines.await_leader(|_| true);
        let at = (leader + 1) % 3;
        for round in 0..40 {
            fill(&machines, leader, 100 * round, 40);
            // For a checkpoint, which needs the log until then, and for who might take rows in.
            // What goes does so behind the next entry.
            machines.sim.run_for(Duration::from_secs(11));
            fill(&machines, leader, 100 * round + 50, 11);
            machines.sim.run_for(Duration::from_secs(1));
            machines.crash(at);
            machines.open(at).expect("it opens");
            await_equal(&machines, at, &format!("{engine:?}, start {round}"));
        }
        let segments = machines.files(at).into_iter();
        let segments = segments.filter(|(path, _)| path.to_string_lossy().contains("segment-"));
        let kept: u64 = segments.map(|(_, bytes)| bytes.len() as u64).sum();
        assert!(kept < 4 * follower_log_bytes, "{engine:?}: {kept} bytes are kept");
    }
}
