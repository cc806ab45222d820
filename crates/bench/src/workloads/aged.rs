//! A fresh database and an aged one: the same four workloads before and after hours' worth of
//! random mutations.
//!
//! Freshly loaded rows lie in order, which flatters a database. So a database of its own is loaded,
//! measured, aged (each row overwritten, or removed and written again, several times over, at
//! random), and measured once more.

use super::mix::set_random;
use super::mix::{Mix, OPERATIONS};
use super::{Group, Workload, range};
use crate::clients::{Client, Work, drive};
use crate::dataset::key;
use crate::figures::Target;
use crate::outcome::{Figure, Measurement, Outcome};
use crate::place::Place;
use crate::plan::Plan;
use crate::unit::Unit;
use crate::{Bench, Error, Progress, Result, words};
use plinth_client::Transaction;
use serde_json::json;
use std::time::Duration;

/// Fresh and aged.
pub const AGED: Workload = Workload {
    name: "aged",
    about: "reads, 90/10, ranges and writes on a fresh database, and on the same one after random mutations",
    group: Group::Kpi,
    long: false,
    run: aged,
};

const DIRECTORY: &str = "plinth-bench-aged";
const CLIENTS: usize = 100;
/// Each row is changed so many times on average.
const CHANGES_A_ROW: u64 = 5;
/// One change in so many removes the row until it is written again.
const REMOVALS: u64 = 8;
/// Each of the four takes a part of the time, twice.
const PART: u32 = 4;

const MEASURED: [(&str, &str); 4] = [
    ("reads", "reads"),
    ("90/10", "operations"),
    ("1000-key ranges", "keys"),
    ("writes", "writes"),
];

fn aged(bench: &Bench) -> Result<Outcome> {
    let Some(host) = &bench.host else {
        return Err(Error::Skipped("it needs a database in this process".to_owned()));
    };
    let place = Place::new(&bench.env, bench.directory.join(DIRECTORY))?;
    let database = host.create(&place.path, None)?;
    let task = bench.progress.unknown("aged, loading a fresh database");
    let own = Bench::prepare(
        database,
        place.path.clone(),
        bench.settings.clone(),
        Progress::Silent,
        bench.stop.clone(),
    )?;
    drop(task);
    let own = Bench { progress: bench.progress, ..own };
    let fresh = four(&own, "fresh")?;
    let changes = age(&own)?;
    let aged = four(&own, "aged")?;
    let title = format!("after {} random changes", words::grouped(changes));
    let mut outcome: Option<Outcome> = None;
    let mut rates = Vec::new();
    for ((fresh, aged), (name, unit)) in fresh.iter().zip(&aged).zip(MEASURED) {
        let part = aged.rate() / fresh.rate().max(1e-9);
        let figure = Figure::new(format!("{name}, of fresh"), part, Unit::Part, Target::NONE);
        rates.push(format!(
            "{name} {} then {} {unit}/s",
            words::short(fresh.rate()),
            words::short(aged.rate())
        ));
        match &mut outcome {
            Some(outcome) => outcome.figures.push(figure),
            None => outcome = Some(Outcome::new("aged", title.clone(), figure, Some(aged.clone()))),
        }
    }
    let mut outcome = outcome.expect("four workloads were measured");
    outcome.notes.push(format!("fresh, {}", rates.join("; ")));
    let sides = |side: &[Measurement]| side.iter().map(Measurement::to_json).collect::<Vec<_>>();
    outcome.details.push(("fresh_and_aged", json!({"fresh": sides(&fresh), "aged": sides(&aged)})));
    Ok(outcome)
}

/// The four workloads.
fn four(bench: &Bench, when: &str) -> Result<Vec<Measurement>> {
    let plan = |what: &str, threads| Plan {
        time: bench.settings.time / PART,
        ..bench.plan(&format!("aged, {what} when {when}"), CLIENTS, threads)
    };
    Ok(vec![
        Mix::new(OPERATIONS, 0).drive(bench, &plan("reads", 2))?,
        Mix::new(9, 1).drive(bench, &plan("90/10", 1))?,
        range::ranges(bench, &plan("ranges", 2), 1_000)?,
        Mix::new(0, OPERATIONS).drive(bench, &plan("writes", 1))?,
    ])
}

/// Changes random rows until all of them have been, several times over; gives the number of
/// changes.
fn age(bench: &Bench) -> Result<u64> {
    let wanted = bench.dataset.rows() * CHANGES_A_ROW;
    let mut done = 0;
    let slice = (bench.settings.time / PART).max(Duration::from_millis(1));
    while done < wanted {
        let plan = Plan { time: slice, ..bench.plan("aged, ageing", CLIENTS, 1) };
        done += drive(bench, &plan, Ageing)?.tally.operations.max(1);
    }
    Ok(done)
}

/// Changes random rows; some are removed, and written again in a transaction of their own.
#[derive(Clone, Copy)]
struct Ageing;

impl Work for Ageing {
    async fn once(
        &self,
        transaction: &Transaction,
        client: &mut Client,
    ) -> plinth_types::Result<u64> {
        set_random(transaction, client, OPERATIONS - 2);
        let number = client.random.below(client.dataset.rows());
        if client.random.below(REMOVALS) == 0 {
            transaction.clear(key(number));
            transaction.commit().await?;
            transaction.reset();
        }
        transaction.set(key(number), client.dataset.random_value(&mut client.random));
        transaction.commit().await?;
        Ok(OPERATIONS)
    }
}
