//! Telling an Alertmanager of alerts, by its API of version 2.
//!
//! Alerts wait in a queue of a bounded length. Of one alert the newest word counts, so an
//! Alertmanager that was away hears of each alert once, as it is then. One that fires says until
//! when it is to be believed; if that has passed it is dropped, since a newer word of it comes
//! within a minute. While an Alertmanager can't be told it is tried again, later and later, up to
//! half a minute; what it refuses is dropped, since it would refuse it again.

use crate::events;
use crate::http::{Io, Whole};
use crate::series::Hub;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use plinth_env::sync::{First, race};
use plinth_env::{Env, Signal, Stream};
use plinth_promql::Labels;
use plinth_rules::{Notice, Outside, posted};
use plinth_types::{Bytes, Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Alerts that may wait, and how many of them are sent at a time: as with Prometheus.
const MOST: usize = 10_000;
const AT_ONCE: usize = 256;
/// How long an Alertmanager may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long it is until another try, at first and at last.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Where an Alertmanager is.
struct Address {
    url: String,
    host: String,
    port: u16,
    path: String,
}

/// An Alertmanager, and what it has to be told.
pub(super) struct Notifier {
    address: Address,
    queue: Mutex<Queue>,
    wake: Signal,
    is_stopping: AtomicBool,
    sent: AtomicU64,
    errors: AtomicU64,
    dropped: AtomicU64,
}

/// Alerts that wait, the oldest first.
#[derive(Default)]
struct Queue {
    next: u64,
    waiting: BTreeMap<u64, Notice>,
    places: HashMap<Labels, u64>,
}

impl Queue {
    /// Puts an alert at the end, or in place of an older word of it. How many had to go for it.
    fn add(&mut self, notice: Notice) -> u64 {
        if let Some(known) = self.places.get(&notice.labels) {
            self.waiting.insert(*known, notice);
            return 0;
        }
        self.places.insert(notice.labels.clone(), self.next);
        self.waiting.insert(self.next, notice);
        self.next += 1;
        let mut gone = 0;
        while self.waiting.len() > MOST
            && let Some((_, oldest)) = self.waiting.pop_first()
        {
            self.places.remove(&oldest.labels);
            gone += 1;
        }
        gone
    }

    /// The first ones, and where they stand; those that nobody would believe any more go. How many
    /// those were.
    fn first(&mut self, now: i64) -> (Vec<(u64, Notice)>, u64) {
        let before = self.waiting.len();
        self.waiting.retain(|_, notice| notice.is_resolved || notice.ends_at > now);
        self.places.retain(|_, place| self.waiting.contains_key(place));
        let first = self.waiting.iter().take(AT_ONCE);
        let first = first.map(|(place, notice)| (*place, notice.clone())).collect();
        (first, (before - self.waiting.len()) as u64)
    }

    /// Takes those away that are done with, unless there is a newer word of them.
    fn done(&mut self, told: &[(u64, Notice)]) {
        for (place, notice) in told {
            if self.waiting.get(place) == Some(notice) {
                self.waiting.remove(place);
                self.places.remove(&notice.labels);
            }
        }
    }
}

impl Notifier {
    /// The Alertmanager at a URL.
    ///
    /// # Errors
    /// If it is none.
    pub(super) fn new(url: &str) -> Result<Self> {
        let wrong = |why: &str| {
            let why = format!("{url} is no address of an Alertmanager: {why}");
            Error::client_invalid_operation().with_detail(why)
        };
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(wrong("http://HOST:PORT[/PATH] expected"));
        };
        let (place, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && !place.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong("the port is no number up to 65535"))?)
            }
            _ => (place, 80),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains(['@', '?', '#', ' ']) || path.contains(['?', '#', ' '])
        {
            return Err(wrong("http://HOST:PORT[/PATH] expected"));
        }
        let path = format!("{}/api/v2/alerts", path.trim_end_matches('/'));
        let url = format!("http://{place}{path}");
        Ok(Self {
            address: Address { url, host: host.to_string(), port, path },
            queue: Mutex::default(),
            wake: Signal::new(),
            is_stopping: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        })
    }

    /// Where alerts are sent.
    pub(super) fn url(&self) -> &str {
        &self.address.url
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It has to be told of these.
    pub(super) fn add(&self, notices: &[Notice]) {
        if notices.is_empty() {
            return;
        }
        let mut queue = self.lock();
        let gone: u64 = notices.iter().map(|notice| queue.add(notice.clone())).sum();
        drop(queue);
        self.dropped.fetch_add(gone, Ordering::Relaxed);
        self.wake.notify();
    }

    /// Somebody else tells it from now on.
    pub(super) fn forget(&self) {
        *self.lock() = Queue::default();
    }

    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.wake.notify();
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Alerts that it took.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// How often it couldn't be told.
    pub(super) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Alerts that it won't be told.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Alerts that wait.
    pub(super) fn waiting(&self) -> u64 {
        self.lock().waiting.len() as u64
    }
}

