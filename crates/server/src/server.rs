//! The server as a whole: listeners, what all connections share, starting and stopping.
//!
//! Starting binds every address first, then settles the cluster file (which names the port that was bound), and only then
//! accepts. Stopping goes the other way: nothing new is accepted, what is under way is answered, connections close.

use crate::config::ServerConfig;
use crate::connection::Connection;
use crate::console::{self, Console};
use crate::counters::{Counters, Figures};
use crate::outbox::Outbox;
use crate::registry::Registry;
use plinth_client::Endpoint;
use plinth_client::remote::ClusterFile;
use plinth_env::sync::{First, race};
use plinth_env::{Env, Listener, Signal, Stream};
use plinth_proto::Welcome;
use plinth_types::{Error, Result};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

/// How often silent connections are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// How long accepting pauses when the system has no room for another connection.
const BREATH: Duration = Duration::from_millis(50);
/// How long a refused client has to read why.
const REFUSAL: Duration = Duration::from_secs(1);
/// Refused clients that are waited for at a time; others are just closed.
const REFUSALS: usize = 8192;

/// Where the server is, as clients are told.
pub(crate) struct Place {
    /// `description:id` of the cluster file.
    pub(crate) cluster: String,
    /// `description:id@ip:port`.
    pub(crate) connection_string: String,
    /// `ip:port` each.
    pub(crate) addresses: Vec<String>,
    /// The identity of the database.
    pub(crate) cluster_id: String,
}

/// What all connections of a server share.
pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) endpoint: Arc<dyn Endpoint>,
    pub(crate) config: ServerConfig,
    pub(crate) place: Place,
    pub(crate) connections: Registry,
    pub(crate) counters: Counters,
    /// Bytes that connections hold from one turn to the next.
    pub(crate) buffered: AtomicUsize,
    refusals: AtomicUsize,
    stopping: AtomicBool,
    /// One for each listener and the sweeper.
    stops: Vec<Signal>,
    pub(crate) http_stop: Signal,
    pub(crate) console: Console,
    pub(crate) history_stop: Signal,
}

impl Shared {
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn figures(&self) -> Figures {
        self.counters.figures(self.connections.len())
    }
}

/// A running server. Dropping it ends it at once; [`Server::stop`] does so gently.
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    http: Option<SocketAddr>,
}

