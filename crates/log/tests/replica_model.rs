//! The log of a replica against a plain list: appends, rewinds, votes, commits, pops, restarts,
//! crashes anywhere.
//!
//! Consensus stands on what this log remembers: a promise that is forgotten, or an entry that comes
//! back after it was voided, loses what a majority has agreed on. So the model notes each operation
//! before it is tried. After a crash the log must be what it was after one of the operations since
//! the last sync, in full: entries, terms, promise; and what it says is committed must have been.

mod support;

use std::time::Duration;

use plinth_env::Env;
use plinth_env::simulated::{Random, Simulation, Unsynced};
use plinth_log::{Entry, EntryHead, EntryKind, LogConfig, LogError, ReplicaLog, Vote, verify};
use plinth_types::{Bytes, Error, Version};
use support::{DIR, IDENTITY, body, small};

#[derive(Clone, Debug)]
enum Op {
    Append(Entry),
    Rewind(u64),
    Vote(Vote),
}

/// What the log is after some operation.
#[derive(Clone, PartialEq, Debug, Default)]
struct State {
    entries: Vec<Entry>,
    vote: Vote,
}

impl State {
    fn take(&mut self, op: &Op) {
        match op {
            Op::Append(entry) => self.entries.push(entry.clone()),
            Op::Rewind(index) => self.entries.truncate(*index as usize),
            Op::Vote(vote) => self.vote = *vote,
        }
    }

    fn last(&self) -> (u64, u64, Version) {
        self.entries.last().map_or((0, 0, 0), |entry| (entry.index, entry.term, entry.version))
    }
}

#[derive(Default, Debug)]
struct Stats {
    appends: u64,
    rewinds: u64,
    votes: u64,
    crashes: u64,
    /// Operations that were not synced and are there after a crash, and that aren't.
    survived: u64,
    lost: u64,
    void: u64,
    /// Entries behind the committed one after a restart.
    pending: u64,
    gone: u64,
}

struct Model {
    /// As of the last sync.
    synced: State,
    /// Since then.
    ops: Vec<Op>,
    now: State,
    committed: u64,
    popped: Version,
    term: u64,
    stats: Stats,
}

struct Run {
    sim: Simulation,
    env: Env,
    config: LogConfig,
    random: Random,
    model: Model,
    /// Each life has keys of its own.
    is_sealed: bool,
}

async fn all(log: &ReplicaLog, from: u64) -> Result<Vec<Entry>, Error> {
    let (mut reader, mut entries) = (log.entries(from), Vec::new());
    while let Some(entry) = reader.next().await? {
        entries.push(entry);
    }
    Ok(entries)
}

impl Run {
    fn new(seed: u64) -> Self {
        let sim = Simulation::new(seed);
        let env = sim.process("node");
        let mut random = sim.random();
        let first = 8192 << random.below(2);
        let tail_bytes = 1 << (8 + random.below(8));
        let config = LogConfig { tail_bytes, ..small(first, first << random.below(2)) };
        let (synced, now, ops, stats) = Default::default();
        let model = Model { synced, ops, now, committed: 0, popped: 0, term: 1, stats };
        Self { sim, env, config, random, model, is_sealed: seed.is_multiple_of(3) }
    }

    fn create(&self) -> ReplicaLog {
        let made = ReplicaLog::create_at(&self.env, DIR, IDENTITY, self.config.clone(), (0, 0, 0));
        let log = self.sim.run_until(made).expect("a new log").0;
        log.view().register("storage", 1, None).expect("a consumer");
        log
    }

    /// Notes an operation and tries it. `None`: the power fails meanwhile.
    fn attempt(&mut self, log: &mut ReplicaLog, op: Op) -> Option<()> {
        self.model.ops.push(op.clone());
        self.model.now.take(&op);
        let limit = match self.random.chance(0.03) {
            true => Duration::from_micros(self.random.below(60)),
            false => Duration::from_secs(60),
        };
        let is_vote = matches!(op, Op::Vote(_));
        let done = self.sim.run_until_within(limit, async {
            match op {
                Op::Append(entry) => log.append(entry.head(), &[&entry.body]).await.map(drop),
                Op::Rewind(index) => log.rewind(index).await.map(drop),
                Op::Vote(vote) => log.vote(vote).await,
            }
        })?;
        done.expect("nothing fails here");
        log.check_invariants();
        assert_eq!((log.last().0, log.last().1, log.last_version()), self.model.now.last());
        if is_vote {
            self.note_synced();
        }
        Some(())
    }

    /// All that was done so far survives from now on.
    fn note_synced(&mut self) {
        self.model.ops.clear();
        self.model.synced = self.model.now.clone();
    }

