//! What a workload found out: its figures, each beside what it is held against.
//!
//! An [`Outcome`] has one or more [`Figure`]s, the most important one first, and most have a
//! [`Measurement`]: what the clients counted. Whether a figure is judged at all depends on the
//! run's set-up, which the outcome knows ([`Outcome::comparable`]); the figure only knows its
//! bounds.

use crate::curve::Curve;
use crate::figures::Target;
use crate::machine::CpuUse;
use crate::tally::Tally;
use crate::unit::Unit;
use crate::words;
use serde_json::{Value, json};
use std::time::Duration;

/// One figure, and what it is compared with.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// What was measured, in words.
    pub what: String,
    /// The figure.
    pub value: f64,
    /// What it counts.
    pub unit: Unit,
    /// What it is held against.
    pub target: Target,
    /// What it is held against in place of that where the database is a server's, if the workload
    /// says so.
    pub served: Option<Target>,
    /// Whether it needs the machine for itself: it compares two measurements that other processes
    /// disturb differently.
    pub needs_quiet: bool,
}

/// Whether a bound was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// It was.
    Reached,
    /// It was not.
    Missed,
    /// The run's set-up differs from the one that the bound is for, or the machine was too busy.
    NotComparable,
}

/// What the clients of a workload measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Measurement {
    /// How many clients ran at once.
    pub clients: usize,
    /// On how many threads.
    pub threads: usize,
    /// For how long.
    pub time: Duration,
    /// What they counted.
    pub tally: Tally,
    /// How busy the processors were, where that can be known.
    pub cpu: Option<CpuUse>,
    /// The same of each slice of time, if there are any.
    pub cpu_of_slices: Vec<CpuUse>,
}

/// What a workload found out.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The workload's name.
    pub name: &'static str,
    /// What it did, with the numbers it did it with.
    pub title: String,
    /// Its figures, the most important one first.
    pub figures: Vec<Figure>,
    /// What its clients measured.
    pub measurement: Option<Measurement>,
    /// Whether the set-up was the one that targets are for.
    pub comparable: bool,
    /// How its figures depend on something, for plots.
    pub curves: Vec<Curve>,
    /// What else one should know.
    pub notes: Vec<String>,
    /// More for the report.
    pub details: Vec<(&'static str, Value)>,
}

impl Figure {
    /// A figure held against a target.
    pub fn new(what: impl Into<String>, value: f64, unit: Unit, target: Target) -> Self {
        Self { what: what.into(), value, unit, target, served: None, needs_quiet: false }
    }

    /// The same, held against this where the database is a server's.
    #[must_use]
    pub fn served(self, target: Target) -> Self {
        Self { served: Some(target), ..self }
    }

    /// The same, of a kind that means nothing on a busy machine.
    #[must_use]
    pub fn if_quiet(self) -> Self {
        Self { needs_quiet: true, ..self }
    }

    fn to_json(&self, mark: impl Fn(f64) -> Mark) -> Value {
        let Target { published, published_cores, foundationdb, required, goal, .. } = self.target;
        let unit = match self.unit {
            Unit::PerSecond(things) => format!("{things}/s"),
            Unit::Times => "times".to_owned(),
            Unit::Part => "part".to_owned(),
            Unit::BytesPerKey => "bytes/key".to_owned(),
            Unit::BytesPerSecond => "bytes/s".to_owned(),
            Unit::Seconds => "seconds".to_owned(),
            Unit::Count => "count".to_owned(),
        };
        let reached = |bound: Option<f64>| match mark(bound?) {
            Mark::Reached => Some(true),
            Mark::Missed => Some(false),
            Mark::NotComparable => None,
        };
        json!({
            "what": self.what,
            "value": self.value,
            "unit": unit,
            "published": published,
            "published_cores": published.map(|_| published_cores),
            "foundationdb": foundationdb,
            "required": required,
            "required_reached": reached(required),
            "goal": goal,
            "goal_reached": reached(goal),
        })
    }
}

impl Unit {
    /// A value in this unit, in a few characters.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::PerSecond(_) | Self::Count => words::short(value),
            Self::Times => format!("{value:.2}×"),
            Self::Part => format!("{:.0} %", value * 100.0),
            Self::BytesPerKey => format!("{value:.0} B"),
            Self::BytesPerSecond => format!("{} MB/s", words::short(value / 1e6)),
            Self::Seconds => words::duration(Duration::from_secs_f64(value.max(0.0))),
        }
    }
}

