//! What the tasks of a mesh share: who the others are, and what is done with what they say.
//!
//! Whoever calls or receives looks here and tells it here; who is called is the mesh's to say.
//! Links follow the members: one that has ended is never used again, a node that comes back has a
//! new one. Who lags behind learns of new members from whoever leads, which may be one of them: so
//! a node with a number that hasn't been given yet, as far as is known here, and that has the
//! cluster's secret, has a link until the members say otherwise.

use crate::charter::Standing;
use crate::hello::{Hello, Purpose};
use crate::link::{Link, lock};
use crate::secret;
use crate::trust::Trust;
use plinth_env::{Env, Task};
use plinth_replication::{Frame, Members, NodeId, Parcel};
use plinth_types::Result;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// A node that is taken in: its number, and who the members are as of which entry of the log.
pub type TakenIn = (NodeId, Arc<Members>, u64);

/// Takes in a new node at an address, if this one leads.
pub type TakeIn =
    Box<dyn Fn(String) -> Pin<Box<dyn Future<Output = Result<TakenIn>> + Send>> + Send + Sync>;

/// So many nodes may have a link that aren't members yet, as far as this node knows.
const NEWCOMERS: usize = 8;

/// What all its tasks share.
pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) standing: Standing,
    pub(crate) trust: Trust,
    links: Mutex<BTreeMap<NodeId, Arc<Link>>>,
    /// Who is a member, as this node knows; nobody before it has said so.
    members: Mutex<Arc<Members>>,
    pub(crate) hooks: Hooks,
    /// Where this node is, if that has been said.
    pub(crate) place: OnceLock<String>,
    /// Why nodes that ask again and again are not taken in, as was told last, by their addresses.
    not_taken_in: Mutex<BTreeMap<String, String>>,
    /// Those that call other nodes.
    pub(crate) tasks: Mutex<Vec<Task>>,
    call: Call,
    ended: AtomicBool,
}

/// Begins to call another node.
pub(crate) type Call = fn(Arc<Shared>, Arc<Link>) -> Task;

/// What is done with what other nodes say, by whoever this mesh is for.
#[derive(Default)]
pub(crate) struct Hooks {
    pub(crate) deliver: OnceLock<Deliver>,
    pub(crate) deliver_parcel: OnceLock<DeliverParcel>,
    pub(crate) take_in: OnceLock<TakeIn>,
    pub(crate) removed: OnceLock<Removed>,
    /// What hears that another node is somewhere else.
    pub(crate) moved: OnceLock<Moved>,
}

type Deliver = Box<dyn Fn(Frame) -> Option<Frame> + Send + Sync>;
type DeliverParcel = Box<dyn Fn(Parcel) + Send + Sync>;
type Removed = Box<dyn Fn() + Send + Sync>;
type Moved = Box<dyn Fn(NodeId, &str) + Send + Sync>;

/// Whether a node of this number may become a member yet, by what these say.
fn may_come(members: &Members, node: NodeId) -> bool {
    !members.nodes.is_empty() && node >= members.next_id
}

/// So many nodes that aren't taken in are known by what was told of them.
const MOST_TOLD: usize = 64;

impl Shared {
    /// Whether it hasn't been told yet that a node isn't taken in for this reason.
    pub(crate) fn is_news_of(&self, address: &str, why: &str) -> bool {
        let mut told = lock(&self.not_taken_in);
        if told.len() >= MOST_TOLD {
            told.clear();
        }
        told.insert(address.to_owned(), why.to_owned()).as_deref() != Some(why)
    }

    pub(crate) fn new(env: &Env, standing: Standing, trust: Trust, call: Call) -> Self {
        let others = standing.charter.members.iter().filter(|peer| peer.node != standing.node);
        let links =
            others.map(|peer| (peer.node, Arc::new(Link::new(peer.node, &peer.address)))).collect();
        Self {
            env: env.clone(),
            standing,
            trust,
            links: Mutex::new(links),
            members: Mutex::default(),
            hooks: Hooks::default(),
            place: OnceLock::new(),
            not_taken_in: Mutex::default(),
            tasks: Mutex::default(),
            call,
            ended: AtomicBool::new(false),
        }
    }

