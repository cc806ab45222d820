//! Each file of a database gone, short, long, another database's, of another moment: either the
//! database opens with every row, or it is refused by an error that names the file, `check` agrees,
//! and nothing was changed.
//!
//! A partial restore, an rsync with an exclude, a directory entry that was lost do such things.
//! They once led to a log that was asked for entries that it had let go of, to "every checksum
//! holds", and to an empty database.

mod common;
mod machines;

use common::disk::{Contents, contents, restore};
use common::*;
use machines::Machines;
use plinth_client::{Database, RangeOptions, StreamingMode};
use plinth_env::Env;
use plinth_env::simulated::Simulation;
use plinth_pipeline::cluster::{Frame, Parcel, Peers};
use plinth_pipeline::{EngineKind, Host, Node, NodeConfig, check};
use plinth_types::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const DIR: &str = "/db";

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn config(engine: EngineKind) -> NodeConfig {
    let mut config = NodeConfig { engine, ..tables::config() };
    config.log.first_segment_bytes = plinth_log::LogConfig::MIN_SEGMENT_BYTES;
    config.log.max_segment_bytes = plinth_log::LogConfig::MIN_SEGMENT_BYTES;
    config.log.spare_bytes = 16 << 10;
    config.follower_log_bytes = 16 << 10;
    config
}

/// A closed database, and what it was at earlier moments: long ago, and a few rows ago.
struct Lived {
    simulation: Simulation,
    machine: Env,
    earlier: Vec<Contents>,
    now: Contents,
    rows: Rows,
}

fn rows_in(moment: u8, part: u8) -> u8 {
    match (moment, part) {
        (2, 0) => 0,
        (2, _) => 5,
        _ => 60,
    }
}

/// How a database ended last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    /// By a kill, a second after its last commit: by then all of them are noted as durable.
    Killed,
}

fn live(engine: EngineKind, seed: u64, end: End) -> Lived {
    let simulation = Simulation::new(seed);
    let mut machine = simulation.process("node");
    let mut rows = Rows::new();
    let mut moments = Vec::new();
    for moment in 0u8..3 {
        let killed = simulation.run_until(async {
            let node =
                Node::open(&machine, Path::new(DIR), config(engine)).await.unwrap().endpoint();
            for part in 0u8..2 {
                for n in 0..rows_in(moment, part) {
                    let (key, value) = (vec![moment, part, n], vec![n ^ seed as u8; 200]);
                    set(&node, &key, &value).await.unwrap();
                    rows.insert(key, value);
                }
                // Of the second part of each moment all is in the log alone.
                if part == 0 && moment < 2 {
                    machine.sleep(Duration::from_secs(8)).await;
                    version(&node).await;
                    machine.sleep(Duration::from_secs(1)).await;
                    node.node().checkpoint().await.unwrap();
                }
            }
            if moment == 2 && end == End::Killed {
                machine.sleep(Duration::from_secs(1)).await;
                return Some(node);
            }
            node.node().close().await.unwrap();
            None
        });
        if let Some(node) = killed {
            simulation.kill(&machine);
            drop(node);
            machine = simulation.restart(&machine);
        }
        moments.push(contents(&simulation, &machine, DIR));
    }
    let now = moments.pop().unwrap();
    Lived { simulation, machine, earlier: moments, now, rows }
}

/// What may become of a file: a name, and the contents, if there are any left.
fn fates(path: &Path, ours: &Lived, other: &Contents) -> Vec<(String, Option<Vec<u8>>)> {
    let bytes = &ours.now[path];
    let mut fates = vec![("gone".to_string(), None)];
    for cut in [bytes.len(), bytes.len() / 2, 1] {
        if cut > 0 && cut <= bytes.len() {
            fates.push((format!("{cut} bytes short"), Some(bytes[..bytes.len() - cut].to_vec())));
        }
    }
    for more in [&[0; 1][..], &[0xa5; 100], &[0x5a; 5000]] {
        fates.push((format!("{} bytes longer", more.len()), Some([bytes, more].concat())));
    }
    if let Some(theirs) = other.get(path).or_else(|| alike(path, other)) {
        fates.push(("another's".into(), Some(theirs.clone())));
    }
    for (moment, earlier) in ours.earlier.iter().enumerate() {
        if let Some(earlier) = earlier.get(path).filter(|earlier| *earlier != bytes) {
            fates.push((format!("of moment {moment}"), Some(earlier.clone())));
        }
    }
    fates
}

