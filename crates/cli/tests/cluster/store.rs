//! Three servers on one FoundationDB cluster, which take in its time series together. The cluster
//! is a server of ours, behind our own `libfdb_c`, loaded as Apple's would be.
//!
//! Whoever of them is killed, ended or stopped: what a sender was told is durable is there, and the
//! others own its parts.

use super::common::{Running, scratch};
use super::series::{Senders, ask, until, whole_answer};
use super::unused_addresses;
use plinth::Database;
use plinth::series::{Division, Holder, Settings};
use plinth_env::{Env, block_on};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Within so long others have what a dead server had.
const TAKEOVER: Duration = Duration::from_secs(5);
/// How much longer that may take where other tests have the processors, and this one asks now and
/// then. That it is no longer in a world of its own: `series_simulated/parts.rs` of the server.
const ALLOWANCE: Duration = Duration::from_secs(5);
const SERVERS: usize = 3;
const ENDS: usize = 4;
/// Where series are on a FoundationDB.
const PLACE: &[u8] = b"\x02plinth.series\0";

/// The name of a database behind our own library, which cargo builds beside the tests.
fn by_library(cluster_file: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_plinth"));
    let library = program.with_file_name("deps").join("libfdb_c.so");
    format!("fdb:{}?lib={}", cluster_file.display(), library.display())
}

fn start(store: &str, addresses: [&str; 3]) -> Running {
    Running::ready(begun(store, addresses, &[]))
}

