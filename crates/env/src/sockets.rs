//! Sockets: listening, connecting, and streams of bytes between two processes.
//!
//! Streams implement tokio's `AsyncRead` and `AsyncWrite` (the traits alone: no runtime comes with
//! them), because that is what rustls and hyper have maintained adapters for. They can be polled by
//! any task; real ones come with the feature `net`, and are cheapest in tasks of
//! [`Env::spawn_network`](crate::Env::spawn_network).
//!
//! What lies over a stream and gives another one, as TLS does, is a [`Transport`]; who uses the
//! stream can't tell.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::World;
use crate::ends::Ends;
use crate::failure::{IoError, IoErrorKind, IoResult};
use crate::real::sockets::{RealListener, RealSockets, RealStream};
use crate::simulated::sockets::streams::{SimulatedListener, SimulatedStream};

/// The first port at which to look for unused ones: those below are known services', or need
/// rights.
const SERVICES_PORTS: u16 = 10_000;
/// The first port after those: the lowest that a system gives to outgoing connections by default.
const OUTGOING_PORTS: u16 = 32_768;

/// The network that an environment reaches.
pub struct Sockets {
    world: World,
}

/// A listening socket. Dropping it stops the listening.
pub struct Listener {
    kind: ListenerKind,
}

enum ListenerKind {
    Real(RealListener),
    Simulated(SimulatedListener),
}

/// A connection: bytes in order, in both directions. Dropping it closes both.
pub struct Stream {
    kind: StreamKind,
}

enum StreamKind {
    Real(RealStream),
    Simulated(SimulatedStream),
    Over(Box<dyn Transport>),
}

/// What carries a stream's bytes by another stream, in another form: see [`Stream::over`]. The
/// methods are those of [`Stream`].
pub trait Transport: Send {
    /// See [`Stream::local_address`].
    fn local_address(&self) -> SocketAddr;

    /// See [`Stream::peer_address`].
    fn peer_address(&self) -> SocketAddr;

    /// See [`Stream::ends`].
    fn ends(&self) -> Option<Ends> {
        None
    }

    /// See [`Stream::peer_certificate`].
    fn peer_certificate(&self) -> Option<Vec<u8>> {
        None
    }

    /// See [`Stream::poll_receive`].
    ///
    /// # Errors
    /// Those of the stream below, and the transport's own.
    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>>;

