//! Sockets of the real world, with the feature `net`: tokio's, driven by the reactors.
//!
//! A socket registers with a reactor when it is first polled: with the one on whose thread that
//! happens, so that a connection accepted on one reactor and handed to a task on another is served
//! there. A stream that is polled by an ordinary task, with a thread of its own, is watched by a
//! reactor for it. Sockets for datagrams do the same.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Once;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::{owners, reactors};
use crate::ends::Ends;
use crate::failure::{IoError, IoErrorKind, IoResult, socket_error};
use crate::reply::{Promise, Unanswered};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;
/// Bytes of datagrams that may wait to be received, as far as the system allows them.
const WAITING_BYTES: usize = 4 << 20;

/// File descriptors that connections leave to files, at least and at most.
const LEAST_FOR_FILES: u64 = 32;
const MOST_FOR_FILES: u64 = 1024;

/// The network.
pub(crate) struct RealSockets;

impl RealSockets {
    pub(crate) async fn connect(address: SocketAddr) -> IoResult<RealStream> {
        let failed = |error: io::Error| socket_error(IoErrorKind::NotConnected, address, error);
        let mut connecting = Box::pin(TcpStream::connect(address));
        let connected = std::future::poll_fn(|context| {
            let _context = match reactors::enter() {
                Ok(context) => context,
                Err(error) => return Poll::Ready(Err(io::Error::other(error))),
            };
            connecting.as_mut().poll(context)
        });
        let stream = RealStream::new(connected.await.map_err(failed)?).map_err(failed)?;
        // While nobody listens there, the system may give the port itself to a connection to it,
        // which then reaches itself, and keeps the port from who is to listen.
        if stream.local == stream.peer {
            return Err(failed(io::ErrorKind::ConnectionRefused.into()));
        }
        Ok(stream)
    }

    /// The system's call blocks, and can't be ended; so it has a thread that nobody waits for but
    /// the one who asked.
    pub(crate) async fn resolve(host: &str, port: u16) -> IoResult<Vec<SocketAddr>> {
        let host = host.to_owned();
        let failed = |why: String| IoError::new(IoErrorKind::UnknownHost, why);
        let (promise, reply) = Promise::<IoResult<_>, Unanswered>::pair();
        let look = move || {
            let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            promise.send(Ok(match found {
                Ok(found) if !found.is_empty() => Ok(found),
                Ok(_) => Err(failed(format!("{host} has no address"))),
                Err(error) => Err(failed(format!("{host}: {error}"))),
            }));
        };
        std::thread::Builder::new()
            .name("plinth-names".to_owned())
            .spawn(look)
            .map_err(|error| failed(format!("no thread could be started: {error}")))?;
        reply.await.unwrap_or_else(|_| Err(failed("the thread that looked it up has gone".into())))
    }

    /// The system's tables may be long; so they are read on a thread that nobody waits for but the
    /// one who asked.
    pub(crate) async fn owners(of: Vec<Ends>) -> IoResult<Vec<Option<u32>>> {
        let failed = |why: String| IoError::new(IoErrorKind::NoThread, why);
        let (promise, reply) = Promise::<IoResult<_>, Unanswered>::pair();
        std::thread::Builder::new()
            .name("plinth-owners".to_owned())
            .spawn(move || promise.send(Ok(owners::owners(&of))))
            .map_err(|error| failed(format!("no thread could be started: {error}")))?;
        reply.await.unwrap_or_else(|_| Err(failed("the thread that looked has gone".to_owned())))
    }

    pub(crate) async fn listen(address: SocketAddr) -> IoResult<RealListener> {
        static FILES: Once = Once::new();
        FILES.call_once(allow_many_files);
        let bind = || {
            let socket = match address {
                SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
                SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
            };
            // A server that starts again need not wait for its old connections to be forgotten.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            let inner = socket.listen(BACKLOG)?;
            let address = inner.local_addr()?;
            Ok(RealListener { inner, address })
        };
        let _context = reactors::enter()?;
        bind().map_err(|error| not_bound(address, error))
    }

    pub(crate) fn datagrams(address: SocketAddr) -> IoResult<RealDatagrams> {
        let bind = || {
            let inner = std::net::UdpSocket::bind(address)?;
            inner.set_nonblocking(true)?;
            // Datagrams that find no room are lost; a system that grants less than this loses them
            // sooner.
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&inner, WAITING_BYTES);
            let address = inner.local_addr()?;
            Ok(RealDatagrams { inner: Registered::Detached(inner), address })
        };
        bind().map_err(|error| not_bound(address, error))
    }
}

fn not_bound(address: SocketAddr, error: io::Error) -> IoError {
    match error.kind() {
        io::ErrorKind::AddrInUse => IoError::new(IoErrorKind::AddressInUse, address.to_string()),
        _ => socket_error(IoErrorKind::NotBound, address, error),
    }
}

/// Of so many file descriptors of the process, those that connections leave to files: logs and
/// tables have to be opened for commits to go on, however many clients there are.
const fn kept_for_files(limit: u64) -> u64 {
    let eighth = limit / 8;
    let kept = if eighth < LEAST_FOR_FILES {
        LEAST_FOR_FILES
    } else if eighth > MOST_FOR_FILES {
        MOST_FOR_FILES
    } else {
        eighth
    };
    if kept < limit / 2 { kept } else { limit / 2 }
}

/// The file descriptors that connections may have: those below this number, since systems give the
/// lowest that is free.
fn below() -> u64 {
    let limit =
        rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    limit - kept_for_files(limit)
}

/// The number of a file descriptor.
fn number(file: &impl AsRawFd) -> u64 {
    u64::try_from(file.as_raw_fd()).unwrap_or_default()
}

