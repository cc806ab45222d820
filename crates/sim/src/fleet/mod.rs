//! A cluster's machines, and what happens to them: the nemesis of runs with several nodes.
//!
//! ```text
//!   clients ── router ──▶ node 1 ┐
//!                    ├──▶ node 2 ├─ wires: late, lost, doubled, cut one way
//!                    └──▶ node 3 ┘     each on a machine and a disk of its own
//! ```
//! Where a spec's link is the network, sockets stand in the place of router and wires:
//! `sockets.rs`.
//!
//! The database lives through the whole run, as long as a majority of its nodes comes back. Each
//! node is opened again as soon as the nemesis has had its way with it. In the end everything works
//! again: then all nodes must come to have the same rows, and every checksum in their directories
//! must hold.

mod flips;
mod places;
mod router;
mod sockets;
mod upgrades;
mod wires;

use crate::damage::Damage;
use crate::double::Between;
use crate::faults::{Fault, is_excused};
use crate::link::Link;
use crate::nemesis::{Orders, Stop};
use crate::plan::{DIR, OPEN_LIMIT, draw_config};
use crate::stage::{Stage, lock};
use plinth_client::{Database, Endpoint, ReadVersionRequest};
use plinth_env::Env;
use plinth_env::simulated::{FaultPlan, Random, Simulation, Unsynced};
use plinth_pipeline::cluster::{Membership, Spoken, Voter};
use plinth_pipeline::{Host, Node, NodeConfig};
use plinth_replication::NodeId;
use plinth_types::system::SYSTEM_END;
use plinth_types::{Bytes, Error, KeySelector, KeySpace, RangeRead, Version};
use router::Router;
use sockets::Sockets;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wires::{Up, Weather, Wire, Wires};

type Played = std::result::Result<(), Stop>;

/// How long a healed cluster may take to answer, or its nodes to come to have the same.
const HEALED: Duration = Duration::from_secs(60);
/// How soon a healed cluster is asked again.
const AGAIN: Duration = Duration::from_millis(10);

/// How long, and how often, it is looked whether a node's new rows come to count.
const CHANGE_LOOK: Duration = Duration::from_micros(100);
const CHANGE_LOOKS: usize = 3000;

/// A machine, and the node that it is.
struct Machine {
    env: Env,
    /// Who has commits arrive twice there, if anybody does.
    between: Option<Between>,
    /// 0: it has no disk, and is no member.
    id: NodeId,
    address: String,
    /// What the program on it speaks.
    spoken: Spoken,
    /// Bits that have been turned over on its disk.
    damage: Damage,
}

/// The machines of a cluster.
pub(crate) struct Fleet {
    pub sim: Simulation,
    pub stage: Arc<Stage>,
    pub random: Random,
    machines: Vec<Machine>,
    /// Where those run, and keep their files, that work beside the nodes: the agent of backups.
    beside: Env,
    /// How many it was founded with.
    founders: usize,
    orders: Orders,
    wires: Arc<Wires>,
    /// The addresses of those that may be excluded.
    excluded: Vec<String>,
    /// When a disk was lost last.
    disk_lost: Option<Duration>,
}

impl Fleet {
    pub fn new(
        sim: Simulation,
        stage: Arc<Stage>,
        random: Random,
        size: usize,
        orders: Orders,
    ) -> Self {
        let program = upgrades::first_program(&orders);
        let machines = (0..size)
            .map(|at| Machine::new(&sim, at, at as NodeId + 1, program, orders.link))
            .collect();
        let beside = sim.process("beside");
        let (wires, excluded, disk_lost) = (Arc::default(), Vec::new(), None);
        Self {
            sim,
            stage,
            random,
            machines,
            beside,
            founders: size,
            orders,
            wires,
            excluded,
            disk_lost,
        }
    }

    /// Forms the cluster, and gives it to the clients.
    pub fn form(&mut self) -> Played {
        for at in 0..self.machines.len() {
            self.make(at, &self.founding(at))?;
            self.open(at)?;
        }
        self.begin_life()
    }

    /// Gives the cluster to the clients, with the machine beside it as it is now.
    fn begin_life(&self) -> Played {
        let endpoint = match self.orders.link.is_network() {
            true => self.client()?,
            false => self.router(),
        };
        self.stage.begin_life(Database::new(endpoint), self.beside.clone());
        Ok(())
    }

