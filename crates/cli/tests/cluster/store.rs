//! Three servers on one FoundationDB cluster, which take in its time series together. The cluster
//! is a server of ours, behind our own `libfdb_c`, loaded as Apple's would be.

use super::common::{Running, scratch};
use super::series::{Senders, ask};
use super::unused_addresses;
use plinth::Database;
use plinth::series::{Division, Holder, Settings};
use plinth_env::{Env, block_on};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SERVERS: usize = 3;
const KILLS: usize = 2;
/// Where series are on a FoundationDB.
const PLACE: &[u8] = b"\x02plinth.series\0";

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

/// Who owns each part of the series.
fn owners(db: &Database) -> Vec<String> {
    // Through our own library the place is that of a FoundationDB.
    let settings = Settings { prefix: Some(PLACE.to_vec()), ..Settings::default() };
    let holders = async { Division::of(db, settings).await?.holders().await };
    let name = |holder: Option<Holder>| holder.map(|holder| holder.name).unwrap_or_default();
    block_on(holders).unwrap().into_iter().map(name).collect()
}

#[test]
fn servers_on_a_foundationdb_cluster_own_parts_of_the_series_and_take_over_those_of_the_dead() {
    let place = scratch();
    let below = Running::start(place.path(), &["--listen", "127.0.0.1:0"]);
    let store = by_library(&below.cluster_file());
    let (clients, lines, questions) =
        (unused_addresses(SERVERS), unused_addresses(SERVERS), unused_addresses(SERVERS));
    let start = |at: usize| start(&store, [&clients[at], &lines[at], &questions[at]]);
    let mut servers: Vec<_> = (0..SERVERS).map(|at| Some(start(at))).collect();
    assert!(servers[0].as_ref().unwrap().ready.contains(&store), "it says where the rows are");
    let db = Database::connect(below.cluster_file()).unwrap();
    let of = |owners: &[String], at: usize| {
        owners.iter().filter(|name| name.starts_with(&format!("{}/", clients[at]))).count()
    };
    let await_owners = |are_right: &dyn Fn(&[String]) -> bool| {
        while !are_right(&owners(&db)) {
            block_on(Env::real().sleep(Duration::from_millis(50)));
        }
    };
    let senders = Senders::start(&lines);
    for round in 0..KILLS {
        senders.await_more(50);
        let victim = round % SERVERS;
        await_owners(&|owners| of(owners, victim) > 0);
        let server = servers[victim].take().unwrap();
        if round % 2 == 0 {
            server.kill();
        } else {
            assert_eq!(server.terminate(), Some(0));
        }
        // The others take its parts over, while this one is away.
        await_owners(&|owners| {
            of(owners, victim) == 0 && owners.iter().all(|owner| !owner.is_empty())
        });
        servers[victim] = Some(start(victim));
    }
    await_owners(&|owners| (0..SERVERS).all(|at| of(owners, at) > 0));
    let page = ask(&questions[1], "GET /api/stats", "").unwrap();
    assert!(page.contains(r#""all":"8""#), "{page}");
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
