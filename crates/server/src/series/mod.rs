//! Time series over the network: listeners that take points in, and what all of them share.
//!
//! ```text
//!   RESP (8282), OpenTSDB (4242), Graphite (2003)  --a task per connection-->  session (crate series): bytes -> points  -->  SeriesStore on the server's database
//!   datagrams of RESP (8383)      --one task-------------->  the same
//!   requests over HTTP: Influx, Prometheus, OpenTelemetry -->  the same, kept from one to the next
//!   HTTP (8181)  <-- rows of text, while they are read --  query (crate series)  <------------------------/
//! ```
//!
//! The store is opened in the background when a listener is asked for (`opening.rs`), and with it
//! the server owns the database's series: another process that opens them takes them over. Keys are
//! served meanwhile, and whatever becomes of series. A connection reads only when what it read
//! before is in the store, so a store that is behind slows its senders down and nothing piles up.
//! Stopping reads no more, saves what was read, and commits it.
//!
//! In a cluster, and wherever else several servers share a database (`Among`), one of them owns the
//! series at a time, by a lease. The others post points to its inbox, so they take some whether it
//! answers or not, and pass on to it what they are asked (`pass.rs`). Where the series are divided
//! that is so of each part, servers own some each (`balance.rs`), and all of them answer for all
//! (`parts.rs`).
//!
//! Rules are evaluated by whoever owns the series, or the first part of them, beside all this
//! (`rules/`), and he asks targets for their measurements (`scrape/`).

mod access;
mod answered;
mod balance;
mod bodies;
mod callers;
mod charts;
mod datagrams;
mod described;
mod events;
mod gzip;
mod http;
mod import;
mod in_force;
mod keep;
mod lines;
mod measured;
mod opened;
mod opening;
mod otlp;
mod own;
mod parts;
mod pass;
mod post;
mod probes;
mod pulse;
mod put;
mod reply;
mod rules;
mod scrape;
mod sight;
mod throttle;
mod unanswered;
mod waiting;
mod write;
mod yaml;

pub(crate) use self::charts::owns;
pub(crate) use self::gzip::expanded;
pub use self::own::is_of_a_server;
pub use self::scrape::check_scraping;

use self::callers::Callers;
use self::parts::Having;
use self::pulse::{Asking, Pulse};
use crate::answers::Answer;
use crate::config::{SeriesConfig, ServerConfig};
use crate::door::{Door, Doors, Purpose};
use crate::page::Page;
use crate::rights::{Identity, Judged};
use crate::wanted::Wanted;
use hyper::http::request::Parts;
use plinth_client::{Database, Endpoint};
use plinth_env::sync::{First, race};
use plinth_env::{Env, Signal, Task};
use plinth_series::SeriesLimits;
use plinth_series::ingest::{Memory, Protocol, Session};
use plinth_types::{Error, MetricSet, Result};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Series that a sender may make in a second, unless it is said.
const NEW_SERIES: u32 = 50_000;
/// Damaged series that the status document names.
const DAMAGED: usize = 100;
/// How long a start waits for the series.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long accepting pauses when the system has no room for another connection.
const BREATH: Duration = Duration::from_millis(50);

/// What all of them share.
pub(crate) struct Hub {
    pub(crate) env: Env,
    pub(crate) slot: opening::Slot,
    /// What sessions remember of names.
    pub(crate) memory: Memory,
    pub(crate) counts: Counts,
    duties: Duties,
    /// What came and isn't saved.
    bodies: bodies::Bodies,
    /// What senders say of metrics.
    described: described::Described,
    access: access::Access,
    bounds: Bounds,
    stops: Stops,
    asking: Asking,
    callers: Callers,
}

/// What whoever owns the series does beside: evaluate rules, scrape, and delete what is too old.
struct Duties {
    rules: Option<rules::Rules>,
    scraping: Option<scrape::Scraping>,
    retention: keep::State,
}

impl Duties {
    /// Reads the files that say so. What is remembered of targets may come to so many bytes.
    async fn open(
        env: &Env,
        asked: &SeriesConfig,
        http: Option<&Door>,
        most: usize,
    ) -> Result<Self> {
        let rules = rules::Rules::open(env, &asked.rules, http).await?;
        let scraping = scrape::Scraping::open(env, asked.scrape.as_deref(), most).await?;
        Ok(Self { rules, scraping, retention: keep::State::default() })
    }