    fn router(&self) -> Arc<dyn Endpoint> {
        let first = (1..=self.machines.len() as NodeId).find_map(|id| self.wires.line(id));
        let may_lose_answers = first.is_none_or(|first| first.may_lose_answers());
        Arc::new(Router::new(self.stage.env().clone(), self.wires.clone(), may_lose_answers))
    }

    fn config(&mut self) -> NodeConfig {
        let mut config = draw_config(&mut self.random, self.orders.setting, self.orders.bug);
        // Little is kept for whoever was away, so that rows are needed; of those a few at a time.
        config.follower_log_bytes = [0, 4 << 10, 64 << 10, 1 << 20][self.random.index(4)];
        config.rows.chunk_bytes = 1 << self.random.in_range(6..16);
        // So that all rows of a run take some seconds at most.
        config.rows.bytes_per_second = config.rows.chunk_bytes.saturating_mul(1000);
        config
    }

    fn founding(&self, at: usize) -> Membership {
        let voter = |machine: &Machine| Voter { id: machine.id, address: machine.address.clone() };
        let voters = self.machines.iter().map(voter).collect();
        Membership::founding(self.cluster_id(), self.machines[at].id, voters)
    }

    /// What election timeouts come from.
    fn cluster_id(&self) -> [u8; 16] {
        [self.sim.seed() as u8; 16]
    }

    /// Makes the directory of a member.
    fn make(&mut self, at: usize, membership: &Membership) -> Played {
        let config = self.config();
        let env = self.machines[at].env.clone();
        let formed = self.sim.run_until(Node::form(&env, Path::new(DIR), &config, membership));
        formed.map_err(|error| format!("node {} could not be formed: {error}", membership.node))?;
        self.machines[at].id = membership.node;
        Ok(())
    }

    /// Opens a node, if it must be again and again.
    fn open(&mut self, at: usize) -> Played {
        let id = self.machines[at].id;
        for attempt in 0..10 {
            let (machine, spoken) = (self.machines[at].env.clone(), self.machines[at].spoken);
            let config = NodeConfig { spoken, ..self.config() };
            let opened = Arc::new(Mutex::new(None));
            let (place, way) = (opened.clone(), self.way(at));
            let opening = self.machines[at].env.spawn("open", async move {
                let opened = way.open(&machine, config).await;
                *lock(&place) = Some(opened);
            });
            let hasty = attempt < 3 && self.stage.is_faulty() && self.random.chance(0.2);
            let limit =
                if hasty { Duration::from_micros(self.random.below(20_000)) } else { OPEN_LIMIT };
            let _ = self.sim.run_until_within(limit, opening);
            let done = lock(&opened).take();
            match done {
                Some(Ok((host, sockets))) => {
                    let (endpoint, clients) = (Arc::new(host.endpoint()), self.stage.env());
                    let is_faulty = self.stage.is_faulty();
                    let line =
                        self.orders.link.connect(endpoint, clients, &mut self.random, is_faulty);
                    let line = Arc::new(line);
                    self.wires.attach(id, Up { host, line, sockets, spoken });
                    return Ok(());
                }
                Some(Err(error)) if self.machines[at].damage.is_done() && !is_excused(&error) => {
                    return self.judge(at, &error);
                }
                Some(Err(error)) if !is_excused(&error) => {
                    return Err(format!("node {id} does not open: {error}").into());
                }
                Some(Err(_)) => self.stage.probe("open failed and was tried again"),
                None if hasty => self.stage.probe("crash during recovery"),
                None => return Err(format!("node {id} did not open within {limit:?}").into()),
            }
            self.crash(at);
            if attempt > 6 {
                self.sim.set_faults(&self.machines[at].env, FaultPlan::default());
            }
        }
        Err(format!("node {id} does not open").into())
    }

    /// What a node is to speak over.
    fn way(&self, at: usize) -> Way {
        if let Some(plan) = self.sockets_of(at) {
            return Way::Sockets(plan);
        }
        let Machine { env, spoken, .. } = &self.machines[at];
        let network = self.stage.env().clone();
        let (env, wires) = (env.clone(), self.wires.clone());
        Way::Wires(Wire { env, network, wires, spoken: *spoken })
    }

