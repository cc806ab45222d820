//! A server that is a member of a cluster: formed if it isn't yet, connected to the others, opened.
//!
//! What makes it one is its cluster file, which names several servers. Until all of them are there
//! and agree, it says whom it waits for; then it opens its directory, and the server serves it as
//! any other.

use crate::failure::{Failure, tell};
use crate::starting;
use plinth::cluster::{Members, Membership, Spoken, Voter};
use plinth::{Builder, ClusterFile, Error, Keys};
use plinth_env::sync::{First, race};
use plinth_env::{Env, block_on};
use plinth_peers::forming::{self, Ground, Wish};
use plinth_peers::{Mesh, Standing, Trust};
use plinth_server::TlsOptions;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How soon a request to end is noticed.
const TICK: Duration = Duration::from_millis(50);

/// How long a leader that is heard of takes at most to say that its log begins behind what this
/// member has.
const SETTLED: Duration = Duration::from_millis(200);

/// A member that is up.
pub struct Member {
    pub member: plinth::Member,
    pub mesh: Arc<Mesh>,
}

/// How a member is to be.
pub struct Plan<'a> {
    pub file: &'a ClusterFile,
    pub dir: &'a Path,
    /// Where it listens, and where others find it if that is another address.
    pub listen: &'a [SocketAddr],
    pub public: Option<SocketAddr>,
    pub tls: Option<TlsOptions>,
    /// Whether nodes may speak in the clear where other machines can hear them.
    pub without_tls: bool,
    /// Which versions of the servers' protocol this one offers.
    pub spoken: Spoken,
    /// For how many versions a transaction may read and commit.
    pub window: u64,
    /// Those of the directory, as the builder has them.
    pub keys: Keys,
}

/// Makes directories, and tells people.
struct Founder {
    builder: Builder,
    env: Env,
    dir: PathBuf,
}

impl Ground for Founder {
    fn found<'a>(
        &'a self,
        standing: &'a Standing,
        members: Option<(Members, u64)>,
    ) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>> {
        Box::pin(async move {
            // Its identity is the last thing that a directory gets.
            if self.is_founded().await? {
                return check_node(&self.env, &self.dir, standing).await;
            }
            let membership = match members {
                Some((members, index)) => {
                    let members = Arc::new(members);
                    Membership { index, members, ..membership(standing) }
                }
                None => membership(standing),
            };
            self.builder.form_member(&membership).await
        })
    }

    fn is_founded(&self) -> Pin<Box<dyn Future<Output = Result<bool, Error>> + Send + '_>> {
        Box::pin(async { Ok(self.env.files().exists(self.dir.join("IDENTITY")).await?) })
    }

    fn say(&self, text: &str) {
        tracing::info!(text, "forming the cluster");
        tell(text);
    }
}

/// Whether the directory is of the node that its charter names.
async fn check_node(env: &Env, dir: &Path, standing: &Standing) -> Result<(), Error> {
    let found = Membership::read(env, dir).await?;
    let (node, cluster_id) = (standing.node, standing.charter.cluster_id);
    if (found.node, found.cluster_id) == (node, cluster_id) {
        return Ok(());
    }
    let detail = format!(
        "{}: CHARTER says that this is node {node}, MEMBERS that it is node {}: its making was begun twice, and it has taken part in \
         nothing; start this server with an empty directory, as a new node",
        dir.display(),
        found.node
    );
    Err(Error::file_corrupt().with_detail(detail))
}

fn membership(standing: &Standing) -> Membership {
    let voter = |peer: &plinth_peers::Peer| Voter { id: peer.node, address: peer.address.clone() };
    let Standing { charter, node, .. } = standing;
    Membership::founding(charter.cluster_id, *node, charter.members.iter().map(voter).collect())
}

