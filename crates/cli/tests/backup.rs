//! `plinth backup` and `plinth restore` as their users meet them: a directory that nobody has open,
//! a server that is running, the words and the exit codes. What a backup promises is tested in
//! `crates/backup`.
//!
//! The last one is the story that `docs/backup.md` tells.

mod common;

use common::{Running, scratch};
use plinth::backup::restore;
use plinth::{Builder, Database, Local, RangeOptions};
use plinth_env::{Env, block_on};
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn plinth(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plinth")).args(words).stdin(Stdio::null()).output().unwrap()
}

/// A command under way, both of whose outputs go to us.
fn begun(words: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until a command under way says this on standard error, has it go on then, and gives what
/// it printed in the end.
fn told(mut child: Child, what: &str, go_on: impl FnOnce()) -> String {
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut all = String::new();
    while !all.contains(what) {
        assert_ne!(
            lines.read_line(&mut all).unwrap(),
            0,
            "it ended, and never said {what:?}: {all}"
        );
    }
    go_on();
    lines.read_to_string(&mut all).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{all}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(!printed.contains(what), "standard output has results alone: {printed}");
    printed
}

/// Asserts that it ended so, and gives what it printed on both.
fn ended(code: i32, words: &[&str]) -> String {
    let output = plinth(words);
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
    text
}

fn fill(db: &Database, rows: usize) {
    for part in (0..rows).collect::<Vec<_>>().chunks(1000) {
        db.transact_blocking(|tr| {
            part.iter().for_each(|n| tr.set(format!("row/{n:06}"), format!("value {n}")));
            Ok(())
        })
        .unwrap();
    }
}

fn rows(db: &Database) -> Vec<plinth::KeyValue> {
    db.create_transaction().range(RangeOptions::from("".."\u{7f}")).collect_blocking().unwrap()
}

fn rows_in(dir: &Path) -> Vec<plinth::KeyValue> {
    let local = Builder::new(dir).must_exist().open().unwrap();
    let db = local.database();
    let rows = rows(db);
    local.close().unwrap();
    rows
}

#[test]
fn a_backup_that_is_damaged_hides_no_other_one() {
    let place = scratch();
    let path = |name: &str| place.path().join(name).display().to_string();
    let dir = path("shop");
    let local = Local::open(&dir).unwrap();
    let db = local.database();
    fill(db, 10);
    local.close().unwrap();
    for name in ["backups/a", "backups/b", "backups/c"] {
        ended(0, &["backup", "now", "--dir", &dir, &path(name)]);
    }
    let identity = path("backups/b/backup.id");
    let files = Env::real();
    block_on(files.files().replace(&identity, b"no identity")).unwrap();
    let told = ended(3, &["backup", "list", &path("backups")]);
    assert_eq!(told.matches("1 snapshot, ").count(), 2, "{told}");
    assert!(told.contains("backups/b/backup.id") || told.contains("backups/b"), "{told}");
    // The advice was that for a database in a directory, which it isn't.
    let told = ended(3, &["backup", "verify", &path("backups/b")]);
    assert!(told.contains("backup.id") && told.contains("a copy of the backup"), "{told}");
    assert!(!told.contains("plinth salvage"), "{told}");
}

#[test]
fn a_directory_goes_into_a_backup_and_comes_back() {
    let place = scratch();
    let path = |name: &str| place.path().join(name).display().to_string();
    let (dir, url, key) = (path("shop"), path("backups/shop"), path("key"));
    let local = Local::open(&dir).unwrap();
    let db = local.database();
    fill(db, 3000);
    let original = rows(db);
    local.close().unwrap();
    let env = Env::real();
    let files = env.files();
    block_on(files.replace(&key, &[9; 32])).unwrap();
    let sealed = ["--encryption-key-file", &key];
    let out = ended(0, &[&["backup", "now", "--dir", &dir, &url], &sealed[..]].concat());
    assert!(out.contains("rows         3,000"), "{out}");
    // Without the key everybody may know what is there, and nothing more.
    let out = ended(0, &["backup", "describe", &url]);
    assert!(out.contains("encrypted    yes") && out.contains("3,000 rows"), "{out}");
    assert!(ended(0, &["backup", "list", &path("backups")]).contains("1 snapshot, "));
    assert!(ended(0, &["backup", "verify", &url]).contains("checksums alone"));
    assert!(
        ended(0, &[&["backup", "verify", &url], &sealed[..]].concat())
            .contains("every file is whole")
    );
    let new = path("again");
    assert!(ended(1, &["restore", "-r", &url, "--dest-dir", &new]).contains("key file"));
    let restore =
        [&["restore", "-r", &url, "--dest-dir", &new, "--engine", "ssd"], &sealed[..]].concat();
    let dry = ended(0, &[&restore[..], &["--dry-run"]].concat());
    assert!(dry.contains(
        "takes        about 0 s into a directory, 0 s into a running database; nothing was restored"
    ));
    assert!(!block_on(files.exists(&new)).unwrap());
    let wet = ended(0, &restore);
    for what in ["version ", "rows ", "ranges "] {
        let line = |text: &str| text.lines().find(|line| line.starts_with(what)).map(str::to_owned);
        assert!(line(&dry).is_some() && line(&dry) == line(&wet), "{what}: {dry}\n{wet}");
    }
    // Of users' keys, of the place of series, and of tenants.
    assert!(dry.contains("reads        3 files, ") && dry.contains("of the log   0 B"), "{dry}");
    assert!(wet.contains("3,000"));
    assert_eq!(rows_in(Path::new(&new)), original);
    // What is there already is left alone.
    assert!(ended(1, &restore).contains("is not empty"));
    assert!(ended(1, &[&restore[..], &["--dry-run"]].concat()).contains("is not empty"));
    // A part, under another name.
    let part = path("part");
    let words = ["-k", "row/0001 row/0002", "--remove-prefix", "row/", "--add-prefix", "r\\x00"];
    let restore = [&["restore", "-r", &url, "--dest-dir", &part], &words[..], &sealed].concat();
    let dry = ended(0, &[&restore[..], &["--dry-run"]].concat());
    assert!(dry.contains("rows         up to 3,000, "), "{dry}");
    assert!(ended(0, &restore).contains("rows         100, "));
    let rows = rows_in(Path::new(&part));
    assert_eq!((rows.len(), &rows[0].key[..]), (100, &b"r\x00000100"[..]));
    words_without_sense_are_refused(place.path(), &url, &sealed);
    damage_is_told(&url);
}

fn words_without_sense_are_refused(place: &Path, url: &str, sealed: &[&str]) {
    let path = |name: &str| place.join(name).display().to_string();
    let part = path("part");
    assert!(ended(2, &["backup", "describe", "s4://nowhere"]).contains("s4://"));
    assert!(ended(1, &["backup", "describe", &path("nothing")]).contains("no backup"));
    assert!(ended(2, &["restore", "-r", url]).contains("--dest-dir"));
    assert!(
        ended(
            2,
            &[&["restore", "-r", url, "--dest-dir", &part, "--timestamp", "noon"], sealed].concat()
        )
        .contains("noon")
    );
    assert!(
        ended(
            1,
            &[&["restore", "-r", url, "--dest-dir", &part, "--version", "1"], sealed].concat()
        )
        .contains("reaches versions")
    );
}

/// Damage has its exit code, and what it costs is told by version and time.
fn damage_is_told(url: &str) {
    let env = Env::real();
    let files = env.files();
    let snapshots = Path::new(url).join("snapshots");
    let snapshot = block_on(files.list(&snapshots)).unwrap().remove(0);
    let file = snapshots.join(snapshot).join("00000000.rows");
    let mut bytes = block_on(files.read(&file)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    block_on(files.replace(&file, &bytes)).unwrap();
    let told = ended(3, &["backup", "verify", url]);
    assert!(told.contains("00000000.rows at offset"), "{told}");
    // One snapshot without a log: one version, and the second of it.
    let (_, cost) = told.split_once("; costs version ").expect(&told);
    let (_, time) = cost.lines().next().unwrap().split_once(", of ").expect(&told);
    assert!(plinth::backup::parse_time(time).is_ok(), "{told}");
}

#[test]
fn a_server_is_backed_up_while_it_runs_and_restored_into() {
    let place = scratch();
    let url = place.path().join("backup").display().to_string();
    let server = Running::start(&place.path().join("one"), &["--listen", "127.0.0.1:0"]);
    let file = server.cluster_file().display().to_string();
    let db = Database::connect(&file).unwrap();
    fill(&db, 2000);
    let original = rows(&db);
    assert!(
        ended(0, &["backup", "now", "--cluster-file", &file, &url]).contains("rows         2,000")
    );
    let restore = ["restore", "-r", &url, "--dest-cluster-file", &file];
    for words in [&restore[..], &[&restore[..], &["--dry-run"]].concat()] {
        assert!(ended(1, words).contains("has the key row/000000"));
    }
    // The mistake, and the way back. That there ever was a tenant, the number of the last of which
    // stays, refused it for good.
    db.transact_blocking(|tr| {
        tr.clear_range("", "\u{7f}");
        Ok(())
    })
    .unwrap();
    let tenants = "tenant create gone; tenant delete gone";
    ended(0, &["shell", "--cluster-file", &file, "--exec", tenants]);
    assert!(ended(0, &["restore", "-r", &url, "--dest-cluster-file", &file]).contains("2,000"));
    assert_eq!(rows(&db), original);
    let to = ["--dest-cluster-file", &file];
    assert!(ended(0, &[&["restore", "status"], &to[..]].concat()).contains("no restore"));
    assert!(ended(0, &[&["restore", "abort"], &to[..]].concat()).contains("no restore"));
}

/// Why the shell doesn't do that.
fn told_by_shell(file: &str, line: &str) -> String {
    ended(1, &["shell", "--cluster-file", file, "--exec", line])
}

/// A restore into a running database that was killed: what other processes are told of it, and how
/// it ends either way.
#[test]
fn a_restore_that_was_cut_short_is_told_waited_for_and_given_up() {
    let place = scratch();
    let url = place.path().join("backup").display().to_string();
    let server = Running::start(&place.path().join("one"), &["--listen", "127.0.0.1:0"]);
    let file = server.cluster_file().display().to_string();
    let db = Database::connect(&file).unwrap();
    fill(&db, 500);
    let original = rows(&db);
    ended(0, &["backup", "now", "--cluster-file", &file, &url]);
    let clear = || {
        db.transact_blocking(|tr| {
            tr.clear_range("", "\u{7f}");
            Ok(())
        })
        .unwrap();
    };
    clear();
    // It locks the database, and goes no further.
    let cut_short = || {
        let env = Env::real();
        block_on(async {
            let target = plinth::backup::target::named(&env, &url, &[]).await.unwrap();
            let backup = plinth::backup::Backup::open(&env, target, None).await.unwrap();
            let plan =
                restore::Plan::make(&backup, restore::Goal::Newest, restore::Mapping::default());
            let control = restore::RestoreControl::default();
            control.stop.store(true, std::sync::atomic::Ordering::Relaxed);
            let plan = plan.await.unwrap();
            let stopped = restore::restore_served(&backup, &plan, &control, &db).await;
            assert_eq!(stopped.unwrap_err(), plinth::Error::operation_cancelled());
        });
    };
    let to = ["--dest-cluster-file", &file];
    cut_short();
    let told = ended(0, &[&["restore", "status"], &to[..]].concat());
    assert!(
        told.contains(": 0 of ") && told.contains("files of rows") && told.contains("is locked"),
        "{told}"
    );
    // Nobody is told to unlock it, and to see a part of the rows, nor does it happen.
    let lock = told_by_shell(&file, "lock");
    let uid = lock.rsplit(", ").next().unwrap().trim();
    for line in ["get row/000000", &format!("unlock {uid}")] {
        let told = told_by_shell(&file, line);
        assert!(told.contains("restore abort") && !told.contains("unlock UID"), "{line}: {told}");
    }
    // What is half there isn't backed up.
    let refused = ended(1, &["backup", "now", "--cluster-file", &file, &format!("{url}-half")]);
    assert!(refused.contains("the database has a part of what is being restored"), "{refused}");
    let mut wait = begun(&[&["restore", "wait"], &to[..]].concat());
    let (mut lines, mut said) = (BufReader::new(wait.stderr.take().unwrap()), String::new());
    while !said.contains("waiting for the restore") {
        assert_ne!(lines.read_line(&mut said).unwrap(), 0, "it ended: {said}");
    }
    assert!(ended(0, &[&["restore", "abort"], &to[..]].concat()).contains("given up"));
    assert_eq!(wait.wait().unwrap().code(), Some(1), "it waited for what never came");
    assert_eq!(rows(&db), []);
    cut_short();
    let wait = Command::new(env!("CARGO_BIN_EXE_plinth"))
        .args([&["restore", "wait"], &to[..]].concat())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(ended(0, &[&["restore", "-r", &url], &to[..]].concat()).contains("500"));
    let waited = wait.wait_with_output().unwrap();
    assert!(waited.status.success() && waited.stdout.starts_with(b"no restore is under way"));
    assert_eq!(rows(&db), original);
}

/// What takes longer than two seconds tells how far it is, on standard error; here it takes until
/// that was seen.
#[test]
fn what_takes_long_tells_how_far_it_is() {
    let place = scratch();
    let path = |name: &str| place.path().join(name).display().to_string();
    let (url, dir, continuous) = (path("backup"), path("one"), path("continuous"));
    let local = Local::open(&dir).unwrap();
    let db = local.database();
    fill(db, 500);
    let original = rows(db);
    local.close().unwrap();
    let quick = plinth(&["backup", "now", "--dir", &dir, &url]);
    assert!(
        quick.status.success() && quick.stderr.is_empty(),
        "{:?}",
        String::from_utf8_lossy(&quick.stderr)
    );
    // Somebody has the lease, and gives it back.
    let env = Env::real();
    let lease = block_on(async {
        let target = plinth::backup::target::named(&env, &url, &[]).await.unwrap();
        let backup = plinth::backup::Backup::open(&env, target, None).await.unwrap();
        plinth::backup::Lease::take(&backup, "a test").await.unwrap()
    });
    let now = begun(&["backup", "now", "--dir", &dir, &url]);
    let printed = told(now, "backing up: 0 B of about ", || block_on(lease.give_back()).unwrap());
    assert!(printed.starts_with("rows         500, "), "{printed}");
    // It is paused before anybody does it.
    ended(0, &["backup", "start", "--dir", &dir, "-d", &continuous]);
    ended(0, &["backup", "pause", "--dir", &dir]);
    let server = Running::start(Path::new(&dir), &["--listen", "127.0.0.1:0"]);
    let file = server.cluster_file().display().to_string();
    let at = ["--cluster-file", &file];
    let wait = begun(&[&["backup", "wait"], &at[..]].concat());
    let resume = || drop(ended(0, &[&["backup", "resume"], &at[..]].concat()));
    let printed = told(wait, "waiting for the backup default: it is paused", resume);
    assert!(printed.contains("1 snapshot, ") || printed.contains("can be restored"), "{printed}");
    let discontinue = begun(&[&["backup", "discontinue", "--wait"], &at[..]].concat());
    let ended_so = discontinue.wait_with_output().unwrap();
    assert!(ended_so.status.success(), "{}", String::from_utf8_lossy(&ended_so.stderr));
    // The server stands still.
    let to = Running::start(&place.path().join("two"), &["--listen", "127.0.0.1:0"]);
    let signal = |name: &str| {
        let id = to.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    };
    let file = to.cluster_file().display().to_string();
    signal("-STOP");
    let restore = begun(&["restore", "-r", &url, "--dest-cluster-file", &file]);
    let printed = told(restore, "restoring: 0 B of about ", || signal("-CONT"));
    assert!(printed.starts_with("rows         500, "), "{printed}");
    assert_eq!(rows(&Database::connect(&file).unwrap()), original);
}

/// It waited a minute, without a word, for a store that never answered.
#[test]
fn a_store_that_never_answers_is_told_and_waited_for_no_longer_than_a_moment() {
    let place = scratch();
    let server = Running::start(&place.path().join("one"), &["--listen", "127.0.0.1:0"]);
    let file = server.cluster_file().display().to_string();
    let at = ["--cluster-file", &file];
    // It takes connections, and says nothing.
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let silent = block_on(Env::real().sockets().listen(loopback)).unwrap();
    let store = silent.local_address();
    let url = format!("blobstore://key:secret@{store}/shop?bucket=b&sc=0&region=r");
    let start = [&["backup", "start", "-d", &url], &at[..]].concat();
    let waits = format!("looking for a backup in blobstore://key@{store}/shop?bucket=b&sc=0");
    let mut lines = String::new();
    let mut child = begun(&start);
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    errors.read_line(&mut lines).unwrap();
    assert!(lines.contains(&waits) && lines.contains("no answer yet"), "{lines}");
    // A signal ends it, and nothing was begun. Not Ctrl-C's, which what runs in the background may
    // have been told to ignore.
    assert!(
        Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success()
    );
    assert!(!child.wait().unwrap().success());
    assert!(ended(0, &[&["backup", "status"], &at[..]].concat()).contains("no continuous backup"));
    let told = ended(0, &start);
    assert!(
        told.contains("no answer in 10.0 s; the server asks for itself")
            && !told.contains("secret"),
        "{told}"
    );
    drop(silent);
    // Nobody listens there now: each try is told, and where it went.
    let url = format!("{url}&request_tries=3");
    let again = [&["backup", "start", "-t", "other", "-d", &url], &at[..]].concat();
    assert!(ended(0, &again).contains("server asks for itself"));
    for tag in ["default", "other"] {
        let abort = ended(0, &[&["backup", "abort", "-t", tag], &at[..]].concat());
        assert!(abort.contains("was aborted"), "{abort}");
    }
}

/// `abort` said that it was ending, with exit code 0, of one that nobody ended; and of one that was
/// discontinued it was said that it was ending within seconds.
#[test]
fn how_a_backup_ends_is_told_by_words_and_exit_codes() {
    let place = scratch();
    let (dir, url) = (place.path().join("one"), place.path().join("backup").display().to_string());
    let server = Running::start(&dir, &["--listen", "127.0.0.1:0"]);
    let file = &*server.cluster_file().display().to_string();
    let of = |words: &[&str]| -> Vec<String> {
        let all = [&["backup"], words, &["--cluster-file", file]].concat();
        all.into_iter().map(str::to_owned).collect()
    };
    let done = |code: i32, words: &[&str]| {
        let words = of(words);
        ended(code, &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let begin = |words: &[&str]| {
        let words = of(words);
        begun(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    fill(&Database::connect(file).unwrap(), 10);
    // Its place can't be made: the first snapshot is never whole.
    let taken = place.path().join("taken");
    block_on(Env::real().files().replace(&taken, b"a file")).unwrap();
    let nowhere = taken.join("below").display().to_string();
    done(0, &["start", "-d", &nowhere]);
    done(0, &["discontinue"]);
    let told = done(0, &["status"]);
    assert!(told.contains("discontinued: ends once its first snapshot is whole"), "{told}");
    let waiting = [begin(&["discontinue", "--wait"]), begin(&["wait"])].map(|mut child| {
        let mut told = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        assert!(line.contains("the backup default") || line.contains("gets no further"), "{line}");
        (child, told)
    });
    assert!(done(0, &["abort"]).contains("was aborted"));
    for (mut child, mut told) in waiting {
        let mut words = String::new();
        told.read_to_string(&mut words).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{words}");
        assert!(words.contains("was aborted before"), "{words}");
    }
    done(0, &["start", "-d", &url, "--wait"]);
    assert!(done(0, &["discontinue", "--wait"]).contains("has ended"));
    assert!(done(0, &["wait"]).contains("completed"));
    assert!(done(1, &["abort"]).contains("no backup runs under the tag"));
    drop(server);
}

/// How far behind a backup is stands in the status document, by FoundationDB's fields, and in what
/// people are shown.
fn how_far_behind_is_shown(file: &str, url: &str) {
    let document: serde_json::Value =
        serde_json::from_str(&ended(0, &["status", file, "--json"])).unwrap();
    let tag = &document["cluster"]["layers"]["backup"]["tags"]["default"];
    let behind = tag["last_restorable_seconds_behind"].as_f64();
    assert!(behind.is_some() && tag["last_restorable_version"].is_i64(), "{tag:#}");
    assert!(
        tag["running_backup_is_restorable"] == true && tag["current_container"] == url,
        "{tag:#}"
    );
    let shell = ["shell", "--exec", "status", "--cluster-file", file];
    for shown in [ended(0, &shell), ended(0, &["top", file, "--count", "1"])] {
        let line = shown.lines().find(|line| line.contains(url)).unwrap_or_default();
        assert!(line.contains("default to ") && line.contains(" s behind"), "{shown}");
    }
}

/// The story of docs/backup.md: a continuous backup, a mistake, the loss of the server, and the
/// second before the mistake.
#[test]
fn a_continuous_backup_takes_one_back_to_before_a_mistake() {
    let place = scratch();
    let url = place.path().join("backup").display().to_string();
    let dir = place.path().join("one");
    let server = Running::start(&dir, &["--listen", "127.0.0.1:0"]);
    let file = server.cluster_file().display().to_string();
    let at = ["--cluster-file", &file];
    let db = Database::connect(&file).unwrap();
    fill(&db, 1000);
    assert!(
        ended(0, &[&["backup", "start", "-d", &url, "--wait"], &at[..]].concat())
            .contains("can be restored")
    );
    assert!(ended(1, &[&["backup", "start", "-d", &url], &at[..]].concat()).contains("already"));
    let part = [&["backup", "start", "-d", &url, "-t", "part", "-k", "row/"], &at[..]].concat();
    assert!(ended(1, &part).contains("not of the keys row/ to row0; take a place of its own"));
    fill(&db, 1500);
    let original = rows(&db);
    let env = Env::real();
    // A moment is noted each second.
    block_on(env.sleep(Duration::from_secs(3)));
    let before = plinth::backup::show_time(env.wall_clock().as_millis() as u64);
    block_on(env.sleep(Duration::from_secs(2)));
    db.transact_blocking(|tr| {
        tr.clear_range("row/000500", "row/001000");
        Ok(())
    })
    .unwrap();
    let mistaken = rows(&db);
    assert!(ended(0, &[&["backup", "status"], &at[..]].concat()).contains("saved up to version"));
    assert!(
        ended(0, &[&["backup", "status", "--json"], &at[..]].concat())
            .contains("last_restorable_version")
    );
    how_far_behind_is_shown(&file, &url);
    let of_tag = |tag| [&["backup", "status", "-t", tag], &at[..]].concat();
    let said = ended(0, &of_tag("default"));
    assert!(
        said.contains("default ") && said.contains(" snapshot") && !said.contains("part "),
        "{said}"
    );
    assert!(ended(1, &of_tag("other")).contains("no backup of the tag other"));
    // The server ends and comes back: the backup goes on.
    drop(db);
    assert_eq!(server.terminate(), Some(0));
    let server = Running::start(&dir, &[]);
    let file = server.cluster_file().display().to_string();
    let at = ["--cluster-file", &file];
    assert!(
        ended(0, &[&["backup", "discontinue", "--wait"], &at[..]].concat()).contains("has ended")
    );
    assert!(ended(0, &[&["backup", "status"], &at[..]].concat()).contains("completed"));
    server.kill();
    block_on(env.files().remove_dir_all(&dir)).unwrap();
    let new = place.path().join("new").display().to_string();
    let later = place.path().join("later").display().to_string();
    let said = ended(0, &["restore", "-r", &url, "--dest-dir", &new, "--timestamp", &before]);
    assert!(said.contains(", noted at 20"), "{said}");
    assert_eq!(rows_in(Path::new(&new)), original);
    ended(0, &["restore", "-r", &url, "--dest-dir", &later]);
    assert_eq!(rows_in(Path::new(&later)), mistaken);
    assert!(ended(0, &["backup", "verify", &url]).contains("every file is whole"));
    assert!(
        ended(0, &["backup", "expire", &url, "--before", "30d"]).contains("nothing is old enough")
    );
    delete(&url);
}

/// Deletes a backup, which has to be meant.
fn delete(url: &str) {
    let asked = ended(1, &["backup", "delete", url]);
    assert!(asked.contains("1 snapshot") && asked.contains("--yes"), "{asked}");
    ended(0, &["backup", "describe", url]);
    ended(0, &["backup", "delete", url, "--yes"]);
    assert!(ended(1, &["backup", "describe", url]).contains("no backup"));
}
