//! A database in another process: what it is held against, and what its server says of itself.
//!
//! The bounds for a server are others than those for a database in the process, because sockets and
//! a second process share the machine. What a read costs the server comes from its own accounts:
//! processor time and keys read, before and after.

use crate::figures::{self, Target};
use crate::outcome::{Figure, Outcome};
use crate::unit::Unit;
use plinth_client::Database;
use serde_json::Value;
use std::net::SocketAddr;

/// What a server had spent at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Spent {
    cpu_seconds: f64,
    reads: f64,
}

impl Spent {
    /// What the server of `database` says; `None` if there is none.
    pub(crate) fn now(database: &Database) -> Option<Self> {
        let server = server_of(database)?;
        let number = |name: &str| server.get(name)?.as_f64();
        Some(Self { cpu_seconds: number("cpu_seconds")?, reads: number("reads")? })
    }

    /// The processor time since `before`.
    pub(crate) fn cpu_seconds_since(self, before: Self) -> f64 {
        self.cpu_seconds - before.cpu_seconds
    }

    /// Holds an outcome against what is asked of a server, and adds what a read cost it.
    pub(crate) fn judge(self, database: &Database, outcome: &mut Outcome) {
        // What needs a server anyway knows what is asked of one.
        if outcome.name.starts_with("series-") {
            return;
        }
        for (place, figure) in outcome.figures.iter_mut().enumerate() {
            figure.target = asked_of(figure, place, outcome.name);
        }
        let Some(now) = Self::now(database).filter(|_| outcome.name == "read") else { return };
        let reads = now.reads - self.reads;
        if reads > 0.0 {
            let cost = (now.cpu_seconds - self.cpu_seconds) / reads;
            outcome.figures.push(Figure::new(
                "server's processor time a read",
                cost,
                Unit::Seconds,
                figures::SERVED_READ_CPU,
            ));
        }
    }
}

/// Where the server of `database` takes in points in a protocol, if it does.
pub(crate) fn series_address(database: &Database, protocol: &str) -> Option<SocketAddr> {
    server_of(database)?.get("series")?.get(protocol)?.as_str()?.parse().ok()
}

/// The process that serves `database`, if it is another one of this machine: one that can be
/// reached only from here.
pub(crate) fn process(database: &Database) -> Option<u32> {
    process_of(&server_of(database)?)
}

fn process_of(server: &Value) -> Option<u32> {
    let is_here = |address: &Value| {
        let address =
            address.as_str().map(|address| address.strip_suffix(":tls").unwrap_or(address));
        let address = address.and_then(|address| address.parse::<SocketAddr>().ok());
        address.is_some_and(|address| address.ip().is_loopback())
    };
    let is_here = server.get("addresses")?.as_array()?.iter().all(is_here);
    server.get("process_id").filter(|_| is_here)?.as_u64()?.try_into().ok()
}

/// What the server of `database` says of itself; `None` if there is none.
fn server_of(database: &Database) -> Option<Value> {
    let mut document: Value = database.status_json().wait().ok()?.parse().ok()?;
    Some(document.pointer_mut("/cluster/plinth/server")?.take())
}

/// What the figure at this place of a workload's is held against: what it says itself, or what is
/// asked of the workload.
fn asked_of(figure: &Figure, place: usize, workload: &str) -> Target {
    let asked = if place == 0 { target(workload) } else { Target::NONE };
    held_against(figure.target, figure.served.unwrap_or(asked))
}

/// What a figure stands beside, with the bounds for a server.
fn held_against(beside: Target, asked: Target) -> Target {
    Target {
        required: asked.required,
        goal: asked.goal,
        smaller_is_better: beside.smaller_is_better || asked.smaller_is_better,
        ..beside
    }
}

/// What is asked of a server in the workload of this name.
fn target(workload: &str) -> Target {
    match workload {
        "read" => figures::SERVED_READ,
        "write1" => figures::SERVED_WRITE_1,
        "write3" => figures::SERVED_WRITE_3,
        "write-1000" => figures::SERVED_WRITE_1000,
        "90-10" => figures::SERVED_MIXED,
        "range" => figures::SERVED_RANGE,
        _ => Target::NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A median of 3.8 ms was said to keep within half a millisecond.
    #[test]
    fn a_server_s_latency_must_be_small_and_its_rates_large() {
        let median = held_against(Target::NONE, figures::SERVED_LATENCY);
        assert!(median.smaller_is_better && median.required == Some(0.5e-3));
        let rate = held_against(figures::READ, target("read"));
        assert!(!rate.smaller_is_better && rate.published == figures::READ.published);
        assert_eq!(rate.required, figures::SERVED_READ.required);
    }

    /// Only the first figure of a workload is what its name says; others were left without any
    /// bound.
    #[test]
    fn a_figure_that_says_what_a_server_is_held_against_keeps_it() {
        let figure = |what: &str| Figure::new(what, 1.0, Unit::Seconds, figures::READ);
        let figures = [figure("first"), figure("other"), figure("told").served(figures::FAIRNESS)];
        let asked = |place: usize| asked_of(&figures[place], place, "read");
        assert_eq!(asked(0).required, figures::SERVED_READ.required);
        assert_eq!((asked(1).required, asked(2).required), (None, figures::FAIRNESS.required));
        assert!(asked(2).required.is_some());
    }

    #[test]
    fn a_server_is_a_process_of_this_machine_only_if_nobody_else_reaches_it() {
        let server =
            |addresses: &[&str]| serde_json::json!({"addresses": addresses, "process_id": 17});
        assert_eq!(process_of(&server(&["127.0.0.1:4500", "[::1]:4500:tls"])), Some(17));
        assert_eq!(process_of(&server(&["127.0.0.1:4500", "10.0.0.7:4500"])), None);
        assert_eq!(process_of(&serde_json::json!({"addresses": ["127.0.0.1:4500"]})), None);
    }
}
