//! Streams of changes: how soon a stream has what was committed, and what a stream that takes
//! everything costs those who write.
//!
//! ```text
//!   turns:   writes of a hundred at a time, without a stream ▸ with one ▸ without ▸ with ...     rates, and their ratio
//!   delay:   writes at a fixed rate ──commit answered──▶ version, time
//!                                   ──stream delivers─▶ version, time      delay: the one from the other
//! ```
//! The consumer is a task of the same process, which reads on and acknowledges, and does nothing
//! else with what it gets. A delivery that comes before its commit's own answer has no delay.

use super::mix::set_random;
use super::turns::{TURNS, in_turns};
use super::{Group, Workload};
use crate::clients::Client;
use crate::figures;
use crate::load::lock;
use crate::open_loop::{Arrivals, Begin, Kind, Offered, PEAK_UNDER_WAY, Parts, offer};
use crate::outcome::{Figure, Measurement, Outcome};
use crate::tally::Tally;
use crate::unit::Unit;
use crate::{Bench, Error, Result, words};
use plinth_client::{Database, Transaction};
use plinth_env::sync::{First, race};
use plinth_env::{Signal, Task, block_on};
use plinth_types::{KeyRange, Version};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A stream's delay, and its cost.
pub const CHANGES: Workload = Workload {
    name: "changes",
    about: "a stream of changes: its delay at a fixed rate, and writes with it and without",
    group: Group::Own,
    long: true,
    run: changes,
};

const STREAM: &str = "plinth-bench";
/// Each turn and the delay take such a part of the time.
const PART: u32 = 2;
/// Commits a second at which the delay is measured, or half of the peak if that is less.
const RATE: f64 = 20_000.0;
/// How long the consumer may take for the rest when nobody writes any more.
const REST: Duration = Duration::from_secs(30);

fn changes(bench: &Bench) -> Result<Outcome> {
    let under_way = Arrivals::UnderWay(PEAK_UNDER_WAY);
    let [without, with] = in_turns(
        ["changes, without a stream", "changes, with a stream"],
        |title| offer(bench, title, under_way, bench.settings.time / PART, Writes::default()),
        || Consumer::begin(bench),
        |consumer| consumer.end(bench).map(drop),
    )?;
    let mean =
        |all: &[Offered]| all.iter().map(|offered| offered.rate).sum::<f64>() / all.len() as f64;
    let (without, with) = (mean(&without), mean(&with));
    let rate = RATE.min(with / 2.0).max(1.0);
    let writes = Writes::default();
    let answered = writes.answered.clone();
    let consumer = Consumer::begin(bench)?;
    let offered = offer(
        bench,
        &format!("changes, {} commits a second", words::short(rate)),
        Arrivals::PerSecond(rate),
        bench.settings.time / PART,
        writes,
    );
    let delivered = consumer.end(bench)?;
    let offered = offered?;
    let (delays, missing) = delays(&lock(&answered), &delivered);
    Ok(outcome(bench, (without, with), (rate, offered), (delays, missing)))
}

/// From a commit's answer to its delivery; and how many weren't delivered.
fn delays(
    answered: &[(Version, Duration)],
    delivered: &BTreeMap<Version, Duration>,
) -> (Tally, u64) {
    let (mut delays, mut missing) = (Tally::new(0), 0);
    for (version, at) in answered {
        match delivered.get(version) {
            Some(came) => delays.record(came.saturating_sub(*at), 1),
            None => missing += 1,
        }
    }
    (delays, missing)
}

fn outcome(
    bench: &Bench,
    (without, with): (f64, f64),
    (rate, offered): (f64, Offered),
    (delays, missing): (Tally, u64),
) -> Outcome {
    let delay = delays.latency();
    let per_second = |what: &str, value| {
        Figure::new(what, value, Unit::PerSecond("commits"), figures::Target::NONE)
    };
    let figures = vec![
        Figure::new(
            "writes with a stream, of those without",
            with / without.max(1.0),
            Unit::Part,
            figures::CHANGES_COST,
        )
        .served(figures::CHANGES_COST)
        .if_quiet(),
        Figure::new(
            format!("mean delay at {} commits/s", words::short(rate)),
            delay.mean.as_secs_f64(),
            Unit::Seconds,
            figures::CHANGES_DELAY,
        )
        .served(figures::CHANGES_DELAY),
        Figure::new(
            "delay, 99th percentile",
            delay.p99.as_secs_f64(),
            Unit::Seconds,
            figures::Target::NONE,
        ),
        per_second("writes without a stream", without),
        per_second("writes with a stream", with),
    ];
    let mut notes = Vec::new();
    if missing > 0 {
        notes.push(format!("{missing} commits were not delivered within {} s", REST.as_secs()));
    }
    Outcome {
        name: "changes",
        title: format!("a stream of all keys; {TURNS} turns without and with it, then its delay"),
        figures,
        measurement: Some(Measurement {
            clients: PEAK_UNDER_WAY,
            threads: bench.env.network_threads(),
            time: bench.settings.time / PART,
            tally: offered.whole,
            cpu: offered.cpu,
            cpu_of_slices: Vec::new(),
        }),
        comparable: true,
        curves: Vec::new(),
        notes,
        details: vec![("delay", delays.latency().to_json()), ("not_delivered", json!(missing))],
    }
}

