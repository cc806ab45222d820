//! `cargo xtask test`: every test there is, and one line at the end that adds them up.
//!
//! The workspace's tests and doctests run in the profile `checked` (optimised, with debug
//! assertions and overflow checks), because simulation and model tests spend their time computing.
//! Then come suites of other programs. Those of the bindings are each folder of `tests/bindings/`
//! with an executable `run`, which installs what it needs, prints what cargo's tests print (`test
//! result: ok. 3 passed; 0 failed; 0 ignored`), and ends with status 77 and a last line that says
//! why when it can't run on this machine. Those that any database will do for run a second time,
//! against a server; what depends on the engine once more with `ssd`. By the same rules run
//! packages, the suite of programs which send time series and read them, the console's, in a
//! browser, that of the alert rules, that of backups to an object store, and the examples. Two
//! suites run at a time; each line that one prints begins with its name.
//!
//! A suite that fails without having counted a failure (it didn't build, it was killed) counts as
//! one failed test, so that the sum never looks better than the run was. The last lines say how
//! long each command took, and name the tests that failed and where; of what broke off they have
//! the last words.

mod lanes;

use crate::{Result, cargo};
use lanes::Job;
use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// By which a binding suite says that it can't run here.
const SKIPPED_STATUS: i32 = 77;

/// The suites that also run against a server; `tests/bindings/library.sh` starts it.
const ON_A_SERVER: [&str; 7] = ["go", "java", "node", "openland", "python", "record-layer", "rust"];

/// Variables of the environment, and their values.
type Settings = &'static [(&'static str, &'static str)];

/// What of the binding suites runs with the engine `ssd` besides, in a directory and on a server,
/// with which settings.
const WITH_SSD: [(&str, &str, Settings); 3] = [
    ("python", "pinned", &[("PLINTH_FDB_PYTHON", "8.0.0")]),
    ("java", "pinned", &[("PLINTH_FDB_JAVA", "7.4.1")]),
    ("go", "Pinned", &[]),
];

/// Binding suites that run on a cluster of three servers besides: what of them, with which
/// settings. While servers are killed each test is in a loop of retries.
const ON_A_CLUSTER: [(&str, &[&str], Settings); 8] = [
    ("c", &["threads_that_block"], &[]),
    ("java", &[], &[("PLINTH_FDB_JAVA", "7.4.1")]),
    ("record-layer", &[], &[]),
    ("node", &[], &[("PLINTH_KILL_SECONDS", "2")]),
    ("python", &[], &[("PLINTH_FDB_PYTHON", "7.3.79"), ("PLINTH_ALL", "1")]),
    ("go", &[], &[]),
    (
        "python",
        &[],
        &[("PLINTH_FDB_PYTHON", "8.0.0"), ("PLINTH_ALL", "1"), ("PLINTH_KILL_SECONDS", "2")],
    ),
    ("go", &[], &[("PLINTH_KILL_SECONDS", "2")]),
];

/// So many of the last lines of what broke off, or failed without a name that is known, are told
/// again at the end of the run.
const LAST_WORDS: usize = 7;

/// How many tests ended how.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// The suites of a run in the order in which they came.
#[derive(Default)]
struct Tally {
    suites: Vec<(String, Counts)>,
    /// The suite whose result comes next, once cargo has announced it.
    current: String,
    /// The crate whose unit tests cargo announced last: those in its folder `tests` come behind
    /// them.
    of_crate: String,
    /// The tests that failed since the last result, and what they said; then those of the whole
    /// run.
    failing: Vec<String>,
    failures: Vec<String>,
    /// Where the panic of a test that failed was; its message is the next line.
    panicked: Option<String>,
    /// The last lines that weren't empty.
    last_words: VecDeque<String>,
    /// How long each command took.
    took: Vec<(String, Duration)>,
    /// When cargo announced the first tests: everything is built by then.
    announced_after: Option<Duration>,
}

impl Tally {
    /// Takes in one line of a test run's output.
    fn read(&mut self, line: &str) {
        if !line.trim().is_empty() {
            self.last_words.truncate(LAST_WORDS - 1);
            self.last_words.push_front(line.trim().to_string());
        }
        if let Some(announced) = announced(line) {
            self.current = match announced {
                Announced::Crate(name) => {
                    self.of_crate = name;
                    self.of_crate.clone()
                }
                Announced::File(path) => format!("{}, {path}", self.of_crate),
                Announced::Doctests(name) => format!("{name}, doctests"),
            };
        } else if let Some(counts) = result(line) {
            let name = std::mem::take(&mut self.current);
            // A test that passes may have had a thread panic.
            let mut failing = std::mem::take(&mut self.failing);
            if counts.failed > 0 {
                if failing.is_empty() {
                    // However it names them, it does so before it counts them.
                    failing.extend(self.last_words.drain(..).skip(1).rev());
                }
                self.failures.extend(failing.iter().map(|failure| format!("{name}: {failure}")));
            }
            self.suites.push((name, counts));
        } else {
            self.read_failure(line);
        }
    }

