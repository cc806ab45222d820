//! A directory that is encrypted: nothing that clients wrote shows in any of its files, at any
//! time, and it opens with its keys alone. From the clear, or an older key, it comes to the newest
//! one by itself.
//!
//! Every file of the simulated machine's disk is searched for what was planted: whole, while the
//! database works, after a kill, after a close.

mod common;
mod machines;

use common::*;
use machines::Machines;
use plinth_client::Endpoint;
use plinth_env::Env;
use plinth_env::simulated::{Simulation, Unsynced};
use plinth_pipeline::{
    Chunk, EngineKind, Import, InProcess, Key, Keys, Node, NodeConfig, check_keys, check_with,
    is_encrypted, salvage_with,
};
use plinth_types::{Error, LogPosition, Rows};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

const DIR: &str = "/db";
const ENGINES: [EngineKind; 2] = [EngineKind::Memory, EngineKind::Ssd];
/// What keys and values are made of.
const PLANTED: [&[u8]; 2] = [b"planted-key", b"planted value"];

fn key(number: u8) -> Key {
    Key::of_file(&[number; Key::LEN]).expect("a key")
}

/// These keys, the newest first.
fn keys(numbers: &[u8]) -> Keys {
    Keys::new(&numbers.iter().map(|number| key(*number)).collect::<Vec<_>>())
}

fn config(engine: EngineKind, keys: &Keys) -> NodeConfig {
    let mut config = NodeConfig { engine, ..tables::config() };
    config.log.first_segment_bytes = 16 << 10;
    config.log.max_segment_bytes = 16 << 10;
    config.set_keys(keys.clone());
    config
}

async fn open(env: &Env, engine: EngineKind, keys: &Keys) -> plinth_types::Result<InProcess> {
    Ok(Node::open(env, Path::new(DIR), config(engine, keys)).await?.endpoint())
}

fn planted(n: usize) -> (Vec<u8>, Vec<u8>) {
    let join = |what: &[u8]| [what, format!("{n:05}").as_bytes()].concat();
    (join(PLANTED[0]), join(PLANTED[1]).repeat(20))
}

async fn plant(node: &InProcess, range: std::ops::Range<usize>) {
    for n in range {
        let (key, value) = planted(n);
        set(node, &key, &value).await.unwrap();
    }
}

async fn assert_planted(node: &InProcess, range: std::ops::Range<usize>) {
    for n in range {
        let (key, value) = planted(n);
        assert_eq!(get(node, &key).await.as_deref(), Some(&value[..]), "row {n}");
    }
}

/// Files, each with its bytes, but for those that go meanwhile.
fn contents(sim: &Simulation, env: &Env) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = sim.files(env).into_iter().map(|(path, _)| path);
    let read = |path: PathBuf| match sim.run_until(env.files().read(&path)) {
        Err(error) if error.is_not_found() => None,
        bytes => Some((path, bytes.unwrap())),
    };
    paths.filter_map(read).collect()
}

/// Files in which anything that was planted can be read.
fn files_that_show(sim: &Simulation, env: &Env) -> Vec<String> {
    let shows = |bytes: &[u8]| {
        PLANTED.iter().any(|text| bytes.windows(text.len()).any(|part| part == *text))
    };
    let all = contents(sim, env).into_iter();
    all.filter(|(_, bytes)| shows(bytes)).map(|(path, _)| path.display().to_string()).collect()
}

/// What the status document says of encryption.
async fn status(node: &InProcess) -> Value {
    let document: Value = serde_json::from_str(&node.status_json().await.unwrap()).unwrap();
    document["cluster"]["plinth"]["encryption"].clone()
}

/// Waits until nothing is left that another key has sealed.
async fn await_renewed(env: &Env, node: &InProcess) {
    for _ in 0..600 {
        if status(node).await["older_keys_needed"] == false {
            return;
        }
        env.sleep(Duration::from_millis(100)).await;
    }
    panic!("files are left of an older key: {}", status(node).await);
}

#[test]
fn nothing_shows_while_it_works_nor_after_a_kill_nor_when_it_is_closed() {
    for engine in ENGINES {
        let (sim, keys) = (Simulation::new(1), keys(&[1]));
        let mut env = sim.process("node");
        let mut rows = 0;
        for unsynced in [Unsynced::Kept, Unsynced::Lost, Unsynced::Seeded] {
            let node = sim.run_until(open(&env, engine, &keys)).unwrap();
            sim.run_until(plant(&node, rows..rows + 60));
            rows += 60;
            sim.run_until(env.sleep(Duration::from_secs(1)));
            sim.run_until(node.node().checkpoint()).unwrap();
            sim.run_until(plant(&node, rows..rows + 5));
            rows += 5;
            assert_eq!(files_that_show(&sim, &env), [""; 0], "{engine:?}");
            sim.crash_with(&env, unsynced);
            env = sim.restart(&env);
            assert_eq!(files_that_show(&sim, &env), [""; 0], "{engine:?}");
        }
        let node = sim.run_until(open(&env, engine, &keys)).unwrap();
        sim.run_until(assert_planted(&node, 0..rows));
        sim.run_until(node.node().close()).unwrap();
        assert_eq!(files_that_show(&sim, &env), [""; 0], "{engine:?}");
        let files = contents(&sim, &env);
        assert!(files.iter().any(|(path, _)| path.starts_with("/db/gen-1/log")));
        let data = if engine == EngineKind::Ssd { "tables" } else { "checkpoint" };
        assert!(
            files.iter().filter(|(path, _)| path.starts_with(format!("/db/gen-1/{data}"))).count()
                > 0
        );
    }
}

