//! A cluster without a majority: what says how a database fares says that it can't be used, and
//! for which want. What such a cluster had, or one that was restored in a wrong way, is brought
//! into a new one. All with real servers.

use super::common::scratch;
use super::series::{ask, until};
use super::{Cluster, command, count, status_until, unused_addresses};
use plinth::Database;
use plinth_env::{Env, block_on};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn plinth(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
    command.args(words).stdin(Stdio::null()).output().unwrap()
}

fn printed(words: &[&str]) -> String {
    String::from_utf8(plinth(words).stdout).unwrap()
}

/// "fully_recovered" it said, with healthy data, of a cluster that answered nobody; and with one
/// server of three away everything was healthy.
#[test]
fn a_cluster_without_a_majority_has_not_recovered_and_says_so_wherever_it_is_asked() {
    let place = scratch();
    let pages = unused_addresses(3);
    let more = pages.iter().map(|page| vec!["--http".to_owned(), page.clone()]).collect();
    let mut cluster = Cluster::form_with(place.path(), more);
    let db = Database::connect(&cluster.file).unwrap();
    count(&db, "row/1").unwrap();
    let well = status_until(&db, |status| status["client"]["database_status"]["healthy"] == true);
    assert_eq!(well["cluster"]["recovery_state"]["name"], "fully_recovered", "{well}");
    assert_eq!(well["cluster"]["data"]["state"]["min_replicas_remaining"], 3, "{well}");
    let before = shown_by_each(&cluster, &pages);
    cluster.servers[0].take().unwrap().kill();
    count(&db, "row/2").unwrap();
    let shown = until_shown(&pages[2], |shown| shown["may_fail"] == 0);
    let reachable = |at: usize| {
        let members = shown["members"].as_array().unwrap();
        let member = members.iter().find(|member| member["address"] == cluster.addresses[at]);
        member.unwrap()["reachable"].clone()
    };
    assert_eq!([0, 1, 2].map(reachable), [false, true, true].map(Value::from), "{shown}");
    let one_away = status_until(&db, |status| {
        status["cluster"]["full_replication"] == false
            && status["client"]["database_status"]["available"] == true
    });
    assert_eq!(one_away["client"]["database_status"]["healthy"], false, "{one_away}");
    assert_eq!(one_away["cluster"]["recovery_state"]["name"], "fully_recovered", "{one_away}");
    let state = &one_away["cluster"]["data"]["state"];
    assert_eq!((&state["name"], &state["healthy"]), (&"healing".into(), &false.into()), "{state}");
    cluster.servers[1].take().unwrap().kill();
    let lost = status_until(&db, |status| {
        status["cluster"]["recovery_state"]["name"] == "reading_coordinated_state"
    });
    for (path, wanted) in [
        ("/client/coordinators/quorum_reachable", false),
        ("/client/database_status/available", false),
        ("/client/database_status/healthy", false),
        ("/cluster/database_available", false),
        ("/cluster/data/state/healthy", false),
    ] {
        assert_eq!(lost.pointer(path), Some(&wanted.into()), "{path} in {lost}");
    }
    assert_eq!(lost["client"]["messages"][0]["name"], "quorum_not_reachable", "{lost}");
    is_told_by_each_command(cluster.file.to_str().unwrap());
    let overview = ask(&pages[2], "GET /api/overview", "").unwrap();
    assert!(
        overview.contains(r#""state":"failed""#) && overview.contains("Reads and commits wait"),
        "{overview}"
    );
    // A server hears of no leader for as long as an election may take before it says so.
    until("the health says that there is no leader", || {
        let health = ask(&pages[2], "GET /health", "").unwrap();
        health.starts_with("reads and commits wait for the other servers").then_some(())
    });
    cluster.start(0);
    count(&db, "row/3").unwrap();
    status_until(&db, |status| status["cluster"]["recovery_state"]["name"] == "fully_recovered");
    // Somebody was elected meanwhile.
    let now = until_shown(&pages[2], |shown| {
        let members = shown["members"].as_array().into_iter().flatten();
        members.filter(|member| member["reachable"] == true).count() == 2
    });
    assert!(now["elections"].as_u64() > before["elections"].as_u64(), "{before} {now}");
    assert!(now["term"].as_u64() > before["term"].as_u64(), "{before} {now}");
}

/// That one server of three is there, and it takes more.
fn is_told_by_each_command(file: &str) {
    let shown = plinth(&["status", file]);
    let told = String::from_utf8_lossy(&shown.stdout);
    assert_eq!(shown.status.code(), Some(1), "{told}");
    assert!(told.contains("NOT AVAILABLE (reading_coordinated_state)"), "{told}");
    assert_eq!(told.matches("1 of 3 servers").count(), 1, "it is said once: {told}");
    let top = printed(&["top", file, "--count", "1"]);
    assert!(top.contains("NOT AVAILABLE (reading_coordinated_state)"), "{top}");
    let shell = printed(&["shell", "--cluster-file", file, "--exec", "status"]);
    assert!(
        shell.contains("reading_coordinated_state") && shell.contains("missing_data"),
        "{shell}"
    );
}

/// The servers of a cluster as the console of one shows them, once they are as is wanted.
fn until_shown(page: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    until("the console shows the servers", || {
        let overview: Value = ask(page, "GET /api/overview", "").ok()?.parse().ok()?;
        Some(overview["servers"].clone()).filter(&wanted)
    })
}

/// What each console shows of a cluster that is well: all servers, which of them this is and which
/// leads, and how many entries the others lack, as far as the one that leads knows. Gives what the
/// last one shows.
fn shown_by_each(cluster: &Cluster, pages: &[String]) -> Value {
    let mut last = Value::Null;
    for (at, page) in pages.iter().enumerate() {
        let shown = until_shown(page, |shown| {
            let is_whole = |member: &Value| member["reachable"] == true && member["votes"] == true;
            // Of whoever leads there is nothing that it lacks.
            let is_known =
                |member: &Value| member["lag_entries"].is_u64() == (member["leads"] == false);
            let leaders = |members: &Vec<Value>| {
                members.iter().filter(|member| member["leads"] == true).count()
            };
            let members = shown["members"].as_array();
            let is_right = |member: &Value| is_whole(member) && is_known(member);
            members.is_some_and(|all| all.iter().all(is_right) && leaders(all) == 1)
                && shown["may_fail"] == 1
        });
        let members = shown["members"].as_array().unwrap();
        let mut addresses: Vec<_> =
            members.iter().map(|member| member["address"].as_str().unwrap()).collect();
        let mut wanted: Vec<_> = cluster.addresses.iter().map(String::as_str).collect();
        addresses.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(addresses, wanted, "{shown}");
        let is_here = |member: &&Value| member["is_here"] == true;
        let here: Vec<_> = members.iter().filter(is_here).collect();
        assert_eq!(here.len(), 1, "{shown}");
        assert_eq!(here[0]["address"], cluster.addresses[at], "{shown}");
        assert!(shown["elections"].as_u64() >= Some(1), "{shown}");
        assert!(shown["term"].as_u64() >= Some(1), "{shown}");
        last = shown;
    }
    last
}

/// Runs a command that has to end well.
fn done(words: &[&str]) {
    let output = plinth(words);
    let told = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&told));
}

