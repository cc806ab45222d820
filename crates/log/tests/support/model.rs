//! Random work on a log with crashes at random instants, against a model of what must and what may
//! survive.
//!
//! The model notes each append before it is tried, when it has succeeded, and when a sync has
//! acknowledged it. After a crash the log must hold every acknowledged entry, of the others a
//! prefix in order, and nothing else. What was found becomes what is known, and the work goes on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use plinth_env::Env;
use plinth_env::simulated::{FaultPlan, Random, Simulation, Unsynced};
use plinth_log::planted::Planted;
use plinth_log::{
    Entry, LocalLog, LocalView, LogConfig, LogError, LogResult, Position, Recovery, verify,
};
use plinth_types::Version;

use super::{DIR, IDENTITY, body, check, keys_of_life, small};

const CONSUMERS: [&str; 3] = ["storage", "backup", "feed"];

/// How one run goes.
#[derive(Clone, Debug)]
pub struct Plan {
    pub config: LogConfig,
    pub crashes: usize,
    pub faults: FaultPlan,
    /// The largest body; most are far smaller.
    pub body_max: u64,
}

impl Plan {
    /// A run in which only crashes happen.
    pub fn quiet(random: &mut Random) -> Self {
        let first = 8192 << random.below(3);
        let mut config = small(first, first << random.below(3));
        config.syncs_in_flight = 1 + random.index(3);
        Self { config, crashes: 6, faults: FaultPlan::default(), body_max: first + first / 2 }
    }

    /// A run in which calls fail and stall, and the disk may fill up.
    pub fn faulty(random: &mut Random) -> Self {
        let mut plan = Self::quiet(random);
        let fail = if random.chance(0.5) { 0.0 } else { 0.01 };
        plan.faults = FaultPlan::failing(fail, 0.02);
        plan.faults.sync.fail = if random.chance(0.5) { 0.0 } else { 0.02 };
        for faults in [&mut plan.faults.read, &mut plan.faults.write, &mut plan.faults.sync] {
            faults.stall_max = Duration::from_millis(20);
        }
        if random.chance(0.3) {
            plan.faults.capacity = Some(plan.config.max_segment_bytes * (3 + random.below(6)));
        }
        plan
    }
}

/// What happened in a run: a model that never met anything proves nothing.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stats {
    pub appended: u64,
    pub acknowledged: u64,
    /// Entries that were written, not acknowledged, and found after a crash; and those that
    /// weren't.
    pub survived: u64,
    pub lost: u64,
    pub tails_cut: u64,
    pub disk_full: u64,
    pub poisoned: u64,
    /// Spare files seen after crashes.
    pub spares: u64,
    pub segments: u64,
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.appended += other.appended;
        self.acknowledged += other.acknowledged;
        self.survived += other.survived;
        self.lost += other.lost;
        self.tails_cut += other.tails_cut;
        self.disk_full += other.disk_full;
        self.poisoned += other.poisoned;
        self.spares += other.spares;
        self.segments += other.segments;
    }
}

/// An entry that was appended, or may have been.
#[derive(Clone, Debug)]
struct Appended {
    /// That of the entry before if it has no mutations.
    version: Version,
    len: usize,
    is_lease: bool,
}

#[derive(Default)]
struct Model {
    /// Entries in order, those before `first_index` left out once they are known to be gone.
    entries: Vec<Appended>,
    /// Index of the first of them.
    first_index: u64,
    /// How many entries have been acknowledged, counted from index 1.
    acknowledged: u64,
    lease_durable: Version,
    lease_written: Version,
    /// For each consumer: the version up to which it has popped.
    popped: Vec<Option<Version>>,
    term: u64,
    stats: Stats,
    /// The first thing that went wrong.
    violation: Option<String>,
}

impl Model {
    fn last_version(&self) -> Version {
        self.entries.last().map_or(0, |entry| entry.version)
    }

    /// The index of the last entry with mutations up to this one; 0 if there is none.
    fn last_mutations(&self, upto: u64) -> u64 {
        let upto = (upto + 1).saturating_sub(self.first_index) as usize;
        let place =
            self.entries[..upto.min(self.entries.len())].iter().rposition(|entry| !entry.is_lease);
        place.map_or(0, |place| self.first_index + place as u64)
    }

    fn next_index(&self) -> u64 {
        self.first_index + self.entries.len() as u64
    }

    /// Whether an entry that was found is one that was appended.
    fn check_entry(&self, entry: &Entry) -> Result<(), String> {
        let place =
            entry.index.checked_sub(self.first_index).ok_or("an entry from before the first")?;
        let known = self.entries.get(place as usize).ok_or("an entry that nobody appended")?;
        if known.is_lease || (known.version, known.len) != (entry.version, entry.body.len()) {
            return Err(format!(
                "entry {} is {known:?}, version {} was found",
                entry.index, entry.version
            ));
        }
        Ok(())
    }

