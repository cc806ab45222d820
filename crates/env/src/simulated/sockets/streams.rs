//! Handles of the simulated network for streams: connecting, listening, and streams that can be
//! polled.
//!
//! A poll asks the network's state what can be done now. If that is nothing, the waker is left
//! there for whoever changes it, and a timer is set for what is under way already; at most one for
//! each direction of a stream.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::ReadBuf;

use crate::failure::{IoError, IoErrorKind, IoResult, socket_error};
use crate::simulated::network::{EndId, Network, Outcome, ip_of};
use crate::simulated::timers::{Action, TimerId};
use crate::simulated::universe::{Core, Host};
use crate::simulated::waits::SimulatedSleep;

impl Host {
    pub(crate) async fn connect(self: &Arc<Self>, to: SocketAddr) -> IoResult<SimulatedStream> {
        let failed = |why: &str| socket_error(IoErrorKind::NotConnected, to, why);
        self.cross().await?;
        let (give_up_at, target) = {
            let core = self.living()?;
            let target = Network::machine_at(to, core.processes.len());
            (core.now + core.network.plan.silence_max, target)
        };
        let Some(target) = target else {
            SimulatedSleep::new(self.clone(), give_up_at).await;
            return Err(failed("nothing answers"));
        };
        let mut pause = Duration::from_millis(10);
        while self.living()?.is_cut_off(self.process, target) {
            let now = self.living()?.now;
            if now >= give_up_at {
                return Err(failed("nothing answers"));
            }
            // Tried again and again, and more and more rarely.
            SimulatedSleep::new(self.clone(), give_up_at.min(now + pause)).await;
            pause *= 2;
        }
        let stream = {
            let core = &mut *self.living()?;
            core.note("connect", self.process as u64, u64::from(to.port()));
            let connected = core.network.connect(self.process, to, core.now);
            connected.map(|(end, wakers)| (self.stream(core, end), wakers))
        };
        let Some((stream, wakers)) = stream else {
            self.cross().await?;
            return Err(failed("nobody listens there"));
        };
        wakers.into_iter().for_each(Waker::wake);
        self.cross().await?;
        Ok(stream)
    }

    pub(crate) async fn listen(
        self: &Arc<Self>,
        address: SocketAddr,
    ) -> IoResult<SimulatedListener> {
        let mut core = self.living()?;
        if !address.ip().is_unspecified() && address.ip() != ip_of(self.process) {
            let why = "not an address of this machine";
            return Err(socket_error(IoErrorKind::NotBound, address, why));
        }
        core.note("listen", self.process as u64, u64::from(address.port()));
        let bound = core.network.listen(self.process, address);
        let address =
            bound.ok_or_else(|| IoError::new(IoErrorKind::AddressInUse, address.to_string()))?;
        drop(core);
        Ok(SimulatedListener { host: self.clone(), address })
    }

    /// Lets as much time pass as a message takes.
    async fn cross(self: &Arc<Self>) -> IoResult<()> {
        let at = {
            let core = &mut *self.living()?;
            core.now + core.network.plan.latency(&mut core.random)
        };
        SimulatedSleep::new(self.clone(), at).await;
        Ok(())
    }

    fn living(&self) -> IoResult<MutexGuard<'_, Core>> {
        let core = self.universe.lock();
        match self.is_alive(&core) {
            true => Ok(core),
            false => Err(IoError::new(IoErrorKind::NotConnected, "the process has crashed")),
        }
    }

    fn stream(self: &Arc<Self>, core: &Core, end: EndId) -> SimulatedStream {
        let nowhere = || SocketAddr::new(ip_of(self.process), 0);
        SimulatedStream {
            host: self.clone(),
            end,
            local: core.network.address(end).unwrap_or_else(nowhere),
            peer: core.network.address(end.other()).unwrap_or_else(nowhere),
            reading: None,
            writing: None,
            breaks: false,
        }
    }
}

impl Core {
    fn is_cut_off(&self, one: usize, two: usize) -> bool {
        self.network.is_blocked(one, two, self.now) || self.network.is_blocked(two, one, self.now)
    }
}

/// A listening socket.
pub(crate) struct SimulatedListener {
    host: Arc<Host>,
    address: SocketAddr,
}

