//! Latency by percent of load: of start, read and commit (performance page), and the KPI page's
//! three.
//!
//! First the peak is looked for, with a hundred transactions under way. Then transactions arrive at
//! parts of that rate, whether or not earlier ones have ended, and each latency counts from the
//! arrival (see `open_loop.rs`).

use super::mix::set_random;
use super::mix::{Mix, OPERATIONS};
use super::{Group, Workload};
use crate::calibrate::SyncTimes;
use crate::clients::Client;
use crate::curve::{Axis, Curve};
use crate::figures::{self, Target};
use crate::open_loop::{Arrivals, Begin, Kind, Offered, PEAK_UNDER_WAY, Parts, offer};
use crate::outcome::{Figure, Measurement, Outcome};
use crate::tally::Tally;
use crate::unit::Unit;
use crate::{Bench, Result, words};
use plinth_client::Transaction;
use serde_json::json;
use std::time::Duration;

/// Latency of each part of a transaction.
pub const PARTS: Workload = Workload {
    name: "latency",
    about: "performance page: latency of start, read and commit by percent of load, 90/10",
    group: Group::Performance,
    long: false,
    run: |bench| {
        let shown = &[
            Shown {
                name: "start",
                tally: |offered| &offered.start,
                target: figures::LATENCY_START,
            },
            Shown { name: "read", tally: |offered| &offered.read, target: figures::LATENCY_READ },
            Shown {
                name: "commit",
                tally: |offered| &offered.commit,
                target: figures::LATENCY_COMMIT,
            },
        ];
        let mut syncs = SyncTimes::default();
        syncs.measure(bench, bench.settings.time / SYNCS_PART)?;
        let (mut outcome, measured) =
            run(bench, "latency", "9 reads and a write", Blend::all(Mix::new(9, 1)), shown)?;
        syncs.measure(bench, bench.settings.time / SYNCS_PART)?;
        outcome.figures.extend(medians(&measured, &syncs));
        Ok(outcome)
    },
};

/// Latency of a single read.
pub const READ: Workload = Workload {
    name: "read-latency",
    about: "KPI page: mean latency to read a single key, by percent of load",
    group: Group::Kpi,
    long: false,
    run: |bench| {
        let shown = &[
            Shown {
                name: "read",
                tally: |offered| &offered.read,
                target: figures::KPI_READ_LATENCY,
            },
            WHOLE,
        ];
        run(bench, "read-latency", "1 read", Blend::all(Mix::new(1, 0)), shown)
            .map(|(outcome, _)| outcome)
    },
};

/// Latency of a commit.
pub const COMMIT: Workload = Workload {
    name: "commit-latency",
    about: "KPI page: mean latency to commit 5 reads and 5 writes, by percent of load",
    group: Group::Kpi,
    long: false,
    run: |bench| {
        let target = figures::KPI_COMMIT_LATENCY;
        let shown = &[Shown { name: "commit", tally: |offered| &offered.commit, target }, WHOLE];
        run(bench, "commit-latency", "5 reads and 5 writes", Blend::all(Mix::new(5, 5)), shown)
            .map(|(outcome, _)| outcome)
    },
};

/// Latency of whole transactions.
pub const TRANSACTION: Workload = Workload {
    name: "transaction-latency",
    about: "KPI page: mean latency of 20% transactions of 5 reads and 5 writes, 80% of 10 reads, by percent of load",
    group: Group::Kpi,
    long: false,
    run: |bench| {
        let target = figures::KPI_TRANSACTION_LATENCY;
        let blend = Blend { often: Mix::new(10, 0), seldom: Mix::new(5, 5), seldom_in_100: 20 };
        let shown = &[Shown { target, ..WHOLE }];
        run(bench, "transaction-latency", "20% with 5 writes, 80% reads", blend, shown)
            .map(|(outcome, _)| outcome)
    },
};

