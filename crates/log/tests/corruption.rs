//! Bits turned over, bytes cut off, files gone: found, named, never served.
//!
//! A small log is written and closed once; each trial damages its files, looks what `verify`,
//! opening and salvage say, and puts the files back.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plinth_env::simulated::{Simulation, Unsynced};
use plinth_env::{Env, Open};
use plinth_log::{
    Entry, EntryKind, LocalLog, LogConfig, LogResult, Report, Salvage, Salvaged, verify,
};
use plinth_types::Error;
use support::{DIR, body, commit, create_leased, keys, open, read, small};

const SEGMENT: u64 = 8192;
/// Bytes of a record before its body.
const HEAD: u64 = plinth_log::format::RECORD_HEADER_LEN as u64;
/// Bytes of a record with a body of 300 bytes.
const SPAN: u64 = HEAD + 300;

fn config() -> LogConfig {
    small(SEGMENT, SEGMENT)
}

fn sealed() -> LogConfig {
    LogConfig { keys: keys(0), ..config() }
}

/// A closed log of a few segments, its entries, and its files' contents.
struct Specimen {
    config: LogConfig,
    sim: Simulation,
    env: Env,
    entries: Vec<Entry>,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Specimen {
    fn new(entries: i64, body_len: usize) -> Self {
        Self::with(config(), entries, body_len)
    }

    fn with(config: LogConfig, entries: i64, body_len: usize) -> Self {
        let sim = Simulation::new(3);
        let env = sim.process("node");
        let (entries, files) = sim.run_until(async {
            let mut log = create_leased(&env, config.clone()).await;
            log.register("storage", 1, None).unwrap();
            for version in 1..=entries {
                commit(&mut log, version, &body(version, body_len)).await;
            }
            let entries = read(&log, 0).await.unwrap();
            log.close().await.unwrap();
            let mut files = Vec::new();
            for name in env.files().list(DIR).await.unwrap() {
                let path = Path::new(DIR).join(name);
                files.push((path.clone(), env.files().read(&path).await.unwrap()));
            }
            (entries, files)
        });
        Self { config, sim, env, entries, files }
    }

    /// Puts all files back as they were.
    async fn restore(&self) {
        for name in self.env.files().list(DIR).await.unwrap() {
            let path = Path::new(DIR).join(name);
            if self.files.iter().all(|(known, _)| *known != path) {
                self.env.files().remove(path).await.unwrap();
            }
        }
        for (path, contents) in &self.files {
            let file = self.env.files().open(path, Open::Create).await.unwrap();
            file.write_all_at(0, contents).await.unwrap();
            file.set_len(contents.len() as u64).await.unwrap();
        }
    }

    /// What `verify` says, and what opening and reading everything gives.
    async fn examine(&self) -> (Report, LogResult<Vec<Entry>>) {
        let report = verify(&self.env, DIR, &self.config.keys).await.unwrap();
        let opened = match open(&self.env, self.config.clone()).await {
            Err(error) => Err(error),
            Ok((log, recovery)) => {
                assert_eq!(recovery.cut_tail.is_some(), report.torn_tail.is_some());
                let entries = read(&log, 0).await;
                close_quietly(log).await;
                entries
            }
        };
        (report, opened)
    }

    /// What `verify` says with one bit of this byte turned over. Opening, tried for some, must
    /// agree.
    async fn with_flipped_bit(&self, path: &Path, offset: u64) -> Vec<String> {
        let mask = 1 << (offset % 8);
        self.flip(path, offset, mask).await;
        if !offset.is_multiple_of(29) {
            let report = verify(&self.env, DIR, &self.config.keys).await.unwrap();
            self.flip(path, offset, mask).await;
            return report.problems.iter().map(ToString::to_string).collect();
        }
        let (report, opened) = self.examine().await;
        let problems = match opened {
            Ok(entries) => {
                assert_eq!(entries, self.entries, "{} {offset}", path.display());
                assert_eq!(report.problems, [], "{} {offset}", path.display());
                Vec::new()
            }
            Err(error) => {
                assert_eq!(
                    Error::from(&error),
                    Error::file_corrupt(),
                    "{} {offset}: {error}",
                    path.display()
                );
                assert!(error.to_string().contains(&report.problems[0].to_string()), "{error}");
                report.problems.iter().map(ToString::to_string).collect()
            }
        };
        self.restore().await;
        problems
    }

    async fn flip(&self, path: &Path, offset: u64, mask: u8) {
        let file = self.env.files().open(path, Open::Write).await.unwrap();
        let mut byte = [0];
        file.read_exact_at(offset, &mut byte).await.unwrap();
        file.write_all_at(offset, &[byte[0] ^ mask]).await.unwrap();
    }
}

/// Closing a damaged log may fail; what it does to the files is undone by the next `restore`.
async fn close_quietly(log: LocalLog) {
    let _ = log.close().await;
}

/// An error or problem must say where: in this file.
fn names(text: &str, path: &Path) -> bool {
    text.contains(&path.display().to_string())
        && text.contains("offset")
        && text.contains("expected")
}

/// Turns a bit of every byte of a segment over, in long runs of zeros of some.
fn flip_through(config: LogConfig, segment: usize, least_found: u64) {
    let is_sealed = !config.keys.is_none();
    let specimen = Specimen::with(config, if is_sealed { 14 } else { 16 }, 300);
    let segments: Vec<_> = specimen.files.iter().filter(|(path, _)| names_segment(path)).collect();
    assert_eq!(segments.len(), 3, "two are written to, one is made ahead");
    let (path, contents) = segments[segment];
    let (mut found, mut harmless) = (0, 0);
    for (offset, around) in contents.windows(32).enumerate() {
        let is_header = offset < 4096 && offset % 2048 < 224;
        if !is_header && around.iter().all(|byte| *byte == 0) && offset % 13 != 0 {
            continue;
        }
        let problems = specimen.sim.run_until(specimen.with_flipped_bit(path, offset as u64));
        for problem in &problems {
            assert!(names(problem, path), "{problem}");
        }
        *(if problems.is_empty() { &mut harmless } else { &mut found }) += 1;
    }
    println!("{found} found, {harmless} harmless");
    assert!(found >= least_found && harmless > 100, "{found} found, {harmless} harmless");
}

#[test]
fn a_bit_turned_over_in_a_full_segment_is_harmless_or_found_and_named() {
    flip_through(config(), 0, 2 * 128 + 8 * SPAN);
}

#[test]
fn a_bit_turned_over_in_the_last_segment_is_harmless_or_found_and_named() {
    flip_through(config(), 1, 2 * 128 + 5 * SPAN);
}

#[test]
fn a_bit_turned_over_in_an_empty_segment_is_harmless_or_found_and_named() {
    flip_through(config(), 2, 2 * 128);
}

#[test]
fn a_bit_turned_over_in_a_sealed_segment_is_harmless_or_found_and_named() {
    flip_through(sealed(), 0, 2 * 224 + 8 * SPAN);
    flip_through(sealed(), 2, 2 * 224);
}

fn names_segment(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("segment-"))
}

