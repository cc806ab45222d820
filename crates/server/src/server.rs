//! The server as a whole: listeners, starting and stopping.
//!
//! Starting binds every address first, then settles the cluster file (which names the port that was
//! bound), and only then accepts. Stopping goes the other way: nothing new is accepted, what is
//! under way is answered, connections close.

use crate::audit::Audit;
use crate::config::{Limits, SeriesConfig, ServerConfig};
use crate::connection::Connection;
use crate::console::{Access, Console};
use crate::counters::{Counters, Figures};
#[cfg(feature = "tls")]
use crate::door::acceptor;
use crate::door::{Door, Doors, Purpose};
use crate::events::{self, Bursts};
use crate::lane::Lane;
use crate::memory::Memory;
use crate::outbox::Outbox;
use crate::page::Page;
use crate::place::Place;
use crate::quotas::Quotas;
use crate::reach::{self, check_reach};
use crate::registry::Registry;
use crate::renewal;
use crate::rights::{Identity, Rights};
use crate::series::{self, Listeners};
use crate::shared::{Doorstep, Shared, Stops, Turns};
use crate::snapshots::Snapshots;
use crate::wanted::Wanted;
use crate::{http, metrics};
use plinth_client::Endpoint;
use plinth_env::sync::{First, race};
use plinth_env::{Env, Stream, Task};
use plinth_peers::Mesh;
use plinth_proto::Welcome;
use plinth_types::{Error, Result};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

/// How often silent connections are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// Sweeps from one look for new certificates to the next.
const CERTIFICATES: u32 = 60;
/// How long accepting pauses when the system has no room for another connection.
const BREATH: Duration = Duration::from_millis(50);
/// How long a refused client has to read why.
const REFUSAL: Duration = Duration::from_secs(1);
/// After how long a server at its end says what it waits for.
const SILENCE: Duration = Duration::from_secs(1);
/// Refused clients that are waited for at a time; others are just closed.
const REFUSALS: usize = 8192;

/// Connections to HTTP and of series that clients of keys leave room for.
const FOR_OTHER_DOORS: usize = 256;

/// A running server. Dropping it ends it at once; [`Server::stop`] does so gently.
pub struct Server {
    shared: Arc<Shared>,
    console: Arc<Console>,
    addresses: Vec<SocketAddr>,
    http: Option<SocketAddr>,
    series: Option<Listeners>,
    /// Those who have the listeners.
    accepting: Vec<Task>,
    http_secure: bool,
}

/// All that a server does, in a box that is made here: an asynchronous function is compiled where
/// it is awaited, so each program and each test that starts a server would compile all of it anew.
#[inline(never)]
fn starting(
    endpoint: Arc<dyn Endpoint>,
    config: ServerConfig,
) -> Pin<Box<dyn Future<Output = Result<Server>> + Send>> {
    Box::pin(Server::begin(endpoint, config))
}

impl Server {
    /// Checks what of a configuration can be checked before a database is opened for it, or made:
    /// what [`Server::start`] would find out too late for nothing to have been made in vain.
    ///
    /// # Errors
    /// `client_invalid_operation` for rules that make no sense, or without a listener that takes in
    /// series; those of reading their files; `invalid_local_address`, `address_in_use`,
    /// `bind_failed` with the setting that names the address; `tls_error` if the certificates can't
    /// be used.
    pub async fn check(env: &Env, config: &ServerConfig) -> Result<()> {
        reach::check(env, config).await?;
        series::check(env, config).await
    }

    /// Serves `endpoint` as `config` says. Returns once it accepts connections.
    ///
    /// # Errors
    /// Those of [`Server::check`];
    /// `invalid_local_address` if an address could be reached by other machines and that was not
    /// allowed, or clients couldn't be told where the server is; `tls_error` if the certificates
    /// can't be used; `address_in_use`, `bind_failed`; `connection_string_invalid` if there is a
    /// cluster file that is none, or names other servers, or one that speaks TLS where this one
    /// doesn't; those of writing it.
    pub async fn start(endpoint: Arc<dyn Endpoint>, config: ServerConfig) -> Result<Self> {
        let settings = reach::settings(&config);
        starting(endpoint, config).await.map_err(|error| reach::with_setting(error, &settings))
    }