impl Server {
    /// Serves `endpoint` as `config` says. Returns once it accepts connections.
    ///
    /// # Errors
    /// `invalid_local_address` if an address could be reached by other machines and that was not allowed, or clients
    /// couldn't be told where the server is; `address_in_use`, `bind_failed`; `connection_string_invalid` if there is a
    /// cluster file that is none, or names another server; those of writing it.
    pub async fn start(endpoint: Arc<dyn Endpoint>, config: ServerConfig) -> Result<Self> {
        let env = endpoint.env().clone();
        let mut listeners = Vec::new();
        for address in &config.listen {
            check_reach(&env, *address, &config)?;
            listeners.push(env.sockets().listen(*address).await?);
        }
        let http = match config.http {
            Some(address) => {
                check_reach(&env, address, &config)?;
                Some(env.sockets().listen(address).await?)
            }
            None => None,
        };
        let http_address = http.as_ref().map(Listener::local_address);
        let console = Console::open(&env, &config.console, http_address).await?;
        let addresses: Vec<_> = listeners.iter().map(Listener::local_address).collect();
        let place = settle_place(&env, &*endpoint, &config, &addresses).await?;
        let stops = (0..=listeners.len()).map(|_| Signal::new()).collect();
        let shared = Arc::new(Shared {
            env: env.clone(),
            endpoint,
            config,
            place,
            connections: Registry::default(),
            counters: Counters::default(),
            buffered: AtomicUsize::new(0),
            refusals: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            stops,
            http_stop: Signal::new(),
            console,
            history_stop: Signal::new(),
        });
        if let Some(http) = http {
            drop(env.spawn_network("accept http", crate::http::serve(shared.clone(), http)));
            drop(env.spawn_network("history", console::sample(shared.clone())));
        }
        for (number, listener) in listeners.into_iter().enumerate() {
            drop(env.spawn_network("accept", accept(shared.clone(), listener, number)));
        }
        drop(env.spawn_network("sweep", sweep(shared.clone())));
        Ok(Self { shared, addresses, http: http_address })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where it answers HTTP.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Where the token stands that HTTP asks for, if it does.
    pub fn http_token_file(&self) -> Option<&Path> {
        self.shared.console.token_file()
    }

    /// What clients find it by: `description:id@ip:port`.
    pub fn connection_string(&self) -> &str {
        &self.shared.place.connection_string
    }

    /// What it has counted.
    pub fn figures(&self) -> Figures {
        self.shared.figures()
    }

    /// Stops: accepts and reads nothing more, answers what is under way, closes. What a client sent and the server had
    /// not read by then has not happened.
    pub async fn stop(self) {
        self.begin_stop();
        self.shared.connections.finish_all();
        let emptied = self.shared.connections.emptied();
        let patience = self.shared.env.sleep(self.shared.config.limits.farewell);
        if let First::Right(()) = race(emptied, patience).await {
            self.shared.connections.close_all();
        }
    }

    fn begin_stop(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.shared.stops.iter().for_each(Signal::notify);
        self.shared.http_stop.notify();
        self.shared.history_stop.notify();
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

/// Whether the server may listen there.
fn check_reach(env: &Env, address: SocketAddr, config: &ServerConfig) -> Result<()> {
    // Simulated machines have no loopback; nor has anybody there anything to hide.
    if address.ip().is_loopback() || config.without_tls || env.is_simulated() {
        return Ok(());
    }
    Err(Error::invalid_local_address().with_detail(format!(
        "{address} can be reached by other machines, and nothing is encrypted; allow it in so many words (--without-tls)"
    )))
}

/// What clients are told, from the cluster file if there is one; else a new one is written.
async fn settle_place(
    env: &Env,
    endpoint: &dyn Endpoint,
    config: &ServerConfig,
    addresses: &[SocketAddr],
) -> Result<Place> {
    let first = config.public.or(addresses.first().copied());
    let Some(public) = first.filter(|address| !address.ip().is_unspecified()) else {
        let detail = "clients must be told an address: a public one is needed beside one that stands for all";
        return Err(Error::invalid_local_address().with_detail(detail));
    };
    let path = config.cluster_file.as_deref();
    let existing = match path {
        Some(path) if env.files().exists(path).await? => Some(ClusterFile::read(env, path).await?),
        _ => None,
    };
    let cluster_id = endpoint.describe().cluster_id;
    let file = match existing {
        Some(file) if file.names(public) => file,
        Some(file) => {
            let path = path.map(|path| path.display().to_string()).unwrap_or_default();
            return Err(Error::connection_string_invalid().with_detail(format!(
                "{path} exists and names {}, not {public}; listen there, or name another cluster file",
                file.address_list()
            )));
        }
        None => {
            let id: String = cluster_id.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
            let file = ClusterFile::new("plinth", if id.is_empty() { "id" } else { &id }, public);
            if let Some(path) = path {
                env.files().replace(path, format!("{}\n", file.connection_string()).as_bytes()).await?;
            }
            file
        }
    };
    Ok(Place {
        cluster: file.key(),
        connection_string: file.connection_string(),
        addresses: vec![public.to_string()],
        cluster_id,
    })
}

/// Accepts connections until told to stop.
async fn accept(shared: Arc<Shared>, listener: Listener, number: usize) {
    loop {
        let accepted = race(shared.stops[number].wait(), listener.accept()).await;
        match accepted {
            First::Left(()) => return,
            First::Right(Ok(stream)) => admit(&shared, stream),
            // Out of files, perhaps: others will close some.
            First::Right(Err(_)) => shared.env.sleep(BREATH).await,
        }
    }
}

/// Gives a connection its task, or tells it why not.
fn admit(shared: &Arc<Shared>, stream: Stream) {
    let outbox = Outbox::new(stream.peer_address());
    match shared.connections.enter(&outbox, &shared.config.limits) {
        Ok(number) => {
            let connection = Connection::new(stream, shared.clone(), outbox, number);
            drop(shared.env.spawn_network("connection", connection));
        }
        Err(why) => {
            shared.counters.add(&Figures { refused: 1, ..Figures::default() });
            if shared.refusals.fetch_add(1, Ordering::Relaxed) >= REFUSALS {
                shared.refusals.fetch_sub(1, Ordering::Relaxed);
                return;
            }
            let theirs = shared.clone();
            let refusal = async move {
                race(turn_away(stream, why), theirs.env.sleep(REFUSAL)).await;
                theirs.refusals.fetch_sub(1, Ordering::Relaxed);
            };
            drop(shared.env.spawn_network("refusal", refusal));
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

/// Looks for silent connections until told to stop.
async fn sweep(shared: Arc<Shared>) {
    let Some(stop) = shared.stops.last() else { return };
    while let First::Right(()) = race(stop.wait(), shared.env.sleep(SWEEP)).await {
        shared.connections.sweep(&shared.env);
    }
}
