//! A log that is encrypted.
//!
//! What must hold: nothing that was written shows, only its keys open it, and a new key, or
//! the first one, takes the place of what was before while it is used.

mod support;

use std::collections::HashMap;

use plinth_env::simulated::{FaultPlan, Simulation, Unsynced};
use plinth_env::{Env, Open};
use plinth_format::Keys;
use plinth_log::format::{RECORD_HEADER_LEN, RECORDS_START};
use plinth_log::{LocalLog, LogConfig, LogError, Salvage, verify};
use plinth_types::Version;
use support::{DIR, commit, create_leased, keys, open, read, small};

const SEGMENT: u64 = 8192;
const PLANTED: &[u8] = b"in no file of this log";

fn config(keys: &Keys) -> LogConfig {
    LogConfig { keys: keys.clone(), ..small(SEGMENT, SEGMENT) }
}

/// Commits a body that is easily found.
async fn plant(log: &mut LocalLog, version: Version) {
    commit(log, version, &PLANTED.repeat(12)).await;
}

/// The files, each with its bytes.
async fn contents(env: &Env) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for name in env.files().list(DIR).await.unwrap() {
        match env.files().read(format!("{DIR}/{name}")).await {
            Ok(bytes) => all.push((name, bytes)),
            // A segment that is made ahead has got its name meanwhile.
            Err(error) => assert!(error.is_not_found(), "{error}"),
        }
    }
    all
}

/// Files in which what was planted, or the name of a consumer, can be read.
async fn files_that_show(env: &Env) -> Vec<String> {
    let mut found = Vec::new();
    for (name, bytes) in contents(env).await {
        let shows = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
        if shows(PLANTED) || shows(b"a consumer") {
            found.push(name);
        }
    }
    found
}

#[test]
fn nothing_that_was_written_shows_and_its_key_gives_it_back() {
    let sim = Simulation::new(1);
    let env = sim.process("node");
    sim.run_until(async {
        let mut log = create_leased(&env, config(&keys(0))).await;
        log.register("a consumer", 1, None).unwrap();
        for version in 1..=60 {
            plant(&mut log, version).await;
        }
        let entries = read(&log, 0).await.unwrap();
        assert!(entries.len() == 60 && entries[59].body == PLANTED.repeat(12));
        assert_eq!((files_that_show(&env).await, log.outdated()), (vec![], (0, 0)));
        log.close().await.unwrap();
        assert_eq!(files_that_show(&env).await, [""; 0]);
        let (log, _) = open(&env, config(&keys(0))).await.unwrap();
        assert_eq!(read(&log, 0).await.unwrap(), entries);
        assert_eq!(log.consumers(), [("a consumer".to_owned(), 1)]);
    });
}

#[test]
fn without_its_key_it_stays_as_it_is_and_its_checksums_are_compared() {
    let sim = Simulation::new(2);
    let env = sim.process("node");
    sim.run_until(async {
        let mut log = create_leased(&env, config(&keys(0))).await;
        for version in 1..=60 {
            plant(&mut log, version).await;
        }
        log.close().await.unwrap();
        let before = contents(&env).await;
        let other = Keys::new(&[plinth_format::crypt::Key::of_file(&[77; 32]).unwrap()]);
        for keys in [&Keys::none(), &other] {
            let error = open(&env, config(keys)).await.expect_err("a refusal");
            assert!(matches!(error, LogError::Locked(_)), "{error}");
            assert!(
                error.to_string().contains("segment-0000000000000001.log is encrypted"),
                "{error}"
            );
            let salvaged = Salvage::open(&env, DIR, keys).await.expect_err("a refusal");
            assert!(matches!(salvaged, LogError::Locked(_)), "{salvaged}");
            let report = verify(&env, DIR, keys).await.unwrap();
            assert_eq!((report.problems.len(), report.locked.len()), (0, 1));
            assert!(report.records > 60, "{report:?}");
        }
        assert!(contents(&env).await == before, "nothing was touched");
        let path = format!("{DIR}/segment-0000000000000001.log");
        let file = env.files().open(&path, Open::Write).await.unwrap();
        file.write_all_at(RECORDS_START + 1000, &[0; 16]).await.unwrap();
        let report = verify(&env, DIR, &Keys::none()).await.unwrap();
        assert_eq!(report.problems.len(), 1, "{report:?}");
    });
}