#[test]
fn salvage_goes_past_damage_and_tells_what_is_missing() {
    let specimen = Specimen::new(60, 300);
    let (path, _) = specimen.files[1].clone();
    specimen.sim.run_until(async {
        // Two bodies in the second segment, not next to each other.
        specimen.flip(&path, 4096 + 1000, 4).await;
        specimen.flip(&path, 4096 + 2500, 4).await;
        let (report, opened) = specimen.examine().await;
        assert_eq!(Error::from(opened.unwrap_err()), Error::file_corrupt());
        assert_eq!(report.problems.len(), 2, "{:?}", report.problems);

        let (entries, problems) = salvage(&specimen.env).await;
        assert_eq!(problems, report.problems);
        assert_eq!(entries.len(), 58);
        let kept: BTreeSet<_> = entries.iter().map(|entry| entry.index).collect();
        assert!(entries.iter().all(|entry| specimen.entries.contains(entry)));
        assert!(kept.contains(&2) && kept.contains(&61));
    });
}

async fn salvage(env: &Env) -> (Vec<Entry>, Vec<plinth_log::Corruption>) {
    let (mut entries, mut problems) = (Vec::new(), Vec::new());
    let mut salvage = Salvage::open(env, DIR, &config().keys).await.unwrap();
    assert!(salvage.identity().is_some());
    while let Some(met) = salvage.next().await.unwrap() {
        match met {
            Salvaged::Entry(entry) if entry.kind == EntryKind::Mutations => entries.push(entry),
            Salvaged::Entry(_) => {}
            Salvaged::Problem(problem) => problems.push(problem),
        }
    }
    (entries, problems)
}

#[test]
fn a_missing_segment_is_named_and_the_others_can_be_salvaged() {
    let specimen = Specimen::new(100, 300);
    let segments: Vec<_> = specimen.files.iter().filter(|(path, _)| names_segment(path)).collect();
    // The last one may be empty, made ahead of need; without it nothing is missing.
    for (missing, _) in &segments[..segments.len() - 1] {
        specimen.sim.run_until(async {
            specimen.restore().await;
            specimen.env.files().remove(missing).await.unwrap();
            let (report, opened) = specimen.examine().await;
            let error = opened.unwrap_err();
            assert_eq!(Error::from(&error), Error::file_corrupt());
            assert!(names(&error.to_string(), missing), "{error}");
            assert!(report.problems.iter().any(|problem| names(&problem.to_string(), missing)));
            let (entries, problems) = salvage(&specimen.env).await;
            assert_eq!(problems, report.problems);
            assert!(entries.len() < 100 && entries.len() >= 85);
            assert!(entries.iter().all(|entry| specimen.entries.contains(entry)));
        });
    }
}