    fn start(hub: &Arc<Hub>) {
        rules::start(hub);
        scrape::start(hub);
    }

    fn stop(&self) {
        if let Some(rules) = &self.rules {
            rules.stop();
        }
        if let Some(scraping) = &self.scraping {
            scraping.stop();
        }
    }

    /// What a request of Prometheus' interface is answered, if it is about them.
    fn answer(&self, path: &str, parameters: &[&[u8]]) -> Option<(u16, String)> {
        let of_rules = self.rules.as_ref().and_then(|rules| rules.answer(path, parameters));
        of_rules.or_else(|| self.scraping.as_ref()?.answer(path, parameters))
    }
}

/// What tells each task that it is to end.
struct Stops {
    is_stopping: AtomicBool,
    /// One for each listener on lines, and the sweeper.
    tasks: Vec<Signal>,
    http: Signal,
    own: Signal,
    keep: Signal,
}

impl Stops {
    fn new(listeners: usize) -> Self {
        Self {
            is_stopping: AtomicBool::new(false),
            tasks: (0..=listeners).map(|_| Signal::new()).collect(),
            http: Signal::new(),
            own: Signal::new(),
            keep: Signal::new(),
        }
    }

    fn notify(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.tasks.iter().chain([&self.http, &self.own, &self.keep]).for_each(Signal::notify);
    }
}

/// Where series are, how many there may be, how many new ones a second and a day of one sender, and
/// on how many threads senders are served.
struct Bounds {
    /// What their keys begin with, if not what is usual.
    prefix: Option<Vec<u8>>,
    /// Into how many parts they are divided, if there are none yet.
    parts: usize,
    limits: SeriesLimits,
    new_series: (u32, u64),
    /// Threads on which connections on lines are served.
    threads: usize,
}

/// What came since the start.
#[derive(Default)]
pub(crate) struct Counts {
    /// Points that were taken, from whoever sent them.
    pub(crate) points: AtomicU64,
    /// Messages, lines and series that were refused.
    pub(crate) refused: AtomicU64,
    pub(crate) datagrams: AtomicU64,
    /// Messages in datagrams that were refused.
    pub(crate) datagrams_refused: AtomicU64,
}

impl Counts {
    fn add(&self, points: u64, refused: u64) {
        self.points.fetch_add(points, Ordering::Relaxed);
        self.refused.fetch_add(refused, Ordering::Relaxed);
    }
}

impl Hub {
    /// What so many listeners on lines share, and all others; what came and isn't saved may come to
    /// so many bytes.
    fn open(
        pulse: Pulse,
        env: &Env,
        config: &SeriesConfig,
        (access, duties): (access::Access, Duties),
        (listeners, buffered_bytes): (usize, usize),
    ) -> Arc<Self> {
        Arc::new(Self {
            duties,
            env: env.clone(),
            slot: opening::Slot::default(),
            memory: Memory::default(),
            counts: Counts::default(),
            bodies: bodies::Bodies::up_to(buffered_bytes),
            described: described::Described::default(),
            access,
            bounds: Bounds {
                prefix: config.prefix.clone(),
                parts: config.parts.unwrap_or(1),
                limits: config.limits.clone(),
                new_series: (
                    config.new_series.unwrap_or(NEW_SERIES),
                    config.limits.of_one_source(),
                ),
                threads: config.threads.unwrap_or(usize::MAX),
            },
            stops: Stops::new(listeners),
            asking: Asking::new(pulse),
            callers: Callers::default(),
        })
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stops.is_stopping.load(Ordering::Relaxed)
    }

    /// Whether a request of Prometheus' interface is about what the owner of the series, or of
    /// their first part, does beside.
    fn is_of_duties(path: &str) -> bool {
        rules::owns(path) || scrape::owns(path) || in_force::owns(path)
    }

    /// What such a request is answered.
    fn answer_of_duties(&self, path: &str, parameters: &[&[u8]]) -> Option<(u16, String)> {
        let of_all = in_force::answer(self, path);
        of_all.or_else(|| self.duties.answer(path, parameters))
    }

