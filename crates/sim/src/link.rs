//! The way between clients and node: function calls, a line on which messages take time and answers
//! get lost, or the product's own sockets on the simulated network.
//!
//! The lossy line is what a network does to the client library, without the network: requests and
//! answers are late by random times, and so overtake one another; the answer to a commit may be
//! lost although it took effect, its request may be lost, or may arrive long after the client was
//! told that nobody knows. Reads are late, and never lost.

use crate::stage::lock;
use plinth_client::{Description, Endpoint, Newest, Pinned, ReadVersionReply, ReadVersionRequest};
use plinth_env::Env;
use plinth_env::reply::{Reply, promise};
use plinth_env::simulated::Random;
use plinth_types::{
    Bytes, Changes, ChangesRequest, CommitReply, CommitRequest, Error, KeyList, KeyRange,
    KeySelector, KeySpace, Quorum, RangeRead, RangeResult, Result, Standing, Version, probe,
};
use serde_json::Value;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// How clients reach the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    /// By function calls: client and node are one process.
    Direct,
    /// By messages that are late and get lost.
    Lossy,
    /// By the product's own server and client, over the simulated network.
    Network,
    /// The same, with a machine in between that has commits arrive twice.
    Doubled,
}

const NAMES: [(&str, Link); 4] = [
    ("direct", Link::Direct),
    ("lossy", Link::Lossy),
    ("network", Link::Network),
    ("doubled", Link::Doubled),
];

/// Those that runs are drawn from where a spec doesn't say.
const USUAL: [Link; 2] = [Link::Direct, Link::Lossy];

impl Link {
    /// Whether clients come over sockets.
    pub fn is_network(self) -> bool {
        matches!(self, Self::Network | Self::Doubled)
    }

    /// Reads what a spec says: a name, or a list to pick from.
    pub fn read(value: Option<Value>) -> std::result::Result<Vec<Self>, String> {
        let list = match value {
            None => return Ok(USUAL.to_vec()),
            Some(Value::Array(list)) if !list.is_empty() => list,
            Some(other) => vec![other],
        };
        let known =
            |name: &Value| NAMES.iter().find(|(known, _)| name == known).map(|(_, link)| *link);
        list.iter()
            .map(|name| known(name).ok_or_else(|| format!("there is no link {name}")))
            .collect()
    }

    /// The clients' end of the way to `node`; answers get lost on it only if `faulty`.
    pub fn connect(
        self,
        node: Arc<dyn Endpoint>,
        clients: &Env,
        random: &mut Random,
        faulty: bool,
    ) -> Line {
        let may_lose_answers = node.may_lose_answers();
        let own = node.env().clone();
        let (node, pinned) = (Arc::new(Mutex::new(Some(node))), Arc::default());
        match self {
            Self::Lossy => {
                let weather = Some(Arc::new(Mutex::new(Weather::draw(random, faulty))));
                Line { node, env: clients.clone(), weather, may_lose_answers: true, pinned }
            }
            Self::Direct | Self::Network | Self::Doubled => {
                Line { node, env: own, weather: None, may_lose_answers, pinned }
            }
        }
    }
}

/// How much later than its sender's despair a request may still arrive.
pub(crate) const LATEST: Duration = Duration::from_millis(200);

struct Weather {
    random: Random,
    /// The longest that most messages take.
    usual: Duration,
    /// The probability that a commit's request or answer is lost.
    loss: f64,
}

impl Weather {
    fn draw(random: &mut Random, faulty: bool) -> Self {
        let usual = Duration::from_micros([20, 300, 3_000][random.index(3)]);
        let loss = if faulty { [0.0, 0.02, 0.2][random.index(3)] } else { 0.0 };
        Self { random: random.split(), usual, loss }
    }

    fn fate(&mut self) -> Fate {
        if !self.random.chance(self.loss) {
            return Fate::Answered;
        }
        match self.random.below(3) {
            0 => Fate::AnswerLost,
            1 => Fate::RequestLost,
            _ => Fate::RequestLate(Duration::from_micros(
                self.random.below(LATEST.as_micros() as u64),
            )),
        }
    }

    fn delay(&mut self) -> Duration {
        let most = if self.random.chance(0.02) { 20 * self.usual } else { self.usual };
        Duration::from_nanos(self.random.below(most.as_nanos() as u64 + 1))
    }
}

/// What becomes of a commit's request and answer.
enum Fate {
    Answered,
    AnswerLost,
    RequestLost,
    RequestLate(Duration),
}

/// Who is at the other end, or nobody once that life has ended: what waits for its answers must not
/// keep its memory.
type Other = Mutex<Option<Arc<dyn Endpoint>>>;

/// The clients' end of the way to one life of the node.
#[derive(Clone)]
pub(crate) struct Line {
    node: Arc<Other>,
    env: Env,
    /// `None`: function calls.
    weather: Option<Arc<Mutex<Weather>>>,
    may_lose_answers: bool,
    /// The versions pinned over it that somebody still holds: they end with that life, too.
    pinned: Arc<Mutex<Vec<Weak<Other>>>>,
}

impl Line {
    /// Nothing is asked of the node any more, and it is let go.
    pub fn cut(&self) {
        let node = lock(&self.node).take();
        drop(node);
        for pinned in std::mem::take(&mut *lock(&self.pinned)) {
            let snapshot = pinned.upgrade().and_then(|pinned| lock(&pinned).take());
            drop(snapshot);
        }
    }