    fn next_entry(&mut self) -> Entry {
        let (index, term, previous) = self.model.now.last();
        if self.random.chance(0.1) || self.model.term < term {
            self.model.term = self.model.term.max(term) + self.random.below(3);
        }
        let kind = match self.random.index(8) {
            0 => EntryKind::Begin,
            1 => EntryKind::Members,
            2 => EntryKind::Lease,
            _ => EntryKind::Mutations,
        };
        let is_new = kind.has_mutations();
        let version = if is_new { previous + 1 + self.random.below(50) as i64 } else { previous };
        let index = index + 1;
        let committed = self.model.now.entries[..self.model.committed as usize].last();
        let committed = committed.map_or(0, |entry| entry.version);
        let longest = if self.random.chance(0.9) { 300 } else { 3000 };
        let len = self.random.index(longest);
        let body = match kind {
            // A lease never falls, whatever was voided meanwhile.
            EntryKind::Lease => (index as i64 * 1000).to_le_bytes().to_vec(),
            _ => body(index as i64 + 1000 * self.model.term as i64, len),
        };
        let head = EntryHead { kind, index, term: self.model.term, version, previous, committed };
        Entry::new(head, Bytes::from(body))
    }

    fn step(&mut self, log: &mut ReplicaLog) -> Option<()> {
        let (last, ..) = self.model.now.last();
        match self.random.index(30) {
            0..17 => {
                let entry = self.next_entry();
                self.model.stats.appends += 1;
                self.attempt(log, Op::Append(entry))?;
            }
            17 | 18 if last > self.model.committed => {
                let index = self.model.committed + self.random.below(last - self.model.committed);
                self.model.stats.rewinds += 1;
                self.model.stats.void += last - index;
                // Whoever has it voided has a higher term.
                self.model.term += 1;
                self.attempt(log, Op::Rewind(index))?;
            }
            19 => {
                let before = self.model.now.vote;
                let term = before.term + self.random.below(3);
                let vote = if term == before.term { before.vote } else { self.random.below(4) };
                let commit = self.model.committed;
                self.model.stats.votes += 1;
                self.attempt(log, Op::Vote(Vote { term, vote, commit }))?;
            }
            20..23 => {
                let position = log.written();
                self.sim.run_until(log.syncer().sync(position)).expect("a sync");
                self.note_synced();
            }
            23..26 if last > self.model.committed => {
                self.model.committed += 1 + self.random.below(last - self.model.committed);
                log.commit(self.model.committed).expect("a commit");
                assert_eq!(log.committed_index(), self.model.committed);
            }
            26 => {
                let committed = &self.model.now.entries[..self.model.committed as usize];
                let upto = committed.last().map_or(0, |entry| entry.version)
                    - self.random.below(500) as i64;
                if upto > self.model.popped {
                    self.model.popped = upto;
                    log.view().pop("storage", upto).expect("a pop");
                }
            }
            27 => {
                self.sim.run_until(log.mark_durable()).expect("a mark");
                self.note_synced();
            }
            28 => self.sim.run_for(Duration::from_micros(self.random.below(40_000))),
            _ => self.compare(log),
        }
        Some(())
    }

    /// Everything that can be read against the model.
    fn compare(&mut self, log: &ReplicaLog) {
        // What is popped goes now, and not between two of the looks.
        self.sim.run_for(Duration::from_millis(100));
        let Model { now, committed, popped, stats, .. } = &mut self.model;
        let entries = &now.entries;
        let first = log.first_index();
        let kept = entries.get(first as usize - 1..).expect("a log doesn't begin behind its end");
        assert_eq!(self.sim.run_until(all(log, first)).expect("entries"), kept);
        assert!(entries[..first as usize - 1].iter().all(|entry| entry.version <= *popped));
        assert!(first - 1 <= *committed, "what is not committed is kept");
        stats.gone = stats.gone.max(first - 1);
        for entry in entries.iter().skip((first as usize).saturating_sub(2)) {
            assert_eq!(log.term_of(entry.index), Some(entry.term), "term of entry {}", entry.index);
        }
        assert_eq!(log.term_of(now.last().0 + 1), None);
        if first > 1 {
            let gone = self.sim.run_until(log.entries(first - 1).next());
            // Unless it is still in memory.
            let in_memory = Ok(entries.get(first as usize - 2).cloned());
            assert!(gone == Err(LogError::Version(String::new())) || gone == in_memory);
        }
        let from = self.random.below(entries.len() as u64 + 1).max(first);
        let some = self.sim.run_until(all(log, from)).expect("entries");
        assert_eq!(some, entries[from as usize - 1..]);
        // Others see what is committed and has mutations.
        let seen = self.sim.run_until(support::read(log.view(), *popped + 1)).expect("entries");
        let is_seen = |entry: &&Entry| entry.kind.has_mutations() && entry.version > *popped;
        let expected: Vec<_> =
            entries[..*committed as usize].iter().filter(is_seen).cloned().collect();
        assert_eq!(seen, expected, "committed up to {committed}");
        assert_eq!(log.promised(), now.vote);
        let lease = entries.iter().rfind(|entry| entry.kind == EntryKind::Lease);
        let lease = lease.map_or(0, |entry| i64::from_le_bytes(entry.body[..].try_into().unwrap()));
        assert_eq!(log.last_lease(), lease);
    }

