//! The database behind a socket: [`RemoteEndpoint`].
//!
//! A few connections (one for each core that serves sockets) carry the requests of all
//! transactions. What is asked for while a connection's task is busy is gathered and leaves in one
//! write; requests for read versions that are gathered together are one request. Answers come in
//! any order.
//!
//! ```text
//!   transactions ──▶ RemoteEndpoint ──▶ link (slots, gathered output) ◀──▶ its task ◀──▶ socket
//!                        by thread        slot = id: who waits, and the frame to send again
//! ```
//!
//! Names of hosts are looked up each time that a connection is made, so that a server may move.
//!
//! A connection that is lost is made again, with pauses that grow. Until then requests wait, as
//! FoundationDB's do: it is the transaction's timeout that ends them. Reads and watches are sent
//! again; a commit that may have reached the server fails with `commit_unknown_result`, which says
//! just that.
//!
//! Where the cluster file's addresses end in `:tls` the connections are encrypted, and both sides
//! show certificates (feature `tls`). A connection that comes to nothing because of them fails at
//! once what waits for it (`tls_error`), since waiting won't help.

mod cluster;
mod cluster_file;
mod connect;
mod conversation;
mod counting;
mod dial;
mod fallback;
mod identity;
mod link;
mod luck;
mod many;
mod refusal;
mod scout;
mod slots;
mod snapshot;
mod status;
mod target;
mod token;
mod waits;

pub use cluster_file::{Address, ClusterFile};
#[cfg(feature = "tls")]
pub use plinth_tls::{Source, TlsOptions};

use crate::endpoint::{
    Begun, Description, Endpoint, Newest, Pinned, Priority, ReadVersionReply, ReadVersionRequest,
};
use crate::first_read::{self, FEW_KEYS};
use cluster::{Cluster, Whom};
use counting::{Wanted, Witnesses};
use fallback::{Fallback, by_frame, by_request};
use identity::Identity;
use link::Link;
use luck::Luck;
use plinth_env::Env;
use plinth_env::reply::{Promise, Reply, promise};
use plinth_proto::ReadVersion;
use plinth_proto::frame::Kind;
use plinth_proto::request::{self, WHOLE_KEYS};
use plinth_types::{
    Bytes, Changes, ChangesRequest, CommitReply, CommitRequest, Error, KeyList, KeyRange,
    KeySelector, KeySpace, Located, RangeRead, RangeResult, Standing, Version,
};
use refusal::Failed;
use scout::{Lost, Needed, Scout};
use slots::Answer;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use target::Target;
use token::Token;
use waits::Waits;

const _: () = assert!(FEW_KEYS <= WHOLE_KEYS, "their values come whole");

/// Connections at most, unless more are asked for.
const CONNECTIONS: usize = 4;
/// For how long a pinned snapshot is asked for, unless more is: long enough for a server that is
/// busy or restarts its network.
const SNAPSHOT_LEASE: Duration = Duration::from_secs(30);

/// How a remote database is reached.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// How many connections to make.
    pub connections: usize,
    /// What the server is told about this program, for people.
    pub name: String,
    /// For how long the server shall keep a pinned snapshot after it has heard from this client
    /// last. It may grant less.
    pub snapshot_lease: Duration,
    /// Certificates, for a cluster file whose addresses end in `:tls`. What is left out here comes
    /// from FoundationDB's environment variables.
    #[cfg(feature = "tls")]
    pub tls: TlsOptions,
}

impl RemoteOptions {
    /// As many connections as there are threads that serve sockets, but not more than a few.
    pub fn new(env: &Env) -> Self {
        let connections = env.network_threads().clamp(1, CONNECTIONS);
        Self {
            connections,
            name: concat!("plinth-client ", env!("CARGO_PKG_VERSION")).to_owned(),
            snapshot_lease: SNAPSHOT_LEASE,
            #[cfg(feature = "tls")]
            tls: TlsOptions::default(),
        }
    }
}