/// The segment made ahead behind it was blamed: it has no first record.
#[test]
fn the_only_segment_with_records_is_named_when_it_is_gone() {
    let specimen = Specimen::new(3, 300);
    let segments: Vec<_> = specimen.files.iter().filter(|(path, _)| names_segment(path)).collect();
    assert_eq!(segments.len(), 2, "one with records, and one made ahead");
    let missing = &segments[0].0;
    specimen.sim.run_until(async {
        specimen.restore().await;
        specimen.env.files().remove(missing).await.unwrap();
        let (report, opened) = specimen.examine().await;
        let error = opened.unwrap_err().to_string();
        assert!(names(&error, missing) && error.contains("a segment file is missing"), "{error}");
        assert!(names(&report.problems[0].to_string(), missing), "{:?}", report.problems);
    });
}

#[test]
fn a_file_cut_short_is_named() {
    let specimen = Specimen::new(60, 300);
    for (path, contents) in specimen.files.iter().filter(|(path, _)| names_segment(path)) {
        for len in [0, 100, 4096, 5000, contents.len() as u64 - 1] {
            specimen.sim.run_until(async {
                specimen.restore().await;
                let file = specimen.env.files().open(path, Open::Write).await.unwrap();
                file.set_len(len).await.unwrap();
                let (report, opened) = specimen.examine().await;
                let error = opened.unwrap_err();
                assert_eq!(Error::from(&error), Error::file_corrupt(), "{len}");
                assert!(names(&error.to_string(), path), "{error}");
                assert!(!report.problems.is_empty());
                let (entries, _) = salvage(&specimen.env).await;
                assert!(entries.iter().all(|entry| specimen.entries.contains(entry)));
                assert!(entries.len() >= 40);
            });
        }
    }
}

#[test]
fn damage_behind_a_running_log_is_not_served() {
    let sim = Simulation::new(4);
    let env = sim.process("node");
    sim.run_until(async {
        let mut log = create_leased(&env, config()).await;
        for version in 1..10 {
            commit(&mut log, version, &body(version, 300)).await;
        }
        let path = Path::new(DIR).join("segment-0000000000000001.log");
        let file = env.files().open(&path, Open::Write).await.unwrap();
        file.write_all_at(4096 + 1500, b"damage").await.unwrap();
        let mut reader = log.reader(0);
        let error = loop {
            match reader.next().await {
                Ok(entry) => {
                    assert_eq!(
                        &body(entry.as_ref().unwrap().version, 300)[..],
                        &entry.unwrap().body[..]
                    )
                }
                Err(error) => break error,
            }
        };
        assert_eq!(Error::from(&error), Error::file_corrupt());
        assert!(names(&error.to_string(), &path), "{error}");
        close_quietly(log).await;
    });
}

/// Bytes of the entry that is torn: several blocks.
const TORN: usize = 9000;

/// Writes three entries, the last of which is not synced, and lets the power fail with all bytes on
/// the disk.
fn crashed(sim: &Simulation, mark: bool) -> (Env, PathBuf) {
    let env = sim.process("node");
    sim.run_until(async {
        let mut log = create_leased(&env, small(65_536, 65_536)).await;
        for version in 1..=2 {
            commit(&mut log, version, &body(version, 200)).await;
        }
        let position = log.append(3, &[&body(3, TORN)]).await.unwrap();
        if mark {
            log.syncer().sync(position).await.unwrap();
            log.mark_durable().await.unwrap();
        }
    });
    sim.crash_with(&env, Unsynced::Kept);
    (sim.restart(&env), Path::new(DIR).join("segment-0000000000000001.log"))
}

/// Where the last entry's body is, and where it begins to be torn in these tests.
async fn last_body(env: &Env, path: &Path) -> u64 {
    let contents = env.files().read(path).await.unwrap();
    let body = body(3, TORN);
    contents.windows(TORN).position(|window| window == body).unwrap() as u64
}