/// Percent of the peak.
const LOADS: [u32; 5] = [10, 25, 50, 75, 90];
/// What the page speaks of: "less than 75% load".
const AT_THE_PAGE: u32 = 75;
/// Before and after the loads the disk's calibrator runs for such a part of the time.
const SYNCS_PART: u32 = 10;
/// A server's commit may take so many synced writes and a millisecond.
const COMMIT_SYNCS: u32 = 3;
/// The peak and each load take a part of the time.
const PART: u32 = 2;
/// With less than this part of what was offered, the load was more than the database or the
/// generator bears.
const KEPT_UP: f64 = 0.97;

const WHOLE: Shown =
    Shown { name: "whole transaction", tally: |offered| &offered.whole, target: Target::NONE };

/// A latency that is shown.
struct Shown {
    name: &'static str,
    tally: fn(&Offered) -> &Tally,
    target: Target,
}

/// Two kinds of transactions, and how many in a hundred are of the second.
#[derive(Clone, Copy)]
struct Blend {
    often: Mix,
    seldom: Mix,
    seldom_in_100: u64,
}

impl Blend {
    const fn all(mix: Mix) -> Self {
        Self { often: mix, seldom: mix, seldom_in_100: 0 }
    }

    fn offer(self, bench: &Bench, title: &str, arrivals: Arrivals) -> Result<Offered> {
        offer(bench, title, arrivals, bench.settings.time / PART, self)
    }
}

impl Kind for Blend {
    /// One transaction, timed: its start, its first read alone, the other reads together, its
    /// commit.
    async fn run(
        &self,
        transaction: &Transaction,
        client: &mut Client,
        begin: &Begin<'_>,
    ) -> plinth_types::Result<Parts> {
        let mix =
            if client.random.below(100) < self.seldom_in_100 { self.seldom } else { self.often };
        let mut parts = Parts { operations: mix.reads + mix.writes, ..Parts::default() };
        transaction.get_read_version().await?;
        let started = begin.env.now();
        parts.start = Some(started.saturating_sub(begin.arrived));
        if mix.reads > 0 {
            let value = transaction.get(client.dataset.random_key(&mut client.random)).await?;
            parts.read = Some(begin.env.now() - started);
            client.saw(&value.unwrap_or_default());
            mix.read(transaction, client, 1).await?;
        }
        if mix.writes > 0 {
            set_random(transaction, client, mix.writes);
            let asked = begin.env.now();
            transaction.commit().await?;
            parts.commit = Some(begin.env.now() - asked);
        }
        Ok(parts)
    }
}

/// A load in percent of the peak, the same in transactions a second, and what came of it.
type Load = (u32, f64, Offered);

fn run(
    bench: &Bench,
    name: &'static str,
    what: &str,
    blend: Blend,
    shown: &[Shown],
) -> Result<(Outcome, Vec<Load>)> {
    let peak =
        blend.offer(bench, &format!("{name}, the peak"), Arrivals::UnderWay(PEAK_UNDER_WAY))?;
    let mut measured = Vec::new();
    for percent in LOADS {
        let rate = peak.rate * f64::from(percent) / 100.0;
        let title = format!("{name}, {percent} % load");
        measured.push((
            percent,
            rate,
            blend.offer(bench, &title, Arrivals::PerSecond(rate.max(1.0)))?,
        ));
    }
    Ok((outcome(bench, name, what, &peak, &measured, shown), measured))
}

