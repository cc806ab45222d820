//! The nemesis: what goes wrong in a run, and how the node comes back each time.
//!
//! It acts from outside of the simulated world, between two of its steps. Opening the node again
//! happens under the same faults: it may fail, and it may be interrupted by another crash; but
//! errors that say that the files are damaged are never excused, unless a bit was turned over on
//! the disk: then the node must find the damage and name the file, or show by its answers that it
//! had been nobody's data (`damage`).

use crate::bugs::Bug;
use crate::damage::Damage;
use crate::double::{Between, Doubles};
use crate::faults::{Fault, Faults, is_excused};
use crate::link::{Line, Link};
use crate::plan::{DIR, OPEN_LIMIT, Setting, draw_config};
use crate::stage::Stage;
use plinth_client::remote::{ClusterFile, RemoteEndpoint};
use plinth_client::{Database, Endpoint};
use plinth_env::Env;
use plinth_env::simulated::{FaultPlan, NetworkPlan, Random, Simulation, Unsynced};
use plinth_pipeline::{Node, NodeConfig};
use plinth_server::{Server, ServerConfig};
use plinth_types::{Error, Result};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often opening may fail before the faults are switched off, and from then on it must succeed.
const PATIENCE: usize = 8;

/// Why a run goes no further.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Something is wrong.
    Failure(String),
    /// The node refuses to open a disk on which a bit was turned over, or to read there, and says
    /// where: a good end.
    FoundDamage,
}

impl From<String> for Stop {
    fn from(what: String) -> Self {
        Self::Failure(what)
    }
}

/// What a nemesis is made from.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub setting: Setting,
    pub faults: Faults,
    pub link: Link,
    pub bug: Option<Bug>,
    /// How likely a restart is after each of the things that are done to a node.
    pub restarts: f64,
}

/// A network on which bytes are late, and connections stand still, for so long at most, or break.
pub(crate) fn bad_network(random: &mut Random, clog_max: Duration) -> NetworkPlan {
    NetworkPlan {
        latency_max: Duration::from_micros(500 + random.below(20_000)),
        clog: 0.001,
        clog_max,
        close: 0.001,
        ..NetworkPlan::default()
    }
}

/// A node's machine, and what happens to it.
pub(crate) struct Nemesis {
    pub sim: Simulation,
    pub machine: Env,
    pub stage: Arc<Stage>,
    pub random: Random,
    pub damage: Damage,
    orders: Orders,
    /// Who has commits arrive twice, if that is the link.
    between: Option<Between>,
    life: Option<Life>,
}

/// The node as it runs.
struct Life {
    node: Arc<Node>,
    /// If clients come over the network.
    server: Option<Server>,
    line: Arc<Line>,
}

/// A node that has just been opened.
struct Opened {
    node: Arc<Node>,
    server: Option<Server>,
}

/// Where a node's server listens.
const PORT: u16 = 4500;

async fn open(machine: &Env, config: NodeConfig, address: Option<SocketAddr>) -> Result<Opened> {
    let node = Node::open(machine, Path::new(DIR), config).await?;
    let Some(address) = address else { return Ok(Opened { node, server: None }) };
    let config =
        ServerConfig { listen: vec![address], without_tls: true, ..ServerConfig::default() };
    let server = Server::start(Arc::new(node.endpoint()), config).await?;
    Ok(Opened { node, server: Some(server) })
}

impl Nemesis {
    pub fn new(sim: Simulation, stage: Arc<Stage>, random: Random, orders: Orders) -> Self {
        let machine = sim.process("node");
        let address = SocketAddr::new(sim.ip(&machine), PORT);
        let is_doubled = orders.link == Link::Doubled;
        let between = is_doubled.then(|| Between::stand(&sim, address, Doubles::Later));
        Self { sim, machine, stage, random, damage: Damage::default(), orders, between, life: None }
    }