#[test]
fn without_its_key_it_is_not_opened_and_nothing_is_touched() {
    for engine in ENGINES {
        let (sim, given) = (Simulation::new(2), keys(&[1]));
        let env = sim.process("node");
        sim.run_until(async {
            let node = open(&env, engine, &given).await.unwrap();
            plant(&node, 0..40).await;
            env.sleep(Duration::from_secs(1)).await;
            node.node().checkpoint().await.unwrap();
            node.node().close().await.unwrap();
        });
        let before = contents(&sim, &env);
        for other in [Keys::none(), keys(&[2]), keys(&[3, 2])] {
            let error = sim.run_until(open(&env, engine, &other)).err().expect("a refusal");
            assert_eq!(error, Error::encrypt_key_not_found(), "{error}");
            let told = error.to_string();
            assert!(
                told.contains("/db/gen-1/") && told.contains("is encrypted with the key"),
                "{told}"
            );
            let given =
                if other.is_none() { "no key was given" } else { "the key that was given is" };
            assert!(told.contains(given), "{told}");
            let report = sim.run_until(check_with(&env, Path::new(DIR), &other)).unwrap();
            assert_eq!((report.problems.len(), report.locked.len()), (0, 1), "{report:?}");
            let out = sim.run_until(salvage_with(&env, Path::new(DIR), Path::new("/out"), &other));
            assert_eq!(out.err().map(Error::from), Some(Error::encrypt_key_not_found()));
            assert!(contents(&sim, &env) == before, "{engine:?}: something was touched");
        }
        let report = sim.run_until(check_with(&env, Path::new(DIR), &given)).unwrap();
        assert_eq!((report.problems, report.locked), (vec![], vec![]));
        let out = Path::new("/out");
        let saved = sim.run_until(salvage_with(&env, Path::new(DIR), out, &given)).unwrap();
        assert!(saved.problems.is_empty() && saved.rows >= 40, "{saved:?}");
        assert_eq!(files_that_show(&sim, &env), [""; 0]);
    }
}

/// Rows that were written in the clear, then with one key, then with the next: with each start it
/// has come to the newest, nothing shows, and what was before is needed no more.
#[test]
fn it_comes_to_each_new_key_by_itself_and_says_when() {
    for (seed, engine) in (0..8).flat_map(|seed| ENGINES.map(|engine| (seed, engine))) {
        let sim = Simulation::new(seed);
        let mut env = sim.process("node");
        let mut rows = 0;
        let node = sim.run_until(open(&env, engine, &Keys::none())).unwrap();
        sim.run_until(plant(&node, 0..60));
        sim.run_until(node.node().close()).unwrap();
        drop(node);
        assert!(!files_that_show(&sim, &env).is_empty());
        for given in [&[1][..], &[2, 1], &[3, 2, 1]] {
            let node = sim.run_until(open(&env, engine, &keys(given))).unwrap();
            let told = sim.run_until(status(&node));
            assert_eq!(told["older_keys_needed"], true, "{told}");
            assert_eq!(told["older_keys"].as_array().unwrap().len(), given.len() - 1);
            sim.run_until(plant(&node, rows..rows + 20));
            rows += 20;
            sim.run_until(await_renewed(&env, &node));
            assert_eq!(files_that_show(&sim, &env), [""; 0], "{engine:?}, {given:?}");
            sim.run_until(assert_planted(&node, 0..60));
            drop(node);
            sim.crash(&env);
            env = sim.restart(&env);
            let last = sim.run_until(open(&env, engine, &keys(&given[..1]))).unwrap();
            sim.run_until(assert_planted(&last, 0..60));
            let told = sim.run_until(status(&last));
            assert_eq!(told["older_keys_needed"], false, "{engine:?}, seed {seed}: {told}");
            sim.run_until(last.node().close()).unwrap();
        }
    }
}

