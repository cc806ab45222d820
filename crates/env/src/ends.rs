//! What a connection of a machine with itself is known by to the system.

use std::net::SocketAddr;

/// The ends of a connection of this machine with itself, by which the system tells whose the other
/// one is: see [`Sockets::owners`](crate::Sockets::owners).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ends {
    pub(crate) near: SocketAddr,
    pub(crate) far: SocketAddr,
    /// The system's number of the socket at the near end.
    pub(crate) socket: u64,
}
