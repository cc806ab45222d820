//! What a member's task is asked to do, and what others may know of it.
//!
//! Events wait in one queue, in the order in which they came. Beside it stands what the task tells:
//! whether it leads, how far it has written, whether it has failed. Whoever waits for a change of
//! that leaves a waker.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use plinth_env::Signal;
use plinth_env::reply::Promise;
use plinth_log::{EntryKind, LogError, LogResult, Position, Vote};
use plinth_types::{Bytes, Version};

use crate::NodeId;
use crate::core::Follower;
use crate::members::Members;
use crate::peers::Frame;
use crate::terms::{EntryId, Terms};

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
        answer: Promise<Position, LogError>,
    },
    /// The disk is to say how far the log is durable.
    Mark(Promise<(), LogError>),
    /// Everything up to this ticket is synced.
    Synced(u64),
    /// It wants to lead.
    Campaign,
    /// It wants another node to lead.
    HandOver,
    Close(Promise<(), LogError>),
}

/// What a member that was closed has promised, and has in its log.
#[derive(Clone, Debug)]
pub struct Left {
    /// Its newest promise.
    pub promised: Vote,
    /// The terms of its entries.
    pub terms: Terms,
}

/// What a member tells of itself.
#[derive(Default)]
pub(crate) struct Told {
    /// The newest term that it knows, and who leads in it.
    pub(crate) term: u64,
    pub(crate) leader: Option<NodeId>,
    /// How often it has wanted to lead, or seen somebody new do so.
    pub(crate) elections: u64,
    /// Who is a member, as of which entry.
    pub(crate) members: (Arc<Members>, u64),
    pub(crate) progress: Progress,
    /// The entry that rows have to reach, if this node lacks entries that it is sent no more.
    pub(crate) behind: Option<EntryId>,
    /// The term in which it leads, once an entry of that term is committed.
    pub(crate) leads: Option<u64>,
    pub(crate) last: Last,
    /// Why entries wait to be written, if they do: the disk is full.
    pub(crate) full: Option<LogError>,
    pub(crate) end: End,
    waiting: Vec<Waker>,
}

/// A moment ago: how far a member and the others were.
#[derive(Clone, Default)]
pub(crate) struct Progress {
    /// The other nodes, if this one leads.
    pub(crate) followers: Arc<[Follower]>,
    /// How many entries nodes lack, as [`crate::Core::lags`] has it.
    pub(crate) lags: Arc<[(NodeId, u64)]>,
    /// Up to where entries are committed.
    pub(crate) committed_index: u64,
    /// The last one.
    pub(crate) last_index: u64,
}

/// The last entry of a member.
#[derive(Default)]
pub(crate) struct Last {
    pub(crate) position: Position,
    /// The lease as of that entry.
    pub(crate) lease: Version,
}

/// How a member ended, if it has.
#[derive(Default)]
pub(crate) struct End {
    /// Why it does nothing more.
    pub(crate) cause: Option<LogError>,
    /// What it left when it was closed.
    pub(crate) left: Option<Left>,
}

/// Bytes of frames that wait, of those without entries and of those with some: what comes beyond is
/// as good as lost on its way, and is sent again. A frame is taken as long as those before it are
/// fewer, so that none is too large. Each kind has a bound of its own, so that a node that is
/// behind with its disk still hears that somebody leads.
const FRAME_BYTES: [usize; 2] = [1 << 20, 64 << 20];
/// What a frame takes besides the bodies of its entries, about.
const FRAME_OVERHEAD: usize = 256;
const ENTRY_OVERHEAD: usize = 96;

/// Events in the order in which they came.
#[derive(Default)]
struct Queue {
    events: VecDeque<Event>,
    /// What the frames among them take, about: those without entries, those with some.
    frame_bytes: [usize; 2],
}

/// Answers whoever left an event, if somebody waits for that.
fn answer(event: Event, why: &LogError) {
    match event {
        Event::Append { answer, .. } => answer.send(Err(why.clone())),
        Event::Mark(answer) | Event::Close(answer) => answer.send(Err(why.clone())),
        Event::Frame(_) | Event::Synced(_) | Event::Campaign | Event::HandOver => {}
    }
}

/// Bytes of memory that a frame takes, about.
fn size(frame: &Frame) -> usize {
    let entries = frame.entries.iter().map(|entry| ENTRY_OVERHEAD + entry.body.len());
    FRAME_OVERHEAD + entries.sum::<usize>()
}

