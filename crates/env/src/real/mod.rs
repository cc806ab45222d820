//! The real world: the operating system's clock, threads, files and sockets.

pub(crate) mod files;
pub(crate) mod locks;
#[cfg(feature = "net")]
mod owners;
#[cfg_attr(not(feature = "net"), path = "no_reactors.rs")]
pub(crate) mod reactors;
#[cfg_attr(not(feature = "net"), path = "no_sockets.rs")]
pub(crate) mod sockets;
pub(crate) mod timers;
pub(crate) mod world;

/// Which of the two sets of network threads a task runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Precedence {
    /// Tasks whose turns are short.
    First,
    /// Those whose turns may be long.
    Behind,
}

/// Which thread of a set a task runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    /// One of the first so many, in turn.
    Among(usize),
    /// The one with this number; numbers beyond the last go round.
    At(usize),
}
