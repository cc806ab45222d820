//! All connections of a node with the others of its cluster: [`Mesh`].
//!
//! Each pair of nodes has two connections, one for each direction: who sends frames has called. So
//! nobody has to agree on which one counts; and a node that can hear but not be heard is noticed by
//! itself, since its pings stay without an answer. A task for each other node calls it, again and
//! again; a task for each node that has called receives. Who the others are follows the cluster's
//! members: see [`Peers::members`].

use crate::call;
use crate::charter::Standing;
use crate::hello::{self, Purpose};
use crate::outbox::{Figures, Item, Outbox};
use crate::session;
use plinth_env::{Env, Signal, Stream, Task};
use plinth_replication::{Frame, Members, NodeId, Parcel, Peers, Spoken};
use plinth_types::Result;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What a node shows others, and wants to see of them, besides the cluster's secret.
#[derive(Clone, Default, Debug)]
pub struct Trust {
    /// This node's certificate, and whom the others' must be signed by; then connections are
    /// encrypted.
    #[cfg(feature = "tls")]
    pub tls: Option<plinth_tls::TlsOptions>,
    /// Whether nodes may speak in the clear where other machines can hear them.
    pub in_the_clear: bool,
    /// The versions of the protocol that it offers.
    pub spoken: Spoken,
}

/// The connections of a node.
pub struct Mesh {
    shared: Arc<Shared>,
    tasks: Mutex<Vec<Task>>,
}

/// A node that is taken in: its number, and who the members are as of which entry of the log.
pub type TakenIn = (NodeId, Arc<Members>, u64);

/// Takes in a new node at an address, if this one leads.
pub type TakeIn =
    Box<dyn Fn(String) -> Pin<Box<dyn Future<Output = Result<TakenIn>> + Send>> + Send + Sync>;

/// What all its tasks share.
pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) standing: Standing,
    pub(crate) trust: Trust,
    links: Mutex<BTreeMap<NodeId, Arc<Link>>>,
    /// Who is a member, as this node knows; nobody before it has said so.
    members: Mutex<Arc<Members>>,
    deliver: OnceLock<Deliver>,
    deliver_parcel: OnceLock<DeliverParcel>,
    pub(crate) take_in: OnceLock<TakeIn>,
    removed: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Where this node is, if that has been said, and what hears that another one is somewhere
    /// else.
    place: OnceLock<String>,
    moved: OnceLock<Moved>,
    ended: AtomicBool,
}

type Moved = Box<dyn Fn(NodeId, &str) + Send + Sync>;

type Deliver = Box<dyn Fn(Frame) -> Option<Frame> + Send + Sync>;
type DeliverParcel = Box<dyn Fn(Parcel) + Send + Sync>;

/// What there is for one other node.
pub(crate) struct Link {
    pub(crate) node: NodeId,
    pub(crate) address: String,
    /// Where it says that it is, if that is somewhere else.
    heard_at: Mutex<Option<String>>,
    pub(crate) outbox: Outbox,
    /// Ends a pause between two calls.
    pub(crate) poke: Signal,
    /// It is no member any more, or is somewhere else.
    ended: AtomicBool,
    /// What its program speaks, as it said when it called, while that connection lasts.
    pub(crate) spoken: Mutex<Option<Spoken>>,
    /// Which connection from it counts: the newest.
    pub(crate) newest: AtomicU64,
    /// Why it was not reached the last time it was called.
    pub(crate) failure: Mutex<Option<String>>,
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
    /// Why there is no connection to it, if there is none and it was tried.
    pub failure: Option<String>,
}

impl Mesh {
    /// Begins to call the other nodes. Frames that arrive are thrown away until
    /// [`Mesh::deliver_to`] is called.
    pub fn start(env: &Env, standing: Standing, trust: Trust) -> Arc<Self> {
        let others = standing.charter.members.iter().filter(|peer| peer.node != standing.node);
        let links: BTreeMap<_, _> =
            others.map(|peer| (peer.node, Arc::new(Link::new(peer.node, &peer.address)))).collect();
        let shared = Arc::new(Shared {
            env: env.clone(),
            standing,
            trust,
            links: Mutex::new(links.clone()),
            members: Mutex::default(),
            deliver: OnceLock::new(),
            deliver_parcel: OnceLock::new(),
            take_in: OnceLock::new(),
            removed: OnceLock::new(),
            place: OnceLock::new(),
            moved: OnceLock::new(),
            ended: AtomicBool::new(false),
        });
        let call = |link: &Arc<Link>| {
            env.spawn_network("call peer", call::run(shared.clone(), link.clone()))
        };
        let tasks = links.values().map(call).collect();
        Arc::new(Self { shared, tasks: Mutex::new(tasks) })
    }

