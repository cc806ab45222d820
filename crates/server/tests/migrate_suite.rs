//! Copies from one server to another: migration's own tests, with sockets between it and both
//! databases.

#[path = "../../migrate/tests/copy.rs"]
mod copy;
#[path = "../../migrate/tests/live.rs"]
mod live;
