//! Who calls while a cluster is formed: other nodes, which are told how far this one is and may
//! send a charter, and clients, which are told to come again.
//!
//! A charter is handed to the one task that decides; the caller waits for what becomes of it.

use super::{Sent, Shared};
use crate::charter::Charter;
use crate::failure::{PeerError, PeerResult};
use crate::hello::{Hello, Purpose, Stage, Welcome, Word};
use crate::mesh::Mesh;
use crate::secret::LEN;
use crate::talk::{PATIENCE, Talk};
use plinth_env::sync::{First, race};
use plinth_env::{Listener, Promise, Stream};
use plinth_replication::{Members, NodeId};
use std::sync::Arc;
use std::sync::PoisonError;
use std::time::Duration;

/// How long a caller may take for all it has to say.
const VISIT: Duration = Duration::from_secs(60);
/// How long accepting pauses when there is no room for another connection.
const BREATH: Duration = Duration::from_millis(50);
/// Visits at a time.
const MOST: usize = 256;

/// Takes calls until the cluster is formed.
pub(super) async fn accept(shared: Arc<Shared>, listener: Listener) {
    let visits = Arc::new(());
    let door = match Door::open(&shared).await {
        Ok(door) => door,
        Err(why) => {
            tracing::error!(%why, "no node can be let in");
            return;
        }
    };
    while !shared.state().is_over {
        match race(shared.ended.wait(), listener.accept()).await {
            First::Left(()) => {}
            First::Right(Ok(stream)) if Arc::strong_count(&visits) <= MOST => {
                let (theirs, visit) = (shared.clone(), visits.clone());
                let Ok(stream) = door.through(stream) else { continue };
                drop(shared.env.spawn_network("visit", async move {
                    race(receive(&theirs, stream), theirs.env.sleep(VISIT)).await;
                    drop(visit);
                }));
            }
            First::Right(Ok(stream)) => drop(stream),
            First::Right(Err(_)) => shared.env.sleep(BREATH).await,
        }
    }
}

/// What is laid over connections that are accepted.
struct Door {
    #[cfg(feature = "tls")]
    acceptor: Option<plinth_tls::Acceptor>,
}

#[cfg(feature = "tls")]
impl Door {
    async fn open(shared: &Shared) -> PeerResult<Self> {
        let acceptor = match &shared.wish.trust.tls {
            Some(options) => Some(plinth_tls::Acceptor::load(&shared.env, options.clone()).await?),
            None => None,
        };
        Ok(Self { acceptor })
    }

    fn through(&self, stream: Stream) -> PeerResult<Stream> {
        let Some(acceptor) = &self.acceptor else { return Ok(stream) };
        let mut plain_answer = Vec::new();
        let what = "the server speaks TLS: the address in the cluster file must end in :tls";
        plinth_proto::Welcome::refuse(PeerError::InTheClear(what.to_owned()).into())
            .encode(&mut plain_answer);
        let terms = plinth_tls::Terms {
            purpose: plinth_tls::Purpose::Clients,
            plain_answer: plain_answer.into(),
            on_failure: Arc::new(|why| tracing::warn!(%why, "a connection is refused")),
        };
        Ok(acceptor.accept(stream, &terms)?)
    }
}

#[cfg(not(feature = "tls"))]
impl Door {
    async fn open(_: &Shared) -> PeerResult<Self> {
        Ok(Self {})
    }

    fn through(&self, stream: Stream) -> PeerResult<Stream> {
        Ok(stream)
    }
}

async fn receive(shared: &Shared, stream: Stream) {
    let mut talk = Talk::new(stream, Vec::new());
    let kind = |bytes: &[u8]| Ok(Mesh::is_peer(bytes).map(|is_peer| (is_peer, 0)));
    let First::Left(Ok(is_peer)) = race(talk.hear(kind), shared.env.sleep(PATIENCE)).await else {
        return;
    };
    let mut words = Vec::new();
    if is_peer {
        let Err(why) = answer(shared, &mut talk).await else { return };
        Welcome::refuse(why).encode(&mut words);
    } else {
        let text = shared.state().words(shared);
        let text = text.unwrap_or_else(|| "is asking the other servers".to_owned());
        let why = PeerError::Unreachable(format!("the cluster is yet to be formed; it {text}"));
        plinth_proto::Welcome::refuse(why.into()).encode(&mut words);
    }
    race(talk.part(&words), shared.env.sleep(PATIENCE)).await;
}

