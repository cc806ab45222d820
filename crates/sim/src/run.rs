//! A run: from a plan to a report.
//!
//! Set up without faults, but that some databases are crashed while they are made; work under
//! faults; then faults off, one more crash, a last recovery, the workloads' checks (safety),
//! commits that must succeed within a bounded time (liveness), and every checksum in the directory.
//! Panics anywhere inside count as failures like any other.

use crate::bugs;
use crate::client::Client;
use crate::fleet::Fleet;
use crate::nemesis::{Nemesis, Orders, Stop};
use crate::plan::{Plan, Setting, Size, is_sealed};
use crate::probes::Probes;
use crate::stage::Stage;
use crate::workloads::{self, Workload};
use plinth_env::Task;
use plinth_env::simulated::{Random, Simulation};
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How long setting up, finishing and checking may take; clients' own pauses are milliseconds.
const PATIENCE: Duration = Duration::from_secs(600);

/// In such a part of the runs the database's making is interrupted first.
const INTERRUPTED_CREATIONS: f64 = 0.2;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was run.
    pub plan: Plan,
    /// Stands for everything that happened: equal plans have equal ones.
    pub trace_hash: u64,
    /// How many events there were.
    pub events: u64,
    /// How much simulated time passed.
    pub simulated: Duration,
    /// How many lives the node had.
    pub lives: u64,
    /// How many attempts are known to have committed.
    pub committed: u64,
    /// The rare paths that were reached.
    pub probes: Probes,
    /// What was found wrong; `None` if nothing was.
    pub failure: Option<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { spec, seed, .. } = &self.plan;
        let (lives, committed, hash) = (self.lives, self.committed, self.trace_hash);
        let verdict = if self.failure.is_some() { "FAILED" } else { "ok" };
        write!(f, "{} seed {seed}: {verdict}, {committed} commits, {lives} lives, ", spec.name)?;
        write!(
            f,
            "{:.1} s simulated, {} events, trace {hash:016x}",
            self.simulated.as_secs_f64(),
            self.events
        )?;
        match &self.failure {
            Some(failure) => write!(f, "\n  {failure}\n  again: {}", self.plan.reproduction()),
            None => Ok(()),
        }
    }
}

/// Runs a plan.
///
/// # Panics
/// If a bug is asked for without the feature `planted-bugs`.
pub fn run(plan: &Plan) -> Report {
    bugs::plant(plan.bug);
    Probes::forget_hits();
    let sim = Simulation::new(plan.seed);
    let stage = Arc::new(Stage::new(sim.process("clients")));
    let mut random = sim.random();
    let done = catch_unwind(AssertUnwindSafe(|| perform(plan, &sim, &stage, &mut random)));
    let failure = match done {
        Ok(Ok(()) | Err(Stop::FoundDamage)) => stage.failure(),
        Ok(Err(Stop::Failure(what))) => Some(stage.failure().unwrap_or(what)),
        Err(panic) => Some(format!("panic: {}", panic_message(&*panic))),
    };
    let mut probes = stage.probes();
    probes.take_hits();
    bugs::plant(None);
    Report {
        plan: plan.clone(),
        trace_hash: sim.trace_hash(),
        events: sim.event_count(),
        simulated: sim.now(),
        lives: stage.life_number(),
        committed: stage.committed(),
        probes,
        failure,
    }
}

/// The workloads of a run, and how many clients each has.
struct Cast {
    workloads: Vec<Arc<dyn Workload>>,
    size: Size,
}

impl Cast {
    /// One client of each workload, whose number tells it from those that work.
    fn one_each(
        &self,
        stage: &Arc<Stage>,
        random: &mut Random,
    ) -> Vec<(Arc<dyn Workload>, Client)> {
        let made = self.workloads.iter().enumerate().map(|(place, workload)| {
            (
                workload.clone(),
                Client::new(0, place * self.size.clients, stage.clone(), random.split()),
            )
        });
        made.collect()
    }
}

fn perform(
    plan: &Plan,
    sim: &Simulation,
    stage: &Arc<Stage>,
    random: &mut Random,
) -> Result<(), Stop> {
    let made =
        plan.spec.workloads.iter().map(|entry| workloads::make(&plan.spec.own, entry, random));
    let workloads = made.collect::<Result<Vec<_>, String>>()?;
    let cast = Cast { workloads, size: Size::draw(&plan.spec, random) };
    let needs_long_window = cast.workloads.iter().any(|workload| workload.needs_long_window());
    if cast.workloads.iter().any(|workload| workload.locks_database()) {
        stage.set_lockable();
    }
    let orders = Orders {
        // Between nodes messages take their time.
        setting: Setting {
            sealed: is_sealed(plan.seed),
            ..Setting::draw(random, needs_long_window || plan.spec.is_of_clusters())
        },
        faults: plan.spec.faults.clone(),
        link: plan.spec.links[random.index(plan.spec.links.len())],
        bug: plan.bug,
        restarts: plan.spec.restarts as f64 / 100.0,
    };
    let nodes = plan.spec.nodes.draw(random) as usize;
    if nodes > 1 {
        stage.set_cluster();
        let mut fleet = Fleet::new(sim.clone(), stage.clone(), random.split(), nodes, orders);
        return play_cluster(plan, &cast, &mut fleet, random);
    }
    let mut nemesis = Nemesis::new(sim.clone(), stage.clone(), random.split(), orders);
    let played = play(plan, &cast, &mut nemesis, random);
    match (stage.failure(), stage.damage()) {
        (None, Some(error)) => Err(nemesis.judge_damage(&error)),
        _ => played,
    }
}

