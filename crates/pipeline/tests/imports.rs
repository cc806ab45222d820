//! A state made of chunks takes the place of the one that is there: whatever instant the power
//! fails at, one of both is there, whole, and an import that was interrupted is begun again.
//!
//! What two nodes do when one has fallen behind, and what a restore does.

mod common;

use common::disk::calls;
use common::*;
use plinth_env::Env;
use plinth_env::simulated::{Random, Simulation};
use plinth_log::{ReplicaLog, Salvage, Vote};
use plinth_pipeline::cluster::{Membership, Voter};
use plinth_pipeline::{Chunk, EngineKind, Import, Keys, Node, NodeConfig, PinnedVersion, check};
#[cfg(feature = "planted-bugs")]
use plinth_types::marks::plant;
use plinth_types::system::SYSTEM_END;
use plinth_types::{Bytes, Error, LogPosition, Result};
use std::collections::BTreeMap;
#[cfg(feature = "planted-bugs")]
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const DIR: &str = "/db";

type Rows = BTreeMap<Bytes, Bytes>;

fn config(engine: EngineKind) -> NodeConfig {
    let mut config = NodeConfig { engine, ..tables::config() };
    config.log.first_segment_bytes = plinth_log::LogConfig::MIN_SEGMENT_BYTES;
    config
}

/// All rows of what is pinned, in chunks of about so many bytes.
async fn exported(pinned: &dyn PinnedVersion, bytes: usize) -> Vec<Chunk> {
    let (mut chunks, mut reached) = (Vec::<Chunk>::new(), Bytes::new());
    while *reached < *SYSTEM_END {
        let chunk = pinned.export(&reached, SYSTEM_END, bytes).await.unwrap();
        reached = chunk.end.clone();
        chunks.push(Chunk::decode(&chunk.encode()).unwrap());
    }
    chunks
}

fn rows_in(chunks: &[Chunk]) -> Rows {
    let copy = |(key, value)| (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
    chunks.iter().flat_map(|chunk| chunk.rows.iter().map(copy)).collect()
}

/// The rows of some other database, and where they are from: further than any version of a young
/// one.
async fn source(env: &Env, seed: u64, rows: usize) -> (Vec<Chunk>, LogPosition) {
    let node = Node::in_memory(env, NodeConfig::default()).await.unwrap();
    let endpoint = node.endpoint();
    let mut random = Random::new(seed);
    for n in 0..rows {
        let value = vec![n as u8; random.index(400)];
        set(&endpoint, format!("key{:04}", random.index(rows * 2)).as_bytes(), &value)
            .await
            .unwrap();
    }
    let pinned = node.pin().await.unwrap();
    let mut chunks = exported(&*pinned, 1 + random.index(3000)).await;
    let at = LogPosition { index: 1000 + seed, term: 7, version: 1_000_000_000 };
    chunks.iter_mut().for_each(|chunk| chunk.at = at);
    node.close().await.unwrap();
    (chunks, at)
}

async fn import(
    machine: &Env,
    engine: EngineKind,
    chunks: &[Chunk],
    at: LogPosition,
) -> Result<()> {
    let mut import = Import::begin(machine, Path::new(DIR), config(engine), at).await?;
    for chunk in chunks {
        import.take(chunk).await?;
        assert_eq!(import.reached(), &chunk.end[..]);
    }
    Ok(import.put_in_place().await?)
}

/// A closed database with one row.
fn with_old_state(engine: EngineKind, seed: u64) -> (Simulation, Env) {
    let simulation = Simulation::new(seed);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let node = Node::open(&machine, Path::new(DIR), config(engine)).await.unwrap().endpoint();
        set(&node, b"old", b"value").await.unwrap();
        node.node().close().await.unwrap();
    });
    (simulation, machine)
}

