//! The write set: mutations, write conflict ranges, and what own writes say about a key.
//!
//! A write appends to the list of mutations and to the list of write conflict ranges, and that is
//! all: no map is built until a read may meet one of them (see `write_map`). Its checks are
//! FoundationDB's, in its order.

use super::size::{MUTATION_OVERHEAD, RANGE_OVERHEAD, key_range_size, write_cost};
use crate::options::Settings;
use crate::write_map::{Kind, Operations, Stamped, WriteMap, unreadable};
use bytes::Bytes;
use plinth_types::{
    Error, KeyRange, MutationList, MutationType, RangeList, Result, Version, Versionstamp,
    key_after, limits, planted, system,
};

/// Bytes of the offset that ends a versionstamped operand.
const OFFSET_LENGTH: usize = 4;
/// What a write of the metadata version must have as operand.
const METADATA_VERSION_OPERAND: [u8; 14] = [0; 14];
/// So few mutations are looked through one by one, which costs less than a map of them.
const SCANNED_MUTATIONS: usize = 16;
/// Mutation lists up to this size are copied into the request, so that the transaction keeps its
/// buffer.
const COPIED_BYTES: usize = 16 << 10;

/// What was written.
#[derive(Default)]
pub(super) struct WriteSet {
    mutations: MutationList,
    conflicts: RangeList,
    /// Keys that get their versionstamp at commit.
    stamped: Vec<Stamped>,
    /// The mutations up to `folded`, by key.
    map: Option<WriteMap>,
    folded: usize,
    /// Whether there was any write, or explicit write conflict range.
    any: bool,
    /// Whether any key or value gets its versionstamp at commit.
    any_stamp: bool,
    /// How many appends there are: two on one key take effect as one.
    appends: usize,
    /// What they add to the transaction's size, as users are told.
    size: i64,
    cost: i64,
}

/// What a transaction may write, and by which API version.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) api: i32,
    pub(super) settings: &'a Settings,
}

/// What own writes say about a key that is read.
#[derive(Debug)]
pub(super) enum Own {
    /// Nothing: the database decides.
    Untouched,
    /// All of it.
    Known(Option<Bytes>),
    /// What to make of the database's value.
    Dependent(Box<Operations>),
}

fn illegal(key: &[u8]) -> Error {
    Error::key_outside_legal_range()
        .with_detail(plinth_types::printable(&key[..key.len().min(100)]))
}

/// The longest key that may be written; with raw access a tenant's prefix may stand before it.
pub(super) fn max_writable_key_size(key: &[u8], raw: bool) -> usize {
    let is_normal = key.first() != Some(&0xff);
    limits::key_size_limit(key) + if raw && is_normal { 8 } else { 0 }
}

/// The longest key that can exist.
pub(super) fn max_existing_key_size(key: &[u8]) -> usize {
    max_writable_key_size(key, true)
}

fn check_sizes(key: &[u8], value: &[u8], raw: bool) -> Result<()> {
    let most = max_writable_key_size(key, raw);
    if key.len() > most {
        return Err(
            Error::key_too_large().with_detail(format!("{} bytes, at most {most}", key.len()))
        );
    }
    if value.len() > limits::VALUE_SIZE {
        return Err(Error::value_too_large().with_detail(format!(
            "{} bytes, at most {}",
            value.len(),
            limits::VALUE_SIZE
        )));
    }
    Ok(())
}

/// A bound, cut to an equivalent one if it is longer than any key can be.
pub(super) fn cut(bound: &[u8]) -> &[u8] {
    &bound[..bound.len().min(max_existing_key_size(bound) + 1)]
}

/// Refuses a bound beyond what may be used.
pub(super) fn check_bounds(begin: &[u8], end: &[u8], max: &[u8]) -> Result<()> {
    if begin > max || end > max {
        return Err(illegal(if begin > max { begin } else { end }));
    }
    Ok(())
}

impl WriteSet {
    /// Begins with the buffers of another transaction.
    pub(super) fn use_buffers(&mut self, mutations: MutationList, conflicts: RangeList) {
        (self.mutations, self.conflicts) = (mutations, conflicts);
    }

    /// How many bytes its buffers have: the larger one.
    pub(super) fn buffer_len(&self) -> usize {
        self.mutations.as_bytes().len().max(self.conflicts.as_bytes().len())
    }

