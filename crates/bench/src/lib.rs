//! Workloads that measure a database, and the reports that say what they found.
//!
//! ## Role
//! Takes any [`plinth_client::Database`] (in process, over a socket, over `libfdb_c`), loads the
//! rows of FoundationDB's benchmarking guide into it, runs the guide's workloads and our own, and
//! holds what it measured against the published figures, FoundationDB's measured ones, and what we
//! require. The `plinth` program gives it a database and prints the report.
//!
//! ## Data structures
//! ```text
//!   Bench (database, rows, settings) ── run(workload) ──▶ Outcome ──┐
//!     │ clients as tasks, a few threads                 Figure, Figure   Report ──▶ table, JSON, Markdown
//!     └─ drive: transaction after transaction ──▶ Tally per thread ──▶ Measurement
//! ```
//!
//! ## Invariants
//! 1. What is counted ended inside the measured time; the warm-up before it is not counted.
//! 2. A figure that depends on the disk or on the number of cores stands beside a calibrator of the
//!    same run.
//! 3. Nothing is held against a bound unless it was measured in the set-up that the bound is for.
//! 4. A database that holds anything but this benchmark's rows is refused, and left as it was.
//!
//! ## Not here
//! The command line, opening databases, temporary directories: `cli`. Microbenchmarks of parts:
//! beside the parts.
//! Read next: [`workloads`], `clients.rs`, `figures.rs`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod alarm;
mod bench;
mod blocking_http;
pub mod calibrate;
mod clients;
pub mod curve;
mod dataset;
mod error;
pub mod figures;
pub mod host;
mod html;
mod load;
pub mod machine;
mod open_loop;
mod outcome;
mod place;
mod plan;
mod progress;
mod random;
mod report;
mod run;
mod served;
mod table;
mod tally;
mod unit;
pub mod words;
pub mod workloads;

pub use bench::{Bench, Owner, Settings};
pub use clients::{Client, Work, drive};
pub use dataset::{Dataset, MAX_ROWS, key};
pub use error::{Error, Result};
pub use host::Host;
pub use html::{page, pictures};
pub use outcome::{Figure, Mark, Measurement, Outcome};
pub use place::Place;
pub use plan::Plan;
pub use progress::{Progress, Task};
pub use random::Random;
pub use report::{Provenance, Report, SERVED};
pub use serde_json::Value;
pub use table::Style;
pub use tally::{Latency, Tally};
pub use unit::Unit;
pub use workloads::set_random;
