//! What a client may count on at the edge of a node, over sockets: the pipeline's own tests, with a
//! server between.
#![expect(
    clippy::duplicate_mod,
    reason = "each suite has a support of its own, as when it runs alone"
)]

#[path = "../../pipeline/tests/pinned.rs"]
mod pinned;
#[path = "../../pipeline/tests/range_locks.rs"]
mod range_locks;
#[path = "../../pipeline/tests/status.rs"]
mod status;
#[path = "../../pipeline/tests/transactions.rs"]
mod transactions;

#[cfg(feature = "tls")]
#[path = "common/again.rs"]
mod again;
