//! How nodes form a cluster: from empty directories and a cluster file that is the same on all of
//! them.
//!
//! ```text
//!   every node       asks every other one, again and again: how far are you?         empty, chartered, begun
//!   the first one    once all others answer, and are empty: makes a charter          (the lowest address)
//!                    sends it to each that is empty still
//!                    once all have it: writes down that the cluster has begun        <- this is the moment
//!   another one      is sent the charter: makes its directory with it, then says so
//!                    hears from one that has begun: writes that down too
//! ```
//!
//! What makes it safe, wherever a node is lost and begins again:
//!
//! 1. A charter is on disk before its directory is made, and the directory is made before the
//!    charter is confirmed. Who comes back goes on from there.
//! 2. The first node alone makes charters, and gives every node its number. As long as nobody has
//!    begun, nobody has voted: so a node that lost its disk may be sent the same charter, and have
//!    the same number, again.
//! 3. It begins only when every node has confirmed. From then on it sends no charter: whoever is
//!    empty later was wiped, or comes late, and is told so. An empty directory never votes in a
//!    cluster that has begun. An empty directory that finds its cluster begun asks to be taken in:
//!    a new number, no vote, see `session.rs`.
//! 4. A node takes a charter only if it has none, from the first node of its own cluster file, for
//!    exactly the addresses of that file. A node believes that its cluster has begun only by proof
//!    with the charter's secret.
//!
//! So at most one cluster comes out of a cluster file, unless the first node's disk is lost between
//! making a charter and beginning: then the others have one that the first doesn't know, and all
//! say so and wait.

mod ask;
mod state;
mod visit;

use crate::charter::{Charter, FILE_NAME, MAX_MEMBERS, Peer, Standing};
use crate::failure::{PeerError, PeerResult};
use crate::secret::Secret;
use crate::trust::Trust;
use plinth_env::reply::Promise;
use plinth_env::sync::{First, race};
use plinth_env::{Env, Listener, Signal, Task};
use plinth_format::Keys;
use plinth_replication::{Members, NodeId};
use plinth_types::Result;
use state::{Seen, State};
use std::collections::VecDeque;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a node wants to be a member of.
#[derive(Clone, Debug)]
pub struct Wish {
    /// `description:id` of its cluster file.
    pub cluster: String,
    /// The addresses in it, `host:port` each, in any order.
    pub addresses: Vec<String>,
    /// Its own, as the file has it.
    pub own: String,
    /// Its directory.
    pub dir: PathBuf,
    /// What it shows others, and wants to see of them.
    pub trust: Trust,
    /// Those of its directory: with any, its charter is sealed.
    pub keys: Keys,
}

/// What makes a node's directory, and tells people.
pub trait Ground: Send + Sync + 'static {
    /// Makes the directory that of a member, durably. It may have been made already, in whole or in
    /// part; one of another node is an error. In a cluster that has begun it is told who the
    /// members are, as of which entry; else they are those of the charter.
    fn found<'a>(
        &'a self,
        standing: &'a Standing,
        members: Option<(Members, u64)>,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

    /// Whether the directory is a member's, whole.
    fn is_founded(&self) -> Pin<Box<dyn Future<Output = Result<bool>> + Send + '_>>;

    /// Something that people should know. Called once for each text.
    fn say(&self, text: &str);
}

/// What a node is sent.
enum Sent {
    /// By the first node: with what the cluster is to be founded.
    Charter(Charter),
    /// By the leader of a cluster that has begun: with what it was founded, which node this is, and
    /// who the members are.
    Join(Charter, NodeId, Members, u64),
}

/// What all tasks of a node share while a cluster is formed.
struct Shared {
    env: Env,
    wish: Wish,
    /// The addresses in order, as the file's identity.
    all: String,
    state: Mutex<State>,
    /// What was sent here, and whom to tell what became of it.
    sent: Mutex<VecDeque<(Sent, Promise<(), PeerError>)>>,
    changed: Signal,
    ended: Signal,
}

