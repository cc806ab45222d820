//! A log on three nodes does what every commit log must do.
//!
//! Each node has its own simulated machine; frames between them are encoded, take a few milliseconds, and are never
//! lost here: what happens when they are is the business of `cluster.rs`.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plinth_env::Env;
use plinth_env::simulated::{FaultPlan, Simulation};
use plinth_log::conformance::{Site, test_all};
use plinth_log::{CommitLog, Identity, LogConfig, ReplicaLog};
use plinth_replication::planted::Planted;
use plinth_replication::{Config, Frame, Member, Message, NodeId, Peers};
use plinth_types::{Result, Version};

const DIR: &str = "/data/log";
const NODES: usize = 3;

/// The members that are up, by place.
type Members = Arc<Mutex<Vec<Option<Arc<Member>>>>>;

/// What a node sends through.
struct Links {
    env: Env,
    members: Members,
}

impl Peers for Links {
    fn send(&self, frame: Frame) {
        let bytes = frame.message.encode();
        let (members, env) = (self.members.clone(), self.env.clone());
        let delay = Duration::from_micros(3000 + env.random_u64() % 2000);
        drop(self.env.spawn("link", async move {
            env.sleep(delay).await;
            let message = Message::decode(&bytes).expect("an honest message");
            let at = message.to as usize - 1;
            let member = members.lock().expect("nobody panics")[at].clone();
            if let Some(member) = member {
                member.receive(Frame { message, entries: frame.entries });
            }
        }));
    }
}

struct Cluster {
    planted: Planted,
    sim: Simulation,
    envs: Vec<Env>,
    members: Members,
    config: LogConfig,
    seed: u64,
    /// Who had the log last.
    leader: usize,
}

fn identity(at: usize) -> Identity {
    Identity { cluster_id: [7; 16], node_id: [at as u8 + 1; 16] }
}

impl Cluster {
    fn new(seed: u64, segment_bytes: u64, planted: Planted) -> Self {
        let sim = Simulation::new(seed);
        let envs = (0..NODES).map(|at| sim.process(&format!("node-{at}"))).collect();
        let config = LogConfig {
            first_segment_bytes: segment_bytes,
            max_segment_bytes: segment_bytes,
            spare_bytes: 4 * segment_bytes,
            tail_bytes: 20_000,
            ..LogConfig::default()
        };
        let members = Arc::new(Mutex::new(vec![None; NODES]));
        Self { planted, sim, envs, members, config, seed, leader: 0 }
    }

    /// Has these logs form a cluster, and gives the writer once a node leads.
    fn start(&mut self, logs: Vec<ReplicaLog>) -> Box<dyn CommitLog> {
        // Some syncs take longer than a frame to another node and back.
        let mut slow = FaultPlan::default();
        (slow.sync.stall, slow.sync.stall_max) = (0.3, Duration::from_millis(40));
        self.envs.iter().for_each(|env| self.sim.set_faults(env, slow.clone()));
        let voters: Vec<NodeId> = (1..=NODES as u64).collect();
        for (at, log) in logs.into_iter().enumerate() {
            let env = self.envs[at].clone();
            let config = Config {
                id: at as u64 + 1,
                voters: voters.clone(),
                learners: Vec::new(),
                seed: self.seed,
                heartbeat_ticks: 5,
                election_ticks: 20,
                message_entries: 64,
                planted: self.planted,
            };
            let links = Arc::new(Links { env: env.clone(), members: self.members.clone() });
            let member = Member::start(&env, config, log, links).expect("a member");
            self.members.lock().expect("nobody panics")[at] = Some(Arc::new(member));
        }
        let members: Vec<_> = self.members.lock().expect("nobody panics").iter().flatten().cloned().collect();
        // Consumers are those of a node: the same one goes on, if it can.
        members[self.leader].campaign();
        for _ in 0..10_000 {
            if let Some(at) = members.iter().position(|member| member.leads().is_some()) {
                self.leader = at;
                return Box::new(self.sim.run_until(members[at].until_leads()).expect("a leader"));
            }
            self.sim.run_for(Duration::from_millis(5));
        }
        panic!("nobody leads");
    }

    fn open_all(&mut self) -> Result<Box<dyn CommitLog>> {
        let logs = self.envs.iter().enumerate().map(|(at, env)| {
            let opened = ReplicaLog::open(env, Path::new(DIR), identity(at), self.config.clone());
            self.sim.run_until(opened).map(|(log, _)| log)
        });
        let logs = logs.collect::<Result<Vec<_>>>()?;
        Ok(self.start(logs))
    }

    fn restart(&mut self) {
        self.members.lock().expect("nobody panics").fill(None);
        self.envs = self.envs.iter().map(|env| self.sim.restart(env)).collect();
    }
}

impl Site for Cluster {
    fn world(&self) -> &Simulation {
        &self.sim
    }

    fn process(&self) -> Env {
        self.envs[self.leader].clone()
    }

    fn create(&mut self, beginning: (u64, u64, Version)) -> Box<dyn CommitLog> {
        let logs = self.envs.iter().enumerate().map(|(at, env)| {
            let made =
                ReplicaLog::create_at(env, Path::new(DIR), identity(at), self.config.clone(), beginning);
            self.sim.run_until(made).expect("a new log").0
        });
        let logs = logs.collect();
        self.start(logs)
    }

    fn crash_and_open(&mut self) -> Box<dyn CommitLog> {
        self.envs.iter().for_each(|env| self.sim.crash(env));
        self.restart();
        // Any of them may be first to want to lead.
        self.leader = self.sim.random().index(NODES);
        self.open_all().expect("logs open after every crash")
    }

    fn open(&mut self) -> Result<Box<dyn CommitLog>> {
        // The leader has closed its log; the others are simply killed.
        self.envs.iter().for_each(|env| self.sim.kill(env));
        self.restart();
        self.open_all()
    }
}

#[test]
fn a_log_on_three_nodes_conforms() {
    let make = |seed, bytes| -> Box<dyn Site> { Box::new(Cluster::new(seed, bytes, Planted::None)) };
    test_all(&make, 50);
}

/// The suite notices when followers acknowledge what they have not synced.
#[test]
#[should_panic(expected = "seed")]
fn an_append_acknowledged_before_its_sync_does_not_conform() {
    let make =
        |seed, bytes| -> Box<dyn Site> { Box::new(Cluster::new(seed, bytes, Planted::AppendBeforeSync)) };
    test_all(&make, 50);
}