    /// Gives its buffers away, emptied.
    pub(super) fn take_buffers(&mut self) -> (MutationList, RangeList) {
        self.mutations.clear();
        self.conflicts.clear();
        (std::mem::take(&mut self.mutations), std::mem::take(&mut self.conflicts))
    }

    /// Forgets everything but the buffers.
    pub(super) fn clear(&mut self) {
        let (mutations, conflicts) = self.take_buffers();
        *self = Self { mutations, conflicts, ..Self::default() };
    }

    /// Whether there was any write, or explicit write conflict range.
    pub(super) fn is_used(&self) -> bool {
        self.any
    }

    /// Whether there is anything to commit.
    pub(super) fn is_empty(&self) -> bool {
        self.mutations.is_empty() && self.conflicts.is_empty()
    }

    pub(super) fn mutation_count(&self) -> usize {
        self.mutations.len()
    }

    pub(super) fn size(&self) -> i64 {
        self.size
    }

    pub(super) fn cost(&self) -> i64 {
        self.cost
    }

    fn push(&mut self, kind: MutationType, param1: &[u8], param2: &[u8]) {
        self.any = true;
        self.appends += usize::from(kind == MutationType::AppendIfFits);
        self.any_stamp |= kind.is_versionstamped();
        self.mutations.push(kind, param1, param2);
    }

    /// Adds a mutation of one key, unchecked, and the conflict range if wanted.
    pub(super) fn push_key(
        &mut self,
        kind: MutationType,
        key: &[u8],
        value: &[u8],
        conflict: bool,
    ) {
        self.push(kind, key, value);
        self.size += MUTATION_OVERHEAD + (key.len() + value.len()) as i64;
        self.cost +=
            write_cost(key.len() + if kind == MutationType::Set { value.len() } else { 0 });
        if conflict {
            self.conflicts.push_single(key);
            self.size += key_range_size(key);
        }
    }

    /// Adds a clear of a range that is not empty, unchecked, and the conflict range if wanted.
    pub(super) fn push_clear(&mut self, begin: &[u8], end: &[u8], conflict: bool) {
        self.push(MutationType::ClearRange, begin, end);
        self.cost += write_cost(0);
        if conflict {
            self.conflicts.push(begin, end);
        }
    }

    /// Has others conflict that read anything that may be read.
    pub(super) fn conflict_with_all(&mut self) {
        self.conflicts.push(b"", system::NORMAL_END);
    }

    #[inline]
    pub(super) fn set(
        &mut self,
        rules: &Rules<'_>,
        key: &[u8],
        value: &[u8],
        conflict: bool,
    ) -> Result<()> {
        if !rules.settings.may_write(key) {
            return Err(illegal(key));
        }
        check_sizes(key, value, rules.settings.access.raw)?;
        self.push_key(MutationType::Set, key, value, conflict);
        Ok(())
    }

    pub(super) fn clear_key(
        &mut self,
        rules: &Rules<'_>,
        key: &[u8],
        conflict: bool,
    ) -> Result<()> {
        if !rules.settings.may_write(key) {
            return Err(illegal(key));
        }
        if key.len() > max_existing_key_size(key) {
            return Ok(());
        }
        let size = key_range_size(key);
        self.size += if conflict { 2 * size } else { size };
        self.push_clear(key, &key_after(key), conflict);
        Ok(())
    }

    pub(super) fn clear_range(
        &mut self,
        rules: &Rules<'_>,
        begin: &[u8],
        end: &[u8],
        conflict: bool,
    ) -> Result<()> {
        check_bounds(begin, end, rules.settings.max_write_key())?;
        let keys = (begin.len() + end.len()) as i64;
        self.size += MUTATION_OVERHEAD + keys + if conflict { RANGE_OVERHEAD + keys } else { 0 };
        let (begin, end) = (cut(begin), cut(end));
        if begin != end {
            self.push_clear(begin, end, conflict);
        }
        Ok(())
    }