/// Each connection is an open file, and systems allow programs fewer at first than they may ask
/// for.
fn allow_many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If it may not be raised there are fewer connections, and the one too many says so.
    let _ = setrlimit(Resource::Nofile, limit);
}

fn not_accepted(error: &io::Error) -> IoError {
    IoError::new(IoErrorKind::NotConnected, error.to_string())
}

fn too_few_descriptors() -> IoError {
    let detail = format!(
        "{} file descriptors are open, and those that are left are kept for files; allow the process more of them \
         (ulimit -n, LimitNOFILE)",
        below()
    );
    IoError::new(IoErrorKind::TooManyConnections, detail)
}

/// A listening socket.
pub(crate) struct RealListener {
    inner: TcpListener,
    address: SocketAddr,
}

impl RealListener {
    pub(crate) fn local_address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn room(&self) -> u64 {
        below().saturating_sub(number(&self.inner))
    }

    pub(crate) fn poll_accept(&self, context: &mut Context<'_>) -> Poll<IoResult<RealStream>> {
        let _context = reactors::enter()?;
        let accepted = self.inner.poll_accept(context);
        accepted.map(|accepted| {
            let (stream, _) = accepted.map_err(|error| not_accepted(&error))?;
            if number(&stream) >= below() {
                return Err(too_few_descriptors());
            }
            RealStream::new(stream)
                .and_then(RealStream::detached)
                .map_err(|error| not_accepted(&error))
        })
    }
}

/// A connection.
pub(crate) struct RealStream {
    inner: Inner,
    local: SocketAddr,
    peer: SocketAddr,
}

enum Inner {
    /// With a reactor.
    Attached(TcpStream),
    /// Not polled yet.
    Detached(std::net::TcpStream),
    /// It could not be registered.
    Lost,
}

impl RealStream {
    fn new(inner: TcpStream) -> io::Result<Self> {
        // Whoever writes has gathered what belongs together; waiting for more only adds latency.
        inner.set_nodelay(true)?;
        let (local, peer) = (inner.local_addr()?, inner.peer_addr()?);
        Ok(Self { inner: Inner::Attached(inner), local, peer })
    }

    /// The stream without its reactor: the task that polls it first decides on one.
    pub(crate) fn detached(self) -> io::Result<Self> {
        let Inner::Attached(inner) = self.inner else { return Ok(self) };
        Ok(Self { inner: Inner::Detached(inner.into_std()?), ..self })
    }

    /// The system sends a reset in place of an end for a socket that is not to linger.
    pub(crate) fn break_when_dropped(&self, breaks: bool) {
        let lingers = breaks.then_some(Duration::ZERO);
        // Of one that has gone there is nothing to be told.
        let _ = match &self.inner {
            Inner::Attached(stream) => rustix::net::sockopt::set_socket_linger(stream, lingers),
            Inner::Detached(stream) => rustix::net::sockopt::set_socket_linger(stream, lingers),
            Inner::Lost => Ok(()),
        };
    }

    #[inline]
    fn attached(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if !matches!(self.inner, Inner::Attached(_)) {
            self.attach()?;
        }
        match &mut self.inner {
            Inner::Attached(stream) => Ok(Pin::new(stream)),
            Inner::Detached(_) | Inner::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    #[cold]
    fn attach(&mut self) -> io::Result<()> {
        if let Inner::Detached(stream) = std::mem::replace(&mut self.inner, Inner::Lost) {
            let _context = reactors::enter().map_err(io::Error::other)?;
            self.inner = Inner::Attached(TcpStream::from_std(stream)?);
        }
        Ok(())
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.local
    }

    pub(crate) fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn ends(&self) -> Option<Ends> {
        let canonical = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
        let (near, far) = (canonical(self.local), canonical(self.peer));
        if !near.ip().is_loopback() || !far.ip().is_loopback() {
            return None;
        }
        let found = match &self.inner {
            Inner::Attached(stream) => rustix::fs::fstat(stream),
            Inner::Detached(stream) => rustix::fs::fstat(stream),
            Inner::Lost => return None,
        };
        Some(Ends { near, far, socket: found.ok()?.st_ino })
    }

    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.attached()?.poll_read(context, buffer)
    }

    pub(crate) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.attached()?.poll_write(context, bytes)
    }

    pub(crate) fn poll_write_vectored(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.attached()?.poll_write_vectored(context, pieces)
    }

    pub(crate) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.attached()?.poll_shutdown(context)
    }
}

/// A socket for datagrams.
pub(crate) struct RealDatagrams {
    inner: Registered,
    address: SocketAddr,
}

enum Registered {
    /// With a reactor.
    Attached(UdpSocket),
    /// Not polled yet.
    Detached(std::net::UdpSocket),
    /// It could not be registered.
    Lost,
}

impl RealDatagrams {
    pub(crate) fn local_address(&self) -> SocketAddr {
        self.address
    }

    fn attached(&mut self) -> io::Result<&UdpSocket> {
        if let Registered::Detached(_) = self.inner
            && let Registered::Detached(socket) =
                std::mem::replace(&mut self.inner, Registered::Lost)
        {
            let _context = reactors::enter().map_err(io::Error::other)?;
            self.inner = Registered::Attached(UdpSocket::from_std(socket)?);
        }
        match &self.inner {
            Registered::Attached(socket) => Ok(socket),
            Registered::Detached(_) | Registered::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    pub(crate) fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        self.attached()?.poll_recv_from(context, buffer)
    }

    pub(crate) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        to: SocketAddr,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.attached()?.poll_send_to(context, bytes, to)
    }
}
