//! All tests of this crate in one program.
//!
//! A program for each file would instantiate the crates below anew, which is most of what building
//! them costs.
#![expect(
    clippy::duplicate_mod,
    reason = "each file has a support of its own, as where it is part of another suite"
)]

#[path = "arrow.rs"]
mod arrow;
#[path = "crash.rs"]
mod crash;
#[path = "damage.rs"]
mod damage;
#[path = "deletes.rs"]
mod deletes;
#[path = "ended.rs"]
mod ended;
#[path = "full_disk.rs"]
mod full_disk;
#[path = "histograms.rs"]
mod histograms;
#[path = "histograms_sent.rs"]
mod histograms_sent;
#[path = "increments.rs"]
mod increments;
#[path = "increments_crash.rs"]
mod increments_crash;
#[path = "late_points.rs"]
mod late_points;
#[path = "lease.rs"]
mod lease;
#[path = "limits.rs"]
mod limits;
#[path = "lives.rs"]
mod lives;
#[path = "parts.rs"]
mod parts;
#[path = "place.rs"]
mod place;
#[path = "prometheus.rs"]
mod prometheus;
#[path = "prometheus_model.rs"]
mod prometheus_model;
#[path = "query.rs"]
mod query;
#[path = "query_bounds.rs"]
mod query_bounds;
#[path = "query_rest.rs"]
mod query_rest;
#[path = "recovery.rs"]
mod recovery;
#[path = "remote_read.rs"]
mod remote_read;
#[path = "rest.rs"]
mod rest;
#[path = "rollups.rs"]
mod rollups;
#[path = "rollups_crash.rs"]
mod rollups_crash;
#[path = "rollups_promql.rs"]
mod rollups_promql;
#[path = "sessions.rs"]
mod sessions;
#[path = "set_aside.rs"]
mod set_aside;
#[path = "store.rs"]
mod store;
#[path = "summaries_promql.rs"]
mod summaries_promql;
#[path = "transactions.rs"]
mod transactions;
#[path = "within.rs"]
mod within;
