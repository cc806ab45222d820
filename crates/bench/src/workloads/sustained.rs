//! Random writes for minutes on end: what is left of the first minute's speed once checkpoints run,
//! the log goes round and the window is full.
//!
//! It takes sixty times as long as the other workloads, and ten minutes at least unless they take
//! an instant. Writes are counted in sixty slices, and the slowest one is compared with the mean of
//! the first six. On a machine whose processors others take for minutes at a time that compares the
//! machine with itself; so the slices that nobody took them from are told too, if there are enough
//! of them. They are not what is judged: that a hypervisor steals is no proof that it isn't for our
//! own doing.

use super::{Group, Workload, write};
use crate::figures::{self, Target};
use crate::machine::CpuUse;
use crate::outcome::{Figure, Outcome};
use crate::plan::Plan;
use crate::unit::Unit;
use crate::{Bench, Result, words};
use serde_json::json;
use std::time::Duration;

/// Minutes of random writes.
pub const SUSTAINED: Workload = Workload {
    name: "sustained",
    about: "100 clients, 10 random writes a transaction, for sixty times --seconds, and for ten minutes at least from five seconds on",
    group: Group::Own,
    long: true,
    run: sustained,
};

const CLIENTS: usize = 100;
const SLICES: usize = 60;
const FIRST_MINUTE: usize = 6;
/// Shorter runs don't tell what ten minutes would.
const LEAST: Duration = Duration::from_secs(600);
/// From so much time a workload on, this one takes as long as it needs to tell.
const IN_EARNEST: Duration = Duration::from_secs(5);
/// Fewer that nobody took processors from don't tell it either.
const LEAST_SLICES: usize = SLICES / 2;
/// Nor does a first minute of which fewer are left.
const LEAST_FIRST: usize = FIRST_MINUTE / 2;

/// What the slices say.
#[derive(PartialEq, Debug)]
struct Slowest {
    /// Its number, from 0, and its writes a second.
    at: usize,
    rate: f64,
    /// The mean of the first minute.
    first_minute: f64,
    /// How many slices were compared.
    of: usize,
    /// How many of them were of the first minute.
    of_first: usize,
}

/// The slowest of the slices that count, beside those of the first minute that do; `None` if none
/// there does.
fn slowest(rates: &[f64], counts: impl Fn(usize) -> bool) -> Option<Slowest> {
    let counted = || rates.iter().copied().enumerate().filter(|(at, _)| counts(*at));
    let first: Vec<f64> =
        counted().take_while(|(at, _)| *at < FIRST_MINUTE).map(|(_, rate)| rate).collect();
    let first_minute = first.iter().sum::<f64>() / first.len().max(1) as f64;
    let (at, rate) = counted().min_by(|one, two| one.1.total_cmp(&two.1))?;
    let (of, of_first) = (counted().count(), first.len());
    (of_first > 0).then_some(Slowest { at, rate, first_minute, of, of_first })
}

impl Slowest {
    fn part(&self) -> f64 {
        self.rate / self.first_minute.max(1e-9)
    }
}

/// How long it takes where the others take `others`.
fn time(others: Duration) -> Duration {
    let time = others * SLICES as u32;
    if others >= IN_EARNEST { time.max(LEAST) } else { time }
}

fn sustained(bench: &Bench) -> Result<Outcome> {
    let time = time(bench.settings.time);
    let plan = Plan { time, slices: SLICES, ..bench.plan("sustained", CLIENTS, 1) };
    let measured = write::ten_writes(bench, &plan)?;
    let slice = time.as_secs_f64() / SLICES as f64;
    let rates: Vec<f64> =
        measured.tally.slices.iter().map(|&writes| writes as f64 / slice).collect();
    let cpu = measured.cpu_of_slices.clone();
    let title = format!(
        "{} clients, 10 writes, for {}",
        words::grouped(plan.clients as u64),
        words::duration(time)
    );
    let headline =
        Figure::new("writes/s", measured.rate(), Unit::PerSecond("writes"), figures::SUSTAINED);
    let mut outcome = Outcome::new("sustained", title, headline, Some(measured));
    outcome.comparable = plan.clients == CLIENTS && time >= LEAST;
    let all = slowest(&rates, |_| true);
    let ours = slowest(&rates, |at| cpu.get(at).is_none_or(|cpu| !cpu.is_robbed()));
    let enough = |slices: &Slowest| slices.of >= LEAST_SLICES && slices.of_first >= LEAST_FIRST;
    let quiet = ours.filter(|ours| ours.of < SLICES && enough(ours));
    if let Some(all) = &all {
        let words = "slowest of 60 slices, of the first six";
        outcome.figures.push(Figure::new(words, all.part(), Unit::Part, figures::SUSTAINED_LOWEST));
        outcome.notes.push(note(all, &rates, slice));
    }
    if let Some(quiet) = quiet {
        let words = "the same of slices that nobody took processors from";
        outcome.figures.push(Figure::new(words, quiet.part(), Unit::Part, Target::NONE));
        outcome.notes.push(format!(
            "of the {} of {SLICES} that nobody took processors from: {}",
            quiet.of,
            note(&quiet, &rates, slice)
        ));
    }
    let of_slices = |part: fn(&CpuUse) -> f64| cpu.iter().map(part).collect::<Vec<f64>>();
    let slices = json!({
        "seconds_each": slice,
        "writes_per_second": rates,
        "cores_used_by_others": of_slices(|cpu| cpu.others),
        "cores_taken": of_slices(|cpu| cpu.taken),
    });
    outcome.details.push(("slices", slices));
    Ok(outcome)
}

fn note(slowest: &Slowest, rates: &[f64], slice: f64) -> String {
    format!(
        "first six slices {} writes/s, slowest {} (number {} of {SLICES}, of {} each), last {}",
        words::short(slowest.first_minute),
        words::short(slowest.rate),
        slowest.at + 1,
        words::duration(Duration::from_secs_f64(slice)),
        words::short(rates[SLICES - 1]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_in_earnest_is_long_enough_to_be_judged() {
        let seconds = |others| time(Duration::from_millis(others)).as_secs();
        assert_eq!([100, 4_000, 5_000, 10_000, 20_000].map(seconds), [6, 240, 600, 600, 1_200]);
    }

    #[test]
    fn slices_that_others_took_are_left_out_on_both_sides() {
        let mut rates = vec![100.0; SLICES];
        (rates[1], rates[30], rates[40]) = (40.0, 10.0, 80.0);
        let all = slowest(&rates, |_| true).expect("slices");
        assert_eq!((all.at, all.rate, all.first_minute, all.of), (30, 10.0, 90.0, SLICES));
        let quiet = slowest(&rates, |at| ![1, 30].contains(&at)).expect("slices");
        assert_eq!(
            (quiet.at, quiet.rate, quiet.first_minute, quiet.of),
            (40, 80.0, 100.0, SLICES - 2)
        );
        assert_eq!(quiet.of_first, FIRST_MINUTE - 1);
        assert_eq!(quiet.part(), 0.8);
        assert_eq!(
            slowest(&rates, |at| at >= FIRST_MINUTE),
            None,
            "there is nothing to compare with"
        );
    }
}
