//! Where answers that come later wait for their connection's task.
//!
//! A commit is answered on a worker's thread. It leaves the encoded reply here and wakes the task,
//! once however many answers come before it runs, so that all of them leave in one write. What
//! stands here is counted as soon as it is more than a little, and where that would exceed what all
//! connections may hold, this connection is cut off. Once the connection has gone, answers are
//! thrown away.

use crate::memory::{Charge, Memory, UNCOUNTED};
use crate::quotas::Counted;
use plinth_env::Env;
use plinth_types::{Bytes, Error, Version};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

/// Longest name of a client that is kept, in characters.
const MOST_NAME: usize = 64;
/// Room for answers that is kept from one turn to the next.
const KEPT: usize = 4 << 10;
/// So many bytes of answers are handed over as they are; fewer are copied, and the output keeps the
/// room it has.
const HANDED_OVER: usize = 256 << 10;

/// One connection, as others see it.
pub(crate) struct Outbox {
    pub(crate) peer: SocketAddr,
    /// What its client says it is, once it has.
    name: OnceLock<Box<str>>,
    state: Mutex<State>,
    memory: Arc<Memory>,
    /// Bytes of requests under way, and what cutting the connection off would free, as of its last
    /// turn.
    holds: [AtomicUsize; 2],
    /// Milliseconds of the clock after which the connection has been silent for too long.
    deadline: AtomicU64,
    /// Whether it has nothing under way, as of its last turn.
    is_idle: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Frames.
    bytes: Vec<u8>,
    /// How many bytes of them are counted.
    counted: usize,
    /// What the requests were charged with whose answers stand here.
    answered: Charge,
    /// Answers are thrown away.
    is_deaf: bool,
    /// The connection has gone. What it still has under way is counted until it is answered.
    is_closed: bool,
    /// Watches to look at.
    fired: Vec<u32>,
    order: Order,
    waker: Option<Waker>,
}

/// What the connection is told to do.
#[derive(Clone, Default)]
pub(crate) enum Order {
    /// Serve.
    #[default]
    GoOn,
    /// Read nothing more; close once everything under way is answered.
    Finish,
    /// Close at once, if it has said nothing: somebody else gets its place.
    Leave,
    /// Close, if nothing is under way and nothing has come: somebody else gets its place.
    MakeRoom,
    /// Close, saying why.
    Close(Error),
    /// Close, because memory is short and this connection holds much of it: so many bytes of
    /// answers have been thrown away.
    CutOff { answers: usize },
}

impl State {
    /// Throws away what is here, and whatever comes.
    fn stop_listening(&mut self, memory: &Memory) {
        self.is_deaf = true;
        self.bytes = Vec::new();
        memory.change(std::mem::take(&mut self.counted), 0);
    }
}

impl Outbox {
    pub(crate) fn new(peer: SocketAddr, memory: Arc<Memory>) -> Arc<Self> {
        Arc::new(Self {
            peer,
            name: OnceLock::new(),
            state: Mutex::default(),
            memory,
            holds: Default::default(),
            deadline: AtomicU64::new(u64::MAX),
            is_idle: AtomicBool::new(false),
        })
    }

    /// The client has said what it is: cut to what fits a line, without what a terminal would obey.
    pub(crate) fn introduce(&self, name: &str) {
        let name: String = name.chars().filter(|c| !c.is_control()).take(MOST_NAME).collect();
        let _ = self.name.set(name.into());
    }

    /// What the client says it is; empty until then.
    pub(crate) fn name(&self) -> &str {
        self.name.get().map_or("", |name| name)
    }