    /// What was found becomes what is known.
    fn go_on_from(&mut self, recovery: &Recovery, consumers: &[(String, Version)]) {
        let (found, all) = (recovery.last_index, self.next_index() - 1);
        self.stats.survived += found - self.acknowledged;
        self.stats.lost += all - found;
        self.stats.tails_cut += u64::from(recovery.cut_tail.is_some());
        self.entries.truncate((recovery.last_index + 1 - self.first_index) as usize);
        self.acknowledged = recovery.last_index;
        (self.lease_durable, self.lease_written) = (recovery.lease, recovery.lease);
        self.term = recovery.term;
        for (name, popped) in CONSUMERS.iter().zip(&mut self.popped) {
            *popped = consumers.iter().find(|(known, _)| known == name).map(|(_, from)| from - 1);
        }
    }

    fn fail(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }
}

type Shared = Arc<Mutex<Model>>;

fn with<T>(model: &Shared, f: impl FnOnce(&mut Model) -> T) -> T {
    f(&mut model.lock().expect("no test panics while it holds the model"))
}

/// One run. `Err` says how the log broke its promises.
pub fn run(seed: u64, make: impl FnOnce(&mut Random) -> Plan) -> Result<Stats, String> {
    let sim = Simulation::new(seed);
    let mut random = sim.random();
    let mut plan = make(&mut random);
    let model: Shared =
        Arc::new(Mutex::new(Model { first_index: 1, popped: vec![None; 3], ..Model::default() }));
    let mut env = sim.process("node");
    let created =
        sim.run_until(async { LocalLog::create(&env, DIR, IDENTITY, plan.config.clone()).await });
    let (log, recovery) = created.map_err(|error| format!("create: {error}"))?;
    with(&model, |model| model.term = recovery.term);
    sim.run_until(log.close()).map_err(|error| format!("close: {error}"))?;

    for life in 0..plan.crashes {
        if seed.is_multiple_of(3) {
            plan.config.keys = keys_of_life(life);
        }
        let (log, recovery) = match open(&sim, &env, &plan, &mut random)? {
            Some(opened) => opened,
            None => {
                env = crash(&sim, &env, &mut random);
                continue;
            }
        };
        sim.run_until(compare(&model, &log, &recovery))?;
        sim.set_faults(&env, plan.faults.clone());
        let work = Work {
            log,
            model: model.clone(),
            random: random.split(),
            env: env.clone(),
            plan: plan.clone(),
        };
        let _task = env.spawn("writer", work.run());
        sim.run_for(Duration::from_micros(random.below(100_000)));
        sim.set_faults(&env, FaultPlan::default());
        if let Some(violation) = with(&model, |model| model.violation.take()) {
            return Err(violation);
        }
        env = crash(&sim, &env, &mut random);
        note_files(&sim, &env, &model);
    }
    plan.faults = FaultPlan::default();
    let (log, recovery) =
        open(&sim, &env, &plan, &mut Random::new(1))?.ok_or("the last opening did not end")?;
    sim.run_until(compare(&model, &log, &recovery))?;
    sim.run_until(log.close()).map_err(|error| format!("close: {error}"))?;
    Ok(with(&model, |model| model.stats))
}

fn note_files(sim: &Simulation, env: &Env, model: &Shared) {
    let files = sim.files(env);
    let count = |prefix: &str| {
        files.iter().filter(|(path, _)| path.to_string_lossy().contains(prefix)).count() as u64
    };
    with(model, |model| {
        model.stats.spares += count("spare-");
        model.stats.segments += count("segment-");
    });
}

fn crash(sim: &Simulation, env: &Env, random: &mut Random) -> Env {
    match random.index(5) {
        0 => sim.kill(env),
        1 => sim.crash_with(env, Unsynced::Lost),
        _ => sim.crash(env),
    }
    sim.restart(env)
}