    /// Adds an atomic operation, by FoundationDB's code. `version` is the one that is read at, as
    /// far as it is known: no stamp comes before it.
    pub(super) fn atomic_op(
        &mut self,
        rules: &Rules<'_>,
        key: &[u8],
        operand: &[u8],
        code: i32,
        conflict: bool,
        version: Option<Version>,
    ) -> Result<()> {
        if *key == *system::METADATA_VERSION {
            if code != MutationType::SetVersionstampedValue as i32
                || *operand != METADATA_VERSION_OPERAND
            {
                return Err(Error::client_invalid_operation().with_detail(
                    "the metadata version takes a versionstamped value of 14 zero bytes",
                ));
            }
        } else if !rules.settings.may_write(key) {
            return Err(illegal(key));
        }
        let Some(kind) = MutationType::from_code(code).filter(|kind| kind.is_atomic()) else {
            return Err(Error::invalid_mutation_type().with_detail(format!("{code}")));
        };
        check_sizes(key, operand, rules.settings.access.raw)?;
        match kind {
            MutationType::SetVersionstampedKey => {
                return self.stamp_key(rules, key, operand, version);
            }
            MutationType::SetVersionstampedValue => {
                let widened;
                let operand = if rules.api >= 520 {
                    operand
                } else {
                    widened = [operand, &[0; OFFSET_LENGTH]].concat();
                    &widened
                };
                stamp_position(operand)?;
                self.push_key(kind, key, operand, conflict);
            }
            MutationType::Min if rules.api >= 510 => {
                self.push_key(MutationType::MinV2, key, operand, conflict);
            }
            MutationType::BitAnd if rules.api >= 510 => {
                self.push_key(MutationType::BitAndV2, key, operand, conflict);
            }
            kind => self.push_key(kind, key, operand, conflict),
        }
        Ok(())
    }

    /// A key that gets its versionstamp at commit: until then nobody can say what the keys are that
    /// it may become.
    fn stamp_key(
        &mut self,
        rules: &Rules<'_>,
        key: &[u8],
        value: &[u8],
        version: Option<Version>,
    ) -> Result<()> {
        let mut key = key.to_vec();
        if rules.api < 520 {
            // The offset had two bytes then.
            key.extend_from_slice(&[0, 0]);
        }
        let at = stamp_position(&key)?;
        let bare = key.len() - OFFSET_LENGTH;
        let least = Versionstamp::new(version.unwrap_or(0), 0);
        key[at..at + Versionstamp::LEN].copy_from_slice(least.as_bytes());
        let mut last = key[..bare].to_vec();
        last[at..at + Versionstamp::LEN].fill(0xff);
        last.push(0);
        let max = rules.settings.max_read_key();
        let end = if rules.settings.may_read(&last) { last } else { max.to_vec() };
        let range = KeyRange::new(key[..bare].to_vec(), end);
        let offset = self.mutations.next_offset();
        self.stamped.push(Stamped { offset, range });
        self.push_key(MutationType::SetVersionstampedKey, &key, value, false);
        Ok(())
    }

    /// Adds an explicit write conflict range. `counts`: as a write, beside which read-your-writes
    /// can't be disabled any more.
    pub(super) fn add_conflict(
        &mut self,
        rules: &Rules<'_>,
        begin: &[u8],
        end: &[u8],
        counts: bool,
    ) -> Result<()> {
        if rules.api >= 300 {
            check_bounds(begin, end, rules.settings.max_write_key())?;
        }
        let (begin, end) = (cut(begin), cut(end));
        if begin < end {
            self.size += RANGE_OVERHEAD + (begin.len() + end.len()) as i64;
            self.conflicts.push(begin, end);
            self.any |= counts;
        }
        Ok(())
    }

    /// The map of all writes so far.
    fn whole_map(&mut self) -> &WriteMap {
        let map = self.map.get_or_insert_with(WriteMap::new);
        if self.folded < self.mutations.next_offset() {
            self.folded = map.fold(&self.mutations, &self.stamped, self.folded);
        }
        map
    }

    /// The map of all writes so far; `None` if there are none.
    pub(super) fn map(&mut self) -> Option<&WriteMap> {
        if self.mutations.is_empty() { None } else { Some(self.whole_map()) }
    }

    /// What own writes say about a key.
    ///
    /// # Errors
    /// `accessed_unreadable` if the key gets its content only at commit, unless that is bypassed.
    #[inline]
    pub(super) fn own(&mut self, key: &[u8], bypass_unreadable: bool) -> Result<Own> {
        if self.mutations.is_empty() {
            return Ok(Own::Untouched);
        }
        self.look_up(key, bypass_unreadable)
    }

    fn look_up(&mut self, key: &[u8], bypass_unreadable: bool) -> Result<Own> {
        if let Some(own) = self.scan(key) {
            return Ok(own);
        }
        let segment = self.whole_map().segment(key);
        if segment.unreadable && !bypass_unreadable {
            return Err(unreadable(key));
        }
        Ok(match segment.kind {
            Kind::Unmodified => Own::Untouched,
            Kind::Cleared => Own::Known(None),
            Kind::Independent(operations) => Own::Known(operations.apply(None)?),
            Kind::Dependent(operations) => Own::Dependent(Box::new(operations.clone())),
        })
    }

