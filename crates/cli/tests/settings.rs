//! Where the settings of a server may come from, as its operators meet it: command line,
//! environment, file.
//!
//! That each setting has its variable is seen by what the program says of a value that may not be;
//! which source counts, by what a server does that has all three.

mod common;

use common::{Running, scratch};
use plinth::Database;
use plinth_bench::Value;
use plinth_env::{Env, block_on};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

const SHIPPED: &str = include_str!("../../../packaging/plinth.toml");

/// The names of all settings: the shipped file has each.
fn names() -> Vec<&'static str> {
    let names = SHIPPED.lines().filter_map(|line| line.trim_start_matches('#').split_once(" = "));
    names.map(|(name, _)| name).filter(|name| !name.contains(' ')).collect()
}

/// A server's command line without a word of the environment that the tests run in.
fn server() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
    for name in names() {
        command.env_remove(variable(name));
    }
    command.arg("server");
    command
}

fn variable(name: &str) -> String {
    format!("PLINTH_{}", name.to_ascii_uppercase().replace('-', "_"))
}

#[test]
fn each_setting_has_its_variable_which_is_held_to_what_it_may_be() {
    let names = names();
    assert!(names.len() > 20 && names.contains(&"listen") && names.contains(&"log"), "{names:?}");
    for name in names {
        // Nothing at all may be said of `log`.
        let nonsense = if name == "log" { "xml" } else { "" };
        let output = server().env(variable(name), nonsense).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{name}: {told}");
        assert!(told.contains(&format!("--{name}")) && told.contains("allowed"), "{name}: {told}");
    }
}

/// How many connections a server takes at most.
fn connections(server: &Running) -> u64 {
    let db = Database::connect(server.cluster_file()).unwrap();
    let document: Value = db.status_json().wait().unwrap().parse().unwrap();
    document["cluster"]["plinth"]["server"]["connections_max"].as_u64().unwrap()
}

#[test]
fn the_environment_counts_before_the_file_and_the_command_line_before_the_environment() {
    let place = scratch();
    // A directory for each server: its cluster file keeps the port that the system chose.
    let [file, in_file, in_variable, in_argument, alone] =
        ["plinth.toml", "in-file", "in-variable", "in-argument", "alone"]
            .map(|name| place.path().join(name));
    let text = format!(
        "dir = {:?}\nlisten = \"127.0.0.1:0\"\nconnections = 5\n",
        in_file.to_str().unwrap()
    );
    block_on(Env::real().files().replace(&file, text.as_bytes())).unwrap();
    let start = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = server();
        command.env("PLINTH_CONFIG", &file).envs(variables.iter().copied()).args(arguments);
        Running::of(&mut command)
    };
    // All of it from a file that a variable names.
    let running = start(&[], &[]);
    assert_eq!((running.cluster_file(), connections(&running)), (in_file.join("fdb.cluster"), 5));
    assert_eq!(running.terminate(), Some(0));
    let variables = [
        ("PLINTH_DIR", in_variable.to_str().unwrap()),
        ("PLINTH_CONNECTIONS", "7"),
        ("PLINTH_LISTEN", "127.0.0.1:0"),
    ];
    let running = start(&variables, &[]);
    assert_eq!(
        (running.cluster_file(), connections(&running)),
        (in_variable.join("fdb.cluster"), 7)
    );
    assert_eq!(running.terminate(), Some(0));
    let running =
        start(&variables, &["--connections", "9", "--dir", in_argument.to_str().unwrap()]);
    assert_eq!(
        (running.cluster_file(), connections(&running)),
        (in_argument.join("fdb.cluster"), 9)
    );
    assert_eq!(running.terminate(), Some(0));
    // And nothing but the environment.
    let variables = [("PLINTH_DIR", alone.to_str().unwrap()), variables[1], variables[2]];
    let running = Running::of(server().env_remove("PLINTH_CONFIG").envs(variables));
    assert_eq!(connections(&running), 7);
    assert_eq!(running.terminate(), Some(0));
}

/// What a server with these settings tells of its life, an event each.
fn events(settings: &[&str], then: impl FnOnce(&Database)) -> Vec<Value> {
    let place = scratch();
    let mut command = server();
    command
        .arg("--dir")
        .arg(place.path().join("data"))
        .args(["--listen", "127.0.0.1:0"])
        .args(settings);
    let mut running = Running::of(command.stderr(Stdio::piped()));
    let mut stderr = running.child.stderr.take().unwrap();
    then(&Database::connect(running.cluster_file()).unwrap());
    assert_eq!(running.terminate(), Some(0));
    let mut told = String::new();
    stderr.read_to_string(&mut told).unwrap();
    told.lines().map(|line| line.parse().unwrap_or_else(|_| panic!("no event: {line}"))).collect()
}

#[test]
fn events_are_told_as_the_setting_says() {
    assert_eq!(events(&["--log", "off"], |_| ()), Vec::<Value>::new());
    let told = events(&["--log", "json"], |_| ());
    let said: Vec<_> = told.iter().map(|event| event["message"].as_str().unwrap()).collect();
    let life = [
        "plinth server starts",
        "database opened",
        "serving clients",
        "the server ends: it was asked to",
        "database closed",
        "the server has ended",
    ];
    assert_eq!(said, life);
    let opened = &told[1];
    assert!(
        opened["seconds"].is_f64() && opened["log_bytes"].is_u64() && opened["rows"].is_u64(),
        "{opened}"
    );
    assert!(told[2]["addresses"].as_str().unwrap().starts_with("127.0.0.1:"), "{}", told[2]);
    assert_eq!(told[3]["signal"], "SIGTERM", "{}", told[3]);
    assert_eq!(events(&["--log", "json,error"], |_| ()), Vec::<Value>::new());
}

/// A transaction that reads, waits, and writes.
fn wait_between(db: &Database, key: &str, pause: Duration) {
    let tr = db.create_transaction();
    tr.get(key).wait().unwrap();
    block_on(Env::real().sleep(pause));
    tr.set(key, "late");
    tr.commit().wait().unwrap();
}

#[test]
fn slow_transactions_are_told_from_the_age_on_that_the_setting_says() {
    let mut kept = Value::Null;
    let told = events(&["--log", "json,warn", "--slow-ms", "20"], |db| {
        wait_between(db, "slow one", Duration::from_millis(30));
        let document: Value = db.status_json().wait().unwrap().parse().unwrap();
        kept = document["cluster"]["plinth"]["slow_transactions"][0].clone();
    });
    let slow: Vec<_> = told.iter().filter(|event| event["first_key"] == "slow one").collect();
    let [event] = &slow[..] else { panic!("{told:?}") };
    assert_eq!((&event["message"], &event["level"]), (&"slow transaction".into(), &"WARN".into()));
    assert!(event["age_ms"].as_u64().is_some_and(|age| age >= 20), "{event}");
    assert!(event["time"].as_str().is_some() && event["bytes"].as_u64().is_some(), "{event}");
    assert_eq!((&event["mutations"], &event["version"]), (&1.into(), &kept["version"]));
    assert_eq!(kept["first_key"], "slow one", "{kept}");
    // An hour passes on no machine.
    let told = events(&["--log", "json,warn", "--slow-ms", "3600000"], |db| {
        wait_between(db, "quick", Duration::from_millis(30));
    });
    assert_eq!(told, Vec::<Value>::new());
}
