//! What waits to be sent to one node, and what is counted about it.
//!
//! Two lanes: frames without entries, which are short and say who leads, and frames with entries;
//! parcels without rows go with the former, chunks of rows with the latter. The lanes are bounded.
//! Of the first the oldest frame gives way, since a newer one says more; of the second the newest
//! is not taken, since it is of no use without those before it. Whatever is missing consensus sends
//! again.

use plinth_replication::{Frame, Parcel, ReplicationResult};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

/// Most frames without entries that wait.
const SHORT: usize = 256;
/// Bytes of frames with entries that wait, about: one frame may be longer.
const LONG_BYTES: usize = 16 << 20;

/// What goes to a node.
pub(crate) enum Item {
    Frame(Frame),
    Parcel(Parcel),
}

impl Item {
    /// Whether it goes with what is short.
    fn is_short(&self) -> bool {
        match self {
            Self::Frame(frame) => frame.entries.is_empty(),
            Self::Parcel(parcel) => parcel.payload.is_empty(),
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Frame(frame) => frame.size(),
            Self::Parcel(parcel) => parcel.size(),
        }
    }

    /// Its bytes, for a node that speaks this version of the protocol.
    pub(crate) fn encode(&mut self, version: u16) -> ReplicationResult<Vec<u8>> {
        match self {
            Self::Frame(frame) => {
                frame.speak(version);
                frame.encode()
            }
            Self::Parcel(parcel) => parcel.encode(),
        }
    }
}

/// Frames and parcels for one node.
#[derive(Default)]
pub(crate) struct Outbox {
    waiting: Mutex<Waiting>,
    counters: Counters,
}

#[derive(Default)]
struct Waiting {
    short: VecDeque<Item>,
    long: VecDeque<Item>,
    long_bytes: usize,
    /// The task's, while there is nothing to send.
    waker: Option<Waker>,
    /// Whether there is a connection. Without one nothing with entries is kept.
    connected: bool,
}

#[derive(Default)]
struct Counters {
    connected: AtomicBool,
    connections: AtomicU64,
    sent: AtomicU64,
    sent_bytes: AtomicU64,
    dropped: AtomicU64,
    received: AtomicU64,
    received_bytes: AtomicU64,
    refused: AtomicU64,
}

/// What a node has counted about another one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Figures {
    /// Whether there is a connection to it.
    pub connected: bool,
    /// Connections to it that came about.
    pub connections: u64,
    /// Frames sent.
    pub sent: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Frames that were not sent because too many waited, or there was no connection.
    pub dropped: u64,
    /// Frames received.
    pub received: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Connections from it that ended because of what it said.
    pub refused: u64,
    /// Bytes that wait to be sent, of frames with entries.
    pub waiting_bytes: usize,
}

impl Outbox {
    /// Leaves a frame or a parcel. Never waits.
    pub(crate) fn push(&self, item: Item) {
        let mut waiting = self.lock();
        let mut is_dropped = false;
        if item.is_short() {
            if waiting.short.len() >= SHORT {
                waiting.short.pop_front();
                is_dropped = true;
            }
            waiting.short.push_back(item);
        } else if waiting.connected && waiting.long_bytes < LONG_BYTES {
            waiting.long_bytes += item.size();
            waiting.long.push_back(item);
        } else {
            is_dropped = true;
        }
        let waker = waiting.waker.take();
        drop(waiting);
        if is_dropped {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes what is next of the short ones.
    pub(crate) fn take_short(&self) -> Option<Item> {
        self.lock().short.pop_front()
    }

    /// Takes what is next of the long ones.
    pub(crate) fn take_long(&self) -> Option<Item> {
        let mut waiting = self.lock();
        let item = waiting.long.pop_front()?;
        waiting.long_bytes -= item.size();
        Some(item)
    }

    /// Has `waker` woken by the next frame; says whether one is there already.
    pub(crate) fn wait(&self, waker: &Waker) -> bool {
        let mut waiting = self.lock();
        if !waiting.short.is_empty() || !waiting.long.is_empty() {
            return true;
        }
        if waiting.waker.as_ref().is_none_or(|known| !known.will_wake(waker)) {
            waiting.waker = Some(waker.clone());
        }
        false
    }

    /// There is a connection, or there is none any more.
    pub(crate) fn set_connected(&self, connected: bool) {
        let mut waiting = self.lock();
        waiting.connected = connected;
        let waker = waiting.waker.take();
        // What waited for a connection that is gone was meant for then.
        let dropped = if connected { 0 } else { waiting.long.len() + waiting.short.len() };
        let gone = if connected {
            Default::default()
        } else {
            waiting.long_bytes = 0;
            (std::mem::take(&mut waiting.short), std::mem::take(&mut waiting.long))
        };
        drop(waiting);
        drop(gone);
        if let Some(waker) = waker {
            waker.wake();
        }
        self.counters.dropped.fetch_add(dropped as u64, Ordering::Relaxed);
        self.counters.connections.fetch_add(connected.into(), Ordering::Relaxed);
        self.counters.connected.store(connected, Ordering::Relaxed);
    }

    /// Notes frames that were sent.
    pub(crate) fn sent(&self, bytes: usize) {
        self.counters.sent.fetch_add(1, Ordering::Relaxed);
        self.counters.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes a frame that is too long for anybody to take.
    pub(crate) fn unsendable(&self) {
        self.counters.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes a frame that was received.
    pub(crate) fn received(&self, bytes: usize) {
        self.counters.received.fetch_add(1, Ordering::Relaxed);
        self.counters.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes that the node said what none should say.
    pub(crate) fn refused(&self) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn figures(&self) -> Figures {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        Figures {
            connected: counters.connected.load(Ordering::Relaxed),
            connections: get(&counters.connections),
            sent: get(&counters.sent),
            sent_bytes: get(&counters.sent_bytes),
            dropped: get(&counters.dropped),
            received: get(&counters.received),
            received_bytes: get(&counters.received_bytes),
            refused: get(&counters.refused),
            waiting_bytes: self.lock().long_bytes,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