    /// The power of a machine fails.
    fn crash(&mut self, at: usize) {
        let unsynced = match self.random.below(4) {
            0 => Unsynced::Lost,
            1 => Unsynced::Kept,
            _ => Unsynced::Seeded,
        };
        self.stage.probe("crash");
        let up = self.wires.detach(self.machines[at].id);
        self.sim.crash_with(&self.machines[at].env, unsynced);
        self.bury(at, up);
    }

    fn kill(&mut self, at: usize) {
        self.stage.probe("killed");
        let up = self.wires.detach(self.machines[at].id);
        self.sim.kill(&self.machines[at].env);
        self.bury(at, up);
    }

    /// Lets go of what the dead process had, and begins its machine's next life.
    fn bury(&mut self, at: usize, up: Option<Up>) {
        drop(up);
        self.machines[at].env = self.sim.restart(&self.machines[at].env);
    }

    /// A node hands over and closes, with clients at work. Whether it did without an error, if it
    /// was up.
    fn close(&mut self, at: usize) -> bool {
        let Some(node) = self.wires.node(self.machines[at].id) else { return false };
        self.go_on(at);
        let sockets = self.wires.take_sockets(self.machines[at].id);
        let closed = Arc::new(Mutex::new(false));
        let place = closed.clone();
        let closing = self.machines[at].env.spawn("close", async move {
            node.hand_over().await;
            let mesh = match sockets {
                Some(sockets) => Some(sockets.stop().await),
                None => None,
            };
            // Under faults it may well fail; what was acknowledged must be there all the same.
            *lock(&place) = node.close().await.is_ok();
            if let Some(mesh) = mesh {
                mesh.end().await;
            }
        });
        match self.sim.run_until_within(OPEN_LIMIT, closing) {
            Some(_) => self.stage.probe("closed gracefully"),
            None => {
                self.stage.fail(format!(
                    "node {} did not close within {OPEN_LIMIT:?}",
                    self.machines[at].id
                ));
            }
        }
        self.kill(at);
        *lock(&closed)
    }

    /// A node that takes rows loses its power at the moment at which the new state takes the place
    /// of the old one, or soon after: no other one is as short, or as much of a risk.
    fn crash_at_the_change(&mut self) {
        let takes_rows = |machine: &Machine| {
            self.wires.node(machine.id).is_some_and(|node| node.is_catching_up())
        };
        let Some(at) = self.machines.iter().position(takes_rows) else { return };
        for _ in 0..CHANGE_LOOKS {
            self.sim.run_for(CHANGE_LOOK);
            let files = self.sim.files(&self.machines[at].env);
            if files.iter().any(|(path, _)| path.ends_with("IDENTITY.new")) {
                self.stage.probe("crash while rows take the place of others");
                self.sim.run_for(Duration::from_micros(self.random.below(1_000)));
                return self.crash(at);
            }
        }
    }

    /// Some node, mostly one that believes that it leads.
    fn victim(&mut self) -> usize {
        let leads = |at: &usize| {
            self.wires.node(self.machines[*at].id).is_some_and(|node| node.leadership().is_ready)
        };
        let leaders: Vec<_> = (0..self.machines.len()).filter(leads).collect();
        if leaders.is_empty() || self.random.chance(0.4) {
            return self.random.index(self.machines.len());
        }
        leaders[self.random.index(leaders.len())]
    }

