//! `plinth server` as its operators and clients meet it: the ready line, the cluster file, a clean
//! end, and `kill -9`.
//!
//! The clients of the last test count in a row that all of them write, and leave a row for each
//! count. However often the server is killed among their commits, in the end every count that was
//! acknowledged is there, and each is there once.

#[path = "../../server/tests/common/beside.rs"]
mod beside;
mod common;

use beside::Good;
use common::counting::{Counting, judge};
use common::{Running, scratch};
use plinth::{Compression, Database};
use plinth_env::{Env, block_on};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A number of the status document.
fn told(db: &Database, path: &str) -> f64 {
    told_together(db, [path])[0]
}

/// Several numbers of one status document.
fn told_together<const N: usize>(db: &Database, paths: [&str; N]) -> [f64; N] {
    let status = block_on(db.status_json()).unwrap();
    let status: serde_json::Value = status.parse().unwrap();
    let number = |path| status.pointer(path).and_then(serde_json::Value::as_f64);
    paths.map(|path| number(path).unwrap_or_else(|| panic!("{path} in {status}")))
}

/// Bytes of tables for each byte of rows that look all alike, with a compression.
fn bytes_in_tables(compression: &str) -> f64 {
    let place = scratch();
    let engine = ["--listen", "127.0.0.1:0", "--engine", "ssd", "--memory", "16MiB"];
    let more = ["--window", "1", "--compression", compression];
    let server = Running::start(&place.path().join("data"), &[&engine[..], &more].concat());
    let db = Database::connect(server.cluster_file()).unwrap();
    assert_eq!(told(&db, "/cluster/plinth/window_seconds"), 1.0);
    for part in 0..32u8 {
        db.transact_blocking(|tr| {
            (0..100u8).for_each(|n| tr.set([part, n], [7; 1000]));
            Ok(())
        })
        .unwrap();
    }
    // What left the window is in tables soon.
    while told(&db, "/cluster/plinth/ssd/tables") == 0.0 {
        block_on(Env::real().sleep(Duration::from_millis(50)));
        db.transact_blocking(|tr| {
            tr.set("later", "");
            Ok(())
        })
        .unwrap();
    }
    // Of one moment: a flush may come between.
    let figures = ["disk_bytes", "flushed_bytes"].map(|it| format!("/cluster/plinth/ssd/{it}"));
    let [disk, flushed] = told_together(&db, [&figures[0], &figures[1]]);
    assert_eq!(server.terminate(), Some(0));
    disk / flushed
}

#[test]
fn window_and_compression_are_what_the_settings_say() {
    let [none, lz4] = ["none", "lz4"].map(bytes_in_tables);
    assert!(none > 0.9 && lz4 < 0.5, "{none} {lz4}");
    if Compression::Zstd.is_built_in() {
        let zstd = bytes_in_tables("zstd");
        assert!(zstd < 0.5, "{zstd}");
    }
}

#[test]
fn it_says_where_it_is_and_ends_cleanly_and_comes_back_there() {
    let place = scratch();
    let dir = place.path().join("data");
    let server = Running::start(&dir, &["--listen", "127.0.0.1:0"]);
    let (ready, file) = (server.ready.clone(), server.cluster_file());
    let db = Database::connect(&file).unwrap();
    db.transact_blocking(|tr| {
        tr.set("k", "v");
        Ok(())
    })
    .unwrap();
    assert_eq!(server.terminate(), Some(0));
    // The cluster file says where to listen.
    let server = Running::start(&dir, &[]);
    assert_eq!(server.ready, ready);
    let value = db.transact_blocking(|tr| tr.get("k").wait()).unwrap();
    assert_eq!(value.as_deref(), Some(&b"v"[..]));
    assert_eq!(server.terminate(), Some(0));
}

/// One with listeners for series hung in its start, and one SIGTERM didn't end it.
#[test]
fn a_server_of_a_locked_database_starts_and_ends_and_can_be_unlocked() {
    let place = scratch();
    let dir = place.path().join("data");
    // The cluster file says where to listen, once there is one.
    let start = |listen: &[&str]| {
        Running::start(&dir, &[listen, &["--series-resp", "127.0.0.1:0"]].concat())
    };
    let shell = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
        let command = command.arg("shell").arg("--cluster-file").arg(dir.join("fdb.cluster"));
        let output = command.args(["--exec", line]).output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let server = start(&["--listen", "127.0.0.1:0"]);
    let told = shell("lock");
    let id = told.split("lockUID: ").nth(1).and_then(|told| told.split_whitespace().next());
    let id = id.unwrap_or_else(|| panic!("{told}")).to_owned();
    assert_eq!(server.terminate(), Some(0));
    assert_eq!(start(&[]).terminate(), Some(0), "it ends although it is locked");
    let server = start(&[]);
    assert!(shell("get a").contains("database_locked (1038)"));
    assert!(shell(&format!("unlock {id}")).contains("Database unlocked."));
    assert!(shell("get a").contains("not found"));
    assert_eq!(server.terminate(), Some(0));
}