impl Unit {
    /// A value in this unit at an axis: shorter where that loses nothing.
    pub(crate) fn tick(self, value: f64) -> String {
        let text = match self {
            _ if value == 0.0 => return "0".to_owned(),
            Self::Seconds if value >= 1.0 && value.fract() == 0.0 => format!("{value} s"),
            unit => unit.show(value),
        };
        // `2.00 M` says no more than `2 M`, `500 k` and `50.0 µs` are what they are.
        let (number, rest) = text.split_once(' ').unwrap_or((&text, ""));
        let number = if number.contains('.') {
            number.trim_end_matches('0').trim_end_matches('.')
        } else {
            number
        };
        format!("{number} {rest}").trim_end().to_owned()
    }
}

impl Measurement {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.tally.operations as f64 / self.time.as_secs_f64()
    }

    /// Operations for each second that this process had a processor; on a busy machine that moves
    /// less than the rate.
    pub fn rate_of_processor(&self) -> Option<f64> {
        self.cpu.filter(|cpu| cpu.own > 0.01).map(|cpu| self.rate() / cpu.own)
    }

    /// This and another of the same workload, as one that went on for the time of both.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        let (mine, others) = (self.time.as_secs_f64(), other.time.as_secs_f64());
        self.cpu = self.cpu.zip(other.cpu).map(|(one, two)| one.mean(mine, two, others));
        self.time += other.time;
        self.tally.add(&other.tally);
        self
    }

    /// For the report.
    pub fn to_json(&self) -> Value {
        json!({
            "clients": self.clients,
            "threads": self.threads,
            "seconds": self.time.as_secs_f64(),
            "transactions": self.tally.transactions,
            "operations": self.tally.operations,
            "operations_per_second": self.rate(),
            "operations_per_processor_second": self.rate_of_processor(),
            "retries": self.tally.retries,
            "latency": self.tally.latency().to_json(),
            "result_hash": format!("{:016x}", self.tally.hash),
            "cpu": self.cpu.map(CpuUse::to_json),
        })
    }
}

impl Outcome {
    /// The outcome of a workload whose clients measured this, with its first figure.
    pub fn new(
        name: &'static str,
        title: String,
        figure: Figure,
        measurement: Option<Measurement>,
    ) -> Self {
        let figures = vec![figure];
        let (curves, notes, details) = (Vec::new(), Vec::new(), Vec::new());
        Self { name, title, figures, measurement, comparable: true, curves, notes, details }
    }

    /// Whether a bound of one of its figures was reached.
    pub fn mark(&self, figure: &Figure, bound: f64) -> Mark {
        if !self.comparable || (figure.needs_quiet && self.is_disturbed()) {
            return Mark::NotComparable;
        }
        if figure.target.reaches(figure.value, bound) { Mark::Reached } else { Mark::Missed }
    }

    /// Whether one of its figures has a bound that it can't be held against.
    pub fn has_unjudged(&self) -> bool {
        let bounds =
            self.figures.iter().filter_map(|figure| Some((figure, figure.target.required?)));
        bounds.into_iter().any(|(figure, bound)| self.mark(figure, bound) == Mark::NotComparable)
    }

    /// Whether other processes used more of the processors than a fair measurement bears.
    pub fn is_disturbed(&self) -> bool {
        let cpu = self.measurement.as_ref().and_then(|measured| measured.cpu);
        cpu.is_some_and(CpuUse::is_disturbed)
    }

    /// For the report.
    pub fn to_json(&self) -> Value {
        let figure = |figure: &Figure| figure.to_json(|bound| self.mark(figure, bound));
        let figures: Vec<_> = self.figures.iter().map(figure).collect();
        let measurement = self.measurement.as_ref().map(Measurement::to_json);
        let mut outcome = json!({
            "name": self.name,
            "title": self.title,
            "comparable": self.comparable,
            "figures": figures,
            "measurement": measurement,
            "curves": self.curves.iter().map(Curve::to_json).collect::<Vec<_>>(),
            "notes": self.notes,
        });
        for (name, value) in &self.details {
            outcome[name] = value.clone();
        }
        outcome
    }
}
