//! Sockets of simulated processes: what a process holds of the [network](super::network), with the
//! timers that wake it.

pub(crate) mod datagrams;
pub(crate) mod streams;
