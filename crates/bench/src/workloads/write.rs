//! Writes: random keys get new random values, and each transaction is on disk before the next
//! begins.
//!
//! The guide's three tests, and a thousand clients. With one client the time of a commit is all
//! that counts, so it waits for its commit without an executor between, and the disk's own speed is
//! measured in slices between slices of the workload: both then saw the same disk.

use super::mix::{Mix, set_random};
use super::{Group, Workload};
use crate::calibrate::SyncTimes;
use crate::clients::{Client, Work, drive};
use crate::figures::{self, Target};
use crate::outcome::{Figure, Measurement, Outcome};
use crate::plan::Plan;
use crate::unit::Unit;
use crate::{Bench, Result, words};
use plinth_client::Transaction;

/// One client, one write.
pub const WRITE_1: Workload = Workload {
    name: "write1",
    about: "guide's write test #1: one client, one random write a transaction",
    group: Group::Guide,
    long: false,
    run: write_1,
};

/// One client, ten writes.
pub const WRITE_2: Workload = Workload {
    name: "write2",
    about: "guide's write test #2: one client, 10 random writes a transaction",
    group: Group::Guide,
    long: false,
    run: write_2,
};

/// A hundred clients, ten writes.
pub const WRITE_3: Workload = Workload {
    name: "write3",
    about: "guide's write test #3: 100 clients, 10 random writes a transaction",
    group: Group::Guide,
    long: false,
    run: |bench| many(bench, "write3", 100, figures::WRITE_3),
};

/// A thousand clients, ten writes.
pub const WRITE_1000: Workload = Workload {
    name: "write-1000",
    about: "1,000 clients, 10 random writes a transaction",
    group: Group::Own,
    long: false,
    run: |bench| many(bench, "write-1000", 1_000, figures::WRITE_1000),
};

/// How often the workload and the disk's calibrator take turns.
const TURNS: u32 = 5;
const WRITES: u64 = 10;
/// With so many clients it is told whether all of them are served.
const MANY: usize = 1_000;

/// Clients that write ten keys a transaction.
pub fn ten_writes(bench: &Bench, plan: &Plan) -> Result<Measurement> {
    Mix::new(0, WRITES).drive(bench, plan)
}

/// Writes so many random keys, and blocks its thread until they are committed.
#[derive(Clone, Copy)]
pub struct BlockingWrites(pub u64);

impl Work for BlockingWrites {
    const OWN_THREADS: bool = true;

    async fn once(
        &self,
        transaction: &Transaction,
        client: &mut Client,
    ) -> plinth_types::Result<u64> {
        set_random(transaction, client, self.0);
        transaction.commit().wait()?;
        Ok(self.0)
    }
}

fn write_1(bench: &Bench) -> Result<Outcome> {
    let (measured, syncs) = one_client(bench, "write1", 1)?;
    let title = "1 client, 1 write".to_owned();
    let headline = Figure::new(
        "writes/s",
        measured.rate(),
        Unit::PerSecond("writes"),
        figures::write_1(&bench.engine),
    );
    let in_syncs =
        measured.tally.latency().mean.as_secs_f64() / syncs.mean().as_secs_f64().max(1e-9);
    let mut outcome = Outcome::new("write1", title, headline, Some(measured));
    let in_syncs = Figure::new(
        "mean commit, in fdatasyncs",
        in_syncs,
        Unit::Times,
        figures::write_1_syncs(&bench.engine),
    );
    outcome.figures.push(in_syncs.if_quiet());
    note_syncs(&mut outcome, &syncs);
    Ok(outcome)
}

fn write_2(bench: &Bench) -> Result<Outcome> {
    let (measured, syncs) = one_client(bench, "write2", WRITES)?;
    let headline =
        Figure::new("writes/s", measured.rate(), Unit::PerSecond("writes"), figures::WRITE_2);
    let mut outcome =
        Outcome::new("write2", "1 client, 10 writes".to_owned(), headline, Some(measured));
    note_syncs(&mut outcome, &syncs);
    Ok(outcome)
}

/// One client that blocks, in turns with the disk's calibrator.
fn one_client(bench: &Bench, name: &str, writes: u64) -> Result<(Measurement, SyncTimes)> {
    let time = bench.settings.time / TURNS;
    let mut syncs = SyncTimes::default();
    let mut sum: Option<Measurement> = None;
    for turn in 1..=TURNS {
        syncs.measure(bench, time / 4)?;
        let title = format!("{name} ({turn} of {TURNS})");
        let plan = Plan { title, clients: 1, threads: 1, time, slices: 0 };
        let measured = drive(bench, &plan, BlockingWrites(writes))?;
        sum = Some(sum.map_or(measured.clone(), |sum| sum.and(&measured)));
    }
    syncs.measure(bench, time / 4)?;
    Ok((sum.expect("there is at least one turn"), syncs))
}

fn note_syncs(outcome: &mut Outcome, syncs: &SyncTimes) {
    outcome.notes.push(format!(
        "write + fdatasync of 4 KiB meanwhile: mean {}, median {}, p99 {}",
        words::duration(syncs.mean()),
        words::duration(syncs.percentile(50)),
        words::duration(syncs.percentile(99)),
    ));
    outcome.details.push(("fdatasync", syncs.to_json()));
}

fn many(bench: &Bench, name: &'static str, clients: usize, target: Target) -> Result<Outcome> {
    let plan = bench.plan(name, clients, 1);
    let measured = ten_writes(bench, &plan)?;
    let title = format!("{} clients, 10 writes", words::grouped(plan.clients as u64));
    let headline = Figure::new("writes/s", measured.rate(), Unit::PerSecond("writes"), target);
    let fairness = measured.tally.fairness();
    let mut outcome = Outcome::new(name, title, headline, Some(measured));
    if let Some(fairness) = fairness.filter(|_| clients >= MANY) {
        let words = "slowest tenth of the clients, of the median";
        let figure = Figure::new(words, fairness, Unit::Part, figures::FAIRNESS);
        outcome.figures.push(figure.served(figures::FAIRNESS));
    }
    outcome.comparable = plan.clients == clients;
    Ok(outcome)
}