/// The acts of a run, one after the other.
fn play(plan: &Plan, cast: &Cast, nemesis: &mut Nemesis, random: &mut Random) -> Result<(), Stop> {
    let (sim, stage) = (nemesis.sim.clone(), nemesis.stage.clone());
    let (sim, stage) = (&sim, &stage);
    if plan.is_faulty() && random.chance(INTERRUPTED_CREATIONS) {
        nemesis.interrupt_creation()?;
    }
    nemesis.open()?;
    for (workload, client) in cast.one_each(stage, random) {
        phase(sim, stage, "setting up", workload.set_up(client))?;
    }
    work(plan, cast, nemesis, random)?;
    check(cast, nemesis, random, "the check")?;
    if plan.is_faulty() {
        nemesis.close();
        nemesis.open()?;
        check(cast, nemesis, random, "the check after closing")?;
    }
    let client = Client::new(0, 0, stage.clone(), random.split());
    phase(sim, stage, "the last commits", last_commits(client))?;
    nemesis.inspect()
}

/// The acts of a run of a cluster: the database has one life, its nodes have many.
fn play_cluster(
    plan: &Plan,
    cast: &Cast,
    fleet: &mut Fleet,
    random: &mut Random,
) -> Result<(), Stop> {
    let (sim, stage) = (fleet.sim.clone(), fleet.stage.clone());
    let (sim, stage) = (&sim, &stage);
    fleet.form()?;
    for (workload, client) in cast.one_each(stage, random) {
        phase(sim, stage, "setting up", workload.set_up(client))?;
    }
    let clients = begin_work(cast, stage, random);
    let end = sim.now() + cast.size.duration;
    stage.set_faulty(plan.is_faulty());
    while sim.now() < end && !stage.is_over() {
        sim.run_for(Duration::from_millis(random.in_range(5..600)));
        if plan.is_faulty() {
            fleet.act()?;
        }
    }
    stage.set_faulty(false);
    fleet.heal()?;
    stage.stop();
    let last = phase(sim, stage, "the clients' last attempts", ended(clients));
    last.map_err(|stop| fleet.explain(stop))?;
    for (workload, client) in cast.one_each(stage, random) {
        phase(sim, stage, "the check", workload.check(client))?;
    }
    let client = Client::new(0, 0, stage.clone(), random.split());
    phase(sim, stage, "the last commits", last_commits(client))?;
    fleet.inspect()
}

/// Has the clients begin.
fn begin_work(cast: &Cast, stage: &Arc<Stage>, random: &mut Random) -> Vec<Task> {
    let mut clients = Vec::new();
    for (at, workload) in cast.workloads.iter().enumerate() {
        for id in 0..cast.size.clients {
            let place = at * cast.size.clients + id;
            let client = Client::new(id, place, stage.clone(), random.split());
            let work = workload.clone().run(client, cast.size.clients);
            clients.push(stage.env().spawn(&format!("client-{place}"), work));
        }
    }
    clients
}

async fn ended(clients: Vec<Task>) {
    for client in clients {
        // A panic in it has ended the run already.
        let _ = client.await;
    }
}

/// Has the clients work under faults, and lets them come to an end without.
fn work(plan: &Plan, cast: &Cast, nemesis: &mut Nemesis, random: &mut Random) -> Result<(), Stop> {
    let (sim, stage) = (nemesis.sim.clone(), nemesis.stage.clone());
    let clients = begin_work(cast, &stage, random);
    let end = sim.now() + cast.size.duration;
    stage.set_faulty(plan.is_faulty());
    while sim.now() < end && !stage.is_over() {
        nemesis.work_for(Duration::from_millis(random.in_range(5..400)));
        if plan.is_faulty() {
            nemesis.act()?;
        }
    }
    stage.set_faulty(false);
    nemesis.calm();
    if plan.is_faulty() {
        nemesis.crash();
        nemesis.open()?;
    }
    stage.stop();
    phase(&sim, &stage, "the clients' last attempts", ended(clients))
}

fn check(cast: &Cast, nemesis: &Nemesis, random: &mut Random, name: &str) -> Result<(), Stop> {
    for (workload, client) in cast.one_each(&nemesis.stage, random) {
        phase(&nemesis.sim, &nemesis.stage, name, workload.check(client))?;
    }
    Ok(())
}

/// Liveness: with nothing going wrong any more, everybody's commits succeed.
async fn last_commits(client: Client) {
    for n in 0u8..3 {
        let committed = client.insist(async |tr| {
            tr.set([b"liveness", &[n][..]].concat(), b"alive");
            Ok(())
        });
        committed.await;
    }
}

fn phase(
    sim: &Simulation,
    stage: &Stage,
    name: &str,
    work: impl Future<Output = ()>,
) -> Result<(), Stop> {
    let done = sim.run_until_within(PATIENCE, work);
    match (stage.failure(), done) {
        (Some(failure), _) => Err(failure.into()),
        (None, _) if stage.is_over() => Err(Stop::FoundDamage),
        (None, Some(())) => Ok(()),
        (None, None) => {
            Err(format!("{name} did not end within {PATIENCE:?} without any fault").into())
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_string())
}
