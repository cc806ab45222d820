//! A run: from a plan to a report.
//!
//! Set up without faults; work under faults; then faults off, one more crash, a last recovery, the workload's
//! check (safety), and commits that must succeed within a bounded time (liveness). Panics anywhere inside count as
//! failures like any other.

use crate::client::Client;
use crate::nemesis::Nemesis;
use crate::plan::{Plan, Size, draw_window};
use crate::probes::Probes;
use crate::stage::Stage;
use crate::workloads::{self, Workload};
use plinth_env::simulated::{Random, Simulation};
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How long setting up, finishing and checking may take; clients' own pauses are milliseconds.
const PATIENCE: Duration = Duration::from_secs(600);

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
        let Plan { workload, seed, .. } = &self.plan;
        let (lives, committed, hash) = (self.lives, self.committed, self.trace_hash);
        let verdict = if self.failure.is_some() { "FAILED" } else { "ok" };
        write!(f, "{workload} seed {seed}: {verdict}, {committed} commits, {lives} lives, ")?;
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
/// If there is no workload of this name, or a bug is asked for without the feature `planted-bugs`.
pub fn run(plan: &Plan) -> Report {
    let sim = Simulation::new(plan.seed);
    let stage = Arc::new(Stage::new(sim.process("clients")));
    let mut random = sim.random();
    let workload = workloads::make(&plan.workload, &mut random).unwrap_or_else(|| {
        panic!("there is no workload {:?}; there are {:?}", plan.workload, workloads::NAMES)
    });
    let done = catch_unwind(AssertUnwindSafe(|| perform(plan, &sim, &stage, &workload, &mut random)));
    let failure = match done {
        Ok(Ok(())) => stage.failure(),
        Ok(Err(what)) => Some(stage.failure().unwrap_or(what)),
        Err(panic) => Some(format!("panic: {}", panic_message(&*panic))),
    };
    Report {
        plan: plan.clone(),
        trace_hash: sim.trace_hash(),
        events: sim.event_count(),
        simulated: sim.now(),
        lives: stage.life_number(),
        committed: stage.committed(),
        probes: stage.probes(),
        failure,
    }
}

fn perform(
    plan: &Plan,
    sim: &Simulation,
    stage: &Arc<Stage>,
    workload: &Arc<dyn Workload>,
    random: &mut Random,
) -> Result<(), String> {
    let size = Size::draw(random);
    let window = if workload.needs_long_window() {
        plinth_types::limits::WINDOW_VERSIONS
    } else {
        draw_window(random)
    };
    let mut nemesis = Nemesis::new(sim.clone(), stage.clone(), random.split(), window, plan.bug);
    nemesis.open()?;
    phase(sim, stage, "setting up", workload.clone().set_up(client(0, stage, random)))?;
    let clients: Vec<_> = (0..size.clients)
        .map(|id| {
            let client = client(id, stage, random);
            stage.env().spawn(&format!("client-{id}"), workload.clone().run(client, size.clients))
        })
        .collect();
    let end = sim.now() + size.duration;
    stage.set_faulty(plan.faults);
    while sim.now() < end && stage.failure().is_none() {
        nemesis.work_for(Duration::from_millis(random.in_range(5..400)));
        if plan.faults {
            nemesis.act()?;
        }
    }
    stage.set_faulty(false);
    nemesis.calm();
    if plan.faults {
        nemesis.crash();
        nemesis.open()?;
    }
    stage.stop();
    phase(sim, stage, "the clients' last attempts", async move {
        for client in clients {
            // A panic in it has ended the run already.
            let _ = client.await;
        }
    })?;
    phase(sim, stage, "the check", workload.clone().check(client(0, stage, random)))?;
    if plan.faults {
        nemesis.close();
        nemesis.open()?;
        phase(sim, stage, "the check after closing", workload.clone().check(client(0, stage, random)))?;
    }
    phase(sim, stage, "the last commits", last_commits(client(0, stage, random)))
}

fn client(id: usize, stage: &Arc<Stage>, random: &mut Random) -> Client {
    Client::new(id, stage.clone(), random.split())
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

fn phase(sim: &Simulation, stage: &Stage, name: &str, work: impl Future<Output = ()>) -> Result<(), String> {
    let done = sim.run_until_within(PATIENCE, work);
    match (stage.failure(), done) {
        (Some(failure), _) => Err(failure),
        (None, Some(())) => Ok(()),
        (None, None) => Err(format!("{name} did not end within {PATIENCE:?} without any fault")),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_string())
}