/// Forms the cluster if need be, and opens the member. `None` if somebody asked for the end
/// meanwhile.
pub fn open(
    env: &Env,
    plan: &Plan<'_>,
    builder: Builder,
    stop: &Arc<AtomicBool>,
) -> Result<Option<Member>, Failure> {
    let ours = |name: &str| block_on(env.files().exists(plan.dir.join(name))).map_err(Error::from);
    let cannot = format!("cannot be a member of {}", plan.file.connection_string());
    let failed = |error: Error| Failure::of_database(&cannot, &error);
    block_on(builder.check_keys()).map_err(failed)?;
    let (wish, own) = block_on(wish(env, plan)).map_err(failed)?;
    if ours("IDENTITY").map_err(failed)?
        && !ours(plinth_peers::charter::FILE_NAME).map_err(failed)?
    {
        let dir = plan.dir.display();
        if ours("MEMBERS").map_err(failed)? {
            let detail = format!(
                "{dir} is that of a member of a cluster, and {} is missing: bring it back, or start this server with an empty \
                 directory, as a new node",
                plinth_peers::charter::FILE_NAME
            );
            return Err(failed(Error::file_corrupt().with_detail(detail)));
        }
        let detail = format!(
            "{dir} holds a database that is no member of a cluster: a cluster is formed of empty directories, and rows get \
             into it with `plinth migrate`"
        );
        return Err(failed(Error::client_invalid_operation().with_detail(detail)));
    }
    let listen = plan.listen.first().copied().unwrap_or(own);
    let listener = block_on(env.sockets().listen(listen))
        .map_err(|error| Failure::of(format!("cannot listen on {listen}"), error))?;
    let builder = builder.spoken(plan.spoken);
    let founder =
        Founder { builder: builder.clone(), env: env.clone(), dir: plan.dir.to_path_buf() };
    let (trust, place) = (wish.trust.clone(), wish.own.clone());
    let forming = forming::form(env, wish, listener, Arc::new(founder));
    let Some(standing) = until_stopped(env, stop, forming) else { return Ok(None) };
    let standing = standing.map_err(|error| failed(error.into()))?;
    block_on(check_node(env, plan.dir, &standing)).map_err(failed)?;
    let mesh = Mesh::start(env, standing, trust);
    mesh.is_at(&place);
    let opened = starting::interruptible(env, stop, || block_on(builder.open_member(mesh.clone())));
    let member = opened.map_err(|error| Failure::opening(plan.dir.display(), &error))?;
    let receiver = member.clone();
    mesh.deliver_to(move |frame| receiver.receive(frame));
    let receiver = member.clone();
    mesh.deliver_parcels_to(move |parcel| receiver.receive_parcel(parcel));
    follow_members(&mesh, &member);
    if let Some(Membership { node, .. }) = member.membership() {
        member.note_move(node, &place);
    }
    follow_coordinators(env, plan.file.clone(), &member);
    Ok(Some(Member { member, mesh }))
}

/// New nodes are taken in, and what becomes of this one and others is heard.
fn follow_members(mesh: &Mesh, member: &plinth::Member) {
    let host = member.clone();
    mesh.take_in_by(Box::new(move |address| {
        let host = host.clone();
        Box::pin(async move {
            let Membership { node, members, index, .. } = host.take_in(&address).await?;
            Ok((node, members, index))
        })
    }));
    let removed = member.clone();
    mesh.when_removed(move || removed.be_removed());
    let moved = member.clone();
    mesh.when_moved(move |node, address| moved.note_move(node, address));
}

/// The server's cluster file names those who vote, whoever writes it besides: a client that heard
/// of others a while ago may do so last.
fn follow_coordinators(env: &Env, mut file: ClusterFile, member: &plinth::Member) {
    let (task_env, member) = (env.clone(), member.clone());
    drop(env.spawn_network("cluster file", async move {
        let env = task_env;
        let mut told = None;
        loop {
            env.sleep(Duration::from_millis(500 + env.random_u64() % 1000)).await;
            if member.local().failure().is_some() {
                return;
            }
            let Some(Membership { members, .. }) = member.membership() else { return };
            if members.is_joint() || member.leadership().leader.is_none() {
                continue;
            }
            let voters = members.nodes.iter().filter(|node| node.part.stays());
            let voters: Vec<_> = voters.map(|node| node.address.clone()).collect();
            let found = match file.path() {
                Some(path) => ClusterFile::read(&env, path).await.ok(),
                None => None,
            };
            let is_ours = |found: &&ClusterFile| found.key() == file.key();
            let stands = found.as_ref().filter(is_ours).unwrap_or(&file);
            let Some(next) = stands.naming(&voters) else { continue };
            match next.rewrite(&env).await {
                Ok(()) => (file, told) = (next, None),
                // It is tried again, and told once.
                Err(error) => {
                    let to = Some(next.address_list());
                    if told != to {
                        tracing::warn!(%error, to = next.address_list(), "the cluster file can't be written: do it by hand");
                        told = to;
                    }
                }
            }
        }
    }));
}

