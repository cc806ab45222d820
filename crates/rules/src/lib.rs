//! Recording and alerting rules: Prometheus' files of rules, read and evaluated over whatever gives
//! series and takes points.
//!
//! ## Role
//! The text of a file comes in and becomes groups, or all that is wrong with it. A group is
//! evaluated for a time over a [`Store`]: what its rules give is written there, and who has to be
//! told of which alerts comes back. What rules mean is what they mean to Prometheus 3. It does no
//! I/O of its own and waits for nothing but the store, so evaluations are repeated in tests to the
//! point.
//!
//! ## Data structure
//! ```text
//!   text --yaml--> tree with places --file--> GroupSpec: rules, their templates read
//!                                                |
//!      Store: instant(expr) -> series            v
//!        ^    newest(conditions) -> points     Group --evaluate(slot)--> for each rule in its order:
//!        |                                       |                         record: series with its name
//!        +---- write(points, marks of ends) -----+                         alert:  Alert by labels, pending -> firing -> inactive
//!                                                |
//!                   Saved <--save, load--> Group +--> Outcome: notices     GroupStatus: for whoever asks
//! ```
//! The one rule: all times are those of evaluations (slots), so a group that is loaded from what
//! another one saved goes on as that one would have.
//!
//! ## Invariants
//! 1. No file and no template makes it panic, loop, or run out of stack or memory: sizes, depths,
//!    copies of aliases, steps and what is written are bounded.
//! 2. A group that was saved and loaded evaluates as it would have without.
//! 3. A series that a rule wrote and writes no longer gets the mark of its end, and gets it once
//!    unless a write failed meanwhile.
//!
//! ## Not here
//! When groups are evaluated, where what is saved stays, who is told of alerts, HTTP: the server.
//! PromQL: `plinth-promql`.
//! Read next: `file.rs`, `alert.rs`, `group.rs`, then `restore.rs` and `template/mod.rs`.
#![forbid(unsafe_code)]

mod alert;
mod digits;
mod fault;
mod file;
mod group;
mod json;
mod restore;
mod rule;
mod saved;
mod status;
mod store;
mod template;
mod time;
mod writer;
pub mod yaml;

pub use alert::{Alert, AlertState, Notice};
pub use fault::{Fault, Place};
pub use file::{GroupSpec, MAX_FILE_BYTES, RuleKind, RuleSpec, parse};
pub use group::{Group, Options, Outcome};
pub use rule::Evaluated;
pub use saved::Saved;
pub use status::{Alerting, GroupStatus, RuleStatus, alerts, posted, rules};
pub use store::{Store, Written, WrittenHistogram};
pub use template::{Outside, Template};
pub use time::rfc3339;