    /// The other nodes, in the order of their numbers.
    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        lock(&self.links).values().cloned().collect()
    }

    /// Takes note of who the members are. Gives the links that are new: nobody calls those nodes
    /// yet.
    pub(crate) fn follow(&self, members: &Arc<Members>) -> Vec<Arc<Link>> {
        *lock(&self.members) = members.clone();
        if self.has_ended() {
            return Vec::new();
        }
        let mut links = lock(&self.links);
        let stays = |link: &Arc<Link>| match members.node(link.node) {
            Some(node) => node.address == link.address,
            None => may_come(members, link.node),
        };
        links.retain(|_, link| {
            let stays = stays(link);
            if !stays {
                link.end();
            }
            stays
        });
        let mut new = Vec::new();
        for node in members.nodes.iter().filter(|node| node.id != self.standing.node) {
            if let Entry::Vacant(vacant) = links.entry(node.id) {
                new.push(vacant.insert(Arc::new(Link::new(node.id, &node.address))).clone());
            }
        }
        new
    }

    /// Begins to call the nodes of these links, which nobody calls yet.
    pub(crate) fn call(self: &Arc<Self>, new: impl FnOnce() -> Vec<Arc<Link>>) {
        // Before links are made, so that whoever ends all of this finds the tasks of all of them.
        let mut tasks = lock(&self.tasks);
        for link in new() {
            tasks.push((self.call)(self.clone(), link));
        }
    }

    /// A link for a caller that may have become a member since, if there are few of those. Nobody
    /// uses it before the caller has proven who it is.
    pub(crate) fn newcomer(&self, hello: &Hello) -> Option<Arc<Link>> {
        let members = lock(&self.members).clone();
        let links = lock(&self.links);
        let few = links.keys().filter(|node| may_come(&members, **node)).count() < NEWCOMERS;
        let may_be = may_come(&members, hello.from) && !hello.address.is_empty();
        (few && may_be).then(|| Arc::new(Link::new(hello.from, &hello.address)))
    }

    /// A caller has proven that it has the cluster's secret: its link, which is a new one if it is
    /// a newcomer.
    pub(crate) fn meet(self: &Arc<Self>, link: Arc<Link>) -> Arc<Link> {
        let mut met = link;
        self.call(|| {
            let members = lock(&self.members).clone();
            if self.has_ended() || !may_come(&members, met.node) {
                return Vec::new();
            }
            match lock(&self.links).entry(met.node) {
                Entry::Occupied(known) => {
                    met = known.get().clone();
                    Vec::new()
                }
                Entry::Vacant(vacant) => vec![vacant.insert(met.clone()).clone()],
            }
        });
        met
    }

    /// Ends all connections.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        lock(&self.links).values().for_each(|link| link.end());
    }

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
        let before = std::mem::replace(&mut *lock(&link.heard_at), heard_at);
        // Also that it is back.
        let is_news = is_news || before.is_some();
        if let Some(moved) = self.hooks.moved.get().filter(|_| is_news && !address.is_empty()) {
            moved(node, address);
        }
    }

    /// A member says that this node is none any more.
    pub(crate) fn be_removed(&self) {
        if let Some(removed) = self.hooks.removed.get() {
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
        self.hooks.deliver.get()?(frame)
    }

    pub(crate) fn deliver_parcel(&self, parcel: Parcel) {
        if let Some(deliver) = self.hooks.deliver_parcel.get() {
            deliver(parcel);
        }
    }

    /// The hello that this node calls another one with.
    pub(crate) fn hello(&self, link: &Link) -> Hello {
        let Standing { charter, node, .. } = &self.standing;
        let mut nonce = [0; secret::LEN];
        self.env.fill_random(&mut nonce);
        Hello {
            spoken: self.trust.spoken,
            purpose: Purpose::Frames,
            cluster: charter.cluster.clone(),
            cluster_id: charter.cluster_id,
            from: *node,
            to: link.node,
            nonce,
            address: self.own_address(),
            addresses: String::new(),
            window: self.trust.window,
        }
    }
}
