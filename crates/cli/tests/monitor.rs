//! `plinth status`, `plinth top` and `PLINTH_LOG` as their users meet them: over a directory, over
//! a server and through FoundationDB's C library.
//!
//! Each is run as a program. What it says of the database is what the database says of itself, so
//! it is right if the words are there, and the figures are those of what was just done.

mod common;

use common::{Running, scratch};
use plinth::{Database, Local};
use plinth_bench::Value;
use plinth_env::{Env, TemporaryDir, block_on};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn run(arguments: &[&str], log: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
    command.args(arguments).env("PLINTH_LOG", log).stdin(Stdio::null()).output().unwrap()
}

fn filled() -> (TemporaryDir, String) {
    let place = block_on(Env::real().files().temporary_dir("plinth-cli-monitor")).unwrap();
    let dir = place.path().join("data").display().to_string();
    let local = Local::open(&dir).unwrap();
    let db = local.database();
    db.transact_blocking(|tr| {
        tr.set("key", "value");
        Ok(())
    })
    .unwrap();
    local.close().unwrap();
    (place, dir)
}

#[test]
fn status_tells_in_words_and_in_json() {
    let (_place, dir) = filled();
    let output = run(&["status", &dir], "");
    let words = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{words}");
    assert!(words.contains("available") && words.contains("limited by   workload"), "{words}");
    let output = run(&["status", &dir, "--json"], "");
    let document: Value = String::from_utf8(output.stdout).unwrap().parse().unwrap();
    assert_eq!(document["cluster"]["database_available"], true);
    let output = run(&["status", "./nowhere"], "");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn top_looks_as_often_as_it_is_told() {
    let (_place, dir) = filled();
    let output = run(&["top", &dir, "--interval", "0.1", "--count", "2"], "");
    let pages = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{pages}");
    assert_eq!(pages.matches("conflicts").count(), 2, "{pages}");
}

/// Whoever wants to connect needs the file. `/status` named the directory that the server has.
#[test]
fn status_names_the_cluster_file_of_a_server_and_the_directory_of_a_database_in_one() {
    let (place, dir) = filled();
    let named = |arguments: &[&str], name: &str| {
        let output = run(arguments, "");
        let words = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {words}");
        let mut lines = words.lines().map(str::trim_start);
        let line = lines.find(|line| line.to_lowercase().starts_with("database ")).unwrap();
        let found = line.split_whitespace().nth(1).unwrap();
        assert_eq!(found, name, "{arguments:?}: {words}");
    };
    let in_json = |arguments: &[&str], name: &str| {
        let output = run(arguments, "");
        let document: Value = String::from_utf8(output.stdout).unwrap().parse().unwrap();
        assert_eq!(document["client"]["cluster_file"]["path"], *name, "{arguments:?}");
    };
    let all = |shell: &[&str], status: &str, name: &str| {
        let shell = |line: &'static str| [&["shell"], shell, &["--exec", line]].concat();
        named(&["status", status], name);
        named(&shell("status"), name);
        named(&shell("status details"), name);
        in_json(&["status", "--json", status], name);
        in_json(&shell("status json"), name);
    };
    all(&["--dir", &dir], &dir, &dir);

    let more = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let server = Running::start(dir.as_ref(), &more);
    let file = place.path().join("data/fdb.cluster").display().to_string();
    all(&["--cluster-file", &file], &file, &file);
    named(&["status", &dir], &file);
    let copy = place.path().join("copy.cluster");
    let line = block_on(Env::real().files().read(&file)).unwrap();
    block_on(Env::real().files().replace(&copy, &line)).unwrap();
    let copy = copy.display().to_string();
    all(&["--cluster-file", &copy], &copy, &copy);
    let library = std::path::Path::new(env!("CARGO_BIN_EXE_plinth")).with_file_name("deps");
    let library = library.join("libfdb_c.so");
    let store = format!("fdb:{copy}?lib={}", library.display());
    all(&["--cluster-file", &store], &store, &copy);
    // Where it is asked without a client.
    let address = server.ready.trim_end().rsplit_once("http://").unwrap().1.to_owned();
    let document: Value = get(&address, "/status").parse().unwrap();
    assert_eq!(document["client"]["cluster_file"]["path"], *file);
    assert_eq!(server.terminate(), Some(0));
}

/// What is answered over HTTP.
#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a program of others")]
fn get(address: &str, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    let answer = std::io::read_to_string(&mut stream).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// How many of something the line of this name tells.
fn told(words: &str, name: &str) -> f64 {
    let line = words.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default();
    let figure = line.trim_start()[name.len()..]
        .split_whitespace()
        .find(|word| word.starts_with(char::is_numeric));
    let digits: String =
        figure.unwrap_or("0").chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    digits.parse().unwrap_or_else(|_| panic!("{name} in {words}"))
}

#[test]
fn of_a_server_status_and_top_tell_what_its_clients_do_and_where_it_is() {
    let place = scratch();
    let server = Running::start(&place.path().join("data"), &["--listen", "127.0.0.1:0"]);
    let file = server.cluster_file().display().to_string();
    let db = Database::connect(&file).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let client = Env::real().spawn("client", {
        let stop = stop.clone();
        async move {
            while !stop.load(Ordering::Relaxed) {
                let read = db.transact_blocking(|tr| {
                    tr.set("written", "");
                    tr.get("read").wait()
                });
                read.unwrap();
            }
        }
    });
    let address = server.ready.split(' ').nth(1).unwrap().to_owned();
    let show = |arguments: &[&str]| {
        let output = run(arguments, "");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    // Rates are of the last moments: the first have to pass, and in others a busy disk may have let
    // nothing through.
    let shown = |arguments: &[&str], names: &[&str]| {
        let mut words = String::new();
        for _ in 0..120 {
            words = show(arguments);
            if names.iter().all(|name| told(&words, name) > 0.0) {
                return;
            }
            block_on(Env::real().sleep(Duration::from_millis(50)));
        }
        panic!("{names:?} in {words}");
    };
    shown(&["status", &file], &["starts", "commits", "reads", "writes"]);
    let top = ["top", &file, "--interval", "0.5", "--count", "1"];
    shown(&top, &["starts", "a second  commits", "reads", "keys read", "writes"]);
    // The directory of a server stands for the server, and no name for what clients use.
    let dir = place.path().join("data").display().to_string();
    assert!(show(&["status", &dir]).contains("available"));
    let mut status = Command::new(env!("CARGO_BIN_EXE_plinth"));
    let output = status.arg("status").env("FDB_CLUSTER_FILE", &file).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let document: Value = show(&["status", &file, "--json"]).parse().unwrap();
    for process in document["cluster"]["processes"].as_object().unwrap().values() {
        assert_eq!(process["address"], *address);
    }
    stop.store(true, Ordering::Relaxed);
    client.wait().unwrap();
    assert_eq!(server.terminate(), Some(0));
}

/// A file system in memory that takes a few megabytes, gone with the value.
#[cfg(target_os = "linux")]
struct SmallDisk(TemporaryDir);

#[cfg(target_os = "linux")]
impl SmallDisk {
    /// `None` without the right to mount.
    fn new() -> Option<Self> {
        let place = scratch();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"]).arg(place.path());
        let mounted = mount.output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(place))
    }
}

#[cfg(target_os = "linux")]
impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Each said that all was well, while commits were refused.
#[cfg(target_os = "linux")]
#[test]
fn of_a_server_whose_disk_is_full_each_tells_so_while_it_is() {
    let Some(disk) = SmallDisk::new() else {
        return println!("skipped: a file system of its own takes the right to mount");
    };
    let more = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let server = Running::start(&disk.0.path().join("data"), &more);
    let file = disk.0.path().join("data/fdb.cluster").display().to_string();
    let address = server.ready.trim_end().rsplit_once("http://").unwrap().1.to_owned();
    let db = Database::connect(&file).unwrap();
    let put = || {
        db.transact_blocking(|tr| {
            tr.set("key", "value");
            Ok(())
        })
    };
    put().unwrap();
    let others = disk.0.path().join("others");
    block_on(async {
        let others = Env::real().files().open(&others, plinth_env::Open::Create).await.unwrap();
        assert!(others.allocate(1 << 30).await.unwrap_err().is_disk_full());
    });
    let refused = put().unwrap_err();
    assert!(refused.code() == 1514 && refused.to_string().contains("is full"), "{refused}");
    let shown = |arguments: &[&str], words: [&str; 2]| {
        let mut told = String::new();
        // What is told is of the last moments.
        for _ in 0..200 {
            let output = run(arguments, "");
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            told = String::from_utf8(output.stdout).unwrap();
            if words.iter().all(|word| told.contains(word)) {
                return;
            }
            block_on(Env::real().sleep(Duration::from_millis(50)));
        }
        panic!("{words:?} in {told}");
    };
    let top = ["top", &file, "--interval", "0.1", "--count", "1"];
    let shell = ["shell", "--cluster-file", &file, "--exec", "status"];
    let full = ["REFUSES COMMITS (disk_full)", "are refused (disk_full): the disk of "];
    shown(&["status", &file], full);
    shown(&top, full);
    shown(&shell, ["storage_server_min_free_space", full[1]]);
    shown(&["status", &file, "--json"], ["\"commits_refused\"", "\"low_disk_space\""]);
    assert!(get(&address, "/health").contains("commits are refused"));
    assert!(get(&address, "/metrics").contains("\nplinth_available 0\n"));
    block_on(Env::real().files().remove(&others)).unwrap();
    // The room is looked at now and then.
    let mut tries = 0..200;
    while let Err(error) = put() {
        assert!(tries.next().is_some(), "{error}");
        block_on(Env::real().sleep(Duration::from_millis(50)));
    }
    let well = ["available", "limited by   workload"];
    shown(&["status", &file], well);
    shown(&top, ["available", "limited by workload"]);
    assert_eq!(get(&address, "/health").trim_end(), "serving");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn events_are_printed_in_the_form_that_is_asked_for() {
    let (_place, dir) = filled();
    let said = |log: &str| String::from_utf8(run(&["status", &dir], log).stderr).unwrap();
    assert_eq!(said(""), "");
    let text = said("text");
    assert!(text.contains("INFO  database opened") && text.contains("version="), "{text}");
    let json = said("json");
    let events: Vec<Value> = json.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(events[0]["message"], "database opened", "{json}");
    assert!(
        events[0]["version"].as_i64().is_some() && events[0]["time"].as_str().is_some(),
        "{json}"
    );
    assert_eq!(said("json,error"), "");
    assert_eq!(run(&["status", &dir], "xml").status.code(), Some(2));
}
