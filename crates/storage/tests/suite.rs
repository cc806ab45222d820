//! All tests of this crate in one program.
//!
//! A program for each file would instantiate the crates below anew, which is most of what building
//! them costs.
#![expect(
    clippy::duplicate_mod,
    reason = "each file has a support of its own, as where it is part of another suite"
)]

#[path = "checkpoint_corruption.rs"]
mod checkpoint_corruption;
#[path = "checkpoint_crash.rs"]
mod checkpoint_crash;
#[path = "checkpoint_roundtrip.rs"]
mod checkpoint_roundtrip;
#[path = "checkpoint_steps.rs"]
mod checkpoint_steps;
#[path = "ssd_corruption.rs"]
mod ssd_corruption;
#[path = "ssd_crash.rs"]
mod ssd_crash;
#[path = "ssd_formats.rs"]
mod ssd_formats;
