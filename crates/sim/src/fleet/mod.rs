//! A cluster's machines, and what happens to them: the nemesis of runs with several nodes.
//!
//! ```text
//!   clients ── router ──▶ node 1 ┐
//!                    ├──▶ node 2 ├─ wires: late, lost, doubled, cut one way
//!                    └──▶ node 3 ┘     each on a machine and a disk of its own
//! ```
//!
//! The database lives through the whole run, as long as a majority of its nodes comes back. Each node is opened again as
//! soon as the nemesis has had its way with it. In the end everything works again: then all nodes must come to have the
//! same rows, and every checksum in their directories must hold.

mod router;
mod wires;

use crate::faults::Fault;
use crate::nemesis::{DIR, OPEN_LIMIT, Orders, Stop, is_excused};
use crate::plan::draw_config;
use crate::stage::Stage;
use plinth_client::{Database, Endpoint, ReadVersionRequest};
use plinth_env::Env;
use plinth_env::simulated::{FaultPlan, Random, Simulation, Unsynced};
use plinth_pipeline::cluster::{Membership, Voter};
use plinth_pipeline::{Host, Node, NodeConfig};
use plinth_types::system::SYSTEM_END;
use plinth_types::{Bytes, Error, KeySelector, KeySpace, RangeRead, Version};
use router::Router;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wires::{Weather, Wire, Wires};

type Played = std::result::Result<(), Stop>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a healed cluster may take to answer, or its nodes to come to have the same.
const HEALED: Duration = Duration::from_secs(60);

/// The machines of a cluster.
pub(crate) struct Fleet {
    pub sim: Simulation,
    pub stage: Arc<Stage>,
    pub random: Random,
    machines: Vec<Env>,
    orders: Orders,
    wires: Arc<Wires>,
}

impl Fleet {
    pub fn new(sim: Simulation, stage: Arc<Stage>, random: Random, size: usize, orders: Orders) -> Self {
        let machines = (1..=size).map(|id| sim.process(&format!("node-{id}"))).collect();
        Self { sim, stage, random, machines, orders, wires: Arc::default() }
    }

    /// Forms the cluster, and gives it to the clients.
    pub fn form(&mut self) -> Played {
        for at in 0..self.machines.len() {
            let config = self.config();
            let formed = self.sim.run_until(Node::form(
                &self.machines[at],
                Path::new(DIR),
                &config,
                &self.membership(at),
            ));
            formed.map_err(|error| format!("node {} could not be formed: {error}", at + 1))?;
            self.open(at)?;
        }
        let (clients, size) = (self.stage.env().clone(), self.machines.len() as u64);
        let first = self.wires.node(1).ok_or("node 1 is open".to_string())?;
        let may_lose_answers = first.endpoint().may_lose_answers();
        let router = Router::new(clients, self.wires.clone(), size, may_lose_answers);
        self.stage.begin_life(Database::new(Arc::new(router)));
        Ok(())
    }

    fn config(&mut self) -> NodeConfig {
        let mut config = draw_config(&mut self.random, self.orders.setting, self.orders.bug);
        // Little is kept for whoever was away, so that rows are needed; of those a few at a time.
        config.follower_log_bytes = [0, 4 << 10, 64 << 10, 1 << 20][self.random.index(4)];
        config.rows_chunk_bytes = 1 << self.random.in_range(6..16);
        config
    }

    fn membership(&self, at: usize) -> Membership {
        let voter = |at: usize| Voter { id: at as u64 + 1, address: format!("10.0.0.{at}:4500") };
        let voters = (0..self.machines.len()).map(voter).collect();
        // What election timeouts come from.
        let cluster_id = [self.sim.seed() as u8; 16];
        Membership::founding(cluster_id, at as u64 + 1, voters)
    }

