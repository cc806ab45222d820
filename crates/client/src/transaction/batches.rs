//! Point reads that travel together.
//!
//! A read only notes its key in the open batch. The batch goes to the endpoint in one request when
//! somebody wants one of its values, or at commit; its answer serves all of them. Each read has
//! nothing but the batch's number and its position there, so that it costs no allocation of its
//! own.
//!
//! ```text
//!   free ──▶ open ──somebody wants a value──▶ sent ──▶ done, failed: each result taken once ──▶ free
//! ```

use super::after::After;
use super::read_set::ReadSet;
use bytes::Bytes;
use plinth_types::{Error, KeyList, KeySpace, Result};
use std::task::Waker;

/// The batches whose values have not all been taken.
#[derive(Default)]
pub(super) struct Batches {
    slots: Vec<Batch>,
    /// The batch that takes further keys.
    open: Option<u32>,
}

/// A read's batch, and its position in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    slot: u32,
    position: u32,
}

impl Place {
    pub(super) fn slot(self) -> u32 {
        self.slot
    }
}

/// Several point reads.
#[derive(Default)]
struct Batch {
    /// Relative to the tenant.
    keys: KeyList,
    /// For each key, whether the read adds a conflict range; reads given up early take theirs back.
    conflicts: Vec<bool>,
    phase: Phase,
    space_system: bool,
    /// How many reads will still come for their value.
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
    /// Notes a key.
    #[inline]
    pub(super) fn push(&mut self, key: &[u8], conflict: bool, system: bool) -> Place {
        let slot = match self.open {
            Some(slot) if self.slots[slot as usize].space_system == system => slot,
            _ => self.open_batch(system),
        };
        let batch = &mut self.slots[slot as usize];
        let position = batch.keys.push(key) as u32;
        batch.conflicts.push(conflict);
        batch.owners += 1;
        Place { slot, position }
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

    /// The batch that takes further keys, if any read waits to be sent.
    pub(super) fn open(&self) -> Option<u32> {
        self.open
    }

    /// The keys of a batch, for the caller to ask for; `None` if they have been asked for.
    #[inline]
    pub(super) fn send(&mut self, slot: u32) -> Option<(KeyList, KeySpace)> {
        let batch = &mut self.slots[slot as usize];
        if !matches!(batch.phase, Phase::Open) {
            return None;
        }
        batch.phase = Phase::Sent;
        let space = if batch.space_system { KeySpace::System } else { KeySpace::Normal };
        let keys = std::mem::take(&mut batch.keys);
        self.open = None;
        Some((keys, space))
    }

    /// Notes the answer for keys that [`Batches::send`] gave, and what it means for the read set.
    pub(super) fn answer(
        &mut self,
        slot: u32,
        keys: KeyList,
        result: Result<Vec<Option<Bytes>>>,
        reads: &mut ReadSet,
        after: &mut After,
    ) {
        let batch = &mut self.slots[slot as usize];
        if !matches!(batch.phase, Phase::Sent) {
            return;
        }
        let count = batch.conflicts.len();
        let error = match result {
            Ok(values) if values.len() == count => {
                for ((key, value), conflict) in keys.iter().zip(&values).zip(&batch.conflicts) {
                    if *conflict {
                        reads.add_key(key);
                    }
                    reads.add_cost(key.len() + value.as_ref().map_or(0, Bytes::len));
                }
                batch.keys = keys;
                batch.finish(Phase::Done(values), after);
                None
            }
            Ok(values) => Some(Error::internal_error().with_detail(format!(
                "{count} keys were asked for and {} values came",
                values.len()
            ))),
            Err(error) => Some(error),
        };
        if let Some(error) = &error {
            batch.finish(Phase::Failed(error.clone()), after);
        }
        reads.finish(count, error.as_ref(), after);
    }

    /// The result of a read, if it is there; once.
    #[inline]
    pub(super) fn take(&mut self, at: Place) -> Option<Result<Option<Bytes>>> {
        let batch = &mut self.slots[at.slot as usize];
        let result = batch.take(at.position)?;
        batch.free_if_done();
        Some(result)
    }

    /// Whether the result of a read is there.
    pub(super) fn is_answered(&self, at: Place) -> bool {
        matches!(self.slots[at.slot as usize].phase, Phase::Done(_) | Phase::Failed(_))
    }

    /// Has `waker` woken once the result is there; gives the waker that it replaces, to be dropped
    /// without the lock.
    pub(super) fn wake(&mut self, at: Place, waker: &Waker) -> Option<Waker> {
        let wakers = &mut self.slots[at.slot as usize].wakers;
        match wakers.iter_mut().find(|(position, _)| *position == at.position) {
            Some((_, known)) => Some(std::mem::replace(known, waker.clone())),
            None => {
                wakers.push((at.position, waker.clone()));
                None
            }
        }
    }

    /// Has `f` called with the result once it is there.
    pub(super) fn call_back(
        &mut self,
        at: Place,
        f: impl FnOnce(Result<Option<Bytes>>) + Send + 'static,
    ) {
        self.slots[at.slot as usize].callbacks.push((at.position, Box::new(f)));
    }

    /// Nobody will come for a result. Gives the waker to be dropped without the lock.
    pub(super) fn give_up(&mut self, at: Place) -> Option<Waker> {
        let batch = &mut self.slots[at.slot as usize];
        if let Some(conflict) = batch.conflicts.get_mut(at.position as usize) {
            *conflict = false;
        }
        let waker = batch.wakers.iter().position(|(position, _)| *position == at.position);
        let waker = waker.map(|found| batch.wakers.swap_remove(found).1);
        batch.owners -= 1;
        batch.free_if_done();
        waker
    }

    /// Whether no read is in the way of another transaction's, and the buffers are not too large.
    pub(super) fn is_reusable(&self) -> bool {
        self.slots.len() <= 4
            && self.open.is_none()
            && self.slots.iter().all(|batch| matches!(batch.phase, Phase::Free))
    }

    /// Ends all reads without an answer.
    pub(super) fn fail_all(&mut self, error: &Error, after: &mut After) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn values(of: &[&'static [u8]]) -> Result<Vec<Option<Bytes>>> {
        Ok(of.iter().map(|value| Some(Bytes::from_static(value))).collect())
    }

    #[test]
    fn reads_travel_together_and_each_takes_its_value_once() {
        let (mut batches, mut reads) = (Batches::default(), ReadSet::default());
        let mut after = After::default();
        let places = [b"a", b"b"].map(|key| {
            reads.begin();
            batches.push(key, key == b"a", false)
        });
        let slot = batches.open().unwrap();
        let (keys, space) = batches.send(slot).unwrap();
        assert_eq!((keys.len(), space), (2, KeySpace::Normal));
        assert!(batches.send(slot).is_none() && batches.take(places[0]).is_none());
        batches.answer(slot, keys, values(&[b"1", b"2"]), &mut reads, &mut after);
        after.run();
        assert_eq!(batches.take(places[1]), Some(Ok(Some(Bytes::from_static(b"2")))));
        assert!(!batches.is_reusable());
        assert_eq!(batches.take(places[0]), Some(Ok(Some(Bytes::from_static(b"1")))));
        assert!(batches.is_reusable() && reads.is_settled());
        assert_eq!(reads.conflicts().len(), 1);
    }

    #[test]
    fn a_read_given_up_before_its_answer_adds_no_conflict() {
        let (mut batches, mut reads) = (Batches::default(), ReadSet::default());
        let mut after = After::default();
        reads.begin();
        let place = batches.push(b"a", true, false);
        let (keys, _) = batches.send(place.slot()).unwrap();
        drop(batches.give_up(place));
        batches.answer(place.slot(), keys, values(&[b"1"]), &mut reads, &mut after);
        assert!(batches.is_reusable() && reads.is_settled() && reads.conflicts().is_empty());
    }

    #[test]
    fn an_answer_of_another_length_fails_all_and_so_does_the_end() {
        let (mut batches, mut reads) = (Batches::default(), ReadSet::default());
        let mut after = After::default();
        reads.begin();
        let short = batches.push(b"a", true, false);
        let (keys, _) = batches.send(short.slot()).unwrap();
        batches.answer(short.slot(), keys, values(&[]), &mut reads, &mut after);
        assert_eq!(batches.take(short).unwrap().unwrap_err(), Error::internal_error());
        assert_eq!(reads.failure(), Some(&Error::internal_error()), "its commit fails");
        let open = batches.push(b"a", true, true);
        batches.fail_all(&Error::transaction_cancelled(), &mut after);
        assert_eq!(batches.take(open), Some(Err(Error::transaction_cancelled())));
        assert!(batches.is_reusable());
    }
}
