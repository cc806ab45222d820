//! All tests of this crate in one program, but those that plant bugs for the whole process.
//!
//! A program for each file would instantiate the crates below anew, which is most of what building
//! them costs.
#![expect(
    clippy::duplicate_mod,
    reason = "each file has a support of its own, as where it is part of another suite"
)]

#[path = "behaviour.rs"]
mod behaviour;
#[path = "conformance.rs"]
mod conformance;
#[path = "corruption.rs"]
mod corruption;
#[path = "crash_model.rs"]
mod crash_model;
#[path = "faults.rs"]
mod faults;
#[path = "last_record.rs"]
mod last_record;
#[path = "real_files.rs"]
mod real_files;
#[path = "replica_crashes.rs"]
mod replica_crashes;
#[path = "replica_model.rs"]
mod replica_model;
#[path = "sealed.rs"]
mod sealed;
