//! `plinth changes` as a user has it: a stream is registered, followed in a pipe, acknowledged and
//! removed.

use plinth::Local;
use plinth_env::{Env, block_on};
use std::process::{Command, Output};

fn plinth(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plinth")).args(arguments).output().expect("the program runs")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_stream_is_followed_in_a_pipe_and_comes_once_when_acknowledged() {
    let folder = block_on(Env::real().files().temporary_dir("cli-changes")).expect("a folder");
    let dir = folder.path().join("data");
    let path = dir.to_str().expect("a path of letters");
    let write = |key: &str| {
        let local = Local::open(&dir).expect("a database");
        let db = local.database();
        db.transact_blocking(|tr| {
            tr.set(key, "1");
            tr.set("elsewhere", "1");
            Ok(())
        })
        .expect("a commit");
        local.close().expect("it closes");
    };
    write("order/0");
    let registered =
        text(&plinth(&["changes", "register", "orders", "--prefix", "order/", "--dir", path]));
    assert!(registered.contains("stream 1 of orders"), "{registered}");
    write("order/1");
    let tail =
        ["changes", "tail", "orders", "--once", "--format", "json", "--acknowledge", "--dir", path];
    let lines = text(&plinth(&tail));
    let line: serde_json::Value = serde_json::from_str(lines.trim()).expect("one line of JSON");
    assert_eq!(
        (&line["type"], &line["key"], &line["value"]),
        (&"set".into(), &"order/1".into(), &"1".into())
    );
    assert_eq!(text(&plinth(&tail)), "", "what was acknowledged doesn't come again");
    write("order/2");
    assert!(
        text(&plinth(&["changes", "list", "--dir", path])).contains("orders: id 1, acknowledged")
    );
    assert!(text(&plinth(&tail)).contains("order/2"));
    text(&plinth(&["changes", "remove", "orders", "--dir", path]));
    let gone = plinth(&tail);
    assert!(!gone.status.success());
    let told = String::from_utf8_lossy(&gone.stderr).into_owned();
    assert!(told.contains("there is no stream of the name orders"), "{told}");
    assert!(told.contains("`plinth changes register orders` makes one"), "{told}");
}