    /// Has frames that arrive given to `deliver`, which must be quick and never wait. An answer
    /// that it gives goes back to the node that the frame is from: by the connection it came by,
    /// without another thread's turn, if that node's program takes it there. The first call counts.
    pub fn deliver_to(&self, deliver: impl Fn(Frame) -> Option<Frame> + Send + Sync + 'static) {
        let _ = self.shared.deliver.set(Box::new(deliver));
    }

    /// The same for parcels.
    pub fn deliver_parcels_to(&self, deliver: impl Fn(Parcel) + Send + Sync + 'static) {
        let _ = self.shared.deliver_parcel.set(Box::new(deliver));
    }

    /// Has `take_in` take in new nodes that ask for it. The first call counts.
    pub fn take_in_by(&self, take_in: TakeIn) {
        let _ = self.shared.take_in.set(take_in);
    }

    /// Has `removed` called when a member proves that this node is none any more. The first call
    /// counts.
    pub fn when_removed(&self, removed: impl Fn() + Send + Sync + 'static) {
        let _ = self.shared.removed.set(Box::new(removed));
    }

    /// Says where this node is, be it known by that address or not. The first call counts.
    pub fn is_at(&self, address: &str) {
        let _ = self.shared.place.set(address.to_owned());
    }

    /// Has `moved` called when a member is somewhere else than the members say, or back. The first
    /// call counts.
    pub fn when_moved(&self, moved: impl Fn(NodeId, &str) + Send + Sync + 'static) {
        let _ = self.shared.moved.set(Box::new(moved));
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

    /// What is known of the other nodes, in the order of their numbers.
    pub fn status(&self) -> Vec<PeerStatus> {
        let status = |link: &Arc<Link>| PeerStatus {
            node: link.node,
            address: link.place(0),
            figures: link.outbox.figures(),
            spoken: *lock(&link.spoken),
            failure: link.failure.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        lock(&self.shared.links).values().map(status).collect()
    }

    /// What the cluster was founded with, and which node this is.
    pub fn standing(&self) -> &Standing {
        &self.shared.standing
    }

    /// Ends all connections, and waits for the tasks that call.
    pub async fn end(&self) {
        self.begin_end();
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            // A task that failed has ended too.
            let _ = task.await;
        }
    }

    fn begin_end(&self) {
        self.shared.ended.store(true, Ordering::Release);
        lock(&self.shared.links).values().for_each(|link| link.end());
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.begin_end();
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
        *lock(&self.shared.link(node)?.spoken)
    }

    fn members(&self, members: &Arc<Members>) {
        let shared = &self.shared;
        *lock(&shared.members) = members.clone();
        if shared.has_ended() {
            return;
        }
        let mut links = lock(&shared.links);
        let stays = |link: &Arc<Link>| {
            members.node(link.node).is_some_and(|node| node.address == link.address)
        };
        links.retain(|_, link| {
            let stays = stays(link);
            if !stays {
                link.end();
            }
            stays
        });
        let mut tasks = lock(&self.tasks);
        for node in members.nodes.iter().filter(|node| node.id != shared.standing.node) {
            if let Entry::Vacant(vacant) = links.entry(node.id) {
                let link = vacant.insert(Arc::new(Link::new(node.id, &node.address))).clone();
                tasks.push(shared.env.spawn_network("call peer", call::run(shared.clone(), link)));
            }
        }
    }
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mesh").field("node", &self.shared.standing.node).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    fn new(node: NodeId, address: &str) -> Self {
        Self {
            node,
            address: address.to_owned(),
            heard_at: Mutex::default(),
            outbox: Outbox::default(),
            poke: Signal::new(),
            ended: AtomicBool::new(false),
            spoken: Mutex::default(),
            newest: AtomicU64::new(0),
            failure: Mutex::default(),
        }
    }

    /// Where it is called at this attempt: where it says it is, and by turns where the members say,
    /// in case that it lied or is back there.
    pub(crate) fn place(&self, attempt: usize) -> String {
        let heard_at = self.heard_at.lock().unwrap_or_else(PoisonError::into_inner).clone();
        heard_at.filter(|_| attempt.is_multiple_of(2)).unwrap_or_else(|| self.address.clone())
    }

    /// Nothing goes over it any more.
    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.poke.notify();
        self.newest.fetch_add(1, Ordering::AcqRel);
        self.outbox.set_connected(false);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// It has called, by a program that speaks this; gives the number of that connection.
    pub(crate) fn is_called(&self, program: Spoken) -> u64 {
        let mut spoken = lock(&self.spoken);
        *spoken = Some(program);
        self.newest.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The connection with this number has ended.
    pub(crate) fn is_lost(&self, number: u64) {
        let mut spoken = lock(&self.spoken);
        if self.newest.load(Ordering::Acquire) == number {
            *spoken = None;
        }
    }
}

impl Shared {
    pub(crate) fn link(&self, node: NodeId) -> Option<Arc<Link>> {
        lock(&self.links).get(&node).cloned()
    }