/// A file of the same kind, whose name has another number.
fn alike<'c>(path: &Path, others: &'c Contents) -> Option<&'c Vec<u8>> {
    let kind =
        |path: &Path| path.to_string_lossy().split_once("-00").map(|(kind, _)| kind.to_string());
    let ours = kind(path)?;
    others.iter().find(|(path, _)| kind(path).as_ref() == Some(&ours)).map(|(_, bytes)| bytes)
}

async fn rows_of(machine: &Env, engine: EngineKind) -> Result<Rows> {
    let node = Node::open(machine, Path::new(DIR), config(engine)).await?.endpoint();
    let mut found = Rows::new();
    for moment in 0u8..3 {
        for part in 0u8..2 {
            for n in 0..rows_in(moment, part) {
                let key = vec![moment, part, n];
                if let Some(value) = get(&node, &key).await {
                    found.insert(key, value.to_vec());
                }
            }
        }
    }
    node.node().close().await?;
    Ok(found)
}

/// The names by one of which an error may call the file. Of two segments of the log, one that ends
/// too early and one that begins too late look the same.
fn names(path: &Path) -> &str {
    let name = path.file_name().unwrap().to_str().unwrap();
    if name.starts_with("segment-") { "segment-" } else { name }
}

/// The database as it is now, with the whole log of another.
fn with_log_of(now: &Contents, other: &Contents) -> Contents {
    let is_log = |path: &Path| path.parent().is_some_and(|dir| dir.ends_with("log"));
    let rest = now.iter().filter(|(path, _)| !is_log(path));
    let log = other.iter().filter(|(path, _)| is_log(path));
    rest.chain(log).map(|(path, bytes)| (path.clone(), bytes.clone())).collect()
}

/// A database that was copied at an earlier moment, opened now and then, and written to.
fn other_course(engine: EngineKind, ours: &Lived, moment: usize, openings: u8) -> Contents {
    let Lived { simulation, machine, earlier, .. } = ours;
    restore(simulation, machine, DIR, &earlier[moment]);
    for opening in 0..openings {
        simulation.run_until(async {
            let node =
                Node::open(machine, Path::new(DIR), config(engine)).await.unwrap().endpoint();
            for n in 0..40 {
                set(&node, &[7, opening, n], &[n; 200]).await.unwrap();
            }
            node.node().close().await.unwrap();
        });
    }
    contents(simulation, machine, DIR)
}

