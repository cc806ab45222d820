//! Drives a workload: so many clients on so many threads, each one transaction after the other, for
//! a while.
//!
//! A client is a task. Each thread has a small executor of its own that polls its clients in turn,
//! so a hundred clients cost no hundred threads, and no work is passed between threads that the
//! database doesn't pass itself. A client gives way after each transaction even if nothing made it
//! wait: then all of them are under way at once, as they would be were they a hundred programs.
//!
//! Where the database is a server's, the threads are those that serve the connections to it, so
//! that answers come to the clients without a hand-over; FoundationDB's own `mako --async` runs on
//! its client's network thread in the same way. Clients that block, or read ranges, have threads of
//! their own there too.

use crate::dataset::Dataset;
use crate::load::{TICK, lock};
use crate::machine::{CpuOfSlices, CpuTimes, CpuUse};
use crate::outcome::Measurement;
use crate::plan::Plan;
use crate::random::Random;
use crate::tally::Tally;
use crate::words;
use crate::{Bench, Error};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use plinth_client::{Database, Transaction};
use plinth_env::reply::{self, Reply};
use plinth_env::{Env, block_on};
use plinth_types::Result;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

/// Longest warm-up.
const WARM_UP_MAX: Duration = Duration::from_secs(1);

/// What a client's transaction has at hand.
pub struct Client {
    /// Its random numbers.
    pub random: Random,
    /// The rows there are.
    pub dataset: Dataset,
    /// Of everything it read.
    pub hash: u64,
}

impl Client {
    /// Takes note of something read.
    #[inline]
    pub fn saw(&mut self, bytes: &[u8]) {
        let first = bytes.first().copied().unwrap_or_default();
        self.hash = self.hash.rotate_left(5) ^ (bytes.len() as u64) ^ (u64::from(first) << 8);
    }
}

/// What clients do, over and over.
pub trait Work: Clone + Send + Sync + 'static {
    /// Whether its threads are its own with a server too: because it blocks them, or has much to do
    /// with what it reads.
    const OWN_THREADS: bool = false;

    /// Does its reads and writes once, commits, and says how many operations that were.
    fn once(
        &self,
        transaction: &Transaction,
        client: &mut Client,
    ) -> impl Future<Output = Result<u64>> + Send;
}

/// What all clients of a run share.
struct Run {
    env: Env,
    database: Database,
    dataset: Dataset,
    seed: u64,
    /// When counting begins, and when everything ends.
    begin: Duration,
    end: Duration,
    slices: usize,
    stop: Arc<AtomicBool>,
    progress: Vec<Counter>,
}

/// One thread's operations so far, on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// Has clients do their work for as long as `plan` says. An attempt that fails with an error that
/// allows another is made again, and counted.
pub fn drive<W: Work>(bench: &Bench, plan: &Plan, work: W) -> crate::Result<Measurement> {
    if bench.stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let threads = plan.threads.clamp(1, plan.clients.max(1));
    let begin = bench.env.now() + (plan.time / 10).min(WARM_UP_MAX);
    let run = Arc::new(Run {
        env: bench.env.clone(),
        database: bench.database.clone(),
        dataset: bench.dataset.clone(),
        seed: bench.next_seed(),
        begin,
        end: begin + plan.time,
        slices: plan.slices,
        stop: bench.stop.clone(),
        progress: (0..threads).map(|_| Counter::default()).collect(),
    });
    let cpu = CpuTimes::now(&bench.env, bench.process());
    let began = bench.env.now();
    let mut replies = Vec::new();
    for thread in 0..threads {
        let (promise, reply) = reply::promise();
        let (run, work, clients) = (run.clone(), work.clone(), plan.clients);
        let task = async move {
            let mine = (thread..clients).step_by(threads);
            promise.send(run.thread(thread, mine, &work).await);
        };
        match bench.is_served() && !W::OWN_THREADS {
            true => bench.env.spawn_network("bench-clients", task),
            false => bench.env.spawn("bench-clients", task),
        };
        replies.push(reply);
    }
    let cpu_of_slices = watch(bench, plan, &run, &replies);
    let mut sum = Tally::new(plan.slices);
    for reply in replies {
        sum.add(&reply.wait()?);
    }
    let elapsed = (bench.env.now() - began).as_secs_f64();
    let cpu = cpu
        .zip(CpuTimes::now(&bench.env, bench.process()))
        .map(|(then, now)| now.since(then, elapsed));
    if bench.stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    Ok(Measurement {
        clients: plan.clients,
        threads,
        time: plan.time,
        tally: sum,
        cpu,
        cpu_of_slices,
    })
}

