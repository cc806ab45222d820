//! Clients that do what clients do, and a probe, beside the attackers: what they wait for, and
//! whether what they are told is right.
//!
//! Each counts in a key of its own, so it knows what it has to find there. A time is that of a
//! whole transaction, from its begin until its commit is acknowledged, with all that was tried
//! again.

use super::arena::Arena;
use super::attacks::Door;
use super::wire::{Over, Wire, within};
use crate::servers::told;
use plinth_client::Database;
use plinth_env::{Env, Task, block_on};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Between two transactions of a client.
const PAUSE: Duration = Duration::from_millis(2);
/// Between two probes, and how long one may take.
const PROBE: Duration = Duration::from_secs(1);

/// One transaction: when it was acknowledged, and how long after its begin.
type Done = (Duration, Duration);

/// What is shared with the clients' tasks.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    done: Mutex<Vec<Done>>,
    wrong: Mutex<Option<String>>,
    answered: AtomicU64,
    asked: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What good clients waited for in a time.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Stay {
    /// Transactions.
    pub(super) count: usize,
    pub(super) rate: f64,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) longest: Duration,
}

impl fmt::Display for Stay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, rate, p50, p99, longest } = self;
        let ms = |time: &Duration| time.as_secs_f64() * 1e3;
        write!(
            f,
            "{count:>8} transactions, {rate:>6.0} a second; p50 {:.2} ms, p99 {:.2} ms, longest {:.1} ms",
            ms(p50),
            ms(p99),
            ms(longest)
        )
    }
}

/// All that they saw.
pub(super) struct Seen {
    done: Vec<Done>,
    pub(super) probes: (u64, u64),
}

impl Seen {
    /// What they waited for in a time.
    ///
    /// # Errors
    /// If none of them got an answer.
    pub(super) fn stay(&self, from: Duration, to: Duration) -> Result<Stay, String> {
        let within = self.done.iter().filter(|(at, _)| (from..to).contains(at));
        let mut took: Vec<Duration> = within.map(|(_, took)| *took).collect();
        took.sort_unstable();
        let at = |part: f64| took.get((took.len() as f64 * part) as usize).copied();
        let (Some(p50), Some(p99), Some(longest)) = (at(0.5), at(0.99), took.last()) else {
            let seconds = (to - from).as_secs_f64();
            return Err(format!("no good client was answered for {seconds:.1} seconds"));
        };
        let rate = took.len() as f64 / (to - from).as_secs_f64();
        Ok(Stay { count: took.len(), rate, p50, p99, longest: *longest })
    }
}

/// Clients at work.
pub(super) struct Good {
    shared: Arc<Shared>,
    tasks: Vec<Task>,
}

impl Good {
    pub(super) fn begin(env: &Env, arena: &Arena, count: u64) -> Result<Self, String> {
        let shared = Arc::new(Shared::default());
        let mut tasks = Vec::new();
        for client in 0..count {
            let work = work(env.clone(), arena.database()?, client, shared.clone());
            tasks.push(env.spawn("good-client", work));
        }
        let probe = probe(env.clone(), arena.doors.at(Door::Http), shared.clone());
        tasks.push(env.spawn("probe", probe));
        Ok(Self { shared, tasks })
    }

    /// Has them end.
    ///
    /// # Errors
    /// What was wrong in what they were told.
    pub(super) fn end(self) -> Result<Seen, String> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            block_on(task).map_err(told("a good client"))?;
        }
        if let Some(wrong) = lock(&self.shared.wrong).take() {
            return Err(wrong);
        }
        let done = std::mem::take(&mut *lock(&self.shared.done));
        let [answered, asked] = [&self.shared.answered, &self.shared.asked];
        Ok(Seen { done, probes: (answered.load(Ordering::Relaxed), asked.load(Ordering::Relaxed)) })
    }
}

/// Counts in a key of its own, and must find there what it has counted to.
async fn work(env: Env, db: Database, client: u64, shared: Arc<Shared>) {
    let key = [b"good/", &client.to_be_bytes()[..]].concat();
    let mut number = 0_u64;
    while !shared.stop.load(Ordering::Relaxed) && lock(&shared.wrong).is_none() {
        let begin = env.now();
        let found = db
            .transact(async |tr| {
                let found = tr.get(&key[..]).await?;
                tr.set(&key[..], (number + 1).to_be_bytes());
                Ok(found.and_then(|found| found[..].try_into().ok()).map_or(0, u64::from_be_bytes))
            })
            .await;
        match found {
            // A commit whose fate was unknown may have come to be before it was tried again.
            Ok(found) if found == number || found == number + 1 => number += 1,
            Ok(found) => {
                let wrong = format!("good client {client} reads {found} where it wrote {number}");
                lock(&shared.wrong).get_or_insert(wrong);
            }
            Err(error) => {
                lock(&shared.wrong).get_or_insert(format!("good client {client}: {error}"));
            }
        }
        let end = env.now();
        lock(&shared.done).push((end, end - begin));
        env.sleep(PAUSE).await;
    }
}

/// Asks each second whether the server is well, as whoever kills it otherwise does.
async fn probe(env: Env, http: SocketAddr, shared: Arc<Shared>) {
    while !shared.stop.load(Ordering::Relaxed) {
        let is_well = within(&env, PROBE, healthy(&env, http)).await;
        shared.asked.fetch_add(1, Ordering::Relaxed);
        shared.answered.fetch_add(u64::from(is_well.is_ok_and(|it| it.is_ok())), Ordering::Relaxed);
        env.sleep(PROBE).await;
    }
}

async fn healthy(env: &Env, http: SocketAddr) -> Result<(), Over> {
    let mut wire = Wire::connect(env, http).await?;
    wire.send(format!("GET /health HTTP/1.1\r\nHost: {http}\r\n\r\n").as_bytes()).await?;
    let len = wire.receive().await?;
    if wire.received(len).starts_with(b"HTTP/1.1 200") { Ok(()) } else { Err(Over) }
}