/// Opens the log; sometimes a fault or the next crash comes first: `None`.
fn open(
    sim: &Simulation,
    env: &Env,
    plan: &Plan,
    random: &mut Random,
) -> Result<Option<(LocalLog, Recovery)>, String> {
    let report = sim
        .run_until(verify(env, DIR, &plan.config.keys))
        .map_err(|error| format!("verify: {error}"))?;
    if let Some(problem) = report.problems.first() {
        return Err(format!("verify after a crash: {problem}"));
    }
    let limit = if random.chance(0.3) {
        Duration::from_micros(random.below(5000))
    } else {
        Duration::from_secs(60)
    };
    let under_faults = random.chance(0.3);
    if under_faults {
        sim.set_faults(env, plan.faults.clone());
    }
    let opened =
        sim.run_until_within(limit, LocalLog::open(env, DIR, IDENTITY, plan.config.clone()));
    sim.set_faults(env, FaultPlan::default());
    match opened {
        None => Ok(None),
        Some(Err(error)) if under_faults && !matches!(error, LogError::Corrupt(_)) => Ok(None),
        Some(Ok(opened)) => {
            let tail = report.torn_tail.map(|tail| (tail.file, tail.offset));
            let cut = opened.1.cut_tail.as_ref().map(|tail| (tail.file.clone(), tail.offset));
            if tail != cut && plan.config.planted == Planted::None {
                return Err(format!("verify found the torn tail {tail:?}, opening cut {cut:?}"));
            }
            Ok(Some(opened))
        }
        Some(Err(error)) => Err(format!("open: {error}")),
    }
}

/// Compares what the log holds after a crash with what it must and may hold, and goes on from
/// there.
async fn compare(shared: &Shared, log: &LocalLog, recovery: &Recovery) -> Result<(), String> {
    let (popped, floor) = with(shared, |model| {
        let floor = model.popped.iter().flatten().min().copied().unwrap_or(0);
        (model.popped.clone(), floor)
    });
    let consumers = log.consumers();
    for (name, from) in &consumers {
        let place =
            CONSUMERS.iter().position(|known| known == name).ok_or("an unknown consumer")?;
        if popped[place].is_none_or(|popped| popped + 1 < *from) {
            return Err(format!("{name} goes on from {from}, it had popped {:?}", popped[place]));
        }
        super::read(log, *from)
            .await
            .map_err(|error| format!("{name} reads from {from}: {error}"))?;
    }
    let found =
        super::read(log, floor + 1).await.map_err(|error| format!("read from {floor}: {error}"))?;
    check(&found)?;
    with(shared, |model| {
        let last = model.last_mutations(recovery.last_index);
        let ends_at = found.last().map_or(last, |entry| entry.index);
        if ends_at != last || recovery.last_index < model.acknowledged {
            return Err(format!(
                "the log ends at {ends_at} (it says {}), acknowledged are {}",
                recovery.last_index, model.acknowledged
            ));
        }
        let first_found = found.first().map_or(u64::MAX, |entry| entry.index);
        let between = (first_found..=recovery.last_index)
            .filter_map(|index| model.entries.get((index - model.first_index) as usize));
        let expected = between.filter(|entry| !entry.is_lease).count();
        if expected != found.len() {
            return Err(format!("{} entries were found, {expected} are there", found.len()));
        }
        found.iter().try_for_each(|entry| model.check_entry(entry))?;
        let first = found.first().map_or(recovery.last_index + 1, |entry| entry.index);
        let is_needed = |entry: &Appended| entry.version > floor && !entry.is_lease;
        let first_needed = model.entries.iter().position(is_needed);
        let first_needed =
            first_needed.map_or(model.next_index(), |place| model.first_index + place as u64);
        if first > first_needed && first_needed <= recovery.last_index {
            return Err(format!("the log begins at {first}, {first_needed} is needed"));
        }
        if !(model.lease_durable..=model.lease_written.max(0)).contains(&recovery.lease) {
            return Err(format!(
                "lease {}, at least {} is durable",
                recovery.lease, model.lease_durable
            ));
        }
        if recovery.term <= model.term {
            return Err(format!("term {} follows {}", recovery.term, model.term));
        }
        model.go_on_from(recovery, &consumers);
        Ok(())
    })
}

/// The writer's task.
struct Work {
    log: LocalLog,
    model: Shared,
    random: Random,
    env: Env,
    plan: Plan,
}

impl Work {
    async fn run(mut self) {
        while self.log.check().is_ok() {
            self.log.check_invariants();
            let done = match self.random.index(20) {
                0..12 => self.append().await,
                12 | 13 => self.extend_lease().await,
                14 => self.log.mark_durable().await,
                15 | 16 => self.consume(),
                17 => self.peek().await,
                _ => {
                    self.env.sleep(Duration::from_micros(self.random.below(3000))).await;
                    Ok(())
                }
            };
            if let Err(error) = done
                && let Err(poison) = self.log.check()
                && poison.to_string() != error.to_string()
                && self.log.check().is_ok()
            {
                with(&self.model, |model| {
                    model.fail(format!("an error of a poisoned log: {error}"))
                });
            }
        }
        with(&self.model, |model| model.stats.poisoned += 1);
        if self.plan.faults == FaultPlan::default() {
            with(&self.model, |model| {
                model.fail("the log is poisoned though nothing has failed".to_string())
            });
        }
    }

