//! Sockets: listening, connecting, and streams of bytes between two processes.
//!
//! Streams implement tokio's `AsyncRead` and `AsyncWrite` (the traits alone: no runtime comes with
//! them), because that is what rustls and hyper have maintained adapters for.

use std::fmt;
use std::net::SocketAddr;

use plinth_types::{Error, Result};

use crate::World;

/// The network that an environment reaches.
pub struct Sockets {
    world: World,
}

/// A listening socket.
pub struct Listener {
    never: std::convert::Infallible,
}

/// A connection: bytes in order, in both directions.
pub struct Stream {
    never: std::convert::Infallible,
}

impl Sockets {
    pub(crate) fn new(world: World) -> Self {
        Self { world }
    }

    /// Connects to a listener.
    ///
    /// # Errors
    /// `connection_failed`; `unsupported_operation` for real sockets without the feature `net`.
    pub async fn connect(&self, _address: SocketAddr) -> Result<Stream> {
        match &self.world {
            World::Real(_) | World::Simulated(_) => Err(without_net()),
        }
    }

    /// Listens on an address; port 0 takes a free one.
    ///
    /// # Errors
    /// `address_in_use`, `bind_failed`; `unsupported_operation` for real sockets without the feature `net`.
    pub async fn listen(&self, _address: SocketAddr) -> Result<Listener> {
        match &self.world {
            World::Real(_) | World::Simulated(_) => Err(without_net()),
        }
    }
}

fn without_net() -> Error {
    Error::unsupported_operation().with_detail("this build has no real sockets (feature `net` of plinth-env)")
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sockets")
    }
}

impl Listener {
    /// Waits for the next connection.
    pub async fn accept(&self) -> Result<Stream> {
        match self.never {}
    }

    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        match self.never {}
    }
}

impl Stream {
    /// The address of the other end.
    pub fn peer_address(&self) -> SocketAddr {
        match self.never {}
    }
}