impl Wish {
    /// Whether a cluster can be formed so.
    ///
    /// # Errors
    /// `Mismatch`, saying what is wrong.
    pub fn check(&self) -> PeerResult<()> {
        let refuse = |what: String| Err(PeerError::Mismatch(what));
        let mut sorted = self.addresses.clone();
        sorted.sort();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return refuse(format!("the cluster file names {} twice", twice[0]));
        }
        Ok(())
    }

    /// Whether a cluster can be founded so, or only joined: by a server that its file doesn't name,
    /// or one that names no number of servers that a cluster is founded with.
    fn may_found(&self) -> bool {
        self.why_not_found().is_none()
    }

    /// Why no cluster can be founded so.
    fn why_not_found(&self) -> Option<String> {
        let count = self.addresses.len();
        if !self.addresses.contains(&self.own) {
            return Some(format!(
                "the cluster file names {}, and not this server's address, {}",
                self.addresses.join(", "),
                self.own
            ));
        }
        (count.is_multiple_of(2) || !(3..=MAX_MEMBERS).contains(&count)).then(|| {
            format!(
                "the cluster file names {count} servers; a cluster is founded by 3, 5, 7 or 9: an even number survives no more than \
                 one less"
            )
        })
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the node's charter.
    async fn write(&self, standing: &Standing) -> PeerResult<()> {
        standing.write(&self.env, &self.wish.dir, &self.wish.keys).await
    }

    /// Notes what was heard of a node.
    fn note(&self, address: &str, seen: Seen) {
        let is_news = self.state().seen.insert(address.to_owned(), seen.clone()) != Some(seen);
        if is_news {
            self.changed.notify();
        }
    }

    /// The lowest address: that of the node that makes charters.
    fn first(&self) -> &str {
        self.wish.addresses.iter().min().map_or("", String::as_str)
    }

    fn is_first(&self) -> bool {
        self.wish.own == self.first()
    }
}

/// Forms the cluster that a node wishes to be in, or finds out that it has begun. Returns once it
/// has, and this node is a member of it; until then nobody else listens on `listener`. Goes on for
/// ever if that can't be.
///
/// # Errors
/// `Mismatch` for a wish that makes no sense, or a directory of another cluster; `Locked` if its
/// charter is sealed, and not by a key of the wish's; those of files, and of [`Ground::found`].
pub async fn form(
    env: &Env,
    wish: Wish,
    listener: Listener,
    ground: Arc<dyn Ground>,
) -> PeerResult<Standing> {
    wish.check()?;
    let known = Standing::load(env, &wish.dir, &wish.keys).await?;
    if let Some((standing, cipher)) = &known {
        fits(standing, &wish)?;
        if cipher.is_outdated(&wish.keys) {
            // So whoever is told that an older key is needed no longer can do without it.
            standing.write(env, &wish.dir, &wish.keys).await?;
        }
        if standing.begun {
            return Ok(standing.clone());
        }
    }
    let known = match known.map(|(standing, _)| standing) {
        Some(standing)
            if standing.charter.members.iter().all(|peer| peer.node != standing.node) =>
        {
            // It was taken into a cluster that has begun, and crashed.
            if ground.is_founded().await? {
                let standing = Standing { begun: true, ..standing };
                standing.write(env, &wish.dir, &wish.keys).await?;
                return Ok(standing);
            }
            env.files().remove(wish.dir.join(FILE_NAME)).await?;
            None
        }
        known => known,
    };
    if let Some(standing) = &known {
        ground.found(standing, None).await?;
    } else {
        env.keeping_private().files().create_dir_all(&wish.dir).await?;
    }
    let mut sorted = wish.addresses.clone();
    sorted.sort();
    let shared = Arc::new(Shared {
        env: env.clone(),
        all: sorted.join(","),
        wish,
        state: Mutex::new(State { standing: known, ..State::default() }),
        sent: Mutex::default(),
        changed: Signal::new(),
        ended: Signal::new(),
    });
    let visits = env.spawn_network("visits", visit::accept(shared.clone(), listener));
    let others = sorted.into_iter().filter(|address| *address != shared.wish.own);
    let asks: Vec<_> =
        others.map(|address| env.spawn_network("ask", ask::run(shared.clone(), address))).collect();
    let formed = decide(&shared, &*ground).await;
    end(&shared, visits, asks).await;
    formed
}

/// Whether the directory's charter is of the cluster that is wished for.
fn fits(standing: &Standing, wish: &Wish) -> PeerResult<()> {
    let Standing { charter, node, .. } = standing;
    let refuse = |what: String| {
        let what = format!("{}: {what}", wish.dir.display());
        Err(PeerError::Mismatch(what))
    };
    if charter.cluster != wish.cluster {
        return refuse(format!(
            "it belongs to the cluster {}, and the cluster file names {}",
            charter.cluster, wish.cluster
        ));
    }
    let at = charter.node_at(&wish.own);
    // One that was taken in later may stand where a founder stood.
    let is_founder = charter.members.iter().any(|peer| peer.node == *node);
    if !standing.begun && is_founder && at.is_some_and(|at| at != *node) {
        return refuse(format!(
            "it is that of node {node}, which was not at {} when its cluster was formed",
            wish.own
        ));
    }
    Ok(())
}