/// The rows and the count of a database that was brought in, and that it is written to.
fn is_whole(cluster: &Cluster, rows: u64) {
    let db = Database::connect(&cluster.file).unwrap();
    let number = |value: Option<plinth::Bytes>| {
        value.map(|value| u64::from_be_bytes(value[..].try_into().unwrap()))
    };
    let tr = db.create_transaction();
    assert_eq!(number(tr.get("count").wait().unwrap()), Some(rows));
    for row in 1..=rows {
        assert_eq!(number(tr.get(format!("row/{row}")).wait().unwrap()), Some(row));
    }
    count(&db, "one more").unwrap();
}

/// What the operations guide has for it: a new cluster, of empty directories, into which a backup
/// comes, or what one server has.
#[test]
fn a_majority_that_is_gone_for_good_is_restored_into_a_new_cluster() {
    let place = scratch();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let mut cluster = Cluster::form(place.path());
    let db = Database::connect(&cluster.file).unwrap();
    (1..=100).for_each(|row| count(&db, &format!("row/{row}")).unwrap());
    let (file, backup) = (cluster.file.to_str().unwrap().to_owned(), path("backup"));
    done(&["backup", "now", "--cluster-file", &file, &backup]);
    // Without the first each commit needs the other two.
    cluster.wipe(0);
    (101..=120).for_each(|row| count(&db, &format!("row/{row}")).unwrap());
    drop(db);
    cluster.wipe(1);
    cluster.servers[2].take().unwrap().kill();

    let from = path("node-2");
    let saved = path("saved");
    done(&["salvage", &from, &saved]);
    for (name, rows) in [("of-saved", 120), ("of-backup", 100)] {
        block_on(Env::real().files().create_dir_all(&place.path().join(name))).unwrap();
        let new = Cluster::form(&place.path().join(name));
        let file = new.file.to_str().unwrap();
        match name {
            "of-saved" => done(&["migrate", "--from", &saved, "--to", file]),
            _ => done(&["restore", "-r", &backup, "--dest-cluster-file", file]),
        }
        is_whole(&new, rows);
    }
}

