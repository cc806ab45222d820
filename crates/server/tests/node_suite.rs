//! What a client may count on at the edge of a node, over sockets: the pipeline's own tests, with a server between.

#[path = "../../pipeline/tests/transactions.rs"]
mod transactions;

#[cfg(feature = "tls")]
#[path = "common/again.rs"]
mod again;