    async fn begin(endpoint: Arc<dyn Endpoint>, mut config: ServerConfig) -> Result<Self> {
        let env = endpoint.env().clone();
        let rights = Rights::open(&env, &*endpoint, &config.rights, config.has_others()).await?;
        let doors = open_doors(&env, &*endpoint, &config, rights).await?;
        let mut listeners = Vec::new();
        for wanted in config.wanted() {
            check_reach(&env, wanted.address, &config, doors.tls(), Purpose::Clients)?;
            listeners.push(doors.door(wanted.listen(&env).await?, Purpose::Clients));
        }
        let http = match Wanted::choose(config.http, config.usual.http) {
            Some(wanted) => {
                check_reach(&env, wanted.address, &config, doors.tls(), Purpose::Http)?;
                Some(doors.door(wanted.listen(&env).await?, Purpose::Http))
            }
            None => None,
        };
        let http_address = http.as_ref().map(Door::local_address);
        let secure = http.as_ref().is_some_and(Door::is_secure);
        clamp_connections(&mut config.limits, listeners.last());
        let known = doors.rights.clone();
        let access = Access::open(&env, &config.console, http_address, secure, known).await?;
        let addresses: Vec<_> = listeners.iter().map(Door::local_address).collect();
        let place = Place::settle(&env, &*endpoint, &config, &addresses, doors.has_tls()).await?;
        let admit = |address, purpose| check_reach(&env, address, &config, doors.tls(), purpose);
        let series = series::start(&endpoint, &config, &doors, admit).await?;
        let snapshots =
            Snapshots::new(env.random_u64(), config.limits.snapshots, config.limits.snapshot_lease);
        let memory = Arc::new(Memory::new(config.limits.buffered_bytes));
        let shared = Arc::new(Shared {
            env: env.clone(),
            endpoint,
            config,
            place,
            connections: Registry::default(),
            doors,
            memory,
            turns: Turns {
                heavy: Arc::default(),
                lane: Arc::new(Lane::new(env.network_threads())),
            },
            doorstep: Doorstep::default(),
            stops: Stops::new(listeners.len()),
            snapshots,
            series: series.as_ref().map(Listeners::reach).unwrap_or_default(),
        });
        let console = Arc::new(Console::new(shared.clone(), access));
        let mut accepting = Vec::new();
        if let Some(door) = http {
            accepting.push(env.spawn_network("accept http", http::serve(console.clone(), door)));
            drop(env.spawn_network("history", console.clone().sample()));
        }
        for (number, listener) in listeners.into_iter().enumerate() {
            let task = env.spawn_network("accept", accept(shared.clone(), listener, number));
            accepting.push(task);
        }
        drop(env.spawn_network("sweep", sweep(shared.clone())));
        drop(env.spawn_network("rights", renewal::run(shared.clone())));
        drop(env.spawn("heavy requests", shared.turns.heavy.clone().run(env.clone())));
        if let Some(series) = &series {
            series.settled().await;
            let known = shared.config.public.or(addresses.first().copied());
            if let Some(address) = known.or(http_address).or_else(|| series.any_address()) {
                let theirs = shared.clone();
                series.record(Page::new(move || metrics::text(&theirs)), address);
            }
        }
        let (http, http_secure) = (http_address, secure);
        Ok(Self { shared, console, addresses, series, http, http_secure, accepting })
    }

