//! Directories of a cluster's members that earlier commits wrote are opened, and go on as a
//! cluster, whatever has become of the formats since.
//!
//! `tests/formats/VERSION/member-ENGINE.tar.gz` has those of three voters and of one that follows,
//! as a loss of power left them: rows in files and behind them in the log, entries of every kind, a
//! promise in more than one term, members that have changed. `member-ENGINE.rows` is what was in
//! all of them. They stay there for good; what is written today is judged in the same way, and left
//! in the directory that `PLINTH_FORMATS` names. `docs/format/README.md` says when there is to be a
//! new one.

#[path = "../../plinth/tests/formats/archives.rs"]
#[expect(dead_code, reason = "the other tests of formats use all of it")]
mod archives;
mod machines;

use archives::{KEPT, hex, kept, pack, rows_of_archive, unpack};
use machines::{DIR, Machines};
use plinth_client::RangeOptions;
use plinth_env::{Env, TemporaryDir, block_on};
use plinth_pipeline::cluster::Part;
use plinth_pipeline::{EngineKind, NodeConfig};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Three vote, and one follows.
const MACHINES: usize = 4;
/// What the directories are below, in an archive.
const NAME: &str = "members";

fn config(engine: EngineKind) -> NodeConfig {
    let mut config = NodeConfig { engine, ..NodeConfig::default() };
    config.log.first_segment_bytes = 64 << 10;
    config
}

/// All files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let (env, mut found) = (Env::real(), Vec::new());
    for name in block_on(env.files().list(dir)).unwrap() {
        let path = dir.join(name);
        match block_on(env.files().list(&path)) {
            Ok(_) => found.extend(files(&path)),
            Err(_) => found.push(path),
        }
    }
    found
}

/// Each row that a node has as of the leader's version, in a line.
fn rows(machines: &Machines, leader: usize, at: usize) -> Vec<String> {
    let begun = machines.database(leader).create_transaction();
    let version = machines.sim.run_until(begun.get_read_version()).expect("a version");
    let tr = machines.database(at).create_transaction();
    tr.set_read_version(version);
    let all = RangeOptions::from(&b""[..]..&b"\xff"[..]);
    let rows = machines.sim.run_until(tr.range(all).collect()).expect("rows");
    rows.iter().map(|row| format!("row {} {}", hex(&row.key), hex(&row.value))).collect()
}

/// A cluster with something of everything in its directories, whose machines have lost their power.
/// Gives what is in it.
fn filled(engine: EngineKind) -> (Machines, Vec<String>) {
    let mut machines = Machines::new(7, 3, config(engine));
    let put = |machines: &Machines, leader, what: &str| {
        for n in 0..60 {
            machines.set(leader, &format!("{what}/{n:02}"), &format!("{n}").repeat(50)).unwrap();
        }
    };
    let first = machines.await_leader(|_| true);
    put(&machines, first, "in files");
    let begun = machines.database(first).create_transaction();
    let newest = machines.sim.run_until(begun.get_read_version()).expect("a version");
    for at in 0..3 {
        // The engine `ssd` keeps in memory what transactions may yet read at.
        while machines.sim.run_until(machines.node(at).checkpoint()).expect("files") < newest {
            machines.sim.run_for(Duration::from_secs(1));
            machines.set(first, "time passes", "1").expect("a commit");
        }
    }
    assert_eq!(machines.join(first, "10.0.0.9:4500"), Ok(MACHINES - 1));
    machines.sim.run_for(Duration::from_secs(1));
    machines.crash(first);
    let second = machines.await_leader(|_| true);
    put(&machines, second, "in the log");
    machines.open(first).expect("it opens");
    machines.sim.run_for(Duration::from_secs(2));
    let expected = rows(&machines, second, second);
    (0..MACHINES).for_each(|at| machines.crash(at));
    (machines, expected)
}