/// With so few file descriptors, connections that did nothing once took those with which the log's
/// next file is opened, and 1,989 of 2,000 commits failed.
#[test]
fn connections_leave_the_file_descriptors_that_commits_need() {
    let place = scratch();
    let dir = place.path().join("data");
    let program = env!("CARGO_BIN_EXE_plinth");
    let line = "ulimit -n 64 && exec \"$0\" server --dir \"$1\" --listen 127.0.0.1:0";
    let mut shell = Command::new("sh");
    shell.args(["-c", line, program]).arg(&dir).stderr(Stdio::piped());
    let mut server = Running::of(&mut shell);
    let log = server.child.stderr.take().unwrap();
    let db = Database::connect(server.cluster_file()).unwrap();
    let most = told(&db, "/cluster/plinth/server/connections_max");
    assert!((5.0..64.0).contains(&most), "{most}");
    let good = Good::alone(db.clone());
    let address: std::net::SocketAddr = server.ready.split(' ').nth(1).unwrap().parse().unwrap();
    let env = Env::real();
    let idle = good.beside("connections that do nothing", |_| {
        let idle: Vec<_> = (0..200).map(|_| block_on(env.sockets().connect(address))).collect();
        // Each makes the log longer: it goes over to its next files again and again.
        for number in 0..400_u32 {
            db.transact_blocking(|tr| {
                tr.set("k", [number as u8; 90_000]);
                Ok(())
            })
            .unwrap();
        }
        idle
    });
    drop(idle);
    good.end();
    assert_eq!(server.terminate(), Some(0));
    // Whoever looks for why finds two lines, not one for each of two hundred.
    let said = std::io::read_to_string(log).unwrap();
    for once in ["fewer connections at a time than wanted", "connections can't be accepted"] {
        assert_eq!(said.matches(once).count(), 1, "{once}: {said}");
    }
}

/// A server to try things with, and what it printed until it said how it is ended.
fn dev() -> (Running, Vec<String>) {
    begin_dev(&mut Command::new(env!("CARGO_BIN_EXE_plinth")))
}

fn begin_dev(command: &mut Command) -> (Running, Vec<String>) {
    let mut child = command.arg("dev").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(std::io::Result::ok);
    let said: Vec<_> = lines.take_while(|line| !line.starts_with("Ctrl-C")).collect();
    let ready = said.first().cloned().unwrap_or_default();
    (Running { child, ready }, said)
}

/// It waited without a word.
#[test]
fn a_shell_says_that_no_server_answers() {
    let (env, place) = (Env::real(), scratch());
    let free = || {
        let listener = block_on(env.sockets().listen(([127, 0, 0, 1], 0).into())).unwrap();
        listener.local_address().to_string()
    };
    for addresses in [vec![free()], vec![free(), free(), free()]] {
        let file = place.path().join("fdb.cluster");
        let contents = format!("nobody:x@{}\n", addresses.join(","));
        block_on(env.files().replace(&file, contents.as_bytes())).unwrap();
        let shell = |command: &str| {
            let mut shell = Command::new(env!("CARGO_BIN_EXE_plinth"));
            shell.args(["shell", "--cluster-file"]).arg(&file).args(["--exec", command]);
            shell
        };
        let status = shell("status").output().unwrap();
        let told = String::from_utf8(status.stdout).unwrap();
        assert!(told.contains("Available          no") && told.contains("1026"), "{told}");
        // What waits goes on waiting.
        let mut child = shell("get a").stderr(Stdio::piped()).spawn().unwrap();
        let mut told = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut told).unwrap();
        let goes_on = child.try_wait().unwrap().is_none();
        // Before anything is judged: what is left behind keeps the output of the whole run open.
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(told.contains("no server answers") && told.contains("Ctrl-C"), "{told}");
        assert!(goes_on, "{told}");
    }
}

