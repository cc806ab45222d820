//! The future of a point read, and how a batch of them is sent and answered.
//!
//! A read takes the transaction's lock when it is called. When its value is wanted and is not there
//! yet, the batch is taken under the lock and asked for. Where the endpoint calls nobody back
//! meanwhile, what comes at once is noted and taken before the lock is free again, so a lone read
//! of a database in this process locks twice. Else the batch is asked for without the lock.

use super::after::After;
use super::batches::Place;
use super::state::State;
use super::version::Begins;
use super::{Inner, Transaction};
use crate::write_map::Operations;
use bytes::Bytes;
use plinth_env::reply::{Reply, promise};
use plinth_types::{KeyList, KeySpace, Result, Version};
use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker};

fn with_prefix(prefix: &[u8], keys: &KeyList) -> KeyList {
    let mut stored = KeyList::new();
    for key in keys.iter() {
        stored.push(&[prefix, key].concat());
    }
    stored
}

/// Which batch is asked for, and in which try.
#[derive(Clone, Copy)]
struct Asked {
    epoch: u64,
    slot: u32,
    space: KeySpace,
}

/// What an endpoint answers to a batch.
type Answer = Result<Vec<Option<Bytes>>>;

impl Inner {
    /// Sends what was noted.
    pub(super) fn flush(self: &Arc<Self>) {
        let state = self.lock();
        if let Some(slot) = state.batches.open() {
            self.send_batch(state, slot);
        }
    }

    /// Sends a batch, unless it was sent.
    fn send_batch(self: &Arc<Self>, mut state: MutexGuard<'_, State>, slot: u32) {
        let Some((keys, space)) = state.batches.send(slot) else { return };
        let asked = Asked { epoch: state.life.epoch(), slot, space };
        let version = self.settled_version(&state);
        drop(state);
        let mut reply = self.ask(asked, version, &keys);
        match reply.try_take() {
            Some(answer) => self.note_answer(asked, keys, answer),
            None => self.note_when_answered(asked, keys, reply),
        }
    }

    /// The version that point reads can be sent at, now.
    #[inline]
    fn settled_version(&self, state: &State) -> Option<Version> {
        state.version.known().filter(|_| self.tenant_known().is_none())
    }

    /// Whether point reads can be sent while the lock is held: nobody is called back, and nothing
    /// is looked up under the lock to send them.
    #[inline]
    fn asks_under_lock(&self) -> bool {
        !self.reads_apart() && !self.endpoint().get_many_calls_back()
    }

    /// Asks for a batch's keys.
    #[inline]
    fn ask(
        self: &Arc<Self>,
        asked: Asked,
        version: Option<Version>,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        match version {
            Some(version) => self.ask_at(version, asked.space, keys),
            None => self.ask_slowly(asked, keys),
        }
    }

    /// The same behind the read version, and behind a tenant's prefix.
    fn ask_slowly(self: &Arc<Self>, asked: Asked, keys: &KeyList) -> Reply<Vec<Option<Bytes>>> {
        let mut version = match self.begin_reading(asked.epoch, asked.space, keys) {
            Begins::Reading(values) => return values,
            Begins::At(version) => version,
        };
        match version.try_take() {
            Some(Ok(version)) => self.ask_at(version, asked.space, keys),
            Some(Err(error)) => Reply::ready(Err(error)),
            None => {
                let (promise, reply) = promise();
                let (inner, keys) = (self.clone(), keys.clone());
                version.on_complete(move |version| match version {
                    Ok(version) => inner
                        .ask_at(version, asked.space, &keys)
                        .on_complete(move |answer| promise.send(answer)),
                    Err(error) => promise.send(Err(error)),
                });
                reply
            }
        }
    }

    pub(super) fn ask_at(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        self.reading().get_many(version, space, &self.stored(keys))
    }

