//! The power fails at every instant of a short life of a replica's log: a vote or a rewind is there
//! whole, or not.
//!
//! The same script runs again and again, each time a little longer, and then what was not synced is
//! lost, or a part of it survives, torn and out of order. What is found must be what the script had
//! come to at one of its steps, no earlier than at the last one that was synced: no promise is
//! taken back, nothing that was voided returns.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use plinth_env::Env;
use plinth_env::simulated::{FaultPlan, Simulation, Unsynced};
use plinth_log::{EntryHead, EntryKind, LogConfig, LogError, LogResult, ReplicaLog, Vote};
use support::{DIR, IDENTITY, body, small};

/// Segments so small that the script begins a second one.
fn config() -> LogConfig {
    small(8192, 8192)
}

/// What the log remembers: terms of its entries by index, and its promise.
type Found = (Vec<u64>, Vote);

#[derive(Default)]
struct Progress {
    /// What it is after each step that was begun, and how many of them are synced for certain.
    steps: Vec<Found>,
    synced: usize,
}

/// The script, step by step.
struct Script {
    log: ReplicaLog,
    now: Found,
    progress: Arc<Mutex<Progress>>,
}

impl Script {
    fn begin(&mut self) {
        self.progress.lock().unwrap().steps.push(self.now.clone());
    }

    fn end(&mut self) {
        let mut progress = self.progress.lock().unwrap();
        progress.synced = progress.steps.len() - 1;
    }

    async fn append(&mut self, term: u64, len: usize) -> LogResult<()> {
        let (index, _) = self.log.last();
        let previous = self.log.last_version();
        let version = previous + 1 + term as i64;
        let kind = EntryKind::Mutations;
        let head = EntryHead { kind, index: index + 1, term, version, previous, committed: 0 };
        self.now.0.push(term);
        self.begin();
        self.log.append(head, &[&body(version, len)]).await.map(drop)
    }

    async fn rewind(&mut self, index: u64) -> LogResult<()> {
        self.now.0.truncate(index as usize);
        self.begin();
        self.log.rewind(index).await.map(drop)
    }

    async fn vote(&mut self, term: u64, vote: u64) -> LogResult<()> {
        self.now.1 = Vote { term, vote, commit: 0 };
        self.begin();
        self.log.vote(self.now.1).await?;
        self.end();
        Ok(())
    }

    async fn sync(&mut self) -> LogResult<()> {
        self.log.syncer().sync(self.log.written()).await?;
        self.end();
        Ok(())
    }

    async fn run(mut self) -> LogResult<()> {
        self.vote(1, 2).await?;
        for len in [100, 700, 2000, 30] {
            self.append(1, len).await?;
        }
        self.sync().await?;
        self.append(1, 900).await?;
        self.vote(3, 0).await?;
        self.rewind(3).await?;
        self.append(3, 1500).await?;
        self.append(3, 1500).await?;
        self.sync().await?;
        // Two rewinds with nothing synced between them, the second from another segment than the
        // first.
        self.append(3, 3000).await?;
        self.rewind(4).await?;
        self.append(4, 200).await?;
        self.rewind(1).await?;
        self.append(5, 10).await?;
        self.vote(6, 1).await?;
        self.append(6, 100).await?;
        self.sync().await
    }
}

/// Runs the script for so long, has the power fail, and compares what is found. True if the script
/// had ended.
fn run(seed: u64, limit: Duration, unsynced: Option<Unsynced>) -> bool {
    let sim = Simulation::new(seed);
    let env = sim.process("node");
    let made = ReplicaLog::create_at(&env, DIR, IDENTITY, config(), (0, 0, 0));
    let log = sim.run_until(made).unwrap().0;
    let progress = Arc::new(Mutex::new(Progress::default()));
    progress.lock().unwrap().steps.push(Found::default());
    let script = Script { log, now: Found::default(), progress: progress.clone() };
    let ended = sim.run_until_within(limit, script.run());
    ended.iter().for_each(|ended| assert_eq!(*ended, Ok(())));
    match unsynced {
        Some(unsynced) => sim.crash_with(&env, unsynced),
        None => sim.crash(&env),
    }
    // Opened twice: what the first opening makes of it must be what the second finds.
    let first = sim.run_until(found(&sim.restart(&env)));
    sim.crash(&env);
    let second = sim.run_until(found(&sim.restart(&env)));
    assert_eq!(first, second, "seed {seed}, {limit:?}, {unsynced:?}");
    let progress = progress.lock().unwrap();
    let possible = &progress.steps[progress.synced..];
    assert!(
        possible.contains(&first),
        "seed {seed}, {limit:?}, {unsynced:?}: {first:?}, not of {possible:?}"
    );
    ended.is_some()
}

async fn found(env: &Env) -> Found {
    let (log, _) =
        ReplicaLog::open(env, DIR, IDENTITY, config()).await.expect("it opens after every crash");
    log.check_invariants();
    let (mut reader, mut terms) = (log.entries(1), Vec::new());
    while let Some(entry) = reader.next().await.expect("an entry") {
        assert_eq!(entry.index, terms.len() as u64 + 1);
        assert_eq!(entry.body, body(entry.version, entry.body.len()));
        terms.push(entry.term);
    }
    (terms, log.promised())
}