/// The whole log of another moment: each of its checksums holds, and it is refused all the same
/// unless it has all that the engine's files have.
fn try_other_logs(engine: EngineKind) {
    let ours = live(engine, 1, End::Closed);
    let Lived { simulation, machine, earlier, now, .. } = &ours;
    // The engine's files of now have what was there at moment 1, and more than at moment 0.
    let foreign = [
        earlier[0].clone(),
        other_course(engine, &ours, 0, 1),
        other_course(engine, &ours, 0, 2),
        other_course(engine, &ours, 0, 5),
    ];
    for (number, other) in foreign.iter().enumerate() {
        let what = format!("{engine:?}: log {number}");
        let left = with_log_of(now, other);
        restore(simulation, machine, DIR, &left);
        let report = simulation.run_until(check(machine, Path::new(DIR))).unwrap();
        let error = simulation.run_until(rows_of(machine, engine)).expect_err(&what);
        assert_eq!(error, Error::file_corrupt(), "{what}: {error}");
        assert!(error.to_string().contains("gen-1/log at offset 0: the log "), "{what}: {error}");
        let text: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
        assert!(
            text.iter().any(|problem| error.to_string().contains(problem)),
            "{what}: {text:?}, {error}"
        );
        assert!(contents(simulation, machine, DIR) == left, "{what}: something was changed");
    }
    for other in [earlier[1].clone(), other_course(engine, &ours, 1, 2)] {
        restore(simulation, machine, DIR, &other);
        let expected = simulation.run_until(rows_of(machine, engine)).unwrap();
        restore(simulation, machine, DIR, &with_log_of(now, &other));
        assert!(simulation.run_until(rows_of(machine, engine)).unwrap() == expected, "{engine:?}");
    }
    // The engine's files of an earlier moment: the log of now has let go of what would be missing.
    let left = with_log_of(&earlier[0], now);
    restore(simulation, machine, DIR, &left);
    let error = simulation.run_until(rows_of(machine, engine)).expect_err("rows are missing");
    assert_eq!(error, Error::file_corrupt(), "{engine:?}: {error}");
    assert!(contents(simulation, machine, DIR) == left, "{engine:?}: something was changed");
}

#[test]
fn the_whole_log_of_another_moment_is_named() {
    try_other_logs(EngineKind::Memory);
    try_other_logs(EngineKind::Ssd);
}

/// Tries all of it, where `other` is the database that files come from which are another's, and
/// `rows_of` opens ours and gives its rows. Gives how often it opened and how often it was refused.
fn try_each_file(
    ours: &Lived,
    other: &Contents,
    engine: EngineKind,
    rows_of: impl AsyncFn(&Env, EngineKind) -> Result<Rows>,
) -> (u32, u32) {
    let Lived { simulation, machine, now, rows, .. } = ours;
    let (mut opened, mut refused) = (0, 0);
    let paths: Vec<PathBuf> = now.keys().cloned().collect();
    for path in &paths {
        for (fate, bytes) in fates(path, ours, other) {
            let what = format!("{engine:?}: {} {fate}", path.display());
            let mut left = now.clone();
            match bytes {
                Some(bytes) => drop(left.insert(path.clone(), bytes)),
                None => drop(left.remove(path)),
            }
            restore(simulation, machine, DIR, &left);
            let report = simulation.run_until(check(machine, Path::new(DIR))).unwrap();
            let mut after = contents(simulation, machine, DIR);
            if !left.contains_key(Path::new("LOCK")) {
                after.remove(Path::new("LOCK"));
            }
            assert!(after == left, "{what}: check changed something");
            match simulation.run_until(rows_of(machine, engine)) {
                Ok(found) => {
                    opened += 1;
                    assert!(found == *rows, "{what}: {} rows of {}", found.len(), rows.len());
                    assert_eq!(report.problems, [], "{what}: it opens, with every row");
                }
                Err(error) => {
                    refused += 1;
                    assert_eq!(error, Error::file_corrupt(), "{what}: {error}");
                    assert!(error.to_string().contains(names(path)), "{what}: {error}");
                    assert!(!report.problems.is_empty(), "{what}: check found nothing: {error}");
                    let text: String = report.problems.iter().map(ToString::to_string).collect();
                    assert!(text.contains(names(path)), "{what}: {text}");
                    assert!(
                        contents(simulation, machine, DIR) == left,
                        "{what}: something was changed"
                    );
                }
            }
        }
    }
    (opened, refused)
}

fn try_alone(engine: EngineKind, end: End) {
    let (ours, other) = (live(engine, 1, end), live(engine, 2, end));
    let (opened, refused) = try_each_file(&ours, &other.now, engine, rows_of);
    assert!(opened > 20 && refused > 30, "{opened} opened, {refused} refused");
}

#[test]
fn a_file_of_the_engine_memory_is_not_missed_or_is_named() {
    try_alone(EngineKind::Memory, End::Closed);
}

#[test]
fn a_file_of_the_engine_ssd_is_not_missed_or_is_named() {
    try_alone(EngineKind::Ssd, End::Closed);
}

