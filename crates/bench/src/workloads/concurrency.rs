//! The performance page's concurrency: 90% reads and 10% writes by a growing number of transactions
//! at once, of ten operations each. FoundationDB reaches its peak with about 200 operations
//! outstanding; so should we.

use super::mix::{Mix, OPERATIONS};
use super::{Group, Workload};
use crate::curve::{Axis, Curve};
use crate::figures::{self, Target};
use crate::outcome::{Figure, Outcome};
use crate::plan::Plan;
use crate::unit::Unit;
use crate::{Bench, Result, words};

/// Throughput by concurrency.
pub const CONCURRENCY: Workload = Workload {
    name: "concurrency",
    about: "performance page: 90/10 by 1 to 300 transactions at once, of 10 operations each",
    group: Group::Performance,
    long: false,
    run: concurrency,
};

/// Transactions at once; the page's 200 operations are 20 of them.
const STEPS: [usize; 9] = [1, 2, 5, 10, 20, 50, 100, 200, 300];
const AT_THE_PAGE: usize = 20;
/// Transactions at once in the guide's test of the same mix.
const GUIDE_CLIENTS: u64 = 100;
/// Each step takes a part of the time.
const PART: u32 = 4;

fn concurrency(bench: &Bench) -> Result<Outcome> {
    let (mut rates, mut latencies) = (Vec::new(), Vec::new());
    let mut sum = None;
    let mut at_the_page = 0.0;
    for clients in STEPS {
        let outstanding = clients as u64 * OPERATIONS;
        let title = format!("concurrency, {} operations", words::grouped(outstanding));
        let plan =
            Plan { clients, time: bench.settings.time / PART, ..bench.plan(&title, clients, 1) };
        let measured = Mix::new(9, 1).drive(bench, &plan)?;
        rates.push((outstanding as f64, measured.rate()));
        latencies.push((outstanding as f64, measured.tally.latency().mean.as_secs_f64()));
        if clients == AT_THE_PAGE {
            at_the_page = measured.rate();
        }
        sum = Some(super::join(sum, measured));
    }
    let peak = rates.iter().map(|point| point.1).fold(0.0, f64::max);
    let title = "9 reads and a write".to_owned();
    let headline =
        Figure::new("operations/s at the peak", peak, Unit::PerSecond("operations"), Target::NONE);
    let mut outcome = Outcome::new("concurrency", title, headline, sum);
    outcome.figures.push(Figure::new(
        "with 200 operations outstanding, of the peak",
        at_the_page / peak.max(1e-9),
        Unit::Part,
        figures::CONCURRENCY,
    ));
    let outstanding = || Axis::logarithmic("operations outstanding", Unit::Count);
    let rate = Axis::linear("operations a second", Unit::PerSecond("operations"));
    let latency = Axis::logarithmic("mean time of a transaction", Unit::Seconds);
    // Of the guide's 90/10 test, which is this one by a hundred clients.
    let published = figures::mixed(&bench.engine).published.unwrap_or_default();
    let at = (GUIDE_CLIENTS * OPERATIONS) as f64;
    outcome.curves = vec![
        Curve::new("Throughput by concurrency, 90/10", outstanding(), rate)
            .with("Plinth", rates)
            .beside_at("guide, 1 core", at, published),
        Curve::new("Latency by concurrency, 90/10", outstanding(), latency)
            .with("Plinth", latencies),
    ];
    Ok(outcome)
}
