//! Datagrams: messages that arrive whole, or not at all, in whatever order, and perhaps twice.
//!
//! Nobody is told what became of one that was sent. Whoever receives has to be quick: what finds no
//! room is lost. A message longer than the buffer it is received into is cut off there, so buffers
//! have [`MAX_DATAGRAM`] bytes. Real ones come with the feature `net`, like streams.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;

use crate::failure::IoResult;
use crate::real::sockets::RealDatagrams;
use crate::real::sockets::RealSockets;
use crate::simulated::sockets::datagrams::SimulatedDatagrams;
use crate::{Sockets, World};

/// The bytes of a datagram, at most (over IPv4).
pub const MAX_DATAGRAM: usize = 65_507;

/// A socket that sends and receives datagrams. Dropping it closes it; what waited in it is lost.
pub struct Datagrams {
    kind: Kind,
}

enum Kind {
    Real(RealDatagrams),
    Simulated(SimulatedDatagrams),
}

impl Sockets {
    /// A socket for datagrams on an address of this machine; port 0 takes a free one. Ports are not
    /// those of streams.
    ///
    /// # Errors
    /// `address_in_use`, `bind_failed`; `unsupported_operation` for real sockets without the
    /// feature `net`.
    pub fn datagrams(&self, address: SocketAddr) -> IoResult<Datagrams> {
        let kind = match self.world() {
            World::Real(_) => Kind::Real(RealSockets::datagrams(address)?),
            World::Simulated(host) => Kind::Simulated(host.datagrams(address)?),
        };
        Ok(Datagrams { kind })
    }
}

impl Datagrams {
    /// Where it receives, and what those who receive from it see.
    pub fn local_address(&self) -> SocketAddr {
        match &self.kind {
            Kind::Real(socket) => socket.local_address(),
            Kind::Simulated(socket) => socket.local_address(),
        }
    }

    /// Receives a datagram into `buffer`: its length there, and who sent it.
    ///
    /// # Errors
    /// The system's. The socket may go on receiving.
    pub fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let mut buffer = ReadBuf::new(buffer);
        let from = ready!(match &mut self.kind {
            Kind::Real(socket) => socket.poll_receive(context, &mut buffer),
            Kind::Simulated(socket) => socket.poll_receive(context, &mut buffer),
        });
        Poll::Ready(from.map(|from| (buffer.filled().len(), from)))
    }

    /// The same for those who await it.
    ///
    /// # Errors
    /// As [`Datagrams::poll_receive`].
    pub async fn receive(&mut self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        poll_fn(|context| self.poll_receive(context, buffer)).await
    }

    /// Sends a datagram. Whether it arrives nobody knows.
    ///
    /// # Errors
    /// The system's: it is longer than [`MAX_DATAGRAM`], or there is no way there.
    pub async fn send(&mut self, to: SocketAddr, bytes: &[u8]) -> io::Result<()> {
        poll_fn(|context| match &mut self.kind {
            Kind::Real(socket) => socket.poll_send(context, to, bytes).map_ok(drop),
            Kind::Simulated(_) if bytes.len() > MAX_DATAGRAM => {
                Poll::Ready(Err(io::Error::other("the datagram is too long")))
            }
            Kind::Simulated(socket) => Poll::Ready(socket.send(to, bytes)),
        })
        .await
    }
}

impl fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Datagrams").field(&self.local_address()).finish()
    }
}