    /// Whether the mutations are few, and none makes keys unreadable, so that a read can look
    /// through them.
    fn is_scannable(&self) -> bool {
        self.map.is_none() && self.mutations.len() <= SCANNED_MUTATIONS && !self.any_stamp
    }

    /// What a few simple mutations say about a key, without a map of them; `None` if that takes the
    /// map.
    fn scan(&self, key: &[u8]) -> Option<Own> {
        if !self.is_scannable() {
            return None;
        }
        let mut own = Own::Untouched;
        for mutation in &self.mutations {
            match mutation.kind {
                MutationType::ClearRange if planted!("own clears are not seen") => {}
                MutationType::ClearRange if key >= mutation.param1 && key < mutation.param2 => {
                    own = Own::Known(None);
                }
                MutationType::ClearRange => {}
                _ if key != mutation.param1 => {}
                MutationType::Set => {
                    own = Own::Known(Some(Bytes::copy_from_slice(mutation.param2)))
                }
                _ => return None,
            }
        }
        Some(own)
    }

    /// Whether a few mutations, looked at one by one, leave a range alone.
    pub(super) fn is_scanned_untouched(&self, begin: &[u8], end: &[u8]) -> bool {
        self.is_scannable()
            && self.mutations.iter().all(|mutation| match mutation.kind {
                MutationType::ClearRange => mutation.param2 <= begin || end <= mutation.param1,
                _ => mutation.param1 < begin || end <= mutation.param1,
            })
    }

    /// The write conflict ranges as they are sent: those of keys that get their stamp not among
    /// them.
    pub(super) fn conflicts(&self) -> &RangeList {
        &self.conflicts
    }

    /// The write conflict ranges, those of versionstamped keys included: the key, once its stamp is
    /// known, or all that it may become.
    pub(super) fn all_conflicts(&self, stamp: Option<Versionstamp>) -> RangeList {
        let mut all = self.conflicts.clone();
        for stamped in &self.stamped {
            match stamp.and_then(|stamp| self.stamped_key(stamped.offset, stamp)) {
                Some(key) => all.push_single(&key),
                None => all.push(&stamped.range.begin, &stamped.range.end),
            }
        }
        all
    }

    /// The key that the mutation at `offset` writes with this stamp.
    fn stamped_key(&self, offset: usize, stamp: Versionstamp) -> Option<Vec<u8>> {
        let mutation = self.mutations.at(offset)?;
        let (key, at) = mutation.param1.split_last_chunk::<OFFSET_LENGTH>()?;
        let at = usize::try_from(i32::from_le_bytes(*at)).ok()?;
        let mut key = key.to_vec();
        key.get_mut(at..at + Versionstamp::LEN)?.copy_from_slice(stamp.as_bytes());
        Some(key)
    }

    /// The mutations to send, and whether they are merged. Operations on keys that are not known
    /// yet, and appends, take effect as they are seen: merged, unless nobody sees them.
    pub(super) fn take_to_send(&mut self, are_seen: bool) -> (MutationList, bool) {
        if are_seen && (!self.stamped.is_empty() || self.appends > 1) {
            return (self.whole_map().mutations(), true);
        }
        if self.mutations.as_bytes().len() <= COPIED_BYTES {
            return (self.mutations.clone(), false);
        }
        (std::mem::take(&mut self.mutations), false)
    }

    /// The same mutations, merged, of which [`WriteSet::take_to_send`] gave `sent`.
    pub(super) fn merged(&mut self, sent: MutationList) -> MutationList {
        if self.mutations.is_empty() {
            self.mutations = sent;
        }
        self.whole_map().mutations()
    }
}