    /// The protocol of the cluster, as far as this node knows.
    pub(crate) fn protocol(&self) -> u16 {
        lock(&self.members).protocol
    }

    /// Whether a node was a member, and is none any more.
    pub(crate) fn was_removed(&self, node: NodeId) -> bool {
        let members = lock(&self.members);
        members.node(node).is_none() && node < members.next_id
    }

    /// A member says where it is. It is answered there from now on, whether or not there is anybody
    /// who could have the members say so.
    pub(crate) fn is_heard_at(&self, node: NodeId, address: &str) {
        let Some(link) = self.link(node) else { return };
        let is_news = link.address != address;
        let heard_at = Some(address.to_owned()).filter(|address| is_news && !address.is_empty());
        let before = std::mem::replace(
            &mut *link.heard_at.lock().unwrap_or_else(PoisonError::into_inner),
            heard_at,
        );
        // Also that it is back.
        let is_news = is_news || before.is_some();
        if let Some(moved) = self.moved.get().filter(|_| is_news && !address.is_empty()) {
            moved(node, address);
        }
    }

    /// A member says that this node is none any more.
    pub(crate) fn be_removed(&self) {
        if let Some(removed) = self.removed.get() {
            removed();
        }
    }

    /// Where this node is, as far as it knows.
    pub(crate) fn own_address(&self) -> String {
        if let Some(place) = self.place.get() {
            return place.clone();
        }
        let Standing { charter, node, .. } = &self.standing;
        if let Some(node) = lock(&self.members).node(*node) {
            return node.address.clone();
        }
        let founded = charter.members.iter().find(|peer| peer.node == *node);
        founded.map(|peer| peer.address.clone()).unwrap_or_default()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Gives a frame to the node, and its answer to the caller.
    pub(crate) fn deliver(&self, frame: Frame) -> Option<Frame> {
        self.deliver.get()?(frame)
    }

    pub(crate) fn deliver_parcel(&self, parcel: Parcel) {
        if let Some(deliver) = self.deliver_parcel.get() {
            deliver(parcel);
        }
    }

    /// The hello that this node calls another one with.
    pub(crate) fn hello(&self, link: &Link) -> hello::Hello {
        let Standing { charter, node, .. } = &self.standing;
        let mut nonce = [0; crate::secret::LEN];
        self.env.fill_random(&mut nonce);
        hello::Hello {
            spoken: self.trust.spoken,
            purpose: Purpose::Frames,
            cluster: charter.cluster.clone(),
            cluster_id: charter.cluster_id,
            from: *node,
            to: link.node,
            nonce,
            address: self.own_address(),
            addresses: String::new(),
        }
    }
}

/// Connects to an address, `host:port`, with TLS if nodes have certificates.
pub(crate) async fn connect(env: &Env, trust: &Trust, address: &str) -> Result<Stream> {
    let wrong = || {
        let detail = format!("{address:?} is no address: host:port");
        plinth_types::Error::connection_string_invalid().with_detail(detail)
    };
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let places = env.sockets().resolve(host, port).await?;
    let stream = env.connect_to_any(&places).await?;
    secured(env, trust, stream).await
}

impl Trust {
    /// Whether secrets may go over a connection that was made.
    pub(crate) fn may_speak_to(&self, stream: &Stream) -> bool {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return true;
        }
        self.in_the_clear || stream.peer_address().ip().is_loopback()
    }

    /// Whether what the other side of an accepted connection has shown is what a node must show.
    #[cfg(feature = "tls")]
    pub(crate) fn check(&self, stream: &Stream) -> Result<()> {
        let Some(options) = &self.tls else { return Ok(()) };
        let rule = plinth_tls::Rule::parse(&options.verify_peers)?;
        rule.check(stream.peer_certificate().as_deref())
    }

    /// Whether what the other side of an accepted connection has shown is what a node must show:
    /// nothing.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn check(&self, _: &Stream) -> Result<()> {
        Ok(())
    }
}

#[cfg(feature = "tls")]
async fn secured(env: &Env, trust: &Trust, stream: Stream) -> Result<Stream> {
    match &trust.tls {
        Some(options) => plinth_tls::connect(env, options, stream).await,
        None => Ok(stream),
    }
}

#[cfg(not(feature = "tls"))]
async fn secured(_: &Env, _: &Trust, stream: Stream) -> Result<Stream> {
    Ok(stream)
}