    /// Does one thing to the cluster, and lets it work on for a while.
    pub fn act(&mut self) -> Played {
        let at = self.victim();
        match self.orders.faults.draw(&mut self.random) {
            Fault::Crash => self.crash(at),
            Fault::Kill => self.kill(at),
            Fault::Close => _ = self.close(at),
            Fault::Blackout => {
                self.stage.probe("all machines without power");
                (0..self.machines.len()).for_each(|at| self.crash(at));
            }
            Fault::IsolateLeader => self.isolate(at),
            Fault::OneWay => self.cut_one_way(at),
            Fault::BadLinks | Fault::Network if self.orders.link.is_network() => {
                self.disturb_network(at);
            }
            Fault::BadLinks | Fault::Network => {
                self.stage.probe("links bad");
                let late = Duration::from_micros(self.random.below(60_000));
                let (lost, doubled) = (self.random.below(300), self.random.below(200));
                self.wires.set_weather(Weather { lost, doubled, late });
            }
            Fault::Pause => self.pause(at),
            Fault::Drift => {
                self.stage.probe("clock drifts");
                let parts = [-200_000, -20_000, -500, 500, 20_000, 200_000][self.random.index(6)];
                self.sim.drift(&self.machines[at].env, parts);
            }
            Fault::Wipe => self.wipe(at)?,
            Fault::BitFlip => self.flip_a_bit(at)?,
            Fault::Join => self.join()?,
            Fault::Leave => self.leave(at),
            Fault::Upgrade => self.upgrade(at)?,
            Fault::Target => {
                self.stage.probe("target of backups disturbed");
                let fault = [Fault::Errors, Fault::Stalls, Fault::DiskFull, Fault::Clock]
                    [self.random.index(4)];
                let beside = self.beside.clone();
                self.disturb_disk(&beside, fault);
            }
            Fault::Agent => self.end_agent()?,
            fault => {
                let machine = self.machines[at].env.clone();
                self.disturb_disk(&machine, fault);
            }
        }
        let time = Duration::from_micros(self.random.below(1_200_000));
        self.sim.run_for(time);
        if self.random.chance(0.5) {
            self.crash_at_the_change();
        }
        self.look()?;
        self.revive()?;
        if self.random.chance(0.3) {
            self.calm();
        }
        Ok(())
    }

    /// What goes wrong with a machine's disk or wall clock. What can't be borne by a cluster's
    /// data, a bit that turns over, is no fault of it.
    fn disturb_disk(&mut self, machine: &Env, fault: Fault) {
        let (sim, random) = (&self.sim, &mut self.random);
        match fault {
            Fault::SlowDisk => {
                self.stage.probe("slow disk");
                let longest = Duration::from_millis(random.in_range(1..2_000));
                let stall = [0.05, 0.5, 1.0][random.index(3)];
                sim.update_faults(machine, |plan| {
                    (plan.sync.stall, plan.sync.stall_max) = (stall, longest)
                });
            }
            Fault::Stalls => {
                self.stage.probe("stalls");
                let longest = Duration::from_millis(random.in_range(1..2_000));
                sim.update_faults(machine, |plan| {
                    for faults in [&mut plan.write, &mut plan.sync, &mut plan.rename] {
                        (faults.stall, faults.stall_max) = (0.02, longest);
                    }
                });
            }
            Fault::Errors => {
                self.stage.probe("i/o errors");
                let fail = [0.0005, 0.005, 0.05][random.index(3)];
                sim.set_faults(machine, FaultPlan::failing(fail, 0.0));
            }
            Fault::FailingSyncs => {
                self.stage.probe("sync failures");
                let fail = [0.02, 0.2, 1.0][random.index(3)];
                sim.update_faults(machine, |plan| plan.sync.fail = fail);
            }
            Fault::DiskFull => {
                self.stage.probe("disk full");
                let used: u64 = sim.files(machine).iter().map(|(_, len)| len).sum();
                let left = random.below(64 << 10);
                let capacity = Some(if random.chance(0.3) { used / 2 } else { used + left });
                sim.update_faults(machine, |plan| plan.capacity = capacity);
            }
            Fault::Clock => {
                self.stage.probe("wall clock moved");
                let seconds = random.below(20_000_000);
                sim.move_wall_clock(machine, seconds as i64 - 10_000_000);
            }
            _ => self.calm(),
        }
    }

    /// The machine beside the nodes dies, and comes back: what runs on it is to be begun again.
    fn end_agent(&mut self) -> Played {
        self.stage.probe("machine beside the nodes died");
        self.stage.end_life();
        match self.random.chance(0.5) {
            true => self.sim.kill(&self.beside),
            false => self.sim.crash_with(&self.beside, Unsynced::Seeded),
        }
        self.beside = self.sim.restart(&self.beside);
        self.begin_life()
    }

    /// The process is stopped for a while; then it has all that has come meanwhile.
    fn pause(&mut self, at: usize) {
        if self.wires.node(self.machines[at].id).is_none() {
            return;
        }
        self.stage.probe("process stopped");
        self.wires.set_stopped(self.machines[at].id, true);
        self.sim.pause(&self.machines[at].env);
        // Shorter than an election takes, or long enough for another one to lead.
        let longest = [300_000, 1_500_000, 4_000_000][self.random.index(3)];
        let time = Duration::from_micros(self.random.below(longest));
        self.sim.run_for(time);
        self.go_on(at);
    }

