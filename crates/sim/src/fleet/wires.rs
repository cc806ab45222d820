//! The links between the nodes of a cluster: frames are encoded, late, lost, doubled and overtaken,
//! and may be cut in one direction.
//!
//! They stand for the sockets between nodes. What arrives at a machine that is down is gone; at one
//! that is stopped it waits in its queue. Everything random comes from the machine that sends, and
//! so from the seed.

use super::sockets::Sockets;
use crate::link::Line;
use crate::stage::lock;
use plinth_env::Env;
use plinth_pipeline::Host;
use plinth_replication::{Frame, NodeId, Parcel, Peers, ReplicationResult, Spoken};
use plinth_types::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the links do to frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// Of a thousand frames so many are lost, and so many doubled.
    pub lost: u64,
    pub doubled: u64,
    /// How much later than the fastest a frame comes, at most.
    pub late: Duration,
}

impl Default for Weather {
    fn default() -> Self {
        Self { lost: 0, doubled: 2, late: Duration::from_micros(400) }
    }
}

/// A node that is up, and the clients' way to it.
pub(super) struct Up {
    pub host: Arc<Host>,
    pub line: Arc<Line>,
    /// If it speaks over sockets: then nothing goes over wires, and clients use no line.
    pub sockets: Option<Sockets>,
    /// What its program speaks.
    pub spoken: Spoken,
}

/// The links of a cluster, and who is at their ends.
#[derive(Default)]
pub(super) struct Wires {
    nodes: Mutex<BTreeMap<NodeId, Up>>,
    /// Who is a member, up or not.
    members: Mutex<BTreeSet<NodeId>>,
    /// Who is stopped: what is sent to it waits.
    stopped: Mutex<BTreeSet<NodeId>>,
    cut: Mutex<BTreeSet<(NodeId, NodeId)>>,
    weather: Mutex<Weather>,
}

impl Wires {
    pub fn attach(&self, id: NodeId, up: Up) {
        lock(&self.members).insert(id);
        lock(&self.nodes).insert(id, up);
    }

    /// Its process is dead, or about to be: what it had is to be let go of once it is.
    #[must_use]
    pub fn detach(&self, id: NodeId) -> Option<Up> {
        self.set_stopped(id, false);
        let gone = lock(&self.nodes).remove(&id);
        if let Some(up) = &gone {
            up.line.cut();
        }
        gone
    }

    /// What a node that is to close has of sockets.
    pub fn take_sockets(&self, id: NodeId) -> Option<Sockets> {
        lock(&self.nodes).get_mut(&id).and_then(|up| up.sockets.take())
    }

    /// `description:id` of the cluster file, as any server has it.
    pub fn cluster(&self) -> Option<String> {
        lock(&self.nodes).values().find_map(|up| up.sockets.as_ref()?.cluster())
    }

    /// It is no member any more.
    pub fn forget(&self, id: NodeId) {
        drop(self.detach(id));
        lock(&self.members).remove(&id);
    }

    pub fn node(&self, id: NodeId) -> Option<Arc<Host>> {
        lock(&self.nodes).get(&id).map(|up| up.host.clone())
    }

    pub fn line(&self, id: NodeId) -> Option<Arc<Line>> {
        lock(&self.nodes).get(&id).map(|up| up.line.clone())
    }

    /// What the program of a node that is up speaks.
    pub fn spoken(&self, id: NodeId) -> Option<Spoken> {
        lock(&self.nodes).get(&id).map(|up| up.spoken)
    }

    /// Whom clients know.
    pub fn members(&self) -> Vec<NodeId> {
        lock(&self.members).iter().copied().collect()
    }

    pub fn set_stopped(&self, id: NodeId, is_stopped: bool) {
        let mut stopped = lock(&self.stopped);
        if is_stopped {
            stopped.insert(id)
        } else {
            stopped.remove(&id)
        };
    }

    pub fn is_stopped(&self, id: NodeId) -> bool {
        lock(&self.stopped).contains(&id)
    }

    pub fn cut(&self, from: NodeId, to: NodeId) {
        lock(&self.cut).insert((from, to));
    }

    pub fn set_weather(&self, weather: Weather) {
        *lock(&self.weather) = weather;
    }

    /// All links are whole, and good.
    pub fn heal(&self) {
        lock(&self.cut).clear();
        self.set_weather(Weather::default());
    }
}

/// A machine's end of all links.
pub(super) struct Wire {
    pub env: Env,
    /// What is under way outlives its sender, and comes even if that is stopped.
    pub network: Env,
    pub wires: Arc<Wires>,
    pub spoken: Spoken,
}

impl Wire {
    /// Carries what was encoded, if it comes through.
    fn carry(
        &self,
        (from, to): (NodeId, NodeId),
        encoded: ReplicationResult<Vec<u8>>,
        deliver: fn(&Host, &Bytes),
    ) {
        let Weather { lost, doubled, late } = *lock(&self.wires.weather);
        let (random, delays) = (self.env.random_u64(), self.env.random_u64());
        if lock(&self.wires.cut).contains(&(from, to)) || random % 1000 < lost {
            return;
        }
        let Ok(bytes) = encoded.map(Bytes::from) else { return };
        let late = late.as_micros() as u64 + 1;
        for copy in 0..1 + u64::from((random >> 32) % 1000 < doubled) {
            let delay = Duration::from_micros(
                100 + (delays >> (16 * copy)) % late + copy * (delays >> 32) % 20_000,
            );
            let (wires, bytes) = (self.wires.clone(), bytes.clone());
            let ours = self.spoken;
            let arrives = move || {
                let is_understood =
                    wires.spoken(to).is_some_and(|theirs| ours.common(theirs).is_some());
                if let Some(node) = wires.node(to).filter(|_| is_understood) {
                    deliver(&node, &bytes);
                }
            };
            self.network.call_at(self.network.now() + delay, arrives).detach();
        }
    }
}

impl Peers for Wire {
    /// As connections have it: of one that can't be heard nothing is known.
    fn spoken(&self, node: NodeId) -> Option<Spoken> {
        self.wires.spoken(node)
    }

    fn send(&self, mut frame: Frame) {
        let ends = (frame.message.from, frame.message.to);
        let theirs = self.wires.spoken(ends.1);
        let common = theirs.and_then(|theirs| self.spoken.common(theirs));
        frame.speak(common.unwrap_or(self.spoken.oldest));
        self.carry(ends, frame.encode(), |node, bytes| {
            if let Ok(frame) = Frame::decode(bytes) {
                node.receive(frame);
            }
        });
    }

    fn send_parcel(&self, parcel: Parcel) {
        let ends = (parcel.from, parcel.to);
        self.carry(ends, parcel.encode(), |node, bytes| {
            if let Ok(parcel) = Parcel::decode(bytes) {
                node.receive_parcel(parcel);
            }
        });
    }
}