/// Brings a directory to another place.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// Waits for the end of a server that is to end by itself; gives its exit code and last words.
fn ends(mut command: Command) -> (Option<i32>, String) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    for _ in 0..600 {
        if server.try_wait().unwrap().is_some() {
            let output = server.wait_with_output().unwrap();
            return (output.status.code(), String::from_utf8(output.stderr).unwrap());
        }
        block_on(Env::real().sleep(Duration::from_millis(100)));
    }
    server.kill().unwrap();
    panic!("it goes on");
}

/// One server was away, another is restored from before: they have a majority, and lack what was
/// acknowledged. The third has it; it followed for ever without taking anything, and all was well.
#[test]
fn what_a_restored_majority_has_lost_is_told_by_the_server_that_has_it_and_saved_from_there() {
    let place = scratch();
    let mut cluster = Cluster::form(place.path());
    // It leads all the time: where the others have forgotten a term that they elect somebody in,
    // its last words are other ones.
    let keeper = cluster.leader();
    let (away, restored) = ((keeper + 1) % 3, (keeper + 2) % 3);
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (dir, older) = (place.path().join(format!("node-{restored}")), place.path().join("older"));
    let db = Database::connect(&cluster.file).unwrap();
    (1..=10).for_each(|row| count(&db, &format!("row/{row}")).unwrap());
    assert_eq!(cluster.servers[restored].take().unwrap().terminate(), Some(0));
    copy(&dir, &older);
    cluster.start(restored);
    assert_eq!(cluster.servers[away].take().unwrap().terminate(), Some(0));
    (11..=20).for_each(|row| count(&db, &format!("row/{row}")).unwrap());
    assert_eq!(cluster.leader(), keeper);
    for at in [restored, keeper] {
        assert_eq!(cluster.servers[at].take().unwrap().terminate(), Some(0));
    }
    block_on(Env::real().files().remove_dir_all(&dir)).unwrap();
    copy(&older, &dir);
    cluster.start_together(&[away, restored]);
    count(&db, "after").unwrap();
    let (code, last_words) =
        ends(command(&cluster.place, &cluster.file, &cluster.addresses[keeper], keeper));
    assert_eq!(code, Some(3), "{last_words}");
    for part in ["lost commits that were acknowledged", "older disks", "plinth salvage"] {
        assert!(last_words.contains(part), "{last_words}");
    }
    let saved = path("saved");
    done(&["salvage", &path(&format!("node-{keeper}")), &saved]);
    let new = place.path().join("new");
    block_on(Env::real().files().create_dir_all(&new)).unwrap();
    let new = Cluster::form(&new);
    done(&["migrate", "--from", &saved, "--to", new.file.to_str().unwrap()]);
    is_whole(&new, 20);
}