    /// Whether the client has said what it is.
    pub(crate) fn has_greeted(&self) -> bool {
        self.name.get().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the connection holds at the end of a turn: bytes of requests under way, and what
    /// cutting it off would free.
    pub(crate) fn note_holds(&self, requests: usize, frees: usize) {
        for (known, now) in self.holds.iter().zip([requests, frees]) {
            if known.load(Ordering::Relaxed) != now {
                known.store(now, Ordering::Relaxed);
            }
        }
    }

    /// Bytes of requests under way, as of the last turn.
    pub(crate) fn under_way(&self) -> usize {
        self.holds[0].load(Ordering::Relaxed)
    }

    /// Bytes that cutting the connection off would free; 0 if it holds but little.
    pub(crate) fn frees(&self) -> usize {
        let frees = self.holds[1].load(Ordering::Relaxed) + self.lock().counted;
        if frees > UNCOUNTED { frees } else { 0 }
    }

    /// Leaves an answer to a request that was charged with so much. One of `len` bytes, if that is
    /// more, isn't built where all connections together would then hold too much.
    pub(crate) fn answer(&self, charge: Charge, len: usize, put: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.lock();
        if state.is_closed {
            self.memory.change(charge.request, 0);
            return;
        }
        state.answered += charge;
        if !state.is_deaf && len > charge.reply && self.memory.has_no_room_for(len) {
            state.stop_listening(&self.memory);
            state.order = Order::CutOff { answers: len };
        }
        if !state.is_deaf {
            put(&mut state.bytes);
            let holds = state.bytes.capacity();
            if holds > state.counted + UNCOUNTED {
                self.memory.change(std::mem::replace(&mut state.counted, holds), holds);
                if self.memory.is_short() {
                    // Whatever waits to be answered is owed too: it can't be left to this
                    // connection's next turn.
                    state.stop_listening(&self.memory);
                    state.order = Order::CutOff { answers: holds };
                }
            }
        }
        wake(state);
    }

    /// The connection, which has so much under way, takes nothing any more.
    pub(crate) fn close(&self, mut under_way: Charge) {
        let mut state = self.lock();
        under_way -= std::mem::take(&mut state.answered);
        state.stop_listening(&self.memory);
        if !std::mem::replace(&mut state.is_closed, true) {
            self.memory.change(0, under_way.request);
        }
    }

    /// Has the connection look at what has changed around it.
    pub(crate) fn wake(&self) {
        wake(self.lock());
    }

    fn fire(&self, id: u32) {
        let mut state = self.lock();
        state.fired.push(id);
        wake(state);
    }

    /// Tells the connection what to do. Closing can't be taken back.
    pub(crate) fn order(&self, order: Order) {
        let mut state = self.lock();
        let may_wait = matches!(order, Order::Leave | Order::MakeRoom);
        if !matches!(state.order, Order::Close(_))
            && (!may_wait || matches!(state.order, Order::GoOn))
        {
            state.order = order;
        }
        wake(state);
    }

    /// Moves what has come to the end of `output`, notes watches to look at, and sees to `waker`
    /// being woken by what comes next. Says what to do, and what the requests were charged with
    /// that are answered.
    pub(crate) fn collect(
        &self,
        output: &mut Vec<u8>,
        fired: &mut Vec<u32>,
        waker: &Waker,
    ) -> (Order, Charge) {
        let mut replaced = None;
        let mut state = self.lock();
        if output.is_empty() && state.bytes.len() > HANDED_OVER {
            *output = std::mem::take(&mut state.bytes);
        } else {
            output.append(&mut state.bytes);
        }
        if state.bytes.capacity() > KEPT {
            state.bytes = Vec::new();
        }
        self.memory.change(std::mem::take(&mut state.counted), 0);
        let answered = std::mem::take(&mut state.answered);
        fired.append(&mut state.fired);
        if state.waker.as_ref().is_none_or(|known| !known.will_wake(waker)) {
            replaced = state.waker.replace(waker.clone());
        }
        let order = state.order.clone();
        if matches!(order, Order::CutOff { .. } | Order::MakeRoom) {
            // Done once: what comes after it is another order.
            state.order = Order::GoOn;
        }
        drop(state);
        drop(replaced);
        (order, answered)
    }

    /// The connection has given a sign of life, and is expected to give another within `patience`.
    pub(crate) fn expect_within(&self, env: &Env, patience: Duration) {
        let deadline = (env.now() + patience).as_millis();
        self.deadline.store(u64::try_from(deadline).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether the connection has nothing under way and watches nothing, at the end of a turn.
    pub(crate) fn note_idle(&self, is_idle: bool) {
        if self.is_idle.load(Ordering::Relaxed) != is_idle {
            self.is_idle.store(is_idle, Ordering::Relaxed);
        }
    }

    /// When the sign of life is expected at the latest, in milliseconds of the clock, of one that
    /// has nothing under way.
    pub(crate) fn idle_until(&self) -> Option<u64> {
        self.is_idle.load(Ordering::Relaxed).then(|| self.deadline.load(Ordering::Relaxed))
    }

    /// Whether the sign of life did not come.
    pub(crate) fn is_overdue(&self, now: Duration) -> bool {
        now.as_millis() > u128::from(self.deadline.load(Ordering::Relaxed))
    }
}

fn wake(mut state: MutexGuard<'_, State>) {
    // Taken out, so that many answers cost one wake-up; `collect` puts it back.
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Wakes a connection for one of its watches.
pub(crate) struct WatchBell {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) id: u32,
}

impl Wake for WatchBell {
    fn wake(self: Arc<Self>) {
        self.outbox.fire(self.id);
    }
}

/// A watch that waits, and what it holds.
pub(crate) struct Watch {
    pub(crate) key: Bytes,
    /// The token by which it is watched; empty without one.
    pub(crate) token: Bytes,
    pub(crate) reply: plinth_env::Reply<Version>,
    pub(crate) bytes: usize,
    /// What it is counted for.
    pub(crate) counted: Vec<Counted>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbox(memory: &Arc<Memory>) -> Arc<Outbox> {
        Outbox::new("127.0.0.1:1".parse().unwrap(), memory.clone())
    }

    #[test]
    fn answers_are_counted_until_they_are_taken() {
        let memory = Arc::new(Memory::new(1 << 20));
        let outbox = outbox(&memory);
        let charge = Charge::new(50, 80_000);
        outbox.answer(charge, 0, |out| out.extend_from_slice(&[7; 1000]));
        assert_eq!(memory.held(), 0);
        outbox.answer(charge, 0, |out| out.extend_from_slice(&[8; 70_000]));
        assert!((71_000..150_000).contains(&memory.held()), "{}", memory.held());
        assert_eq!(outbox.frees(), memory.held());
        let (mut output, mut fired) = (vec![6], Vec::new());
        let (order, answered) = outbox.collect(&mut output, &mut fired, Waker::noop());
        assert!(matches!(order, Order::GoOn));
        assert_eq!((output.len(), answered.sum()), (71_001, 2 * charge.sum()));
        assert_eq!(memory.held(), 0);
        assert!(outbox.lock().bytes.capacity() <= KEPT, "what was large once is not kept");
    }

    #[test]
    fn who_is_answered_with_more_than_there_is_room_for_is_cut_off_at_once() {
        let memory = Arc::new(Memory::new(1 << 20));
        let outbox = outbox(&memory);
        let charge = Charge::new(50, 80_000);
        let mut most = 0;
        for _ in 0..1000 {
            outbox.answer(charge, 0, |out| out.extend_from_slice(&[7; 80_000]));
            most = most.max(outbox.lock().bytes.capacity() + memory.held());
        }
        assert!(most <= 2 << 20, "{most}");
        let (mut output, mut fired) = (Vec::new(), Vec::new());
        let (order, answered) = outbox.collect(&mut output, &mut fired, Waker::noop());
        assert!(matches!(order, Order::CutOff { answers } if answers > 1 << 20));
        assert_eq!((output.len(), answered.sum(), memory.held()), (0, 1000 * charge.sum(), 0));
        // It is told once; whoever closes it afterwards is heard.
        outbox.order(Order::Close(Error::timed_out()));
        let (order, _) = outbox.collect(&mut output, &mut fired, Waker::noop());
        assert!(matches!(order, Order::Close(_)));
    }

    /// Those who wait for changes are charged with little, and were answered with whatever a commit
    /// had.
    #[test]
    fn what_there_is_no_room_for_is_not_even_built() {
        let memory = Arc::new(Memory::new(1 << 20));
        let outbox = outbox(&memory);
        let charge = Charge::new(50, 64 << 10);
        outbox.answer(charge, 600_000, |out| out.extend_from_slice(&[7; 600_000]));
        outbox.answer(charge, 600_000, |_| panic!("there is no room"));
        let (mut output, mut fired) = (Vec::new(), Vec::new());
        let (order, answered) = outbox.collect(&mut output, &mut fired, Waker::noop());
        assert!(matches!(order, Order::CutOff { answers: 600_000 }));
        assert_eq!((output.len(), answered.sum(), memory.held()), (0, 2 * charge.sum(), 0));
    }

    #[test]
    fn once_the_connection_has_gone_answers_are_not_even_written() {
        let memory = Arc::new(Memory::new(1 << 20));
        let outbox = outbox(&memory);
        let charge = Charge::new(50, 80_000);
        outbox.answer(charge, 0, |out| out.extend_from_slice(&[7; 70_000]));
        let mut under_way = Charge::default();
        (0..3).for_each(|_| under_way += charge);
        outbox.close(under_way);
        assert_eq!(memory.held(), 2 * charge.request, "the two that have yet to be answered");
        outbox.close(Charge::default());
        (0..2).for_each(|_| outbox.answer(charge, 0, |_| panic!("nobody takes it")));
        assert_eq!((memory.held(), outbox.lock().bytes.capacity()), (0, 0));
    }
}