    /// Whether a client has asked for it to begin anew: it is to be ended, and whoever looks after
    /// the process starts it again.
    pub fn is_to_begin_anew(&self) -> bool {
        self.shared.stops.reboot.load(Ordering::Acquire)
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where it answers HTTP.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Where it takes in time series.
    pub fn series_addresses(&self) -> SeriesConfig {
        self.shared.series.addresses()
    }

    /// How many rows of rights it judges by: none while everybody may everything.
    pub fn rights(&self) -> usize {
        self.shared.doors.rights.count()
    }

    /// Where the token stands that HTTP asks for, if it does.
    pub fn http_token_file(&self) -> Option<&Path> {
        self.console.token_file()
    }

    /// Whether HTTP is HTTPS there.
    pub fn is_http_secure(&self) -> bool {
        self.http_secure
    }

    /// Reads the files of the certificates again; says whether they have changed. The server does
    /// so by itself every minute. Connections that are open keep what they have.
    ///
    /// # Errors
    /// `tls_error`, which says what is wrong with which file; the certificates in use stay.
    pub async fn reload_certificates(&self) -> Result<bool> {
        let result = self.shared.doors.reload().await;
        events::reloaded(&result);
        result
    }

    /// What clients find it by: `description:id@ip:port`, with `:tls` behind it if that is spoken
    /// there.
    pub fn connection_string(&self) -> &str {
        &self.shared.place.connection_string
    }

    /// What it has counted.
    pub fn figures(&self) -> Figures {
        self.shared.figures()
    }

    /// Bytes that connections hold now, of those that hold more than a little: half requests,
    /// requests under way, watches, and answers that haven't been taken.
    /// [`Limits::buffered_bytes`](crate::Limits::buffered_bytes) bounds them.
    pub fn buffered_bytes(&self) -> usize {
        self.shared.memory.held()
    }

    /// Stops: accepts and reads nothing more, answers what is under way, closes. What a client sent
    /// and the server had not read by then has not happened.
    pub async fn stop(mut self) {
        if let Some(series) = &mut self.series {
            // They may be saved and given up through the doors of this very server, if it leads:
            // those close afterwards.
            series.begin_stop();
            series.stop(self.shared.config.limits.farewell).await;
        }
        self.begin_stop();
        // Its addresses are free afterwards: another server may be started there at once.
        for task in std::mem::take(&mut self.accepting) {
            let _ = task.await;
        }
        self.shared.connections.finish_all();
        self.part().await;
        self.shared.doors.bursts.end();
    }

    /// Waits until clients have taken the answers to what was under way, and says so if that takes
    /// long; but only so long.
    async fn part(&self) {
        let (connections, env) = (&self.shared.connections, &self.shared.env);
        let farewell = self.shared.config.limits.farewell;
        let silent = farewell.min(SILENCE);
        if let First::Left(()) = race(connections.emptied(), env.sleep(silent)).await {
            return;
        }
        events::waits_for_answers(connections.len(), farewell);
        if let First::Right(()) = race(connections.emptied(), env.sleep(farewell - silent)).await {
            connections.close_all();
        }
    }

    fn begin_stop(&self) {
        self.shared.stops.notify();
        self.shared.turns.heavy.close();
        self.shared.snapshots.close();
        if let Some(series) = &self.series {
            series.begin_stop();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.begin_stop();
        self.shared.connections.close_all();
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// Reads the certificates, if there are to be any, and quotas.
async fn open_doors(
    env: &Env,
    endpoint: &dyn Endpoint,
    config: &ServerConfig,
    rights: Arc<Rights>,
) -> Result<Doors> {
    let quotas = Quotas::open(env, endpoint, rights.locals()).await;
    let (counters, bursts) = (Arc::new(Counters::default()), Arc::new(Bursts::new(env)));
    let audit = Arc::new(Audit::new(env));
    #[cfg(feature = "tls")]
    let acceptor = acceptor(env, config).await?;
    #[cfg(not(feature = "tls"))]
    let _ = config;
    Ok(Doors {
        rights,
        quotas,
        counters,
        bursts,
        audit,
        #[cfg(feature = "tls")]
        acceptor,
    })
}

/// Lets in no more clients than there are file descriptors for: whoever is turned away is told so,
/// and storage, HTTP and series have theirs.
fn clamp_connections(limits: &mut Limits, listener: Option<&Door>) {
    let Some(room) = listener.and_then(Door::room) else { return };
    let most = room - (room / 4).min(FOR_OTHER_DOORS);
    if most < limits.connections {
        events::fewer_connections(limits.connections, most);
        limits.connections = most;
    }
}

/// Accepts connections until told to stop.
async fn accept(shared: Arc<Shared>, door: Door, number: usize) {
    loop {
        let accepted = race(shared.stops.tasks[number].wait(), door.accept()).await;
        match accepted {
            First::Left(()) => return,
            First::Right(Ok(stream)) => admit(&shared, stream),
            // Out of files, perhaps: others will close some.
            First::Right(Err(_)) => shared.env.sleep(BREATH).await,
        }
    }
}

/// Lets a connection in: another node's go to those who know it, all others are clients.
fn admit(shared: &Arc<Shared>, stream: Stream) {
    let who = shared.doors.rights.meet(&stream);
    if shared.config.peers.is_some() || shared.doors.rights.misses(&who) {
        drop(shared.env.spawn_network("arrival", arrive(shared.clone(), stream, who)));
    } else {
        if let Some(connection) = admitted(shared, (stream, who), Vec::new()) {
            drop(shared.env.spawn_network("connection", connection));
        }
    }
}

/// Finds out who has come, as long as there are not too many of whom that isn't known.
async fn arrive(shared: Arc<Shared>, mut stream: Stream, who: Identity) {
    let arriving = &shared.doorstep.arriving;
    if arriving.fetch_add(1, Ordering::Relaxed) >= shared.config.limits.connections {
        arriving.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let told = match &shared.config.peers {
        Some(_) => listen(&shared, &mut stream).await,
        None => Some((false, Vec::new())),
    };
    if let Some((false, _)) = told {
        shared.doors.rights.settle(&who).await;
    }
    arriving.fetch_sub(1, Ordering::Relaxed);
    match (told, &shared.config.peers) {
        (Some((true, first)), Some(mesh)) => mesh.receive(stream, first).await,
        // Its socket is this thread's by now: served by another one, it would have that woken for
        // all that arrives.
        (Some((_, first)), _) => {
            if let Some(connection) = admitted(&shared, (stream, who), first) {
                connection.await;
            }
        }
        // It has gone, or says nothing.
        (None, _) => {}
    }
}

/// Waits for the first bytes of a connection, which tell whether another node has made it.
async fn listen(shared: &Shared, stream: &mut Stream) -> Option<(bool, Vec<u8>)> {
    let mut first = Vec::new();
    let telling = poll_fn(|context| {
        loop {
            let mut buffer = [0; 4096];
            match stream.poll_receive(context, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(len)) if len > 0 => first.extend_from_slice(&buffer[..len]),
                Poll::Ready(_) => return Poll::Ready(None),
            }
            if let Some(is_peer) = Mesh::is_peer(&first) {
                return Poll::Ready(Some(is_peer));
            }
        }
    });
    match race(telling, shared.env.sleep(shared.config.limits.greeting)).await {
        First::Left(Some(is_peer)) => Some((is_peer, first)),
        First::Left(None) | First::Right(()) => None,
    }
}

/// What serves a client's connection; one too many is told so. `first` is what it has said so far.
fn admitted(
    shared: &Arc<Shared>,
    (stream, who): (Stream, Identity),
    first: Vec<u8>,
) -> Option<Connection> {
    let outbox = Outbox::new(stream.peer_address(), shared.memory.clone());
    match shared.connections.enter(&outbox, &shared.config.limits, shared.env.now()) {
        Ok(number) => {
            let of = (number, who);
            Some(Connection::new(stream, first, shared.clone(), outbox, of))
        }
        Err(why) => {
            shared.doors.counters.add(&Figures { refused: 1, ..Figures::default() });
            shared.doors.bursts.refused(outbox.peer, &why);
            if shared.doorstep.refusals.fetch_add(1, Ordering::Relaxed) >= REFUSALS {
                shared.doorstep.refusals.fetch_sub(1, Ordering::Relaxed);
                return None;
            }
            let theirs = shared.clone();
            let refusal = async move {
                race(turn_away(stream, why), theirs.env.sleep(REFUSAL)).await;
                theirs.doorstep.refusals.fetch_sub(1, Ordering::Relaxed);
            };
            drop(shared.env.spawn_network("refusal", refusal));
            None
        }
    }
}

/// Says why there is no connection, and waits until the client has seen it.
async fn turn_away(mut stream: Stream, why: Error) {
    let mut words = Vec::new();
    Welcome::refuse(why).encode(&mut words);
    let mut sent = 0;
    let mut buffer = [0; 512];
    poll_fn(|context| {
        while sent < words.len() {
            match stream.poll_send(context, &words[sent..]) {
                Poll::Ready(Ok(more)) if more > 0 => sent += more,
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
        if stream.poll_finish(context).is_pending() {
            return Poll::Pending;
        }
        loop {
            match stream.poll_receive(context, &mut buffer) {
                Poll::Ready(Ok(more)) if more > 0 => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
}

/// Looks for silent connections, and now and then for new certificates, until told to stop.
async fn sweep(shared: Arc<Shared>) {
    let Some(stop) = shared.stops.tasks.last() else { return };
    let mut sweeps = 0;
    while let First::Right(()) = race(stop.wait(), shared.env.sleep(SWEEP)).await {
        shared.connections.sweep(&shared.env);
        if shared.memory.is_cut_due(shared.env.now()) {
            shared.connections.relieve(&shared.memory);
        }
        shared.snapshots.sweep(shared.env.now());
        shared.doors.bursts.tick();
        sweeps += 1;
        if sweeps % CERTIFICATES == 0 {
            events::reloaded(&shared.doors.reload().await);
        }
    }
}
