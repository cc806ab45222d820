//! The way between clients and node: function calls, or a line on which messages take time and answers get lost.
//!
//! The lossy line is what a network does to the client library, without the network: requests and answers are late by
//! random times, and so overtake one another; the answer to a commit may be lost although it took effect, its request
//! may be lost, or may arrive long after the client was told that nobody knows. Reads are late, and never lost.

use plinth_client::{Description, Endpoint, ReadVersionReply, ReadVersionRequest};
use plinth_env::Env;
use plinth_env::reply::{Reply, promise};
use plinth_env::simulated::Random;
use plinth_types::{
    Bytes, CommitReply, CommitRequest, Error, KeyList, KeyRange, KeySelector, KeySpace, RangeRead,
    RangeResult, Version, probe,
};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How clients reach the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    /// By function calls: client and node are one process.
    Direct,
    /// By messages that are late and get lost.
    Lossy,
}

const NAMES: [(&str, Link); 2] = [("direct", Link::Direct), ("lossy", Link::Lossy)];

impl Link {
    /// Reads what a spec says: a name, or a list to pick from.
    pub fn read(value: Option<Value>) -> Result<Vec<Self>, String> {
        let list = match value {
            None => return Ok(NAMES.map(|(_, link)| link).to_vec()),
            Some(Value::Array(list)) if !list.is_empty() => list,
            Some(other) => vec![other],
        };
        let known = |name: &Value| NAMES.iter().find(|(known, _)| name == known).map(|(_, link)| *link);
        list.iter().map(|name| known(name).ok_or_else(|| format!("there is no link {name}"))).collect()
    }

    /// An endpoint at the clients' end of the way to `node`.
    pub fn connect(
        self,
        node: Arc<dyn Endpoint>,
        clients: &Env,
        random: &mut Random,
        faulty: bool,
    ) -> Arc<dyn Endpoint> {
        match self {
            Self::Direct => node,
            Self::Lossy => Arc::new(Lossy::new(node, clients.clone(), random, faulty)),
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
    RequestLate,
}

struct Lossy {
    node: Arc<dyn Endpoint>,
    env: Env,
    weather: Arc<Mutex<Weather>>,
}

impl Lossy {
    fn new(node: Arc<dyn Endpoint>, env: Env, random: &mut Random, faulty: bool) -> Self {
        let usual = Duration::from_micros([20, 300, 3_000][random.index(3)]);
        let loss = if faulty { [0.0, 0.02, 0.2][random.index(3)] } else { 0.0 };
        let weather = Weather { random: random.split(), usual, loss };
        Self { node, env, weather: Arc::new(Mutex::new(weather)) }
    }

    fn weather<T>(&self, ask: impl FnOnce(&mut Weather) -> T) -> T {
        ask(&mut self.weather.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn after(&self, delay: Duration, then: impl FnOnce() + Send + 'static) {
        self.env.call_at(self.env.now() + delay, then).detach();
    }

    /// Asks later, and gives the answer later still.
    fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn Endpoint) -> Reply<T> + Send + 'static,
    ) -> Reply<T> {
        let (there, back) = self.weather(|weather| (weather.delay(), weather.delay()));
        let (promise, reply) = promise();
        let (node, env) = (self.node.clone(), self.env.clone());
        self.after(there, move || {
            ask(&*node).on_complete(move |result| {
                env.call_at(env.now() + back, move || promise.send(result)).detach();
            });
        });
        reply
    }

    /// Fails the way a client sees a connection break.
    fn broken<T: Send + 'static>(&self) -> Reply<T> {
        let (promise, reply) = promise();
        let delay = self.weather(Weather::delay);
        self.after(delay, move || promise.send(Err(Error::connection_failed())));
        reply
    }

    fn fate(&self) -> Fate {
        self.weather(|weather| {
            if !weather.random.chance(weather.loss) {
                return Fate::Answered;
            }
            match weather.random.below(3) {
                0 => Fate::AnswerLost,
                1 => Fate::RequestLost,
                _ => Fate::RequestLate,
            }
        })
    }
}

impl Endpoint for Lossy {
    fn env(&self) -> &Env {
        &self.env
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        self.ask(move |node| node.read_version(request))
    }

    fn get_many(&self, version: Version, space: KeySpace, keys: &KeyList) -> Reply<Vec<Option<Bytes>>> {
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
        match self.fate() {
            Fate::Answered => self.ask(move |node| node.commit(request)),
            Fate::AnswerLost => {
                probe!("link: answer to a commit lost");
                let node = self.node.clone();
                let there = self.weather(Weather::delay);
                self.after(there, move || drop(node.commit(request)));
                self.broken()
            }
            Fate::RequestLost => {
                probe!("link: commit lost");
                self.broken()
            }
            Fate::RequestLate => {
                probe!("link: commit late");
                let node = self.node.clone();
                let there = self.weather(|weather| weather.random.below(LATEST.as_micros() as u64));
                self.after(Duration::from_micros(there), move || drop(node.commit(request)));
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
        self.node.addresses_for_key(key)
    }

    fn describe(&self) -> Description {
        self.node.describe()
    }

    fn status_json(&self) -> Reply<String> {
        self.ask(|node| node.status_json())
    }
}
