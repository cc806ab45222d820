//! The real world: the operating system's clock, threads, files and sockets.

pub(crate) mod files;
pub(crate) mod locks;
pub(crate) mod timers;
pub(crate) mod world;
