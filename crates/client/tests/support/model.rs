//! What a transaction's reads must give, worked out the slow and plain way.
//!
//! The model knows the database's rows, and for each key that was written what was done to it, for
//! ranges whether they are cleared or unreadable. A read lists all rows that the transaction sees
//! and walks that list.

use super::Random;
use plinth_client::{MutationType, Versionstamp};
use plinth_types::atomic;
use std::collections::BTreeMap;

pub type Bytes = Vec<u8>;

/// Sets of keys as sorted, disjoint intervals that don't touch.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Intervals(pub Vec<(Bytes, Bytes)>);

impl Intervals {
    pub fn add(&mut self, begin: &[u8], end: &[u8]) {
        if begin >= end {
            return;
        }
        let (mut low, mut high) = (begin.to_vec(), end.to_vec());
        self.0.retain(|(b, e)| {
            let touches = *b <= high && low <= *e;
            if touches {
                low = low.clone().min(b.clone());
                high = high.clone().max(e.clone());
            }
            !touches
        });
        self.0.push((low, high));
        self.0.sort();
    }

    pub fn remove(&mut self, begin: &[u8], end: &[u8]) {
        if begin >= end {
            return;
        }
        let mut rest = Vec::new();
        for (b, e) in self.0.drain(..) {
            if e[..] <= *begin || *end <= b[..] {
                rest.push((b, e));
                continue;
            }
            if b[..] < *begin {
                rest.push((b, begin.to_vec()));
            }
            if *end < e[..] {
                rest.push((end.to_vec(), e));
            }
        }
        self.0 = rest;
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        self.0.iter().any(|(b, e)| b[..] <= *key && *key < e[..])
    }
}

pub fn after(key: &[u8]) -> Bytes {
    [key, &[0]].concat()
}

#[derive(Clone, Default)]
pub struct Model {
    pub database: BTreeMap<Bytes, Bytes>,
    entries: BTreeMap<Bytes, Vec<(MutationType, Bytes)>>,
    cleared: Intervals,
    pub unreadable: Intervals,
    pub conflicts: Intervals,
    pub bypass: bool,
    /// The version that the transaction reads at, if it is known.
    pub version: i64,
    pub ryw_disabled: bool,
    pub snapshot_ryw: i32,
}