/// Shows progress until every thread is done. Gives how busy the processors were in each slice.
fn watch(bench: &Bench, plan: &Plan, run: &Run, replies: &[Reply<Tally>]) -> Vec<CpuUse> {
    let mut slices = CpuOfSlices::new(run.begin, run.end, plan.slices);
    let task = bench.progress.timed(&plan.title, run.end.saturating_sub(bench.env.now()));
    let began = bench.env.now();
    let (mut before, mut then) = (0, began);
    while !replies.iter().all(Reply::is_ready) {
        let tick = TICK.min(run.end.saturating_sub(bench.env.now()).max(Duration::from_millis(1)));
        block_on(bench.env.sleep(tick));
        slices.look(&bench.env, bench.process());
        let now = bench.env.now();
        if now - then >= 5 * TICK {
            let done =
                run.progress.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum::<u64>();
            let rate = (done - before) as f64 / (now - then).as_secs_f64();
            task.set((now - began).as_millis() as u64, format!("{}/s", words::short(rate)));
            (before, then) = (done, now);
        }
    }
    slices.look(&bench.env, bench.process());
    slices.finish()
}

impl Run {
    /// All clients of one thread.
    async fn thread(
        &self,
        thread: usize,
        clients: impl Iterator<Item = usize>,
        work: &impl Work,
    ) -> Result<Tally> {
        // One task's alone; the lock is there because a task may move between threads.
        let tally = Mutex::new(Tally::new(self.slices));
        let client = |number| self.client(number, thread, work, &tally);
        let mut clients: FuturesUnordered<_> = clients.map(client).collect();
        let mut failure = None;
        while let Some(result) = clients.next().await {
            if let Err(error) = result {
                self.stop.store(true, Ordering::Relaxed);
                failure.get_or_insert(error);
            }
        }
        drop(clients);
        failure.map_or_else(|| Ok(tally.into_inner().unwrap_or_else(PoisonError::into_inner)), Err)
    }

    /// One client, until the end.
    async fn client(
        &self,
        number: usize,
        thread: usize,
        work: &impl Work,
        tally: &Mutex<Tally>,
    ) -> Result<()> {
        let random = Random::new(self.seed, number as u64);
        let mut client = Client { random, dataset: self.dataset.clone(), hash: 0 };
        let (mut total_retries, mut counted) = (0, 0);
        loop {
            let began = self.env.now();
            if began >= self.end || self.stop.load(Ordering::Relaxed) {
                break;
            }
            let (operations, retries) = self.until_success(work, &mut client).await?;
            total_retries += retries;
            let ended = self.env.now();
            if ended >= self.begin && ended < self.end {
                counted += 1;
                let mut tally = lock(tally);
                tally.record(ended - began, operations);
                if self.slices > 0 {
                    let slice = (ended - self.begin).as_nanos() * self.slices as u128;
                    tally.slices[(slice / (self.end - self.begin).as_nanos()) as usize] +=
                        operations;
                }
                self.progress[thread].0.store(tally.operations, Ordering::Relaxed);
            }
            give_way().await;
        }
        let mut tally = lock(tally);
        tally.hash ^= client.hash;
        tally.retries += total_retries;
        tally.of_clients.push(counted);
        Ok(())
    }

    /// One transaction until it succeeds: its operations, and how many attempts failed.
    async fn until_success(&self, work: &impl Work, client: &mut Client) -> Result<(u64, u64)> {
        let transaction = self.database.create_transaction();
        let mut retries = 0;
        loop {
            match work.once(&transaction, client).await {
                Ok(operations) => return Ok((operations, retries)),
                Err(error) => transaction.on_error(error).await?,
            }
            retries += 1;
        }
    }
}

/// Lets the other clients of the thread go first, once.
async fn give_way() {
    let mut waited = false;
    poll_fn(|context| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}
