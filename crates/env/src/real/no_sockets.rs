//! Real sockets in a build without the feature `net`: there are none, and whoever asks is told.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use tokio::io::ReadBuf;

use crate::ends::Ends;
use crate::failure::{IoError, IoErrorKind, IoResult};

pub(crate) struct RealSockets;

/// Never exists.
pub(crate) struct RealListener(Infallible);

/// Never exists.
pub(crate) struct RealStream(Infallible);

/// Never exists.
pub(crate) struct RealDatagrams(Infallible);

fn without_net() -> IoError {
    let what = "this build has no real sockets (feature `net` of plinth-env)";
    IoError::new(IoErrorKind::NoSockets, what)
}

impl RealSockets {
    pub(crate) async fn connect(_: SocketAddr) -> IoResult<RealStream> {
        Err(without_net())
    }

    pub(crate) async fn resolve(_: &str, _: u16) -> IoResult<Vec<SocketAddr>> {
        Err(without_net())
    }

    pub(crate) async fn listen(_: SocketAddr) -> IoResult<RealListener> {
        Err(without_net())
    }

    pub(crate) async fn owners(_: Vec<Ends>) -> IoResult<Vec<Option<u32>>> {
        Err(without_net())
    }

    pub(crate) fn datagrams(_: SocketAddr) -> IoResult<RealDatagrams> {
        Err(without_net())
    }
}

impl RealDatagrams {
    pub(crate) fn local_address(&self) -> SocketAddr {
        match self.0 {}
    }

    pub(crate) fn poll_receive(
        &mut self,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        match self.0 {}
    }

    pub(crate) fn poll_send(
        &mut self,
        _: &mut Context<'_>,
        _: SocketAddr,
        _: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.0 {}
    }
}

impl RealListener {
    pub(crate) fn local_address(&self) -> SocketAddr {
        match self.0 {}
    }

    pub(crate) fn room(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn poll_accept(&self, _: &mut Context<'_>) -> Poll<IoResult<RealStream>> {
        match self.0 {}
    }
}

impl RealStream {
    pub(crate) fn local_address(&self) -> SocketAddr {
        match self.0 {}
    }

    pub(crate) fn peer_address(&self) -> SocketAddr {
        match self.0 {}
    }

    pub(crate) fn ends(&self) -> Option<Ends> {
        match self.0 {}
    }

    pub(crate) fn detached(self) -> io::Result<Self> {
        match self.0 {}
    }

    pub(crate) fn break_when_dropped(&self, _: bool) {
        match self.0 {}
    }

    pub(crate) fn poll_read(
        &mut self,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.0 {}
    }

    pub(crate) fn poll_write(&mut self, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    pub(crate) fn poll_write_vectored(
        &mut self,
        _: &mut Context<'_>,
        _: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    pub(crate) fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}