/// A database served by another process. Dropping it, and the snapshots pinned through it, closes
/// its connections.
pub struct RemoteEndpoint {
    core: Arc<Core>,
    /// The servers, if there are several; then the core isn't asked.
    scout: Arc<Needed>,
    /// Shown with all that is asked for.
    token: Option<Token>,
    /// Learns whether what is asked for waits at the server, if somebody wants to know.
    waits: Option<Waits>,
}

/// The connections, and what is known about where they lead.
struct Core {
    env: Env,
    target: Arc<Target>,
    links: Vec<Arc<Link>>,
    database: Arc<Identity>,
    options: Arc<RemoteOptions>,
    patient: OnceLock<Arc<Core>>,
    /// How often what is read before there is a version comes to something.
    luck: Arc<Luck>,
}

impl RemoteEndpoint {
    /// The database that a cluster file names. Connections are made when they are first needed: a
    /// server that isn't there makes operations wait, not this fail.
    pub fn connect(env: &Env, file: ClusterFile) -> Self {
        Self::with_options(env, file, &RemoteOptions::new(env))
    }

    /// The same, with a say in how.
    pub fn with_options(env: &Env, file: ClusterFile, options: &RemoteOptions) -> Self {
        let file = Arc::new(file);
        let options = RemoteOptions { connections: options.connections.max(1), ..options.clone() };
        #[cfg(feature = "tls")]
        let options =
            RemoteOptions { tls: options.tls.or(TlsOptions::from_environment()), ..options };
        let database = Arc::new(Identity::new(&file));
        if file.addresses().len() == 1 {
            let scout = Arc::new(Scout::default());
            let target = Target::new(file);
            let core = Core::new(env, target, options, database, Lost::Waits(Some(scout.clone())));
            scout.serve(&core);
            return Self { core, scout: Needed::new(scout), token: None, waits: None };
        }
        let cluster = Cluster::connect(env, &file, &options, &database);
        let options = RemoteOptions { connections: 0, ..options };
        let core = Core::new(env, Target::new(file), options, database, Lost::Waits(None));
        let scout = Needed::new(Arc::new(Scout::of(cluster)));
        Self { core, scout, token: None, waits: None }
    }

    /// One of several servers, which gives up what it can't ask.
    fn of_one(
        env: &Env,
        file: ClusterFile,
        options: RemoteOptions,
        database: Arc<Identity>,
    ) -> Self {
        let target = Target::new(Arc::new(file));
        let core = Core::new(env, target, options, database, Lost::GivesUp);
        Self { core, scout: Needed::new(Arc::default()), token: None, waits: None }
    }

