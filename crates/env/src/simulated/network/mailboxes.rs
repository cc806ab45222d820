//! Datagrams: each is under way for a time of its own, so they overtake one another; some are lost,
//! some come twice.
//!
//! What is sent over a way that is blocked is lost, and so is what finds the receiver's mailbox
//! full. A mailbox is its datagrams in the order of their arrival; one reader at a time waits at
//! it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::task::Waker;
use std::time::Duration;

use super::{Network, Outcome, ip_of};
use crate::simulated::random::Random;

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
    /// Binds a mailbox to an address, a free port if it names none. `None` if it is in use.
    pub(crate) fn bind(&mut self, process: usize, mut address: SocketAddr) -> Option<SocketAddr> {
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
    pub(crate) fn send(
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

    /// The next datagram that has arrived, and who sent it.
    pub(crate) fn receive(
        &mut self,
        address: SocketAddr,
        now: Duration,
    ) -> Outcome<(SocketAddr, Vec<u8>)> {
        let Some(mailbox) = self.mailboxes.get_mut(&address) else {
            return Outcome::Broken(Vec::new());
        };
        match mailbox.waiting.first_entry() {
            Some(entry) if entry.key().0 <= now => {
                let (from, bytes) = entry.remove();
                mailbox.bytes -= bytes.len();
                Outcome::Done((from, bytes))
            }
            first => Outcome::Wait(first.map(|entry| entry.key().0)),
        }
    }

    /// Keeps the waker of a reader that has to wait; gives back the one before.
    pub(crate) fn wait_for_mail(&mut self, address: SocketAddr, waker: &Waker) -> Option<Waker> {
        self.mailboxes.get_mut(&address)?.reader.replace(waker.clone())
    }

    /// A mailbox is closed; its address is free.
    #[must_use = "a waker's destructor may be foreign code: drop it outside of the lock"]
    pub(crate) fn unbind(&mut self, address: SocketAddr) -> Option<Mailbox> {
        self.mailboxes.remove(&address)
    }

    /// The mailboxes of a process that has ended go; who waited at them is woken.
    pub(super) fn close_mailboxes(&mut self, process: usize) -> Vec<Waker> {
        let gone = self.mailboxes.extract_if(.., |_, mailbox| mailbox.process == process);
        gone.filter_map(|(_, mailbox)| mailbox.reader).collect()
    }
}
