//! A database on the disk of a simulated machine, and its clients: on that machine, or behind a
//! server on another one.
//!
//! The database has lives, as its machine has: after a crash it is opened again, and clients go on
//! with [`World::endpoint`]. Whatever they wait for, the world runs until it is there.

use super::reached::Way;
use plinth_client::Endpoint;
use plinth_env::Env;
use plinth_env::simulated::{Simulation, Unsynced};
use plinth_pipeline::{Node, NodeConfig};
use std::future::Future;
use std::path::Path;
use std::sync::Arc;

/// Where the database lies on the machine's disk.
const DIR: &str = "/db";

pub struct World {
    pub sim: Simulation,
    /// The machine that has the disk.
    pub machine: Env,
    life: Option<Life>,
    way: Way,
}

/// A database from its opening on.
struct Life {
    node: Arc<Node>,
    endpoint: Arc<dyn Endpoint>,
}

impl World {
    /// A world from a seed, with a database in it.
    pub fn new(seed: u64, config: NodeConfig) -> Self {
        let sim = Simulation::new(seed);
        let machine = sim.process("node");
        let way = Way::to(&sim, &machine);
        let mut world = Self { sim, machine, life: None, way };
        world.open(config);
        world
    }

    fn open(&mut self, config: NodeConfig) {
        // Nobody uses what is left of the life before.
        self.life = None;
        let node = self.sim.run_until(Node::open(&self.machine, Path::new(DIR), config)).unwrap();
        let endpoint = self.way.begin(&self.sim, &node);
        self.life = Some(Life { node, endpoint });
    }

    fn life(&self) -> &Life {
        self.life.as_ref().expect("it is open")
    }

    /// How clients reach the database.
    pub fn endpoint(&self) -> &Arc<dyn Endpoint> {
        &self.life().endpoint
    }

    /// The database itself.
    pub fn node(&self) -> &Arc<Node> {
        &self.life().node
    }

    /// Runs the world until this is done.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.sim.run_until(future)
    }

    /// The machine loses its power, and the database is opened anew.
    pub fn crash(&mut self, unsynced: Unsynced, config: NodeConfig) {
        self.sim.crash_with(&self.machine, unsynced);
        self.begin_anew(config);
    }

    /// The database is closed, its process ends, and another one opens it.
    pub fn restart(&mut self, config: NodeConfig) {
        self.run(self.node().close()).unwrap();
        self.sim.kill(&self.machine);
        self.begin_anew(config);
    }

    fn begin_anew(&mut self, config: NodeConfig) {
        self.machine = self.sim.restart(&self.machine);
        self.open(config);
    }
}