    /// The keys as the endpoint has them.
    #[inline]
    pub(super) fn stored<'a>(&self, keys: &'a KeyList) -> Cow<'a, KeyList> {
        match self.has_tenant() {
            true => Cow::Owned(with_prefix(self.prefix(), keys)),
            false => Cow::Borrowed(keys),
        }
    }

    fn note_answer(&self, asked: Asked, keys: KeyList, answer: Answer) {
        self.with(|state, after| state.note_answer(asked, keys, answer, after));
    }

    #[cold]
    fn note_when_answered(
        self: &Arc<Self>,
        asked: Asked,
        keys: KeyList,
        reply: Reply<Vec<Option<Bytes>>>,
    ) {
        let inner = self.clone();
        reply.on_complete(move |answer| inner.note_answer(asked, keys, answer));
    }

    /// The value of a read, if it is there. Sends the read if it has not been sent; has `waker`
    /// woken by a value that is not there yet.
    #[inline]
    fn value(
        self: &Arc<Self>,
        place: Place,
        waker: Option<&Waker>,
    ) -> Option<Result<Option<Bytes>>> {
        let mut state = self.lock();
        let value = state.batches.take(place);
        if value.is_some() {
            return value;
        }
        self.send_for_value(state, place, waker)
    }

    /// The same for a value that is not there yet.
    fn send_for_value<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
        place: Place,
        waker: Option<&Waker>,
    ) -> Option<Result<Option<Bytes>>> {
        let slot = place.slot();
        let Some((keys, space)) = state.batches.send(slot) else {
            return self.wait_for_value(state, place, waker);
        };
        let asked = Asked { epoch: state.life.epoch(), slot, space };
        let version = self.settled_version(&state);
        let (mut state, mut reply) = match version.filter(|_| self.asks_under_lock()) {
            Some(version) => {
                let reply = self.ask_at(version, space, &keys);
                (Some(state), reply)
            }
            None => {
                drop(state);
                (None, self.ask(asked, version, &keys))
            }
        };
        let Some(answer) = reply.try_take() else {
            drop(state);
            self.note_when_answered(asked, keys, reply);
            return self.take_or_wait(place, waker);
        };
        let mut after = After::default();
        let mut state = state.take().unwrap_or_else(|| self.lock());
        state.note_answer(asked, keys, answer, &mut after);
        let value = state.batches.take(place);
        drop(state);
        after.run();
        // There is one: the answer is noted, or the epoch is over and has failed the read.
        value
    }

    /// The value of a read that was sent, if it has come meanwhile.
    #[cold]
    fn take_or_wait(&self, place: Place, waker: Option<&Waker>) -> Option<Result<Option<Bytes>>> {
        let mut state = self.lock();
        let value = state.batches.take(place);
        if value.is_some() {
            return value;
        }
        self.wait_for_value(state, place, waker)
    }

    /// Has `waker` woken once a value is there.
    fn wait_for_value(
        &self,
        mut state: MutexGuard<'_, State>,
        place: Place,
        waker: Option<&Waker>,
    ) -> Option<Result<Option<Bytes>>> {
        let earlier = waker.and_then(|waker| state.batches.wake(place, waker));
        // Dropping a waker may run anything: not under the lock.
        drop(state);
        drop(earlier);
        None
    }
}

impl State {
    /// Notes a point read of the database.
    #[inline]
    pub(super) fn push_get(&mut self, key: &[u8], conflict: bool) -> Place {
        self.reads.touch();
        self.reads.begin();
        let is_system = self.options.may_read_system_keys()
            || (key.first() == Some(&0xff) && self.options.may_read(key));
        self.batches.push(key, conflict, is_system)
    }

    /// Notes the answer to a batch, unless its epoch is over.
    #[inline]
    fn note_answer(&mut self, asked: Asked, keys: KeyList, answer: Answer, after: &mut After) {
        if self.life.is_in(asked.epoch) {
            self.batches.answer(asked.slot, keys, answer, &mut self.reads, after);
        }
    }
}

/// The value of a key, once it is there: the result of [`Transaction::get`].
///
/// A future; [`wait`](Get::wait) blocks the thread instead. Dropping it before the value is there
/// takes the read back.
#[must_use = "dropping it takes the read back"]
pub struct Get {
    state: GetState,
}

enum GetState {
    Ready(Result<Option<Bytes>>),
    Batched {
        inner: Arc<Inner>,
        place: Place,
        /// Whether the read version was known when the read was noted.
        settled: bool,
        operations: Option<Box<Operations>>,
    },
    Reply(plinth_env::reply::Reply<Option<Bytes>>),
    Taken,
}

impl Get {
    pub(super) fn ready(result: Result<Option<Bytes>>) -> Self {
        Self { state: GetState::Ready(result) }
    }

    pub(super) fn reply(reply: Reply<Option<Bytes>>) -> Self {
        Self { state: GetState::Reply(reply) }
    }

    #[inline]
    pub(super) fn batched(
        inner: Arc<Inner>,
        place: Place,
        settled: bool,
        operations: Option<Box<Operations>>,
    ) -> Self {
        Self { state: GetState::Batched { inner, place, settled, operations } }
    }