/// Where in a versionstamped parameter the stamp goes: its last four bytes say so.
fn stamp_position(parameter: &[u8]) -> Result<usize> {
    let invalid = |what: String| Error::client_invalid_operation().with_detail(what);
    let Some((rest, offset)) = parameter.split_last_chunk::<OFFSET_LENGTH>() else {
        return Err(invalid("a versionstamped parameter ends with a 4-byte offset".into()));
    };
    let offset = i32::from_le_bytes(*offset);
    usize::try_from(offset)
        .ok()
        .filter(|at| at + Versionstamp::LEN <= rest.len())
        .ok_or_else(|| invalid(format!("no 10 bytes at offset {offset} of {}", rest.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::LazyLock;

    fn rules() -> Rules<'static> {
        static SETTINGS: LazyLock<Settings> = LazyLock::new(|| Settings::new(1));
        Rules { api: 730, settings: &SETTINGS }
    }

    fn known(set: &mut WriteSet, key: &[u8]) -> Option<Option<Bytes>> {
        match set.own(key, false) {
            Ok(Own::Known(value)) => Some(value),
            _ => None,
        }
    }

    #[test]
    fn own_writes_are_seen_alike_one_by_one_and_by_map() {
        let mut set = WriteSet::default();
        assert!(set.is_empty() && set.map().is_none());
        set.set(&rules(), b"a", b"1", true).unwrap();
        set.clear_range(&rules(), b"b", b"d", true).unwrap();
        set.set(&rules(), b"c", b"2", false).unwrap();
        for _ in 0..2 {
            assert_eq!(known(&mut set, b"a"), Some(Some("1".into())));
            assert_eq!(known(&mut set, b"b"), Some(None));
            assert_eq!(known(&mut set, b"c"), Some(Some("2".into())));
            assert!(matches!(set.own(b"e", false), Ok(Own::Untouched)));
            // From now on there is a map.
            assert!(set.map().is_some() && !set.is_scannable());
        }
        set.atomic_op(&rules(), b"e", b"1", MutationType::Add as i32, true, None).unwrap();
        assert!(matches!(set.own(b"e", false), Ok(Own::Dependent(_))));
        assert_eq!(set.conflicts().len(), 3);
        set.clear();
        assert!(set.is_empty() && !set.is_used() && set.size() == 0 && set.cost() == 0);
    }

    #[test]
    fn what_may_not_be_written_leaves_no_trace() {
        let mut set = WriteSet::default();
        let long = vec![b'k'; limits::key_size_limit(b"k") + 1];
        let code = MutationType::Add as i32;
        let refused = [
            set.set(&rules(), b"\xff/x", b"", true),
            set.set(&rules(), &long, b"", true),
            set.set(&rules(), b"k", &vec![0; limits::VALUE_SIZE + 1], true),
            set.clear_range(&rules(), b"a", b"\xff\xff", true),
            set.atomic_op(&rules(), b"k", b"", 99, true, None),
            set.atomic_op(&rules(), system::METADATA_VERSION, b"", code, true, None),
            set.add_conflict(&rules(), b"a", b"\xff\xff", true),
        ];
        let codes = refused.map(|refused| refused.unwrap_err().code());
        assert_eq!(codes, [2004, 2102, 2103, 2004, 2018, 2000, 2004]);
        assert!(set.is_empty() && !set.is_used() && set.size() == 0);
    }

    #[test]
    fn a_key_to_be_stamped_is_unreadable_until_it_is_known() {
        let mut set = WriteSet::default();
        let key = [&b"k"[..], &[0; 10], &1_i32.to_le_bytes()].concat();
        let code = MutationType::SetVersionstampedKey as i32;
        set.atomic_op(&rules(), &key, b"v", code, true, Some(5)).unwrap();
        let mut stamped = b"k".to_vec();
        stamped.extend_from_slice(Versionstamp::new(7, 1).as_bytes());
        assert_eq!(set.own(&stamped, false).unwrap_err(), Error::accessed_unreadable());
        assert!(set.own(&stamped, true).is_ok());
        assert!(set.conflicts().is_empty());
        let range = set.all_conflicts(None);
        assert!(range.iter().any(|range| range.begin < &stamped[..]));
        let single = set.all_conflicts(Some(Versionstamp::new(7, 1)));
        assert!(single.iter().any(|range| *range.begin == stamped[..]));
    }

    #[test]
    fn large_lists_are_handed_over_and_come_back_to_be_merged() {
        let mut set = WriteSet::default();
        set.set(&rules(), b"k", &[0; COPIED_BYTES], true).unwrap();
        set.set(&rules(), b"k", b"last", true).unwrap();
        let (sent, merged) = set.take_to_send(true);
        assert_eq!((sent.len(), merged, set.mutation_count()), (2, false, 0));
        let merged = set.merged(sent);
        assert_eq!(merged.len(), 1);
        assert_eq!(merged.iter().next().unwrap().param2, b"last");
    }
}
