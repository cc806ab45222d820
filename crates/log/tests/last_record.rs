//! The last record of a log: nothing follows it that says that it was durable.
//!
//! A log whose process was killed, or that was closed, was found to open without its last records
//! when a bit in the last one had turned over meanwhile, or zeros stood from somewhere to the end:
//! they looked like a write cut short, though they had been synced and acknowledged. Now a note
//! says how far the log is durable, within 20 ms of the sync, at no cost to a commit.

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use plinth_env::simulated::{CallKind, Simulation, Unsynced};
use plinth_env::{Env, Open};
use plinth_log::{LocalLog, LogConfig, LogError, verify};
use support::{DIR, body, commit, create_leased, open, read, small};

/// How long it may take until a record is known to be durable.
const SOON: Duration = Duration::from_millis(20);

/// The same, whatever happens to one of the two notes.
const IN_BOTH: Duration = Duration::from_millis(28);

fn config() -> LogConfig {
    small(65_536, 65_536)
}

fn segment() -> PathBuf {
    Path::new(DIR).join("segment-0000000000000001.log")
}

/// A log with these entries, the last of which is as long ago as the pause.
fn log_with(sim: &Simulation, env: &Env, entries: i64, pause: Duration) -> LocalLog {
    let log = sim.run_until(async {
        let mut log = create_leased(env, config()).await;
        for version in 1..=entries {
            commit(&mut log, version, &body(version, 300)).await;
        }
        log
    });
    sim.run_for(pause);
    log
}

/// Where the last entry's record is.
async fn last_record(env: &Env, version: i64) -> std::ops::Range<u64> {
    let (contents, body) = (env.files().read(segment()).await.unwrap(), body(version, 300));
    let at = contents.windows(body.len()).position(|window| window == body).unwrap() as u64;
    at - plinth_log::format::RECORD_HEADER_LEN as u64..at + 300
}

async fn assert_damage_is_named(env: &Env, what: &str) {
    let report = verify(env, DIR, &config().keys).await.unwrap();
    assert_eq!(report.torn_tail, None, "{what}");
    assert_eq!(report.problems.len(), 1, "{what}: {:?}", report.problems);
    let error = open(env, config()).await.expect_err(what);
    assert!(matches!(error, LogError::Corrupt(_)), "{what}: {error}");
    assert!(error.to_string().contains(&report.problems[0].to_string()), "{what}: {error}");
    assert!(report.problems[0].file.ends_with("0001.log"), "{what}: {error}");
}

#[test]
fn a_bit_turned_over_in_the_last_record_after_a_kill_is_found() {
    let sim = Simulation::new(1);
    let env = sim.process("node");
    let _log = log_with(&sim, &env, 12, SOON);
    sim.kill(&env);
    let env = sim.restart(&env);
    sim.run_until(async {
        let file = env.files().open(segment(), Open::Write).await.unwrap();
        for offset in last_record(&env, 12).await {
            let mut byte = [0];
            file.read_exact_at(offset, &mut byte).await.unwrap();
            file.write_all_at(offset, &[byte[0] ^ (1 << (offset % 8))]).await.unwrap();
            assert_damage_is_named(&env, &format!("a bit at {offset}")).await;
            file.write_all_at(offset, &byte).await.unwrap();
        }
        let (log, recovery) = open(&env, config()).await.unwrap();
        assert_eq!(
            (recovery.last_version, recovery.known_committed, recovery.cut_tail),
            (12, 12, None)
        );
        log.close().await.unwrap();
    });
}

#[test]
fn zeros_from_anywhere_to_the_end_of_a_closed_log_are_found() {
    let sim = Simulation::new(2);
    let env = sim.process("node");
    let log = log_with(&sim, &env, 12, Duration::ZERO);
    sim.run_until(async {
        log.close().await.unwrap();
        let contents = env.files().read(segment()).await.unwrap();
        let end = contents.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
        let file = env.files().open(segment(), Open::Write).await.unwrap();
        for begin in (4096 + plinth_log::format::RECORD_HEADER_LEN as u64..end).step_by(7) {
            file.write_all_at(begin, &vec![0; (end - begin) as usize]).await.unwrap();
            assert_damage_is_named(&env, &format!("zeros from {begin} on")).await;
            file.write_all_at(begin, &contents[begin as usize..end as usize]).await.unwrap();
        }
    });
}

