//! A database in another process: what it is held against, and what its server says of itself.
//!
//! The bounds for a server are others than those for a database in the process, because sockets and a second process share
//! the machine. What a read costs the server comes from its own accounts: processor time and keys read, before and after.

use crate::figures::{self, Target};
use crate::outcome::{Figure, Outcome, Unit};
use plinth_client::Database;
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
        let document: serde_json::Value = database.status_json().wait().ok()?.parse().ok()?;
        let server = document.pointer("/cluster/plinth/server")?;
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
            let asked = match outcome.name {
                "latency" => latency_target(&figure.what),
                name if place == 0 => target(name),
                _ => Target::NONE,
            };
            figure.target = held_against(figure.target, asked);
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
    let document: serde_json::Value = database.status_json().wait().ok()?.parse().ok()?;
    document.pointer("/cluster/plinth/server/series")?.get(protocol)?.as_str()?.parse().ok()
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

/// What is asked of a server's medians at three quarters of its peak.
fn latency_target(figure: &str) -> Target {
    match figure.strip_prefix("median ") {
        Some("start" | "read") => figures::SERVED_LATENCY,
        Some(commit) if commit.starts_with("commit") => figures::SERVED_COMMIT_LATENCY,
        _ => Target::NONE,
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
        let median = held_against(Target::NONE, latency_target("median start"));
        assert!(median.smaller_is_better && median.required == Some(0.5e-3));
        assert!(latency_target("median commit, beyond 3 fdatasyncs").smaller_is_better);
        assert_eq!(latency_target("mean start at 75 % load"), Target::NONE);
        let rate = held_against(figures::READ, target("read"));
        assert!(!rate.smaller_is_better && rate.published == figures::READ.published);
        assert_eq!(rate.required, figures::SERVED_READ.required);
    }
}
