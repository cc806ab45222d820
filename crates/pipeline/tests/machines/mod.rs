//! Members of a cluster on simulated machines: frames are encoded, late, lost, doubled and
//! overtaken, links may be cut in one direction.
//!
//! A machine keeps its disk when it loses its power, and begins again with what was synced.
//! Everything random comes from the seed.
#![allow(dead_code, reason = "each test file uses a part")]

use plinth_client::{Database, Endpoint, Transaction};
use plinth_env::Env;
use plinth_env::simulated::Simulation;
use plinth_pipeline::cluster::{Frame, Membership, Parcel, Peers, Voter};
use plinth_pipeline::{Host, Node, NodeConfig};
use plinth_types::{Bytes, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub const DIR: &str = "/db";

type NodeId = u64;

/// What the machines share.
#[derive(Default)]
struct Network {
    nodes: Mutex<Vec<Option<Arc<Host>>>>,
    /// From which to which nothing comes through.
    cut: Mutex<BTreeSet<(NodeId, NodeId)>>,
    /// Of a thousand frames.
    lost: Mutex<u64>,
    /// How much later a frame to a node comes for each of its bytes.
    slow: Mutex<BTreeMap<NodeId, Duration>>,
    /// How long the way to a node is taken by each byte of a parcel, and until when it is: frames
    /// overtake those, else so slow a way would have room for nothing else.
    narrow: Mutex<BTreeMap<NodeId, (Duration, Duration)>>,
}

struct Links {
    env: Env,
    network: Arc<Network>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Links {
    /// Carries what was encoded, if it comes through.
    fn carry(
        &self,
        (from, to): (NodeId, NodeId),
        encoded: Vec<u8>,
        queue: Duration,
        deliver: fn(&Host, &Bytes),
    ) {
        let random = self.env.random_u64();
        if lock(&self.network.cut).contains(&(from, to))
            || random % 1000 < *lock(&self.network.lost)
        {
            return;
        }
        let bytes = Bytes::from(encoded);
        let copies = 1 + u64::from(random >> 32 & 63 == 0);
        let slow = lock(&self.network.slow)
            .get(&to)
            .map_or(Duration::ZERO, |one| *one * bytes.len() as u32);
        let now = self.env.now();
        for copy in 0..copies {
            let (network, bytes) = (self.network.clone(), bytes.clone());
            let delay =
                queue + slow + Duration::from_micros(200 + (random >> 40) % 300 + 5000 * copy);
            let arrives = move || {
                let node = lock(&network.nodes).get(to as usize - 1).cloned().flatten();
                if let Some(node) = node {
                    deliver(&node, &bytes);
                }
            };
            self.env.call_at(now + delay, arrives).detach();
        }
    }
}

impl Peers for Links {
    fn send(&self, frame: Frame) {
        let ends = (frame.message.from, frame.message.to);
        let encoded = frame.encode().expect("a frame that can be sent");
        self.carry(ends, encoded, Duration::ZERO, |node, bytes| {
            node.receive(Frame::decode(bytes).expect("an honest frame"));
        });
    }

    fn send_parcel(&self, parcel: Parcel) {
        let ends = (parcel.from, parcel.to);
        let encoded = parcel.encode().expect("a parcel that can be sent");
        let (now, bytes) = (self.env.now(), encoded.len() as u32);
        let queue = lock(&self.network.narrow).get_mut(&parcel.to).map_or(Duration::ZERO, |way| {
            way.1 = way.1.max(now) + way.0 * bytes;
            way.1 - now
        });
        self.carry(ends, encoded, queue, |node, bytes| {
            node.receive_parcel(Parcel::decode(bytes).expect("an honest parcel"));
        });
    }
}

pub struct Machines {
    pub sim: Simulation,
    pub envs: Vec<Env>,
    network: Arc<Network>,
    pub config: NodeConfig,
    /// How many it was founded with.
    pub voters: usize,
    /// Whether members are known by the addresses that their machines have, so that clients find
    /// them.
    pub has_addresses: bool,
}

impl Machines {
    /// Machines with formed members, which run.
    pub fn new(seed: u64, size: usize, config: NodeConfig) -> Self {
        let mut machines = Self::empty(seed, size, config);
        for at in 0..size {
            machines.form(at).expect("a member");
            machines.open(at).expect("a member opens");
        }
        machines
    }

    /// Machines with nothing on them.
    pub fn empty(seed: u64, size: usize, config: NodeConfig) -> Self {
        let sim = Simulation::new(seed);
        let envs = (0..size).map(|at| sim.process(&format!("node-{}", at + 1))).collect();
        let network = Arc::new(Network::default());
        lock(&network.nodes).resize(size, None);
        Self { sim, envs, network, config, voters: size, has_addresses: false }
    }

    pub fn membership(&self, at: usize) -> Membership {
        let address = |at: usize| match self.has_addresses {
            true => format!("{}:4500", self.sim.ip(&self.envs[at])),
            false => format!("10.0.0.{at}:4500"),
        };
        let voter = |at: usize| Voter { id: at as u64 + 1, address: address(at) };
        let voters = (0..self.voters).map(voter).collect();
        Membership::founding([7; 16], at as u64 + 1, voters)
    }

    pub fn form(&self, at: usize) -> Result<()> {
        let membership = self.membership(at);
        let form = Node::form(&self.envs[at], Path::new(DIR), &self.config, &membership);
        Ok(self.sim.run_until(form)?)
    }

    pub fn open(&mut self, at: usize) -> Result<()> {
        let links = Arc::new(Links { env: self.envs[at].clone(), network: self.network.clone() });
        let open = Host::open(&self.envs[at], Path::new(DIR), self.config.clone(), links);
        let node = self.sim.run_until(open)?;
        lock(&self.network.nodes)[at] = Some(node);
        Ok(())
    }

    /// A machine with an empty disk becomes a member at this address, by leave of the leader; gives
    /// its place.
    pub fn join(&mut self, leader: usize, address: &str) -> Result<usize> {
        let node = self.node(leader);
        let membership = self.sim.run_until(node.take_in(address))?;
        let at = membership.node as usize - 1;
        while self.envs.len() <= at {
            self.envs.push(self.sim.process(&format!("node-{}", self.envs.len() + 1)));
            lock(&self.network.nodes).push(None);
        }
        self.sim.run_until(Node::form(
            &self.envs[at],
            Path::new(DIR),
            &self.config,
            &membership,
        ))?;
        self.open(at)?;
        Ok(at)
    }

    /// Whether a node is up.
    pub fn is_up(&self, at: usize) -> bool {
        lock(&self.network.nodes).get(at).is_some_and(Option::is_some)
    }

    pub fn host(&self, at: usize) -> Arc<Host> {
        lock(&self.network.nodes)[at].clone().expect("it is up")
    }

    pub fn node(&self, at: usize) -> Arc<Node> {
        self.host(at).node()
    }

    fn up(&self) -> Vec<(usize, Arc<Host>)> {
        let nodes = lock(&self.network.nodes);
        nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node.clone()?))).collect()
    }

    /// The machine loses its power, and begins again without a node.
    pub fn crash(&mut self, at: usize) {
        lock(&self.network.nodes)[at] = None;
        self.sim.crash(&self.envs[at]);
        self.envs[at] = self.sim.restart(&self.envs[at]);
    }

    /// All files of a machine, with what is in them.
    pub fn files(&self, at: usize) -> Vec<(PathBuf, Vec<u8>)> {
        let env = &self.envs[at];
        let paths = self.sim.files(env).into_iter().map(|(path, _)| path);
        let read = |path: PathBuf| {
            let bytes = self.sim.run_until(env.files().read(&path)).expect("a file");
            (path, bytes)
        };
        paths.map(read).collect()
    }

    /// Puts these files in the place of what a machine has, if it has anything.
    pub fn put_files(&self, at: usize, files: &[(PathBuf, Vec<u8>)]) {
        let there = self.envs[at].files();
        self.sim.run_until(async {
            if there.exists(DIR).await.expect("an answer") {
                there.remove_dir_all(DIR).await.expect("an empty place");
            }
            for (path, bytes) in files {
                there.create_dir_all(path.parent().expect("a directory")).await.expect("a place");
                there.replace(path, bytes).await.expect("a file");
            }
        });
    }

    /// From one to the other nothing comes through.
    pub fn cut(&self, from: usize, to: usize) {
        lock(&self.network.cut).insert((from as u64 + 1, to as u64 + 1));
    }

    /// A machine hears nobody and is heard by nobody.
    pub fn isolate(&self, at: usize) {
        (0..self.envs.len()).for_each(|other| {
            self.cut(at, other);
            self.cut(other, at);
        });
    }

    pub fn heal(&self) {
        lock(&self.network.cut).clear();
    }

    /// So many of a thousand frames are lost.
    pub fn lose(&self, of_a_thousand: u64) {
        *lock(&self.network.lost) = of_a_thousand;
    }

    /// What is sent to a machine takes so much longer for each byte.
    pub fn slow(&self, to: usize, byte: Duration) {
        lock(&self.network.slow).insert(to as u64 + 1, byte);
    }

    /// Runs until a node among these takes commits; gives which.
    /// Parcels for a machine go one behind the other, and take so long for each byte.
    pub fn narrow(&self, to: usize, byte: Duration) {
        lock(&self.network.narrow).insert(to as u64 + 1, (byte, Duration::ZERO));
    }

    pub fn await_leader(&self, is_wanted: impl Fn(usize) -> bool) -> usize {
        for _ in 0..20_000 {
            let ready =
                |(at, node): &(usize, Arc<Host>)| is_wanted(*at) && node.leadership().is_ready;
            if let Some((at, _)) = self.up().into_iter().find(ready) {
                return at;
            }
            self.sim.run_for(Duration::from_millis(2));
        }
        let told: Vec<_> = self
            .up()
            .into_iter()
            .map(|(at, node)| (at, node.leadership(), node.failure()))
            .collect();
        panic!("nobody leads: {told:?}");
    }

    /// The database as a client of this node alone has it.
    pub fn database(&self, at: usize) -> Database {
        Database::new(Arc::new(self.host(at).endpoint()) as Arc<dyn Endpoint>)
    }

    pub fn set(&self, at: usize, key: &str, value: &str) -> Result<()> {
        let tr = self.database(at).create_transaction();
        tr.set(key, value);
        self.sim.run_until(tr.commit())
    }

    pub fn get(&self, at: usize, key: &str) -> Result<Option<String>> {
        let tr = self.database(at).create_transaction();
        let value = self.sim.run_until(tr.get(key))?;
        Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
    }

    /// What a node has under a key as of a version that the leader gave.
    pub fn get_at(&self, leader: usize, at: usize, key: &str) -> Result<Option<String>> {
        let version =
            self.sim.run_until(self.database(leader).create_transaction().get_read_version())?;
        let tr: Transaction = self.database(at).create_transaction();
        tr.set_read_version(version);
        let value = self.sim.run_until(tr.get(key))?;
        Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
    }
}
