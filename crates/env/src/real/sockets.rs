//! Sockets of the real world, with the feature `net`: tokio's, driven by one thread of their own.
//!
//! That thread runs tokio's readiness loop and nothing else; streams are polled by whatever task owns
//! them, on that task's thread. It is started with the first socket.

use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use plinth_types::{Error, Result};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

/// The readiness loop, or why there is none.
fn driver() -> Result<&'static Handle> {
    static DRIVER: OnceLock<io::Result<Handle>> = OnceLock::new();
    let start = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let handle = runtime.handle().clone();
        let forever = move || runtime.block_on(std::future::pending::<()>());
        std::thread::Builder::new().name("plinth-sockets".to_string()).spawn(forever)?;
        Ok(handle)
    };
    let driver = DRIVER.get_or_init(start).as_ref();
    driver.map_err(|error| Error::platform_error().with_detail(format!("no thread for sockets: {error}")))
}

/// The network.
pub(crate) struct RealSockets;

impl RealSockets {
    pub(crate) async fn connect(address: SocketAddr) -> Result<RealStream> {
        let failed = |error: io::Error| Error::connection_failed().with_detail(format!("{address}: {error}"));
        let mut connecting = Box::pin(TcpStream::connect(address));
        let driver = driver()?;
        // The socket registers itself with the loop whose context it is polled in.
        let connected = std::future::poll_fn(|context| {
            let _context = driver.enter();
            connecting.as_mut().poll(context)
        });
        RealStream::new(connected.await.map_err(failed)?).map_err(failed)
    }

    pub(crate) async fn listen(address: SocketAddr) -> Result<RealListener> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => Error::address_in_use().with_detail(address.to_string()),
            _ => Error::bind_failed().with_detail(format!("{address}: {error}")),
        };
        let bind = || {
            let socket = match address {
                SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
                SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
            };
            // A server that starts again need not wait for its old connections to be forgotten.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            let inner = socket.listen(1024)?;
            let address = inner.local_addr()?;
            Ok(RealListener { inner, address })
        };
        let _context = driver()?.enter();
        bind().map_err(failed)
    }
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

    pub(crate) fn poll_accept(&self, context: &mut Context<'_>) -> Poll<Result<RealStream>> {
        let _context = driver()?.enter();
        let accepted = self.inner.poll_accept(context);
        accepted.map(|accepted| {
            let stream = accepted.and_then(|(stream, _)| RealStream::new(stream));
            stream.map_err(|error| Error::connection_failed().with_detail(error.to_string()))
        })
    }
}

/// A connection.
pub(crate) struct RealStream {
    inner: TcpStream,
    local: SocketAddr,
    peer: SocketAddr,
}

impl RealStream {
    fn new(inner: TcpStream) -> io::Result<Self> {
        // Whoever writes has gathered what belongs together; waiting for more only adds latency.
        inner.set_nodelay(true)?;
        let (local, peer) = (inner.local_addr()?, inner.peer_addr()?);
        Ok(Self { inner, local, peer })
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.local
    }

    pub(crate) fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.inner).poll_read(context, buffer)
    }

    pub(crate) fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    pub(crate) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