    /// The servers, if several are known of.
    #[inline]
    fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.scout.cluster()
    }

    /// The same connections, asked with this token.
    fn with(&self, token: Option<Token>) -> Self {
        let (core, scout, waits) = (self.core.clone(), self.scout.clone(), self.waits.clone());
        Self { core, scout, token, waits }
    }

    /// The same connections, for one who wants to know whether what he asks for waits.
    fn noting(&self, waits: Waits) -> Self {
        Self { waits: Some(waits), ..self.with(self.token.clone()) }
    }

    /// Asks one of several servers, with the token that this has.
    #[inline]
    fn ask<T: Send + 'static>(
        &self,
        cluster: &Arc<Cluster>,
        whom: Whom,
        ask: impl Fn(&Self) -> Reply<T> + Send + Sync + 'static,
    ) -> Reply<T> {
        match self.token.clone() {
            None => cluster.ask(whom, ask),
            token => cluster.ask(whom, move |server| ask(&server.with(token.clone()))),
        }
    }

    /// Asks what any server can answer. `answer` makes of a promise what waits for the reply.
    #[inline]
    fn ask_any<T: Send + 'static>(
        &self,
        answer: impl Fn(Promise<T>) -> Answer + Send + Sync + 'static,
        encode: impl FnOnce(&mut Vec<u8>, u32),
    ) -> Reply<T> {
        let (promise, reply) = promise();
        let Some(cluster) = self.cluster() else {
            self.submit(answer(promise), encode);
            return reply;
        };
        if let Some(server) = cluster.at_hand() {
            server.link().submit_directly(self.token.as_ref(), answer(promise), encode);
            cluster.watches();
            return reply;
        }
        let mut frame = Vec::new();
        encode(&mut frame, 0);
        cluster.ask(Whom::Any, by_frame(frame, self.token.clone(), answer))
    }

    /// Leaves a request, to be answered as far as the token lets it.
    #[inline]
    fn submit(&self, answer: Answer, encode: impl FnOnce(&mut Vec<u8>, u32)) {
        self.link().submit_noting((self.token.as_ref(), self.waits.as_ref()), answer, encode);
    }

    /// Commits, and keeps the request: where nobody has heard it, it may be sent elsewhere.
    fn commit_again(&self, request: &CommitRequest) -> Reply<CommitReply> {
        let (promise, reply) = promise();
        let asked_by = (self.token.as_ref(), self.waits.as_ref());
        self.link().submit_commit(asked_by, promise, request);
        reply
    }

    /// Which nodes the database has, and which of them leads, as the first server says that
    /// answers. A server that is all there is names itself.
    ///
    /// # Errors
    /// `unsupported_operation` if the server is from before there were clusters.
    pub fn locate(&self) -> Reply<Located> {
        if let Some(cluster) = self.cluster() {
            return cluster.ask(Whom::Any, Self::locate);
        }
        let (promise, reply) = promise();
        self.submit(Answer::Located(promise), |out, id| request::empty(out, id, Kind::Locate));
        reply
    }

    /// The cluster file that names the database.
    pub fn cluster_file(&self) -> &ClusterFile {
        self.core.target.given()
    }

    #[inline]
    fn link(&self) -> &Arc<Link> {
        self.core.link()
    }
}

impl Core {
    fn new(
        env: &Env,
        target: Arc<Target>,
        options: RemoteOptions,
        database: Arc<Identity>,
        lost: Lost,
    ) -> Arc<Self> {
        let options = Arc::new(options);
        let link = |number| {
            Link::new(
                env.clone(),
                target.clone(),
                options.clone(),
                number,
                database.clone(),
                lost.clone(),
            )
        };
        let links: Vec<_> = (0..options.connections).map(|number| Arc::new(link(number))).collect();
        // Of several servers those links work together that have one number, and who asks is mostly
        // on that thread, too.
        for link in &links {
            drop(env.spawn_network_at(link.number, "connection", dial::run(link.clone())));
        }
        let (patient, luck) = (OnceLock::new(), Arc::default());
        Arc::new(Self { env: env.clone(), target, links, database, options, patient, luck })
    }

    /// The same server by connections that don't give up: for what no other server can be asked.
    fn patiently(&self) -> &Arc<Self> {
        self.patient.get_or_init(|| {
            let options = RemoteOptions { connections: 1, ..(*self.options).clone() };
            Self::new(
                &self.env,
                self.target.clone(),
                options,
                self.database.clone(),
                Lost::Waits(None),
            )
        })
    }

    /// The connection of the calling thread.
    #[inline]
    fn link(&self) -> &Arc<Link> {
        &self.links[thread_number(&self.env) % self.links.len()]
    }

    /// Asks whom the server follows.
    fn standing(&self) -> Reply<Standing> {
        let (promise, reply) = promise();
        self.link().submit(None, Answer::Standing(promise), |out, id| {
            request::empty(out, id, Kind::Standing);
        });
        reply
    }

    /// Has read versions of this server be counted by these, and those asked for what it doesn't
    /// answer.
    fn is_one_of_several(
        &self,
        witnesses: impl Fn() -> Box<dyn Witnesses>,
        fallback: impl Fn() -> Box<dyn Fallback>,
    ) {
        for link in &self.links {
            let _ = link.witnesses.set(witnesses());
            let _ = link.fallback.set(fallback());
        }
    }

