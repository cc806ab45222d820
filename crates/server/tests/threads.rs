//! Which threads serve connections, on both sides.
//!
//! A connection that is served by another thread than the one that its socket is registered with
//! has two threads woken for all that arrives, and so has a task whose requests leave by a
//! connection of another thread. Both were so by luck: a member's clients were all served by one
//! thread while another one was woken for them, and a client's tasks used each other's connections.

mod common;

use common::around::{Altered, Around};
use common::*;
use plinth_client::remote::RemoteOptions;
use plinth_client::{Endpoint, ReadVersionRequest};
use plinth_env::reply::{Reply, promise};
use plinth_env::{Env, block_on};
use plinth_peers::{Charter, Mesh, Peer, Secret, Standing, Trust};
use plinth_pipeline::{InProcess, Node, NodeConfig};
use plinth_proto::Request;
use plinth_proto::frame::Kind;
use plinth_server::{Server, ServerConfig};
use plinth_types::{Bytes, KeyRange};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Clients that come one after the other.
const CLIENTS: usize = 16;

/// Notes which threads split ranges.
struct Noting {
    inner: InProcess,
    threads: Mutex<BTreeSet<usize>>,
}

impl Around for Noting {
    fn inner(&self) -> &InProcess {
        &self.inner
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        self.threads.lock().unwrap().extend(self.inner.env().network_thread());
        self.inner.split_points(range, chunk)
    }
}

/// A node that is all there is of its cluster.
fn alone(env: &Env) -> Arc<Mesh> {
    let member = Peer { node: 1, address: "127.0.0.1:1".into() };
    let charter = Charter {
        cluster: "test:threads".into(),
        cluster_id: [7; 16],
        secret: Secret::from_bytes([5; 32]),
        members: vec![member],
    };
    Mesh::start(env, Standing { charter, node: 1, begun: true }, Trust::default())
}

#[test]
fn more_than_half_of_the_threads_serve_the_clients_of_a_member() {
    let env = Env::real();
    let node = block_on(Node::in_memory(&env, NodeConfig::default())).unwrap();
    let noting = Arc::new(Noting { inner: node.endpoint(), threads: Mutex::default() });
    let endpoint = Arc::new(Altered(noting.clone()));
    let peers = Some(alone(&env));
    let config = ServerConfig { listen: vec![loopback()], peers, ..ServerConfig::default() };
    let server = block_on(Server::start(endpoint, config)).unwrap();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = Raw::greeted(&server);
            let range = KeyRange { begin: "a".into(), end: "b".into() };
            client.ask(1, &Request::SplitPoints { range, chunk: 1_000_000 }).unwrap();
            let (_, kind, _) = client.next().unwrap();
            assert_eq!(kind, Kind::SplitPointsReply as u8);
            client
        })
        .collect();
    // Each second one was left out. Other tests take turns, too, so that any single one may be.
    let (served, threads) = (noting.threads.lock().unwrap().len(), env.network_threads());
    assert!(served * 2 > threads.min(CLIENTS), "{served} of {threads}");
    drop(clients);
}

#[test]
fn what_a_task_of_a_network_thread_asks_is_answered_on_that_thread() {
    let env = Env::real();
    let server = serve(Default::default());
    // Wherever the turn is when the client begins.
    for before in 0..env.network_threads() {
        (0..before).for_each(|_| drop(env.spawn_network("before", async {})));
        let endpoint = remote(&server);
        let own = RemoteOptions::new(&env).connections.min(env.network_threads());
        for thread in (0..own).rev() {
            let (promise, told) = promise::<Option<usize>>();
            let (asking, theirs) = (endpoint.clone(), env.clone());
            let ask = async move {
                let version = asking.read_version(ReadVersionRequest::default());
                version.on_complete(move |_| promise.send(Ok(theirs.network_thread())));
            };
            drop(env.spawn_network_at(thread, "ask", ask));
            assert_eq!(told.wait().unwrap(), Some(thread), "{before} tasks before");
        }
    }
}
