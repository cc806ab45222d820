use plinth::{Builder, Database, Env};
use plinth_env::simulated::Simulation;

/// Where a simulated application is, and its database: here they are one process. Where the same
/// tests run against a server, another file of this name has two machines.
#[derive(Clone)]
pub struct Place {
    process: Env,
}

#[allow(dead_code, reason = "each test file uses a part")]
impl Place {
    pub fn new(sim: &Simulation) -> Self {
        Self { process: sim.process("application") }
    }

    /// The application's.
    pub fn env(&self) -> &Env {
        &self.process
    }

    /// What has the database's disk.
    pub fn disk(&self) -> &Env {
        &self.process
    }

    /// Opens the database.
    pub async fn open(&self, builder: Builder) -> Database {
        builder.env(self.process.clone()).open_async().await.unwrap().into_database()
    }

    /// The power fails, and is there again.
    pub fn crash(&mut self, sim: &Simulation) {
        sim.crash(&self.process);
        self.process = sim.restart(&self.process);
    }
}