/// All rows of the database, which goes on as any does.
async fn rows_of(machine: &Env, engine: EngineKind) -> Rows {
    let endpoint = Node::open(machine, Path::new(DIR), config(engine)).await.unwrap().endpoint();
    let read = plinth_types::RangeRead {
        begin: plinth_types::KeySelector::first_greater_or_equal(Bytes::new()),
        end: plinth_types::KeySelector::first_greater_or_equal(Bytes::from_static(SYSTEM_END)),
        limit: usize::MAX,
        target_bytes: usize::MAX,
        reverse: false,
    };
    let newest = version(&endpoint).await;
    let system = plinth_types::KeySpace::System;
    let found = plinth_client::Endpoint::get_range(&endpoint, newest, system, &read).await.unwrap();
    let copy = |(key, value)| (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
    let rows = found.rows.iter().map(copy).collect();
    endpoint.node().close().await.unwrap();
    rows
}

#[test]
fn chunks_become_a_state_that_opens_with_every_row_and_goes_on() {
    for engine in [EngineKind::Memory, EngineKind::Ssd] {
        for seed in 0..10 {
            let (simulation, machine) = with_old_state(engine, seed);
            simulation.run_until(async {
                let (chunks, at) =
                    source(&machine, seed, [0, 1, 100, 700][seed as usize % 4]).await;
                import(&machine, engine, &chunks, at).await.unwrap();
                let names = machine.files().list(DIR).await.unwrap();
                assert!(
                    names.contains(&"gen-2".into()) && !names.contains(&"gen-1".into()),
                    "{names:?}"
                );
                assert_eq!(check(&machine, Path::new(DIR)).await.unwrap().problems, []);
                let mut expected = rows_in(&chunks);
                assert!(rows_of(&machine, engine).await == expected, "{engine:?}, seed {seed}");
                // It takes commits behind the version that it was imported at, and keeps them.
                let node =
                    Node::open(&machine, Path::new(DIR), config(engine)).await.unwrap().endpoint();
                let written = set(&node, b"more", b"value").await.unwrap();
                assert!(written > at.version);
                machine.sleep(Duration::from_secs(8)).await;
                version(&node).await;
                node.node().checkpoint().await.unwrap();
                node.node().close().await.unwrap();
                drop(node);
                expected.insert(Bytes::from_static(b"more"), Bytes::from_static(b"value"));
                assert!(rows_of(&machine, engine).await == expected, "{engine:?}, seed {seed}");
            });
        }
    }
}

#[test]
fn what_one_engine_exports_the_other_takes() {
    for (from, to) in [(EngineKind::Memory, EngineKind::Ssd), (EngineKind::Ssd, EngineKind::Memory)]
    {
        let (simulation, machine) = with_old_state(to, 1);
        simulation.run_until(async {
            let node = Node::open(&machine, Path::new("/source"), config(from)).await.unwrap();
            let endpoint = node.endpoint();
            for n in 0..200_u32 {
                set(&endpoint, &n.to_be_bytes(), &[n as u8; 100]).await.unwrap();
            }
            machine.sleep(Duration::from_secs(8)).await;
            version(&endpoint).await;
            machine.sleep(Duration::from_secs(1)).await;
            let pinned = node.pin().await.unwrap();
            let at = pinned.position();
            assert!(at.index > 200 && at.term > 0 && at.version <= pinned.version(), "{at}");
            // What is written later is no part of it.
            set(&endpoint, b"later", b"").await.unwrap();
            let chunks = exported(&*pinned, 1000).await;
            assert!(chunks.len() > 10 && chunks.iter().all(|chunk| chunk.at == at));
            drop(pinned);
            node.close().await.unwrap();
            import(&machine, to, &chunks, at).await.unwrap();
            let rows = rows_of(&machine, to).await;
            assert!(
                rows == rows_in(&chunks) && rows.len() > 200 && !rows.contains_key(&b"later"[..])
            );
        });
    }
}

#[test]
fn chunks_that_do_not_follow_are_refused_and_the_old_state_stays() {
    for engine in [EngineKind::Memory, EngineKind::Ssd] {
        let (simulation, machine) = with_old_state(engine, 1);
        simulation.run_until(async {
            let (chunks, at) = source(&machine, 2, 300).await;
            assert!(chunks.len() > 4);
            let dir = Path::new(DIR);
            let mut import = Import::begin(&machine, dir, config(engine), at).await.unwrap();
            import.take(&chunks[0]).await.unwrap();
            let other =
                Chunk { at: LogPosition { version: at.version + 1, ..at }, ..chunks[1].clone() };
            for wrong in [&chunks[0], &other] {
                let refused = import.take(wrong).await.map_err(Error::from);
                assert_eq!(refused, Err(Error::client_invalid_operation()));
            }
            // A gap is one between two ranges that were asked for: what lies there is gone.
            import.take(&chunks[2]).await.unwrap();
            let refused = import.take(&chunks[1]).await.map_err(Error::from);
            assert_eq!(refused, Err(Error::client_invalid_operation()));
            import.abandon().await.unwrap();
            assert!(!machine.files().exists("/db/gen-2").await.unwrap());
            assert!(rows_of(&machine, engine).await.contains_key(&b"old"[..]));
        });
    }
}

#[test]
fn a_crash_at_any_file_call_of_an_import_leaves_one_state_whole() {
    for engine in [EngineKind::Memory, EngineKind::Ssd] {
        let (mut olds, mut news) = (0, 0);
        for bound in 1.. {
            let (simulation, mut machine) = with_old_state(engine, bound);
            let (chunks, at) = simulation.run_until(source(&machine, 3, 40));
            let expected = rows_in(&chunks);
            let (env, taken, done) =
                (machine.clone(), chunks.clone(), Arc::new(AtomicBool::new(false)));
            let told = done.clone();
            let before = calls(&simulation, &machine);
            drop(machine.spawn("import", async move {
                import(&env, engine, &taken, at).await.unwrap();
                told.store(true, Ordering::SeqCst);
            }));
            let is_done = || done.load(Ordering::SeqCst);
            while calls(&simulation, &machine) - before < bound && !is_done() {
                simulation.run_for(Duration::from_micros(2));
            }
            simulation.crash(&machine);
            machine = simulation.restart(&machine);
            let what = format!("{engine:?}, crash at call {bound}");
            if bound % 2 == 0 {
                // Begun again at once, over whatever is left; or the database is opened first.
                simulation.run_until(import(&machine, engine, &chunks, at)).expect(&what);
                assert!(simulation.run_until(rows_of(&machine, engine)) == expected, "{what}");
            } else {
                let report = simulation.run_until(check(&machine, Path::new(DIR))).unwrap();
                assert_eq!(report.problems, [], "{what}");
                let rows = simulation.run_until(rows_of(&machine, engine));
                let is_new = rows == expected;
                let is_old = rows.contains_key(&b"old"[..]) && rows.len() < 8;
                assert!(is_new || is_old && !is_done(), "{what}: {} rows", rows.len());
                olds += u32::from(is_old);
                news += u32::from(is_new);
                let mut names = simulation.run_until(machine.files().list(DIR)).unwrap();
                names.retain(|name| name.starts_with("gen-") || name.starts_with("old-"));
                assert_eq!(names.len(), 1, "{what}: {names:?}");
            }
            if is_done() {
                break;
            }
        }
        assert!(olds > 10 && news > 2, "{engine:?}: {olds} old, {news} new");
    }
}

/// The log of a member's generation.
async fn member_log(machine: &Env, generation: u64) -> ReplicaLog {
    let path = format!("{DIR}/gen-{generation}/log");
    let ids = Salvage::open(machine, &path, &Keys::none()).await.unwrap().identity().unwrap();
    ReplicaLog::open(machine, &path, ids, config(EngineKind::Memory).log).await.unwrap().0
}

/// A member that fell behind takes a state in. With its log it must not forget whom it voted for,
/// or one term may have two leaders; and it keeps what it told others that it has.
#[test]
fn a_member_keeps_its_vote_and_its_entries() {
    for engine in [EngineKind::Memory, EngineKind::Ssd] {
        for (term, vote) in [(9, 2), (7, 3), (3, 1), (0, 0)] {
            let simulation = Simulation::new(term);
            let machine = simulation.process("node");
            simulation.run_until(async {
                let voter = |id| Voter { id, address: format!("10.0.0.{id}:4500") };
                let voters = (1..=3).map(voter).collect();
                let membership = Membership::founding([7; 16], 1, voters);
                let dir = Path::new(DIR);
                Node::form(&machine, dir, &config(engine), &membership).await.unwrap();
                if term > 0 {
                    let mut log = member_log(&machine, 1).await;
                    log.vote(Vote { term, vote, commit: 0 }).await.unwrap();
                    log.close().await.unwrap();
                }
                let (chunks, at) = source(&machine, 5, 100).await;
                assert!(
                    Import::begin(&machine, dir, config(engine), at).await.is_err(),
                    "it is a member"
                );
                let mut import =
                    Import::begin_member(&machine, dir, config(engine), at).await.unwrap();
                for chunk in &chunks {
                    import.take(chunk).await.unwrap();
                }
                import.put_in_place().await.unwrap();
                assert_eq!(check(&machine, dir).await.unwrap().problems, []);
                let log = member_log(&machine, 2).await;
                assert_eq!((log.last(), log.last_version()), ((at.index, at.term), at.version));
                // A vote in a term before that of the state counts no more.
                let expected = if term >= at.term { (term, vote) } else { (at.term, 0) };
                assert_eq!((log.promised().term, log.promised().vote), expected);
                assert_eq!(log.promised().commit, at.index);
                log.close().await.unwrap();
                let earlier = LogPosition { index: at.index - 1, ..at };
                let refused = Import::begin_member(&machine, dir, config(engine), earlier).await;
                assert_eq!(
                    refused.err().map(Error::from),
                    Some(Error::client_invalid_operation()),
                    "it has entries beyond"
                );
            });
        }
    }
}

/// What a member has promised in the state that counts after a crash at this file call of its
/// change to other rows; `None` once the change was done before.
fn promised_after_a_crash(engine: EngineKind, bound: u64) -> Option<(u64, u64)> {
    let simulation = Simulation::new(bound);
    let mut machine = simulation.process("node");
    let dir = Path::new(DIR);
    let (import, identity) = simulation.run_until(async {
        let voter = |id| Voter { id, address: format!("10.0.0.{id}:4500") };
        let membership = Membership::founding([7; 16], 1, (1..=3).map(voter).collect());
        Node::form(&machine, dir, &config(engine), &membership).await.unwrap();
        let mut log = member_log(&machine, 1).await;
        log.vote(Vote { term: 90, vote: 2, commit: 0 }).await.unwrap();
        log.close().await.unwrap();
        let (chunks, at) = source(&machine, 5, 10).await;
        let mut import = Import::begin_member(&machine, dir, config(engine), at).await.unwrap();
        for chunk in &chunks {
            import.take(chunk).await.unwrap();
        }
        (import, machine.files().read(dir.join("IDENTITY")).await.unwrap())
    });
    let done = Arc::new(AtomicBool::new(false));
    let (told, before) = (done.clone(), calls(&simulation, &machine));
    drop(machine.spawn("change", async move {
        import.put_in_place().await.unwrap();
        told.store(true, Ordering::SeqCst);
    }));
    let is_done = || done.load(Ordering::SeqCst);
    while calls(&simulation, &machine) - before < bound && !is_done() {
        simulation.run_for(Duration::from_micros(2));
    }
    if is_done() {
        return None;
    }
    simulation.crash(&machine);
    machine = simulation.restart(&machine);
    simulation.run_until(async {
        let is_old = machine.files().read(dir.join("IDENTITY")).await.unwrap() == identity;
        let log = member_log(&machine, if is_old { 1 } else { 2 }).await;
        let promised = (log.promised().term, log.promised().vote);
        log.close().await.unwrap();
        Some(promised)
    })
}

/// Of a change that gives the old log up before the new state counts, a crash between the two
/// leaves a member that has forgotten whom it voted for: that is what the crashes at each file call
/// are for, and they find it.
#[test]
fn a_crash_at_any_file_call_of_a_change_leaves_a_member_that_knows_its_vote() {
    for engine in [EngineKind::Memory, EngineKind::Ssd] {
        let told: Vec<_> = (1..).map_while(|bound| promised_after_a_crash(engine, bound)).collect();
        assert!(
            told.len() > 20 && told.iter().all(|promised| *promised == (90, 2)),
            "{engine:?}: {told:?}"
        );
        #[cfg(feature = "planted-bugs")]
        {
            plant(Some("the old log is reset before the pointer has moved"));
            // A log that isn't there any more says nothing at all.
            let crash = |bound| catch_unwind(|| promised_after_a_crash(engine, bound));
            let forgets = (1..told.len() as u64)
                .any(|bound| !matches!(crash(bound), Ok(None | Some((90, 2)))));
            plant(None);
            assert!(forgets, "{engine:?}: the planted mistake is not noticed");
        }
    }
}