    /// Does one thing to the node, and lets it work on for a while.
    pub fn act(&mut self) -> std::result::Result<(), Stop> {
        if let Some(what) = self.between.as_ref().and_then(Between::violation) {
            return Err(what.into());
        }
        match self.orders.faults.draw(&mut self.random) {
            Fault::Crash => self.crash(),
            Fault::Kill => self.kill(),
            Fault::Close => _ = self.close(),
            Fault::Errors => self.errors(),
            Fault::FailingSyncs => self.failing_syncs(),
            Fault::DiskFull => self.disk_full(),
            Fault::Stalls => self.stalls(),
            Fault::Clock => self.move_clock(),
            Fault::Network => self.disturb_network(),
            Fault::BitFlip => self.flip_a_bit(),
            // The others take several nodes.
            _ => self.calm(),
        }
        // An hour's work of a node that takes no more commits tests nothing: it is seen to soon.
        let longest = if self.random.chance(0.5) { 1_000_000 } else { 60_000 };
        let time = Duration::from_micros(self.random.below(longest));
        self.work_for(time);
        if let Some(life) = &self.life {
            life.node.check_invariants();
        }
        if self.life.is_none() || self.random.chance(self.orders.restarts) {
            self.end_life_somehow();
            return self.open();
        }
        Ok(())
    }

    pub fn work_for(&self, duration: Duration) {
        self.sim.run_for(duration);
    }