    /// Whether points may be taken from somebody, of whom it may be known already, and of which
    /// metrics.
    ///
    /// # Errors
    /// Why not.
    fn check_sender(
        &self,
        known: &mut Judged,
        who: impl FnOnce() -> Identity,
    ) -> plinth_series::Result<Option<Arc<MetricSet>>> {
        Ok(self.access.rights().check_series(known, true, || Ok(who()))?)
    }

    /// A session of a sender at this address.
    fn session(&self, protocol: Protocol, address: IpAddr) -> Session {
        let mut session = Session::new(protocol, self.env.random_u64(), &self.memory);
        session.count_for(self.callers.newcomers(&self.env, address, self.bounds.new_series));
        session
    }

    /// Connections on lines that are open.
    pub(crate) fn connections(&self) -> usize {
        self.callers.len()
    }
}

/// Where a server takes in time series, and what its listeners share, if it does: what the rest of
/// the server sees of them.
#[derive(Default)]
pub(crate) struct Reach {
    addresses: SeriesConfig,
    hub: Option<Arc<Hub>>,
}

impl Reach {
    /// Whether it takes in any.
    pub(crate) fn is_some(&self) -> bool {
        self.hub.is_some()
    }

    /// Where.
    pub(crate) fn addresses(&self) -> SeriesConfig {
        self.addresses.clone()
    }

    /// What the status document says of them.
    pub(crate) fn status(&self) -> Value {
        json!({
            "resp": self.addresses.resp,
            "udp": self.addresses.udp,
            "opentsdb": self.addresses.opentsdb,
            "graphite": self.addresses.graphite,
            "http": self.addresses.http,
            "unavailable": self.unavailable(),
            "parts": self.parts(),
            "damaged": self.damaged(),
        })
    }

    /// Which series are damaged, of those that this server owns, and why: the first of them.
    fn damaged(&self) -> Vec<Value> {
        let opened = self.hub.as_ref().and_then(|hub| hub.slot.own().ok());
        let damaged = opened.map(|opened| opened.store.damaged()).unwrap_or_default();
        let told = |(series, why)| json!({ "series": series, "why": why });
        damaged.into_iter().take(DAMAGED).map(told).collect()
    }

    /// Who has each part of the series, if they are shared in parts.
    fn parts(&self) -> Vec<Value> {
        let having = self.hub.as_ref().map(|hub| hub.slot.having()).unwrap_or_default();
        let part = |having: &Having| {
            let (name, address) = having.owner.clone().unzip();
            json!({ "owner": name, "address": address, "ours": having.is_ours })
        };
        having.iter().map(part).collect()
    }

    /// Why series can be neither written nor asked for here, if that is so.
    pub(crate) fn unavailable(&self) -> Option<String> {
        let why = self.hub.as_ref()?.slot.unavailable()?;
        Some(format!("Time series can't be opened, and keys are served meanwhile: {why}"))
    }

    /// How many series are damaged, and what is wrong with one of them, if any is.
    pub(crate) fn damage(&self) -> Option<String> {
        let opened = self.hub.as_ref()?.slot.own().ok()?;
        let damaged = opened.store.damaged();
        let (series, why) = damaged.first()?;
        let count = damaged.len();
        Some(format!(
            "Rows are damaged, and what is theirs is taken in no more, {count} in all; the first is {series}: {why}"
        ))
    }

    /// Writes what is measured of them.
    pub(crate) fn metrics(&self, text: &mut String) {
        let Some(hub) = &self.hub else { return };
        measured::write(hub, text);
        if let Some(rules) = &hub.duties.rules {
            rules.metrics(text);
        }
    }

    /// Answers the console, or has the server answer that owns the series.
    pub(crate) async fn ask(&self, head: &Parts) -> std::result::Result<Answer, Answer> {
        let hub = self.hub.as_ref();
        let hub = hub.ok_or_else(|| Answer::missing("this server takes in no time series"))?;
        if hub.is_shared() {
            let (status, text) = hub.ask_owner(head).await.map_err(charts::failed)?;
            return Ok(Answer::passed(status, text));
        }
        let opened = hub.slot.now();
        let store = opened.map(|opened| opened.store.clone()).map_err(charts::failed)?;
        charts::here(&hub.env, &store, head).await
    }
}

/// The running listeners.
pub(crate) struct Listeners {
    hub: Arc<Hub>,
    addresses: SeriesConfig,
    /// Those who have the sockets.
    accepting: Vec<Task>,
}

