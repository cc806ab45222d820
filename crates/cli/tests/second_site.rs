//! `plinth dr` with a first that is reached through FoundationDB's C library, by its change data
//! capture: ours, loaded as Apple's would be.
//!
//! The first takes writes all the time, agents are killed, and in the end the second takes its
//! place: whatever was acknowledged to the writer is there, and nothing else.

use plinth::{Database, RangeOptions};
use plinth_env::{Env, TemporaryDir, block_on};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
    command.stdin(Stdio::null());
    command
}

/// A process that ends with the test.
struct Process(Child);

impl Process {
    /// Starts a server; gives its cluster file, too.
    fn server(place: &TemporaryDir, name: &str) -> (Self, String) {
        let dir = place.path().join(name);
        let arguments = ["server", "--listen", "127.0.0.1:0", "--dir"];
        let mut child = program().args(arguments).arg(dir).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready"), "{line}");
        (Self(child), line.split_whitespace().last().unwrap().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A cluster file argument by our own library.
fn by_library(cluster_file: &str) -> String {
    let test = std::env::current_exe().unwrap();
    let name = format!("{}fdb_c{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    format!("fdb:{cluster_file}?lib={}", test.parent().unwrap().join(name).display())
}

/// Two servers, of which the first is reached through the C library.
struct Sites {
    _servers: [Process; 2],
    _place: TemporaryDir,
    from: String,
    to: String,
    here: Database,
    there: Database,
}

impl Sites {
    fn new() -> Self {
        let place = block_on(Env::real().files().temporary_dir("plinth-cli-second-site")).unwrap();
        let (first, from) = Process::server(&place, "first");
        let (second, to) = Process::server(&place, "second");
        let (here, there) = (Database::connect(&from).unwrap(), Database::connect(&to).unwrap());
        Self { _servers: [first, second], _place: place, from: by_library(&from), to, here, there }
    }

    fn command(&self, name: &str, more: &[&str]) -> Command {
        let mut command = program();
        command.args(["dr", name, "--from", &self.from, "--to", &self.to]).args(more);
        command
    }

    /// Runs a command; gives its exit code and what it said.
    fn run(&self, name: &str, more: &[&str]) -> (Option<i32>, String) {
        let output = self.command(name, more).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }

    fn agent(&self) -> Process {
        Process(
            self.command("agent", &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(),
        )
    }

    fn status(&self) -> serde_json::Value {
        let (code, json) = self.run("status", &["--json"]);
        assert_eq!(code, Some(0), "{json}");
        serde_json::from_str(&json).unwrap_or_else(|_| panic!("{json}"))
    }
}

fn rows(db: &Database) -> Vec<plinth::KeyValue> {
    let tr = db.create_transaction();
    tr.set_option(plinth::client::TransactionOption::LockAware).unwrap();
    tr.range(RangeOptions::from("".."\u{7f}")).collect_blocking().unwrap()
}

fn put(db: &Database, key: &str) {
    let tr = db.create_transaction();
    tr.set(key, "1");
    tr.commit().wait().unwrap();
}

/// Adds to counters, sets and clears, until it is told that the database is locked. Gives what was
/// acknowledged.
fn write_until_locked(db: &Database, stop: &AtomicBool) -> u64 {
    for count in 0.. {
        let tr = db.create_transaction();
        tr.add("counter", 1_u64.to_le_bytes());
        tr.set(format!("row/{:04}", count % 997), count.to_string());
        tr.clear_range(format!("row/{:04}", count % 89), format!("row/{:04}", count % 89 + 3));
        match tr.commit().wait() {
            Ok(()) => {}
            Err(error) if error == plinth::Error::database_locked() => return count,
            Err(error) => panic!("{error}"),
        }
        assert!(!stop.load(Ordering::Relaxed), "it was never locked");
    }
    0
}

#[test]
fn a_second_site_follows_what_the_c_library_reaches_and_takes_its_place() {
    let sites = Sites::new();
    for chunk in 0..10 {
        sites
            .here
            .transact_blocking(|tr| {
                (0..500).for_each(|n| tr.set(format!("old/{chunk}/{n:04}"), vec![b'x'; 1000]));
                Ok(())
            })
            .unwrap();
    }
    let stop = AtomicBool::new(false);
    let (code, said) = sites.run("start", &["--no-agent"]);
    assert!(code == Some(0) && said.contains("begins"), "{said}");
    let counted = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until_locked(&sites.here, &stop));
        // Killed at some moment of the first copy, and of following.
        for time in [300, 700, 1500] {
            let _agent = sites.agent();
            block_on(Env::real().sleep(Duration::from_millis(time)));
        }
        let _agent = sites.agent();
        let (code, said) = sites.run("wait", &[]);
        assert!(code == Some(0) && said.contains("is whole at version"), "{said}");
        let shown = sites.status();
        assert!(shown["state"] == "following" && shown["first"]["reached"] == true, "{shown}");
        assert!(shown["lag"]["seconds"].is_f64() && shown["lag"]["versions"].is_i64(), "{shown}");
        let (code, said) = sites.run("switch", &[]);
        assert!(
            code == Some(0) && said.contains("takes writes now") && said.contains("unlock"),
            "{said}"
        );
        let counted = writer.join();
        stop.store(true, Ordering::Relaxed);
        counted.unwrap()
    });
    let sum = counted.to_le_bytes();
    let (first, second) = (rows(&sites.here), rows(&sites.there));
    assert!(
        second.iter().any(|row| row.key[..] == *b"counter" && row.value[..] == sum),
        "{counted}"
    );
    assert!(first == second, "{} rows, {} there", first.len(), second.len());
    assert!(counted > 100 && second.len() > 5000, "{counted} {}", second.len());
    // The second is free, the first is not, and keeps no stream.
    put(&sites.there, "row/on");
    assert!(sites.here.list_changes().wait().unwrap().is_empty());
    let (code, said) = sites.run("status", &[]);
    assert!(code == Some(0) && said.contains("neither database follows"), "{said}");
}

#[test]
fn an_end_leaves_nothing_at_the_first_also_after_the_second_was_freed_alone() {
    let sites = Sites::new();
    put(&sites.here, "a");
    for dstonly in [false, true] {
        let (code, said) = sites.run("start", &["--no-agent", "--clear"]);
        assert_eq!(code, Some(0), "{said}");
        let agent = sites.agent();
        let (code, said) = sites.run("wait", &[]);
        assert_eq!(code, Some(0), "{said}");
        drop(agent);
        assert_eq!(sites.here.list_changes().wait().unwrap().len(), 1);
        if dstonly {
            let output =
                program().args(["dr", "abort", "--dstonly", "--to", &sites.to]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        let (code, said) = sites.run("abort", &[]);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(rows(&sites.here), rows(&sites.there));
        assert!(sites.here.list_changes().wait().unwrap().is_empty());
        for db in [&sites.here, &sites.there] {
            put(db, "free");
        }
    }
    // Nobody else can follow.
    let output =
        program().args(["dr", "start", "--from", &sites.to, "--to", &sites.from]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("can't follow"), "{said}");
}
