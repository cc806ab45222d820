//! The KPI page's cached reads: random reads of a working set that fits in memory, out of data that
//! need not.

use super::mix::OPERATIONS;
use super::over_time::{curve, in_slices};
use super::{Group, Workload};
use crate::clients::{Client, Work, drive};
use crate::dataset::key;
use crate::figures;
use crate::outcome::{Figure, Outcome};
use crate::unit::Unit;
use crate::{Bench, Result, words};
use plinth_client::Transaction;
use std::array;

/// Reads of a working set.
pub const CACHED: Workload = Workload {
    name: "cached-reads",
    about: "KPI page: 100 clients, 10 random reads a transaction, of a working set of a tenth of the rows",
    group: Group::Kpi,
    long: false,
    run: cached,
};

const CLIENTS: usize = 100;
/// The working set is this part of the rows.
const PART: u64 = 10;

fn cached(bench: &Bench) -> Result<Outcome> {
    let (plan, slice) = in_slices(bench.plan("cached-reads", CLIENTS, 2));
    let measured = drive(bench, &plan, CachedReads)?;
    let title = format!("{} clients, 10 reads of a tenth", words::grouped(plan.clients as u64));
    let published = [("guide", figures::CACHED_READS)];
    let curve = curve("Cached reads, over time", "reads", (&measured, slice), &published);
    let headline =
        Figure::new("reads/s", measured.rate(), Unit::PerSecond("reads"), figures::CACHED_READS);
    let mut outcome = Outcome::new("cached-reads", title, headline, Some(measured));
    outcome.curves.push(curve);
    Ok(outcome)
}

/// Ten reads of the working set.
#[derive(Clone, Copy)]
struct CachedReads;

impl Work for CachedReads {
    async fn once(
        &self,
        transaction: &Transaction,
        client: &mut Client,
    ) -> plinth_types::Result<u64> {
        let rows = (client.dataset.rows() / PART).max(1);
        let values: [_; OPERATIONS as usize] =
            array::from_fn(|_| transaction.get(key(client.random.below(rows))));
        for value in values {
            client.saw(&value.await?.unwrap_or_default());
        }
        Ok(OPERATIONS)
    }
}
