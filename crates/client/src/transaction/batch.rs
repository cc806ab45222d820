//! Point reads that travel together, and the future of one of them.
//!
//! A `get` only notes its key in the transaction's open batch. The batch goes to the endpoint, in
//! one request, when the first of its futures is polled (or asked whether it is ready, or waited
//! for), or at commit. Its answer serves all of them: each future has nothing but the batch's
//! number and its position there, so that a read costs no allocation of its own.
//!
//! ```text
//!   open ──first poll──▶ waits for the read version ──▶ sent ──▶ done: values, each taken once
//! ```

use super::state::{After, State};
use super::{Inner, Transaction};
use crate::write_map::Operations;
use bytes::Bytes;
use plinth_types::{Error, KeyList, KeySpace, Result, Version};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The batches whose values have not all been taken.
#[derive(Default)]
pub(crate) struct Batches {
    slots: Vec<Batch>,
    /// The batch that takes further keys.
    open: Option<u32>,
}

/// Several point reads.
#[derive(Default)]
struct Batch {
    /// Relative to the tenant.
    keys: KeyList,
    /// For each key, whether the read adds a conflict range; futures dropped early take theirs
    /// back.
    conflicts: Vec<bool>,
    phase: Phase,
    space_system: bool,
    /// How many futures will still come for their value.
    owners: u32,
    wakers: Vec<(u32, Waker)>,
    callbacks: Vec<(u32, Callback)>,
}

type Callback = Box<dyn FnOnce(Result<Option<Bytes>>) + Send>;

#[derive(Default)]
enum Phase {
    #[default]
    Free,
    Open,
    /// On its way, or waiting for the read version.
    Sent,
    Done(Vec<Option<Bytes>>),
    Failed(Error),
}

impl Batches {
    /// Notes a key; gives batch and position.
    #[inline]
    fn push(&mut self, key: &[u8], conflict: bool, system: bool) -> (u32, u32) {
        let slot = match self.open {
            Some(slot) if self.slots[slot as usize].space_system == system => slot,
            _ => self.open_batch(system),
        };
        let batch = &mut self.slots[slot as usize];
        let position = batch.keys.push(key);
        batch.conflicts.push(conflict);
        batch.owners += 1;
        (slot, position as u32)
    }

    fn open_batch(&mut self, system: bool) -> u32 {
        let free = self.slots.iter().position(|batch| matches!(batch.phase, Phase::Free));
        let slot = free.unwrap_or_else(|| {
            self.slots.push(Batch::default());
            self.slots.len() - 1
        });
        let batch = &mut self.slots[slot];
        batch.phase = Phase::Open;
        batch.space_system = system;
        self.open = Some(slot as u32);
        slot as u32
    }

    /// Whether no read is in the way of another transaction's, and the buffers are not too large.
    pub(super) fn is_reusable(&self) -> bool {
        self.slots.len() <= 4
            && self.open.is_none()
            && self.slots.iter().all(|batch| matches!(batch.phase, Phase::Free))
    }

    /// Ends all reads without an answer.
    pub(crate) fn fail_all(&mut self, error: &Error, after: &mut After) {
        self.open = None;
        for batch in &mut self.slots {
            if matches!(batch.phase, Phase::Open | Phase::Sent) {
                batch.finish(Phase::Failed(error.clone()), after);
            }
        }
    }
}

impl Batch {
    fn finish(&mut self, phase: Phase, after: &mut After) {
        self.phase = phase;
        self.keys.clear();
        self.conflicts.clear();
        for (_, waker) in self.wakers.drain(..) {
            after.wake(waker);
        }
        for (position, callback) in std::mem::take(&mut self.callbacks) {
            if let Some(result) = self.take(position) {
                after.call(move || callback(result));
            }
        }
        self.free_if_done();
    }

    fn take(&mut self, position: u32) -> Option<Result<Option<Bytes>>> {
        let result = match &mut self.phase {
            Phase::Done(values) => Ok(values.get_mut(position as usize).and_then(Option::take)),
            Phase::Failed(error) => Err(error.clone()),
            Phase::Free | Phase::Open | Phase::Sent => return None,
        };
        self.owners -= 1;
        Some(result)
    }

