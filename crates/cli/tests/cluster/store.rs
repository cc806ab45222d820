//! Two servers on one FoundationDB cluster, which take in its time series together. The cluster is
//! a server of ours, behind our own `libfdb_c`, loaded as Apple's would be.

use super::common::{Running, scratch};
use super::series::{Senders, ask};
use super::unused_addresses;
use plinth::Database;
use plinth::series::{SeriesStore, Settings};
use plinth_env::{Env, block_on};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const KILLS: usize = 4;

/// The name of a database behind our own library, which cargo builds beside the tests.
fn by_library(cluster_file: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_plinth"));
    let library = program.with_file_name("deps").join("libfdb_c.so");
    format!("fdb:{}?lib={}", cluster_file.display(), library.display())
}

fn start(store: &str, [clients, lines, questions]: [&str; 3]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
    command.args(["server", "--store", store, "--listen", clients, "--log", "text,error"]);
    Running::of(command.args(["--series-resp", lines, "--series-http", questions]))
}

#[test]
fn servers_on_a_foundationdb_cluster_take_the_series_over_from_each_other() {
    let place = scratch();
    let below = Running::start(place.path(), &["--listen", "127.0.0.1:0"]);
    let store = by_library(&below.cluster_file());
    let (clients, lines, questions) =
        (unused_addresses(2), unused_addresses(2), unused_addresses(2));
    let start = |at: usize| start(&store, [&clients[at], &lines[at], &questions[at]]);
    let mut servers: Vec<_> = (0..2).map(|at| Some(start(at))).collect();
    assert!(servers[0].as_ref().unwrap().ready.contains(&store), "it says where the rows are");
    let db = Database::connect(below.cluster_file()).unwrap();
    let holder = || block_on(SeriesStore::holder(&db, &Settings::default())).unwrap();
    let senders = Senders::start(&lines);
    for round in 0..KILLS {
        senders.await_more(50);
        let owner = loop {
            let name = holder().map(|holder| holder.name).unwrap_or_default();
            if let Some(at) =
                clients.iter().position(|address| name.starts_with(&format!("{address}/")))
            {
                break at;
            }
            block_on(Env::real().sleep(Duration::from_millis(50)));
        };
        let server = servers[owner].take().unwrap();
        if round % 2 == 0 {
            server.kill();
        } else {
            assert_eq!(server.terminate(), Some(0));
        }
        // The other one takes them over, while this one is away.
        while holder()
            .is_none_or(|holder| !holder.name.starts_with(&format!("{}/", clients[1 - owner])))
        {
            block_on(Env::real().sleep(Duration::from_millis(50)));
        }
        servers[owner] = Some(start(owner));
    }
    senders.judge(&questions);
    // Keys are served as well, over FoundationDB.
    let shell = |arguments: [&str; 2], command: &str| {
        let mut shell = Command::new(env!("CARGO_BIN_EXE_plinth"));
        let output = shell.arg("shell").args(arguments).args(["--exec", command]).output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    shell(["--cluster-file", &store], "writemode on; set apple 1");
    let below = below.cluster_file();
    let read = shell(["--cluster-file", &below.display().to_string()], "get apple");
    assert!(read.contains("is `1'"), "{read}");
    let page = ask(&questions[0], "GET /api/stats", "").unwrap();
    assert!(page.starts_with('{'), "{page}");
}

/// A file that clients find servers by, left from a directory's time or set by a package, is no
/// word about who may connect.
#[test]
fn clients_of_keys_are_let_in_front_of_a_foundationdb_cluster_only_where_that_is_said() {
    let place = scratch();
    let below = Running::start(place.path(), &["--listen", "127.0.0.1:0"]);
    let (store, file) = (by_library(&below.cluster_file()), place.path().join("left.cluster"));
    let address = &unused_addresses(1)[0];
    block_on(Env::real().files().replace(&file, format!("a:b@{address}\n").as_bytes())).unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_plinth"))
        .args([
            "server",
            "--store",
            &store,
            "--http",
            "127.0.0.1:0",
            "--log",
            "off",
            "--cluster-file",
        ])
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    let is_let_in = block_on(Env::real().sockets().connect(address.parse().unwrap())).is_ok();
    let health =
        ready.trim_end().rsplit_once("http://").map(|(_, http)| ask(http, "GET /health", ""));
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(ready.starts_with(&format!("ready {store} http://")), "{ready}");
    assert!(!is_let_in, "somebody listens where the file says");
    assert_eq!(health.unwrap().unwrap(), "serving\n");
}

#[test]
fn a_directory_and_a_store_at_once_are_refused() {
    let refused = |arguments: [&str; 4], words: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
        let output = command.arg("server").args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    };
    refused(["--store", "fdb:", "--dir", "x"], "not both");
    refused(["--store", "./fdb.cluster", "--listen", "127.0.0.1:0"], "fdb:CLUSTER_FILE");
}
