//! `plinth status`, `plinth top` and `PLINTH_LOG` as their users meet them.

use plinth::Database;
use plinth_bench::Value;
use plinth_env::{Env, TemporaryDir, block_on};
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str], log: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
    command.args(arguments).env("PLINTH_LOG", log).stdin(Stdio::null()).output().unwrap()
}

fn filled() -> (TemporaryDir, String) {
    let place = block_on(Env::real().files().temporary_dir("plinth-cli-monitor")).unwrap();
    let dir = place.path().join("data").display().to_string();
    let db = Database::open(&dir).unwrap();
    db.transact_blocking(|tr| {
        tr.set("key", "value");
        Ok(())
    })
    .unwrap();
    db.close().unwrap();
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
    assert!(events[0]["version"].as_i64().is_some() && events[0]["time"].as_str().is_some(), "{json}");
    assert_eq!(said("json,error"), "");
    assert_eq!(run(&["status", &dir], "xml").status.code(), Some(2));
}