/// Why alerts were not taken.
enum Refusal {
    /// It would refuse them again.
    Final(String),
    /// It may take them later.
    Away(String),
}

/// Tells an Alertmanager of what there is, until the server stops.
pub(super) async fn run(hub: Arc<Hub>, notifier: Arc<Notifier>, outside: Outside) {
    let env = &hub.env;
    let mut pause = PAUSE;
    let mut is_away = false;
    while !notifier.is_stopping() {
        let now = i64::try_from(env.wall_clock().as_nanos()).unwrap_or(i64::MAX);
        let (first, expired) = notifier.lock().first(now);
        notifier.dropped.fetch_add(expired, Ordering::Relaxed);
        if first.is_empty() {
            notifier.wake.wait().await;
            continue;
        }
        let notices: Vec<Notice> = first.iter().map(|(_, notice)| notice.clone()).collect();
        let body = posted(&notices, &outside);
        let result = match race(post(env, &notifier.address, body), env.sleep(TIMEOUT)).await {
            First::Left(result) => result,
            First::Right(()) => Err(Refusal::Away(format!("no answer within {TIMEOUT:?}"))),
        };
        let away = match result {
            Ok(()) => {
                notifier.sent.fetch_add(first.len() as u64, Ordering::Relaxed);
                None
            }
            Err(Refusal::Final(why)) => {
                notifier.dropped.fetch_add(first.len() as u64, Ordering::Relaxed);
                events::alerts_refused(notifier.url(), &why);
                None
            }
            Err(Refusal::Away(why)) => Some(why),
        };
        let Some(why) = away else {
            notifier.lock().done(&first);
            pause = PAUSE;
            if std::mem::take(&mut is_away) {
                events::alertmanager_back(notifier.url());
            }
            continue;
        };
        notifier.errors.fetch_add(1, Ordering::Relaxed);
        if !std::mem::replace(&mut is_away, true) {
            events::alertmanager_away(notifier.url(), &why);
        }
        env.sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Sends alerts, and hears that they were taken.
async fn post(env: &Env, address: &Address, body: String) -> std::result::Result<(), Refusal> {
    let away = |why: &dyn std::fmt::Display| Refusal::Away(why.to_string());
    let stream = connect(env, address).await.map_err(|why| away(&why))?;
    let (mut sender, connection) =
        http1::handshake::<_, Whole>(Io(stream)).await.map_err(|why| away(&why))?;
    // It ends when nobody holds the answer any more.
    drop(env.spawn_network("alertmanager", async move {
        let _ = connection.await;
    }));
    let request = Request::builder()
        .method(Method::POST)
        .uri(&address.path)
        .header(HOST, format!("{}:{}", address.host, address.port))
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("plinth/", env!("CARGO_PKG_VERSION")))
        .body(Whole(Bytes::from(body)))
        .map_err(|why| away(&why))?;
    let response = sender.send_request(request).await.map_err(|why| away(&why))?;
    match response.status() {
        status if status.is_success() => Ok(()),
        status @ (StatusCode::BAD_REQUEST
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNPROCESSABLE_ENTITY) => Err(Refusal::Final(format!("status {status}"))),
        status => Err(Refusal::Away(format!("status {status}"))),
    }
}

/// A connection to the first of its addresses that answers.
async fn connect(env: &Env, address: &Address) -> Result<Stream> {
    let mut last = Error::lookup_failed().with_detail(&*address.host);
    for place in env.sockets().resolve(&address.host, address.port).await? {
        match env.sockets().connect(place).await {
            Ok(stream) => return Ok(stream),
            Err(why) => last = why,
        }
    }
    Err(last)
}