    fn end_life_somehow(&mut self) {
        if self.life.is_none() {
            return;
        }
        match self.random.below(4) {
            0 => self.kill(),
            1 => _ = self.close(),
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

    /// The node is asked to close, with clients still at work, and gets the time it needs. Whether
    /// it closed without an error, if it was open.
    pub fn close(&mut self) -> bool {
        let Some(life) = &mut self.life else { return false };
        let (node, server) = (life.node.clone(), life.server.take());
        let closed = Arc::new(Mutex::new(false));
        let place = closed.clone();
        let closing = self.machine.spawn("close", async move {
            if let Some(server) = server {
                server.stop().await;
            }
            // Under faults it may well fail; what was acknowledged must be there all the same.
            *place.lock().unwrap_or_else(PoisonError::into_inner) = node.close().await.is_ok();
        });
        match self.sim.run_until_within(OPEN_LIMIT, closing) {
            Some(_) => self.stage.probe("closed gracefully"),
            None => self.stage.fail(format!("the node did not close within {OPEN_LIMIT:?}")),
        }
        self.stage.end_life();
        self.sim.kill(&self.machine);
        self.bury();
        *closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of what the dead process had, and begins its machine's next life.
    fn bury(&mut self) {
        if let Some(life) = self.life.take() {
            life.line.cut();
        }
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

    fn move_clock(&mut self) {
        self.stage.probe("wall clock moved");
        let seconds = self.random.below(20_000_000);
        self.sim.move_wall_clock(&self.machine, seconds as i64 - 10_000_000);
    }

    /// The node ends well, and while it is down a bit turns over. Everything it had was durable and
    /// known to be, so whatever the bit was part of, the next start can tell.
    fn flip_a_bit(&mut self) {
        self.calm();
        if self.close() {
            self.damage.flip_a_bit(&self.sim, &self.machine, &mut self.random);
            self.stage.probe("bit turned over");
        }
    }

    fn disturb_network(&mut self) {
        self.stage.probe("network disturbed");
        let (node, mut clients) = (&self.machine, self.stage.env());
        if let Some(between) = &self.between {
            // What clients send is passed on by one machine, and doubled by another.
            clients = &between.machines[self.random.index(2)];
        }
        let time = Duration::from_micros(self.random.below(1_500_000));
        match self.random.below(4) {
            0 => self.sim.close_connections(node, clients),
            1 => self.sim.clog(node, clients, time),
            2 => {
                self.sim.partition(node, clients);
                self.sim.run_for(time);
                self.sim.heal(node, clients);
            }
            _ => self.sim.set_network(bad_network(&mut self.random, time)),
        }
    }

    /// Nothing goes wrong any more, until something does.
    pub fn calm(&mut self) {
        self.sim.heal(&self.machine, self.stage.env());
        self.sim.set_network(NetworkPlan::default());
        self.sim.set_faults(&self.machine, FaultPlan::default());
    }

    /// Crashes the machine in the midst of making the database, or soon after: who opens it then
    /// finds what was left of that.
    pub fn interrupt_creation(&mut self) -> std::result::Result<(), Stop> {
        let limit = Duration::from_micros(self.random.below(20_000));
        match self.try_open(limit) {
            Some(Err(error)) => {
                return Err(format!("the database could not be made: {error}").into());
            }
            Some(Ok(opened)) => drop(opened),
            None => self.stage.probe("crash while the database is made"),
        }
        self.crash();
        Ok(())
    }

    /// Opens the node, again and again if it must be, and gives it to the clients.
    pub fn open(&mut self) -> std::result::Result<(), Stop> {
        for attempt in 0.. {
            if attempt == PATIENCE {
                self.calm();
            }
            let must_succeed = attempt > PATIENCE;
            let hasty = !must_succeed && self.stage.is_faulty() && self.random.chance(0.25);
            let limit =
                if hasty { Duration::from_micros(self.random.below(20_000)) } else { OPEN_LIMIT };
            match self.try_open(limit) {
                Some(Ok(opened)) => return self.begin_life(opened),
                Some(Err(error)) if !is_excused(&error) => return Err(self.judge_refusal(&error)),
                Some(Err(error)) if must_succeed => {
                    return Err(format!("the node does not open: {error}").into());
                }
                Some(Err(_)) => self.stage.probe("open failed and was tried again"),
                None if hasty => self.stage.probe("crash during recovery"),
                None => return Err(format!("the node did not open within {limit:?}").into()),
            }
            self.crash();
        }
        Ok(())
    }

    fn begin_life(&mut self, opened: Opened) -> std::result::Result<(), Stop> {
        let Opened { node, server } = opened;
        let (clients, faulty) = (self.stage.env(), self.stage.is_faulty());
        let endpoint: Arc<dyn Endpoint> = match &server {
            None => Arc::new(node.endpoint()),
            Some(server) => {
                let file = ClusterFile::parse(server.connection_string());
                let mut file =
                    file.map_err(|error| format!("what clients are told is of no use: {error}"))?;
                if let Some(between) = &self.between {
                    let key = file.key();
                    let (description, id) = key.split_once(':').unwrap_or_default();
                    file = ClusterFile::new(description, id, between.address);
                }
                Arc::new(RemoteEndpoint::connect(clients, file))
            }
        };
        let line = Arc::new(self.orders.link.connect(endpoint, clients, &mut self.random, faulty));
        self.stage.begin_life(Database::new(line.clone()), self.machine.clone());
        self.life = Some(Life { node, server, line });
        Ok(())
    }

    /// A client was told that files are damaged. Gives the node an end, and looks whether that is
    /// so.
    pub fn judge_damage(&mut self, error: &Error) -> Stop {
        self.calm();
        self.close();
        self.judge_refusal(error)
    }

    /// The node says that its files are damaged.
    fn judge_refusal(&mut self, error: &Error) -> Stop {
        match self.damage.explains(&self.sim, &self.machine, error) {
            Ok(()) => {
                self.stage.probe("damage found and named");
                Stop::FoundDamage
            }
            Err(what) => what.into(),
        }
    }

    fn try_open(&mut self, limit: Duration) -> Option<Result<Opened>> {
        let config = draw_config(&mut self.random, self.orders.setting, self.orders.bug);
        let machine = self.machine.clone();
        let address = SocketAddr::new(self.sim.ip(&machine), PORT);
        let address = self.orders.link.is_network().then_some(address);
        let opened = Arc::new(Mutex::new(None));
        let place = opened.clone();
        let opening = self.machine.spawn("open", async move {
            let opened = open(&machine, config, address).await;
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(opened);
        });
        let _ = self.sim.run_until_within(limit, opening);
        opened.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The end of a run: the node is closed, and every checksum in its directory must hold.
    pub fn inspect(&mut self) -> std::result::Result<(), Stop> {
        self.close();
        if let Some(what) = self.between.as_ref().and_then(Between::violation) {
            return Err(what.into());
        }
        self.damage.inspect(&self.sim, &self.machine).map_err(Stop::Failure)
    }
}