impl SimulatedListener {
    pub(crate) fn local_address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn poll_accept(&self, context: &Context<'_>) -> Poll<IoResult<SimulatedStream>> {
        let core = &mut *self.host.living()?;
        match core.network.accept(self.address, context.waker()) {
            Outcome::Done(end) => {
                core.note("accept", self.host.process as u64, end.connection);
                Poll::Ready(Ok(self.host.stream(core, end)))
            }
            Outcome::Wait(_) => Poll::Pending,
            Outcome::Broken(_) => {
                Poll::Ready(Err(IoError::new(IoErrorKind::NotConnected, "the listener is closed")))
            }
        }
    }
}

impl Drop for SimulatedListener {
    fn drop(&mut self) {
        let mut guard = self.host.universe.lock();
        let core = &mut *guard;
        if self.host.is_alive(core) {
            let wakers = core.network.stop_listening(self.address, core.now, &mut core.random);
            drop(guard);
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

/// One end of a connection.
pub(crate) struct SimulatedStream {
    host: Arc<Host>,
    end: EndId,
    local: SocketAddr,
    peer: SocketAddr,
    /// Timers that wake the reader and the writer.
    reading: Option<TimerId>,
    writing: Option<TimerId>,
    /// Whether it ends as one that broke.
    breaks: bool,
}

impl SimulatedStream {
    pub(crate) fn local_address(&self) -> SocketAddr {
        self.local
    }

    pub(crate) fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn poll_read(
        &mut self,
        context: &Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let host = self.host.clone();
        let mut guard = host.universe.lock();
        let core = &mut *guard;
        if !host.is_alive(core) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let outcome = core.network.read(self.end, core.now, buffer.initialize_unfilled());
        if let Outcome::Done((read, _)) = &outcome {
            core.note("receive", self.end.connection, *read as u64);
            core.trace.fold_bytes(&buffer.initialize_unfilled()[..*read]);
        }
        let polled = self.conclude(guard, outcome, true, context);
        polled.map_ok(|read| buffer.advance(read))
    }

    pub(crate) fn poll_write(
        &mut self,
        context: &Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let host = self.host.clone();
        let mut guard = host.universe.lock();
        let core = &mut *guard;
        if !host.is_alive(core) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let outcome = core.network.write(self.end, core.now, bytes, &mut core.random);
        if let Outcome::Done((sent, _)) = &outcome {
            core.note("send", self.end.connection, *sent as u64);
            core.trace.fold_bytes(&bytes[..*sent]);
        }
        self.conclude(guard, outcome, false, context)
    }

    /// Gives back what came of reading or writing; if that is waiting, sees to being woken.
    fn conclude(
        &mut self,
        mut guard: MutexGuard<'_, Core>,
        outcome: Outcome<(usize, Vec<Waker>)>,
        reads: bool,
        context: &Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let core = &mut *guard;
        let timer = if reads { &mut self.reading } else { &mut self.writing };
        let old = timer.take().and_then(|id| core.timers.remove(id));
        let (polled, wakers) = match outcome {
            Outcome::Done((len, wakers)) => (Poll::Ready(Ok(len)), wakers),
            Outcome::Broken(wakers) => {
                (Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())), wakers)
            }
            Outcome::Wait(until) => {
                *timer = until.map(|at| core.timers.add(at, Action::Wake(context.waker().clone())));
                let replaced = core.network.keep(self.end, reads, context.waker());
                drop(guard);
                drop((old, replaced));
                return Poll::Pending;
            }
        };
        drop(guard);
        drop(old);
        wakers.into_iter().for_each(Waker::wake);
        polled
    }

    pub(crate) fn break_when_dropped(&mut self, breaks: bool) {
        self.breaks = breaks;
    }

    /// Ends the writing direction.
    pub(crate) fn shut_down(&self) {
        let mut guard = self.host.universe.lock();
        let core = &mut *guard;
        if self.host.is_alive(core) {
            core.note("shut down", self.end.connection, self.end.side as u64);
            let wakers = core.network.shut_down(self.end, core.now, &mut core.random);
            drop(guard);
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for SimulatedStream {
    fn drop(&mut self) {
        let mut guard = self.host.universe.lock();
        let core = &mut *guard;
        let timers: Vec<_> =
            [self.reading.take(), self.writing.take()].into_iter().flatten().collect();
        let actions: Vec<_> = timers.into_iter().filter_map(|id| core.timers.remove(id)).collect();
        let mut wakers = Vec::new();
        if self.host.is_alive(core) {
            core.note("close", self.end.connection, self.end.side as u64);
            wakers = match self.breaks {
                true => core.network.reset(self.end, core.now, &mut core.random),
                false => core.network.close(self.end, core.now, &mut core.random),
            };
        }
        drop(guard);
        drop(actions);
        wakers.into_iter().for_each(Waker::wake);
    }
}
