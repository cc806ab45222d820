//! Load at a given rate: transactions that come when they come, whether or not earlier ones have
//! ended.
//!
//! A client that waits for its answer before it asks again asks less often when the database is
//! slow, and so hides what it was meant to measure (coordinated omission). Here arrivals are drawn
//! beforehand, independent of each other as those of many users are, and each latency is counted
//! from the arrival, also when nobody had time to begin at once.
//!
//! Tasks make them, in the same threads that serve the connections to a server, so that answers
//! come without a hand-over (see `clients.rs`); of a database in the process, one task. Between
//! arrivals and answers a thread sleeps. How late it is woken counts as latency, some fifty
//! microseconds on a virtual processor. A thread that stays awake instead takes a processor from
//! the server beside it. With no rate given it keeps a fixed number under way, through the same
//! code: that is the peak that rates are parts of.

use crate::alarm::Alarm;
use crate::clients::Client;
use crate::load::lock;
use crate::machine::{CpuTimes, CpuUse};
use crate::random::Random;
use crate::tally::Tally;
use crate::{Bench, Error};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use plinth_client::{Database, Transaction};
use plinth_env::reply::{self, Reply};
use plinth_env::{Env, block_on};
use plinth_types::Result;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

/// Under way at once when the peak is looked for.
pub const PEAK_UNDER_WAY: usize = 100;
/// Under way at once at most; arrivals beyond wait, and their waiting counts.
const UNDER_WAY_MAX: usize = 5_000;
/// The part of the time that warms up, and is not counted.
const WARM_UP: u32 = 10;

/// How transactions arrive.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Arrivals {
    /// So many a second on average, independent of each other.
    PerSecond(f64),
    /// Whenever fewer than so many are under way.
    UnderWay(usize),
}

impl Arrivals {
    /// The part of each of so many generators.
    fn shared_by(self, generators: usize) -> Self {
        match self {
            Self::PerSecond(rate) => Self::PerSecond(rate / generators as f64),
            Self::UnderWay(most) => Self::UnderWay(most.div_ceil(generators)),
        }
    }
}

/// When a transaction should have begun, and the clock to time its parts by.
pub struct Begin<'a> {
    /// The clock.
    pub env: &'a Env,
    /// When it arrived.
    pub arrived: Duration,
}

/// How long the parts of a transaction took, those that it had.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Parts {
    /// From its arrival until it had its read version.
    pub start: Option<Duration>,
    /// One read.
    pub read: Option<Duration>,
    /// The commit.
    pub commit: Option<Duration>,
    /// Operations: reads and writes.
    pub operations: u64,
}

/// What a load at some rate gave.
pub struct Offered {
    /// Whole transactions, from their arrival to their end, retries included.
    pub whole: Tally,
    /// From the arrival to the read version.
    pub start: Tally,
    /// Single reads.
    pub read: Tally,
    /// Commits.
    pub commit: Tally,
    /// Transactions a second that ended.
    pub rate: f64,
    /// How busy the processors were, where that can be known.
    pub cpu: Option<CpuUse>,
}

/// A kind of transactions.
pub trait Kind: Send + Sync + 'static {
    /// Does one, commit included.
    fn run(
        &self,
        transaction: &Transaction,
        client: &mut Client,
        begin: &Begin<'_>,
    ) -> impl Future<Output = Result<Parts>> + Send;
}