/// One row a transaction, and when each commit was answered.
#[derive(Default)]
pub struct Writes {
    /// Version and time of each.
    pub answered: Arc<Mutex<Vec<(Version, Duration)>>>,
}

impl Kind for Writes {
    async fn run(
        &self,
        transaction: &Transaction,
        client: &mut Client,
        begin: &Begin<'_>,
    ) -> plinth_types::Result<Parts> {
        set_random(transaction, client, 1);
        let asked = begin.env.now();
        transaction.commit().await?;
        let now = begin.env.now();
        lock(&self.answered).extend(transaction.committed_version().map(|version| (version, now)));
        Ok(Parts { commit: Some(now - asked), operations: 1, ..Parts::default() })
    }
}

/// When each version was delivered.
type Delivered = Arc<Mutex<BTreeMap<Version, Duration>>>;

/// Whoever reads the stream, as long as it is there.
struct Consumer {
    stop: Arc<Signal>,
    task: Task,
    delivered: Delivered,
    failure: Arc<Mutex<Option<plinth_types::Error>>>,
}

impl Consumer {
    fn begin(bench: &Bench) -> Result<Self> {
        let everything = [KeyRange::new("", &b"\xff"[..])];
        match bench.database.register_changes(STREAM, everything, None).wait() {
            Err(error) if error == plinth_types::Error::unsupported_operation() => {
                return Err(Error::Skipped(
                    error.detail().unwrap_or("there are no streams").to_owned(),
                ));
            }
            registered => drop(registered?),
        }
        let (stop, delivered, failure) =
            (Arc::new(Signal::new()), Delivered::default(), Arc::default());
        let (database, told, came) = (bench.database.clone(), stop.clone(), delivered.clone());
        let failed: Arc<Mutex<Option<plinth_types::Error>>> = Arc::clone(&failure);
        let task = bench.env.spawn_network("bench-changes", async move {
            if let Err(error) = consume(&database, &told, &came).await {
                *lock(&failed) = Some(error);
            }
        });
        Ok(Self { stop, task, delivered, failure })
    }

    /// Lets it read what is there, and removes the stream. Gives when each version came.
    fn end(self, bench: &Bench) -> Result<BTreeMap<Version, Duration>> {
        self.stop.notify();
        let joined = block_on(race(self.task, bench.env.sleep(REST)));
        bench.database.remove_changes(STREAM).wait()?;
        if let First::Left(Err(panicked)) = joined {
            return Err(plinth_types::Error::from(panicked).into());
        }
        match lock(&self.failure).take() {
            Some(error) => Err(error.into()),
            None => Ok(std::mem::take(&mut *lock(&self.delivered))),
        }
    }
}

/// Reads until it is told to stop and has come to what was committed then.
async fn consume(
    database: &Database,
    stop: &Signal,
    delivered: &Mutex<BTreeMap<Version, Duration>>,
) -> plinth_types::Result<()> {
    let env = database.endpoint().env().clone();
    let mut consumer = database.consume_changes(STREAM).await?;
    let mut until = None;
    while until.is_none_or(|until| consumer.position() < until) {
        let changes = match until {
            Some(_) => consumer.next().await?,
            None => match race(consumer.next(), stop.wait()).await {
                First::Left(changes) => changes?,
                First::Right(()) => {
                    until = Some(database.create_transaction().get_read_version().await?);
                    continue;
                }
            },
        };
        let now = env.now();
        lock(delivered).extend(changes.batches.iter().map(|batch| (batch.version, now)));
        consumer.acknowledge().await?;
    }
    Ok(())
}