async fn end(shared: &Shared, visits: Task, asks: Vec<Task>) {
    shared.state().is_over = true;
    // One after the other, since a permit is one task's.
    for task in asks.into_iter().chain([visits]) {
        let waiting = async {
            loop {
                shared.ended.notify();
                shared.env.sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        let ended: First<_, ()> = race(task, waiting).await;
        drop(ended);
    }
}

/// Looks what is to be done after each change, until the cluster has begun.
async fn decide(shared: &Shared, ground: &dyn Ground) -> PeerResult<Standing> {
    let mut said = String::new();
    loop {
        while let Some((sent, promise)) = next(shared) {
            match sent {
                Sent::Charter(charter) => promise.send(take(shared, ground, charter).await),
                Sent::Join(..) if shared.state().standing.is_some() => {
                    let what = "this node has a charter already".to_owned();
                    promise.send(Err(PeerError::Mismatch(what)));
                }
                Sent::Join(charter, node, members, index) => {
                    let standing = Standing { charter, node, begun: false };
                    let joined = join(shared, ground, standing, (members, index)).await;
                    promise.send(joined.clone());
                    joined?;
                }
            }
        }
        if let Some(standing) = step(shared, ground).await? {
            return Ok(standing);
        }
        let text = shared.state().words(shared);
        if let Some(text) = text.filter(|text| *text != said) {
            ground.say(&text);
            said = text;
        }
        shared.changed.wait().await;
    }
}

fn next(shared: &Shared) -> Option<(Sent, Promise<(), PeerError>)> {
    shared.sent.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

/// Takes a charter that the first node has sent.
async fn take(shared: &Shared, ground: &dyn Ground, charter: Charter) -> PeerResult<()> {
    let known = shared.state().standing.clone();
    let refuse = |what: &str| Err(PeerError::Mismatch(what.to_owned()));
    if let Some(known) = known {
        if known.charter == charter {
            return Ok(());
        }
        return refuse("this node has another charter already");
    }
    let Some(node) = charter.node_at(&shared.wish.own) else {
        return refuse("the charter doesn't name this node");
    };
    settle(shared, ground, Standing { charter, node, begun: false }).await
}

/// Makes this node one of a cluster that has begun. If that fails nobody knows how much of it is on
/// the disk, and asking for another number could make it two nodes: whoever starts next finds out,
/// and goes on from there.
async fn join(
    shared: &Shared,
    ground: &dyn Ground,
    standing: Standing,
    members: (Members, u64),
) -> PeerResult<()> {
    shared.write(&standing).await?;
    ground.found(&standing, Some(members)).await?;
    let standing = Standing { begun: true, ..standing };
    shared.write(&standing).await?;
    shared.state().standing = Some(standing);
    Ok(())
}

/// Makes this node one with a charter.
async fn settle(shared: &Shared, ground: &dyn Ground, standing: Standing) -> PeerResult<()> {
    shared.write(&standing).await?;
    ground.found(&standing, None).await?;
    shared.state().standing = Some(standing);
    Ok(())
}

/// Does what can be done now. Gives the standing once the cluster has begun.
async fn step(shared: &Shared, ground: &dyn Ground) -> PeerResult<Option<Standing>> {
    let (standing, may_found, may_begin) = {
        let state = shared.state();
        (state.standing.clone(), state.may_found(shared), state.may_begin(shared))
    };
    match standing {
        Some(standing) if standing.begun => Ok(Some(standing)),
        None if may_found => {
            let standing = charter(shared);
            ground.say("all servers of the cluster are there; it is being formed");
            settle(shared, ground, standing).await?;
            Ok(None)
        }
        Some(standing) if may_begin => {
            let standing = Standing { begun: true, ..standing };
            shared.write(&standing).await?;
            Ok(Some(standing))
        }
        _ => Ok(None),
    }
}

/// A new charter, for the nodes of the cluster file.
fn charter(shared: &Shared) -> Standing {
    let env = &shared.env;
    let mut cluster_id = [0; 16];
    env.fill_random(&mut cluster_id);
    let mut nodes: Vec<u64> = Vec::new();
    while nodes.len() < shared.wish.addresses.len() {
        nodes.push(nodes.len() as u64 + 1);
    }
    let peer = |(node, address): (u64, &String)| Peer { node, address: address.clone() };
    let members: Vec<_> = nodes.into_iter().zip(&shared.wish.addresses).map(peer).collect();
    let (cluster, secret) = (shared.wish.cluster.clone(), Secret::random(env));
    let charter = Charter { cluster, cluster_id, secret, members };
    let node = charter.node_at(&shared.wish.own).expect("a wish names its own address");
    Standing { charter, node, begun: false }
}