    /// What clients have sent meanwhile lies in its queue as what other nodes have: which of both
    /// it takes first is open.
    fn go_on(&mut self, at: usize) {
        self.wires.set_stopped(self.machines[at].id, false);
        let arrives = Duration::from_micros(self.random.below(2_000));
        self.sim.run_for(arrives);
        self.sim.resume(&self.machines[at].env);
    }

    /// Clients still reach it.
    fn isolate(&mut self, at: usize) {
        self.stage.probe("leader isolated");
        for other in (0..self.machines.len()).filter(|other| *other != at) {
            self.cut(at, other);
            self.cut(other, at);
        }
    }

    fn cut_one_way(&mut self, at: usize) {
        self.stage.probe("one direction cut");
        let speaks = self.random.chance(0.5);
        for other in (0..self.machines.len()).filter(|other| *other != at) {
            if self.random.chance(0.7) {
                if speaks { self.cut(other, at) } else { self.cut(at, other) }
            }
        }
    }

    /// A failure, with what each node believes of who leads.
    pub fn explain(&self, stop: Stop) -> Stop {
        let Stop::Failure(what) = stop else { return stop };
        let told = self.wires.members().into_iter().map(|id| match self.wires.node(id) {
            Some(node) => {
                format!("node {id}: {:?}, failure {:?}", node.leadership(), node.failure())
            }
            None => format!("node {id} is down"),
        });
        Stop::Failure(format!("{what}; {}", told.collect::<Vec<_>>().join("; ")))
    }

    fn nodes(&self) -> Vec<Arc<Host>> {
        self.machines.iter().filter_map(|machine| self.wires.node(machine.id)).collect()
    }

    fn look(&self) -> Played {
        self.nodes().iter().for_each(|node| node.check_invariants());
        self.violation().map_or(Ok(()), |what| Err(what.into()))
    }

    /// Nodes that are down, or have failed, begin anew.
    fn revive(&mut self) -> Played {
        for at in 0..self.machines.len() {
            if self.machines[at].id == 0 {
                self.come_back(at)?;
                continue;
            }
            let node = self.wires.node(self.machines[at].id);
            if let Some(error) = node.as_ref().and_then(|node| node.failure()).map(Error::from) {
                self.kill(at);
                if self.machines[at].damage.is_done() && !is_excused(&error) {
                    self.judge(at, &error)?;
                    continue;
                }
                if !is_excused(&error) {
                    return Err(format!("node {} failed: {error}", self.machines[at].id).into());
                }
                self.open(at)?;
            } else if node.is_none() && self.random.chance(0.8) {
                self.open(at)?;
            }
        }
        Ok(())
    }

    /// Nothing goes wrong any more, until something does.
    pub fn calm(&mut self) {
        self.heal_network();
        for machine in self.machines.iter().map(|machine| &machine.env).chain([&self.beside]) {
            self.sim.set_faults(machine, FaultPlan::default());
        }
    }

    /// Everything works again.
    pub fn heal(&mut self) -> Played {
        self.calm();
        for at in 0..self.machines.len() {
            let id = self.machines[at].id;
            let is_down = self.wires.node(id).is_none_or(|node| node.failure().is_some());
            if id != 0 && (is_down || self.random.chance(0.3)) {
                self.crash(at);
                self.open(at)?;
            }
        }
        self.all_come_back()?;
        self.all_are_upgraded()
    }

    /// The rows of all nodes at one version; `None` if they can't be had in time.
    fn compare(&self) -> Option<plinth_types::Result<RowsOfAll>> {
        let wires = self.wires.clone();
        let router = Router::new(self.stage.env().clone(), wires.clone(), true);
        let ids: Vec<_> = self.machines.iter().map(|machine| machine.id).collect();
        let env = self.stage.env().clone();
        self.sim.run_until_within(HEALED, async move {
            loop {
                let all = async {
                    let asked = ReadVersionRequest::default();
                    let version = router.read_version(asked).await?.version;
                    rows_of_all(&wires, &ids, version).await
                };
                match all.await {
                    // A node that was far behind has come to it only now; or another leader has
                    // gone ahead with the versions.
                    Err(error) if error == Error::transaction_too_old() => {}
                    // Who leads has resigned, or a node is down, just now.
                    Err(error) if error == Error::process_behind() => env.sleep(AGAIN).await,
                    all => return all,
                }
            }
        })
    }

