//! Tests of a server in a simulated world, and those of the crates below over it, in one program.
//!
//! A program for each file would instantiate the crates below anew, which is most of what building
//! them costs.
#![expect(
    clippy::duplicate_mod,
    reason = "each file has a support of its own, as where it is part of another suite"
)]

#[path = "client_suite.rs"]
mod client_suite;
#[path = "large_commits.rs"]
mod large_commits;
#[path = "layer_suite.rs"]
mod layer_suite;
#[path = "machine_suite.rs"]
mod machine_suite;
#[path = "migrate_suite.rs"]
mod migrate_suite;
#[path = "node_suite.rs"]
mod node_suite;
#[path = "page.rs"]
mod page;
#[path = "quotas.rs"]
mod quotas;
#[path = "rights_simulated.rs"]
mod rights_simulated;
#[path = "series_simulated.rs"]
mod series_simulated;
#[path = "several.rs"]
mod several;
#[path = "simulated.rs"]
mod simulated;
#[path = "snapshots.rs"]
mod snapshots;
#[path = "status.rs"]
mod status;
#[path = "unwell.rs"]
mod unwell;