    /// A pinned version, reached by the same way; nobody holds one whose node's life has ended.
    fn to_pinned(&self, Pinned { version, endpoint }: Pinned) -> Result<Pinned> {
        if lock(&self.node).is_none() {
            return Err(Error::broken_promise());
        }
        let node = Arc::new(Mutex::new(Some(endpoint)));
        let mut pinned = lock(&self.pinned);
        pinned.retain(|pinned| pinned.strong_count() > 0);
        pinned.push(Arc::downgrade(&node));
        let line = Self { node, may_lose_answers: false, pinned: Arc::default(), ..self.clone() };
        Ok(Pinned { version, endpoint: Arc::new(line) })
    }

    fn weather<T>(&self, ask: impl FnOnce(&mut Weather) -> T) -> Option<T> {
        self.weather.as_ref().map(|weather| ask(&mut lock(weather)))
    }

    /// Asks the node, now or later, and gives the answer later still.
    fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn Endpoint) -> Reply<T> + Send + 'static,
    ) -> Reply<T> {
        let Some((there, back)) = self.weather(|weather| (weather.delay(), weather.delay())) else {
            let node = lock(&self.node).clone();
            return node
                .map_or_else(|| Reply::ready(Err(Error::broken_promise())), |node| ask(&*node));
        };
        let (promise, reply) = promise();
        let env = self.env.clone();
        self.arrive(there, move |node| {
            ask(node).on_complete(move |result| {
                env.call_at(env.now() + back, move || promise.send(result)).detach();
            });
        });
        reply
    }

    /// Has something arrive at the node after a time, if it lives then.
    fn arrive(&self, delay: Duration, then: impl FnOnce(&dyn Endpoint) + Send + 'static) {
        let node = self.node.clone();
        let arrives = move || {
            let node = lock(&node).clone();
            if let Some(node) = node {
                then(&*node);
            }
        };
        self.env.call_at(self.env.now() + delay, arrives).detach();
    }

    /// Fails the way a client sees a connection break.
    fn broken<T: Send + 'static>(&self) -> Reply<T> {
        let (promise, reply) = promise();
        let delay = self.weather(Weather::delay).unwrap_or_default();
        self.env
            .call_at(self.env.now() + delay, move || promise.send(Err(Error::connection_failed())))
            .detach();
        reply
    }
}

impl Endpoint for Line {
    fn env(&self) -> &Env {
        &self.env
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        self.ask(move |node| node.read_version(request))
    }

    fn counted_read_version(
        &self,
        request: ReadVersionRequest,
    ) -> Reply<(ReadVersionReply, Option<Quorum>)> {
        self.ask(move |node| node.counted_read_version(request))
    }

    fn get_newest(&self, lock_aware: bool, space: KeySpace, keys: &KeyList) -> Reply<Newest> {
        let keys = keys.clone();
        self.ask(move |node| node.get_newest(lock_aware, space, &keys))
    }

    fn standing(&self) -> Option<Standing> {
        let node = lock(&self.node).clone();
        node.and_then(|node| node.standing())
    }

    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        let keys = keys.clone();
        self.ask(move |node| node.get_many(version, space, &keys))
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        let selector = selector.clone();
        self.ask(move |node| node.get_key(version, space, &selector))
    }

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        let read = read.clone();
        self.ask(move |node| node.get_range(version, space, &read))
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        match self.weather(Weather::fate).unwrap_or(Fate::Answered) {
            Fate::Answered => self.ask(move |node| node.commit(request)),
            Fate::AnswerLost => {
                probe!("link: answer to a commit lost");
                let there = self.weather(Weather::delay).unwrap_or_default();
                self.arrive(there, move |node| drop(node.commit(request)));
                self.broken()
            }
            Fate::RequestLost => {
                probe!("link: commit lost");
                self.broken()
            }
            Fate::RequestLate(after) => {
                probe!("link: commit late");
                self.arrive(after, move |node| drop(node.commit(request)));
                self.broken()
            }
        }
    }

    fn watch(&self, key: Bytes, value: Option<Bytes>, version: Version) -> Reply<Version> {
        self.ask(move |node| node.watch(key, value, version))
    }

    fn range_size(&self, range: KeyRange) -> Reply<i64> {
        self.ask(move |node| node.range_size(range))
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        self.ask(move |node| node.split_points(range, chunk))
    }

    fn addresses_for_key(&self, key: &[u8]) -> Reply<Vec<String>> {
        let key = key.to_vec();
        self.ask(move |node| node.addresses_for_key(&key))
    }

    fn describe(&self) -> Description {
        let node = lock(&self.node).clone();
        node.map(|node| node.describe()).unwrap_or_default()
    }

    fn status_json(&self) -> Reply<String> {
        self.ask(|node| node.status_json())
    }

    fn read_changes(&self, request: ChangesRequest) -> Reply<Changes> {
        self.ask(move |node| node.read_changes(request))
    }

    fn pin_snapshot(&self) -> Reply<Pinned> {
        let (done, reply) = promise();
        let line = self.clone();
        self.ask(|node| node.pin_snapshot())
            .on_complete(move |pinned| done.send(pinned.and_then(|pinned| line.to_pinned(pinned))));
        reply
    }

    fn may_lose_answers(&self) -> bool {
        self.may_lose_answers
    }
}
