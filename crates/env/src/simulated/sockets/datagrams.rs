//! Handles of the simulated network for datagrams.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker};

use tokio::io::ReadBuf;

use crate::failure::{IoError, IoErrorKind, IoResult, socket_error};
use crate::simulated::network::{Outcome, ip_of};
use crate::simulated::timers::{Action, TimerId};
use crate::simulated::universe::{Core, Host};

impl Host {
    pub(crate) fn datagrams(self: &Arc<Self>, address: SocketAddr) -> IoResult<SimulatedDatagrams> {
        let core = &mut *self.universe.lock();
        if !self.is_alive(core) {
            return Err(IoError::new(IoErrorKind::NotBound, "the process has crashed"));
        }
        if !address.ip().is_unspecified() && address.ip() != ip_of(self.process) {
            let why = "not an address of this machine";
            return Err(socket_error(IoErrorKind::NotBound, address, why));
        }
        core.note("bind", self.process as u64, u64::from(address.port()));
        let bound = core.network.bind(self.process, address);
        let address =
            bound.ok_or_else(|| IoError::new(IoErrorKind::AddressInUse, address.to_string()))?;
        Ok(SimulatedDatagrams { host: self.clone(), address, reading: None })
    }
}

/// A socket for datagrams.
pub(crate) struct SimulatedDatagrams {
    host: Arc<Host>,
    address: SocketAddr,
    /// The timer that wakes the reader.
    reading: Option<TimerId>,
}

impl SimulatedDatagrams {
    pub(crate) fn local_address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn send(&self, to: SocketAddr, bytes: &[u8]) -> io::Result<()> {
        let mut guard = self.host.universe.lock();
        let core = &mut *guard;
        if !self.host.is_alive(core) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        core.note("send", self.host.process as u64, bytes.len() as u64);
        core.trace.fold_bytes(bytes);
        let from = (self.host.process, self.address);
        let woken = core.network.send(from, to, bytes, core.now, &mut core.random);
        drop(guard);
        woken.into_iter().for_each(Waker::wake);
        Ok(())
    }

    pub(crate) fn poll_receive(
        &mut self,
        context: &Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        let host = self.host.clone();
        let mut guard = host.universe.lock();
        let core = &mut *guard;
        if !host.is_alive(core) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let old = self.reading.take().and_then(|id| core.timers.remove(id));
        let polled = match core.network.receive(self.address, core.now) {
            Outcome::Done((from, bytes)) => {
                let fits = bytes.len().min(buffer.remaining());
                buffer.put_slice(&bytes[..fits]);
                core.note("datagram", host.process as u64, fits as u64);
                Poll::Ready(Ok(from))
            }
            Outcome::Broken(_) => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
            Outcome::Wait(at) => {
                let replaced = core.network.wait_for_mail(self.address, context.waker());
                self.reading =
                    at.map(|at| core.timers.add(at, Action::Wake(context.waker().clone())));
                drop(guard);
                drop((old, replaced));
                return Poll::Pending;
            }
        };
        drop(guard);
        drop(old);
        polled
    }

    fn close(&mut self, mut guard: MutexGuard<'_, Core>) {
        let core = &mut *guard;
        let timer = self.reading.take().and_then(|id| core.timers.remove(id));
        // After a crash another life may have the address.
        let gone = match self.host.is_alive(core) {
            true => core.network.unbind(self.address),
            false => None,
        };
        drop(guard);
        drop((timer, gone));
    }
}

impl Drop for SimulatedDatagrams {
    fn drop(&mut self) {
        let host = self.host.clone();
        self.close(host.universe.lock());
    }
}