    async fn append(&mut self) -> LogResult<()> {
        let small = if self.random.chance(0.95) { 600 } else { self.plan.body_max };
        let len = self.random.below(small) as usize;
        let version = with(&self.model, |model| {
            let version = model.last_version() + 1 + self.random.below(5) as i64;
            (version <= model.lease_written).then(|| {
                model.entries.push(Appended { version, len, is_lease: false });
                version
            })
        });
        let Some(version) = version else { return self.extend_lease().await };
        let bytes = body(version, len);
        let (head, tail) = bytes.split_at(self.random.index(len + 1));
        match self.log.append(version, &[head, tail]).await {
            Ok(position) => {
                let index = with(&self.model, |model| model.next_index() - 1);
                with(&self.model, |model| model.stats.appended += 1);
                self.sync(position, move |model| {
                    model.stats.acknowledged += 1;
                    model.acknowledged = model.acknowledged.max(index);
                });
                Ok(())
            }
            Err(error) => {
                with(&self.model, |model| model.stats.disk_full += u64::from(error.is_disk_full()));
                // Unless the log is in doubt about it itself, nothing was appended.
                if self.log.check().is_ok() {
                    with(&self.model, |model| model.entries.pop());
                }
                Err(error)
            }
        }
    }

    async fn extend_lease(&mut self) -> LogResult<()> {
        let upto = with(&self.model, |model| {
            let upto =
                model.lease_written.max(model.last_version()) + 1 + self.random.below(200) as i64;
            model.lease_written = upto;
            let version = model.last_version();
            model.entries.push(Appended { version, len: 8, is_lease: true });
            upto
        });
        let position = match self.log.extend_lease(upto).await {
            Ok(position) => position,
            Err(error) => {
                if self.log.check().is_ok() {
                    with(&self.model, |model| model.entries.pop());
                }
                return Err(error);
            }
        };
        let index = with(&self.model, |model| model.next_index() - 1);
        let view = self.log.view();
        self.sync(position, move |model| {
            model.acknowledged = model.acknowledged.max(index);
            model.lease_durable = model.lease_durable.max(upto);
            if view.lease() < upto {
                model.fail(format!("the lease is {}, {upto} has been synced", view.lease()));
            }
        });
        Ok(())
    }

    /// Syncs in a task of its own and notes what that makes certain.
    fn sync(&mut self, position: Position, note: impl FnOnce(&mut Model) + Send + 'static) {
        let (syncer, model) = (self.log.syncer(), self.model.clone());
        let task = async move {
            if syncer.sync(position).await.is_ok() {
                with(&model, note);
            }
        };
        drop(self.env.spawn("sync", task));
    }

    fn consume(&mut self) -> LogResult<()> {
        let place = self.random.index(CONSUMERS.len());
        let (known, durable) = with(&self.model, |model| (model.popped[place], model.acknowledged));
        let upto = with(&self.model, |model| {
            let index = (durable + 1).checked_sub(model.first_index)?.checked_sub(1)?;
            model.entries.get(index as usize).map(|entry| entry.version)
        });
        match known {
            None => {
                let from = upto.unwrap_or(0);
                let from = self.log.register(CONSUMERS[place], from, None)?;
                with(&self.model, |model| model.popped[place] = Some(from - 1));
            }
            Some(popped) => {
                let upto = upto.unwrap_or(0).max(popped);
                with(&self.model, |model| model.popped[place] = Some(upto));
                self.log.pop(CONSUMERS[place], upto)?;
            }
        }
        Ok(())
    }

    async fn peek(&mut self) -> LogResult<()> {
        let view: LocalView = self.log.view();
        let floor =
            with(&self.model, |model| model.popped.iter().flatten().min().copied().unwrap_or(0));
        let acknowledged = with(&self.model, |model| model.acknowledged);
        let found = super::read(&view, floor + 1).await?;
        let end = found.last().map_or(0, |entry| entry.index);
        with(&self.model, |model| {
            if let Err(what) = check(&found) {
                model.fail(what);
            }
            let acknowledged = model.last_mutations(acknowledged);
            let last_needed = acknowledged.checked_sub(model.first_index);
            let is_needed = last_needed.and_then(|place| model.entries.get(place as usize));
            if is_needed.is_some_and(|entry| entry.version > floor) && end < acknowledged {
                model.fail(format!("a reader ends at {end}, acknowledged are {acknowledged}"));
            }
        });
        Ok(())
    }
}
