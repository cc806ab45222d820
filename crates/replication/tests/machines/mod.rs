//! Three nodes on simulated machines, with frames between them that are encoded and take a few
//! milliseconds.
//!
//! Disks are slow now and then: a sync may take longer than a frame to another node and back, so
//! that what is acknowledged too early is lost by a crash. Nodes can be cut off, crashed, and
//! started again one by one.
#![expect(dead_code, reason = "each test uses a part of it")]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plinth_env::Env;
use plinth_env::simulated::{FaultPlan, Simulation};
use plinth_log::{Identity, LogConfig, LogResult, ReplicaLog};
use plinth_replication::planted::Planted;
use plinth_replication::{
    Config, Doing, Frame, Member, Members, Message, NodeId, Parcel, Peers, Records, ReplicatedLog,
};
use plinth_types::Version;

pub const DIR: &str = "/data/log";
pub const NODES: usize = 3;

/// The members that are up, by place.
type Running = Arc<Mutex<Vec<Option<Arc<Member>>>>>;

/// Nodes that hear nobody and are heard by nobody.
type Cut = Arc<Mutex<Vec<NodeId>>>;

/// What a node sends through.
struct Links {
    env: Env,
    members: Running,
    cut: Cut,
}

impl Peers for Links {
    fn send(&self, frame: Frame) {
        let ends = [frame.message.from, frame.message.to];
        if self.cut.lock().expect("nobody panics").iter().any(|node| ends.contains(node)) {
            return;
        }
        let bytes = frame.message.encode();
        let (members, env) = (self.members.clone(), self.env.clone());
        let delay = Duration::from_micros(3000 + env.random_u64() % 2000);
        drop(self.env.spawn("link", async move {
            env.sleep(delay).await;
            let message = Message::decode(&bytes).expect("an honest message");
            let at = message.to as usize - 1;
            let member = members.lock().expect("nobody panics")[at].clone();
            if let Some(member) = member {
                member.receive(Frame { message, ..frame });
            }
        }));
    }

    fn send_parcel(&self, _: Parcel) {}
}

/// Its nodes stay the same.
struct Forgetful;

impl Records for Forgetful {
    fn keep<'a>(&'a self, _: &'a Members, _: u64) -> Doing<'a> {
        Box::pin(std::future::ready(Ok(())))
    }
}

pub struct Cluster {
    pub planted: Planted,
    pub sim: Simulation,
    pub envs: Vec<Env>,
    members: Running,
    cut: Cut,
    config: LogConfig,
    seed: u64,
    /// Who had the log last.
    pub leader: usize,
}

fn identity(at: usize) -> Identity {
    Identity { cluster_id: [7; 16], node_id: [at as u8 + 1; 16] }
}

impl Cluster {
    pub fn new(seed: u64, segment_bytes: u64, planted: Planted) -> Self {
        let sim = Simulation::new(seed);
        let envs = (0..NODES).map(|at| sim.process(&format!("node-{at}"))).collect();
        let config = LogConfig {
            first_segment_bytes: segment_bytes,
            max_segment_bytes: segment_bytes,
            spare_bytes: 4 * segment_bytes,
            tail_bytes: 20_000,
            ..LogConfig::default()
        };
        let (members, cut) = (Arc::new(Mutex::new(vec![None; NODES])), Cut::default());
        Self { planted, sim, envs, members, cut, config, seed, leader: 0 }
    }

    /// Starts the member of a node on its log.
    fn start_member(&self, at: usize, log: ReplicaLog) {
        let env = self.envs[at].clone();
        let config = Config {
            id: at as u64 + 1,
            members: Members::of_voters((1..=NODES as u64).map(|id| (id, format!("node:{id}")))),
            members_index: 0,
            seed: self.seed,
            heartbeat_ticks: 5,
            election_ticks: 20,
            message_entries: 64,
            most_log_bytes: u64::MAX,
            spoken: plinth_replication::Spoken::THIS,
            planted: self.planted,
        };
        let links =
            Links { env: env.clone(), members: self.members.clone(), cut: self.cut.clone() };
        let member = Member::start(&env, config, log, Arc::new(links), Arc::new(Forgetful))
            .expect("a member");
        self.members.lock().expect("nobody panics")[at] = Some(Arc::new(member));
    }

    /// Makes new logs that begin behind this entry, and a cluster of them.
    pub fn form(&mut self, beginning: (u64, u64, Version)) -> ReplicatedLog {
        for (at, env) in self.envs.iter().enumerate() {
            let made = ReplicaLog::create_at(
                env,
                Path::new(DIR),
                identity(at),
                self.config.clone(),
                beginning,
            );
            let (log, _) = self.sim.run_until(made).expect("a new log");
            self.start_member(at, log);
        }
        self.lead()
    }

    /// Opens all logs again after [`Cluster::restart`], and has them form a cluster.
    pub fn open_all(&mut self) -> LogResult<ReplicatedLog> {
        for at in 0..NODES {
            self.open_node(at)?;
        }
        Ok(self.lead())
    }

    /// Opens the log of a node, which takes part again.
    pub fn open_node(&self, at: usize) -> LogResult<()> {
        let opened =
            ReplicaLog::open(&self.envs[at], Path::new(DIR), identity(at), self.config.clone());
        let (log, _) = self.sim.run_until(opened)?;
        self.start_member(at, log);
        Ok(())
    }

    /// Has a node want to lead, and gives the writer of whichever does.
    fn lead(&mut self) -> ReplicatedLog {
        // Some syncs take longer than a frame to another node and back.
        let mut slow = FaultPlan::default();
        (slow.sync.stall, slow.sync.stall_max) = (0.3, Duration::from_millis(40));
        self.envs.iter().for_each(|env| self.sim.set_faults(env, slow.clone()));
        // Consumers are those of a node: the same one goes on, if it can.
        self.member(self.leader).expect("it was started").campaign();
        self.await_leader(|_| true)
    }

    /// The writer of a node that leads, among those that are wanted.
    pub fn await_leader(&mut self, is_wanted: impl Fn(usize) -> bool) -> ReplicatedLog {
        for _ in 0..10_000 {
            let leads =
                |at: &usize| self.member(*at).is_some_and(|member| member.leads().is_some());
            if let Some(at) = (0..NODES).filter(|at| is_wanted(*at)).find(leads) {
                self.leader = at;
                let member = self.member(at).expect("it leads");
                return self.sim.run_until(member.until_leads()).expect("a leader");
            }
            self.sim.run_for(Duration::from_millis(5));
        }
        panic!("nobody leads");
    }

    /// The member of a node, if it is up.
    pub fn member(&self, at: usize) -> Option<Arc<Member>> {
        self.members.lock().expect("nobody panics")[at].clone()
    }

    /// All machines begin again, without members.
    pub fn restart(&mut self) {
        (0..NODES).for_each(|at| self.restart_node(at));
    }

    /// A machine begins again, without a member.
    pub fn restart_node(&mut self, at: usize) {
        self.members.lock().expect("nobody panics")[at] = None;
        self.envs[at] = self.sim.restart(&self.envs[at]);
    }

    /// A node hears nobody and is heard by nobody, or all do again.
    pub fn cut_off(&self, at: Option<usize>) {
        let nodes = at.map(|at| at as u64 + 1).into_iter().collect();
        *self.cut.lock().expect("nobody panics") = nodes;
    }
}
