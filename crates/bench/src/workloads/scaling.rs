//! Reads on one thread and on two, beside the same from a map that nobody writes to.
//!
//! Two threads of a virtual machine rarely do twice the work of one: they share caches and, often,
//! a physical core. What they can do at best, a read-only `BTreeMap` shows; reads of the database
//! should scale as well as that. The four measurements take turns, so that all of them see the same
//! machine.

use super::{Group, Workload, read};
use crate::calibrate;
use crate::figures::{self, Target};
use crate::outcome::{Figure, Measurement, Outcome};
use crate::plan::Plan;
use crate::unit::Unit;
use crate::{Bench, Result, words};
use serde_json::json;

/// Reads on one thread and on two.
pub const SCALING: Workload = Workload {
    name: "scaling",
    about: "the read test on one thread and on two, beside a read-only BTreeMap",
    group: Group::Own,
    long: false,
    run: scaling,
};

const TURNS: u32 = 4;

fn scaling(bench: &Bench) -> Result<Outcome> {
    let map = calibrate::row_map(&bench.dataset, bench.settings.seed);
    let time = bench.settings.time / TURNS / 2;
    let mut ours: [Option<Measurement>; 2] = [None, None];
    let mut maps = [0.0; 2];
    let mut hash = 0;
    for turn in 1..=TURNS {
        for threads in 1..=2 {
            let title = format!("scaling, {threads} threads ({turn} of {TURNS})");
            let plan = Plan { time, ..bench.plan(&title, read::CLIENTS, threads) };
            let measured = read::ten_reads(bench, &Plan { threads, ..plan })?;
            let sum = &mut ours[threads - 1];
            *sum = Some(sum.take().map_or(measured.clone(), |sum| sum.and(&measured)));
            let (rate, seen) = calibrate::map_gets(bench, &map, threads, time / 2)?;
            maps[threads - 1] += rate / f64::from(TURNS);
            hash ^= seen;
        }
    }
    let [one, two] = ours.map(|sum| sum.expect("there is at least one turn"));
    let (scaling, map_scaling) = (two.rate() / one.rate().max(1e-9), maps[1] / maps[0].max(1e-9));
    let notes = format!(
        "one thread {} reads/s, two {}: {scaling:.2}×; BTreeMap {} and {} gets/s: {map_scaling:.2}×",
        words::short(one.rate()),
        words::short(two.rate()),
        words::short(maps[0]),
        words::short(maps[1]),
    );
    let details = json!({
        "reads_one_thread": one.rate(),
        "reads_two_threads": two.rate(),
        "map_one_thread": maps[0],
        "map_two_threads": maps[1],
        "map_hash": format!("{hash:016x}"),
    });
    let title = "on two threads, 10 reads".to_owned();
    let headline = Figure::new("reads/s", two.rate(), Unit::PerSecond("reads"), Target::NONE);
    let mut outcome = Outcome::new("scaling", title, headline, Some(two));
    let part = Figure::new(
        "of a BTreeMap's scaling from one to two",
        scaling / map_scaling.max(1e-9),
        Unit::Part,
        figures::read_scaling(&bench.engine),
    );
    outcome.figures.push(part.if_quiet());
    outcome.notes.push(notes);
    outcome.details.push(("scaling", details));
    Ok(outcome)
}