/// Whoever can write to the disk makes checksums right; the key tells.
#[test]
fn a_body_that_was_changed_with_its_checksums_is_damage_and_never_served() {
    let sim = Simulation::new(3);
    let env = sim.process("node");
    sim.run_until(async {
        let mut log = create_leased(&env, config(&keys(0))).await;
        plant(&mut log, 1).await;
        // Neither a later record nor a note says that it was durable.
        drop(log);
        let path = format!("{DIR}/segment-0000000000000001.log");
        let mut bytes = env.files().read(&path).await.unwrap();
        let seed = crc32c::crc32c(&bytes[16..72]);
        // The record of the entry is the one with the longest body.
        let mut at = RECORDS_START as usize;
        let span = |at: usize| {
            let len = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
            (len, (RECORD_HEADER_LEN + len).next_multiple_of(8))
        };
        while span(at).0 < PLANTED.len() * 12 {
            at += span(at).1;
        }
        let (len, _) = span(at);
        let body = at + RECORD_HEADER_LEN..at + RECORD_HEADER_LEN + len;
        bytes[body.start + 40] ^= 1;
        let checksum = crc32c::crc32c_append(seed, &bytes[body]);
        bytes[at + 4..at + 8].copy_from_slice(&checksum.to_le_bytes());
        let checksum = crc32c::crc32c_append(seed, &bytes[at + 4..at + RECORD_HEADER_LEN]);
        bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
        let file = env.files().open(&path, Open::Write).await.unwrap();
        file.write_all_at(0, &bytes).await.unwrap();
        let report = verify(&env, DIR, &keys(0)).await.unwrap();
        let problem = report.problems.first().expect("a problem").to_string();
        assert!(
            problem.contains("body of a record: expected what the file's key has sealed"),
            "{problem}"
        );
        let error = open(&env, config(&keys(0))).await.expect_err("damage");
        assert!(matches!(error, LogError::Corrupt(_)), "{error}");
    });
}

/// From no key to one, to the next: while the log is used and popped, what was before goes, spares
/// too.
#[test]
fn a_log_takes_each_new_key_and_needs_no_older_one_afterwards() {
    let sim = Simulation::new(4);
    let env = sim.process("node");
    sim.run_until(async {
        let mut log = create_leased(&env, config(&Keys::none())).await;
        log.register("a consumer", 1, None).unwrap();
        let mut version = 0;
        for newest in [None, Some(0), Some(1), Some(2)] {
            log.close().await.unwrap();
            let keys = newest.map_or_else(Keys::none, keys);
            (log, _) = open(&env, config(&keys)).await.unwrap();
            let (segments, bytes) = log.outdated();
            assert!((segments > 0) == newest.is_some() && (bytes > 0) == newest.is_some());
            for _ in 0..60 {
                version += 1;
                plant(&mut log, version).await;
            }
            log.pop("a consumer", version).unwrap();
            log.mark_durable().await.unwrap();
            env.sleep(std::time::Duration::from_secs(1)).await;
            assert_eq!(log.outdated(), (0, 0), "{newest:?}");
            assert_eq!(files_that_show(&env).await.is_empty(), newest.is_some());
        }
        log.close().await.unwrap();
        let last = plinth_format::crypt::Key::of_file(&[2; 32]).unwrap();
        let (log, _) = open(&env, config(&Keys::new(&[last]))).await.unwrap();
        let entries = read(&log, version - 5).await.unwrap();
        assert!(entries.len() == 6 && log.consumers().len() == 1, "{entries:?}");
    });
}

/// Appends that fail, tails that are torn, and openings that begin at the same record again: all
/// seal something else in the same place.
#[test]
fn no_nonce_is_used_twice_in_a_segment() {
    let mut seen = Seen::new();
    for seed in 0..20 {
        let sim = Simulation::new(seed);
        let mut env = sim.process("node");
        let config = config(&keys(0));
        let log = sim.run_until(create_leased(&env, config.clone()));
        sim.run_until(log.close()).unwrap();
        for _ in 0..8 {
            let (mut log, _) = sim.run_until(open(&env, config.clone())).unwrap();
            for _ in 0..6 {
                sim.set_faults(&env, FaultPlan::failing(0.2, 0.0));
                let version = log.view().durable().version + 1 + log.written().sequence() as i64;
                let _ = sim.run_until(log.append(version, &[PLANTED]));
                sim.set_faults(&env, FaultPlan::default());
                sim.run_until(note_nonces(&env, &mut seen));
            }
            drop(log);
            sim.crash_with(&env, Unsynced::Lost);
            env = sim.restart(&env);
        }
    }
    assert!(seen.len() > 500, "{} bodies", seen.len());
}

/// What was sealed in a segment with a nonce: of which segment, and which nonce.
type Seen = HashMap<(Vec<u8>, Vec<u8>), Vec<u8>>;

/// Takes note of each record that stands in a segment; one that stood there before with another
/// body has another nonce.
async fn note_nonces(env: &Env, seen: &mut Seen) {
    for (name, bytes) in contents(env).await {
        if !name.starts_with("segment-") || bytes.len() < RECORDS_START as usize {
            continue;
        }
        let identity = bytes[16..72].to_vec();
        let seed = crc32c::crc32c(&identity);
        let mut at = RECORDS_START as usize;
        while let Some(head) = bytes.get(at..at + RECORD_HEADER_LEN) {
            let checksum = crc32c::crc32c_append(seed, &head[4..]);
            let len = u32::from_le_bytes(head[8..12].try_into().unwrap()) as usize;
            let body = bytes.get(at + RECORD_HEADER_LEN..at + RECORD_HEADER_LEN + len);
            let Some(body) = body.filter(|_| head[..4] == checksum.to_le_bytes()) else { break };
            if head[4..8] == crc32c::crc32c_append(seed, body).to_le_bytes() {
                let before = seen.insert((identity.clone(), body[..12].to_vec()), body.to_vec());
                assert!(before.is_none_or(|before| before == body), "a nonce came twice");
            }
            at += (RECORD_HEADER_LEN + len).next_multiple_of(8);
        }
    }
}
