//! What a transaction's own writes do to every key: the key space as a row of segments.
//!
//! ```text
//!   unmodified   |  cleared   |k|  cleared   |j|   unmodified        | unreadable |  unmodified
//!   ─────────────┼────────────┼─┼────────────┼─┼─────────────────────┼────────────┼──────────────
//!   ""           c            k k\0          j j\0                   v            w
//!                               └ independent  └ dependent: atomic operations on a value not yet read
//! ```
//!
//! Entries are kept in order of their keys, in chunks that clones share: a read that waits for an
//! answer keeps a clone, and so sees the writes that were made before it and no later ones. An
//! entry says what happens to its key (its operations) and what to the keys after it, up to the
//! next entry.
//!
//! ## Invariants
//! 1. The first entry's key is empty; keys ascend strictly; no chunk is empty.
//! 2. An entry's `cleared_after` and `unreadable_after` hold for all keys between it and the next
//!    entry.
//! 3. The operations of a key in a cleared range begin with a `Set`: they depend on nothing in the
//!    database.

mod emit;
mod fold;
mod operations;
#[cfg(test)]
mod tests;

pub(crate) use fold::Stamped;
pub(crate) use operations::{Operation, Operations};

use bytes::Bytes;
use plinth_types::{Error, MutationList, MutationType};
use std::cmp::Ordering;
use std::sync::Arc;

/// Entries per chunk at most; a full chunk is split in two.
const CHUNK: usize = 64;

/// The segments that own writes make of the key space. Clones are cheap, and independent of each
/// other.
#[derive(Clone)]
pub(crate) struct WriteMap {
    chunks: Arc<Vec<Chunk>>,
    /// Mutations that left the map: those in a range before it became unreadable.
    flushed: Arc<MutationList>,
}

type Chunk = Arc<Vec<Entry>>;

#[derive(Clone, Debug)]
struct Entry {
    key: Bytes,
    operations: Option<Operations>,
    unreadable: bool,
    cleared_after: bool,
    unreadable_after: bool,
}

impl Entry {
    fn boundary(key: Bytes, cleared: bool, unreadable: bool) -> Self {
        Self {
            key,
            operations: None,
            unreadable,
            cleared_after: cleared,
            unreadable_after: unreadable,
        }
    }
}

/// Where an entry stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    chunk: usize,
    index: usize,
}

/// The error of a read whose result depends on a key that gets its content only at commit.
pub(crate) fn unreadable(key: &[u8]) -> Error {
    Error::accessed_unreadable().with_detail(plinth_types::printable(&key[..key.len().min(100)]))
}

/// A place between keys: just before `key`, or just after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Edge<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) after: bool,
}

impl<'a> Edge<'a> {
    pub(crate) fn before(key: &'a [u8]) -> Self {
        Self { key, after: false }
    }

    /// How the edge compares to the edge before `key`.
    pub(crate) fn cmp_key(&self, key: &[u8]) -> Ordering {
        if !self.after {
            return self.key.cmp(key);
        }
        // The edge after k is the edge before k\0.
        match key.strip_prefix(self.key) {
            Some([]) => Ordering::Greater,
            Some([0]) => Ordering::Equal,
            Some(_) => Ordering::Less,
            None => self.key.cmp(key),
        }
    }

    /// The key that this edge stands before.
    pub(crate) fn to_key(self) -> Bytes {
        if self.after {
            plinth_types::key_after(self.key)
        } else {
            Bytes::copy_from_slice(self.key)
        }
    }
}

/// What own writes do to the keys of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind<'a> {
    /// Nothing.
    Unmodified,
    /// They don't exist.
    Cleared,
    /// One key, whose value is known without reading.
    Independent(&'a Operations),
    /// One key, whose value is made of what the database has.
    Dependent(&'a Operations),
}

/// Neighbouring keys that own writes treat alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) begin: Edge<'a>,
    /// `None`: to the end of the key space.
    pub(crate) end: Option<Edge<'a>>,
    pub(crate) kind: Kind<'a>,
    /// Whether what the keys will hold is not known before the commit.
    pub(crate) unreadable: bool,
    place: Place,
}

impl Segment<'_> {
    /// Whether reads of this segment depend on the database.
    pub(crate) fn depends_on_database(&self) -> bool {
        matches!(self.kind, Kind::Unmodified | Kind::Dependent(_))
    }
}

impl WriteMap {
    pub(crate) fn new() -> Self {
        let first = Entry::boundary(Bytes::new(), false, false);
        Self { chunks: Arc::new(vec![Arc::new(vec![first])]), flushed: Arc::default() }
    }