/// What is asked of a server at three quarters of its peak: medians, that of a commit beside what
/// the disk takes.
fn medians(measured: &[Load], syncs: &SyncTimes) -> Vec<Figure> {
    let Some((_, _, offered)) = measured.iter().find(|(percent, ..)| *percent == AT_THE_PAGE)
    else {
        return Vec::new();
    };
    let figure = |words: &str, median: Duration, served: Target| {
        Figure::new(format!("median {words}"), median.as_secs_f64(), Unit::Seconds, Target::NONE)
            .served(served)
    };
    let [start, read, commit] =
        [&offered.start, &offered.read, &offered.commit].map(|tally| tally.latency().p50);
    vec![
        figure("start", start, figures::SERVED_LATENCY),
        figure("read", read, figures::SERVED_LATENCY),
        figure(
            &format!("commit, beyond {COMMIT_SYNCS} fdatasyncs"),
            commit.saturating_sub(COMMIT_SYNCS * syncs.mean()),
            figures::SERVED_COMMIT_LATENCY,
        )
        .if_quiet(),
    ]
}

fn outcome(
    bench: &Bench,
    name: &'static str,
    what: &str,
    peak: &Offered,
    measured: &[Load],
    shown: &[Shown],
) -> Outcome {
    let mean = |tally: &Tally| tally.latency().mean.as_secs_f64();
    let at_the_page = measured.iter().find(|(percent, ..)| *percent == AT_THE_PAGE);
    let mut figures = shown.iter().filter_map(|shown| {
        let value = mean((shown.tally)(&at_the_page?.2));
        let words = format!("mean {} at {AT_THE_PAGE} % load", shown.name);
        Some(Figure::new(words, value, Unit::Seconds, shown.target))
    });
    let headline = figures.next().expect("each of these workloads shows a latency");
    let sum = at_the_page.map(|(_, _, offered)| Measurement {
        clients: offered.whole.transactions.min(PEAK_UNDER_WAY as u64) as usize,
        threads: 1,
        time: bench.settings.time / PART,
        tally: offered.whole.clone(),
        cpu: offered.cpu,
        cpu_of_slices: Vec::new(),
    });
    let mut outcome = Outcome::new(name, what.to_owned(), headline, sum);
    outcome.figures.extend(figures);
    let late = measured.iter().filter(|(_, rate, offered)| offered.rate < rate * KEPT_UP);
    let late: Vec<String> = late.map(|(percent, ..)| format!("{percent} %")).collect();
    let mut note = format!("the peak: {} transactions/s", words::short(peak.rate));
    if !late.is_empty() {
        note.push_str(&format!("; more than could be kept up with: {}", late.join(", ")));
    }
    outcome.notes.push(note);
    outcome.details.push(("loads", details(peak, measured, shown)));
    outcome.curves.push(curve(name, what, measured, shown));
    outcome
}

fn curve(name: &str, what: &str, measured: &[Load], shown: &[Shown]) -> Curve {
    let title = match name {
        "latency" => "Latency of each part by load, 90/10".to_owned(),
        _ => format!("Mean latency by load, {what}"),
    };
    let x = Axis::linear("percent of load", Unit::Part);
    let mut curve = Curve::new(title, x, Axis::logarithmic("mean latency", Unit::Seconds));
    for shown in shown {
        let point = |(percent, _, offered): &Load| {
            let mean = (shown.tally)(offered).latency().mean.max(Duration::from_nanos(1));
            (f64::from(*percent) / 100.0, mean.as_secs_f64())
        };
        curve = curve.with(shown.name, measured.iter().map(point).collect());
        if let Some(published) = shown.target.published {
            curve = curve.beside(format!("guide, {}", shown.name), published);
        }
    }
    curve
}

fn details(peak: &Offered, measured: &[Load], shown: &[Shown]) -> serde_json::Value {
    let load = |(percent, rate, offered): &Load| {
        let latencies: serde_json::Map<String, serde_json::Value> = shown
            .iter()
            .map(|shown| (shown.name.replace(' ', "_"), (shown.tally)(offered).latency().to_json()))
            .collect();
        json!({"percent": percent, "offered_per_second": rate, "per_second": offered.rate, "latency": latencies})
    };
    let loads: Vec<_> = measured.iter().map(load).collect();
    json!({"peak_per_second": peak.rate, "operations_at_most": OPERATIONS, "loads": loads})
}
