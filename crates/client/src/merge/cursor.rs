//! Walks the merged rows in one direction, fetching the database's rows as it goes.
//!
//! Only spans whose rows depend on the database are fetched: not those that own writes cleared.
//! Single keys cleared or set are fetched along with their surroundings and passed over, which is
//! cheaper than a request for each gap.

use super::Source;
use crate::range::Limits;
use crate::write_map::{Edge, Kind, Segment, WriteMap, unreadable};
use bytes::Bytes;
use plinth_types::{Error, KeyValue, Result, Rows, key_after};
use std::sync::OnceLock;

/// Rows fetched at once at least, when more than one may be needed.
const MIN_ROWS: usize = 8;
/// How many segments ahead a fetch looks for the next span that needn't be fetched.
const LOOK_AHEAD: usize = 64;

/// What comes next.
pub(super) enum Step {
    /// Nothing.
    End,
    /// A row that own writes made.
    Own(KeyValue),
    /// So many rows of the database as they are.
    Run(usize),
}

/// A place among the merged rows.
pub(super) struct Cursor<'v, S> {
    view: &'v S,
    map: &'v WriteMap,
    reverse: bool,
    /// Forward: the first key not passed. Reverse: the last key passed.
    at: Bytes,
    /// Rows of the database, in the direction of the walk, of which those before `used` are passed.
    rows: Rows,
    used: usize,
    /// How far `rows` is all that the database has: up to here, or, in reverse, down to here.
    known: Option<Bytes>,
    /// About how many rows will be asked for.
    wanted: usize,
}

impl<'v, S: Source> Cursor<'v, S> {
    /// A cursor that gives the rows from `at` on or, with `reverse`, those before it.
    pub(super) fn new(view: &'v S, at: &[u8], reverse: bool) -> Self {
        static NO_WRITES: OnceLock<WriteMap> = OnceLock::new();
        let map = view.own_writes().unwrap_or_else(|| NO_WRITES.get_or_init(WriteMap::new));
        let at = at.min(view.max_key());
        Self {
            view,
            map,
            reverse,
            at: Bytes::copy_from_slice(at),
            rows: Rows::new(),
            used: 0,
            known: None,
            wanted: 1,
        }
    }

    /// Tells about how many rows will be asked for.
    pub(super) fn expecting(mut self, rows: usize) -> Self {
        self.wanted = rows;
        self
    }

    /// What comes next before `bound` (at or after it, in reverse).
    pub(super) async fn advance(&mut self, bound: &[u8]) -> Result<Step> {
        loop {
            let passed = if self.reverse { self.at[..] <= *bound } else { self.at[..] >= *bound };
            if passed {
                return Ok(Step::End);
            }
            let Some(segment) = self.segment() else { return Ok(Step::End) };
            if segment.unreadable && !self.view.bypasses_unreadable() {
                return Err(unreadable(segment.begin.key));
            }
            let own = match segment.kind {
                Kind::Cleared => {
                    self.at = self.far_end(&segment, bound);
                    None
                }
                Kind::Independent(operations) => {
                    let key = self.pass_key(&segment);
                    operations.apply(None)?.map(|value| KeyValue { key, value })
                }
                Kind::Dependent(operations) => {
                    self.load(bound).await?;
                    let value = self.value_of(segment.begin.key);
                    let key = self.pass_key(&segment);
                    operations.apply(value)?.map(|value| KeyValue { key, value })
                }
                Kind::Unmodified => {
                    self.load(bound).await?;
                    let run = self.run(&segment, bound);
                    if run > 0 {
                        return Ok(Step::Run(run));
                    }
                    None
                }
            };
            if let Some(row) = own {
                return Ok(Step::Own(row));
            }
        }
    }

    /// The first key not passed (going forward).
    pub(super) fn position(&self) -> Bytes {
        self.at.clone()
    }

    /// The row `at` rows into the current run.
    pub(super) fn row(&self, at: usize) -> (&[u8], &[u8]) {
        self.rows.row(self.used + at).unwrap_or_default()
    }

    /// Goes beyond `count` rows of the current run.
    pub(super) fn pass(&mut self, count: usize) {
        let Some(last) = count.checked_sub(1) else { return };
        let key = self.row(last).0;
        self.at = if self.reverse { Bytes::copy_from_slice(key) } else { key_after(key) };
        self.used += count;
    }

