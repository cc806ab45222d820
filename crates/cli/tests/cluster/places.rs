//! Who votes, by which name, and how clients hear of it: servers that are excluded stay so and are
//! not counted on; a cluster file that names one server or a part of them leads to all; a server
//! whose directory is older than what it has acknowledged ends. All with real processes and files.

use super::common::scratch;
use super::series::until;
use super::{Cluster, command, count, judge, members, status_until, unused_addresses};
use plinth::{ClusterFile, Database, TransactionOption};
use plinth_env::{Env, block_on};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What the shell says to a command.
fn shell(cluster: &Cluster, words: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
    command.arg("shell").arg("--cluster-file").arg(&cluster.file).args(["--exec", words]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
}

/// The cluster file has names of machines. A server that was excluded isn't named there any more,
/// so after a restart it called itself by its number: that was news of a move, and by its new
/// address it was not excluded.
#[test]
fn an_excluded_server_stays_excluded_by_its_name_when_it_starts_again() {
    let place = scratch();
    let addresses = unused_addresses(3);
    let named: Vec<_> =
        addresses.iter().map(|address| address.replace("127.0.0.1", "localhost")).collect();
    let mut cluster = Cluster::form_at(place.path(), &named, addresses);
    let (env, db) = (Env::real(), Database::connect(&cluster.file).unwrap());
    count(&db, "row/1").unwrap();
    let mut all = named.clone();
    all.sort();
    status_until(&db, |status| members(status) == (all.clone(), vec![]));
    let manage = |key: String| {
        db.transact_blocking(|tr| {
            tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites)?;
            tr.set([b"\xff\xff/management/excluded/", key.as_bytes()].concat(), "");
            Ok(())
        })
    };
    manage(named[1].clone()).unwrap();
    let left: Vec<_> = all.iter().filter(|name| **name != named[1]).cloned().collect();
    let is_out =
        |status: &serde_json::Value| members(status) == (left.clone(), vec![named[1].clone()]);
    status_until(&db, is_out);
    let is_named = || {
        block_on(ClusterFile::read(&env, &cluster.file)).unwrap().address_list() == left.join(",")
    };
    while !is_named() {
        block_on(env.sleep(Duration::from_millis(20)));
    }
    assert_eq!(cluster.servers[1].take().unwrap().terminate(), Some(0));
    cluster.start(1);
    count(&db, "row/2").unwrap();
    // Long enough for it to be heard of, and for whoever leads to act on that.
    block_on(env.sleep(Duration::from_millis(1500)));
    let status = status_until(&db, |status| members(status).0.len() + members(status).1.len() == 3);
    assert!(is_out(&status), "{:?}", members(&status));
    // Three are asked for, and one of three is excluded: that can't be, and is said at once.
    let said = shell(&cluster, "configure double");
    assert!(
        said.contains("double takes 3 servers, and the cluster has 2 besides 1 that are excluded"),
        "{said}"
    );
}

/// A server that had moved heard from nobody where it is: once it led, clients were sent to its old
/// address, and neither reads nor commits came through any more.
#[test]
fn a_server_that_has_moved_leads_at_its_new_address() {
    let place = scratch();
    let mut cluster = Cluster::form(place.path());
    let (env, db) = (Env::real(), Database::connect(&cluster.file).unwrap());
    let old = place.path().join("old.cluster");
    let line = block_on(env.files().read(&cluster.file)).unwrap();
    block_on(env.files().replace(&old, &line)).unwrap();
    count(&db, "row/1").unwrap();
    // Only the one that moves has all that was acknowledged, so the other one can't lead.
    assert_eq!(cluster.servers[1].take().unwrap().terminate(), Some(0));
    count(&db, "row/2").unwrap();
    drop(db);
    for at in [0, 2] {
        assert_eq!(cluster.servers[at].take().unwrap().terminate(), Some(0));
    }
    cluster.addresses[2] = unused_addresses(1).remove(0);
    cluster.start_together(&[1, 2]);
    let moved = cluster.addresses[2].clone();
    let new = place.path().join("new.cluster");
    let line = format!("test:three@{},{}\n", cluster.addresses[1], moved);
    block_on(env.files().replace(&new, line.as_bytes())).unwrap();
    for (file, row) in [(&old, "row/3"), (&new, "row/4")] {
        let db = Database::connect(file).unwrap();
        let status = status_until(&db, |status| members(status).0.contains(&moved));
        assert_eq!(members(&status).0.len(), 3, "{:?}", members(&status));
        count(&db, row).unwrap();
    }
    assert_eq!(cluster.leader(), 2);
    judge(&Database::connect(&old).unwrap(), 4);
    until_all_are_named(&cluster, &cluster.file);
}

