//! What a member's task is asked to do, and what others may know of it.
//!
//! Events wait in one queue, in the order in which they came. Beside it stands what the task tells: whether it
//! leads, how far it has written, whether it has failed. Whoever waits for a change of that leaves a waker.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use plinth_env::Signal;
use plinth_env::reply::Promise;
use plinth_log::{EntryKind, Position};
use plinth_types::{Bytes, Error, Result, Version};

use crate::NodeId;
use crate::member::Frame;

/// Something for the task.
pub(crate) enum Event {
    /// From another node.
    Frame(Frame),
    /// An entry for the log: in this term, at this version (`None`: that of the last one).
    Append {
        term: u64,
        kind: EntryKind,
        version: Option<Version>,
        body: Bytes,
        answer: Promise<Position>,
    },
    /// Proof is wanted that this node still leads. Its answer: the version up to which entries are committed.
    Prove(Promise<Version>),
    /// The disk is to say how far the log is durable.
    Mark(Promise<()>),
    /// Everything up to this ticket is synced.
    Synced(u64),
    /// It wants to lead.
    Campaign,
    /// It wants another node to lead.
    HandOver,
    Close(Promise<()>),
}

/// What a member tells of itself.
#[derive(Default)]
pub(crate) struct Told {
    /// The newest term that it knows, and who leads in it.
    pub(crate) term: u64,
    pub(crate) leader: Option<NodeId>,
    /// How often it has wanted to lead, or seen somebody new do so.
    pub(crate) elections: u64,
    /// Of each other node, up to which index it has what this one has, if this one leads.
    pub(crate) followers: Arc<[(NodeId, u64)]>,
    /// A moment ago: up to which index entries are committed, and the last one.
    pub(crate) indices: (u64, u64),
    /// The term in which it leads, once an entry of that term is committed.
    pub(crate) leads: Option<u64>,
    /// The position of the last entry.
    pub(crate) written: Position,
    /// The lease as of that entry.
    pub(crate) lease: Version,
    /// Why it does nothing more.
    pub(crate) ended: Option<Error>,
    waiting: Vec<Waker>,
}

/// The queue, and what is told.
#[derive(Default)]
pub(crate) struct Inbox {
    events: Mutex<VecDeque<Event>>,
    pub(crate) wake: Signal,
    told: Mutex<Told>,
    /// The newest ticket whose writes are to be synced, and the position up to which.
    due: Mutex<Option<(u64, Position)>>,
    pub(crate) sync_due: Signal,
}

impl Inbox {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Puts an event into the queue. After the end nobody takes it, and whoever waits is told so.
    pub(crate) fn post(&self, event: Event) {
        if self.with(|told| told.ended.is_none()) {
            self.events.lock().unwrap_or_else(PoisonError::into_inner).push_back(event);
            self.wake.notify();
        }
    }

    pub(crate) fn take(&self) -> Option<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Told) -> T) -> T {
        f(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes what is told, and has everybody look who waits.
    pub(crate) fn change<T>(&self, f: impl FnOnce(&mut Told) -> T) -> T {
        let (result, waiting) = self.with(|told| (f(told), std::mem::take(&mut told.waiting)));
        waiting.into_iter().for_each(Waker::wake);
        result
    }

    /// Waits until `f` gives something; it is asked now and after every change.
    pub(crate) async fn until<T>(&self, mut f: impl FnMut(&Told) -> Option<T>) -> T {
        std::future::poll_fn(|context| {
            self.with(|told| match f(told) {
                Some(value) => Poll::Ready(value),
                None => {
                    if !told.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                        told.waiting.push(context.waker().clone());
                    }
                    Poll::Pending
                }
            })
        })
        .await
    }

    /// The member does nothing more. The first reason is kept; who waits is told.
    pub(crate) fn end(&self, cause: &Error) {
        self.change(|told| {
            (told.leads, told.leader) = (None, None);
            told.ended.get_or_insert_with(|| cause.clone());
        });
        let left = std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner));
        for event in left {
            match event {
                Event::Append { answer, .. } => answer.send(Err(cause.clone())),
                Event::Prove(answer) => answer.send(Err(cause.clone())),
                Event::Mark(answer) | Event::Close(answer) => answer.send(Err(cause.clone())),
                Event::Frame(_) | Event::Synced(_) | Event::Campaign | Event::HandOver => {}
            }
        }
        self.wake.notify();
        self.sync_due.notify();
    }

    /// The error of a member that has ended.
    pub(crate) fn check(&self) -> Result<()> {
        self.with(|told| told.ended.clone()).map_or(Ok(()), Err)
    }

    /// Everything up to here is to be synced.
    pub(crate) fn want_sync(&self, ticket: u64, position: Position) {
        *self.due.lock().unwrap_or_else(PoisonError::into_inner) = Some((ticket, position));
        self.sync_due.notify();
    }

    pub(crate) fn take_due(&self) -> Option<(u64, Position)> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