    /// All nodes have the same rows; then they close, and every checksum in their directories
    /// holds.
    pub fn inspect(&mut self) -> Played {
        let mut compared = self.compare();
        if compared.is_none() {
            // A call to a disk that was stalled when everything was made well has failed since, and
            // its node with it.
            self.revive()?;
            compared = self.compare();
        }
        if let Some(Err(error)) = &compared {
            self.judge_comparison(error)?;
            compared = self.compare();
        }
        let all = compared.ok_or("the nodes could not be compared in time".to_string())?;
        let all = all.map_err(|error| format!("the nodes could not be compared: {error}"))?;
        let (first_id, first) = &all[0];
        for (id, rows) in &all {
            if let Some((one, other)) = first.iter().zip(rows).find(|(one, other)| one != other) {
                return Err(
                    format!("node {id} has {other:?} where node {first_id} has {one:?}").into()
                );
            }
            if rows.len() != first.len() {
                let (ours, theirs) = (rows.len(), first.len());
                return Err(
                    format!("node {id} has {ours} rows, node {first_id} has {theirs}").into()
                );
            }
        }
        self.look()?;
        for at in 0..self.machines.len() {
            self.close(at);
            let id = self.machines[at].id;
            let machine = &self.machines[at];
            let inspected = machine.damage.inspect(&self.sim, &machine.env);
            inspected.map_err(|what| format!("node {id}: {what}"))?;
        }
        Ok(())
    }
}

impl Machine {
    fn new(sim: &Simulation, at: usize, id: NodeId, spoken: Spoken, link: Link) -> Self {
        let env = sim.process(&format!("node-{}", at + 1));
        let between = sockets::between(sim, &env, link);
        let address = match &between {
            Some(between) => between.address,
            None => sockets::address(sim, &env),
        };
        let (address, damage) = (address.to_string(), Damage::default());
        Self { env, between, id, address, spoken, damage }
    }
}

/// What a node speaks over.
enum Way {
    Wires(Wire),
    Sockets(sockets::Plan),
}

impl Way {
    async fn open(
        self,
        machine: &Env,
        config: NodeConfig,
    ) -> plinth_types::Result<(Arc<Host>, Option<Sockets>)> {
        match self {
            Self::Sockets(plan) => {
                let (host, sockets) = Sockets::open(machine, config, plan).await?;
                Ok((host, Some(sockets)))
            }
            Self::Wires(wire) => {
                let host = Host::open(machine, Path::new(DIR), config, Arc::new(wire)).await;
                Ok((host.map_err(|error| Error::from(&error))?, None))
            }
        }
    }
}

/// All rows of each of some nodes.
type RowsOfAll = Vec<(NodeId, Vec<(Bytes, Bytes)>)>;

/// All rows of these nodes at a version.
async fn rows_of_all(
    wires: &Wires,
    ids: &[NodeId],
    version: Version,
) -> plinth_types::Result<RowsOfAll> {
    let mut all = Vec::new();
    for id in ids {
        let node = wires.node(*id).ok_or_else(Error::process_behind)?;
        all.push((*id, rows(&node, version).await?));
    }
    Ok(all)
}

/// All rows of a node at a version, once it has come to it.
async fn rows(node: &Arc<Host>, version: Version) -> plinth_types::Result<Vec<(Bytes, Bytes)>> {
    let mut read = RangeRead {
        begin: KeySelector::first_greater_or_equal(Bytes::new()),
        end: KeySelector::first_greater_or_equal(SYSTEM_END),
        limit: usize::MAX,
        target_bytes: 1 << 20,
        reverse: false,
    };
    let mut rows: Vec<(Bytes, Bytes)> = Vec::new();
    loop {
        let part = match node.endpoint().get_range(version, KeySpace::System, &read).await {
            Ok(part) => part,
            // It takes rows or entries that it lacks, or has yet to.
            Err(error) if [Error::process_behind(), Error::future_version()].contains(&error) => {
                node.endpoint().env().sleep(Duration::from_millis(50)).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        let copied = |(key, value): (&[u8], &[u8])| {
            (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value))
        };
        rows.extend(part.rows.iter().map(copied));
        match rows.last().filter(|_| part.more) {
            Some((last, _)) => read.begin = KeySelector::first_greater_than(last.clone()),
            None => return Ok(rows),
        }
    }
}
