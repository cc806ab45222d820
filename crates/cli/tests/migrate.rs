//! `plinth migrate` as its users meet it: between directories, through FoundationDB's C library
//! (ours, loaded as Apple's would be), from and to a server that is running.
//!
//! And `plinth dr` between two servers. What is promised while the source is written is tested in
//! `crates/migrate` and `crates/dr`; here it is names, words and exit codes.

mod common;

use common::Running;
use plinth::{Builder, Database, Local, RangeOptions};
use plinth_env::{Env, TemporaryDir, block_on};
use std::process::{Command, Output, Stdio};

fn place() -> TemporaryDir {
    block_on(Env::real().files().temporary_dir("plinth-cli-migrate")).unwrap()
}

fn path(place: &TemporaryDir, name: &str) -> String {
    place.path().join(name).display().to_string()
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
    command.stdin(Stdio::null());
    command
}

fn migrate(from: &str, to: &str, more: &[&str]) -> Output {
    program().args(["migrate", "--from", from, "--to", to]).args(more).output().unwrap()
}

/// Asserts that it went well, and gives what it printed.
fn migrated(from: &str, to: &str) -> String {
    let output = migrate(from, to, &[]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(!text(&output.stderr).contains("100 percent"), "before anything is done: {output:?}");
    text(&output.stdout)
}

fn fill(db: &Database, rows: usize) {
    for chunk in (0..rows).collect::<Vec<_>>().chunks(1000) {
        db.transact_blocking(|tr| {
            chunk.iter().for_each(|n| tr.set(format!("row/{n:06}"), format!("value {n}")));
            Ok(())
        })
        .unwrap();
    }
}

fn rows(db: &Database) -> Vec<plinth::KeyValue> {
    db.create_transaction().range(RangeOptions::from("".."\u{7f}")).collect_blocking().unwrap()
}

/// A cluster file argument by our own library.
fn by_library(cluster_file: &str) -> String {
    let test = std::env::current_exe().unwrap();
    let name = format!("{}fdb_c{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    format!("fdb:{cluster_file}?lib={}", test.parent().unwrap().join(name).display())
}

#[test]
fn a_database_goes_out_through_the_c_library_and_comes_back() {
    let place = place();
    let (here, there, back) = (path(&place, "here"), path(&place, "there"), path(&place, "back"));
    let local = Local::open(&here).unwrap();
    let db = local.database();
    fill(db, 5000);
    let original = rows(db);
    local.close().unwrap();
    let out = migrated(&here, &by_library(&there));
    assert!(out.contains("rows         5,000") && out.contains("of both sides"), "{out}");
    migrated(&by_library(&there), &back);
    for copy in [&there, &back] {
        let local = Builder::new(copy).must_exist().open().unwrap();
        let db = local.database();
        assert_eq!(rows(db), original, "{copy}");
        local.close().unwrap();
    }
}

/// A server that ends with the test, and its cluster file.
fn serve(place: &TemporaryDir, name: &str) -> (Running, String) {
    let server = Running::start(&place.path().join(name), &["--listen", "127.0.0.1:0"]);
    let cluster_file = server.cluster_file().display().to_string();
    (server, cluster_file)
}

#[test]
fn a_server_can_be_filled_and_emptied_by_its_cluster_file() {
    let place = place();
    let (here, back) = (path(&place, "here"), path(&place, "back"));
    let local = Local::open(&here).unwrap();
    let db = local.database();
    fill(db, 3000);
    let original = rows(db);
    local.close().unwrap();
    let (_server, cluster_file) = serve(&place, "served");
    migrated(&here, &cluster_file);
    migrated(&cluster_file, &back);
    assert_eq!(rows(&Database::connect(&cluster_file).unwrap()), original);
    assert_eq!(rows(&Local::open(&back).unwrap().into_database()), original);
    // And it is locked if that is asked for.
    let output = migrate(&cluster_file, &path(&place, "last"), &["--lock"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("takes no more writes"), "{output:?}");
}

#[test]
fn what_can_not_be_done_is_said_with_the_place_and_the_remedy() {
    let place = place();
    let (here, there) = (path(&place, "here"), path(&place, "there"));
    let refused = |from: &str, to: &str, code: i32, words: &str| {
        let output = migrate(from, to, &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{said}");
    };
    refused(&here, &there, 1, "holds no database");
    for dir in [&here, &there] {
        let local = Local::open(dir).unwrap();
        let db = local.database();
        fill(db, 1);
        local.close().unwrap();
    }
    refused(&here, &there, 1, "take an empty one");
    refused(&here, &here, 1, "lock_file_failure");
    refused(&here, "fdb:x?y=z", 2, "fdb:CLUSTER_FILE");
    refused(&here, "fdb:x?lib=/nowhere/libfdb_c.so", 1, "/nowhere/libfdb_c.so");
}

/// The source is gone, and nobody can say the same command again.
#[test]
fn a_migration_that_nobody_goes_on_with_is_given_up() {
    let place = place();
    let there = path(&place, "there");
    let give_up = |more: &[&str]| {
        let arguments = ["migrate", "--abort", "--to", &there];
        let output = program().args(arguments).args(more).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (code, said) = give_up(&["--yes"]);
    assert!(code == Some(1) && said.contains("holds no database"), "{said}");
    let local = Local::open(&there).unwrap();
    fill(local.database(), 3);
    let begun = |tr: &plinth::Transaction| {
        tr.set_option(plinth::TransactionOption::AccessSystemKeys)?;
        let head = [&[1][..], &[7; 16], &[8; 16], b"shop"].concat();
        tr.set(b"\xff\x02/plinth/migrate/head", head);
        tr.set(b"\xff/dbLocked", [&b"0123456789"[..], &[7; 16]].concat());
        Ok(())
    };
    local.database().transact_blocking(begun).unwrap();
    local.close().unwrap();
    let (code, said) = give_up(&[]);
    assert!(code == Some(1) && said.contains("a part of shop") && said.contains("--yes"), "{said}");
    let (code, said) = give_up(&["--yes"]);
    assert!(code == Some(0) && said.contains("is free, and has a part of shop"), "{said}");
    let local = Local::open(&there).unwrap();
    assert_eq!(rows(local.database()).len(), 3, "they stay, and nothing is locked");
    local.close().unwrap();
    let (code, said) = give_up(&[]);
    assert!(code == Some(0) && said.contains("no migration"), "{said}");
    let output = program().args(["migrate", "--to", &there]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// `plinth dr` between two servers.
struct Dr {
    from: String,
    to: String,
}

impl Dr {
    /// Runs a command; gives its exit code and what it said.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = program().arg("dr").args(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }

    fn both(&self, name: &str) -> (Option<i32>, String) {
        self.run(&[name, "--from", &self.from, "--to", &self.to])
    }

    fn spawn(&self, name: &str) -> Running {
        let arguments = ["dr", name, "--from", &self.from, "--to", &self.to];
        let child = program().args(arguments).stdout(Stdio::null()).spawn().unwrap();
        Running { child, ready: String::new() }
    }

    fn status(&self) -> serde_json::Value {
        let (code, json) = self.run(&["status", "--from", &self.from, "--to", &self.to, "--json"]);
        assert_eq!(code, Some(0), "{json}");
        serde_json::from_str(&json).unwrap_or_else(|_| panic!("{json}"))
    }
}

/// Builds a library that ends as FoundationDB's does, from the stub's source.
fn stub(path: &str, more: &[&str]) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../fdb/tests/stub/libfdb_c_stub.c");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let built = Command::new(compiler)
        .args(["-shared", "-fPIC", "-pthread", "-o", path, source])
        .args(more)
        .status()
        .expect("a C compiler, which linking needs too");
    assert!(built.success());
}

/// After good work the program ended with a segmentation fault (139): here the same library works,
/// by ours.
#[test]
fn the_program_ends_as_it_should_after_good_work_by_such_a_library() {
    let place = place();
    let (library, here) = (path(&place, "libfdb_c_wrapped.so"), path(&place, "here"));
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap().display().to_string();
    let name = format!("{}fdb_c{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    // What the linker names may be the library's own name, which is looked for there.
    stub(
        &library,
        &[
            "-DWRAPPED",
            "-Wl,--no-as-needed",
            &format!("{deps}/{name}"),
            &format!("-Wl,-rpath,{deps}"),
            "-ldl",
        ],
    );
    let local = Local::open(&here).unwrap();
    fill(local.database(), 2000);
    local.close().unwrap();
    let there = format!("fdb:{}?lib={library}", path(&place, "there"));
    let out = migrated(&here, &there);
    assert!(out.contains("rows         2,000") && out.contains("of both sides"), "{out}");
    migrated(&there, &path(&place, "back"));
}

/// With Apple's library the program ended with a segmentation fault (139) after good work: the
/// library's network thread outlived what it needed. The stub ends as that does, and refuses
/// whatever it is asked.
#[test]
fn the_program_ends_as_it_should_on_a_library_that_has_a_thread_of_its_own() {
    let place = place();
    let (stub_path, here) = (path(&place, "libfdb_c_stub.so"), path(&place, "here"));
    stub(&stub_path, &[]);
    Local::open(&here).unwrap().close().unwrap();
    let there = format!("fdb:?lib={stub_path}");
    let refused =
        [program().args(["status", &there]).output().unwrap(), migrate(&here, &there, &[])];
    for output in refused {
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{:?}: {told}", output.status);
        // That is the answer to what the library was asked, so its network ran.
        assert!(told.contains("The operation is not allowed here"), "{told}");
    }
}

fn put(db: &Database, key: &str) -> plinth::Result<()> {
    let tr = db.create_transaction();
    tr.set(key, "1");
    tr.commit().wait()
}

/// A second site as its users meet it: two servers, an agent that is killed, a status, sides
/// changed, an end without the first.
#[test]
fn a_second_site_follows_a_server_and_outlives_it() {
    let place = place();
    let (first, from) = serve(&place, "first");
    let (_second, to) = serve(&place, "second");
    let (here, there) = (Database::connect(&from).unwrap(), Database::connect(&to).unwrap());
    let dr = Dr { from: from.clone(), to: to.clone() };
    fill(&here, 3000);
    let (code, said) = dr.both("wait");
    assert!(code == Some(1) && said.contains("neither of the two databases follows"), "{said}");
    let mut agent = dr.spawn("start");
    // It has said nothing to wait for: until it has begun nobody follows.
    let (code, said) = loop {
        let (code, said) = dr.both("wait");
        if !said.contains("neither") {
            break (code, said);
        }
    };
    assert!(code == Some(0) && said.contains("is whole at version"), "{said}");
    // Killed, and another one goes on.
    agent.child.kill().unwrap();
    let _agent = dr.spawn("agent");
    let shown = dr.status();
    assert!(shown["state"] == "following" && shown["tag"] == "default", "{shown}");
    assert!(shown["lag"]["seconds"].is_f64() && shown["lag"]["versions"].is_i64(), "{shown}");
    // They change places, and back: each time the other one takes writes, at once.
    let back = Dr { from: to.clone(), to: from.clone() };
    for (places, on, off) in [(&dr, &there, &here), (&back, &here, &there)] {
        let (code, said) = places.both("switch");
        assert!(code == Some(0) && said.contains("takes writes now"), "{said}");
        assert_eq!(put(off, "row/nowhere"), Err(plinth::Error::database_locked()));
        put(on, &format!("row/on {}", places.to)).unwrap();
    }
    let (code, said) = back.both("switch");
    assert!(code == Some(0) && said.contains("already"), "{said}");
    let newest = here.create_transaction().get_read_version().wait().unwrap();
    let original = rows(&here);
    assert_eq!(original.len(), 3002);
    while dr.status()["second"]["whole_at_version"].as_i64() < Some(newest) {}
    // The first is gone.
    drop((here, first));
    let (code, said) = dr.run(&["abort", "--to", &to, "--dstonly"]);
    assert!(code == Some(0) && said.contains("is free, as the first was at version"), "{said}");
    assert_eq!(rows(&there), original);
    let (code, said) = dr.run(&["abort", "--to", &to, "--dstonly"]);
    assert!(code == Some(1) && said.contains("follows no other one"), "{said}");
}
