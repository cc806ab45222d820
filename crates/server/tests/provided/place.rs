use plinth::{Builder, ClusterFile, Database, Env, Error};
use plinth_env::reply::promise;
use plinth_env::simulated::Simulation;
use plinth_server::{Server, ServerConfig};
use std::net::SocketAddr;

/// Where a simulated application is, and its database: here that is on another machine, which has a
/// server.
#[derive(Clone)]
pub struct Place {
    application: Env,
    server: Env,
    address: SocketAddr,
}

#[allow(dead_code, reason = "each test file uses a part")]
impl Place {
    pub fn new(sim: &Simulation) -> Self {
        let (application, server) = (sim.process("application"), sim.process("server"));
        let address = SocketAddr::new(sim.ip(&server), 4500);
        Self { application, server, address }
    }

    /// The application's.
    pub fn env(&self) -> &Env {
        &self.application
    }

    /// What has the database's disk.
    pub fn disk(&self) -> &Env {
        &self.server
    }

    /// Opens the database, has it served, and connects to it.
    pub async fn open(&self, builder: Builder) -> Database {
        let near = builder.env(self.server.clone()).open_async().await.unwrap().into_database();
        let (promise, started) = promise();
        let config = ServerConfig { listen: vec![self.address], ..ServerConfig::default() };
        drop(self.server.spawn("server", async move {
            let server = Server::start(near.endpoint().clone(), config).await;
            let place = server.as_ref().map(|server| server.connection_string().to_owned());
            promise.send(place.map_err(Error::clone));
            std::future::pending::<()>().await;
            drop((server, near));
        }));
        let file = ClusterFile::parse(&started.await.unwrap()).unwrap();
        Database::connect_to(&self.application, file)
    }

    /// The power of both machines fails, and is there again.
    pub fn crash(&mut self, sim: &Simulation) {
        for machine in [&mut self.application, &mut self.server] {
            sim.crash(machine);
            *machine = sim.restart(machine);
        }
    }
}