/// Answers another node. An error is for it to hear.
async fn answer(shared: &Shared, talk: &mut Talk) -> PeerResult<()> {
    let (hello, said) = talk
        .hear(|bytes| {
            Ok(Hello::decode(bytes)?.map(|(hello, len)| ((hello, bytes[..len].to_vec()), len)))
        })
        .await?;
    let version = hello.choose(shared.wish.trust.spoken)?;
    shared.wish.trust.check(&talk.stream)?;
    let wish = &shared.wish;
    let refuse = |what: String| Err(PeerError::Mismatch(what));
    if hello.purpose == Purpose::Frames {
        return Err(PeerError::Unreachable(
            "it has yet to hear that the cluster has begun".to_owned(),
        ));
    }
    let is_same = hello.cluster == wish.cluster
        && (hello.purpose == Purpose::Joining || hello.addresses == shared.all);
    if !is_same {
        return refuse(format!(
            "the cluster files disagree: that of {} has {}@{}, that of {} has {}@{}",
            wish.own, wish.cluster, shared.all, hello.address, hello.cluster, hello.addresses
        ));
    }
    if hello.address == wish.own {
        return refuse(format!("both servers take themselves for {}", wish.own));
    }
    let standing = shared.state().standing.clone();
    let mut welcome = Welcome {
        version,
        refused: None,
        cluster_id: standing.as_ref().map_or([0; 16], |standing| standing.charter.cluster_id),
        node: standing.as_ref().map_or(0, |standing| standing.node),
        stage: if standing.is_some() { Stage::Chartered } else { Stage::Empty },
        nonce: [0; LEN],
        proof: [0; LEN],
    };
    shared.env.fill_random(&mut welcome.nonce);
    if let Some(standing) = &standing {
        let [said, answered] = Welcome::parts(&said, &welcome);
        welcome.proof = standing.charter.secret.prove("welcome", &[&said, &answered]);
    }
    let mut bytes = Vec::new();
    welcome.encode(&mut bytes);
    talk.say(&bytes).await?;
    match talk.hear(Word::decode).await {
        Ok(Word::Found(charter)) => {
            let verdict = take(shared, &hello, charter).await;
            let mut bytes = Vec::new();
            Word::Verdict(verdict.map_err(Into::into)).encode(&mut bytes);
            talk.say(&bytes).await
        }
        Ok(Word::Join(charter, node, members, index)) if hello.purpose == Purpose::Joining => {
            let verdict = join(shared, charter, node, members, index).await;
            let mut bytes = Vec::new();
            Word::Verdict(verdict.map_err(Into::into)).encode(&mut bytes);
            talk.say(&bytes).await
        }
        // It only wanted to know.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Has this node become one of a cluster that has begun.
async fn join(
    shared: &Shared,
    charter: Charter,
    node: NodeId,
    members: Members,
    index: u64,
) -> PeerResult<()> {
    let refuse = |what: &str| Err(PeerError::Mismatch(what.to_owned()));
    if charter.cluster != shared.wish.cluster {
        return refuse("the charter is that of another cluster file");
    }
    if members.node(node).is_none_or(|node| node.address != shared.wish.own) {
        return refuse("this node is none of the members");
    }
    shared.wish.trust.spoken.check(members.protocol)?;
    let (promise, reply) = Promise::pair();
    let sent = Sent::Join(charter, node, members, index);
    shared.sent.lock().unwrap_or_else(PoisonError::into_inner).push_back((sent, promise));
    shared.changed.notify();
    reply.await
}

/// Has a charter taken that a caller has sent, if it may send one.
async fn take(shared: &Shared, hello: &Hello, charter: Charter) -> PeerResult<()> {
    let refuse = |what: &str| Err(PeerError::Mismatch(what.to_owned()));
    let mut addresses: Vec<_> = charter.members.iter().map(|peer| peer.address.as_str()).collect();
    addresses.sort_unstable();
    if hello.address != shared.first() || shared.is_first() {
        return refuse("only the server with the lowest address may form the cluster");
    }
    if charter.cluster != shared.wish.cluster || addresses.join(",") != shared.all {
        return refuse("the charter is that of another cluster file");
    }
    let (promise, reply) = Promise::pair();
    shared
        .sent
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push_back((Sent::Charter(charter), promise));
    shared.changed.notify();
    reply.await
}