#[test]
fn votes_and_rewinds_are_whole_or_not_there_whenever_the_power_fails() {
    let mut instants = 0;
    for unsynced in [Some(Unsynced::Lost), None] {
        for seed in 0..3 {
            let step = Duration::from_micros(11);
            let ended = (0..10_000).find(|n| run(seed, step * *n, unsynced));
            instants += ended.expect("the script ends");
        }
    }
    assert!(instants > 500, "only {instants} instants were tried");
}

/// A segment whose entries are void or popped may go; but if the rewind that voids them is lost,
/// the next one begins behind entries that a consumer needs.
#[test]
fn a_segment_stays_until_the_rewind_that_frees_it_is_durable() {
    for is_synced in [false, true] {
        let sim = Simulation::new(1);
        let env = sim.process("node");
        let made = ReplicaLog::create_at(&env, DIR, IDENTITY, config(), (0, 0, 0));
        let log = sim.run_until(made).unwrap().0;
        log.view().register("storage", 1, None).unwrap();
        let mut script = Script { log, now: Found::default(), progress: Arc::default() };
        script.begin();
        let kept = sim.run_until(async {
            // Two entries that count, then some that don't, into the second segment.
            for _ in 0..2 {
                script.append(1, 500).await?;
            }
            script.log.commit(2)?;
            script.log.view().pop("storage", script.log.last_version())?;
            for _ in 0..6 {
                script.append(1, 1500).await?;
            }
            script.log.mark_durable().await?;
            script.rewind(2).await?;
            if is_synced {
                script.sync().await?;
            }
            // It is looked again what may go.
            script.log.view().pop("storage", 1)?;
            env.sleep(Duration::from_secs(1)).await;
            Ok::<_, LogError>(
                env.files().exists(format!("{DIR}/segment-0000000000000001.log")).await?,
            )
        });
        assert_eq!(kept, Ok(!is_synced));
        sim.crash_with(&env, Unsynced::Lost);
        let (terms, _) = sim.run_until(async {
            let env = sim.restart(&env);
            let (log, recovery) =
                ReplicaLog::open(&env, DIR, IDENTITY, config()).await.expect("it opens");
            log.check_invariants();
            ((recovery.first_index, recovery.last_index), log)
        });
        assert_eq!(terms, if is_synced { (3, 2) } else { (1, 8) });
    }
}

/// Others may have committed what this node has written and not synced. If a note said so, a
/// restart would take entries for committed that were voided by what is lost.
#[test]
fn a_note_says_nothing_of_what_is_committed_elsewhere_and_not_synced_here() {
    let lost = (0..100).filter(|seed| note_and_crash(*seed)).count();
    assert!(lost > 10, "the rewind was lost {lost} times");
}

/// True if the rewind was lost.
fn note_and_crash(seed: u64) -> bool {
    let sim = Simulation::new(seed);
    let env = sim.process("node");
    let made = ReplicaLog::create_at(&env, DIR, IDENTITY, config(), (0, 0, 0));
    let log = sim.run_until(made).unwrap().0;
    let mut slow = FaultPlan::default();
    (slow.sync.latency_min, slow.sync.latency_max) =
        (Duration::from_millis(20), Duration::from_millis(20));
    sim.set_faults(&env, slow);
    let mut script = Script { log, now: Found::default(), progress: Arc::default() };
    script.begin();
    let done = sim.run_until(async {
        for _ in 0..6 {
            script.append(1, 100).await?;
        }
        script.log.commit(3)?;
        // A sync that takes longer than what comes next: no record says that it has ended, so a
        // note does.
        let (syncer, upto) = (script.log.syncer(), script.log.written());
        let sync = env.spawn("sync", async move { syncer.sync(upto).await.expect("a sync") });
        env.sleep(Duration::from_micros(200)).await;
        script.rewind(3).await?;
        script.append(9, 100).await?;
        script.log.commit(4)?;
        assert!(script.log.view().durable().position < upto, "the sync has not ended yet");
        sync.await.expect("it ends");
        // Long enough for a note.
        env.sleep(Duration::from_millis(100)).await;
        assert_eq!(script.log.committed_index(), 4);
        Ok::<_, plinth_types::Error>(())
    });
    assert_eq!(done, Ok(()));
    // The note may survive, or the records, or both.
    sim.crash(&env);
    sim.run_until(async {
        let (log, _) =
            ReplicaLog::open(&sim.restart(&env), DIR, IDENTITY, config()).await.expect("it opens");
        let is_lost = log.last() == (6, 1);
        let most = if is_lost { 3 } else { 4 };
        assert!(
            log.committed_index() <= most,
            "seed {seed}: {} are taken for committed",
            log.committed_index()
        );
        is_lost
    })
}