/// A typing error in an address left a new database behind, and no word named the setting.
#[test]
fn a_server_that_can_not_listen_there_makes_no_database() {
    let (env, place) = (Env::real(), scratch());
    let taken = block_on(env.sockets().listen(([127, 0, 0, 1], 0).into())).unwrap();
    let taken = taken.local_address().to_string();
    // Ports of datagrams are others than those of connections.
    let datagrams = env.sockets().datagrams(([127, 0, 0, 1], 0).into()).unwrap();
    let taken_by_datagrams = datagrams.local_address().to_string();
    for (setting, address, why) in [
        ("listen", "0.0.0.0:0", "can be reached by other machines"),
        ("http", "0.0.0.0:0", "can be reached by other machines"),
        ("listen", &taken, "address_in_use"),
        ("http", &taken, "address_in_use"),
        ("series-http", &taken, "address_in_use"),
        ("series-resp", &taken, "address_in_use"),
        ("series-udp", &taken_by_datagrams, "address_in_use"),
    ] {
        let dir = place.path().join("db");
        let mut server = Command::new(env!("CARGO_BIN_EXE_plinth"));
        server.arg("server").arg("--dir").arg(&dir).args(["--listen", "127.0.0.1:0"]);
        let done = server.args([&format!("--{setting}"), address]).output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        let words = format!("{setting} {address}");
        assert!(told.contains(&words) && told.contains(why), "{setting} {address}: {told}");
        let what_to_do = format!("name another address by --{setting} IP:PORT");
        assert_eq!(told.contains(&what_to_do), why == "address_in_use", "{told}");
        assert_eq!(done.status.code(), Some(1), "{told}");
        assert!(!block_on(env.files().exists(&dir)).unwrap(), "{setting} {address}");
    }
}

#[test]
fn a_database_keeps_its_engine_and_the_log_says_so() {
    let place = scratch();
    let dir = place.path().join("db");
    let server = Running::start(&dir, &["--listen", "127.0.0.1:0"]);
    // Whoever would open its directory meanwhile is told how to reach the server.
    let mut shell = Command::new(env!("CARGO_BIN_EXE_plinth"));
    let told = shell.args(["shell", "--exec", "get a", "--dir"]).arg(&dir).output().unwrap();
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    let file = dir.join("fdb.cluster").display().to_string();
    assert!(
        told.contains("another process has the database open") && told.contains(&file),
        "{told}"
    );
    assert_eq!(server.terminate(), Some(0));
    for (engine, warns) in [("ssd", true), ("memory", false)] {
        let mut server = Command::new(env!("CARGO_BIN_EXE_plinth"));
        server.arg("server").arg("--dir").arg(&dir);
        let mut server = Running::of(server.args(["--engine", engine]).stderr(Stdio::piped()));
        let stderr = server.child.stderr.take().unwrap();
        assert_eq!(server.terminate(), Some(0));
        let told = std::io::read_to_string(stderr).unwrap();
        assert_eq!(told.contains("keeps the engine it was made with"), warns, "{told}");
    }
}

/// `timeout` sends its signal twice, to the process and to its group, and the second ended the
/// process before it had removed its directory.
#[test]
fn two_signals_at_once_are_one() {
    let place = scratch();
    let (server, _) =
        begin_dev(Command::new(env!("CARGO_BIN_EXE_plinth")).env("TMPDIR", place.path()));
    let left = || block_on(Env::real().files().list(place.path())).unwrap();
    assert!(!left().is_empty(), "the database is there");
    let id = server.id();
    // Each in a moment of its own, or the system would make one of them; the last may find nobody.
    for _ in 0..4 {
        Command::new("kill").args(["-TERM", &id]).stderr(Stdio::null()).status().unwrap();
    }
    assert_eq!((server.ended(), left().len()), (Some(0), 0), "{:?}", left());
}

