//! Copies from one server to another: migration's own tests, with sockets between it and both databases.
#![expect(clippy::duplicate_mod, reason = "each suite has a support of its own, as when it runs alone")]

#[path = "../../migrate/tests/copy.rs"]
mod copy;
#[path = "../../migrate/tests/live.rs"]
mod live;