    /// See [`Stream::poll_send`].
    ///
    /// # Errors
    /// As [`Transport::poll_receive`].
    fn poll_send(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// See [`Stream::poll_flush`].
    ///
    /// # Errors
    /// As [`Transport::poll_receive`].
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// See [`Stream::poll_finish`].
    ///
    /// # Errors
    /// As [`Transport::poll_receive`].
    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// See [`Stream::break_when_dropped`].
    fn break_when_dropped(&mut self, breaks: bool);
}

impl Sockets {
    pub(crate) fn new(world: World) -> Self {
        Self { world }
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// Connects to a listener.
    ///
    /// # Errors
    /// `NotConnected`; `NoSockets` for real sockets without the feature `net`.
    pub async fn connect(&self, address: SocketAddr) -> IoResult<Stream> {
        let kind = match &self.world {
            World::Real(_) => StreamKind::Real(RealSockets::connect(address).await?),
            World::Simulated(host) => StreamKind::Simulated(host.connect(address).await?),
        };
        Ok(Stream { kind })
    }

    /// The addresses that a host has, an IP address or a name, in the order in which to try them. A
    /// name may take the system seconds; it is looked up on a thread of its own.
    ///
    /// # Errors
    /// `UnknownHost` if there is no such host, or nobody can say now; always for names in
    /// simulation, but for `localhost`.
    pub async fn resolve(&self, host: &str, port: u16) -> IoResult<Vec<SocketAddr>> {
        if host == "localhost" {
            return Ok(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))]);
        }
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        match &self.world {
            World::Real(_) => RealSockets::resolve(host, port).await,
            World::Simulated(_) => Err(IoError::new(IoErrorKind::UnknownHost, host)),
        }
    }

    /// Whose processes made the other ends of these connections: the number of a user each, as it
    /// is in this process's user namespace. `None` where that isn't certain: the connection has
    /// ended, or the user has no number here. Takes the system milliseconds for each thousand
    /// connections that the machine has, on a thread of its own.
    ///
    /// # Errors
    /// `NotReadable` if the system doesn't tell, which none but Linux does, simulated ones neither;
    /// `NoThread`.
    pub async fn owners(&self, of: Vec<Ends>) -> IoResult<Vec<Option<u32>>> {
        match &self.world {
            World::Real(_) => RealSockets::owners(of).await,
            World::Simulated(_) => {
                let what = "machines that are simulated have no users";
                Err(IoError::new(IoErrorKind::NotReadable, what))
            }
        }
    }

    /// Listens on an address; port 0 takes a free one.
    ///
    /// # Errors
    /// `AddressInUse`, `NotBound`; `NoSockets` for real sockets without the feature `net`.
    pub async fn listen(&self, address: SocketAddr) -> IoResult<Listener> {
        let kind = match &self.world {
            World::Real(_) => ListenerKind::Real(RealSockets::listen(address).await?),
            World::Simulated(host) => ListenerKind::Simulated(host.listen(address).await?),
        };
        Ok(Listener { kind })
    }

    /// See [`Env::unused_addresses`](crate::Env::unused_addresses); `random` decides where to look
    /// first.
    pub(crate) async fn unused(&self, random: u64, count: usize) -> IoResult<Vec<SocketAddr>> {
        let span = u64::from(OUTGOING_PORTS - SERVICES_PORTS);
        let ip = match &self.world {
            World::Real(_) => Ipv4Addr::LOCALHOST,
            // A simulated machine has one address, and no loopback.
            World::Simulated(_) => Ipv4Addr::UNSPECIFIED,
        };
        let mut taken = Vec::with_capacity(count);
        for step in 0..span {
            if taken.len() == count {
                break;
            }
            let port = SERVICES_PORTS + ((random % span + step) % span) as u16;
            match self.listen(SocketAddr::from((ip, port))).await {
                Ok(listener) => taken.push(listener),
                Err(error) if error.kind() == IoErrorKind::AddressInUse => {}
                Err(error) => return Err(error),
            }
        }
        if taken.len() < count {
            let what = format!("fewer than {count} ports are unused");
            return Err(IoError::new(IoErrorKind::NotBound, what));
        }
        Ok(taken.iter().map(Listener::local_address).collect())
    }
}

impl Listener {
    /// Waits for the next connection.
    ///
    /// # Errors
    /// `NotConnected` if none could be taken; the next one may be.
    pub async fn accept(&self) -> IoResult<Stream> {
        std::future::poll_fn(|context| self.poll_accept(context)).await
    }

    /// The same for those who poll.
    pub fn poll_accept(&self, context: &mut Context<'_>) -> Poll<IoResult<Stream>> {
        let kind = match &self.kind {
            ListenerKind::Real(listener) => listener.poll_accept(context).map_ok(StreamKind::Real),
            ListenerKind::Simulated(listener) => {
                listener.poll_accept(context).map_ok(StreamKind::Simulated)
            }
        };
        kind.map_ok(|kind| Stream { kind })
    }

    /// How many connections the process may have, beside its other files, before there are too few
    /// file descriptors to accept more: some are kept for files. `None` where they don't run out:
    /// in simulation.
    pub fn room(&self) -> Option<usize> {
        match &self.kind {
            ListenerKind::Real(listener) => usize::try_from(listener.room()).ok(),
            ListenerKind::Simulated(_) => None,
        }
    }

    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        match &self.kind {
            ListenerKind::Real(listener) => listener.local_address(),
            ListenerKind::Simulated(listener) => listener.local_address(),
        }
    }
}

impl Stream {
    /// The stream that `transport` makes of another one.
    pub fn over(transport: impl Transport + 'static) -> Self {
        Self { kind: StreamKind::Over(Box::new(transport)) }
    }

    /// The address of this end.
    pub fn local_address(&self) -> SocketAddr {
        match &self.kind {
            StreamKind::Real(stream) => stream.local_address(),
            StreamKind::Simulated(stream) => stream.local_address(),
            StreamKind::Over(transport) => transport.local_address(),
        }
    }

    /// The address of the other end.
    pub fn peer_address(&self) -> SocketAddr {
        match &self.kind {
            StreamKind::Real(stream) => stream.peer_address(),
            StreamKind::Simulated(stream) => stream.peer_address(),
            StreamKind::Over(transport) => transport.peer_address(),
        }
    }

