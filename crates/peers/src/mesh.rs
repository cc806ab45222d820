//! All connections of a node with the others of its cluster: [`Mesh`].
//!
//! Each pair of nodes has two connections, one for each direction: who sends frames has called. So
//! nobody has to agree on which one counts; and a node that can hear but not be heard is noticed by
//! itself, since its pings stay without an answer. A task for each other node calls it, again and
//! again; a task for each node that has called receives. Who the others are follows the cluster's
//! members: see [`Peers::members`].

use crate::charter::Standing;
use crate::hello;
use crate::link::{Link, lock};
use crate::outbox::{Figures, Item};
use crate::shared::{Shared, TakeIn};
use crate::trust::Trust;
use crate::{call, session};
use plinth_env::{Env, Stream, Task};
use plinth_replication::{Frame, Members, NodeId, Parcel, Peers, Spoken};
use std::sync::Arc;

/// The connections of a node.
pub struct Mesh {
    shared: Arc<Shared>,
}

/// What a node knows of another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerStatus {
    /// Which node.
    pub node: NodeId,
    /// Its address.
    pub address: String,
    /// What was counted.
    pub figures: Figures,
    /// What its program speaks, if it has called.
    pub spoken: Option<Spoken>,
    /// For how many versions a transaction may read and commit there, if it has called and said so.
    pub window: Option<u64>,
    /// Why there is no connection to it, if there is none and it was tried.
    pub failure: Option<String>,
}

impl Mesh {
    /// Begins to call the other nodes. Frames that arrive are thrown away until
    /// [`Mesh::deliver_to`] is called.
    pub fn start(env: &Env, standing: Standing, trust: Trust) -> Arc<Self> {
        let shared = Arc::new(Shared::new(env, standing, trust, call));
        shared.call(|| shared.links());
        Arc::new(Self { shared })
    }

    /// Has frames that arrive given to `deliver`, which must be quick and never wait. An answer
    /// that it gives goes back to the node that the frame is from: by the connection it came by,
    /// without another thread's turn, if that node's program takes it there. The first call counts.
    pub fn deliver_to(&self, deliver: impl Fn(Frame) -> Option<Frame> + Send + Sync + 'static) {
        let _ = self.shared.hooks.deliver.set(Box::new(deliver));
    }

    /// The same for parcels.
    pub fn deliver_parcels_to(&self, deliver: impl Fn(Parcel) + Send + Sync + 'static) {
        let _ = self.shared.hooks.deliver_parcel.set(Box::new(deliver));
    }

    /// Has `take_in` take in new nodes that ask for it. The first call counts.
    pub fn take_in_by(&self, take_in: TakeIn) {
        let _ = self.shared.hooks.take_in.set(take_in);
    }

    /// Has `removed` called when a member proves that this node is none any more. The first call
    /// counts.
    pub fn when_removed(&self, removed: impl Fn() + Send + Sync + 'static) {
        let _ = self.shared.hooks.removed.set(Box::new(removed));
    }

    /// Says where this node is, be it known by that address or not. The first call counts.
    pub fn is_at(&self, address: &str) {
        let _ = self.shared.place.set(address.to_owned());
    }

    /// Has `moved` called when a member is somewhere else than the members say, or back. The first
    /// call counts.
    pub fn when_moved(&self, moved: impl Fn(NodeId, &str) + Send + Sync + 'static) {
        let _ = self.shared.hooks.moved.set(Box::new(moved));
    }

    /// Whether a connection that begins with these bytes is another node's; `None` if more of them
    /// are needed.
    pub fn is_peer(first: &[u8]) -> Option<bool> {
        let known = first.len().min(hello::MAGIC.len());
        if first[..known] != hello::MAGIC[..known] {
            return Some(false);
        }
        (known == hello::MAGIC.len()).then_some(true)
    }

    /// Speaks with another node that has called, in this task, until the connection ends. `first`
    /// is what has been received of it.
    pub async fn receive(&self, stream: Stream, first: Vec<u8>) {
        session::run(self.shared.clone(), stream, first).await;
    }

    /// The protocol of the cluster, as far as this node knows: what all members speak.
    pub fn protocol(&self) -> u16 {
        self.shared.protocol()
    }

    /// What is known of the other nodes, in the order of their numbers.
    pub fn status(&self) -> Vec<PeerStatus> {
        let status = |link: &Arc<Link>| {
            let said = *lock(&link.said);
            PeerStatus {
                node: link.node,
                address: link.place(0),
                figures: link.outbox.figures(),
                spoken: said.map(|said| said.spoken),
                window: said.map(|said| said.window).filter(|window| *window > 0),
                failure: lock(&link.failure).clone(),
            }
        };
        self.shared.links().iter().map(status).collect()
    }

    /// What the cluster was founded with, and which node this is.
    pub fn standing(&self) -> &Standing {
        &self.shared.standing
    }

    /// Ends all connections, and waits for the tasks that call.
    pub async fn end(&self) {
        self.shared.end();
        let tasks = std::mem::take(&mut *lock(&self.shared.tasks));
        for task in tasks {
            // A task that failed has ended too.
            let _ = task.await;
        }
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl Peers for Mesh {
    fn send(&self, frame: Frame) {
        if let Some(link) = self.shared.link(frame.message.to) {
            link.outbox.push(Item::Frame(frame));
        }
    }

    fn send_parcel(&self, parcel: Parcel) {
        if let Some(link) = self.shared.link(parcel.to) {
            link.outbox.push(Item::Parcel(parcel));
        }
    }

    fn spoken(&self, node: NodeId) -> Option<Spoken> {
        lock(&self.shared.link(node)?.said).map(|said| said.spoken)
    }

    fn members(&self, members: &Arc<Members>) {
        self.shared.call(|| self.shared.follow(members));
    }
}

/// Begins to call another node.
fn call(shared: Arc<Shared>, link: Arc<Link>) -> Task {
    shared.env.clone().spawn_network("call peer", call::run(shared, link))
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mesh").field("node", &self.shared.standing.node).finish_non_exhaustive()
    }
}
