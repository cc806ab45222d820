//! Nodes that speak with each other and with clients over the product's own sockets: the
//! connections between nodes, the server and the client are the real ones, on the simulated
//! network.
//!
//! ```text
//!   RemoteEndpoint ══▶ Server ─▶ Host ─▶ Mesh ══▶ Server of another machine ─▶ its Mesh ─▶ its Host
//! ```
//! What wires do to frames the network does to bytes: it is late, stands still for a while, breaks,
//! or is cut in one direction. A machine that has commits arrive twice may stand before each of
//! them; then the others know the node by that machine's address.

use super::{Fleet, Machine};
use crate::double::{Between, Doubles};
use crate::link::Link;
use crate::nemesis::bad_network;
use crate::plan::DIR;
use plinth_client::Endpoint;
use plinth_client::remote::{ClusterFile, RemoteEndpoint};
use plinth_env::Env;
use plinth_env::simulated::{NetworkPlan, Simulation};
use plinth_peers::{Charter, Mesh, Peer, Secret, Standing, Trust};
use plinth_pipeline::cluster::Spoken;
use plinth_pipeline::{Host, NodeConfig};
use plinth_replication::NodeId;
use plinth_server::{Server, ServerConfig};
use plinth_types::{Error, Result};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Where the nodes' servers listen.
const PORT: u16 = 4500;

/// Where a machine's node listens.
pub(super) fn address(sim: &Simulation, machine: &Env) -> SocketAddr {
    SocketAddr::new(sim.ip(machine), PORT)
}

/// Who has commits arrive twice at a machine, if that is the link.
pub(super) fn between(sim: &Simulation, machine: &Env, link: Link) -> Option<Between> {
    let is_doubled = link == Link::Doubled;
    is_doubled.then(|| Between::stand(sim, address(sim, machine), Doubles::Later))
}

/// What is to speak over sockets.
pub(super) struct Plan {
    pub standing: Standing,
    pub listen: SocketAddr,
    /// Where the others find it.
    pub public: SocketAddr,
    pub spoken: Spoken,
}

/// What a node has of sockets, as long as its process lives.
pub(super) struct Sockets {
    mesh: Arc<Mesh>,
    server: Server,
}

impl Sockets {
    /// Opens a node and serves it, as `plinth server` does.
    pub async fn open(machine: &Env, config: NodeConfig, plan: Plan) -> Result<(Arc<Host>, Self)> {
        let Plan { standing, listen, public, spoken } = plan;
        let trust = Trust { in_the_clear: true, ..Trust::default() };
        let trust = Trust { spoken, ..trust };
        let mesh = Mesh::start(machine, standing, trust);
        mesh.is_at(&public.to_string());
        let opened = Host::open(machine, Path::new(DIR), config, mesh.clone()).await;
        let host = opened.map_err(|error| Error::from(&error))?;
        connect(&mesh, &host);
        let config = ServerConfig {
            listen: vec![listen],
            public: Some(public),
            without_tls: true,
            peers: Some(mesh.clone()),
            ..ServerConfig::default()
        };
        let server = Server::start(Arc::new(host.endpoint()), config).await?;
        Ok((host, Self { mesh, server }))
    }

    /// `description:id` of the cluster file.
    pub fn cluster(&self) -> Option<String> {
        Some(ClusterFile::parse(self.server.connection_string()).ok()?.key())
    }

    /// Answers what is under way, and lets nobody in any more.
    pub async fn stop(self) -> Arc<Mesh> {
        self.server.stop().await;
        self.mesh
    }
}

/// What comes from other nodes goes to this one, which may be gone by then.
fn connect(mesh: &Mesh, host: &Arc<Host>) {
    let node = Arc::downgrade(host);
    mesh.deliver_to(move |frame| node.upgrade()?.receive_and_answer(frame));
    let node = Arc::downgrade(host);
    mesh.deliver_parcels_to(move |parcel| {
        if let Some(node) = node.upgrade() {
            node.receive_parcel(parcel);
        }
    });
    let node = Arc::downgrade(host);
    mesh.when_moved(move |other, address| {
        if let Some(node) = node.upgrade() {
            node.note_move(other, address);
        }
    });
}