/// Writes what is on the machines into an archive.
fn packed(machines: &Machines, outside: &Path) -> PathBuf {
    let env = Env::real();
    for at in 0..MACHINES {
        for (path, bytes) in machines.files(at) {
            let path = path.strip_prefix(DIR).expect("it is of the database").to_owned();
            let path = outside.join(NAME).join(format!("node-{}", at + 1)).join(path);
            block_on(env.files().create_dir_all(path.parent().expect("a directory"))).unwrap();
            block_on(env.files().replace(&path, &bytes)).unwrap();
        }
    }
    let archive = outside.join("members.tar.gz");
    pack(outside, NAME, &archive);
    archive
}

/// Machines with the directories of an archive.
fn unpacked(archive: &Path, engine: EngineKind) -> Machines {
    let place = temporary();
    unpack(archive, place.path());
    let machines = Machines::empty(8, MACHINES, config(engine));
    for at in 0..MACHINES {
        let dir = place.path().join(NAME).join(format!("node-{}", at + 1));
        let read = |path: PathBuf| {
            let bytes = block_on(Env::real().files().read(&path)).unwrap();
            (Path::new(DIR).join(path.strip_prefix(&dir).unwrap()), bytes)
        };
        machines.put_files(at, &files(&dir).into_iter().map(read).collect::<Vec<_>>());
    }
    machines
}

fn temporary() -> TemporaryDir {
    block_on(Env::real().files().temporary_dir("plinth-member-formats")).unwrap()
}

/// All members have what is expected, take more, and have that after one more loss of power.
fn judge(name: &str, archive: &Path, expected: &[String]) {
    let engine = if name.ends_with("ssd") { EngineKind::Ssd } else { EngineKind::Memory };
    let mut machines = unpacked(archive, engine);
    for at in 0..MACHINES {
        machines.open(at).unwrap_or_else(|error| panic!("{name}, node {}: {error}", at + 1));
    }
    let leader = machines.await_leader(|_| true);
    machines.sim.run_for(Duration::from_secs(1));
    for at in 0..MACHINES {
        assert!(rows(&machines, leader, at) == expected, "{name}: rows of node {}", at + 1);
        let members = machines.node(at).membership().expect("a member").members;
        let follow = members.nodes.iter().filter(|node| node.part == Part::Learner);
        assert_eq!(follow.map(|node| &node.address[..]).collect::<Vec<_>>(), ["10.0.0.9:4500"]);
    }
    machines.set(leader, "more", name).expect("a commit");
    machines.crash(leader);
    let next = machines.await_leader(|_| true);
    machines.set(next, "more still", name).expect("a commit");
    machines.open(leader).expect("it opens");
    machines.sim.run_for(Duration::from_secs(2));
    let mut expected = expected.to_vec();
    for key in ["more", "more still"] {
        expected.push(format!("row {} {}", hex(key.as_bytes()), hex(name.as_bytes())));
    }
    expected.sort();
    for at in 0..MACHINES {
        assert!(rows(&machines, next, at) == expected, "{name}: later rows of node {}", at + 1);
        assert!(machines.host(at).failure().is_none(), "{name}: node {}", at + 1);
    }
}

#[test]
fn members_of_earlier_commits_go_on_as_a_cluster() {
    let kept = kept("member-");
    assert!(kept.len() >= 2, "{KEPT} has {kept:?}");
    for (name, archive) in &kept {
        let expected: Vec<_> = rows_of_archive(archive).lines().map(str::to_owned).collect();
        assert!(expected.len() >= 120, "{name} has {} rows", expected.len());
        judge(name, archive, &expected);
    }
}

#[test]
fn todays_members_are_read() {
    let out = std::env::var_os("PLINTH_FORMATS").map(PathBuf::from);
    for (name, engine) in [("member-memory", EngineKind::Memory), ("member-ssd", EngineKind::Ssd)] {
        let (machines, expected) = filled(engine);
        let place = temporary();
        let archive = packed(&machines, place.path());
        judge(name, &archive, &expected);
        let Some(out) = &out else { continue };
        let env = Env::real();
        let files = env.files();
        let text = expected.join("\n") + "\n";
        block_on(async {
            files.create_dir_all(out).await?;
            let bytes = files.read(&archive).await?;
            files.replace(out.join(format!("{name}.tar.gz")), &bytes).await?;
            files.replace(out.join(format!("{name}.rows")), text.as_bytes()).await
        })
        .unwrap();
    }
}
