//! All tests of this crate in one program.
//!
//! A program for each file would instantiate the crates below anew, which is most of what building
//! them costs.
#![expect(
    clippy::duplicate_mod,
    reason = "each file has a support of its own, as where it is part of another suite"
)]

#[path = "basics.rs"]
mod basics;
#[path = "commits.rs"]
mod commits;
#[path = "given_up.rs"]
mod given_up;
#[path = "life_cycle.rs"]
mod life_cycle;
#[path = "options.rs"]
mod options;
#[path = "read_your_writes.rs"]
mod read_your_writes;
#[path = "special_keys.rs"]
mod special_keys;
#[path = "tenants_and_maps.rs"]
mod tenants_and_maps;
#[path = "watches.rs"]
mod watches;