    /// The segment that the next key to look at lies in.
    fn segment(&self) -> Option<Segment<'v>> {
        let segment = self.map.segment(&self.at);
        if self.reverse && segment.begin.cmp_key(&self.at).is_ge() {
            return self.map.previous(&segment);
        }
        Some(segment)
    }

    /// Where the walk leaves a segment, or reaches `bound` in it.
    fn far_end(&self, segment: &Segment<'_>, bound: &[u8]) -> Bytes {
        let edge = if self.reverse { Some(segment.begin) } else { segment.end };
        match edge {
            Some(edge) if self.reverse && edge.cmp_key(bound).is_gt() => edge.to_key(),
            Some(edge) if !self.reverse && edge.cmp_key(bound).is_lt() => edge.to_key(),
            _ => Bytes::copy_from_slice(bound),
        }
    }

    /// Goes beyond a segment of one key.
    fn pass_key(&mut self, segment: &Segment<'_>) -> Bytes {
        let key = Bytes::copy_from_slice(segment.begin.key);
        self.at = if self.reverse { key.clone() } else { key_after(&key) };
        key
    }

    /// How many database rows come next in an unmodified segment; if none does, the walk goes on as
    /// far as that is known.
    fn run(&mut self, segment: &Segment<'_>, bound: &[u8]) -> usize {
        self.skip_passed();
        let edge = if self.reverse { Some(segment.begin) } else { segment.end };
        let is_inside = |key: &[u8]| {
            if self.reverse {
                key >= bound && edge.is_none_or(|edge| edge.cmp_key(key).is_le())
            } else {
                key < bound && edge.is_none_or(|edge| edge.cmp_key(key).is_gt())
            }
        };
        // Rows are in order: search for the first one outside.
        let (mut inside, mut outside) = (self.used, self.rows.len());
        while inside < outside {
            let middle = inside + (outside - inside) / 2;
            if self.rows.row(middle).is_some_and(|(key, _)| is_inside(key)) {
                inside = middle + 1;
            } else {
                outside = middle;
            }
        }
        if inside == self.used {
            let end = self.far_end(segment, bound);
            let known = self.known.clone().unwrap_or_else(|| self.at.clone());
            self.at = if self.reverse { known.max(end) } else { known.min(end) };
        }
        inside - self.used
    }

    /// The database's value of a key that is known.
    fn value_of(&mut self, key: &[u8]) -> Option<Bytes> {
        self.skip_passed();
        // In reverse, rows above the key may be left: they were passed over by own writes.
        while let Some((at, _)) = self.rows.row(self.used) {
            let before = if self.reverse { at > key } else { at < key };
            if !before {
                break;
            }
            self.used += 1;
        }
        let row = self.rows.get(self.used)?;
        (row.key[..] == *key).then_some(row.value)
    }

    /// Goes beyond rows that the walk has passed: own writes stood in their place.
    fn skip_passed(&mut self) {
        while let Some((key, _)) = self.rows.row(self.used) {
            let passed = if self.reverse { *key >= self.at[..] } else { *key < self.at[..] };
            if !passed {
                return;
            }
            self.used += 1;
        }
    }

    /// Makes the database's rows known at the next key to look at.
    async fn load(&mut self, bound: &[u8]) -> Result<()> {
        let is_known = self.known.as_ref().is_some_and(|known| {
            if self.reverse { known[..] < self.at[..] } else { known[..] > self.at[..] }
        });
        if is_known {
            return Ok(());
        }
        let barrier = self.barrier(bound);
        let rows = self.wanted.max(MIN_ROWS);
        self.wanted = rows.saturating_mul(2).min(1 << 16);
        let limits = Limits { rows: Some(rows), bytes: None };
        let (begin, end) = if self.reverse { (&barrier, &self.at) } else { (&self.at, &barrier) };
        let result = self.view.fetch(begin, end, limits, self.reverse).await?;
        let known = match result.rows.last() {
            Some((last, _)) if result.more && self.reverse => Bytes::copy_from_slice(last),
            Some((last, _)) if result.more => key_after(last),
            _ => barrier,
        };
        let is_further = if self.reverse { known < self.at } else { known > self.at };
        if !is_further || (result.more && result.rows.is_empty()) {
            return Err(Error::internal_error().with_detail("a range read made no progress"));
        }
        self.known = Some(known);
        self.rows = result.rows;
        self.used = 0;
        Ok(())
    }

    /// How far to fetch: up to `bound`, or to the next range that own writes cleared or made
    /// unreadable.
    fn barrier(&self, bound: &[u8]) -> Bytes {
        let mut segment = self.segment();
        for _ in 0..LOOK_AHEAD {
            let Some(current) = segment else { break };
            let near = if self.reverse { current.end } else { Some(current.begin) };
            let is_wide = matches!(current.kind, Kind::Cleared) && !is_one_key(&current);
            let is_barrier = is_wide || (current.unreadable && !self.view.bypasses_unreadable());
            if let Some(edge) = near
                && is_barrier
            {
                let (key, bound) = (edge.to_key(), Bytes::copy_from_slice(bound));
                return if self.reverse { key.max(bound) } else { key.min(bound) };
            }
            segment =
                if self.reverse { self.map.previous(&current) } else { self.map.next(&current) };
        }
        Bytes::copy_from_slice(bound)
    }
}

/// Whether a segment holds a single key.
fn is_one_key(segment: &Segment<'_>) -> bool {
    segment.end.is_some_and(|end| {
        let after = if segment.begin.after {
            Edge { key: &segment.begin.to_key(), after: true }.to_key()
        } else {
            key_after(segment.begin.key)
        };
        end.cmp_key(&after).is_eq()
    })
}
