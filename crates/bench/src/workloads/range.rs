//! Range reads: a thousand rows from a random place, each transaction.

use super::Workload;
use crate::clients::{Client, drive};
use crate::dataset::{MAX_ROWS, key};
use crate::figures;
use crate::outcome::{Figure, Outcome, Unit};
use crate::{Bench, Result, words};
use plinth_client::{RangeOptions, StreamingMode, Transaction};

/// The guide's range read test.
pub const RANGE: Workload = Workload {
    name: "range",
    about: "guide's range read test: 100 clients, a random range of 1000 keys a transaction",
    guide: true,
    long: false,
    run: range,
};

const CLIENTS: usize = 100;
const KEYS: u64 = 1_000;

fn range(bench: &Bench) -> Result<Outcome> {
    let plan = bench.plan("range", CLIENTS, 2);
    let measured = drive(bench, &plan, async |transaction: &Transaction, client: &mut Client| {
        let keys = KEYS.min(client.dataset.rows());
        let first = client.random.below(client.dataset.rows() - keys + 1);
        rows(transaction, client, first, keys).await
    })?;
    let title = format!("{} clients, 1000-key ranges", words::grouped(plan.clients as u64));
    let headline = Figure::new("keys/s", measured.rate(), Unit::PerSecond("keys"), figures::RANGE);
    let mut outcome = Outcome::new("range", title, headline, Some(measured));
    outcome.comparable = plan.clients == CLIENTS;
    Ok(outcome)
}

/// Reads the rows from number `first` on, batch by batch until there are as many as asked for.
async fn rows(
    transaction: &Transaction,
    client: &mut Client,
    first: u64,
    keys: u64,
) -> plinth_types::Result<u64> {
    let range = key(first)..key((first + keys).min(MAX_ROWS));
    let mut options = RangeOptions::from(range).limit(keys as i32).mode(StreamingMode::Exact);
    let mut seen = 0;
    loop {
        let batch = transaction.get_range(options.clone()).await?;
        for (key, value) in batch.rows.iter() {
            client.saw(key);
            client.saw(value);
        }
        seen += batch.rows.len() as u64;
        let Some((last, _)) = batch.rows.last().filter(|_| batch.more && seen < keys) else {
            return Ok(seen);
        };
        options = options.after(last, batch.rows.len());
    }
}
