//! Transactions over sockets: the client's own tests, with a server between them and their stand-in
//! for a database.
#![expect(
    clippy::duplicate_mod,
    reason = "each suite has a support of its own, as when it runs alone"
)]

#[path = "../../client/tests/basics.rs"]
mod basics;
#[path = "../../client/tests/commits.rs"]
mod commits;
#[path = "../../client/tests/life_cycle.rs"]
mod life_cycle;
#[path = "../../client/tests/options.rs"]
mod options;
#[path = "../../client/tests/read_your_writes.rs"]
mod read_your_writes;
#[path = "../../client/tests/special_keys.rs"]
mod special_keys;
#[path = "../../client/tests/tenants_and_maps.rs"]
mod tenants_and_maps;
#[path = "../../client/tests/watches.rs"]
mod watches;

#[cfg(feature = "tls")]
#[path = "common/again.rs"]
mod again;
