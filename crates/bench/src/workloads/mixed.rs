//! The 90/10 test: nine reads and a write in each transaction, which then conflicts if one of the
//! nine was written meanwhile. Conflicts are retried, as an application would; they are rare among
//! a million keys, and counted.

use super::mix::Mix;
use super::{Group, Workload};
use crate::figures;
use crate::outcome::{Figure, Outcome};
use crate::unit::Unit;
use crate::{Bench, Result, words};

/// The guide's 90/10 test.
pub const MIXED: Workload = Workload {
    name: "90-10",
    about: "guide's 90/10 test: 100 clients, 9 random reads and a random write a transaction",
    group: Group::Guide,
    long: false,
    run: mixed,
};

const CLIENTS: usize = 100;
const READS: u64 = 9;

fn mixed(bench: &Bench) -> Result<Outcome> {
    let plan = bench.plan("90-10", CLIENTS, 1);
    let measured = Mix::new(READS, 1).drive(bench, &plan)?;
    let title = format!("{} clients, 9 reads and a write", words::grouped(plan.clients as u64));
    let target = figures::mixed(&bench.engine);
    let headline =
        Figure::new("operations/s", measured.rate(), Unit::PerSecond("operations"), target);
    let mut outcome = Outcome::new("90-10", title, headline, Some(measured));
    outcome.comparable = plan.clients == CLIENTS;
    Ok(outcome)
}
