//! Load at a given rate: transactions that come when they come, whether or not earlier ones have ended.
//!
//! A client that waits for its answer before it asks again asks less often when the database is slow, and so hides
//! what it was meant to measure (coordinated omission). Here arrivals are drawn beforehand, independent of each other as
//! those of many users are, and each latency is counted from the arrival, also when nobody had time to begin at once.
//!
//! One thread makes them all. Shortly before an arrival it stays awake, so that the timer's own delay is not measured, but gives way to
//! every other thread that has work: without that, a server on the same two processors answered in a scheduler's time slices.
//! With no rate given it keeps a fixed number under way, through the same code: that is the peak that rates are parts of.

use crate::clients::Client;
use crate::machine::{CpuTimes, CpuUse};
use crate::random::Random;
use crate::tally::Tally;
use crate::{Bench, Error};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use plinth_client::{Database, Transaction};
use plinth_env::reply;
use plinth_env::{Env, Timer, block_on};
use plinth_types::Result;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// Under way at once when the peak is looked for.
pub const PEAK_UNDER_WAY: usize = 100;
/// Under way at once at most; arrivals beyond wait, and their waiting counts.
const UNDER_WAY_MAX: usize = 5_000;
/// So long before an arrival the thread stays awake: longer than a timer is late.
const AWAKE_BEFORE: Duration = Duration::from_micros(300);
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

/// Offers transactions for a while, the first tenth of it uncounted. `transaction` does one, commit included.
pub fn offer<T>(
    bench: &Bench,
    title: &str,
    arrivals: Arrivals,
    time: Duration,
    transaction: T,
) -> crate::Result<Offered>
where
    T: AsyncFn(&Transaction, &mut Client, &Begin<'_>) -> Result<Parts> + Send + 'static,
{
    if bench.stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let began = bench.env.now();
    let begin = began + time / WARM_UP;
    let cpu = CpuTimes::now(&bench.env);
    let task = bench.progress.timed(title, begin + time - began);
    let (promise, reply) = reply::promise();
    let (env, database, stop) = (bench.env.clone(), bench.database.clone(), bench.stop.clone());
    let newcomer =
        Client { random: Random::new(bench.settings.seed, 0), dataset: bench.dataset.clone(), hash: 0 };
    let seed = bench.settings.seed;
    bench.env.spawn("bench-load", async move {
        let run = Run {
            env,
            database,
            stop,
            begin,
            end: begin + time,
            newcomer,
            clients: Cell::new(0),
            idle: RefCell::default(),
            sums: RefCell::new(Sums::default()),
        };
        let schedule = Schedule { random: Random::new(seed, u64::MAX - 2), arrivals, next: began };
        promise.send(block_on(run.all(schedule, &transaction)));
    });
    while !reply.is_ready() {
        block_on(bench.env.sleep(Duration::from_millis(20).min(time)));
        task.set((bench.env.now() - began).as_millis() as u64, String::new());
    }
    let sums = reply.wait()?;
    let elapsed = (bench.env.now() - began).as_secs_f64();
    let cpu = cpu.zip(CpuTimes::now(&bench.env)).map(|(then, now)| now.since(then, elapsed));
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
    /// How many clients there are.
    clients: Cell<u64>,
    /// Those without a transaction.
    idle: RefCell<Vec<Client>>,
    sums: RefCell<Sums>,
}

impl Run {
    /// Begins what arrives and goes on with what is under way, until nothing arrives and all has ended.
    async fn all<T>(self, mut schedule: Schedule, transaction: &T) -> Result<Sums>
    where
        T: AsyncFn(&Transaction, &mut Client, &Begin<'_>) -> Result<Parts>,
    {
        let mut under_way = FuturesUnordered::new();
        let mut alarm = None;
        let result = poll_fn(|context| {
            loop {
                let now = self.env.now();
                let over = now >= self.end || self.stop.load(Ordering::Relaxed);
                if !over {
                    while let Some(arrived) = schedule.take(now, under_way.len()) {
                        under_way.push(self.one(arrived, transaction));
                    }
                }
                match under_way.poll_next_unpin(context) {
                    Poll::Ready(Some(Ok(()))) => {}
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                    Poll::Ready(None) if over => return Poll::Ready(Ok(())),
                    Poll::Ready(None) | Poll::Pending if over => return Poll::Pending,
                    Poll::Ready(None) | Poll::Pending => {
                        alarm = wake_for(&self.env, schedule.due(under_way.len()).min(self.end), context);
                        return Poll::Pending;
                    }
                }
            }
        })
        .await;
        drop((under_way, alarm));
        result.map(|()| self.sums.into_inner())
    }

    /// One transaction, until it succeeds.
    async fn one<T>(&self, arrived: Duration, body: &T) -> Result<()>
    where
        T: AsyncFn(&Transaction, &mut Client, &Begin<'_>) -> Result<Parts>,
    {
        let idle = self.idle.borrow_mut().pop();
        let mut client = idle.unwrap_or_else(|| self.new_client());
        let transaction = self.database.create_transaction();
        let mut begin = Begin { env: &self.env, arrived };
        let mut retries = 0;
        let parts = loop {
            match body(&transaction, &mut client, &begin).await {
                Ok(parts) => break parts,
                Err(error) => transaction.on_error(error).await?,
            }
            retries += 1;
            begin.arrived = self.env.now();
        };
        if arrived >= self.begin {
            let mut sums = self.sums.borrow_mut();
            sums.whole.record(self.env.now() - arrived, parts.operations);
            sums.whole.retries += retries;
            let Sums { start, read, commit, .. } = &mut *sums;
            for (tally, part) in [(start, parts.start), (read, parts.read), (commit, parts.commit)] {
                part.into_iter().for_each(|part| tally.record(part, 1));
            }
        }
        self.sums.borrow_mut().whole.hash ^= std::mem::take(&mut client.hash);
        self.idle.borrow_mut().push(client);
        Ok(())
    }

    fn new_client(&self) -> Client {
        let number = self.clients.replace(self.clients.get() + 1);
        let Client { random, dataset, .. } = &self.newcomer;
        let seed = random.clone().bits();
        Client { random: Random::new(seed, number), dataset: dataset.clone(), hash: 0 }
    }
}

/// Has the task polled again at `at`, or at once if that is soon. What is returned must be kept until then.
fn wake_for(env: &Env, at: Duration, context: &Context<'_>) -> Option<Timer> {
    if at <= env.now() + 2 * AWAKE_BEFORE {
        // Whoever has something to do goes first: on a machine of few processors it may be what this thread waits for.
        std::thread::yield_now();
        context.waker().wake_by_ref();
        return None;
    }
    let waker = context.waker().clone();
    Some(env.call_at(at - AWAKE_BEFORE, move || waker.wake()))
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
        // Nobody looks for a second; then all of that second are there, with the times at which they came.
        let arrived: Vec<Duration> =
            std::iter::from_fn(|| schedule.take(Duration::from_secs(1), 0)).collect();
        assert!((850..1_150).contains(&arrived.len()), "{}", arrived.len());
        assert!(arrived.is_sorted() && arrived.last().is_some_and(|last| last.as_secs_f64() <= 1.0));
        let gaps: Vec<f64> = arrived.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
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
        assert_eq!([0, 1, 2].map(|under_way| schedule.take(now, under_way)), [Some(now), Some(now), None]);
    }
}
