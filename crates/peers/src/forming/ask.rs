//! Asks one other node how far it is, again and again, and sends it the charter when it is to have
//! it.
//!
//! A node without a charter that finds the cluster begun asks to be taken in instead: what comes of
//! that comes by a call here. An answer is believed as far as it was proven, or can do no harm.

use super::{Seen, Shared};
use crate::Charter;
use crate::failure::{PeerError, PeerResult};
use crate::hello::{Hello, Purpose, Stage, Welcome, Word};
use crate::secret::LEN;
use crate::talk::{PATIENCE, Talk};
use crate::trust;
use plinth_env::sync::{First, race};
use std::sync::Arc;
use std::time::Duration;

/// How long after an answer it asks again.
const PAUSE: Duration = Duration::from_millis(100);
/// After so long without one who leads it is told so.
const LEADERLESS: Duration = Duration::from_secs(10);
const NOBODY_LEADS: &str = "none of those that answer leads, or takes anybody in: the one that does \
                            has to be reached from here, and it takes a majority of those that vote; \
                            where their directories are gone for good, docs/operations.md, \"A \
                            cluster\", says how the rows are saved";
/// How long a node has to make its directory.
const FOUNDING: Duration = Duration::from_secs(30);

/// Asks until the cluster is formed.
pub(super) async fn run(shared: Arc<Shared>, address: String) {
    while !shared.state().is_over {
        let asking = race(ask(&shared, &address), shared.env.sleep(PATIENCE + FOUNDING));
        // Whoever is asked to take this node in may take long to find out that it has ended.
        let asked = match race(until_over(&shared), asking).await {
            First::Left(()) => return,
            First::Right(asked) => asked,
        };
        let seen = match asked {
            First::Left(Ok(seen)) => seen,
            First::Left(Err(why)) => Seen::Nothing(words(&why)),
            First::Right(()) => Seen::Nothing("it does not answer".to_owned()),
        };
        shared.note(&address, seen);
        let random = Duration::from_millis(shared.env.random_u64() % 50);
        race(shared.ended.wait(), shared.env.sleep(PAUSE + random)).await;
    }
}

async fn until_over(shared: &Shared) {
    while !shared.state().is_over {
        shared.ended.wait().await;
    }
}

/// Asks a member of a cluster that has begun to be taken in. What comes of it comes by a call here.
async fn ask_to_join(shared: &Shared, address: &str) {
    let asked = race(joining(shared, address), shared.env.sleep(PATIENCE + FOUNDING)).await;
    let why = match asked {
        First::Left(Ok(())) => {
            shared.state().leaderless_since = None;
            return;
        }
        // Another one leads, if anybody does.
        First::Left(Err(why)) if why.is_behind() => {
            let now = shared.env.now();
            let since = *shared.state().leaderless_since.get_or_insert(now);
            if now < since + LEADERLESS {
                return;
            }
            NOBODY_LEADS.to_owned()
        }
        First::Left(Err(why)) => words(&why),
        First::Right(()) => "it does not answer".to_owned(),
    };
    if why != NOBODY_LEADS {
        shared.state().leaderless_since = None;
    }
    let is_news = shared.state().not_taken_in.replace(why.clone()) != Some(why);
    if is_news {
        shared.changed.notify();
    }
}

async fn joining(shared: &Shared, address: &str) -> PeerResult<()> {
    let (env, wish) = (&shared.env, &shared.wish);
    let mut talk = Talk::new(trust::connect(env, &wish.trust, address).await?, Vec::new());
    let mut nonce = [0; LEN];
    env.fill_random(&mut nonce);
    let hello = Hello {
        spoken: wish.trust.spoken,
        purpose: Purpose::Joining,
        cluster: wish.cluster.clone(),
        cluster_id: [0; 16],
        from: 0,
        to: 0,
        nonce,
        address: wish.own.clone(),
        addresses: String::new(),
        window: wish.trust.window,
    };
    let mut said = Vec::new();
    hello.encode(&mut said);
    talk.say(&said).await?;
    let welcome = talk.hear(Welcome::decode).await?;
    if let Some(why) = welcome.refused {
        return Err(why.into());
    }
    verdict(&mut talk).await
}

/// Why a node can't be reached, without what differs from one attempt to the next.
fn words(why: &PeerError) -> String {
    if why.is_unreachable() { "it can't be reached".to_owned() } else { why.summary() }
}

async fn ask(shared: &Shared, address: &str) -> PeerResult<Seen> {
    let (env, wish) = (&shared.env, &shared.wish);
    let silent = || PeerError::Unreachable("it does not answer".to_owned());
    let connecting = trust::connect(env, &wish.trust, address);
    let stream = match race(connecting, env.sleep(PATIENCE)).await {
        First::Left(stream) => stream?,
        First::Right(()) => return Err(silent()),
    };
    let mut talk = Talk::new(stream, Vec::new());
    let standing = shared.state().standing.clone();
    let mut nonce = [0; LEN];
    env.fill_random(&mut nonce);
    let hello = Hello {
        spoken: wish.trust.spoken,
        purpose: Purpose::Forming,
        cluster: wish.cluster.clone(),
        cluster_id: standing.as_ref().map_or([0; 16], |standing| standing.charter.cluster_id),
        from: standing.as_ref().map_or(0, |standing| standing.node),
        to: 0,
        nonce,
        address: wish.own.clone(),
        addresses: shared.all.clone(),
        window: wish.trust.window,
    };
    let mut said = Vec::new();
    hello.encode(&mut said);
    talk.say(&said).await?;
    let welcome = match race(talk.hear(Welcome::decode), env.sleep(PATIENCE)).await {
        First::Left(welcome) => welcome?,
        First::Right(()) => return Err(silent()),
    };
    if let Some(why) = welcome.refused {
        return Err(why.into());
    }
    if let Some(standing) = &standing
        && standing.charter.cluster_id == welcome.cluster_id
    {
        // Of its own cluster a node believes what is proven.
        let [said, answered] = Welcome::parts(&said, &welcome);
        let node = standing.charter.node_at(address);
        let is_proven =
            standing.charter.secret.accepts(&welcome.proof, "welcome", &[&said, &answered]);
        if !is_proven || node != Some(welcome.node) {
            let what = "it says that it is of this cluster, and doesn't know its secret, or is not the node that was there";
            return Err(PeerError::Untrusted(what.to_owned()));
        }
    }
    let seen = Seen::Is(welcome.stage, welcome.cluster_id);
    shared.note(address, seen.clone());
    if standing.is_none() && welcome.stage == Stage::Begun {
        ask_to_join(shared, address).await;
        return Ok(seen);
    }
    let is_to_be_sent = shared.state().is_to_be_sent(shared, address);
    match standing.filter(|_| is_to_be_sent && welcome.stage == Stage::Empty) {
        None => Ok(seen),
        Some(standing) => send_charter(&mut talk, standing.charter).await,
    }
}

async fn send_charter(talk: &mut Talk, charter: Charter) -> PeerResult<Seen> {
    let cluster_id = charter.cluster_id;
    let mut bytes = Vec::new();
    Word::Found(charter).encode(&mut bytes);
    talk.say(&bytes).await?;
    verdict(talk).await?;
    Ok(Seen::Is(Stage::Chartered, cluster_id))
}

async fn verdict(talk: &mut Talk) -> PeerResult<()> {
    match talk.hear(Word::decode).await? {
        Word::Verdict(verdict) => Ok(verdict?),
        _ => Err(PeerError::malformed("no verdict")),
    }
}