    fn free_if_done(&mut self) {
        if self.owners == 0 && matches!(self.phase, Phase::Done(_) | Phase::Failed(_)) {
            self.phase = Phase::Free;
        }
    }
}

impl State {
    /// Notes a point read of the database.
    #[inline]
    pub(crate) fn push_get(&mut self, key: &[u8], conflict: bool) -> (u32, u32) {
        self.reads.any = true;
        self.reads.pending += 1;
        self.batches.push(key, conflict, self.options.may_read_system_keys())
    }
}

/// The keys as the endpoint has them.
fn with_prefix(prefix: &[u8], keys: &KeyList) -> KeyList {
    let mut stored = KeyList::new();
    for key in keys.iter() {
        stored.push(&[prefix, key].concat());
    }
    stored
}

impl Inner {
    /// Sends what was noted.
    pub(crate) fn flush(self: &Arc<Self>) {
        let slot = self.lock().batches.open;
        if let Some(slot) = slot {
            self.send_batch(slot);
        }
    }

    fn send_batch(self: &Arc<Self>, slot: u32) {
        let mut state = self.lock();
        let version = state.version.known().filter(|_| self.tenant_known().is_none());
        let epoch = state.life.epoch;
        let batch = &mut state.batches.slots[slot as usize];
        if !matches!(batch.phase, Phase::Open) {
            return;
        }
        batch.phase = Phase::Sent;
        let keys = std::mem::take(&mut batch.keys);
        let space = if batch.space_system { KeySpace::System } else { KeySpace::Normal };
        state.batches.open = None;
        drop(state);
        if let Some(version) = version {
            return self.ask(epoch, slot, version, space, keys);
        }
        let mut reply = self.read_version(epoch, false);
        match reply.try_take() {
            Some(Ok(version)) => self.ask(epoch, slot, version, space, keys),
            Some(Err(error)) => self.answer(epoch, slot, keys, Err(error)),
            None => {
                let inner = self.clone();
                reply.on_complete(move |version| match version {
                    Ok(version) => inner.ask(epoch, slot, version, space, keys),
                    Err(error) => inner.answer(epoch, slot, keys, Err(error)),
                });
            }
        }
    }

    fn ask(
        self: &Arc<Self>,
        epoch: u64,
        slot: u32,
        version: Version,
        space: KeySpace,
        keys: KeyList,
    ) {
        let mut reply = if self.has_tenant() {
            self.reading().get_many(version, space, &with_prefix(self.prefix(), &keys))
        } else {
            self.reading().get_many(version, space, &keys)
        };
        if let Some(result) = reply.try_take() {
            return self.answer(epoch, slot, keys, result);
        }
        let inner = self.clone();
        reply.on_complete(move |result| inner.answer(epoch, slot, keys, result));
    }

    fn answer(&self, epoch: u64, slot: u32, keys: KeyList, result: Result<Vec<Option<Bytes>>>) {
        let mut after = After::default();
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.life.epoch != epoch
            || !matches!(state.batches.slots[slot as usize].phase, Phase::Sent)
        {
            return;
        }
        let batch = &mut state.batches.slots[slot as usize];
        let count = batch.conflicts.len();
        let error = match result {
            Ok(values) if values.len() == count => {
                for (key, conflict) in keys.iter().zip(&batch.conflicts) {
                    if *conflict {
                        state.reads.conflicts.push_single(key);
                        state.writes.size +=
                            2 * key.len() as i64 + 1 + super::writes::RANGE_OVERHEAD;
                    }
                }
                state.reads.cost += values
                    .iter()
                    .zip(keys.iter())
                    .map(|(value, key)| {
                        super::read_cost(key.len() + value.as_ref().map_or(0, Bytes::len))
                    })
                    .sum::<i64>();
                batch.keys = keys;
                batch.finish(Phase::Done(values), &mut after);
                None
            }
            Ok(values) => Some(Error::internal_error().with_detail(format!(
                "{count} keys were asked for and {} values came",
                values.len()
            ))),
            Err(error) => Some(error),
        };
        if let Some(error) = &error {
            state.batches.slots[slot as usize].finish(Phase::Failed(error.clone()), &mut after);
        }
        state.read_finished(count, error.as_ref(), &mut after);
        drop(guard);
        after.run();
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
        slot: u32,
        position: u32,
        /// Whether the read version was known when the read was noted.
        settled: bool,
        operations: Option<Box<Operations>>,
    },
    Reply(plinth_env::reply::Reply<Option<Bytes>>),
    Taken,
}

