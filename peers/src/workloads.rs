//! The workloads that every store can run, and the clients that run them.
//!
//! Each client is a thread that does one transaction after the other, with the benchmark's own
//! keys, values, random numbers and tally. A transaction counts if it ends within the measured
//! time; one that conflicts is made again, its time going on.

use crate::store::{Key, Result, Store};
use plinth_bench::{Dataset, Random, Tally, key};
use plinth_env::{Env, reply};
use std::sync::Arc;
use std::time::Duration;

/// Rows in one transaction of the load.
const LOAD_BATCH: u64 = 1_000;
/// Threads that load.
const LOADERS: u64 = 4;

/// One workload.
pub struct Workload {
    /// Its name in the benchmark.
    pub name: &'static str,
    /// What a transaction does.
    pub what: &'static str,
    /// What is counted.
    pub counted: &'static str,
    /// How many clients run it, each on a thread of its own.
    pub clients: u64,
    transaction: Transaction,
}

/// One transaction: its number of operations, or `None` if it conflicted.
type Transaction = fn(&dyn Store, &mut Client) -> Result<Option<u64>>;

/// What a client has at hand.
pub struct Client {
    random: Random,
    dataset: Dataset,
    hash: u64,
}

/// All of them.
pub const ALL: &[Workload] = &[
    Workload {
        name: "write1",
        what: "1 client, 1 write",
        counted: "writes/s",
        clients: 1,
        transaction: write::<1>,
    },
    Workload {
        name: "write3",
        what: "100 clients, 10 writes",
        counted: "writes/s",
        clients: 100,
        transaction: write::<10>,
    },
    Workload {
        name: "read-1-thread",
        what: "1 thread, 10 reads",
        counted: "reads/s",
        clients: 1,
        transaction: read,
    },
    Workload {
        name: "read",
        what: "2 threads, 10 reads",
        counted: "reads/s",
        clients: 2,
        transaction: read,
    },
    Workload {
        name: "90-10",
        what: "100 clients, 9 reads and a write",
        counted: "operations/s",
        clients: 100,
        transaction: mixed,
    },
    Workload {
        name: "range",
        what: "2 threads, 1000-key ranges",
        counted: "keys/s",
        clients: 2,
        transaction: range,
    },
];

impl Client {
    fn new(dataset: &Dataset, number: u64) -> Self {
        Self { random: Random::new(1, number), dataset: dataset.clone(), hash: 0 }
    }

    fn keys<const COUNT: usize>(&mut self) -> [Key; COUNT] {
        std::array::from_fn(|_| self.dataset.random_key(&mut self.random))
    }

    fn rows<const COUNT: usize>(&mut self) -> [(Key, Vec<u8>); COUNT] {
        std::array::from_fn(|_| {
            let key = self.dataset.random_key(&mut self.random);
            (key, self.dataset.random_value(&mut self.random).to_vec())
        })
    }
}

/// Takes note of something read, so that no read can be optimised away.
fn saw(hash: &mut u64, bytes: &[u8]) {
    *hash = hash.rotate_left(5)
        ^ bytes.len() as u64
        ^ bytes.first().map_or(0, |&byte| u64::from(byte) << 8);
}

fn lend<const COUNT: usize>(rows: &[(Key, Vec<u8>); COUNT]) -> [(Key, &[u8]); COUNT] {
    rows.each_ref().map(|(key, value)| (*key, value.as_slice()))
}

fn write<const COUNT: usize>(store: &dyn Store, client: &mut Client) -> Result<Option<u64>> {
    let rows = client.rows::<COUNT>();
    store.write(&lend(&rows))?;
    Ok(Some(COUNT as u64))
}

fn read(store: &dyn Store, client: &mut Client) -> Result<Option<u64>> {
    let keys = client.keys::<10>();
    store.read(&keys, &mut |bytes| saw(&mut client.hash, bytes))?;
    Ok(Some(10))
}

fn mixed(store: &dyn Store, client: &mut Client) -> Result<Option<u64>> {
    let (keys, rows) = (client.keys::<9>(), client.rows::<1>());
    let committed =
        store.read_and_write(&keys, &lend(&rows), &mut |bytes| saw(&mut client.hash, bytes))?;
    Ok(committed.then_some(10))
}

fn range(store: &dyn Store, client: &mut Client) -> Result<Option<u64>> {
    const KEYS: u64 = 1_000;
    let keys = KEYS.min(client.dataset.rows());
    let first = client.random.below(client.dataset.rows() - keys + 1);
    let count =
        store.range(&key(first), keys as usize, &mut |bytes| saw(&mut client.hash, bytes))?;
    Ok(Some(count))
}

/// Runs a workload on a store for a while, after a tenth of that to warm up.
pub fn run(
    env: &Env,
    store: &Arc<dyn Store>,
    dataset: &Dataset,
    workload: &Workload,
    time: Duration,
) -> Result<Tally> {
    let begin = env.now() + time / 10;
    let end = begin + time;
    let transaction = workload.transaction;
    let replies: Vec<_> = (0..workload.clients)
        .map(|number| {
            let (promise, reply) = reply::promise();
            let (clock, store, mut client) =
                (env.clone(), store.clone(), Client::new(dataset, number));
            env.spawn("peer-client", async move {
                promise.send(client_loop(
                    &clock,
                    store.as_ref(),
                    &mut client,
                    transaction,
                    begin,
                    end,
                ));
            });
            reply
        })
        .collect();
    let mut sum = Tally::new(0);
    for reply in replies {
        sum.add(&reply.wait()?);
    }
    Ok(sum)
}

fn client_loop(
    clock: &Env,
    store: &dyn Store,
    client: &mut Client,
    transaction: Transaction,
    begin: Duration,
    end: Duration,
) -> plinth::Result<Tally> {
    let mut tally = Tally::new(0);
    let mut began = clock.now();
    while began < end {
        let done = transaction(store, client)
            .map_err(|error| plinth::Error::internal_error().with_detail(error.to_string()))?;
        let now = clock.now();
        let Some(operations) = done else {
            tally.retries += 1;
            continue;
        };
        if now >= begin && now < end {
            tally.record(now - began, operations);
        }
        began = now;
    }
    tally.hash = client.hash;
    Ok(tally)
}

/// Loads all rows; gives how long it took.
pub fn load(env: &Env, store: &Arc<dyn Store>, dataset: &Dataset) -> Result<Duration> {
    let began = env.now();
    let replies: Vec<_> = (0..LOADERS)
        .map(|loader| {
            let (promise, reply) = reply::promise();
            let (store, mut client) = (store.clone(), Client::new(dataset, u64::MAX - loader));
            env.spawn("peer-load", async move {
                let batches = client.dataset.rows().div_ceil(LOAD_BATCH);
                let written = (loader..batches).step_by(LOADERS as usize).try_for_each(|batch| {
                    let first = batch * LOAD_BATCH;
                    let end = client.dataset.rows().min(first + LOAD_BATCH);
                    let rows: Vec<(Key, Vec<u8>)> = (first..end)
                        .map(|row| {
                            (key(row), client.dataset.random_value(&mut client.random).to_vec())
                        })
                        .collect();
                    let lent: Vec<_> =
                        rows.iter().map(|(key, value)| (*key, value.as_slice())).collect();
                    store.write(&lent)
                });
                promise.send(written.map_err(|error| {
                    plinth::Error::internal_error().with_detail(error.to_string())
                }));
            });
            reply
        })
        .collect();
    for reply in replies {
        reply.wait()?;
    }
    Ok(env.now() - began)
}
