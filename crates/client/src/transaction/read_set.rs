//! The read set: which ranges the transaction depends on, and which of its reads have no answer.
//!
//! A range counts as read only where its result depended on the database: what own writes decide
//! alone (keys set, keys cleared) nobody else can change. Own writes are those at the time of the
//! call.
//!
//! Commit waits for the reads that are under way, since what they find belongs to what conflicts,
//! and fails with the first error of one.

use super::after::After;
use super::size::{RANGE_OVERHEAD, key_range_size, read_cost};
use crate::write_map::{Edge, WriteMap};
use bytes::Bytes;
use plinth_env::reply::{Promise, Reply, promise};
use plinth_types::{Error, RangeList};

/// What was read.
#[derive(Default)]
pub(super) struct ReadSet {
    /// The read conflict ranges so far.
    conflicts: RangeList,
    /// The first error of a read: commit fails with it.
    failed: Option<Error>,
    /// Whether anything was read from the database.
    any: bool,
    /// How many reads have no answer yet.
    pending: usize,
    /// Tells commit that none is pending.
    drained: Option<Promise<()>>,
    /// What the conflict ranges add to the transaction's size.
    size: i64,
    /// What all reads together cost.
    cost: i64,
}

impl ReadSet {
    /// Begins with the buffer of another transaction.
    pub(super) fn use_buffer(&mut self, buffer: RangeList) {
        self.conflicts = buffer;
    }

    /// How many bytes its buffer has.
    pub(super) fn buffer_len(&self) -> usize {
        self.conflicts.as_bytes().len()
    }

    /// Gives its buffer away, emptied.
    pub(super) fn take_buffer(&mut self) -> RangeList {
        self.conflicts.clear();
        std::mem::take(&mut self.conflicts)
    }

    /// Notes that something is read from the database.
    pub(super) fn touch(&mut self) {
        self.any = true;
    }

    /// Whether anything was read from the database.
    pub(super) fn is_used(&self) -> bool {
        self.any
    }

    /// Notes that a read was sent, or will be.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.pending += 1;
    }

    /// Notes that so many reads have their answer.
    pub(super) fn finish(&mut self, count: usize, error: Option<&Error>, after: &mut After) {
        if let Some(error) = error {
            self.fail(error);
        }
        self.pending = self.pending.saturating_sub(count);
        if self.pending == 0
            && let Some(promise) = self.drained.take()
        {
            after.reply(promise, Ok(()));
        }
    }

    /// Notes that a read has failed.
    pub(super) fn fail(&mut self, error: &Error) {
        self.failed.get_or_insert_with(|| error.clone());
    }

    /// The first error of a read.
    pub(super) fn failure(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// Whether commit has nothing to wait for, and nothing to fail with.
    pub(super) fn is_settled(&self) -> bool {
        self.pending == 0 && self.failed.is_none()
    }

    /// Ready once every read has its answer; `None` if all have.
    pub(super) fn drained(&mut self) -> Option<Reply<()>> {
        if self.pending == 0 {
            return None;
        }
        let (promise, reply) = promise();
        self.drained = Some(promise);
        Some(reply)
    }

    /// Expects no answer any more: those who read have been told otherwise.
    pub(super) fn abandon(&mut self, after: &mut After) {
        self.pending = 0;
        if let Some(promise) = self.drained.take() {
            // Dropping it wakes the commit that waits for the reads, which takes the lock.
            after.drop_later(promise);
        }
    }

    /// The read conflict ranges so far.
    pub(super) fn conflicts(&self) -> &RangeList {
        &self.conflicts
    }

    /// Depends on a key, which no own write decides.
    #[inline]
    pub(super) fn add_key(&mut self, key: &[u8]) {
        self.conflicts.push_single(key);
        self.size += key_range_size(key);
    }

    /// Depends on a range as of the writes in `map`; on all of it without a map.
    pub(super) fn add(&mut self, map: Option<&WriteMap>, begin: &[u8], end: &[u8]) {
        if begin >= end {
            return;
        }
        let size = (begin.len() + end.len()) as i64 + RANGE_OVERHEAD;
        let Some(map) = map else {
            self.size += size;
            return self.conflicts.push(begin, end);
        };
        for segment in map.segments(begin, end).filter(|segment| segment.depends_on_database()) {
            let from = segment.begin;
            let low = if from.cmp_key(begin).is_le() {
                Bytes::copy_from_slice(begin)
            } else {
                from.to_key()
            };
            let high = segment.end.filter(|edge| edge.cmp_key(end).is_lt()).map(Edge::to_key);
            let high = high.as_deref().unwrap_or(end);
            if low[..] < *high {
                self.size += size;
                self.conflicts.push(&low, high);
            }
        }
    }

    /// Depends on a range without its counting towards the transaction's size.
    pub(super) fn add_uncounted(&mut self, begin: &[u8], end: &[u8]) {
        self.conflicts.push(begin, end);
    }

    pub(super) fn size(&self) -> i64 {
        self.size
    }

    /// Notes that so many bytes were read.
    pub(super) fn add_cost(&mut self, bytes: usize) {
        self.cost += read_cost(bytes);
    }

    pub(super) fn cost(&self) -> i64 {
        self.cost
    }

    /// Forgets everything but the buffer.
    pub(super) fn clear(&mut self) {
        let conflicts = self.take_buffer();
        *self = Self { conflicts, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_types::{MutationList, MutationType};

    fn ranges(set: &ReadSet) -> Vec<(String, String)> {
        let text = |key: &[u8]| String::from_utf8_lossy(key).replace('\0', "0");
        set.conflicts().iter().map(|range| (text(range.begin), text(&range.end_key()))).collect()
    }

    #[test]
    fn own_writes_leave_out_what_they_decide() {
        let mut mutations = MutationList::new();
        mutations.push(MutationType::ClearRange, b"c", b"f");
        mutations.push(MutationType::Add, b"h", b"1");
        let mut map = WriteMap::new();
        map.fold(&mutations, &[], 0);
        let mut set = ReadSet::default();
        set.add(Some(&map), b"a", b"i");
        let expected = [("a", "c"), ("f", "h"), ("h", "h0"), ("h0", "i")];
        assert_eq!(ranges(&set), expected.map(|(begin, end)| (begin.into(), end.into())));
        set.add(Some(&map), b"c", b"e");
        set.add(None, b"z", b"z");
        assert_eq!(set.conflicts().len(), expected.len());
        set.clear();
        assert_eq!((set.conflicts().len(), set.size()), (0, 0));
    }

    #[test]
    fn commit_waits_for_the_last_read_and_hears_of_the_first_error() {
        let (mut set, mut after) = (ReadSet::default(), After::default());
        assert!(set.is_settled() && set.drained().is_none());
        set.begin();
        set.begin();
        let mut drained = set.drained().unwrap();
        set.finish(1, Some(&Error::transaction_too_old()), &mut after);
        assert!(!drained.is_ready());
        set.finish(1, Some(&Error::future_version()), &mut after);
        after.run();
        assert_eq!(drained.try_take(), Some(Ok(())));
        assert_eq!(set.failure(), Some(&Error::transaction_too_old()));
        assert!(!set.is_settled());
    }

    #[test]
    fn sizes_count_keys_and_ranges_alike() {
        let mut set = ReadSet::default();
        set.add_key(b"key");
        let of_key = set.size();
        set.add(None, b"key", b"key\0");
        assert_eq!(set.size(), 2 * of_key);
        set.add_uncounted(b"a", b"b");
        assert_eq!((set.size(), set.conflicts().len()), (2 * of_key, 3));
    }
}
