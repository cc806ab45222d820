//! Machines of a simulated world, each a node with connections to all others.
#![allow(dead_code, reason = "each test uses a part of it")]

use plinth_env::simulated::Simulation;
use plinth_env::{Env, Task};
use plinth_log::{Entry, EntryHead, EntryKind};
use plinth_peers::{Charter, Mesh, Peer, Secret, Standing, Trust};
use plinth_replication::{Frame, Message, MessageKind, NodeId, Peers};
use plinth_types::Bytes;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

pub const PORT: u16 = 4500;

pub type Received = Arc<Mutex<Vec<Frame>>>;

/// A node that is up.
pub struct Machine {
    pub env: Env,
    pub mesh: Arc<Mesh>,
    pub received: Received,
    _accept: Task,
}

/// The charter of nodes 1, 2, 3, ... on machines of these names.
pub fn charter(sim: &Simulation, names: &[String]) -> Charter {
    let peer = |(at, name): (usize, &String)| Peer {
        node: at as NodeId + 1,
        address: SocketAddr::new(sim.ip(&sim.process(name)), PORT).to_string(),
    };
    Charter {
        cluster: "test:peers".into(),
        cluster_id: [9; 16],
        secret: Secret::from_bytes([5; 32]),
        members: names.iter().enumerate().map(peer).collect(),
    }
}

pub fn names(count: usize) -> Vec<String> {
    (1..=count).map(|at| format!("node-{at}")).collect()
}

/// Starts a node, which keeps what it receives.
pub fn start(env: &Env, charter: &Charter, node: NodeId) -> Machine {
    let received = Received::default();
    let theirs = received.clone();
    start_with(env, charter, node, received, move |frame| {
        theirs.lock().unwrap().push(frame);
        None
    })
}

/// Starts a node, which gives away what it receives, and answers what comes back.
pub fn start_with(
    env: &Env,
    charter: &Charter,
    node: NodeId,
    received: Received,
    deliver: impl Fn(Frame) -> Option<Frame> + Send + Sync + 'static,
) -> Machine {
    let standing = Standing { charter: charter.clone(), node, begun: true };
    let mesh = Mesh::start(env, standing, Trust::default());
    mesh.deliver_to(deliver);
    let address =
        charter.members.iter().find(|peer| peer.node == node).unwrap().address.parse().unwrap();
    let accept = env.spawn_network("accept", accept(env.clone(), address, mesh.clone()));
    Machine { env: env.clone(), mesh, received, _accept: accept }
}

async fn accept(env: Env, address: SocketAddr, mesh: Arc<Mesh>) {
    let listener = env.sockets().listen(address).await.expect("the address is free");
    loop {
        let stream = listener.accept().await.expect("a connection");
        let mesh = mesh.clone();
        drop(env.spawn_network("receive", async move { mesh.receive(stream, Vec::new()).await }));
    }
}

impl Machine {
    /// Sends a frame with an entry of so many bytes, or without any.
    pub fn send(&self, to: NodeId, number: u64, body: Option<usize>) {
        self.mesh.send(frame(self.mesh.standing().node, to, number, body));
    }

    /// The numbers of the frames that it has received, in their order.
    pub fn numbers(&self) -> Vec<u64> {
        self.received.lock().unwrap().iter().map(|frame| frame.message.term).collect()
    }
}

/// A frame that carries a number.
pub fn frame(from: NodeId, to: NodeId, number: u64, body: Option<usize>) -> Frame {
    let kind = if body.is_some() { MessageKind::Append } else { MessageKind::Heartbeat };
    let entries = body.map(|_| number).into_iter().collect();
    let message = Message { entries, ..Message::bare(kind, from, to, number) };
    let entry = |len| {
        let head = EntryHead {
            kind: EntryKind::Mutations,
            index: 1,
            term: number,
            version: 1,
            previous: 0,
            committed: 0,
        };
        Entry::new(head, Bytes::from(vec![number as u8; len]))
    };
    Frame::new(message, body.map(entry).into_iter().collect())
}
