use plinth_client::Endpoint;
use plinth_env::Env;
use plinth_env::simulated::Simulation;
use plinth_pipeline::{Node, NodeConfig};
use std::path::Path;
use std::sync::Arc;

/// How clients reach the database of a simulated machine, which ends and begins anew: here they are
/// on that machine, and each life of the database has an endpoint of its own. Where the same tests
/// run against a server, another file of this name has them on a machine of their own.
pub struct Way;

impl Way {
    /// The way to a machine.
    pub fn to(_: &Simulation, _: &Env) -> Self {
        Self
    }

    /// The endpoint for a life of the database, which has begun.
    pub fn begin(&mut self, _: &Simulation, node: &Arc<Node>) -> Arc<dyn Endpoint> {
        Arc::new(node.endpoint())
    }
}

/// The database of a real directory, and how clients reach it.
pub struct Opened {
    pub node: Arc<Node>,
    pub endpoint: Arc<dyn Endpoint>,
}

impl Opened {
    pub async fn new(env: &Env, dir: &Path) -> Self {
        let node = Node::open(env, dir, NodeConfig::default()).await.unwrap();
        Self { endpoint: Arc::new(node.endpoint()), node }
    }

    /// Lets go of it, so that the directory can be opened again.
    pub async fn end(self) {
        drop(self);
    }
}