/// The queue, and what is told.
#[derive(Default)]
pub(crate) struct Inbox {
    queue: Mutex<Queue>,
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
        if self.with(|told| told.end.cause.is_none()) {
            self.queue().events.push_back(event);
            self.wake.notify();
        }
    }

    /// Puts a frame of another node into the queue, if those that wait there leave room: this node
    /// may be slower than what it is sent.
    pub(crate) fn post_frame(&self, frame: Frame) {
        {
            let mut queue = self.queue();
            let kind = usize::from(!frame.entries.is_empty());
            if queue.frame_bytes[kind] >= FRAME_BYTES[kind] {
                return;
            }
            queue.frame_bytes[kind] += size(&frame);
        }
        self.post(Event::Frame(frame));
    }

    pub(crate) fn take(&self) -> Option<Event> {
        let mut queue = self.queue();
        let event = queue.events.pop_front()?;
        if let Event::Frame(frame) = &event {
            let kind = usize::from(!frame.entries.is_empty());
            queue.frame_bytes[kind] -= size(frame);
        }
        Some(event)
    }

    /// Has the member end.
    pub(crate) async fn close(&self) -> LogResult<()> {
        self.check()?;
        let (promise, reply) = Promise::pair();
        self.post(Event::Close(promise));
        reply.await
    }

    /// Whether somebody waits for its end.
    pub(crate) fn is_to_close(&self) -> bool {
        self.queue().events.iter().any(|event| matches!(event, Event::Close(_)))
    }

    /// Takes the wish for its end out of turn.
    pub(crate) fn take_close(&self) -> Option<Promise<(), LogError>> {
        let events = &mut self.queue().events;
        let at = events.iter().position(|event| matches!(event, Event::Close(_)))?;
        match events.remove(at) {
            Some(Event::Close(answer)) => Some(answer),
            _ => None,
        }
    }

    /// Answers those who want something that a node does which has room on its disk, and which
    /// doesn't come to it for a while.
    pub(crate) fn refuse(&self, why: &LogError) {
        let asks = |event: &Event| matches!(event, Event::Append { .. } | Event::Mark(_));
        let asked: VecDeque<_> = {
            let mut queue = self.queue();
            let (asked, others) = std::mem::take(&mut queue.events).into_iter().partition(asks);
            queue.events = others;
            asked
        };
        asked.into_iter().for_each(|event| answer(event, why));
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Tells how the member stands, unless it has ended: a sync that fails may have ended it while
    /// the member was at its work.
    pub(crate) fn tell(&self, f: impl FnOnce(&mut Told)) {
        self.change(|told| {
            if told.end.cause.is_none() {
                f(told);
            }
        });
    }

    /// The member does nothing more. The first reason is kept; who waits is told.
    pub(crate) fn end(&self, cause: &LogError) {
        self.change(|told| {
            (told.leads, told.leader) = (None, None);
            told.end.cause.get_or_insert_with(|| cause.clone());
        });
        let left = std::mem::take(&mut *self.queue());
        left.events.into_iter().for_each(|event| answer(event, cause));
        self.wake.notify();
        self.sync_due.notify();
    }

    /// The error of a member that has ended.
    pub(crate) fn check(&self) -> LogResult<()> {
        self.with(|told| told.end.cause.clone()).map_or(Ok(()), Err)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Message, MessageKind};
    use plinth_log::Entry;

    /// A leader's sync had failed while it was at its work, it told that it leads, and the node
    /// took that for a term that it had to begin, again and again, on a thread that did nothing
    /// else from then on.
    #[test]
    fn a_member_that_has_ended_does_not_lead_again() {
        let inbox = Inbox::new();
        inbox.tell(|told| told.leads = Some(3));
        assert_eq!(inbox.with(|told| told.leads), Some(3));
        inbox.end(&LogError::Poisoned("a sync failed".into()));
        inbox.tell(|told| told.leads = Some(3));
        assert_eq!(inbox.with(|told| told.leads), None);
    }

    fn message(kind: MessageKind) -> Message {
        Message::bare(kind, 1, 2, 1)
    }

    fn frame(bytes: usize) -> Frame {
        let entry = Entry {
            kind: EntryKind::Mutations,
            index: 1,
            term: 1,
            version: 1,
            previous: 0,
            committed: 0,
            body: vec![7; bytes].into(),
        };
        Frame::new(message(MessageKind::Append), vec![entry])
    }

    #[test]
    fn frames_that_wait_are_bounded_and_what_is_taken_makes_room() {
        let inbox = Inbox::default();
        (0..100).for_each(|_| inbox.post_frame(frame(10 << 20)));
        let waiting = inbox.queue().events.len();
        assert_eq!(waiting, 7, "as many as it takes to reach the bound");
        inbox.post(Event::Campaign);
        inbox.post_frame(Frame::new(message(MessageKind::Heartbeat), Vec::new()));
        assert_eq!(
            inbox.queue().events.len(),
            9,
            "what this node wants is never dropped, nor a heartbeat soon"
        );
        assert!(inbox.take().is_some());
        inbox.post_frame(frame(10));
        assert_eq!(inbox.queue().events.len(), 9);
        while inbox.take().is_some() {}
        assert_eq!(inbox.queue().frame_bytes, [0, 0]);
    }
}
