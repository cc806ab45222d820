//! The nemesis: what goes wrong in a run, and how the node comes back each time.
//!
//! It acts from outside of the simulated world, between two of its steps. Opening the node again happens
//! under the same faults: it may fail, and it may be interrupted by another crash; but errors that say that the
//! files are damaged are never excused, for no fault here damages what was synced.

use crate::plan::{Bug, draw_config};
use crate::stage::Stage;
use plinth_client::Database;
use plinth_env::Env;
use plinth_env::simulated::{FaultPlan, Random, Simulation, Unsynced};
use plinth_pipeline::Node;
use plinth_types::{Error, Result};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Where the database lies on its disk.
pub(crate) const DIR: &str = "/db";

/// How long opening may take when nothing interrupts it; far more than the worst stalls add up to.
const OPEN_LIMIT: Duration = Duration::from_secs(600);

/// How often opening may fail before the faults are switched off, and from then on it must succeed.
const PATIENCE: usize = 8;

/// A node's machine, and what happens to it.
pub(crate) struct Nemesis {
    pub sim: Simulation,
    pub machine: Env,
    pub stage: Arc<Stage>,
    pub random: Random,
    window: i64,
    bug: Option<Bug>,
    node: Option<Arc<Node>>,
}

impl Nemesis {
    pub fn new(sim: Simulation, stage: Arc<Stage>, random: Random, window: i64, bug: Option<Bug>) -> Self {
        let machine = sim.process("node");
        Self { sim, machine, stage, random, window, bug, node: None }
    }

    /// Does one thing to the node, and lets it work on for a while.
    pub fn act(&mut self) -> std::result::Result<(), String> {
        match self.random.below(12) {
            0..3 => self.crash(),
            3 => self.kill(),
            4 => self.close(),
            5 | 6 => self.errors(),
            7 => self.failing_syncs(),
            8 | 9 => self.disk_full(),
            10 => self.stalls(),
            _ => self.calm(),
        }
        // An hour's work of a node that takes no more commits tests nothing: it is seen to soon.
        let longest = if self.random.chance(0.5) { 1_000_000 } else { 60_000 };
        let time = Duration::from_micros(self.random.below(longest));
        self.work_for(time);
        if self.node.is_none() || self.random.chance(0.4) {
            self.end_life_somehow();
            return self.open();
        }
        Ok(())
    }

    pub fn work_for(&self, duration: Duration) {
        self.sim.run_for(duration);
    }

    fn end_life_somehow(&mut self) {
        match self.random.below(4) {
            0 => self.kill(),
            1 => self.close(),
            _ => self.crash(),
        }
    }

    /// The power fails.
    pub fn crash(&mut self) {
        self.stage.end_life();
        let unsynced = match self.random.below(4) {
            0 => Unsynced::Lost,
            1 => Unsynced::Kept,
            _ => Unsynced::Seeded,
        };
        self.stage.probe(match unsynced {
            Unsynced::Lost => "crash: all unsynced data lost",
            Unsynced::Kept => "crash: all unsynced data kept",
            Unsynced::Seeded => "crash",
        });
        self.sim.crash_with(&self.machine, unsynced);
        self.bury();
    }

    /// The process is killed; its machine goes on.
    fn kill(&mut self) {
        self.stage.end_life();
        self.stage.probe("killed");
        self.sim.kill(&self.machine);
        self.bury();
    }

    /// The node is asked to close, with clients still at work, and gets the time it needs.
    pub fn close(&mut self) {
        let Some(node) = self.node.clone() else { return };
        let closing = self.machine.spawn("close", async move {
            // Under faults it may well fail; what was acknowledged must be there all the same.
            drop(node.close().await);
        });
        match self.sim.run_until_within(OPEN_LIMIT, closing) {
            Some(_) => self.stage.probe("closed gracefully"),
            None => self.stage.fail(format!("the node did not close within {OPEN_LIMIT:?}")),
        }
        self.stage.end_life();
        self.sim.kill(&self.machine);
        self.bury();
    }

    /// Lets go of what the dead process had, and begins its machine's next life.
    fn bury(&mut self) {
        self.node = None;
        self.machine = self.sim.restart(&self.machine);
    }

    fn errors(&mut self) {
        self.stage.probe("i/o errors");
        let fail = [0.0005, 0.005, 0.05][self.random.index(3)];
        let capacity = None;
        self.sim.set_faults(&self.machine, FaultPlan { capacity, ..FaultPlan::failing(fail, 0.0) });
    }

    fn failing_syncs(&mut self) {
        self.stage.probe("sync failures");
        let fail = [0.02, 0.2, 1.0][self.random.index(3)];
        self.sim.update_faults(&self.machine, |plan| plan.sync.fail = fail);
    }

    fn stalls(&mut self) {
        self.stage.probe("stalls");
        let longest = Duration::from_millis(self.random.in_range(1..2_000));
        self.sim.update_faults(&self.machine, |plan| {
            for faults in [&mut plan.write, &mut plan.sync, &mut plan.rename] {
                faults.stall = 0.02;
                faults.stall_max = longest;
            }
        });
    }

    fn disk_full(&mut self) {
        self.stage.probe("disk full");
        let used: u64 = self.sim.files(&self.machine).iter().map(|(_, len)| len).sum();
        let left = self.random.below(64 << 10);
        let capacity = Some(if self.random.chance(0.3) { used / 2 } else { used + left });
        self.sim.update_faults(&self.machine, |plan| plan.capacity = capacity);
    }

    /// Nothing goes wrong any more, until something does.
    pub fn calm(&mut self) {
        self.sim.set_faults(&self.machine, FaultPlan::default());
    }

    /// Opens the node, again and again if it must be, and gives it to the clients.
    pub fn open(&mut self) -> std::result::Result<(), String> {
        for attempt in 0.. {
            if attempt == PATIENCE {
                self.calm();
            }
            let must_succeed = attempt > PATIENCE;
            let hasty = !must_succeed && self.stage.is_faulty() && self.random.chance(0.25);
            let limit = if hasty { Duration::from_micros(self.random.below(20_000)) } else { OPEN_LIMIT };
            match self.try_open(limit) {
                Some(Ok(node)) => {
                    self.stage.begin_life(Database::new(Arc::new(node.endpoint())));
                    self.node = Some(node);
                    return Ok(());
                }
                Some(Err(error)) if must_succeed => return Err(format!("the node does not open: {error}")),
                Some(Err(error)) if !is_excused(&error) => {
                    return Err(format!("the node says that its files are damaged: {error}"));
                }
                Some(Err(_)) => self.stage.probe("open failed and was tried again"),
                None if hasty => self.stage.probe("crash during recovery"),
                None => return Err(format!("the node did not open within {limit:?}")),
            }
            self.crash();
        }
        Ok(())
    }

    fn try_open(&mut self, limit: Duration) -> Option<Result<Arc<Node>>> {
        let config = draw_config(&mut self.random, self.window, self.bug);
        let machine = self.machine.clone();
        let opened = Arc::new(Mutex::new(None));
        let place = opened.clone();
        let opening = self.machine.spawn("open", async move {
            let node = Node::open(&machine, Path::new(DIR), config).await;
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(node);
        });
        let _ = self.sim.run_until_within(limit, opening);
        opened.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Whether a fault of the nemesis explains that opening failed.
fn is_excused(error: &Error) -> bool {
    *error == Error::io_error() || plinth_env::is_disk_full(error)
}