    fn crash(&mut self, log: ReplicaLog) -> ReplicaLog {
        match self.random.index(4) {
            0 => {
                self.sim.kill(&self.env);
                // What was written is there, and synced before anybody may rely on it.
            }
            1 => self.sim.crash_with(&self.env, Unsynced::Lost),
            _ => self.sim.crash(&self.env),
        }
        drop(log);
        self.env = self.sim.restart(&self.env);
        self.model.stats.crashes += 1;
        if self.is_sealed {
            self.config.keys = support::keys_of_life(self.model.stats.crashes as usize);
        }
        let checked = verify(&self.env, DIR, &self.config.keys);
        let report = self.sim.run_until(checked).expect("a report");
        assert_eq!(report.problems, [], "a crash does no damage");
        if self.random.chance(0.2) {
            // The next crash comes while it is opened.
            let limit = Duration::from_micros(self.random.below(3000));
            let opened = self.sim.run_until_within(
                limit,
                ReplicaLog::open(&self.env, DIR, IDENTITY, self.config.clone()),
            );
            drop(opened);
            self.sim.crash(&self.env);
            self.env = self.sim.restart(&self.env);
        }
        let opened = ReplicaLog::open(&self.env, DIR, IDENTITY, self.config.clone());
        let (log, recovery) = self.sim.run_until(opened).expect("a log opens after every crash");
        self.settle(&log);
        assert_eq!(recovery.last_index, log.last().0);
        assert!(recovery.first_index <= log.first_index());
        self.compare(&log);
        log
    }

    /// Finds out which of the operations since the last sync are there.
    fn settle(&mut self, log: &ReplicaLog) {
        self.sim.run_for(Duration::from_millis(100));
        let first = log.first_index();
        let found = self.sim.run_until(all(log, first)).expect("entries");
        let is_found = |state: &State| {
            state.vote == log.promised()
                && state.entries.get(first as usize - 1..) == Some(&found[..])
        };
        let model = &mut self.model;
        let (mut state, mut matching) = (model.synced.clone(), None);
        for done in 0..=model.ops.len() {
            if is_found(&state) {
                matching = Some((done, state.clone()));
            }
            if let Some(op) = model.ops.get(done) {
                state.take(op);
            }
        }
        let Some((done, state)) = matching else {
            let ops = model.ops.len();
            panic!(
                "{} entries, {:?}: not what it was after any of {ops} operations",
                found.len(),
                log.promised()
            )
        };
        model.stats.survived += done as u64;
        model.stats.lost += (model.ops.len() - done) as u64;
        let known = log.committed_index();
        assert!(known <= model.committed, "{known} is told committed, {} is", model.committed);
        assert!(
            known >= log.promised().commit.min(log.last().0),
            "a promise says what is committed"
        );
        model.stats.pending += log.last().0 - known;
        model.committed = known;
        (model.synced, model.now) = (state.clone(), state);
        model.ops.clear();
        model.popped = log.view().consumers()[0].1 - 1;
        model.term = model.term.max(model.now.last().1);
    }

    fn run(mut self) -> Stats {
        let mut log = self.create();
        // The consumer must outlive whatever comes.
        self.sim.run_until(log.mark_durable()).expect("a mark");
        for _ in 0..5 {
            let steps = self.random.below(150);
            for _ in 0..steps {
                if self.step(&mut log).is_none() {
                    break;
                }
            }
            log = self.crash(log);
        }
        self.compare(&log);
        self.sim.run_until(log.close()).expect("a close");
        self.model.stats
    }
}

/// Runs seeds one after the other; a failure names its seed.
fn run_seeds(seeds: std::ops::Range<u64>) -> Stats {
    let mut sum = Stats::default();
    for seed in seeds {
        println!("seed {seed}");
        let stats = Run::new(seed).run();
        sum.appends += stats.appends;
        sum.rewinds += stats.rewinds;
        sum.votes += stats.votes;
        sum.crashes += stats.crashes;
        sum.survived += stats.survived;
        sum.lost += stats.lost;
        sum.void += stats.void;
        sum.pending += stats.pending;
        sum.gone += stats.gone;
    }
    println!("{sum:?}");
    sum
}

#[test]
fn a_replicas_log_is_the_list_that_it_stands_for() {
    let Stats { appends, rewinds, votes, crashes, survived, lost, void, pending, gone } =
        run_seeds(0..100);
    assert!(appends > 10_000 && rewinds > 500 && votes > 500 && crashes >= 500 && void > 1000);
    assert!(survived > 200 && lost > 200 && pending > 200 && gone > 500, "the model is too tame");
}
