//! Range reads: the guide's, of a thousand rows from a random place, and the KPI page's, of one row
//! to ten thousand.

use super::{Group, Workload};
use crate::clients::{Client, Work, drive};
use crate::curve::{Axis, Curve};
use crate::dataset::{MAX_ROWS, key};
use crate::figures;
use crate::outcome::{Figure, Measurement, Outcome};
use crate::plan::Plan;
use crate::unit::Unit;
use crate::{Bench, Result, words};
use plinth_client::{RangeOptions, StreamingMode, Transaction};

/// The guide's range read test.
pub const RANGE: Workload = Workload {
    name: "range",
    about: "guide's range read test: 100 clients, a random range of 1000 keys a transaction",
    group: Group::Guide,
    long: false,
    run: range,
};

/// The KPI page's range reads.
pub const SIZES: Workload = Workload {
    name: "range-reads",
    about: "KPI page: 100 clients, random ranges of 1 to 10,000 keys",
    group: Group::Kpi,
    long: false,
    run: sizes,
};

const CLIENTS: usize = 100;
const KEYS: u64 = 1_000;
/// The page speaks of 63: about 4 KB.
const STEPS: [u64; 9] = [1, 3, 10, 30, 63, 250, 1_000, 4_000, 10_000];
const AT_THE_PAGE: u64 = 63;
/// Each step takes a part of the time.
const PART: u32 = 4;

fn range(bench: &Bench) -> Result<Outcome> {
    let plan = bench.plan("range", CLIENTS, 2);
    let measured = ranges(bench, &plan, KEYS)?;
    let title = format!("{} clients, 1000-key ranges", words::grouped(plan.clients as u64));
    let headline = Figure::new(
        "keys/s",
        measured.rate(),
        Unit::PerSecond("keys"),
        figures::range(&bench.engine),
    );
    let mut outcome = Outcome::new("range", title, headline, Some(measured));
    outcome.comparable = plan.clients == CLIENTS;
    Ok(outcome)
}

fn sizes(bench: &Bench) -> Result<Outcome> {
    let unit = Unit::PerSecond("keys");
    let (mut points, mut at_the_page, mut sum) = (Vec::new(), 0.0, None);
    for keys in STEPS {
        let title = format!("range-reads, {} keys", words::grouped(keys));
        let plan = Plan { time: bench.settings.time / PART, ..bench.plan(&title, CLIENTS, 2) };
        let measured = ranges(bench, &plan, keys)?;
        points.push((keys as f64, measured.rate()));
        if keys == AT_THE_PAGE {
            at_the_page = measured.rate();
        }
        sum = Some(super::join(sum, measured));
    }
    let peak = points.iter().map(|point| point.1).fold(0.0, f64::max);
    let title = format!("{} clients, {AT_THE_PAGE}-key ranges", words::grouped(CLIENTS as u64));
    let headline = Figure::new("keys/s", at_the_page, unit, figures::RANGE_READS);
    let mut outcome = Outcome::new("range-reads", title, headline, sum);
    outcome.notes.push(format!("at the best size: {} keys/s", words::short(peak)));
    let published = figures::RANGE_READS.published.unwrap_or_default();
    outcome.curves.push(
        Curve::new(
            "Range reads by size",
            Axis::logarithmic("keys in a range", Unit::Count),
            Axis::logarithmic("keys a second", unit),
        )
        .with("Plinth", points)
        .beside_at("guide, 96 cores", AT_THE_PAGE as f64, published),
    );
    Ok(outcome)
}

/// Clients that read random ranges of so many keys.
pub fn ranges(bench: &Bench, plan: &Plan, keys: u64) -> Result<Measurement> {
    drive(bench, plan, Ranges { keys })
}

/// One range of so many keys.
#[derive(Clone, Copy)]
struct Ranges {
    keys: u64,
}

impl Work for Ranges {
    // A thousand rows are looked at while the connection's thread receives the next.
    const OWN_THREADS: bool = true;

    async fn once(
        &self,
        transaction: &Transaction,
        client: &mut Client,
    ) -> plinth_types::Result<u64> {
        let keys = self.keys.min(client.dataset.rows());
        let first = client.random.below(client.dataset.rows() - keys + 1);
        rows(transaction, client, first, keys).await
    }
}

/// Reads the rows from number `first` on, batch by batch until there are as many as asked for.
async fn rows(
    transaction: &Transaction,
    client: &mut Client,
    first: u64,
    keys: u64,
) -> plinth_types::Result<u64> {
    let range = key(first)..key((first + keys).min(MAX_ROWS));
    let mut options = RangeOptions::from(range).limit(keys as usize).mode(StreamingMode::Exact);
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