    /// Both ends, if they are on this machine's loopback and the system numbers its sockets.
    pub fn ends(&self) -> Option<Ends> {
        match &self.kind {
            StreamKind::Real(stream) => stream.ends(),
            StreamKind::Simulated(_) => None,
            StreamKind::Over(transport) => transport.ends(),
        }
    }

    /// The stream for another task to go on with: on a thread of the network it is served there
    /// from then on, not where it was polled first.
    ///
    /// # Errors
    /// The system's; the connection is gone.
    pub fn detached(self) -> io::Result<Self> {
        let kind = match self.kind {
            StreamKind::Real(stream) => StreamKind::Real(stream.detached()?),
            kind => kind,
        };
        Ok(Self { kind })
    }

    /// Whether the connection ends as one that broke when this is dropped, or the process ends:
    /// whoever reads at the other end is told of a failure then, not that this was all, unless
    /// [`Stream::poll_finish`] has said so. What was sent last may be lost.
    pub fn break_when_dropped(&mut self, breaks: bool) {
        match &mut self.kind {
            StreamKind::Real(stream) => stream.break_when_dropped(breaks),
            StreamKind::Simulated(stream) => stream.break_when_dropped(breaks),
            StreamKind::Over(transport) => transport.break_when_dropped(breaks),
        }
    }

    /// The certificate (DER) that the other end has shown, if a transport asks for one and has
    /// verified it. Nothing before the first bytes have arrived.
    pub fn peer_certificate(&self) -> Option<Vec<u8>> {
        match &self.kind {
            StreamKind::Real(_) | StreamKind::Simulated(_) => None,
            StreamKind::Over(transport) => transport.peer_certificate(),
        }
    }
}

impl Stream {
    /// Receives bytes that have arrived into `buffer`: how many; 0 when the other end has said all.
    ///
    /// # Errors
    /// The system's; the connection is of no more use.
    #[inline]
    pub fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        Pin::new(self).poll_read(context, &mut buffer).map_ok(|()| buffer.filled().len())
    }

    /// Sends as much of `bytes` as there is room for: how many of them. A transport may keep some
    /// of them until [`Stream::poll_flush`], or the next call of any kind.
    ///
    /// # Errors
    /// The system's; the connection is of no more use.
    #[inline]
    pub fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write(context, bytes)
    }

    /// Sends as much of several pieces as there is room for, in one call of the system: how many
    /// bytes.
    ///
    /// # Errors
    /// The system's; the connection is of no more use.
    pub fn poll_send_pieces(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.kind {
            StreamKind::Real(stream) => stream.poll_write_vectored(context, pieces),
            StreamKind::Simulated(_) | StreamKind::Over(_) => {
                let first = pieces.iter().find(|piece| !piece.is_empty());
                first.map_or(Poll::Ready(Ok(0)), |piece| self.poll_send(context, piece))
            }
        }
    }

    /// Sends what a transport has kept. To be called when there is nothing more to send; costs
    /// nothing on a socket.
    ///
    /// # Errors
    /// The system's; the connection is of no more use.
    #[inline]
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            StreamKind::Real(_) | StreamKind::Simulated(_) => Poll::Ready(Ok(())),
            StreamKind::Over(transport) => transport.poll_flush(context),
        }
    }

    /// Says that no more bytes will be sent; the other direction stays open.
    ///
    /// # Errors
    /// The system's.
    pub fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self).poll_shutdown(context)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.kind {
            StreamKind::Real(stream) => stream.poll_read(context, buffer),
            StreamKind::Simulated(stream) => stream.poll_read(context, buffer),
            StreamKind::Over(transport) => {
                let received = transport.poll_receive(context, buffer.initialize_unfilled());
                received.map_ok(|len| buffer.advance(len))
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.kind {
            StreamKind::Real(stream) => stream.poll_write(context, bytes),
            StreamKind::Simulated(stream) => stream.poll_write(context, bytes),
            StreamKind::Over(transport) => transport.poll_send(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_send_pieces(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self.kind, StreamKind::Real(_))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Stream::poll_flush(self.get_mut(), context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            StreamKind::Real(stream) => stream.poll_shutdown(context),
            StreamKind::Simulated(stream) => {
                stream.shut_down();
                Poll::Ready(Ok(()))
            }
            StreamKind::Over(transport) => transport.poll_finish(context),
        }
    }
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sockets")
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listener").field(&self.local_address()).finish()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("local", &self.local_address())
            .field("peer", &self.peer_address())
            .finish()
    }
}