    /// The place of the last entry at or before `key`.
    fn find(&self, key: &[u8]) -> Place {
        let chunk = self.chunks.partition_point(|chunk| chunk[0].key[..] <= *key).saturating_sub(1);
        let index =
            self.chunks[chunk].partition_point(|entry| entry.key[..] <= *key).saturating_sub(1);
        Place { chunk, index }
    }

    fn entry(&self, place: Place) -> &Entry {
        &self.chunks[place.chunk][place.index]
    }

    fn next_place(&self, place: Place) -> Option<Place> {
        if place.index + 1 < self.chunks[place.chunk].len() {
            return Some(Place { chunk: place.chunk, index: place.index + 1 });
        }
        (place.chunk + 1 < self.chunks.len()).then_some(Place { chunk: place.chunk + 1, index: 0 })
    }

    fn previous_place(&self, place: Place) -> Option<Place> {
        if place.index > 0 {
            return Some(Place { chunk: place.chunk, index: place.index - 1 });
        }
        let chunk = place.chunk.checked_sub(1)?;
        Some(Place { chunk, index: self.chunks[chunk].len() - 1 })
    }

    fn point(&self, place: Place) -> Option<Segment<'_>> {
        let entry = self.entry(place);
        let operations = entry.operations.as_ref()?;
        let independent = entry.cleared_after || !operations.is_dependent();
        Some(Segment {
            begin: Edge::before(&entry.key),
            end: Some(Edge { key: &entry.key, after: true }),
            kind: if independent {
                Kind::Independent(operations)
            } else {
                Kind::Dependent(operations)
            },
            unreadable: entry.unreadable,
            place,
        })
    }

    /// The segment of the keys after an entry; `None` if there are none because the next entry's
    /// key follows at once.
    fn gap(&self, place: Place) -> Option<Segment<'_>> {
        let entry = self.entry(place);
        let begin = Edge { key: &entry.key, after: entry.operations.is_some() };
        let end = self.next_place(place).map(|next| Edge::before(&self.entry(next).key));
        if end.is_some_and(|end| begin.cmp_key(end.key).is_ge()) {
            return None;
        }
        Some(Segment {
            begin,
            end,
            kind: if entry.cleared_after { Kind::Cleared } else { Kind::Unmodified },
            unreadable: entry.unreadable_after,
            place,
        })
    }

    /// The segment that `key` lies in.
    pub(crate) fn segment(&self, key: &[u8]) -> Segment<'_> {
        let place = self.find(key);
        let point = if self.entry(place).key[..] == *key { self.point(place) } else { None };
        point
            .or_else(|| self.gap(place))
            .expect("a key at or after an entry lies in its point or its gap")
    }

    /// The segment after this one; `None` at the end of the key space.
    pub(crate) fn next<'a>(&'a self, segment: &Segment<'a>) -> Option<Segment<'a>> {
        let is_point = matches!(segment.kind, Kind::Independent(_) | Kind::Dependent(_));
        if is_point && let Some(gap) = self.gap(segment.place) {
            return Some(gap);
        }
        let place = self.next_place(segment.place)?;
        self.point(place).or_else(|| self.gap(place))
    }

    /// The segment before this one; `None` at the begin of the key space.
    pub(crate) fn previous<'a>(&'a self, segment: &Segment<'a>) -> Option<Segment<'a>> {
        let is_point = matches!(segment.kind, Kind::Independent(_) | Kind::Dependent(_));
        if !is_point && let Some(point) = self.point(segment.place) {
            return Some(point);
        }
        let place = self.previous_place(segment.place)?;
        self.gap(place).or_else(|| self.point(place))
    }

    /// The segments from the one that `begin` lies in, as long as they begin before `end`.
    pub(crate) fn segments<'a>(
        &'a self,
        begin: &[u8],
        end: &'a [u8],
    ) -> impl Iterator<Item = Segment<'a>> + 'a {
        std::iter::successors(Some(self.segment(begin)), |segment| self.next(segment))
            .take_while(move |segment| segment.begin.cmp_key(end).is_lt())
    }

    /// Whether every key from `begin` up to `end` is as the database has it.
    pub(crate) fn is_unmodified(&self, begin: &[u8], end: &[u8]) -> bool {
        self.segments(begin, end)
            .all(|segment| matches!(segment.kind, Kind::Unmodified) && !segment.unreadable)
    }

    /// Applies an operation to a key.
    fn mutate(&mut self, key: Bytes, kind: MutationType, value: Bytes) {
        let place = self.find(&key);
        let segment = self.segment(&key);
        let cleared = matches!(segment.kind, Kind::Cleared);
        let was_unreadable = segment.unreadable;
        let unreadable = was_unreadable || kind.is_versionstamped();
        let operation = Operation { kind, value: Some(value) };
        let on_nothing = |operation| {
            let mut operations = Operations::new(Operation::cleared());
            operations.coalesce(operation);
            operations
        };
        let depends = operation.is_dependent();
        let entry = self.entry(place);
        if entry.key != key {
            let operations =
                if cleared && depends { on_nothing(operation) } else { Operations::new(operation) };
            let entry = Entry {
                key,
                operations: Some(operations),
                unreadable,
                cleared_after: entry.cleared_after,
                unreadable_after: entry.unreadable_after,
            };
            return self.insert(entry);
        }
        let entry = self.entry_mut(place);
        entry.unreadable = unreadable;
        match &mut entry.operations {
            operations
                if !was_unreadable && !depends && kind != MutationType::SetVersionstampedKey =>
            {
                *operations = Some(Operations::new(operation));
            }
            operations @ None if cleared && depends => *operations = Some(on_nothing(operation)),
            operations @ None => *operations = Some(Operations::new(operation)),
            Some(operations) if unreadable => operations.push(operation),
            Some(operations) => operations.coalesce(operation),
        }
    }

    /// Removes the keys from `begin` up to `end`.
    fn clear(&mut self, begin: Bytes, end: Bytes) {
        self.overwrite(begin, end, true, false);
    }

    fn overwrite(&mut self, begin: Bytes, end: Bytes, cleared: bool, unreadable: bool) {
        debug_assert!(begin < end, "an empty range writes nothing");
        let place = self.find(&end);
        let last = self.entry(place);
        if last.key != end {
            let rest = Entry::boundary(end.clone(), last.cleared_after, last.unreadable_after);
            self.insert(rest);
        }
        self.remove(&begin, &end);
        self.insert(Entry::boundary(begin, cleared, unreadable));
    }

    fn entry_mut(&mut self, place: Place) -> &mut Entry {
        let chunks = Arc::make_mut(&mut self.chunks);
        &mut Arc::make_mut(&mut chunks[place.chunk])[place.index]
    }

    /// Puts an entry where none of its key is.
    fn insert(&mut self, entry: Entry) {
        let chunks = Arc::make_mut(&mut self.chunks);
        let at = chunks.partition_point(|chunk| chunk[0].key < entry.key).saturating_sub(1);
        let Some(chunk) = chunks.get_mut(at) else {
            chunks.push(Arc::new(vec![entry]));
            return;
        };
        let chunk = Arc::make_mut(chunk);
        let index = chunk.partition_point(|other| other.key < entry.key);
        debug_assert!(chunk.get(index).is_none_or(|other| other.key != entry.key));
        chunk.insert(index, entry);
        if chunk.len() > CHUNK {
            // Keys often come in order: a split at the end then leaves full chunks behind.
            let half = if index + 1 == chunk.len() { CHUNK - 4 } else { CHUNK / 2 };
            let right = chunk.split_off(half);
            chunks.insert(at + 1, Arc::new(right));
        }
    }

    /// Drops the entries from `begin` up to `end`.
    fn remove(&mut self, begin: &[u8], end: &[u8]) {
        let chunks = Arc::make_mut(&mut self.chunks);
        let first = chunks.partition_point(|chunk| chunk[0].key[..] <= *begin).saturating_sub(1);
        let last = chunks.partition_point(|chunk| chunk[0].key[..] < *end);
        for chunk in &mut chunks[first..last] {
            let from = chunk.partition_point(|entry| entry.key[..] < *begin);
            let to = chunk.partition_point(|entry| entry.key[..] < *end);
            if from < to {
                Arc::make_mut(chunk).drain(from..to);
            }
        }
        chunks.retain(|chunk| !chunk.is_empty());
    }

    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        let entries: Vec<&Entry> = self.chunks.iter().flat_map(|chunk| chunk.iter()).collect();
        assert!(self.chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= CHUNK + 1));
        assert!(entries[0].key.is_empty(), "the first entry is at the begin of the key space");
        assert!(entries.windows(2).all(|pair| pair[0].key < pair[1].key), "keys ascend");
        for entry in entries {
            if let Some(operations) = &entry.operations {
                assert!(!(entry.cleared_after && operations.is_dependent()), "{entry:?}");
            }
        }
    }
}
