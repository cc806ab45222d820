//! What a node has for one other node: [`Link`].

use crate::hello::Hello;
use crate::outbox::Outbox;
use plinth_env::Signal;
use plinth_replication::{NodeId, Spoken};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a node says of itself when it calls.
#[derive(Clone, Copy)]
pub(crate) struct Said {
    /// What its program speaks.
    pub(crate) spoken: Spoken,
    /// Its window of versions; 0 if it doesn't say.
    pub(crate) window: u64,
}

impl Said {
    pub(crate) fn of(hello: &Hello) -> Self {
        Self { spoken: hello.spoken, window: hello.window }
    }
}

/// What there is for one other node.
pub(crate) struct Link {
    pub(crate) node: NodeId,
    pub(crate) address: String,
    /// Where it says that it is, if that is somewhere else.
    pub(crate) heard_at: Mutex<Option<String>>,
    pub(crate) outbox: Outbox,
    /// Ends a pause between two calls.
    pub(crate) poke: Signal,
    /// It is no member any more, or is somewhere else.
    ended: AtomicBool,
    /// What it said of itself when it called, while that connection lasts.
    pub(crate) said: Mutex<Option<Said>>,
    /// Which connection from it counts: the newest.
    pub(crate) newest: AtomicU64,
    /// Why it was not reached the last time it was called.
    pub(crate) failure: Mutex<Option<String>>,
}

impl Link {
    pub(crate) fn new(node: NodeId, address: &str) -> Self {
        Self {
            node,
            address: address.to_owned(),
            heard_at: Mutex::default(),
            outbox: Outbox::default(),
            poke: Signal::new(),
            ended: AtomicBool::new(false),
            said: Mutex::default(),
            newest: AtomicU64::new(0),
            failure: Mutex::default(),
        }
    }

    /// Where it is called at this attempt: where it says it is, and by turns where the members say,
    /// in case that it lied or is back there.
    pub(crate) fn place(&self, attempt: usize) -> String {
        let heard_at = lock(&self.heard_at).clone();
        heard_at.filter(|_| attempt.is_multiple_of(2)).unwrap_or_else(|| self.address.clone())
    }

    /// Nothing goes over it any more.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.poke.notify();
        self.newest.fetch_add(1, Ordering::AcqRel);
        self.outbox.set_connected(false);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// It has called, and said this of itself; gives the number of that connection.
    pub(crate) fn is_called(&self, news: Said) -> u64 {
        let mut said = lock(&self.said);
        *said = Some(news);
        self.newest.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The connection with this number has ended.
    pub(crate) fn is_lost(&self, number: u64) {
        let mut said = lock(&self.said);
        if self.newest.load(Ordering::Acquire) == number {
            *said = None;
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
