//! Reads: ten random keys a transaction, asked for together, answered from one snapshot.

use super::{Group, Workload};
use crate::clients::{Client, Work, drive};
use crate::figures::{self, Target};
use crate::outcome::{Figure, Measurement, Outcome};
use crate::plan::Plan;
use crate::unit::Unit;
use crate::{Bench, Result, words};
use plinth_client::Transaction;
use std::array;

/// The guide's read test.
pub const READ: Workload = Workload {
    name: "read",
    about: "guide's read test: 100 clients, 10 random reads a transaction",
    group: Group::Guide,
    long: false,
    run: |bench| read(bench, "read", bench.plan("read", CLIENTS, 2), figures::read(&bench.engine)),
};

/// The same on one thread.
pub const ONE_THREAD: Workload = Workload {
    name: "read-1-thread",
    about: "the read test with all its clients on one thread",
    group: Group::Own,
    long: false,
    run: |bench| {
        let is_cached = bench.dataset.bytes() < bench.settings.memory.unwrap_or(SSD_MEMORY) / 2;
        let target = figures::read_one_thread(&bench.engine, bench.dataset.rows(), is_cached);
        let plan = bench.plan("read-1-thread", CLIENTS, 1);
        read(bench, "read-1-thread", Plan { threads: 1, ..plan }, target)
    },
};

/// Clients in the guide's read test.
pub const CLIENTS: usize = 100;
const READS: usize = 10;
/// What the engine `ssd` may take if nobody says; at least half of it is for its cache.
const SSD_MEMORY: u64 = 1 << 30;

/// Clients that read ten random keys a transaction.
pub fn ten_reads(bench: &Bench, plan: &Plan) -> Result<Measurement> {
    drive(bench, plan, Reads)
}

/// Ten random reads.
#[derive(Clone, Copy)]
struct Reads;

impl Work for Reads {
    async fn once(
        &self,
        transaction: &Transaction,
        client: &mut Client,
    ) -> plinth_types::Result<u64> {
        read_random::<READS>(transaction, client).await?;
        Ok(READS as u64)
    }
}

/// Reads so many random keys, all of them under way at once.
pub async fn read_random<const COUNT: usize>(
    transaction: &Transaction,
    client: &mut Client,
) -> plinth_types::Result<()> {
    let values: [_; COUNT] =
        array::from_fn(|_| transaction.get(client.dataset.random_key(&mut client.random)));
    for value in values {
        client.saw(&value.await?.unwrap_or_default());
    }
    Ok(())
}

fn read(bench: &Bench, name: &'static str, plan: Plan, target: Target) -> Result<Outcome> {
    let measured = ten_reads(bench, &plan)?;
    let title = format!("{} clients, 10 reads", words::grouped(plan.clients as u64));
    let headline = Figure::new("reads/s", measured.rate(), Unit::PerSecond("reads"), target);
    let mut outcome = Outcome::new(name, title, headline, Some(measured));
    outcome.comparable = plan.clients == CLIENTS;
    Ok(outcome)
}