    /// Notes a test that failed, as cargo, pytest and the other runners name it, and where a panic
    /// was.
    fn read_failure(&mut self, line: &str) {
        if let Some(place) = self.panicked.take() {
            self.failing.push(format!("{place} {line}"));
        } else if let Some(name) = failed_test(line) {
            self.failing.push(name.to_string());
        } else if line.starts_with("thread '") && line.contains(" panicked at ") {
            self.panicked = Some(line.to_string());
        }
    }

    /// Notes how a whole command ended. `before` is how many suites there were when it began.
    fn ended(&mut self, name: &str, success: bool, before: usize) {
        let counted = self.suites[before..].iter().any(|(_, counts)| counts.failed > 0);
        if !success && !counted {
            let note = format!("{name}: ended before it had counted its tests");
            self.failures.push(note.clone());
            let said = self.failing.drain(..).chain(self.last_words.drain(..).rev());
            self.failures.extend(said.map(|line| format!("{name}: {line}")));
            self.suites.push((note, Counts { failed: 1, ..Counts::default() }));
        }
        self.last_words.clear();
    }

    /// Takes in what another one has counted.
    fn add(&mut self, other: Self) {
        self.suites.extend(other.suites);
        self.failures.extend(other.failures);
        self.took.extend(other.took);
    }

    fn sum(&self) -> Counts {
        let mut sum = Counts::default();
        self.suites.iter().for_each(|(_, counts)| sum.add(*counts));
        sum
    }

    fn print(&self) {
        println!("\ntests run:");
        for (name, counts) in self.suites.iter().filter(|(_, counts)| *counts != Counts::default())
        {
            println!("  {name}: {counts}");
        }
        println!("took:");
        let mut took: Vec<_> = self.took.iter().collect();
        // What took longest stands last: of a long output the end is what is looked at.
        took.sort_by_key(|(_, time)| *time);
        for (name, time) in took {
            println!("  {:5.0} s  {name}", time.as_secs_f64());
        }
        if !self.failures.is_empty() {
            println!("what failed:");
            for failure in &self.failures {
                println!("  {failure}");
            }
        }
        println!("{}", self.sum());
    }
}

/// Runs everything but what `--skip NAME=REASON` names; other arguments go to cargo's tests as
/// filters.
pub fn run(arguments: &[&str]) -> Result<bool> {
    let Arguments { skips, filters } = parse(arguments)?;
    let mut tally = Tally::default();
    let mut command = cargo::command();
    command
        .args(["test", "--workspace", "--all-features", "--profile", "checked", "--no-fail-fast"])
        .args(&filters);
    watch(&mut tally, "cargo test", "", command)?;
    if let Some(built) = tally.announced_after {
        tally.took.insert(0, ("cargo test, until all was built".into(), built));
    }
    if filters.is_empty() {
        let ran = lanes::run(jobs()?, |job| {
            let mut tally = Tally::default();
            run_job(&mut tally, job, &skips).map(|()| tally)
        });
        for suite in ran {
            tally.add(suite?);
        }
    }
    tally.print();
    Ok(tally.sum().failed == 0)
}

/// The suites that aren't cargo's. Those that have to wait for each other begin first.
fn jobs() -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    for name in ["packages", "sources", "console", "alerts", "backup", "examples"] {
        let command = Command::new(Path::new("tests").join(name).join("run"));
        jobs.push(Job { name: name.into(), label: name.into(), command });
    }
    let binding = |name: &str| Command::new(Path::new("tests/bindings").join(name).join("run"));
    for name in suites()? {
        let label = format!("bindings/{name}");
        jobs.push(Job { name: name.clone(), label, command: binding(&name) });
        if ON_A_SERVER.contains(&name.as_str()) {
            let (label, mut command) = (format!("bindings/{name}, on a server"), binding(&name));
            command.env("PLINTH_TARGET", "server");
            jobs.push(Job { name, label, command });
        }
    }
    for (name, only, settings) in WITH_SSD {
        for (target, place) in [("new", "in a directory"), ("server", "on a server")] {
            let (label, mut command) = (format!("bindings/{name}, ssd {place}"), binding(name));
            command.arg(only).env("PLINTH_TARGET", target).env("PLINTH_ENGINE", "ssd");
            command.envs(settings.iter().copied());
            jobs.push(Job { name: name.into(), label, command });
        }
    }
    for (name, only, settings) in ON_A_CLUSTER {
        let (label, mut command) = (format!("bindings/{name}, on a cluster"), binding(name));
        command.args(only).env("PLINTH_TARGET", "cluster").envs(settings.iter().copied());
        jobs.push(Job { name: name.into(), label, command });
    }
    Ok(jobs)
}