    /// Leaves a request for values.
    #[inline]
    fn get_many(
        &self,
        asked_by: (Option<&Token>, Option<&Waits>),
        promise: Promise<Vec<Option<Bytes>>>,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) {
        self.link().submit_noting(asked_by, Answer::Values(promise, keys.len()), |out, id| {
            request::put_get_many(out, id, version, space, keys.iter());
        });
    }

    fn addresses_for_key(&self, token: Option<&Token>, key: &[u8]) -> Reply<Vec<String>> {
        let (promise, reply) = promise();
        self.link().submit(token, Answer::Texts(promise, Kind::AddressesReply), |out, id| {
            request::put_addresses(out, id, key);
        });
        reply
    }

    fn describe(&self) -> Description {
        let file = self.target.now();
        Description {
            cluster_file_path: file
                .path()
                .map(|path| path.display().to_string())
                .unwrap_or_default(),
            connection_string: file.connection_string(),
            cluster_id: self.database.get().unwrap_or_default().to_owned(),
        }
    }

    fn status_json(self: &Arc<Self>, token: Option<Token>) -> Reply<String> {
        let (core, unreachable) = (self.clone(), self.clone());
        let ask = move || {
            let asked = core.asked_status(token.as_ref());
            status::told(&core.env, (*core.target.now()).clone(), asked)
        };
        let why = move || unreachable.failure().map(|failed| failed.why);
        status::unless_absent(&self.env, why, ask, self.describe())
    }

    /// Whether there is no connection.
    fn is_unconnected(&self) -> bool {
        let patient = self.patient.get().into_iter().flat_map(|core| &core.links);
        !self.links.iter().chain(patient).any(|link| link.is_connected())
    }

    /// Why the server can't be reached, if that was tried and there is no connection.
    fn failure(&self) -> Option<Failed> {
        let is_connected = self.links.iter().any(|link| link.is_connected());
        self.links.iter().find_map(|link| link.failure()).filter(|_| !is_connected)
    }

    /// The status document from the server itself, as soon as it answers.
    fn asked_status(&self, token: Option<&Token>) -> Reply<String> {
        let (promise, reply) = promise();
        self.link().submit(token, Answer::Text(promise), |out, id| {
            request::empty(out, id, Kind::Status);
        });
        reply
    }
}

thread_local! {
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Has what is asked for on this thread from now on go to the link of this number: a connection's
/// task calls this, so that what its answers lead to leaves by the same connection, in the same
/// write.
fn keep_to(number: usize) {
    NUMBER.set(Some(number));
}

/// Numbers threads, so that each keeps to one connection: those that serve sockets as the links are
/// that they serve, others in the order of their first call.
fn thread_number(env: &Env) -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NUMBER.get().unwrap_or_else(|| {
        let number = env.network_thread().unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
        NUMBER.set(Some(number));
        number
    })
}

impl Drop for Core {
    fn drop(&mut self) {
        self.links.iter().for_each(|link| link.close());
    }
}

impl std::fmt::Debug for RemoteEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RemoteEndpoint").field(&self.core.target.now().connection_string()).finish()
    }
}

impl Endpoint for RemoteEndpoint {
    fn env(&self) -> &Env {
        &self.core.env
    }