    /// Whether the read finds the same whenever it is sent, and has not been sent on its own: its
    /// transaction's version was known when it was asked for. Such reads may wait for others, to go
    /// together.
    pub fn is_settled(&self) -> bool {
        matches!(self.state, GetState::Batched { settled: true, .. })
    }

    /// Whether the value is there. Sends the read if it has not been sent.
    pub fn is_ready(&self) -> bool {
        match &self.state {
            GetState::Ready(_) | GetState::Taken => true,
            GetState::Reply(reply) => reply.is_ready(),
            GetState::Batched { inner, place, .. } => {
                inner.send_batch(inner.lock(), place.slot());
                inner.lock().batches.is_answered(*place)
            }
        }
    }

    /// Parks the thread until the value is there.
    ///
    /// # Errors
    /// Those of the read.
    pub fn wait(mut self) -> Result<Option<Bytes>> {
        if let Some(result) = self.try_take() {
            return result;
        }
        match std::mem::replace(&mut self.state, GetState::Taken) {
            GetState::Reply(reply) => reply.wait(),
            state => {
                let (promise, reply) = promise();
                Self { state }.on_complete(move |result| promise.send(result));
                reply.wait()
            }
        }
    }

    /// Calls `f` with the value: now if it is there, else on the thread that brings it.
    pub fn on_complete(mut self, f: impl FnOnce(Result<Option<Bytes>>) + Send + 'static) {
        if let Some(result) = self.try_take() {
            return f(result);
        }
        match std::mem::replace(&mut self.state, GetState::Taken) {
            GetState::Reply(reply) => reply.on_complete(f),
            GetState::Batched { inner, place, operations, .. } => {
                let mut state = inner.lock();
                let callback = move |value: Result<Option<Bytes>>| f(overlay(value, operations));
                if let Some(value) = state.batches.take(place) {
                    drop(state);
                    callback(value);
                } else {
                    state.batches.call_back(place, callback);
                }
            }
            GetState::Ready(_) | GetState::Taken => {}
        }
    }

    /// The value if it is there. Sends the read if it has not been sent. Gives the value once.
    pub fn try_take(&mut self) -> Option<Result<Option<Bytes>>> {
        self.take(None)
    }

    /// The same; a value that is not there yet wakes `waker`.
    fn take(&mut self, waker: Option<&Waker>) -> Option<Result<Option<Bytes>>> {
        match &mut self.state {
            GetState::Batched { inner, place, .. } => {
                let value = inner.value(*place, waker)?;
                Some(self.finish(value))
            }
            GetState::Reply(reply) => reply.try_take(),
            GetState::Ready(_) => match std::mem::replace(&mut self.state, GetState::Taken) {
                GetState::Ready(result) => Some(result),
                _ => None,
            },
            GetState::Taken => None,
        }
    }

    fn finish(&mut self, value: Result<Option<Bytes>>) -> Result<Option<Bytes>> {
        match std::mem::replace(&mut self.state, GetState::Taken) {
            GetState::Batched { operations, .. } => overlay(value, operations),
            _ => value,
        }
    }
}

/// What the transaction's own atomic operations make of a value that was read.
fn overlay(
    value: Result<Option<Bytes>>,
    operations: Option<Box<Operations>>,
) -> Result<Option<Bytes>> {
    match operations {
        None => value,
        Some(operations) => value.and_then(|value| operations.apply(value)),
    }
}

impl Future for Get {
    type Output = Result<Option<Bytes>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let GetState::Reply(reply) = &mut self.state {
            return Pin::new(reply).poll(context);
        }
        if matches!(self.state, GetState::Taken) {
            return Poll::Ready(Err(plinth_types::Error::future_released()));
        }
        self.take(Some(context.waker())).map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Get {
    fn drop(&mut self) {
        if let GetState::Batched { inner, place, .. } = &self.state {
            // Dropped once the lock is free: dropping a waker may run anything.
            let waker = inner.lock().batches.give_up(*place);
            drop(waker);
        }
    }
}

impl std::fmt::Debug for Get {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Get").field("ready", &matches!(self.state, GetState::Ready(_))).finish()
    }
}

impl Transaction {
    /// Sends the reads that were noted and not sent, so that they are on their way before anybody
    /// awaits them.
    pub fn flush(&self) {
        self.inner.flush();
    }
}