/// Offers transactions for a while, the first tenth of it uncounted.
pub fn offer(
    bench: &Bench,
    title: &str,
    arrivals: Arrivals,
    time: Duration,
    kind: impl Kind,
) -> crate::Result<Offered> {
    if bench.stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let began = bench.env.now();
    let begin = began + time / WARM_UP;
    let cpu = CpuTimes::now(&bench.env, bench.process());
    let task = bench.progress.timed(title, begin + time - began);
    let generators = if bench.is_served() { bench.env.network_threads() } else { 1 };
    let kind = Arc::new(kind);
    let mut replies = Vec::new();
    for number in 0..generators {
        let (promise, reply) = reply::promise();
        let run = Run::new(bench, number as u64, begin..begin + time);
        let random = Random::new(bench.settings.seed, u64::MAX - 2 - number as u64);
        let schedule = Schedule { random, arrivals: arrivals.shared_by(generators), next: began };
        let kind = kind.clone();
        bench.env.spawn_network("bench-load", async move {
            promise.send(run.all(schedule, &*kind).await);
        });
        replies.push(reply);
    }
    while !replies.iter().all(Reply::is_ready) {
        block_on(bench.env.sleep(Duration::from_millis(20).min(time)));
        task.set((bench.env.now() - began).as_millis() as u64, String::new());
    }
    let mut sums = Sums::default();
    for reply in replies {
        sums.add(&reply.wait()?);
    }
    let elapsed = (bench.env.now() - began).as_secs_f64();
    let cpu = cpu
        .zip(CpuTimes::now(&bench.env, bench.process()))
        .map(|(then, now)| now.since(then, elapsed));
    if bench.stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let Sums { whole, start, read, commit } = sums;
    let rate = whole.transactions as f64 / time.as_secs_f64();
    Ok(Offered { whole, start, read, commit, rate, cpu })
}

struct Sums {
    whole: Tally,
    start: Tally,
    read: Tally,
    commit: Tally,
}

impl Default for Sums {
    fn default() -> Self {
        let [whole, start, read, commit] = std::array::from_fn(|_| Tally::new(0));
        Self { whole, start, read, commit }
    }
}

impl Sums {
    fn add(&mut self, other: &Self) {
        let Self { whole, start, read, commit } = self;
        let others = [&other.whole, &other.start, &other.read, &other.commit];
        for (tally, other) in [whole, start, read, commit].into_iter().zip(others) {
            tally.add(other);
        }
    }
}

/// When transactions arrive.
struct Schedule {
    random: Random,
    arrivals: Arrivals,
    next: Duration,
}

impl Schedule {
    /// When to look again, even if nothing ends before.
    fn due(&self, under_way: usize) -> Duration {
        match self.arrivals {
            Arrivals::PerSecond(_) if under_way < UNDER_WAY_MAX => self.next,
            // Only the end of a transaction makes room.
            _ => Duration::MAX,
        }
    }