#[test]
fn the_note_of_a_close_survives_a_power_failure() {
    let sim = Simulation::new(3);
    let env = sim.process("node");
    let log = log_with(&sim, &env, 12, Duration::ZERO);
    sim.run_until(log.close()).unwrap();
    sim.crash_with(&env, Unsynced::Lost);
    let env = sim.restart(&env);
    sim.run_until(async {
        let at = last_record(&env, 11).await.start;
        let contents = env.files().read(segment()).await.unwrap();
        let file = env.files().open(segment(), Open::Write).await.unwrap();
        file.write_all_at(at, &vec![0; contents.len() - at as usize]).await.unwrap();
        assert_damage_is_named(&env, "zeros").await;
    });
}

#[test]
fn a_busy_writer_notes_nothing_and_an_idle_log_once_in_each_place() {
    let sim = Simulation::new(4);
    let env = sim.process("node");
    // Large enough that no segment is made meanwhile.
    let mut log = sim.run_until(create_leased(&env, small(1 << 20, 1 << 20)));
    sim.run_for(Duration::from_secs(1));
    let count = |kind| sim.call_count(&env, kind);
    let (writes, syncs) = (count(CallKind::Write), count(CallKind::Sync));
    for version in 1..101 {
        sim.run_until(commit(&mut log, version, &body(version, 100)));
        sim.run_for(Duration::from_millis(1));
    }
    assert_eq!(count(CallKind::Sync), syncs + 100, "a commit is one sync");
    assert_eq!(count(CallKind::Write), writes + 100, "a commit is one write");
    sim.run_for(Duration::from_secs(60));
    assert_eq!(count(CallKind::Sync), syncs + 100, "a note is not synced");
    assert_eq!(count(CallKind::Write), writes + 102, "one note for a quiet time, to both places");
    // Commits with pauses between them are noted each.
    for version in 101..104 {
        sim.run_until(commit(&mut log, version, &body(version, 100)));
        sim.run_for(IN_BOTH);
    }
    assert_eq!(count(CallKind::Write), writes + 102 + 3 * 3);
}

/// The record up to which the notes say that the log is durable.
async fn noted(env: &Env) -> u64 {
    let notes = env.files().read(Path::new(DIR).join("DURABLE")).await.unwrap();
    let sequence =
        |place: usize| u64::from_le_bytes(notes[place + 24..place + 32].try_into().unwrap());
    sequence(0).max(sequence(4096))
}

#[test]
fn a_note_never_says_more_than_is_durable() {
    let sim = Simulation::new(6);
    let env = sim.process("node");
    let mut log = log_with(&sim, &env, 1, SOON);
    // The record of version 3 is written while that of version 2 is synced: it doesn't say that
    // that is durable.
    sim.update_faults(&env, |faults| {
        (faults.sync.latency_min, faults.sync.latency_max) =
            (Duration::from_millis(5), Duration::from_millis(5));
    });
    let second = sim.run_until(log.append(2, &[b"2"])).unwrap();
    let syncer = log.syncer();
    let synced = env.spawn("sync", async move { syncer.sync(second).await.unwrap() });
    sim.run_for(Duration::from_millis(1));
    let third = sim.run_until(log.append(3, &[b"3"])).unwrap();
    sim.run_until(synced).unwrap();
    assert!(sim.run_until(noted(&env)) < second.sequence());
    sim.run_for(SOON);
    assert_eq!(sim.run_until(noted(&env)), second.sequence());
    sim.run_for(Duration::from_secs(1));
    assert!(sim.run_until(noted(&env)) < third.sequence(), "nobody has synced it");
}

