//! The KPI page's adjacent writes: blocks of 140 neighbouring keys at random places, beside writes
//! of random keys.

use super::mix::{Mix, OPERATIONS};
use super::over_time::{curve, in_slices};
use super::{Group, Workload};
use crate::clients::{Client, Work, drive};
use crate::dataset::key;
use crate::figures::{self, Target};
use crate::outcome::{Figure, Measurement, Outcome};
use crate::plan::Plan;
use crate::unit::Unit;
use crate::{Bench, Result, words};
use plinth_client::Transaction;

/// Writes of neighbours.
pub const ADJACENT: Workload = Workload {
    name: "adjacent-writes",
    about: "KPI page: 100 clients, random blocks of 140 adjacent keys a transaction, beside random writes",
    group: Group::Kpi,
    long: false,
    run: adjacent,
};

const CLIENTS: usize = 100;
const BLOCK: u64 = 140;

fn adjacent(bench: &Bench) -> Result<Outcome> {
    let plan = |title| Plan { time: bench.settings.time / 2, ..bench.plan(title, CLIENTS, 1) };
    let random = Mix::new(0, OPERATIONS).drive(bench, &plan("adjacent-writes, random ones"))?;
    let scattered = blocks(bench, &plan("adjacent-writes, 140 random ones"), false)?;
    let (sliced, slice) = in_slices(plan("adjacent-writes"));
    let measured = blocks(bench, &sliced, true)?;
    let title =
        format!("{} clients, blocks of {BLOCK} keys", words::grouped(measured.clients as u64));
    let unit = Unit::PerSecond("writes");
    let times = |of: &Measurement| measured.rate() / of.rate().max(1e-9);
    let target = figures::adjacent_times(&bench.engine);
    let ratios = [
        Figure::new(
            "of the rate of random writes, ten a transaction",
            times(&random),
            Unit::Times,
            target,
        ),
        Figure::new(
            "the same with 140 random ones a transaction",
            times(&scattered),
            Unit::Times,
            Target::NONE,
        ),
    ];
    let note = format!(
        "random keys: {} writes/s with ten a transaction, {} with {BLOCK}",
        words::short(random.rate()),
        words::short(scattered.rate())
    );
    let curve = curve(
        format!("Writes of {BLOCK} adjacent keys, over time"),
        "writes",
        (&measured, slice),
        &[("guide", figures::ADJACENT_WRITES)],
    );
    let headline = Figure::new("writes/s", measured.rate(), unit, figures::ADJACENT_WRITES);
    let mut outcome = Outcome::new("adjacent-writes", title, headline, Some(measured));
    outcome.figures.extend(ratios);
    outcome.notes.push(note);
    outcome.curves.push(curve);
    Ok(outcome)
}

/// Transactions of 140 writes, each to the key after the last one, or each to a random key.
fn blocks(bench: &Bench, plan: &Plan, adjacent: bool) -> Result<Measurement> {
    drive(bench, plan, Block { adjacent })
}

/// A block of writes.
#[derive(Clone, Copy)]
struct Block {
    adjacent: bool,
}

impl Work for Block {
    async fn once(
        &self,
        transaction: &Transaction,
        client: &mut Client,
    ) -> plinth_types::Result<u64> {
        let rows = client.dataset.rows();
        let block = BLOCK.min(rows);
        let first = client.random.below(rows - block + 1);
        for number in first..first + block {
            let number = if self.adjacent { number } else { client.random.below(rows) };
            transaction.set(key(number), client.dataset.random_value(&mut client.random));
        }
        transaction.commit().await?;
        Ok(block)
    }
}