/// Checks what can be said before there is a database: rules have to make sense, and something has
/// to take in series for them.
pub(crate) async fn check(env: &Env, config: &ServerConfig) -> Result<()> {
    check_rules_have_series(config)?;
    scrape::check(env, config.series.scrape.as_deref()).await?;
    rules::check(env, &config.series.rules).await
}

/// Rules are about series, so something has to take some in.
fn check_rules_have_series(config: &ServerConfig) -> Result<()> {
    let (asked, usual) = (&config.series, &config.usual.series);
    let listens = asked.lines(usual).next().is_some()
        || Wanted::choose(asked.http, usual.http).is_some()
        || Wanted::choose(asked.udp, usual.udp).is_some();
    if !listens && (!asked.rules.files.is_empty() || asked.scrape.is_some()) {
        let why =
            "rules and scraping are about series: the server needs a listener that takes some in";
        return Err(Error::client_invalid_operation().with_detail(why));
    }
    Ok(())
}

/// Where the address stands at which a protocol's lines come.
fn address_of(addresses: &mut SeriesConfig, protocol: Protocol) -> &mut Option<SocketAddr> {
    match protocol {
        Protocol::Resp => &mut addresses.resp,
        Protocol::Graphite => &mut addresses.graphite,
        Protocol::OpenTsdb | Protocol::Influx(_) | Protocol::Exposition(_) | Protocol::Csv(_) => {
            &mut addresses.opentsdb
        }
    }
}

/// Starts what `config` asks for; `None` if that is nothing. `admit` says whether an address may be
/// listened on, for what.
pub(crate) async fn start(
    endpoint: &Arc<dyn Endpoint>,
    config: &ServerConfig,
    doors: &Doors,
    admit: impl Fn(SocketAddr, Purpose) -> Result<()>,
) -> Result<Option<Listeners>> {
    check_rules_have_series(config)?;
    let (asked, usual) = (&config.series, &config.usual.series);
    let env = endpoint.env().clone();
    let mut bound = Vec::new();
    for (protocol, wanted) in asked.lines(usual) {
        admit(wanted.address, Purpose::Series)?;
        bound.push((protocol, doors.door(wanted.listen(&env).await?, Purpose::Series)));
    }
    let mut http = None;
    if let Some(wanted) = Wanted::choose(asked.http, usual.http) {
        admit(wanted.address, Purpose::Series)?;
        http = Some(doors.door(wanted.listen(&env).await?, Purpose::Series));
    }
    let mut datagrams = None;
    if let Some(wanted) = Wanted::choose(asked.udp, usual.udp) {
        admit(wanted.address, Purpose::Datagrams)?;
        datagrams = Some(wanted.datagrams(&env)?);
    }
    if http.is_none() && datagrams.is_none() && bound.is_empty() {
        return Ok(None);
    }
    let is_local = http.as_ref().is_some_and(|door: &Door| door.local_address().ip().is_loopback());
    let token = asked.token_file.as_deref();
    let access = access::Access::open(&env, token, is_local, doors).await?;
    let most = (bound.len(), config.limits.buffered_bytes);
    let duties = Duties::open(&env, asked, http.as_ref(), most.1).await?;
    let hub = Hub::open(Pulse::of(endpoint, config), &env, asked, (access, duties), most);
    Duties::start(&hub);
    open(&hub, endpoint, config, http.as_ref());
    let (mut addresses, mut accepting) = (asked.clone(), Vec::new());
    if let Some(door) = http {
        addresses.http = Some(door.local_address());
        let serving = crate::http::serve(hub.clone(), door);
        accepting.push(env.spawn_network("accept series http", serving));
    }
    if let Some(socket) = datagrams {
        addresses.udp = Some(socket.local_address());
        // As a connection that stays: a stop waits for what it has received.
        let theirs = hub.clone();
        let caller = hub.callers.enter_datagrams(socket.local_address().ip());
        accepting.push(env.spawn_network_behind(
            hub.bounds.threads,
            "series datagrams",
            async move {
                datagrams::receive(&theirs, socket, &caller.stop).await;
                theirs.callers.leave(&caller);
            },
        ));
    }
    for (number, (protocol, door)) in bound.into_iter().enumerate() {
        *address_of(&mut addresses, protocol) = Some(door.local_address());
        let taking = accept(hub.clone(), door, number, protocol, config.limits.connections);
        accepting.push(env.spawn_network("accept series", taking));
    }
    drop(env.spawn_network("series sweep", sweep(hub.clone())));
    drop(env.spawn_network("series retention", keep::keep(hub.clone(), asked.retention.clone())));
    Ok(Some(Listeners { hub, addresses, accepting }))
}