#[test]
fn a_torn_tail_is_cut_and_overwritten() {
    let sim = Simulation::new(5);
    let (env, path) = crashed(&sim, false);
    let cut = sim.run_until(async {
        let at = last_body(&env, &path).await;
        let file = env.files().open(&path, Open::Write).await.unwrap();
        file.write_all_at(at + 100, &[0; 100]).await.unwrap();
        let (log, recovery) = open(&env, small(65_536, 65_536)).await.unwrap();
        assert_eq!(
            (recovery.last_index, recovery.last_version, recovery.known_committed),
            (3, 2, 1)
        );
        let cut = recovery.cut_tail.unwrap();
        assert_eq!((cut.file.as_str(), cut.offset), (path.to_str().unwrap(), at - HEAD));
        assert!(cut.bytes >= HEAD + TORN as u64 - 1 && cut.reason.contains("body"), "{cut:?}");
        assert_eq!(read(&log, 0).await.unwrap().len(), 2);
        at
    });
    // The record of the new epoch is shorter than what was cut: the rest of that is zeros, durably.
    sim.crash_with(&env, Unsynced::Lost);
    let env = sim.restart(&env);
    sim.run_until(async {
        let contents = env.files().read(&path).await.unwrap();
        assert!(contents[cut as usize + 100..].iter().all(|byte| *byte == 0));
        let (_, recovery) = open(&env, small(65_536, 65_536)).await.unwrap();
        assert_eq!((recovery.term, recovery.last_index, recovery.cut_tail), (3, 3, None));
    });
}

/// It was told of the segment before, which is as it should be.
#[test]
fn a_byte_in_a_segment_that_is_not_begun_is_told_of_that_segment() {
    let begins = |contents: &[u8]| contents[4096..].iter().any(|byte| *byte != 0);
    let is_segment = |path: &Path| path.to_string_lossy().contains("segment-");
    let specimen = (4..40).map(|entries| Specimen::new(entries, 300)).find_map(|specimen| {
        let (path, contents) = specimen.files.iter().rfind(|(path, _)| is_segment(path))?.clone();
        (!begins(&contents)).then_some((specimen, path))
    });
    let (specimen, path) = specimen.expect("of so many one has its next segment made ahead");
    specimen.sim.run_until(async {
        specimen.flip(&path, 5000, 1).await;
        let report = verify(&specimen.env, DIR, &specimen.config.keys).await.unwrap();
        let (log, recovery) = open(&specimen.env, specimen.config.clone()).await.unwrap();
        for tail in [report.torn_tail.unwrap(), recovery.cut_tail.unwrap()] {
            assert_eq!((tail.file.as_str(), tail.offset), (path.to_str().unwrap(), 4096));
            assert!(tail.bytes == 905 && tail.reason.contains("zeros"), "{tail:?}");
        }
        assert_eq!(read(&log, 0).await.unwrap(), specimen.entries);
        close_quietly(log).await;
    });
}

#[test]
fn the_same_tear_in_an_idle_log_is_damage() {
    let sim = Simulation::new(6);
    let (env, path) = crashed(&sim, true);
    sim.run_until(async {
        let at = last_body(&env, &path).await;
        let file = env.files().open(&path, Open::Write).await.unwrap();
        file.write_all_at(at + 100, &[0; 100]).await.unwrap();
        let before = env.files().read(&path).await.unwrap();
        let error = open(&env, small(65_536, 65_536)).await.unwrap_err();
        assert_eq!(Error::from(&error), Error::file_corrupt());
        assert!(error.to_string().contains(&format!("offset {}", at - HEAD)), "{error}");
        assert_eq!(
            env.files().read(&path).await.unwrap(),
            before,
            "a start that stops changes nothing"
        );
    });
}

/// A log from before the first release is no damage, and nothing is done to it.
#[test]
fn a_log_of_another_format_is_refused_in_words() {
    let specimen = Specimen::new(3, 300);
    let (path, contents) = specimen.files.iter().find(|(path, _)| names_segment(path)).unwrap();
    for (format, remedy) in
        [(1, "copy its data with the program that wrote it"), (4, "with a newer Plinth")]
    {
        specimen.sim.run_until(async {
            specimen.restore().await;
            let file = specimen.env.files().open(path, Open::Write).await.unwrap();
            for copy in [0, 2048] {
                let mut header = contents[copy..copy + 128].to_vec();
                header[8] = format;
                let checksum = crc32c::crc32c(&header[..124]);
                header[124..].copy_from_slice(&checksum.to_le_bytes());
                file.write_all_at(copy as u64, &header).await.unwrap();
            }
            let before = specimen.env.files().read(path).await.unwrap();
            for error in [
                open(&specimen.env, config()).await.err(),
                verify(&specimen.env, DIR, &config().keys).await.err(),
            ] {
                let error = error.expect("a refusal");
                assert_eq!(Error::from(&error), Error::unsupported_operation());
                let told = error.to_string();
                assert!(
                    told.contains(&format!("has log format {format}")) && told.contains(remedy),
                    "{told}"
                );
            }
            assert_eq!(specimen.env.files().read(path).await.unwrap(), before);
        });
    }
}
