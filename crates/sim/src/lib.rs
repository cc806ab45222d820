//! Simulation: a whole node, its disk and its clients in one seeded world, and oracles that judge what happens.
//!
//! ## Role
//! A seed gives a run: a node with random settings on a simulated disk, clients that work on it through the
//! public transactions, and a nemesis that crashes the node, fails and stalls its calls, and fills its
//! disk. A workload's oracle says whether what its clients saw could be. The same seed gives the same run on every
//! machine, so a failure is one line: `plinth-sim --workload NAME --seed N`.
//!
//! ## Data structure
//! ```text
//!   seed ──▶ Plan: settings, how many clients, how long
//!              │
//!   run ───────┤ stage ◀── life 1 ──✗ crash ── life 2 ──✗ fsync fails ── life 3 ...   process "node", one disk
//!              │   ▲
//!              │   └── attempts ── client 0, client 1, ...                              process "clients"
//!              ▼
//!   phases: setup │ work under faults │ faults off, restart, check (safety) │ commit once more (liveness)
//! ```
//!
//! ## Invariants
//! 1. Everything random comes from the seed; what is collected is kept in order (no hash maps).
//! 2. A client never uses what a node told it after that node's life has ended: in process, client and node die
//!    together. An attempt that is cut off like that has an unknown result.
//! 3. A workload has one oracle, in its own file, and owns the whole database.
//!
//! ## Not here
//! Faults themselves: `plinth_env::simulated`. Compositions of workloads in files: to come.
//! Read next: `run.rs`, `stage.rs`, `client.rs`, then `workloads/cycle.rs`.
#![forbid(unsafe_code)]

mod client;
mod history;
pub mod kill;
mod nemesis;
mod plan;
pub mod probes;
mod run;
mod stage;
pub mod workloads;
pub mod writer;

pub use client::{Client, Outcome};
pub use plan::{Bug, Plan};
pub use run::{Report, run};
pub use stage::Stage;