    /// The arrival that is due, if one is; the one after it is drawn.
    fn take(&mut self, now: Duration, under_way: usize) -> Option<Duration> {
        match self.arrivals {
            Arrivals::UnderWay(most) => (under_way < most).then_some(now),
            Arrivals::PerSecond(_) if now < self.next || under_way >= UNDER_WAY_MAX => None,
            Arrivals::PerSecond(rate) => {
                let due = self.next;
                // Uniform in (0, 1], so that its logarithm is finite.
                let uniform = ((self.random.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
                self.next += Duration::from_secs_f64((-uniform.ln() / rate).min(3_600.0));
                Some(due)
            }
        }
    }
}

struct Run {
    env: Env,
    database: Database,
    stop: Arc<AtomicBool>,
    /// When counting begins, and when arrivals end.
    begin: Duration,
    end: Duration,
    newcomer: Client,
    /// The next client's number.
    clients: AtomicU64,
    /// Those without a transaction. All this is one task's; what it awaits may move between
    /// threads, hence the locks.
    idle: Mutex<Vec<Client>>,
    sums: Mutex<Sums>,
}

impl Run {
    /// The generator of this number, between two moments.
    fn new(bench: &Bench, number: u64, during: Range<Duration>) -> Self {
        let Bench { env, database, stop, dataset, .. } = bench;
        Self {
            env: env.clone(),
            database: database.clone(),
            stop: stop.clone(),
            begin: during.start,
            end: during.end,
            newcomer: Client {
                random: Random::new(bench.next_seed(), 0),
                dataset: dataset.clone(),
                hash: 0,
            },
            clients: AtomicU64::new(number << 32),
            idle: Mutex::default(),
            sums: Mutex::default(),
        }
    }

    /// Begins what arrives and goes on with what is under way, until nothing arrives and all has
    /// ended.
    async fn all(self, mut schedule: Schedule, kind: &impl Kind) -> Result<Sums> {
        let mut under_way = FuturesUnordered::new();
        let mut alarm = Alarm::new(&self.env)?;
        let result = poll_fn(|context| {
            loop {
                let now = self.env.now();
                let over = now >= self.end || self.stop.load(Ordering::Relaxed);
                if !over {
                    while let Some(arrived) = schedule.take(now, under_way.len()) {
                        under_way.push(self.one(arrived, kind));
                    }
                }
                match under_way.poll_next_unpin(context) {
                    Poll::Ready(Some(Ok(()))) => {}
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                    Poll::Ready(None) if over => return Poll::Ready(Ok(())),
                    Poll::Ready(None) | Poll::Pending if over => return Poll::Pending,
                    Poll::Ready(None) | Poll::Pending => {
                        alarm.set(schedule.due(under_way.len()).min(self.end), context);
                        return Poll::Pending;
                    }
                }
            }
        })
        .await;
        drop(under_way);
        result.map(|()| std::mem::take(&mut *lock(&self.sums)))
    }

    /// One transaction, until it succeeds.
    async fn one(&self, arrived: Duration, kind: &impl Kind) -> Result<()> {
        let idle = lock(&self.idle).pop();
        let mut client = idle.unwrap_or_else(|| self.new_client());
        let transaction = self.database.create_transaction();
        let mut begin = Begin { env: &self.env, arrived };
        let mut retries = 0;
        let parts = loop {
            match kind.run(&transaction, &mut client, &begin).await {
                Ok(parts) => break parts,
                Err(error) => transaction.on_error(error).await?,
            }
            retries += 1;
            begin.arrived = self.env.now();
        };
        let mut sums = lock(&self.sums);
        if arrived >= self.begin {
            sums.whole.record(self.env.now() - arrived, parts.operations);
            sums.whole.retries += retries;
            let Sums { start, read, commit, .. } = &mut *sums;
            for (tally, part) in [(start, parts.start), (read, parts.read), (commit, parts.commit)]
            {
                part.into_iter().for_each(|part| tally.record(part, 1));
            }
        }
        sums.whole.hash ^= std::mem::take(&mut client.hash);
        lock(&self.idle).push(client);
        Ok(())
    }

    fn new_client(&self) -> Client {
        let number = self.clients.fetch_add(1, Ordering::Relaxed);
        let Client { random, dataset, .. } = &self.newcomer;
        let seed = random.clone().bits();
        Client { random: Random::new(seed, number), dataset: dataset.clone(), hash: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_come_at_their_rate_whoever_is_late() {
        let mut schedule = Schedule {
            random: Random::new(1, 1),
            arrivals: Arrivals::PerSecond(1_000.0),
            next: Duration::ZERO,
        };
        // Nobody looks for a second; then all of that second are there, with the times at which
        // they came.
        let arrived: Vec<Duration> =
            std::iter::from_fn(|| schedule.take(Duration::from_secs(1), 0)).collect();
        assert!((850..1_150).contains(&arrived.len()), "{}", arrived.len());
        assert!(
            arrived.is_sorted() && arrived.last().is_some_and(|last| last.as_secs_f64() <= 1.0)
        );
        let gaps: Vec<f64> =
            arrived.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
        // Of independent arrivals, those closer than the mean are more than half.
        let close = gaps.iter().filter(|&&gap| gap < 1e-3).count();
        assert!((55..72).contains(&(close * 100 / gaps.len())), "{close} of {}", gaps.len());
        assert_eq!(schedule.take(Duration::from_secs(9), UNDER_WAY_MAX), None, "the rest waits");
    }

    #[test]
    fn a_number_under_way_is_kept_and_not_exceeded() {
        let arrivals = Arrivals::UnderWay(2);
        let mut schedule = Schedule { random: Random::new(1, 1), arrivals, next: Duration::ZERO };
        let now = Duration::from_secs(5);
        assert_eq!(
            [0, 1, 2].map(|under_way| schedule.take(now, under_way)),
            [Some(now), Some(now), None]
        );
    }
}