/// The log goes on under the new key, and the rows are still under the one before: both are wanted,
/// and nothing is touched without.
#[test]
fn as_long_as_the_older_key_is_needed_nothing_is_touched_without_it() {
    for engine in ENGINES {
        let sim = Simulation::new(6);
        let mut env = sim.process("node");
        let node = sim.run_until(open(&env, engine, &keys(&[1]))).unwrap();
        sim.run_until(async {
            plant(&node, 0..60).await;
            env.sleep(Duration::from_secs(1)).await;
            node.node().checkpoint().await.unwrap();
        });
        sim.run_until(node.node().close()).unwrap();
        drop(node);
        let node = sim.run_until(open(&env, engine, &keys(&[2, 1]))).unwrap();
        sim.run_until(plant(&node, 60..61));
        drop(node);
        sim.crash(&env);
        env = sim.restart(&env);
        let before = contents(&sim, &env);
        for given in [keys(&[2]), keys(&[1])] {
            let refused = sim.run_until(open(&env, engine, &given)).err();
            assert_eq!(refused, Some(Error::encrypt_key_not_found()), "{engine:?}");
            let refused = sim.run_until(check_keys(&env, Path::new(DIR), &given));
            let refused = refused.err().map(Error::from);
            assert_eq!(refused, Some(Error::encrypt_key_not_found()), "{engine:?}");
            assert!(contents(&sim, &env) == before, "{engine:?}: something was touched");
        }
        assert_eq!(sim.run_until(is_encrypted(&env, Path::new(DIR))), Ok(Some(true)));
        let node = sim.run_until(open(&env, engine, &keys(&[2, 1]))).unwrap();
        sim.run_until(assert_planted(&node, 0..61));
    }
}

#[test]
fn a_state_that_is_taken_in_is_encrypted_too() {
    for engine in ENGINES {
        let (sim, keys) = (Simulation::new(4), keys(&[1]));
        let env = sim.process("node");
        sim.run_until(async {
            let node = open(&env, engine, &keys).await.unwrap();
            node.node().close().await.unwrap();
            drop(node);
            let at = LogPosition { index: 100, term: 9, version: 1 << 40 };
            let mut rows = Rows::builder();
            (0..50).map(planted).for_each(|(key, value)| rows.push(&key, &value));
            let end = plinth_types::system::SYSTEM_END.into();
            let chunk = Chunk { at, begin: Default::default(), end, rows: rows.finish() };
            let config = config(engine, &keys);
            let mut import = Import::begin(&env, Path::new(DIR), config, at).await.unwrap();
            import.take(&chunk).await.unwrap();
            import.put_in_place().await.unwrap();
        });
        assert_eq!(files_that_show(&sim, &env), [""; 0], "{engine:?}");
        sim.run_until(async {
            let node = open(&env, engine, &keys).await.unwrap();
            assert_planted(&node, 0..50).await;
            node.node().close().await.unwrap();
        });
    }
}

/// Each member has a key of its own. One that was away takes rows of another one, and writes them
/// with its own.
#[test]
fn each_member_of_a_cluster_has_its_own_key() {
    for engine in ENGINES {
        let mut small = config(engine, &Keys::none());
        (small.checkpoint_bytes, small.follower_log_bytes) = (2_000, 4_000);
        small.ssd.flush_after = Duration::from_millis(200);
        small.log.spare_bytes = 0;
        let mut machines = Machines::empty(5, 3, small);
        let with_own_key = |machines: &mut Machines, at: usize| {
            machines.config.set_keys(keys(&[10 + at as u8]));
        };
        for at in 0..3 {
            with_own_key(&mut machines, at);
            machines.form(at).expect("a member");
            machines.open(at).expect("a member opens");
        }
        let leader = machines.await_leader(|_| true);
        let away = (leader + 1) % 3;
        machines.crash(away);
        for n in 0..300 {
            let (key, value) = planted(n % 50);
            let [key, value] = [key, value].map(|text| String::from_utf8(text).unwrap());
            machines.set(leader, &key, &value).expect("a commit");
            if n % 10 == 0 {
                machines.sim.run_for(Duration::from_millis(100));
            }
        }
        with_own_key(&mut machines, leader);
        assert_eq!(machines.open(away).err(), Some(Error::encrypt_key_not_found()));
        with_own_key(&mut machines, away);
        machines.open(away).expect("a member opens");
        let (key, value) = planted(49);
        let [key, value] = [key, value].map(|text| String::from_utf8(text).unwrap());
        for _ in 0..2_000 {
            machines.sim.run_for(Duration::from_millis(10));
            if machines.get_at(leader, away, &key) == Ok(Some(value.clone())) {
                break;
            }
        }
        assert_eq!(machines.get_at(leader, away, &key), Ok(Some(value)), "{engine:?}");
        for at in 0..3 {
            let shown = files_that_show(&machines.sim, &machines.envs[at]);
            assert_eq!(shown, [""; 0], "{engine:?}, node {at}");
        }
        machines.crash(away);
        machines.open(away).expect("what it took is its own");
    }
}
