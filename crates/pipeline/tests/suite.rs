//! All tests of this crate in one program, but those that plant panics for the whole process.
//!
//! A program for each file would instantiate the crates below anew, which is most of what building
//! them costs.
#![expect(
    clippy::duplicate_mod,
    reason = "each file has a support of its own, as where it is part of another suite"
)]

#[path = "bad_luck.rs"]
mod bad_luck;
#[path = "catching_up.rs"]
mod catching_up;
#[path = "changes.rs"]
mod changes;
#[path = "changes_cluster.rs"]
mod changes_cluster;
#[path = "cluster.rs"]
mod cluster;
#[path = "cluster_formats.rs"]
mod cluster_formats;
#[path = "cluster_full_disk.rs"]
mod cluster_full_disk;
#[path = "cluster_silent_disk.rs"]
mod cluster_silent_disk;
#[path = "coming_back.rs"]
mod coming_back;
#[path = "creation.rs"]
mod creation;
#[path = "damage.rs"]
mod damage;
#[path = "depth.rs"]
mod depth;
#[path = "durability.rs"]
mod durability;
#[path = "each_file.rs"]
mod each_file;
#[path = "encryption.rs"]
mod encryption;
#[path = "full_disk.rs"]
mod full_disk;
#[path = "generations.rs"]
mod generations;
#[path = "imports.rs"]
mod imports;
#[path = "members.rs"]
mod members;
#[path = "opening.rs"]
mod opening;
#[path = "overload.rs"]
mod overload;
#[path = "permission.rs"]
mod permission;
#[path = "pinned.rs"]
mod pinned;
#[path = "range_locks.rs"]
mod range_locks;
#[path = "restored.rs"]
mod restored;
#[path = "room.rs"]
mod room;
#[path = "small_disk.rs"]
mod small_disk;
#[path = "ssd.rs"]
mod ssd;
#[path = "ssd_files.rs"]
mod ssd_files;
#[path = "status.rs"]
mod status;
#[path = "transactions.rs"]
mod transactions;