/// A server that has been started, and may not be ready yet.
fn begun(store: &str, [clients, lines, questions]: [&str; 3], more: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
    command.args(["server", "--store", store, "--listen", clients, "--log", "text,error"]);
    command.args(["--series-resp", lines, "--series-http", questions]).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
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
    let await_owners = |what: &str, are_right: &dyn Fn(&[String]) -> bool| {
        until(what, || are_right(&owners(&db)).then_some(()));
    };
    let (env, senders) = (Env::real(), Senders::start(&lines));
    for round in 0..ENDS {
        senders.await_more(50);
        let victim = round % SERVERS;
        await_owners("it has parts", &|owners| of(owners, victim) > 0);
        let server = servers[victim].take().unwrap();
        let died = env.now();
        let stopped = match round % 3 {
            0 => {
                server.kill();
                None
            }
            1 => {
                assert_eq!(server.terminate(), Some(0));
                None
            }
            _ => {
                server.signal("-STOP");
                Some(server)
            }
        };
        await_owners("others take its parts over, while it is away", &|owners| {
            of(owners, victim) == 0 && owners.iter().all(|owner| !owner.is_empty())
        });
        let took = env.now() - died;
        eprintln!("round {round}: others own its parts after {took:?}");
        assert!(took < TAKEOVER + ALLOWANCE, "others own its parts after {took:?}");
        servers[victim] = match stopped {
            // It has points in memory for parts that are others' now.
            Some(server) => {
                server.signal("-CONT");
                Some(server)
            }
            None => Some(start(victim)),
        };
    }
    await_owners("each has some", &|owners| (0..SERVERS).all(|at| of(owners, at) > 0));
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

/// Whoever comes first says into how many parts series are divided, whatever the others were told.
/// One that had taken them for undivided a moment before was sent points that nobody ever read.
#[test]
fn servers_that_were_told_different_numbers_of_parts_lose_nothing() {
    let place = scratch();
    let below = Running::start(place.path(), &["--listen", "127.0.0.1:0"]);
    let store = by_library(&below.cluster_file());
    let (clients, lines, questions) =
        (unused_addresses(SERVERS), unused_addresses(SERVERS), unused_addresses(SERVERS));
    let senders = Senders::start(&lines);
    let begun = |(at, parts): (usize, &str)| {
        begun(&store, [&clients[at], &lines[at], &questions[at]], &["--series-parts", parts])
    };
    // At once, so that who is first is nobody's to say.
    let servers: Vec<Child> = ["1", "8", "4"].into_iter().enumerate().map(begun).collect();
    let mut servers: Vec<Running> = servers.into_iter().map(Running::ready).collect();
    let db = Database::connect(below.cluster_file()).unwrap();
    senders.await_more(50);
    servers.remove(1).kill();
    let dead = format!("{}/", clients[1]);
    until("the others own everything", || {
        let owners = owners(&db);
        owners.iter().all(|owner| !owner.is_empty() && !owner.starts_with(&dead)).then_some(())
    });
    servers.push(Running::ready(begun((1, "2"))));
    senders.await_more(50);
    senders.judge(&questions);
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

/// What a program prints that ends well, or how it refuses.
fn run(words: &[&str]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_plinth")).args(words).output().unwrap();
    let (out, error) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    if output.status.success() { Ok(out) } else { Err(format!("{:?} {error}", output.status)) }
}

/// Each said that it takes such a name, and some had never been given one.
#[test]
fn programs_take_the_name_of_a_foundationdb_cluster() {
    let (place, files) = (scratch(), scratch());
    let below = Running::start(place.path(), &["--listen", "127.0.0.1:0"]);
    let store = &by_library(&below.cluster_file());
    let bench = ["bench", "--workload", "read", "--rows", "500", "--seconds", "0.02"];
    let told = run(&[&bench[..], &["--cluster-file", store]].concat()).unwrap();
    assert!(told.contains("500 rows") && told.contains("\nread "), "{told}");
    let told = run(&["status", store]).unwrap();
    assert!(told.contains("available") && told.contains("limited by"), "{told}");
    let told = run(&["status", "--json", store]).unwrap();
    let document: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(document["client"]["database_status"]["available"], true, "{told}");

    let points = files.path().join("points.csv");
    let text = "cpu host=a,20260101T000000,1\ncpu host=a,20260101T000001,2\n";
    block_on(Env::real().files().replace(&points, text.as_bytes())).unwrap();
    let file = points.display().to_string();
    let told = run(&["series", "import", "--cluster-file", store, &file]).unwrap();
    assert!(told.contains("2 points"), "{told}");
    assert_eq!(run(&["series", "list", "--cluster-file", store]).unwrap(), "cpu host=a\n");
    let at = ["series", "query", "--at", "2026-01-01T00:00:02Z", "sum(cpu)", "--cluster-file"];
    assert_eq!(run(&[&at[..], &[store]].concat()).unwrap(), "{}  2\n");

    // FoundationDB has streams of its own kind. One was registered, and nobody could read it.
    let refused = run(&["changes", "register", "all", "--cluster-file", store]).unwrap_err();
    assert!(refused.contains("2108") && refused.contains("FoundationDB"), "{refused}");
    let told = run(&["changes", "list", "--cluster-file", store]).unwrap();
    assert!(!told.contains("all"), "{told}");
}

#[test]
fn dev_over_a_foundationdb_cluster_has_a_console_and_says_when_the_cluster_is_silent() {
    let place = scratch();
    let below = Running::start(place.path(), &["--listen", "127.0.0.1:0"]);
    let store = by_library(&below.cluster_file());
    let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
    let dev = Running::of(command.args(["dev", "--store", &store, "--log", "off"]));
    let (_, http) = dev.ready.trim_end().rsplit_once("http://").unwrap();
    let available = || {
        let metrics = ask(http, "GET /metrics", "").unwrap();
        let value = metrics.lines().find_map(|line| line.strip_prefix("plinth_available "));
        value.unwrap_or_else(|| panic!("{metrics}")).to_owned()
    };
    let overview = ask(http, "GET /api/overview", "").unwrap();
    let overview: serde_json::Value = serde_json::from_str(&overview).unwrap();
    assert_eq!(overview["health"]["state"], "serving", "{overview}");
    assert_eq!(overview["series_parts"].as_array().map(Vec::len), Some(8), "{overview}");
    assert_eq!(available(), "1");
    let health = |status: &str, words: &str| {
        until(status, || {
            let answer = whole_answer(http, "GET /health", "").unwrap();
            let is_so = answer.lines().next()?.contains(status) && answer.contains(words);
            is_so.then_some(())
        });
    };
    health(" 200 ", "serving");
    below.signal("-STOP");
    health(" 503 ", "connection_failed (1026)");
    assert_eq!(available(), "0");
    below.signal("-CONT");
    health(" 200 ", "serving");
    assert_eq!(available(), "1");
    assert_eq!(dev.terminate(), Some(0));
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
