//! The guide's tests on three nodes: a cluster of three servers beside one server, with the same
//! rows, the same clients and the same processors.
//!
//! ```text
//!   three servers   ████        ████        ████        one copy each, a majority has each commit on its disks
//!   one server            ████        ████        ████
//!                                                       turn after turn, so that both see the same machine
//! ```
//! All four stand on this machine while either is measured: what the three give is what replication
//! costs where three machines would have three times the processors.

use super::mix::Mix;
use super::turns::TURNS;
use super::write::BlockingWrites;
use super::{Group, Workload, cluster_of, join, load};
use crate::clients::drive;
use crate::figures::{self, Target};
use crate::outcome::{Figure, Measurement, Outcome};
use crate::place::Place;
use crate::plan::Plan;
use crate::unit::Unit;
use crate::{Bench, Error, Result, words};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

/// Three nodes beside one.
pub const THREE_NODES: Workload = Workload {
    name: "three-nodes",
    about: "the guide's tests on three servers, of what one gives beside them",
    group: Group::Own,
    long: true,
    run: three_nodes,
};

/// Below the database's own directory, so that they are on the same disk.
const DIRECTORIES: [&str; 2] = ["plinth-bench-one-node", "plinth-bench-three-nodes"];
const SERVERS: usize = 3;

/// A test: what its clients do, and what three nodes are held to.
struct Test {
    name: &'static str,
    clients: usize,
    mix: Mix,
    target: Target,
}

/// Throughput of three nodes, of one's.
const TESTS: [Test; 3] = [
    Test {
        name: "100 clients, 10 writes",
        clients: 100,
        mix: Mix::new(0, 10),
        target: figures::THREE_NODES_WRITE,
    },
    Test {
        name: "1,000 clients, 10 writes",
        clients: 1_000,
        mix: Mix::new(0, 10),
        target: figures::THREE_NODES_WRITE,
    },
    Test {
        name: "100 clients, 10 reads",
        clients: 100,
        mix: Mix::new(10, 0),
        target: figures::THREE_NODES_READ,
    },
];

fn three_nodes(bench: &Bench) -> Result<Outcome> {
    let Some(host) = &bench.host else {
        return Err(Error::Skipped("it starts servers of its own".to_owned()));
    };
    let place = |name: &str| Place::new(&bench.env, bench.directory.join(name));
    let [first, second] = DIRECTORIES.map(place);
    let (first, second) = (first?, second?);
    let cluster = cluster_of(&**host, &second.path, (SERVERS, false))?;
    let server = host.serve(&first.path)?;
    let both = [server.database.clone(), cluster.database()?];
    for database in &both {
        load(&bench.env, database, &bench.dataset, bench.progress, &bench.stop)?;
    }
    let both = both.map(|database| bench.of(database));
    let mut measured = Vec::new();
    for test in &TESTS {
        measured.push(in_turns(bench, test.name, &both, |bench, title| {
            let plan = bench.plan(title, test.clients, 1);
            test.mix.drive(bench, &Plan { time: plan.time / TURNS, ..plan })
        })?);
    }
    let alone = in_turns(bench, "1 client, 1 write", &both, |bench, title| {
        let time = bench.settings.time / TURNS;
        let plan = Plan { title: title.to_owned(), clients: 1, threads: 1, time, slices: 0 };
        drive(bench, &plan, BlockingWrites(1))
    })?;
    Ok(outcome(&measured, &alone))
}

/// What one server and three of them gave, turn after turn.
fn in_turns(
    bench: &Bench,
    name: &str,
    both: &[Bench; 2],
    measure: impl Fn(&Bench, &str) -> Result<Measurement>,
) -> Result<[Measurement; 2]> {
    let mut sums = [None, None];
    for turn in 1..=TURNS {
        for (sum, (of, nodes)) in sums.iter_mut().zip(both.iter().zip(["one", "three"])) {
            if bench.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let title = format!("{nodes}: {name} ({turn} of {TURNS})");
            *sum = Some(join(sum.take(), measure(of, &title)?));
        }
    }
    Ok(sums.map(|sum| sum.expect("there is at least one turn")))
}

fn outcome(measured: &[[Measurement; 2]], alone: &[Measurement; 2]) -> Outcome {
    let mut figures = Vec::new();
    let mut notes = Vec::new();
    let mut details = Vec::new();
    for (test, both) in TESTS.iter().zip(measured) {
        let [one, three] = both.each_ref().map(Measurement::rate);
        let what = format!("{}, of one server's", test.name);
        figures.push(Figure::new(what, three / one.max(1e-9), Unit::Times, test.target));
        notes.push(format!(
            "{}: {} operations/s, one server {}",
            test.name,
            words::short(three),
            words::short(one)
        ));
        details.push(detail(test.name, "operations_per_second", [one, three]));
    }
    let [one, three] = alone.each_ref().map(|measured| measured.tally.latency().mean);
    figures.push(Figure::new(
        "1 client, 1 write: mean commit, of one server's",
        three.as_secs_f64() / one.as_secs_f64().max(1e-9),
        Unit::Times,
        figures::THREE_NODES_COMMIT,
    ));
    notes.push(format!(
        "1 client, 1 write: mean commit {}, one server's {}",
        words::duration(three),
        words::duration(one)
    ));
    let seconds = [one, three].map(|time| time.as_secs_f64());
    details.push(detail("1 client, 1 write", "mean_commit_seconds", seconds));
    let first = figures.remove(0);
    let title = format!("{SERVERS} servers beside one, {TURNS} turns each");
    let mut outcome = Outcome::new(THREE_NODES.name, title, first, None);
    outcome.figures.extend(figures);
    outcome.notes = notes;
    outcome.details.push(("tests", Value::Array(details)));
    outcome
}

fn detail(name: &str, unit: &str, [one, three]: [f64; 2]) -> Value {
    json!({ "test": name, "unit": unit, "one_server": one, "three_servers": three })
}