impl Machine {
    /// Where others' connections to it end: at its own machine, or at the one before it.
    fn door(&self) -> &Env {
        self.between.as_ref().map_or(&self.env, |between| &between.machines[0])
    }
}

impl Fleet {
    /// What a machine's node is to speak over, if it is sockets.
    pub(super) fn sockets_of(&self, at: usize) -> Option<Plan> {
        let machine = &self.machines[at];
        self.orders.link.is_network().then(|| Plan {
            standing: self.standing(machine.id),
            listen: address(&self.sim, &machine.env),
            public: address(&self.sim, machine.door()),
            spoken: machine.spoken,
        })
    }

    fn standing(&self, node: NodeId) -> Standing {
        let founder = |(at, machine): (usize, &Machine)| Peer {
            node: at as NodeId + 1,
            address: machine.address.clone(),
        };
        let members = self.machines.iter().take(self.founders).enumerate().map(founder).collect();
        let charter = Charter {
            cluster: "sim:nodes".to_owned(),
            cluster_id: self.cluster_id(),
            secret: Secret::from_bytes([self.sim.seed() as u8; 32]),
            members,
        };
        Standing { charter, node, begun: true }
    }

    /// The product's own client, which knows those that the cluster was founded with.
    pub(super) fn client(&self) -> std::result::Result<Arc<dyn Endpoint>, String> {
        let founders = self.machines.iter().take(self.founders);
        let addresses: Vec<_> = founders.map(|machine| machine.address.clone()).collect();
        let cluster = self.wires.cluster().ok_or("no server is there to name the cluster")?;
        let file = ClusterFile::parse(&format!("{cluster}@{}", addresses.join(",")));
        let file = file.map_err(|error| format!("the cluster file is of no use: {error}"))?;
        Ok(Arc::new(RemoteEndpoint::connect(self.stage.env(), file)))
    }

    /// From one machine's node nothing comes to another one's.
    pub(super) fn cut(&self, from: usize, to: usize) {
        let [from, to] = [from, to].map(|at| &self.machines[at]);
        self.wires.cut(from.id, to.id);
        if self.orders.link.is_network() {
            // By the connection that it has made, and by the one that the other has.
            self.sim.cut(&from.env, to.door());
            self.sim.cut(from.door(), &to.env);
        }
    }

    /// Something happens to the network, as far as this machine has to do with it.
    pub(super) fn disturb_network(&mut self, at: usize) {
        self.stage.probe("network disturbed");
        let others: Vec<_> = (0..self.machines.len()).filter(|other| *other != at).collect();
        let other = others[self.random.index(others.len())];
        let machine = &self.machines[at];
        let [clients, other] = [self.stage.env(), &self.machines[other].env];
        let time = Duration::from_micros(self.random.below(1_500_000));
        match self.random.below(6) {
            0 => self.sim.close_connections(machine.door(), clients),
            1 => self.sim.close_connections(machine.door(), other),
            2 => self.sim.clog(machine.door(), clients, time),
            3 => self.sim.clog(machine.door(), other, time),
            4 => self.sim.partition(machine.door(), clients),
            _ => self.sim.set_network(bad_network(&mut self.random, time)),
        }
    }

    /// All ways are whole, and good.
    pub(super) fn heal_network(&self) {
        self.wires.heal();
        if !self.orders.link.is_network() {
            return;
        }
        self.sim.set_network(NetworkPlan::default());
        for (at, machine) in self.machines.iter().enumerate() {
            for door in [&machine.env, machine.door()] {
                self.sim.heal(door, self.stage.env());
                for other in &self.machines[..at] {
                    self.sim.heal(door, &other.env);
                    self.sim.heal(door, other.door());
                }
            }
        }
    }

    /// What those that stand before the machines have seen that must not be.
    pub(super) fn violation(&self) -> Option<String> {
        self.machines.iter().find_map(|machine| machine.between.as_ref()?.violation())
    }
}