/// Which member a status document is of.
fn node(status: &serde_json::Value) -> Option<&serde_json::Value> {
    status.pointer("/cluster/plinth/member/node")
}

/// Two of three servers didn't lead, and clients whose file named one of these alone waited for
/// ever, without a word.
#[test]
fn a_cluster_file_that_names_one_server_leads_to_the_others() {
    let place = scratch();
    let mut cluster = Cluster::form(place.path());
    let (leader, env) = (cluster.leader(), Env::real());
    let alone: Vec<_> = (0..3)
        .map(|at| {
            let file = place.path().join(format!("alone-{at}.cluster"));
            let line = format!("test:three@{}\n", cluster.addresses[at]);
            block_on(env.files().replace(&file, line.as_bytes())).unwrap();
            let db = Database::connect(&file).unwrap();
            count(&db, &format!("alone/{at}")).unwrap();
            (file, db)
        })
        .collect();
    // Each tells how the server is that its file names.
    let nodes: std::collections::BTreeSet<_> = alone
        .iter()
        .map(|(_, db)| {
            let is_told = |status: &serde_json::Value| node(status).is_some();
            node(&status_until(db, is_told)).map(ToString::to_string)
        })
        .collect();
    assert_eq!(nodes.len(), 3, "{nodes:?}");
    // Whoever is led on goes on without the server that its file named.
    let other = (leader + 1) % 3;
    cluster.servers[other].take().unwrap().kill();
    count(&alone[other].1, "alone/again").unwrap();
    let known = alone[other].1.endpoint().describe().connection_string;
    assert!(cluster.addresses.iter().all(|address| known.contains(address)), "{known}");
    until_all_are_named(&cluster, &alone[other].0);
}

/// The server that leads never said that it doesn't, so a client that knew it alone was lost with
/// it, and its status said that its cluster file was as it should be.
#[test]
fn a_client_that_knows_the_leader_alone_learns_of_the_others_before_it_is_gone() {
    let place = scratch();
    let mut cluster = Cluster::form(place.path());
    let (leader, env) = (cluster.leader(), Env::real());
    let file = place.path().join("leader.cluster");
    let line = format!("test:three@{}\n", cluster.addresses[leader]);
    block_on(env.files().replace(&file, line.as_bytes())).unwrap();
    let db = Database::connect(&file).unwrap();
    count(&db, "leader/1").unwrap();
    until_all_are_named(&cluster, &file);
    let path = serde_json::json!(file.display().to_string());
    status_until(&db, |status| status.pointer("/client/cluster_file/path") == Some(&path));
    cluster.servers[leader].take().unwrap().kill();
    count(&db, "leader/2").unwrap();
    // One that is busy may take longer to answer than it is waited for.
    until("the list says who is away", || {
        let listed = shell(&cluster, "kill list");
        let is_told = |(at, address): (usize, &String)| {
            let but = if at == leader { " (can't be reached)" } else { "" };
            listed.lines().any(|line| line == format!("{address} server{but}"))
        };
        cluster.addresses.iter().enumerate().all(is_told).then_some(())
    });
}

/// Waits until a cluster file names all servers.
fn until_all_are_named(cluster: &Cluster, file: &Path) {
    let env = Env::real();
    for _ in 0..200 {
        let text = block_on(env.files().read(file)).unwrap();
        let text = String::from_utf8_lossy(&text);
        if cluster.addresses.iter().all(|address| text.contains(address)) {
            return;
        }
        block_on(env.sleep(Duration::from_millis(100)));
    }
    panic!("the cluster file {} doesn't name all", file.display());
}