#[test]
fn a_server_to_try_things_with_goes_elsewhere_where_its_ports_are_taken() {
    let env = Env::real();
    // What can't be taken here somebody else has.
    let taken: Vec<_> = [4500, 8080, 8282, 4242, 8181]
        .into_iter()
        .filter_map(|port| block_on(env.sockets().listen(([127, 0, 0, 1], port).into())).ok())
        .collect();
    let started: Vec<_> = (0..2).map(|_| dev()).collect();
    let mut places = Vec::new();
    for (server, said) in &started {
        assert!(
            server.ready.starts_with("ready 127.0.0.1:") && said[1].starts_with("series resp "),
            "{said:?}"
        );
        let words = said[0].split(' ').chain(said[1].split(' '));
        places.extend(words.filter_map(|word| {
            word.trim_start_matches("http://").parse::<std::net::SocketAddr>().ok()
        }));
    }
    // Clients, console, and the four ways by which points come in, of each of the two.
    assert_eq!(
        places.len(),
        12,
        "{started:?}",
        started = started.iter().map(|(_, said)| said).collect::<Vec<_>>()
    );
    for listener in &taken {
        assert!(!places.contains(&listener.local_address()), "{places:?}");
    }
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 12, "each listens for itself: {places:?}");
    for (server, said) in started {
        let file = said[0].split(' ').nth(2).unwrap();
        let db = Database::connect(file).unwrap();
        db.transact_blocking(|tr| tr.get("k").wait()).unwrap();
        assert_eq!(server.terminate(), Some(0));
    }
}

#[test]
fn other_machines_are_let_in_only_in_so_many_words() {
    let place = scratch();
    let output = Command::new(env!("CARGO_BIN_EXE_plinth"))
        .arg("server")
        .arg("--dir")
        .arg(place.path().join("data"))
        .args(["--listen", "0.0.0.0:0"])
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && err.contains("--without-tls"), "{err}");
}

fn certificate(name: &str) -> String {
    format!("{}/../tls/tests/certificates/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn settings_come_from_a_file_and_clients_reach_it_over_tls() {
    let place = scratch();
    let file = place.path().join("plinth.toml");
    let text = format!(
        "connections = 12\nengine = \"memory\"\ntls-cert = {:?}\ntls-key = {:?}\ntls-ca = {:?}\n",
        certificate("server.crt"),
        certificate("server.key"),
        certificate("ca.crt"),
    );
    block_on(Env::real().files().replace(&file, text.as_bytes())).unwrap();
    let config = file.to_str().unwrap();
    let server = Running::start(
        &place.path().join("data"),
        &["--listen", "127.0.0.1:0", "--config", config],
    );
    assert!(server.ready.contains(":tls "), "{}", server.ready);
    let shell = |variables: &[(&str, String)]| {
        Command::new(env!("CARGO_BIN_EXE_plinth"))
            .args(["shell", "--cluster-file", server.cluster_file().to_str().unwrap(), "--exec"])
            .arg("writemode on; set hello world; get hello; status json")
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .output()
            .unwrap()
    };
    let variables = [
        ("FDB_TLS_CERTIFICATE_FILE", certificate("client.crt")),
        ("FDB_TLS_KEY_FILE", certificate("client.key")),
        ("FDB_TLS_CA_FILE", certificate("ca.crt")),
    ];
    let output = shell(&variables);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("world"), "{said}{output:?}");
    let output = shell(&variables[2..]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("wants our certificate, and we show none"), "{told}");

    // A request to read the certificates again is no request to end.
    let id = server.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    assert!(shell(&variables).status.success());
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn one_pinned_snapshot_more_than_the_setting_allows_is_refused_with_the_number() {
    let place = scratch();
    let dir = place.path().join("data");
    let more = ["--listen", "127.0.0.1:0", "--engine", "ssd", "--snapshots", "2"];
    let server = Running::start(&dir, &more);
    let db = Database::connect(server.cluster_file()).unwrap();
    let held = [(); 2].map(|()| db.pin_snapshot().wait().unwrap());
    let error = db.pin_snapshot().wait().unwrap_err();
    let told = error.detail().unwrap_or_default();
    assert!(
        error.code() == 1000 && told.contains("holds 2 pinned snapshots (--snapshots)"),
        "{error}"
    );
    drop(held);
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_file_that_makes_no_sense_is_told_with_its_line() {
    let place = scratch();
    let file = place.path().join("plinth.toml");
    block_on(Env::real().files().replace(&file, b"# first\nconections = 12\n")).unwrap();
    let start = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
        let output =
            command.arg("server").args(arguments).env("PLINTH_CONFIG", &file).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, told) = start(&[]);
    assert!(
        code == Some(2) && told.contains("plinth.toml:2: conections: there is no such setting"),
        "{told}"
    );
    block_on(Env::real().files().replace(&file, b"connections = 12\n")).unwrap();
    let (code, told) = start(&[]);
    assert!(code == Some(2) && told.contains("PLINTH_DIR"), "{told}");
}

#[test]
fn killed_under_load_it_loses_nothing_that_was_acknowledged() {
    killed_under_load(&["--engine", "memory"]);
}

#[test]
fn killed_under_load_with_tables_on_disk_it_loses_nothing_that_was_acknowledged() {
    killed_under_load(&["--engine", "ssd", "--memory", "16MiB"]);
}

fn killed_under_load(settings: &[&str]) {
    const CLIENTS: usize = 32;
    let place = scratch();
    let dir = place.path().join("data");
    let mut server = Running::start(&dir, &[&["--listen", "127.0.0.1:0"], settings].concat());
    let file = server.cluster_file();
    let counting = Counting::start(&file, CLIENTS);
    for round in 0..5 {
        counting.await_more(50, Duration::from_millis(7 * round + 1));
        server.kill();
        server = Running::start(&dir, settings);
    }
    let acknowledged = counting.stop();
    judge(&Database::connect(&file).unwrap(), acknowledged);
    assert_eq!(server.terminate(), Some(0));
}

/// Six thousand bad handshakes were 760 kB of log.
#[test]
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the bare bytes of a stranger"
)]
fn a_server_tells_its_life_by_itself_and_a_burst_of_refusals_in_two_lines() {
    const BAD: usize = 300;
    let place = scratch();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
    command
        .arg("server")
        .arg("--dir")
        .arg(place.path().join("data"))
        .args(["--listen", "127.0.0.1:0"]);
    // A pipe that nobody reads would hold the server up.
    let log = place.path().join("log");
    let server = Running::of(command.stderr(std::fs::File::create(&log).unwrap()));
    let address = server.ready.split_whitespace().nth(1).unwrap().to_owned();
    for _ in 0..BAD {
        let mut client = std::net::TcpStream::connect(&address).unwrap();
        std::io::Write::write_all(&mut client, &[b'x'; 64]).unwrap();
        // Until the server has closed it.
        drop(std::io::Read::read_to_end(&mut client, &mut Vec::new()));
    }
    assert_eq!(server.terminate(), Some(0));
    let log = String::from_utf8(block_on(Env::real().files().read(&log)).unwrap()).unwrap();
    let told: Vec<&str> = log.lines().collect();
    let with = |what: &str| told.iter().filter(|line| line.contains(what)).count();
    for what in [
        "plinth server starts",
        "database opened",
        "serving clients",
        "the server ends",
        "has ended",
    ] {
        assert_eq!(with(what), 1, "{what}: {told:#?}");
    }
    assert_eq!((with("connection refused"), with(&format!("count={BAD}"))), (1, 1), "{told:#?}");
    assert!(told.len() < 12, "{told:#?}");
}

