use plinth_client::remote::{ClusterFile, RemoteEndpoint};
use plinth_client::{Endpoint, ReadVersionRequest};
use plinth_env::simulated::Simulation;
use plinth_env::{Env, Reply, reply};
use plinth_pipeline::{Node, NodeConfig};
use plinth_server::{Server, ServerConfig};
use plinth_types::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How clients reach the database of a simulated machine, which ends and begins anew: here they are
/// on a machine of their own, have one endpoint for all lives of the database, and a server on its
/// machine serves each of them.
pub struct Way {
    address: SocketAddr,
    clients: Env,
    endpoint: Option<Arc<dyn Endpoint>>,
}

impl Way {
    /// The way to a machine.
    pub fn to(sim: &Simulation, machine: &Env) -> Self {
        Self {
            address: SocketAddr::new(sim.ip(machine), 4500),
            clients: sim.process("clients"),
            endpoint: None,
        }
    }

    /// The endpoint for a life of the database, which has begun.
    pub fn begin(&mut self, sim: &Simulation, node: &Arc<Node>) -> Arc<dyn Endpoint> {
        let place = sim.run_until(serve(node, self.address)).unwrap();
        if let Some(endpoint) = &self.endpoint {
            // A commit that leaves by a connection whose other end died unnoticed has an unknown
            // fate. A read is asked again, of the server that is there now.
            let found = ReadVersionRequest { lock_aware: true, ..ReadVersionRequest::default() };
            sim.run_until(endpoint.read_version(found)).unwrap();
            return endpoint.clone();
        }
        let file = ClusterFile::parse(&place).unwrap();
        let endpoint: Arc<dyn Endpoint> = Arc::new(RemoteEndpoint::connect(&self.clients, file));
        self.endpoint = Some(endpoint.clone());
        endpoint
    }
}

/// Serves a node until its process ends; gives what clients find it by.
fn serve(node: &Arc<Node>, address: SocketAddr) -> Reply<String> {
    let (promise, started) = reply::promise();
    let endpoint = Arc::new(node.endpoint());
    let machine = endpoint.env().clone();
    drop(machine.spawn("server", async move {
        let config = ServerConfig { listen: vec![address], ..ServerConfig::default() };
        let server = Server::start(endpoint, config).await;
        let place = server.as_ref().map(|server| server.connection_string().to_owned());
        promise.send(place.map_err(Error::clone));
        std::future::pending::<()>().await;
        drop(server);
    }));
    started
}

/// The database of a real directory, and how clients reach it: by sockets.
pub struct Opened {
    pub node: Arc<Node>,
    pub endpoint: Arc<dyn Endpoint>,
    server: Server,
}

impl Opened {
    pub async fn new(env: &Env, dir: &Path) -> Self {
        let node = loop {
            match Node::open(env, dir, NodeConfig::default()).await {
                // The threads of a server that has ended let go a moment later.
                Err(error) if Error::from(&error) == Error::lock_file_failure() => {
                    env.sleep(Duration::from_millis(5)).await
                }
                opened => break opened.unwrap(),
            }
        };
        let listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        let config = ServerConfig { listen, ..ServerConfig::default() };
        let server = Server::start(Arc::new(node.endpoint()), config).await.unwrap();
        let file = ClusterFile::parse(server.connection_string()).unwrap();
        Self { endpoint: Arc::new(RemoteEndpoint::connect(env, file)), node, server }
    }

    /// Lets go of it, so that the directory can be opened again.
    pub async fn end(self) {
        drop(self.endpoint);
        self.server.stop().await;
        self.node.close().await.unwrap();
    }
}