/// What the command line asks for.
#[derive(Default, Debug, PartialEq, Eq)]
struct Arguments<'a> {
    /// Binding suites to leave out, with the reason.
    skips: Vec<(&'a str, &'a str)>,
    /// For cargo's tests.
    filters: Vec<&'a str>,
}

fn parse<'a>(arguments: &[&'a str]) -> Result<Arguments<'a>> {
    let mut parsed = Arguments::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if *argument == "--skip" {
            let skip = rest
                .next()
                .and_then(|value| value.split_once('='))
                .filter(|(_, reason)| !reason.is_empty());
            parsed.skips.push(skip.ok_or("--skip wants NAME=REASON")?);
        } else {
            parsed.filters.push(*argument);
        }
    }
    Ok(parsed)
}

/// The names of the binding suites.
fn suites() -> Result<Vec<String>> {
    let Ok(entries) = std::fs::read_dir("tests/bindings") else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| format!("list tests/bindings: {e}"))?;
        if entry.path().join("run").is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Runs a suite, unless its name is among the skips, and counts it under its label.
fn run_job(tally: &mut Tally, job: Job, skips: &[(&str, &str)]) -> Result<()> {
    let Job { name, label, command } = job;
    let skipped = Counts { skipped: 1, ..Counts::default() };
    if let Some((_, reason)) = skips.iter().find(|(skip, _)| *skip == name) {
        tally.suites.push((format!("{label}, left out: {reason}"), skipped));
        return Ok(());
    }
    // A suite may count several times, once for each version of a package: all of them have its
    // name.
    let (status, last) = watch(tally, &label, &format!("{label}: "), command)?;
    for (suite, _) in &mut tally.suites {
        label.clone_into(suite);
    }
    if status == Some(SKIPPED_STATUS) {
        tally.suites.push((format!("{label}, left out: {last}"), skipped));
    }
    Ok(())
}

/// Runs a command, passing on and counting what it prints, each line behind `prefix`; gives back
/// its status and its last line.
fn watch(
    tally: &mut Tally,
    name: &str,
    prefix: &str,
    mut command: Command,
) -> Result<(Option<i32>, String)> {
    let failed = |e: std::io::Error| format!("run {name}: {e}");
    let before = tally.suites.len();
    let began = Instant::now();
    cargo::forget_package(&mut command);
    // One pipe for both outputs: cargo names a suite on one of them and its results come on the
    // other.
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    command.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
    let mut child = command.spawn().map_err(failed)?;
    drop(command); // with our own ends of the pipe, so that reading ends when the child does
    let mut last = String::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = String::from_utf8_lossy(&line.map_err(failed)?).into_owned();
        println!("{prefix}{line}");
        if announced(&line).is_some() {
            tally.announced_after.get_or_insert_with(|| began.elapsed());
        }
        tally.read(&line);
        last = line;
    }
    tally.took.push((name.to_string(), began.elapsed()));
    let status = child.wait().map_err(failed)?;
    tally.ended(name, status.success() || status.code() == Some(SKIPPED_STATUS), before);
    Ok((status.code(), last))
}

/// The name of the test that a line says has failed: `test kill::twice ... FAILED`,
/// `FAILED test_kv.py::test_get - ...`.
fn failed_test(line: &str) -> Option<&str> {
    let cargo = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"));
    cargo.or_else(|| line.strip_prefix("FAILED "))
}

/// What cargo says it runs next.
enum Announced {
    /// The unit tests of a library or a program, by its name.
    Crate(String),
    /// A file of tests, by its path in the crate.
    File(String),
    /// The examples in a library's documentation.
    Doctests(String),
}

/// Reads `Running unittests src/lib.rs (.../plinth_log-0123)`, `Running tests/faults.rs (...)` and
/// `Doc-tests plinth_log`.
fn announced(line: &str) -> Option<Announced> {
    let line = line.trim_start();
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(Announced::Doctests(name.to_string()));
    }
    let (target, binary) = line.strip_prefix("Running ")?.split_once(" (")?;
    let Some(root) = target.strip_prefix("unittests ") else {
        return Some(Announced::File(target.to_string()));
    };
    let file = Path::new(binary.trim_end_matches(')')).file_name()?.to_string_lossy().into_owned();
    let name = file.rsplit_once('-').map_or(file.as_str(), |(name, _)| name);
    let program = if root == "src/lib.rs" { "" } else { ", the program" };
    Some(Announced::Crate(format!("{name}{program}")))
}