/// A server whose disk wasn't mounted made a new database, and clients found that one under the
/// name of theirs.
#[test]
fn an_empty_directory_is_not_taken_for_the_database_that_a_cluster_file_was_written_for() {
    let place = scratch();
    let (dir, file) = (place.path().join("data"), place.path().join("shop.cluster"));
    let file = file.to_str().unwrap();
    let server = Running::start(&dir, &["--listen", "127.0.0.1:0", "--cluster-file", file]);
    let db = Database::connect(file).unwrap();
    db.transact_blocking(|tr| {
        tr.set("a", "1");
        Ok(())
    })
    .unwrap();
    assert_eq!(server.terminate(), Some(0));

    let (env, disk) = (Env::real(), place.path().join("disk"));
    let files = env.files();
    block_on(files.rename(&dir, &disk)).unwrap();
    for is_mount_point in [false, true] {
        if is_mount_point {
            block_on(files.create_dir_all(&dir)).unwrap();
        }
        let mut server = Command::new(env!("CARGO_BIN_EXE_plinth"));
        server.arg("server").arg("--dir").arg(&dir).args(["--cluster-file", file]);
        let output = server.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains("mount its disk"), "{told}");
    }
    block_on(files.remove_dir_all(&dir)).unwrap();
    block_on(files.rename(&disk, &dir)).unwrap();
    let server = Running::start(&dir, &["--cluster-file", file]);
    let value = db.transact_blocking(|tr| tr.get("a").wait()).unwrap();
    assert_eq!(value.as_deref(), Some(&b"1"[..]));
    assert_eq!(server.terminate(), Some(0));

    // Whoever means it says so.
    block_on(files.remove_dir_all(&dir)).unwrap();
    block_on(files.remove(file)).unwrap();
    let server = Running::start(&dir, &["--listen", "127.0.0.1:0", "--cluster-file", file]);
    assert_eq!(server.terminate(), Some(0));
}