    /// Opens a node, if it must be again and again.
    fn open(&mut self, at: usize) -> Played {
        let id = at as u64 + 1;
        for attempt in 0..10 {
            let (machine, config) = (self.machines[at].clone(), self.config());
            let wire = Arc::new(Wire { env: machine.clone(), wires: self.wires.clone() });
            let opened = Arc::new(Mutex::new(None));
            let place = opened.clone();
            let opening = self.machines[at].spawn("open", async move {
                let opened = Host::open(&machine, Path::new(DIR), config, wire).await;
                *lock(&place) = Some(opened);
            });
            let hasty = attempt < 3 && self.stage.is_faulty() && self.random.chance(0.2);
            let limit = if hasty { Duration::from_micros(self.random.below(20_000)) } else { OPEN_LIMIT };
            let _ = self.sim.run_until_within(limit, opening);
            let done = lock(&opened).take();
            match done {
                Some(Ok(node)) => {
                    self.wires.attach(id, node);
                    return Ok(());
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
                self.sim.set_faults(&self.machines[at], FaultPlan::default());
            }
        }
        Err(format!("node {id} does not open").into())
    }

    /// The power of a machine fails.
    fn crash(&mut self, at: usize) {
        let unsynced = match self.random.below(4) {
            0 => Unsynced::Lost,
            1 => Unsynced::Kept,
            _ => Unsynced::Seeded,
        };
        self.stage.probe("crash");
        drop(self.wires.detach(at as u64 + 1));
        self.sim.crash_with(&self.machines[at], unsynced);
        self.machines[at] = self.sim.restart(&self.machines[at]);
    }

    fn kill(&mut self, at: usize) {
        self.stage.probe("killed");
        drop(self.wires.detach(at as u64 + 1));
        self.sim.kill(&self.machines[at]);
        self.machines[at] = self.sim.restart(&self.machines[at]);
    }

    /// A node hands over and closes, with clients at work.
    fn close(&mut self, at: usize) {
        let Some(node) = self.wires.node(at as u64 + 1) else { return };
        let closing = self.machines[at].spawn("close", async move {
            node.hand_over().await;
            // Under faults it may well fail; what was acknowledged must be there all the same.
            let _ = node.close().await;
        });
        match self.sim.run_until_within(OPEN_LIMIT, closing) {
            Some(_) => self.stage.probe("closed gracefully"),
            None => self.stage.fail(format!("node {} did not close within {OPEN_LIMIT:?}", at + 1)),
        }
        self.kill(at);
    }

    /// Some node, mostly one that believes that it leads.
    fn victim(&mut self) -> usize {
        let leads =
            |at: &usize| self.wires.node(*at as u64 + 1).is_some_and(|node| node.leadership().is_ready);
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
            Fault::Close => self.close(at),
            Fault::Blackout => {
                self.stage.probe("all machines without power");
                (0..self.machines.len()).for_each(|at| self.crash(at));
            }
            Fault::IsolateLeader => self.isolate(at),
            Fault::OneWay => self.cut_one_way(at),
            Fault::BadLinks => {
                self.stage.probe("links bad");
                let late = Duration::from_micros(self.random.below(60_000));
                let (lost, doubled) = (self.random.below(300), self.random.below(200));
                self.wires.set_weather(Weather { lost, doubled, late });
            }
            Fault::SlowDisk => {
                self.stage.probe("slow disk");
                let longest = Duration::from_millis(self.random.in_range(1..2_000));
                let stall = [0.05, 0.5, 1.0][self.random.index(3)];
                self.sim.update_faults(&self.machines[at], |plan| {
                    (plan.sync.stall, plan.sync.stall_max) = (stall, longest);
                });
            }
            Fault::Calm => self.calm(),
            other => return Err(format!("{other:?} means nothing to several nodes").into()),
        }
        let time = Duration::from_micros(self.random.below(1_200_000));
        self.sim.run_for(time);
        self.look();
        self.revive()?;
        if self.random.chance(0.3) {
            self.calm();
        }
        Ok(())
    }

    /// Clients still reach it.
    fn isolate(&mut self, at: usize) {
        self.stage.probe("leader isolated");
        let id = at as u64 + 1;
        for other in 1..=self.machines.len() as u64 {
            self.wires.cut(id, other);
            self.wires.cut(other, id);
        }
    }