/// Opens the series in the background: its own ones, or those that it shares with others, which
/// find it at its door of HTTP.
fn open(hub: &Arc<Hub>, endpoint: &Arc<dyn Endpoint>, config: &ServerConfig, http: Option<&Door>) {
    let Some(among) = config.among.clone() else {
        let opening = opening::keep_open(hub.clone(), Database::new(endpoint.clone()));
        drop(hub.env.spawn_network("open series", opening));
        return;
    };
    let address = |door: &Door| pass::address(&among, door.local_address(), door.is_secure());
    let address = http.map(address).unwrap_or_default();
    opening::is_among(hub, &among);
    let sharing = opening::share(hub.clone(), among, address, config.peers.clone());
    drop(hub.env.spawn_network("share series", sharing));
}

impl Listeners {
    /// What is known of them elsewhere.
    pub(crate) fn reach(&self) -> Reach {
        Reach { addresses: self.addresses.clone(), hub: Some(self.hub.clone()) }
    }

    /// One of the addresses.
    pub(crate) fn any_address(&self) -> Option<SocketAddr> {
        self.addresses.any()
    }

    /// Begins to record the server's own measurements, as `figures` show them, if that is asked
    /// for.
    pub(crate) fn record(&self, figures: Page, server: SocketAddr) {
        if self.addresses.metrics {
            let recording = own::record(self.hub.clone(), figures, server.to_string());
            drop(self.hub.env.spawn_network("series of the server", recording));
        }
    }

    /// Waits until the series are open, or can't be now, but not for long: keys are served already.
    pub(crate) async fn settled(&self) {
        let known = async {
            let _ = self.hub.slot.opened().await;
            while self.hub.slot.parts().is_some_and(|parts| !parts.are_known()) {
                self.hub.env.sleep(BREATH).await;
            }
        };
        race(known, self.hub.env.sleep(PATIENCE)).await;
    }

    /// Accepts and reads nothing more.
    pub(crate) fn begin_stop(&self) {
        self.hub.stops.notify();
        self.hub.duties.stop();
        self.hub.slot.stop.notify();
        self.hub.callers.stop_all();
    }

    /// Waits until what was read is in the store and committed, within reason. Its addresses are
    /// free then.
    pub(crate) async fn stop(&mut self, farewell: Duration) {
        self.begin_stop();
        let (env, accepting) = (&self.hub.env, std::mem::take(&mut self.accepting));
        let ended = async {
            for task in accepting {
                // One that failed has let go of its socket, too.
                let _ = task.await;
            }
            self.hub.callers.emptied().await;
            self.hub.slot.finish().await;
        };
        race(ended, env.sleep(farewell)).await;
    }
}

/// Looks for half lines that nobody ends, until told to stop.
async fn sweep(hub: Arc<Hub>) {
    let Some(stop) = hub.stops.tasks.last() else { return };
    while let First::Right(()) = race(stop.wait(), hub.env.sleep(callers::SWEEP)).await {
        hub.callers.sweep(hub.env.now());
    }
}

/// Accepts connections until told to stop.
async fn accept(hub: Arc<Hub>, door: Door, number: usize, protocol: Protocol, most: usize) {
    loop {
        match race(hub.stops.tasks[number].wait(), door.accept()).await {
            First::Left(()) => return,
            First::Right(Err(_)) => hub.env.sleep(BREATH).await,
            First::Right(Ok(mut stream)) => {
                // An end in order says that all is durable, whatever happens before that is so.
                stream.break_when_dropped(true);
                let caller = hub.callers.enter(stream.peer_address().ip(), hub.env.now(), most);
                let theirs = hub.clone();
                drop(hub.env.spawn_network_behind(hub.bounds.threads, "series", async move {
                    lines::converse(&theirs, stream, protocol, &caller).await;
                    theirs.callers.leave(&caller);
                }));
            }
        }
    }
}