/// What the cluster file makes of this server, and its address there.
async fn wish(env: &Env, plan: &Plan<'_>) -> Result<(Wish, SocketAddr), Error> {
    let invalid = |what: String| Error::connection_string_invalid().with_detail(what);
    let wanted: Vec<_> = plan.public.into_iter().chain(plan.listen.iter().copied()).collect();
    if wanted.is_empty() {
        return Err(invalid(
            "the cluster file names several servers; say which of them this is: --listen"
                .to_owned(),
        ));
    }
    let mut own = None;
    for address in plan.file.addresses() {
        let found = address.resolve(env).await.unwrap_or_default();
        let is_open = found.iter().any(|address| !address.ip().is_loopback());
        if is_open && !address.tls && !plan.without_tls {
            return Err(Error::invalid_local_address().with_detail(format!(
                "{address} can be reached by other machines, and nodes would speak in the clear with it; end the addresses in \
                 :tls and give certificates (--tls-cert, --tls-key, --tls-ca), or allow it in so many words (--without-tls)"
            )));
        }
        if let Some(place) = wanted.iter().find(|wanted| found.contains(wanted)) {
            own = own.or(Some((bare(address), *place)));
        }
    }
    if plan.file.is_tls() != plan.tls.is_some() {
        let why = if plan.tls.is_some() {
            "doesn't end its addresses in :tls"
        } else {
            "ends its addresses in :tls"
        };
        return Err(invalid(format!(
            "the cluster file {why}, and the server's certificates say otherwise"
        )));
    }
    let (own, place) = match (own, known_as(env, plan, wanted[0]).await) {
        // It was excluded, so the file names it no more; it stays excluded by the name that it has.
        (None, Some(known)) => {
            stranger(plan, wanted[0])?;
            (known, wanted[0])
        }
        (Some(own), _) => own,
        // It is to be taken into the cluster, or was.
        (None, None) => stranger(plan, wanted[0])?,
    };
    let wish = Wish {
        cluster: plan.file.key(),
        addresses: plan.file.addresses().iter().map(bare).collect(),
        own,
        dir: plan.dir.to_path_buf(),
        trust: Trust {
            tls: plan.tls.clone(),
            in_the_clear: plan.without_tls,
            spoken: plan.spoken,
            window: plan.window,
        },
        keys: plan.keys.clone(),
    };
    wish.check()?;
    Ok((wish, place))
}

/// The address under which others know the node in the directory, if that is where this server is:
/// another name of the same place would be news of a move.
async fn known_as(env: &Env, plan: &Plan<'_>, place: SocketAddr) -> Option<String> {
    let known = Membership::read(env, plan.dir).await.ok()?;
    let address = known.address_of(known.node)?;
    let line = format!("a:b@{address}");
    let file = ClusterFile::parse(&line).ok()?;
    file.names(env, place).await.then(|| address.to_owned())
}

/// The address of a server that the cluster file doesn't name.
fn stranger(plan: &Plan<'_>, place: SocketAddr) -> Result<(String, SocketAddr), Error> {
    let invalid = |what: String| Error::connection_string_invalid().with_detail(what);
    if place.ip().is_unspecified() || place.port() == 0 {
        return Err(invalid(format!(
            "the cluster file names {}, and not {place}; to join that cluster say where the others find this server: --public-address",
            plan.file.address_list()
        )));
    }
    if !place.ip().is_loopback() && plan.tls.is_none() && !plan.without_tls {
        return Err(Error::invalid_local_address().with_detail(format!(
            "{place} can be reached by other machines, and nodes would speak in the clear with it; give certificates (--tls-cert, \
             --tls-key, --tls-ca), or allow it in so many words (--without-tls)"
        )));
    }
    Ok((place.to_string(), place))
}

/// The address without its mark for TLS.
fn bare(address: &plinth::client::remote::Address) -> String {
    plinth::client::remote::Address { tls: false, ..address.clone() }.to_string()
}

/// Waits for something, unless somebody asks for the end.
fn until_stopped<T>(env: &Env, stop: &AtomicBool, work: impl Future<Output = T>) -> Option<T> {
    until(env, || stop.load(Ordering::Relaxed), work)
}

fn until<T>(env: &Env, is_to_end: impl Fn() -> bool, work: impl Future<Output = T>) -> Option<T> {
    let stopped = async {
        while !is_to_end() {
            env.sleep(TICK).await;
        }
    };
    match block_on(race(work, stopped)) {
        First::Left(done) => Some(done),
        First::Right(()) => None,
    }
}

impl Member {
    /// Waits until somebody leads, and this member has what the others have, so that clients are
    /// served. False if somebody asked for the end meanwhile.
    pub fn until_served(&self, env: &Env, is_to_end: impl Fn() -> bool) -> bool {
        let served = async {
            let mut since = env.now();
            loop {
                let leadership = self.member.leadership();
                if leadership.is_ready || self.member.local().failure().is_some() {
                    return;
                }
                if leadership.leader.is_none() || self.member.is_catching_up() {
                    since = env.now();
                }
                // By then the leader has said whether it lacks entries that nobody has any more.
                if env.now().saturating_sub(since) >= SETTLED {
                    return;
                }
                env.sleep(TICK).await;
            }
        };
        until(env, is_to_end, served).is_some()
    }

    /// Gives the leader's part to somebody else, if this member has it.
    pub fn hand_over(&self) {
        block_on(self.member.hand_over());
    }
}