impl Get {
    pub(crate) fn ready(result: Result<Option<Bytes>>) -> Self {
        Self { state: GetState::Ready(result) }
    }

    pub(crate) fn reply(reply: plinth_env::reply::Reply<Option<Bytes>>) -> Self {
        Self { state: GetState::Reply(reply) }
    }

    #[inline]
    pub(crate) fn batched(
        inner: Arc<Inner>,
        (slot, position): (u32, u32),
        settled: bool,
        operations: Option<Box<Operations>>,
    ) -> Self {
        Self { state: GetState::Batched { inner, slot, position, settled, operations } }
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
            GetState::Batched { inner, slot, .. } => {
                inner.send_batch(*slot);
                let state = inner.lock();
                matches!(
                    state.batches.slots[*slot as usize].phase,
                    Phase::Done(_) | Phase::Failed(_)
                )
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
                let (promise, reply) = plinth_env::reply::promise();
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
            GetState::Batched { inner, slot, position, operations, .. } => {
                let mut state = inner.lock();
                let batch = &mut state.batches.slots[slot as usize];
                let callback = move |value: Result<Option<Bytes>>| f(overlay(value, operations));
                if let Some(value) = batch.take(position) {
                    batch.free_if_done();
                    drop(state);
                    callback(value);
                } else {
                    batch.callbacks.push((position, Box::new(callback)));
                }
            }
            GetState::Ready(_) | GetState::Taken => {}
        }
    }

    /// The value if it is there. Sends the read if it has not been sent. Gives the value once.
    pub fn try_take(&mut self) -> Option<Result<Option<Bytes>>> {
        match &mut self.state {
            GetState::Batched { inner, slot, position, .. } => {
                let mut value = inner.take_value(*slot, *position, None);
                if value.is_none() {
                    inner.send_batch(*slot);
                    value = inner.take_value(*slot, *position, None);
                }
                let value = value?;
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

impl Inner {
    fn take_value(
        &self,
        slot: u32,
        position: u32,
        waker: Option<&Waker>,
    ) -> Option<Result<Option<Bytes>>> {
        // Dropped last, once the lock is free: dropping a waker may run anything.
        let _old_waker;
        let mut state = self.lock();
        let batch = &mut state.batches.slots[slot as usize];
        let value = batch.take(position);
        if value.is_some() {
            batch.free_if_done();
        } else if let Some(waker) = waker {
            match batch.wakers.iter_mut().find(|(at, _)| *at == position) {
                Some((_, known)) => _old_waker = std::mem::replace(known, waker.clone()),
                None => batch.wakers.push((position, waker.clone())),
            }
        }
        value
    }
}

impl Future for Get {
    type Output = Result<Option<Bytes>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let GetState::Reply(reply) = &mut self.state {
            return Pin::new(reply).poll(context);
        }
        if let Some(result) = self.try_take() {
            return Poll::Ready(result);
        }
        match &self.state {
            GetState::Batched { inner, slot, position, .. } => {
                match inner.take_value(*slot, *position, Some(context.waker())) {
                    None => Poll::Pending,
                    Some(value) => Poll::Ready(self.finish(value)),
                }
            }
            _ => Poll::Ready(Err(Error::future_released())),
        }
    }
}

impl Drop for Get {
    fn drop(&mut self) {
        let GetState::Batched { inner, slot, position, .. } = &self.state else { return };
        // Dropped last, once the lock is free: dropping a waker may run anything.
        let _old_waker;
        let mut state = inner.lock();
        let batch = &mut state.batches.slots[*slot as usize];
        if let Some(conflict) = batch.conflicts.get_mut(*position as usize) {
            *conflict = false;
        }
        if let Some(at) = batch.wakers.iter().position(|(at, _)| at == position) {
            _old_waker = batch.wakers.swap_remove(at);
        }
        batch.owners -= 1;
        batch.free_if_done();
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
