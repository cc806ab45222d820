//! `plinth status`, `plinth top` and `PLINTH_LOG` as their users meet them.

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