/// A selector without `or_equal`.
#[derive(Clone, Debug)]
pub struct Selector {
    pub key: Bytes,
    pub offset: i64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolved {
    key: Bytes,
    left: i64,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct RangeAnswer {
    pub rows: Vec<(Bytes, Bytes)>,
    pub more: bool,
    begin_reached: bool,
    end_reached: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct RangeLimits {
    pub rows: usize,
    pub bytes: usize,
    pub reverse: bool,
}

/// The first key that can't be read.
pub const MAX: &[u8] = b"\xff";
const UNREADABLE: i32 = 1036;
type Answer<T> = Result<T, i32>;

impl Model {
    pub fn new(database: BTreeMap<Bytes, Bytes>) -> Self {
        Self { database, snapshot_ryw: 1, ..Self::default() }
    }

    pub fn clear(&mut self, begin: &[u8], end: &[u8]) {
        if begin >= end {
            return;
        }
        self.entries.retain(|key, _| key[..] < *begin || key[..] >= *end);
        self.cleared.add(begin, end);
        self.unreadable.remove(begin, end);
    }

    pub fn mutate(&mut self, key: &[u8], kind: MutationType, operand: &[u8]) {
        use MutationType as M;
        if kind == M::SetVersionstampedKey {
            return self.set_stamped_key(key, operand);
        }
        let readable = !self.unreadable.contains(key);
        let is_cleared = self.cleared.contains(key);
        let entry = self.entries.entry(key.to_vec()).or_default();
        let operation = (kind, operand.to_vec());
        match kind {
            M::Set | M::SetVersionstampedValue if readable => *entry = vec![operation],
            M::Set | M::SetVersionstampedValue => entry.push(operation),
            _ => {
                if entry.is_empty() && is_cleared {
                    // An operation on nothing is as good as a set.
                    let value = atomic::apply(kind, None, operand);
                    entry.push((M::Set, value.as_deref().unwrap_or(b"(none)").to_vec()));
                    if value.is_none() {
                        *entry = vec![(M::Set, b"(none)".to_vec())];
                    }
                } else {
                    entry.push(operation);
                }
            }
        }
        if kind == M::SetVersionstampedValue {
            self.unreadable.add(key, &after(key));
        }
    }

    fn set_stamped_key(&mut self, key: &[u8], value: &[u8]) {
        let (bare, offset) = key.split_last_chunk::<4>().unwrap();
        let at = i32::from_le_bytes(*offset) as usize;
        let mut least = bare.to_vec();
        least[at..at + 10].copy_from_slice(Versionstamp::new(self.version, 0).as_bytes());
        let mut most = bare.to_vec();
        most[at..at + 10].fill(0xff);
        most.push(0);
        most = most.min(MAX.to_vec());
        self.entries.retain(|key, _| *key < least || *key >= most);
        self.cleared.remove(&least, &most);
        self.unreadable.add(&least, &most);
        let whole = [&least[..], offset].concat();
        self.entries.insert(whole, vec![(MutationType::SetVersionstampedKey, value.to_vec())]);
    }

    /// Whether own writes alone decide what the key holds.
    fn is_decided(&self, key: &[u8]) -> bool {
        match self.entries.get(key).and_then(|operations| operations.first()) {
            Some((kind, _)) => {
                self.cleared.contains(key) || *kind == MutationType::Set || kind.is_versionstamped()
            }
            None => self.cleared.contains(key),
        }
    }

    fn value(&self, key: &[u8]) -> Option<Bytes> {
        let base = if self.cleared.contains(key) { None } else { self.database.get(key).cloned() };
        let Some(operations) = self.entries.get(key) else { return base };
        let mut value = base;
        for (kind, operand) in operations {
            value = atomic::apply(*kind, value.as_deref(), operand).map(|value| value.to_vec());
            if *kind == MutationType::Set && operand == b"(none)" {
                value = None;
            }
        }
        value
    }

    fn is_blind(&self, snapshot: bool) -> bool {
        self.ryw_disabled || (snapshot && self.snapshot_ryw <= 0)
    }

    pub fn get(&mut self, key: &[u8], snapshot: bool) -> Answer<Option<Bytes>> {
        if self.is_blind(snapshot) {
            if !snapshot {
                self.conflicts.add(key, &after(key));
            }
            return Ok(self.database.get(key).cloned());
        }
        if self.unreadable.contains(key) && !self.bypass {
            return Err(UNREADABLE);
        }
        if !snapshot {
            self.add_conflict(key, &after(key));
        }
        Ok(self.value(key))
    }

    /// Adds what of the range depends on the database.
    pub fn add_conflict(&mut self, begin: &[u8], end: &[u8]) {
        let mut range = Intervals::default();
        range.add(begin, end);
        if !self.ryw_disabled {
            for (b, e) in &self.cleared.0 {
                range.remove(b, e);
            }
            for key in self.entries.keys() {
                if self.is_decided(key) {
                    range.remove(key, &after(key));
                } else if begin <= &key[..] && &key[..] < end {
                    range.add(key, &after(key));
                }
            }
        }
        for (b, e) in range.0 {
            self.conflicts.add(&b, &e);
        }
    }

    fn view(&self, snapshot: bool) -> View {
        if self.is_blind(snapshot) {
            return View { rows: self.database.clone().into_iter().collect(), walls: Vec::new() };
        }
        let keys = self.database.keys().chain(self.entries.keys());
        let rows: BTreeMap<Bytes, Bytes> =
            keys.filter_map(|key| Some((key.clone(), self.value(key)?))).collect();
        let walls = if self.bypass { Vec::new() } else { self.unreadable.0.clone() };
        View { rows: rows.into_iter().collect(), walls }
    }

    pub fn get_key(&mut self, selector: &Selector, snapshot: bool) -> Answer<Bytes> {
        let found = self.view(snapshot).resolve(selector)?.key;
        if !snapshot {
            if selector.offset <= 0 {
                self.add_conflict(&found, &selector.key);
            } else {
                self.add_conflict(&selector.key, &after(&found));
            }
        }
        Ok(found)
    }

    pub fn get_range(
        &mut self,
        begin: &Selector,
        end: &Selector,
        limits: RangeLimits,
        snapshot: bool,
    ) -> Answer<RangeAnswer> {
        if begin.offset >= end.offset && begin.key >= end.key {
            return Ok(RangeAnswer::default());
        }
        let answer = self.view(snapshot).range(begin, end, limits)?;
        if !snapshot {
            let (low, high) = hull(begin, end, limits.reverse, &answer);
            self.add_conflict(&low, &high);
        }
        Ok(answer)
    }
}

/// The range that a range read depends on, as the specification has it.
fn hull(begin: &Selector, end: &Selector, reverse: bool, answer: &RangeAnswer) -> (Bytes, Bytes) {
    let (mut low, mut high) = if begin.key <= end.key {
        (begin.key.clone(), end.key.clone())
    } else {
        (end.key.clone(), begin.key.clone())
    };
    if begin.key < end.key && answer.more {
        if !reverse && end.offset > 0 {
            high = begin.key.clone();
        }
        if reverse && begin.offset <= 1 {
            low = end.key.clone();
        }
    }
    if answer.begin_reached && begin.offset <= 0 {
        low = Vec::new();
    }
    if answer.end_reached && end.offset > 0 {
        high = MAX.to_vec();
    }
    let smallest = answer.rows.iter().map(|(key, _)| key).min();
    let largest = answer.rows.iter().map(|(key, _)| key).max();
    if let (Some(smallest), Some(largest)) = (smallest, largest) {
        if reverse || begin.offset <= 0 {
            low = low.min(smallest.clone());
        }
        if !reverse || end.offset > 0 {
            high = high.max(after(largest));
        }
    }
    (low, high)
}

/// All rows that a read sees, and the ranges that it can't look into.
struct View {
    rows: Vec<(Bytes, Bytes)>,
    walls: Vec<(Bytes, Bytes)>,
}

impl View {
    fn next(&self, from: &[u8], bound: &[u8]) -> Answer<Option<&(Bytes, Bytes)>> {
        let row = self.rows.iter().find(|(key, _)| key[..] >= *from && key[..] < *bound);
        let wall = self.walls.iter().find(|(b, e)| e[..] > *from && b[..] < *bound);
        let is_before = |b: &Bytes| row.is_none_or(|(key, _)| b <= key);
        if from < bound && wall.is_some_and(|(b, _)| is_before(b)) {
            return Err(UNREADABLE);
        }
        Ok(row)
    }

    fn previous(&self, from: &[u8], bound: &[u8]) -> Answer<Option<&(Bytes, Bytes)>> {
        let row = self.rows.iter().rev().find(|(key, _)| key[..] < *from && key[..] >= *bound);
        let wall = self.walls.iter().rev().find(|(b, e)| b[..] < *from && e[..] > *bound);
        let is_before = |e: &Bytes| row.is_none_or(|(key, _)| e > key);
        if bound < from && wall.is_some_and(|(_, e)| is_before(e)) {
            return Err(UNREADABLE);
        }
        Ok(row)
    }

    fn resolve(&self, selector: &Selector) -> Answer<Resolved> {
        let mut at = selector.key.clone().min(MAX.to_vec());
        let mut offset = selector.offset;
        if offset >= 1 {
            loop {
                let Some((key, _)) = self.next(&at, MAX)? else {
                    return Ok(Resolved { key: MAX.to_vec(), left: offset });
                };
                if offset == 1 {
                    return Ok(Resolved { key: key.clone(), left: 1 });
                }
                offset -= 1;
                at = after(key);
            }
        }
        loop {
            let Some((key, _)) = self.previous(&at, b"")? else {
                return Ok(Resolved { key: Vec::new(), left: offset });
            };
            offset += 1;
            at = key.clone();
            if offset == 1 {
                let left = i64::from(!key.is_empty());
                return Ok(Resolved { key: key.clone(), left });
            }
        }
    }

    /// Where the bound of a range stands; whether the key there can be looked into doesn't matter.
    fn bound(&self, selector: &Selector) -> Answer<Resolved> {
        let mut at = selector.key.clone().min(MAX.to_vec());
        if selector.offset <= 1 {
            return if selector.offset == 1 {
                Ok(Resolved { key: at, left: 1 })
            } else {
                self.resolve(selector)
            };
        }
        for left in (2..=selector.offset).rev() {
            match self.next(&at, MAX)? {
                Some((key, _)) => at = after(key),
                None => return Ok(Resolved { key: MAX.to_vec(), left }),
            }
        }
        let wall = self.walls.iter().find(|(_, e)| *e > at).map(|(b, _)| b.clone().max(at.clone()));
        let key = match self.next(&at, MAX) {
            Ok(row) => row.map_or(MAX.to_vec(), |(key, _)| key.clone()),
            Err(_) => wall.unwrap_or(at),
        };
        Ok(Resolved { key, left: 1 })
    }

    fn range(&self, begin: &Selector, end: &Selector, limits: RangeLimits) -> Answer<RangeAnswer> {
        let reverse = limits.reverse;
        let (near_selector, far_selector) = if reverse { (end, begin) } else { (begin, end) };
        let near = self.bound(near_selector)?;
        // How many rows more than those before the far key belong to the range.
        let extra = if reverse { 1 - far_selector.offset } else { far_selector.offset - 1 };
        let beyond =
            if reverse { near.key < far_selector.key } else { near.key > far_selector.key };
        if extra == 0 || beyond {
            let far = self.bound(far_selector)?;
            if let Some(answer) = empty(&near, &far, reverse) {
                return Ok(answer);
            }
            let (rows, more) = self.collect(&near.key, &far.key, 0, limits)?;
            return Ok(answer_of(rows, more, reverse, &[near, far]));
        }
        let (rows, more) = self.collect(&near.key, &far_selector.key, extra, limits)?;
        if more {
            return Ok(answer_of(rows, true, reverse, &[near]));
        }
        let far = self.bound(far_selector)?;
        if rows.is_empty()
            && let Some(answer) = empty(&near, &far, reverse)
        {
            return Ok(answer);
        }
        Ok(answer_of(rows, false, reverse, &[near, far]))
    }

    /// Rows from `from` until `key` and `extra` rows more (or fewer), or a limit: then the second
    /// part is true.
    fn collect(
        &self,
        from: &[u8],
        key: &[u8],
        extra: i64,
        limits: RangeLimits,
    ) -> Answer<(Vec<(Bytes, Bytes)>, bool)> {
        let mut at = from.to_vec();
        let mut rows: Vec<(Bytes, Bytes)> = Vec::new();
        let mut limit = None;
        let mut bytes = 0;
        let mut added = 0;
        loop {
            let full = rows.len() >= limits.rows || bytes >= limits.bytes;
            if full && limit.is_none() {
                limit = Some(rows.len());
            }
            if let Some(limit) = limit
                && (rows.len() - limit) as i64 >= -extra
            {
                rows.truncate(limit);
                return Ok((rows, true));
            }
            let row = if limits.reverse { self.previous(&at, key)? } else { self.next(&at, key)? };
            let row = match row {
                Some(row) => row,
                None if added < extra => {
                    added += 1;
                    let row = if limits.reverse {
                        self.previous(&at, b"")?
                    } else {
                        self.next(&at, MAX)?
                    };
                    let Some(row) = row else { return Ok((rows, false)) };
                    row
                }
                None => {
                    let all = rows.len() as i64 + extra.min(0);
                    rows.truncate(all.max(0) as usize);
                    return Ok((rows, false));
                }
            };
            bytes += row.0.len() + row.1.len() + 8;
            at = if limits.reverse { row.0.clone() } else { after(&row.0) };
            rows.push(row.clone());
        }
    }
}

fn empty(near: &Resolved, far: &Resolved, reverse: bool) -> Option<RangeAnswer> {
    let (begin, end) = if reverse { (far, near) } else { (near, far) };
    if begin.left >= end.left && begin.key >= end.key {
        return Some(RangeAnswer::default());
    }
    if begin.key == MAX || end.key.is_empty() {
        return Some(answer_of(Vec::new(), false, reverse, &[begin.clone(), end.clone()]));
    }
    None
}

fn answer_of(
    rows: Vec<(Bytes, Bytes)>,
    more: bool,
    reverse: bool,
    sides: &[Resolved],
) -> RangeAnswer {
    RangeAnswer {
        rows,
        more,
        begin_reached: sides.iter().any(|side| side.left < 1) && !(more && reverse),
        end_reached: sides.iter().any(|side| side.left > 1) && (!more || reverse),
    }
}

/// A key of few letters, so that keys meet.
pub fn random_key(random: &mut Random) -> Bytes {
    (0..random.below(4)).map(|_| *random.pick(b"\0abc")).collect()
}