#[test]
fn a_file_of_the_engine_memory_after_a_kill_is_not_missed_or_is_named() {
    try_alone(EngineKind::Memory, End::Killed);
}

#[test]
fn a_file_of_the_engine_ssd_after_a_kill_is_not_missed_or_is_named() {
    try_alone(EngineKind::Ssd, End::Killed);
}

/// Nobody can be reached.
struct Alone;

impl Peers for Alone {
    fn send(&self, _: Frame) {}

    fn send_parcel(&self, _: Parcel) {}
}

/// What a member has that leads by itself: rows, and who the members are.
async fn rows_of_member(machine: &Env, engine: EngineKind) -> Result<Rows> {
    let host = Host::open(machine, Path::new(DIR), config(engine), Arc::new(Alone)).await?;
    let members = host.membership().map(|membership| membership.members);
    let mut found = Rows::from([(b"members".to_vec(), format!("{members:?}").into_bytes())]);
    while !host.leadership().is_ready {
        machine.sleep(Duration::from_millis(50)).await;
    }
    let tr = Database::new(Arc::new(host.endpoint())).create_transaction();
    let all = RangeOptions::from("".."\u{7f}").mode(StreamingMode::WantAll);
    let rows = tr.range(all).collect().await?;
    found.extend(rows.into_iter().map(|row| (row.key.to_vec(), row.value.to_vec())));
    host.close().await?;
    Ok(found)
}

/// The directory of a cluster's only voter, and that of another member, which joins between the
/// first two moments.
fn live_member(engine: EngineKind) -> (Lived, Contents) {
    let mut machines = Machines::new(1, 1, config(engine));
    let mut moments = Vec::new();
    for moment in 0u8..3 {
        machines.await_leader(|at| at == 0);
        if moment == 1 {
            machines.join(0, "10.0.0.9:4500").unwrap();
        }
        let all = machines.envs.len();
        for part in 0u8..2 {
            for n in 0..rows_in(moment, part) {
                machines.set(0, &format!("{moment}/{part}/{n}"), &"x".repeat(200)).unwrap();
            }
            machines.sim.run_for(Duration::from_secs(2));
            if part == 0 && moment < 2 {
                for at in 0..all {
                    machines.sim.run_until(machines.host(at).checkpoint()).unwrap();
                }
            }
        }
        for at in 0..all {
            machines.sim.run_until(machines.host(at).close()).unwrap();
            machines.crash(at);
        }
        let mut left = contents(&machines.sim, &machines.envs[0], DIR);
        // It holds nothing, and is large.
        left.remove(Path::new("RESERVE"));
        moments.push(left);
        if moment < 2 {
            (0..all).for_each(|at| machines.open(at).unwrap());
        }
    }
    let theirs = contents(&machines.sim, &machines.envs[1], DIR);
    let now = moments.pop().unwrap();
    assert_ne!(moments[0][Path::new("MEMBERS")], now[Path::new("MEMBERS")]);
    let Machines { sim: simulation, envs, .. } = machines;
    let machine = envs[0].clone();
    let rows = simulation.run_until(rows_of_member(&machine, engine)).unwrap();
    assert!(rows.len() > 200, "{} rows", rows.len());
    (Lived { simulation, machine, earlier: moments, now, rows }, theirs)
}

fn try_member(engine: EngineKind) {
    let (ours, other) = live_member(engine);
    let (opened, refused) = try_each_file(&ours, &other, engine, rows_of_member);
    assert!(opened > 20 && refused > 30, "{opened} opened, {refused} refused");
}

/// Membership, votes and the log are what a cluster counts on.
#[test]
fn a_file_of_a_member_with_engine_memory_is_not_missed_or_is_named() {
    try_member(EngineKind::Memory);
}

#[test]
fn a_file_of_a_member_with_engine_ssd_is_not_missed_or_is_named() {
    try_member(EngineKind::Ssd);
}
