//! The links between the nodes of a cluster: frames are encoded, late, lost, doubled and overtaken, and may be cut in one
//! direction.
//!
//! They stand for the sockets between nodes. What arrives at a machine that is down is gone. Everything random comes from
//! the machine that sends, and so from the seed.

use super::lock;
use plinth_env::Env;
use plinth_pipeline::Host;
use plinth_replication::{Frame, NodeId, Parcel, Peers};
use plinth_types::{Bytes, Result};
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

/// The links of a cluster, and who is at their ends.
#[derive(Default)]
pub(super) struct Wires {
    nodes: Mutex<BTreeMap<NodeId, Arc<Host>>>,
    cut: Mutex<BTreeSet<(NodeId, NodeId)>>,
    weather: Mutex<Weather>,
}

impl Wires {
    pub fn attach(&self, id: NodeId, node: Arc<Host>) {
        lock(&self.nodes).insert(id, node);
    }

    pub fn detach(&self, id: NodeId) -> Option<Arc<Host>> {
        lock(&self.nodes).remove(&id)
    }

    pub fn node(&self, id: NodeId) -> Option<Arc<Host>> {
        lock(&self.nodes).get(&id).cloned()
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
    pub wires: Arc<Wires>,
}

impl Wire {
    /// Carries what was encoded, if it comes through.
    fn carry(&self, (from, to): (NodeId, NodeId), encoded: Result<Vec<u8>>, deliver: fn(&Host, &Bytes)) {
        let Weather { lost, doubled, late } = *lock(&self.wires.weather);
        let (random, delays) = (self.env.random_u64(), self.env.random_u64());
        if lock(&self.wires.cut).contains(&(from, to)) || random % 1000 < lost {
            return;
        }
        let Ok(bytes) = encoded.map(Bytes::from) else { return };
        let late = late.as_micros() as u64 + 1;
        for copy in 0..1 + u64::from((random >> 32) % 1000 < doubled) {
            let delay =
                Duration::from_micros(100 + (delays >> (16 * copy)) % late + copy * (delays >> 32) % 20_000);
            let (wires, bytes) = (self.wires.clone(), bytes.clone());
            let arrives = move || {
                if let Some(node) = wires.node(to) {
                    deliver(&node, &bytes);
                }
            };
            self.env.call_at(self.env.now() + delay, arrives).detach();
        }
    }
}

impl Peers for Wire {
    fn send(&self, frame: Frame) {
        let ends = (frame.message.from, frame.message.to);
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
