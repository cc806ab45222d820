//! Simulated datagrams: each is under way for a time of its own, so they overtake one another; some
//! are lost, some come twice.
//!
//! What is sent over a way that is blocked is lost, and so is what finds the receiver's mailbox
//! full. A mailbox is its datagrams in the order of their arrival; one reader at a time waits at
//! it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use plinth_types::{Error, Result};
use tokio::io::ReadBuf;

use super::{Network, ip_of};
use crate::datagrams::MAX_DATAGRAM;
use crate::simulated::random::Random;
use crate::simulated::timers::{Action, TimerId};
use crate::simulated::universe::{Core, Host};

/// Where datagrams for an address wait.
pub(crate) struct Mailbox {
    process: usize,
    waiting: BTreeMap<(Duration, u64), (SocketAddr, Vec<u8>)>,
    /// Bytes of all of them.
    bytes: usize,
    /// Tells those of one time apart.
    next: u64,
    reader: Option<Waker>,
}

impl Mailbox {
    fn put(&mut self, at: Duration, from: SocketAddr, bytes: &[u8], most: usize) {
        if self.bytes + bytes.len() <= most {
            self.bytes += bytes.len();
            self.waiting.insert((at, self.next), (from, bytes.to_vec()));
            self.next += 1;
        }
    }
}

impl Network {
    fn bind(&mut self, process: usize, mut address: SocketAddr) -> Option<SocketAddr> {
        address.set_ip(ip_of(process));
        if address.port() == 0 {
            let is_free =
                |port: &u16| !self.mailboxes.contains_key(&SocketAddr::new(address.ip(), *port));
            address.set_port((32_768..=u16::MAX).find(is_free)?);
        }
        if self.mailboxes.contains_key(&address) {
            return None;
        }
        let mailbox =
            Mailbox { process, waiting: BTreeMap::new(), bytes: 0, next: 0, reader: None };
        self.mailboxes.insert(address, mailbox);
        Some(address)
    }

    /// Sends a datagram; gives back who is to be woken.
    fn send(
        &mut self,
        from: (usize, SocketAddr),
        to: SocketAddr,
        bytes: &[u8],
        now: Duration,
        random: &mut Random,
    ) -> Option<Waker> {
        let copies = match (random.chance(self.plan.lose), random.chance(self.plan.repeat)) {
            (true, _) => 0,
            (false, true) => 2,
            (false, false) => 1,
        };
        let process = self.mailboxes.get(&to)?.process;
        for _ in 0..copies {
            let at = now + self.plan.latency(random);
            // Nobody keeps for later what can't get through.
            if self.passes(from.0, process, at) == Some(at)
                && let Some(mailbox) = self.mailboxes.get_mut(&to)
            {
                mailbox.put(at, from.1, bytes, self.plan.window);
            }
        }
        self.mailboxes.get_mut(&to)?.reader.take()
    }

    /// The mailboxes of a process that has ended go; who waited at them is woken.
    pub(super) fn close_mailboxes(&mut self, process: usize) -> Vec<Waker> {
        let gone = self.mailboxes.extract_if(.., |_, mailbox| mailbox.process == process);
        gone.filter_map(|(_, mailbox)| mailbox.reader).collect()
    }
}

impl Host {
    pub(crate) fn datagrams(self: &Arc<Self>, address: SocketAddr) -> Result<SimulatedDatagrams> {
        let core = &mut *self.universe.lock();
        if !self.is_alive(core) {
            return Err(Error::bind_failed().with_detail("the process has crashed"));
        }
        if !address.ip().is_unspecified() && address.ip() != ip_of(self.process) {
            let detail = format!("{address}: not an address of this machine");
            return Err(Error::bind_failed().with_detail(detail));
        }
        core.note("bind", self.process as u64, u64::from(address.port()));
        let bound = core.network.bind(self.process, address);
        let address =
            bound.ok_or_else(|| Error::address_in_use().with_detail(address.to_string()))?;
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
        if bytes.len() > MAX_DATAGRAM {
            return Err(io::Error::other("the datagram is too long"));
        }
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
        let now = core.now;
        let Some(mailbox) = core.network.mailboxes.get_mut(&self.address) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        match mailbox.waiting.first_entry() {
            Some(entry) if entry.key().0 <= now => {
                let (from, bytes) = entry.remove();
                mailbox.bytes -= bytes.len();
                let fits = bytes.len().min(buffer.remaining());
                buffer.put_slice(&bytes[..fits]);
                core.note("datagram", host.process as u64, fits as u64);
                drop(guard);
                drop(old);
                Poll::Ready(Ok(from))
            }
            first => {
                let at = first.map(|entry| entry.key().0);
                let replaced = mailbox.reader.replace(context.waker().clone());
                self.reading =
                    at.map(|at| core.timers.add(at, Action::Wake(context.waker().clone())));
                drop(guard);
                drop((old, replaced));
                Poll::Pending
            }
        }
    }

    fn close(&mut self, mut guard: MutexGuard<'_, Core>) {
        let core = &mut *guard;
        let timer = self.reading.take().and_then(|id| core.timers.remove(id));
        // After a crash another life may have the address.
        let gone = match self.host.is_alive(core) {
            true => core.network.mailboxes.remove(&self.address),
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