/// A client that had heard of two voters wrote so after the third had its vote back: it had the
/// last word, as servers compared the voters with what they had written themselves.
#[test]
fn servers_have_their_cluster_file_name_all_who_vote_whoever_wrote_it_last() {
    let place = scratch();
    let cluster = Cluster::form(place.path());
    let line = format!("test:three@{}\n", cluster.addresses[..2].join(","));
    block_on(Env::real().files().replace(&cluster.file, line.as_bytes())).unwrap();
    until_all_are_named(&cluster, &cluster.file);
}

/// It ended with exit code 1, so that systemd started it again, and until the leader's next word it
/// could vote for servers that lacked what it had helped to commit.
#[test]
fn a_server_on_an_older_copy_of_its_directory_ends_so_that_nobody_starts_it_again() {
    let place = scratch();
    let mut cluster = Cluster::form(place.path());
    let (env, db) = (Env::real(), Database::connect(&cluster.file).unwrap());
    count(&db, "row/1").unwrap();
    let at = (cluster.leader() + 1) % 3;
    let (dir, older) = (place.path().join(format!("node-{at}")), place.path().join("older"));
    assert_eq!(cluster.servers[at].take().unwrap().terminate(), Some(0));
    let copied = Command::new("cp").arg("-a").args([&dir, &older]).status().unwrap();
    assert!(copied.success());
    cluster.start(at);
    for row in 2..20 {
        count(&db, &format!("row/{row}")).unwrap();
    }
    // Long enough for the leader to hear that this server has them, too.
    block_on(env.sleep(Duration::from_millis(500)));
    cluster.servers[at].take().unwrap().kill();
    block_on(env.files().remove_dir_all(&dir)).unwrap();
    block_on(env.files().rename(&older, &dir)).unwrap();
    let output = command(place.path(), &cluster.file, &cluster.addresses[at], at).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("has acknowledged entries up to") && said.contains("empty directory"),
        "{said}"
    );
    count(&db, "row/20").unwrap();
}

/// `check` called a directory whole that no server starts with, and the server's error said: run
/// `check`.
#[test]
fn check_says_which_file_of_a_member_is_missing_or_damaged() {
    let place = scratch();
    let mut cluster = Cluster::form(place.path());
    count(&Database::connect(&cluster.file).unwrap(), "row/1").unwrap();
    assert_eq!(cluster.servers[0].take().unwrap().terminate(), Some(0));
    let (env, dir) = (Env::real(), place.path().join("node-0"));
    // Of another member of the same cluster.
    let theirs =
        |name: &str| block_on(env.files().read(&place.path().join("node-1").join(name))).unwrap();
    let run = |words: &[&Path]| {
        let output = Command::new(env!("CARGO_BIN_EXE_plinth")).args(words).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let check = || run(&[Path::new("check"), &dir]);
    let (code, told) = check();
    assert!(code == Some(0) && told.contains("it opens with every row"), "{told}");
    for name in ["CHARTER", "MEMBERS"] {
        let path = dir.join(name);
        let whole = block_on(env.files().read(&path)).unwrap();
        let mut flipped = whole.clone();
        flipped[20] ^= 1;
        let (longer, theirs) = ([&whole[..], &[0]].concat(), theirs(name));
        let short = &whole[..whole.len() - 1];
        for damaged in [None, Some(&flipped[..]), Some(short), Some(&longer), Some(&theirs)] {
            match damaged {
                None => block_on(env.files().remove(&path)).unwrap(),
                Some(bytes) => block_on(env.files().replace(&path, bytes)).unwrap(),
            }
            let (code, told) = check();
            assert!(code == Some(3) && told.contains(name), "{name}: {told}");
            assert!(told.contains("it joins them as a new one"), "{told}");
            let left = damaged.map(<[u8]>::to_vec);
            let output = command(place.path(), &cluster.file, &cluster.addresses[0], 0).output();
            let output = output.unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && error.contains(name), "{name}: {error}");
            assert_eq!(block_on(env.files().read(&path)).ok(), left, "{name} was changed");
        }
        block_on(env.files().replace(&path, &whole)).unwrap();
    }
    let (code, told) = run(&[Path::new("salvage"), &dir, &place.path().join("out")]);
    assert!(code == Some(0) && told.contains("everything that this server had"), "{told}");
    assert!(told.contains("other servers may have commits"), "{told}");
    cluster.start(0);
}