    fn showing(&self, token: &[u8]) -> Option<Arc<dyn Endpoint>> {
        // A longer one is none, and would end the connection that others use, too.
        let token = &token[..token.len().min(request::MAX_TOKEN)];
        Some(Arc::new(self.with(Some(token.into()))))
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        let priority = match request.priority {
            Priority::Batch => 0,
            Priority::Default => 1,
            Priority::Immediate => 2,
        };
        let request = ReadVersion {
            priority,
            lock_aware: request.lock_aware,
            causal_risky: request.causal_risky,
            count: request.others.saturating_add(1),
            tags: request.tags,
        };
        let (promise, reply) = promise();
        let mut wanted = Wanted { request, token: self.token.clone(), is_direct: false };
        let Some(cluster) = self.cluster() else {
            self.link().gather(wanted, promise);
            return reply;
        };
        if let Some(server) = cluster.leading() {
            wanted.is_direct = true;
            server.link().gather(wanted, promise);
            cluster.watches();
            return reply;
        }
        cluster.ask(Whom::Leader, by_request(wanted))
    }

    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        if keys.len() <= WHOLE_KEYS {
            let count = keys.len();
            return self.ask_any(
                move |promise| Answer::Values(promise, count),
                |out, id| request::put_get_many(out, id, version, space, keys.iter()),
            );
        }
        if let Some(cluster) = self.cluster() {
            let keys = keys.clone();
            return self
                .ask(cluster, Whom::Any, move |server| server.get_many(version, space, &keys));
        }
        let core = self.core.clone();
        let (token, waits) = (self.token.clone(), self.waits.clone());
        many::values(keys, move |promise, keys| {
            core.get_many((token.as_ref(), waits.as_ref()), promise, version, space, keys)
        })
    }

    fn begin_reading(
        &self,
        request: &ReadVersionRequest,
        space: KeySpace,
        keys: &KeyList,
    ) -> Option<Reply<Begun>> {
        // What may be held back for long isn't read before it is let in.
        let is_urgent = request.priority != Priority::Batch;
        if !is_urgent || keys.len() > FEW_KEYS || !self.core.luck.is_tried() {
            return None;
        }
        let luck = self.core.luck.clone();
        let granted = self.read_version(request.clone());
        let newest = self.get_newest(request.lock_aware, space, keys);
        Some(first_read::join(granted, newest, move |hit| luck.note(hit)))
    }

    fn get_newest(&self, lock_aware: bool, space: KeySpace, keys: &KeyList) -> Reply<Newest> {
        let count = keys.len();
        self.ask_any(
            move |promise| Answer::Newest(promise, count),
            |out, id| request::put_get_newest(out, id, lock_aware, space, keys),
        )
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        self.ask_any(Answer::Key, |out, id| {
            request::put_get_key(out, id, version, space, selector);
        })
    }

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        self.ask_any(Answer::Range, |out, id| {
            request::put_get_range(out, id, version, space, read);
        })
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        if let Some(cluster) = self.cluster() {
            return self
                .ask(cluster, Whom::LeaderOnce, move |server| server.commit_again(&request));
        }
        self.commit_again(&request)
    }

    fn watch(&self, key: Bytes, value: Option<Bytes>, version: Version) -> Reply<Version> {
        if let Some(cluster) = self.cluster() {
            let ask = move |server: &Self| server.watch(key.clone(), value.clone(), version);
            return self.ask(cluster, Whom::AnyForLong, ask);
        }
        let (promise, reply) = promise();
        Link::submit_watch(self.link(), self.token.as_ref(), promise, |out, id| {
            request::put_watch(out, id, &key, value.as_deref(), version);
        });
        reply
    }

    fn read_changes(&self, request: ChangesRequest) -> Reply<Changes> {
        if let Some(cluster) = self.cluster() {
            return self
                .ask(cluster, Whom::WhoeverHasIt, move |server| server.read_changes(request));
        }
        let (promise, reply) = promise();
        self.submit(Answer::Changes(promise), |out, id| request::put_changes(out, id, &request));
        reply
    }

    fn range_size(&self, range: KeyRange) -> Reply<i64> {
        self.ask_any(
            |promise| Answer::Number(promise, Kind::RangeSizeReply),
            |out, id| request::put_range_size(out, id, &range),
        )
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        self.ask_any(Answer::Keys, |out, id| {
            request::put_split_points(out, id, &range, chunk);
        })
    }

    fn addresses_for_key(&self, key: &[u8]) -> Reply<Vec<String>> {
        if let Some(cluster) = self.cluster() {
            let key = key.to_vec();
            return self.ask(cluster, Whom::Any, move |server| server.addresses_for_key(&key));
        }
        self.core.addresses_for_key(self.token.as_ref(), key)
    }

    fn describe(&self) -> Description {
        let description = self.core.describe();
        match self.cluster() {
            Some(cluster) => {
                Description { connection_string: cluster.file().connection_string(), ..description }
            }
            None => description,
        }
    }

    fn status_json(&self) -> Reply<String> {
        let Some(cluster) = self.cluster() else {
            return self.core.status_json(self.token.clone());
        };
        let (unreachable, asked, env) = (cluster.clone(), cluster.clone(), self.core.env.clone());
        // Who names one server wants to know how that one is.
        let named = (!self.core.links.is_empty()).then(|| self.core.clone());
        let token = self.token.clone();
        let ask = move || {
            let others = {
                let (asked, token) = (asked.clone(), token.clone());
                let status = move |it: &Self| it.core.asked_status(token.as_ref());
                move || asked.ask(Whom::Any, status.clone())
            };
            let document = match named {
                Some(named) => {
                    status::or_of_others(&env, named.asked_status(token.as_ref()), others)
                }
                None => others(),
            };
            status::told(&env, asked.file(), document)
        };
        status::unless_absent(&self.core.env, move || unreachable.failure(), ask, self.describe())
    }

    fn stalled(&self) -> Option<String> {
        match self.cluster() {
            Some(cluster) => cluster.stalled(),
            None => self.core.failure().map(|failed| format!("no server answers: {}", failed.why)),
        }
    }

    fn pin_snapshot(&self) -> Reply<Pinned> {
        if let Some(cluster) = self.cluster() {
            return self.ask(cluster, Whom::Leader, |server| {
                snapshot::pin(server.core.patiently(), server.token.clone())
            });
        }
        snapshot::pin(&self.core, self.token.clone())
    }

    fn clients(&self) -> Reply<Vec<String>> {
        if let Some(cluster) = self.cluster() {
            return self.ask(cluster, Whom::Leader, Self::clients);
        }
        let (promise, reply) = promise();
        self.submit(Answer::Texts(promise, Kind::ClientsReply), |out, id| {
            request::empty(out, id, Kind::Clients);
        });
        reply
    }

    fn disconnect(&self, client: &str) -> Reply<i64> {
        if let Some(cluster) = self.cluster() {
            let client = client.to_owned();
            return self.ask(cluster, Whom::Leader, move |server| server.disconnect(&client));
        }
        let (promise, reply) = promise();
        self.submit(Answer::Number(promise, Kind::DisconnectReply), |out, id| {
            request::put_disconnect(out, id, client.as_bytes());
        });
        reply
    }

    fn server_addresses(&self) -> Vec<String> {
        if self.cluster().is_some() {
            return Vec::new();
        }
        self.core.target.now().addresses().iter().map(Address::bare).collect()
    }

    fn reboot(&self, address: &str) -> Reply<i64> {
        if let Some(cluster) = self.cluster() {
            return match cluster.at(address) {
                Some(server) => server.with(self.token.clone()).reboot(address),
                None => Reply::ready(Ok(0)),
            };
        }
        let (asked, answer) = promise();
        self.submit(Answer::Number(asked, Kind::RebootReply), |out, id| {
            request::put_reboot(out, id, address.as_bytes());
        });
        let (promise, reply) = promise();
        let unreachable = Error::all_alternatives_failed();
        answer.on_complete(move |told| {
            promise.send(told.or_else(|why| if why == unreachable { Ok(0) } else { Err(why) }))
        });
        reply
    }

    fn status_of(&self, address: &str) -> Reply<String> {
        let token = self.token.as_ref();
        let Some(cluster) = self.cluster() else { return self.core.asked_status(token) };
        match cluster.at(address) {
            Some(server) => server.core.asked_status(token),
            None => {
                Reply::ready(Err(Error::connection_failed()
                    .with_detail(format!("no server is known at {address}"))))
            }
        }
    }
}
