//! Simulation: a whole node, its disk and its clients in one seeded world, and oracles that judge
//! what happens.
//!
//! ## Role
//! A seed gives a run: a node with random settings on a simulated disk, clients that work on it
//! through the public transactions, and a nemesis that crashes the node, fails and stalls its
//! calls, fills its disk and turns bits over on it. A workload's oracle says whether what its
//! clients saw could be. The same seed gives the same run on every machine, so a failure is one
//! line: `make sim ARGS='--spec NAME --seed N'`.
//!
//! ## Data structure
//! ```text
//!   spec (TOML): workloads with parameters, faults, link, size
//!     │
//!   seed ──▶ Plan ──▶ settings of the node, how many clients, how long
//!              │
//!   run ───────┤ stage ◀── life 1 ──✗ crash ── life 2 ──✗ fsync fails ── life 3 ...   process "node", one disk
//!              │   ▲
//!              │   └── attempts ── link ── client 0, client 1, ...                      process "clients"
//!              ▼
//!   phases: setup │ work under faults │ faults off, restart, check (safety) │ commit once more (liveness) │ checksums
//! ```
//!
//! ## Invariants
//! 1. Everything random comes from the seed; what is collected is kept in order (no hash maps).
//! 2. A client never uses what a node told it after that node's life has ended. An attempt that is
//!    cut off like that has an unknown result.
//! 3. A workload has one oracle, in its own file; specs compose them, and each stays within keys of
//!    its own.
//!
//! ## Not here
//! Faults themselves: `plinth_env::simulated`. How to run, write and read all this:
//! `docs/simulation.md`; how to test a layer of your own with it, by [`Workloads`] and [`Seeds`]:
//! `docs/testing-layers.md`.
//! Read next: `spec.rs`, `run.rs`, `stage.rs`, `client.rs`, then `workloads/cycle.rs`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod bugs;
mod client;
pub mod command;
mod damage;
mod double;
mod draw;
mod faults;
mod fixed;
mod fleet;
mod history;
pub mod hostile;
pub mod kill;
pub mod kill_nodes;
mod link;
pub mod lists;
mod many;
mod nemesis;
mod plan;
pub mod probes;
pub mod proxy;
mod run;
mod seeds;
pub mod servers;
mod shadow;
mod spec;
mod stage;
pub mod workloads;
pub mod writer;

pub use bugs::Bug;
pub use client::{Client, Outcome};
pub use double::{Between, Doubles, Tally};
pub use draw::Draw;
pub use many::{Sum, run_many};
pub use plan::{Caller, Plan};
pub use run::{Report, run};
pub use seeds::Seeds;
pub use spec::{BUILT_IN, Spec};
pub use stage::{Life, Stage};
pub use workloads::{Work, Workload, Workloads};
