//! Directories over sockets: the facade's own tests, with a server between.

#[path = "../../plinth/tests/directory_allocator.rs"]
mod directory_allocator;
#[path = "../../plinth/tests/directory_layout.rs"]
mod directory_layout;
#[path = "../../plinth/tests/directory_python.rs"]
mod directory_python;

#[cfg(feature = "tls")]
#[path = "common/again.rs"]
mod again;