#[test]
fn a_log_without_its_notes_is_damaged_and_one_place_of_two_is_enough() {
    let sim = Simulation::new(5);
    let env = sim.process("node");
    let log = log_with(&sim, &env, 3, SOON);
    sim.run_until(async {
        log.close().await.unwrap();
        let path = Path::new(DIR).join("DURABLE");
        let notes = env.files().read(&path).await.unwrap();
        let file = env.files().open(&path, Open::Write).await.unwrap();
        for place in [0, 4096] {
            file.write_all_at(place + 20, &[!notes[place as usize + 20]]).await.unwrap();
            let report = verify(&env, DIR, &config().keys).await.unwrap();
            assert_eq!((report.problems, report.torn_tail), (vec![], None));
            let spoilt = report.spoilt_note.expect("a damaged note is told");
            assert!(spoilt.file.ends_with("DURABLE") && spoilt.offset == place, "{spoilt}");
            file.write_all_at(place + 20, &notes[place as usize + 20..][..1]).await.unwrap();
        }
        for change in ["both", "short", "gone"] {
            match change {
                "both" => {
                    file.write_all_at(20, &[!notes[20]]).await.unwrap();
                    file.write_all_at(4096 + 20, &[!notes[4096 + 20]]).await.unwrap();
                }
                "short" => file.set_len(10).await.unwrap(),
                _ => env.files().remove(&path).await.unwrap(),
            }
            let report = verify(&env, DIR, &config().keys).await.unwrap();
            assert_eq!(report.problems.len(), 1, "{change}: {:?}", report.problems);
            assert!(report.problems[0].file.ends_with("DURABLE"), "{change}");
            let error = open(&env, config()).await.unwrap_err();
            assert!(
                matches!(error, LogError::Corrupt(_)) && error.to_string().contains("DURABLE"),
                "{change}: {error}"
            );
        }
        env.files().replace(&path, &notes).await.unwrap();
        let (log, _) = open(&env, config()).await.unwrap();
        assert_eq!(read(&log, 1).await.unwrap().len(), 3);
        log.close().await.unwrap();
    });
}

/// Turns over a bit in each of the notes in turn, and with it a bit in the last record.
async fn assert_one_note_is_enough(env: &Env, last: i64) {
    let path = Path::new(DIR).join("DURABLE");
    let notes = env.files().read(&path).await.unwrap();
    let file = env.files().open(segment(), Open::Write).await.unwrap();
    let at = last_record(env, last).await.end - 1;
    let mut byte = [0];
    file.read_exact_at(at, &mut byte).await.unwrap();
    for place in [0, 4096] {
        let mut spoilt = notes.clone();
        spoilt[place + 24] ^= 1;
        env.files().replace(&path, &spoilt).await.unwrap();
        file.write_all_at(at, &[byte[0] ^ 1]).await.unwrap();
        assert_damage_is_named(env, &format!("the note at {place} and the last record")).await;
        file.write_all_at(at, &byte).await.unwrap();
    }
    env.files().replace(&path, &notes).await.unwrap();
}

/// The newer note alone said of the last record that it was durable: with a bit in each of them the
/// record went as a write that a crash had cut short.
#[test]
fn one_note_of_two_says_it_of_a_closed_log_and_of_an_idle_one() {
    let sim = Simulation::new(7);
    let env = sim.process("node");
    let log = log_with(&sim, &env, 12, IN_BOTH);
    sim.kill(&env);
    drop(log);
    let env = sim.restart(&env);
    sim.run_until(async {
        assert_one_note_is_enough(&env, 12).await;
        let (mut log, _) = open(&env, config()).await.unwrap();
        commit(&mut log, 13, &body(13, 300)).await;
        log.close().await.unwrap();
        assert_one_note_is_enough(&env, 13).await;
    });
}

#[test]
fn a_damaged_note_is_told_by_opening_and_written_anew() {
    let sim = Simulation::new(8);
    let env = sim.process("node");
    let log = log_with(&sim, &env, 3, SOON);
    sim.run_until(async {
        log.close().await.unwrap();
        let path = Path::new(DIR).join("DURABLE");
        for place in [0, 4096] {
            let file = env.files().open(&path, Open::Write).await.unwrap();
            file.write_all_at(place, b"what is this").await.unwrap();
            let (log, recovery) = open(&env, config()).await.unwrap();
            assert_eq!(recovery.spoilt_note.map(|spoilt| spoilt.offset), Some(place));
            log.close().await.unwrap();
            assert_eq!(verify(&env, DIR, &config().keys).await.unwrap().spoilt_note, None);
        }
    });
}

#[test]
fn a_new_log_has_one_note_and_that_is_no_damage() {
    let sim = Simulation::new(9);
    let env = sim.process("node");
    let log = sim.run_until(create_leased(&env, config()));
    sim.kill(&env);
    drop(log);
    let env = sim.restart(&env);
    let report = sim.run_until(verify(&env, DIR, &config().keys)).unwrap();
    assert_eq!((report.problems, report.spoilt_note), (vec![], None));
}