/// The counts of a line `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
fn result(line: &str) -> Option<Counts> {
    let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut counts = Counts::default();
    for part in numbers.split(';') {
        match part.trim().split_once(' ') {
            Some((number, "passed")) => counts.passed = number.parse().ok()?,
            Some((number, "failed")) => counts.failed = number.parse().ok()?,
            Some((number, "ignored")) => counts.skipped = number.parse().ok()?,
            _ => {}
        }
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
   Compiling plinth-types v0.1.0
     Running unittests src/lib.rs (target/checked/deps/plinth_types-2f0a)
running 2 tests
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running tests/crash.rs (target/checked/deps/crash-77)
test torn::tail ... FAILED
thread 'torn::tail' (7) panicked at crates/types/tests/crash.rs:9:5:
three records were there
test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.00s
   Doc-tests plinth_types
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

    fn tally(output: &str) -> Tally {
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.read(line));
        tally
    }

    #[test]
    fn results_are_added_up_by_suite() {
        let tally = tally(OUTPUT);
        let shown: Vec<String> =
            tally.suites.iter().map(|(name, counts)| format!("{name}: {counts}")).collect();
        let expected = [
            "plinth_types: 2 passed, 0 failed, 0 skipped",
            "plinth_types, tests/crash.rs: 3 passed, 1 failed, 1 skipped",
            "plinth_types, doctests: 1 passed, 0 failed, 0 skipped",
        ];
        assert_eq!(shown, expected);
        assert_eq!(tally.sum().to_string(), "6 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn the_tests_that_failed_are_named() {
        let mut tally = tally(OUTPUT);
        let of = "plinth_types, tests/crash.rs";
        let panic = "thread 'torn::tail' (7) panicked at crates/types/tests/crash.rs:9:5: three records were there";
        assert_eq!(tally.failures, [format!("{of}: torn::tail"), format!("{of}: {panic}")]);
        for line in [
            "FAILED test_kv.py::test_get - assert 1 == 2",
            "test result: FAILED. 0 passed; 1 failed; 0 ignored",
        ] {
            tally.read(line);
        }
        assert_eq!(tally.failures.last().unwrap(), ": test_kv.py::test_get - assert 1 == 2");
        for line in ["--- FAIL: TestGet (0.1s)", "", "test result: FAILED. 0 passed; 1 failed;"] {
            tally.read(line);
        }
        assert_eq!(tally.failures.last().unwrap(), ": --- FAIL: TestGet (0.1s)");
    }

    #[test]
    fn a_run_that_breaks_off_counts_as_failed() {
        let mut broken = tally("error: could not compile\n\nBuild failed");
        broken.ended("cargo test", false, 0);
        assert_eq!(broken.sum().failed, 1);
        let note = "cargo test: ended before it had counted its tests";
        let words = ["cargo test: error: could not compile", "cargo test: Build failed"];
        assert_eq!(broken.failures, [note, words[0], words[1]]);
        let mut counted = tally(OUTPUT);
        counted.ended("cargo test", false, 0);
        assert_eq!(counted.sum().failed, 1);
        counted.ended("bindings/python", false, 3);
        assert_eq!(counted.sum().failed, 2);
        counted.ended("bindings/go", true, 4);
        assert_eq!(counted.sum().failed, 2);
    }

    #[test]
    fn a_command_is_watched_to_its_end() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let mut tally = Tally::default();
        let passing = shell("echo 'test result: ok. 4 passed; 0 failed; 0 ignored'; echo last >&2");
        assert_eq!(watch(&mut tally, "passing", "", passing), Ok((Some(0), "last".to_string())));
        assert_eq!(
            watch(&mut tally, "skipped", "", shell("echo no python; exit 77")),
            Ok((Some(77), "no python".into()))
        );
        assert_eq!(tally.sum(), Counts { passed: 4, failed: 0, skipped: 0 });
        assert_eq!(watch(&mut tally, "killed", "", shell("kill -9 $$")), Ok((None, String::new())));
        assert_eq!(tally.sum(), Counts { passed: 4, failed: 1, skipped: 0 });
    }

    #[test]
    fn a_skip_has_a_reason() {
        let skip = ("python", "no interpreter");
        assert_eq!(
            parse(&["--skip", "python=no interpreter", "cycle"]),
            Ok(Arguments { skips: vec![skip], filters: vec!["cycle"] })
        );
        assert!(parse(&["--skip", "python"]).is_err());
        assert!(parse(&["--skip", "python="]).is_err());
    }
}