    fn cut_one_way(&mut self, at: usize) {
        self.stage.probe("one direction cut");
        let (id, speaks) = (at as u64 + 1, self.random.chance(0.5));
        for other in 1..=self.machines.len() as u64 {
            if self.random.chance(0.7) {
                if speaks { self.wires.cut(other, id) } else { self.wires.cut(id, other) }
            }
        }
    }

    /// A failure, with what each node believes of who leads.
    pub fn explain(&self, stop: Stop) -> Stop {
        let Stop::Failure(what) = stop else { return stop };
        let told = (1..=self.machines.len() as u64).map(|id| match self.wires.node(id) {
            Some(node) => format!("node {id}: {:?}, failure {:?}", node.leadership(), node.failure()),
            None => format!("node {id} is down"),
        });
        Stop::Failure(format!("{what}; {}", told.collect::<Vec<_>>().join("; ")))
    }

    fn nodes(&self) -> Vec<Arc<Host>> {
        (1..=self.machines.len() as u64).filter_map(|id| self.wires.node(id)).collect()
    }

    fn look(&self) {
        self.nodes().iter().for_each(|node| node.check_invariants());
    }

    /// Nodes that are down, or have failed, begin anew.
    fn revive(&mut self) -> Played {
        for at in 0..self.machines.len() {
            let node = self.wires.node(at as u64 + 1);
            if let Some(error) = node.as_ref().and_then(|node| node.failure()) {
                if !is_excused(&error) {
                    return Err(format!("node {} failed: {error}", at + 1).into());
                }
                self.kill(at);
                self.open(at)?;
            } else if node.is_none() && self.random.chance(0.8) {
                self.open(at)?;
            }
        }
        Ok(())
    }

    /// Nothing goes wrong any more, until something does.
    pub fn calm(&mut self) {
        self.wires.heal();
        for machine in &self.machines {
            self.sim.set_faults(machine, FaultPlan::default());
        }
    }

    /// Everything works again.
    pub fn heal(&mut self) -> Played {
        self.calm();
        for at in 0..self.machines.len() {
            let is_down = self.wires.node(at as u64 + 1).is_none_or(|node| node.failure().is_some());
            if is_down || self.random.chance(0.3) {
                self.crash(at);
                self.open(at)?;
            }
        }
        Ok(())
    }

    /// All nodes have the same rows; then they close, and every checksum in their directories holds.
    pub fn inspect(&mut self) -> Played {
        let (wires, size) = (self.wires.clone(), self.machines.len() as u64);
        let router = Router::new(self.stage.env().clone(), wires.clone(), size, true);
        let compared = self.sim.run_until_within(HEALED, async move {
            let version = router.read_version(ReadVersionRequest::default()).await?.version;
            let mut all = Vec::new();
            for id in 1..=size {
                let node = wires.node(id).ok_or_else(Error::process_behind)?;
                all.push((id, rows(&node, version).await?));
            }
            Ok::<_, Error>(all)
        });
        let all = compared.ok_or("the nodes could not be compared in time".to_string())?;
        let all = all.map_err(|error| format!("the nodes could not be compared: {error}"))?;
        let (_, first) = &all[0];
        for (id, rows) in &all {
            if let Some((one, other)) = first.iter().zip(rows).find(|(one, other)| one != other) {
                return Err(format!("node {id} has {other:?} where node 1 has {one:?}").into());
            }
            if rows.len() != first.len() {
                return Err(format!("node {id} has {} rows, node 1 has {}", rows.len(), first.len()).into());
            }
        }
        self.look();
        for at in 0..self.machines.len() {
            self.close(at);
            let report = self.sim.run_until(plinth_pipeline::check(&self.machines[at], Path::new(DIR)));
            let report = report.map_err(|error| format!("node {} can't be checked: {error}", at + 1))?;
            if let Some(problem) = report.problems.first() {
                return Err(format!("node {}: {problem}", at + 1).into());
            }
        }
        Ok(())
    }
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
        let copied =
            |(key, value): (&[u8], &[u8])| (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        rows.extend(part.rows.iter().map(copied));
        match rows.last().filter(|_| part.more) {
            Some((last, _)) => read.begin = KeySelector::first_greater_than(last.clone()),
            None => return Ok(rows),
        }
    }
}
