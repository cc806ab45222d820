//! The protocol of a cluster's servers, where it can't rise; and what servers tell each other of
//! how they are set.

use super::common::scratch;
use super::{Cluster, command, count, members, status_until};
use plinth::Database;
use plinth::cluster::Spoken;
use plinth_env::{Env, block_on};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A server that was excluded, and not removed, is gone for good: the protocol of the servers stays
/// where it is, and whoever looks at the status hears why, and what to do.
#[test]
fn a_member_that_is_gone_holds_the_protocol_back_and_is_named() {
    let place = scratch();
    let older = ["--peer-protocol", "1"].map(str::to_owned).to_vec();
    let mut cluster = Cluster::form_with(place.path(), vec![older; 3]);
    let db = Database::connect(&cluster.file).unwrap();
    let file = cluster.file.clone();
    let shell = |words: &str| {
        let mut shell = Command::new(env!("CARGO_BIN_EXE_plinth"));
        shell.arg("shell").arg("--cluster-file").arg(&file).args(["--exec", words]);
        let done = shell.stdin(Stdio::null()).output().unwrap();
        String::from_utf8([done.stdout, done.stderr].concat()).unwrap()
    };
    count(&db, "row/1").unwrap();
    assert!(shell("exclude").contains("Nobody is excluded"));
    let gone = cluster.addresses[2].clone();
    // One word more than `exclude`, and it would have ended a server that is well.
    let told = shell(&format!("exclude failed {gone}"));
    assert!(told.contains("is there and answers") && told.contains("failed force"), "{told}");
    shell(&format!("exclude {gone}"));
    status_until(&db, |status| members(status).1 == [gone.clone()]);
    let held = |status: &serde_json::Value| {
        let messages = status["cluster"]["messages"].as_array().into_iter().flatten();
        let mut held = messages.filter(|message| message["name"] == "protocol_held_back");
        held.next().map(|message| message["description"].as_str().unwrap().to_owned())
    };
    let protocol =
        |status: &serde_json::Value| status["cluster"]["plinth"]["member"]["protocol"].as_u64();
    assert_eq!(held(&status_until(&db, |status| protocol(status) == Some(1))), None);
    assert_eq!(cluster.servers[2].take().unwrap().terminate(), Some(0));
    for at in 0..2 {
        assert_eq!(cluster.servers[at].take().unwrap().terminate(), Some(0));
        cluster.more[at].clear();
        cluster.start(at);
    }
    // While one of both had yet to be upgraded it was named too.
    let names_it = |status: &serde_json::Value| {
        // Of two voters one that is away is a majority.
        status["client"]["database_status"]["available"] == true
            && held(status).is_some_and(|told| {
                told.matches("can't be reached").count() == 1 && !told.contains("no newer one")
            })
    };
    let status = status_until(&db, names_it);
    assert!(
        held(&status).unwrap().contains(&format!("exclude failed {gone}")),
        "{:?}",
        held(&status)
    );
    assert_eq!(protocol(&status), Some(1));
    assert!(shell("status").contains("protocol stays at version 1"), "{}", shell("status"));
    shell(&format!("exclude failed {gone}"));
    let status = status_until(&db, |status| protocol(status) == Some(Spoken::THIS.newest.into()));
    assert_eq!(held(&status), None);
    // Each start of what was struck off ends so that it isn't started again. It said `ready` first,
    // and ended as after a failure that may pass.
    let mut removed = command(&cluster.place, &cluster.file, &gone, 2);
    let ended = removed.stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
    assert_eq!(ended.status.code(), Some(3), "{told}");
    assert!(told.contains("was removed from its cluster") && !told.contains("ready "), "{told}");
}

/// Nothing compared them, and how long a transaction might take depended on whom it met.
#[test]
fn servers_with_different_windows_are_named_by_the_one_that_leads() {
    let place = scratch();
    let window = |seconds: &str| ["--window", seconds].map(str::to_owned).to_vec();
    let windows = ["5", "6", "7"];
    let cluster = Cluster::form_with(place.path(), windows.map(window).to_vec());
    let told = |status: &serde_json::Value| {
        let messages = status["cluster"]["messages"].as_array().into_iter().flatten();
        let mut told = messages.filter(|message| message["name"] == "windows_differ");
        told.next().map(|message| message["description"].as_str().unwrap().to_owned())
    };
    let all_told = |told: &str| {
        let named = |(at, address): (usize, &String)| {
            let is_there = told.contains(&format!("{address} has {} s", windows[at]));
            is_there || told.contains(&format!("leads has {} s", windows[at]))
        };
        cluster.addresses.iter().enumerate().all(named)
    };
    // The one that leads knows, and a client keeps to one server: each is asked in turn.
    let env = Env::real();
    let text = block_on(env.files().read(&cluster.file)).unwrap();
    let text = String::from_utf8(text).unwrap();
    let (name, _) = text.split_once('@').expect("a cluster file");
    let mut last = None;
    for turn in 0..600 {
        let one = place.path().join("one.cluster");
        let file = format!("{name}@{}\n", cluster.addresses[turn % cluster.addresses.len()]);
        block_on(env.files().replace(&one, file.as_bytes())).unwrap();
        let db = Database::connect(&one).unwrap();
        let status = block_on(db.status_json()).unwrap().parse().unwrap();
        last = told(&status).or(last);
        if last.as_deref().is_some_and(all_told) {
            return;
        }
        block_on(env.sleep(Duration::from_millis(20)));
    }
    panic!("{last:?}");
}
