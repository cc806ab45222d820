//! The guide's tests of a cluster of twelve machines, by name: 3,200 clients. The published figures
//! are those of 48 server processes on 48 cores and as many disks as machines; they stand beside
//! for what they are.

use super::mix::Mix;
use super::over_time::{curve, in_slices};
use super::{Group, Workload};
use crate::figures::{self, Target};
use crate::outcome::{Figure, Outcome};
use crate::unit::Unit;
use crate::{Bench, Result, words};

/// The guide's 12-machine write test.
pub const WRITE: Workload = Workload {
    name: "cluster-write",
    about: "guide's 12-machine write test: 3,200 clients, 10 random writes a transaction",
    group: Group::Cluster,
    long: false,
    run: |bench| run(bench, "cluster-write", "writes", 1, Mix::new(0, 10), figures::CLUSTER_WRITE),
};

/// The guide's 12-machine read test.
pub const READ: Workload = Workload {
    name: "cluster-read",
    about: "guide's 12-machine read test: 3,200 clients, 10 random reads a transaction",
    group: Group::Cluster,
    long: false,
    run: |bench| run(bench, "cluster-read", "reads", 2, Mix::new(10, 0), figures::CLUSTER_READ),
};

/// The guide's 12-machine 90/10 test.
pub const MIXED: Workload = Workload {
    name: "cluster-90-10",
    about: "guide's 12-machine 90/10 test: 3,200 clients, 9 random reads and a random write a transaction",
    group: Group::Cluster,
    long: false,
    run: |bench| {
        run(bench, "cluster-90-10", "operations", 1, Mix::new(9, 1), figures::CLUSTER_MIXED)
    },
};

const CLIENTS: usize = 3_200;

fn run(
    bench: &Bench,
    name: &'static str,
    things: &'static str,
    threads: usize,
    mix: Mix,
    target: Target,
) -> Result<Outcome> {
    let (plan, slice) = in_slices(bench.plan(name, CLIENTS, threads));
    let measured = mix.drive(bench, &plan)?;
    let clients = words::grouped(plan.clients as u64);
    let (test, title) = match (mix.reads, mix.writes) {
        (reads, 0) => ("read", format!("{clients} clients, {reads} reads")),
        (0, writes) => ("write", format!("{clients} clients, {writes} writes")),
        (reads, _) => ("90/10", format!("{clients} clients, {reads} reads and a write")),
    };
    let curve = curve(
        format!("12-machine {test} test, over time"),
        things,
        (&measured, slice),
        &[("guide", target)],
    );
    let headline =
        Figure::new(format!("{things}/s"), measured.rate(), Unit::PerSecond(things), target);
    let mut outcome = Outcome::new(name, title, headline, Some(measured));
    outcome.curves.push(curve);
    Ok(outcome)
}
