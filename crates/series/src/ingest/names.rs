//! The names that a session has sent, as it wrote them, and the series that they mean.
//!
//! A line with a name is looked up as bytes, without being parsed: first where it was expected
//! (behind the name that came before it the last time, since who sends many series sends them in
//! turn), then in a table by a seeded hash. Each line stands for one series, or for several of a
//! row; a sample says which by its place among all of the session's.

use super::lines::MAX_LINE_BYTES;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::store::Series;
use plinth_env::prefetch_lines;
use std::collections::HashMap;

/// What an entry or a target takes besides its text, about.
const OVERHEAD: usize = 96;
/// Metrics of one row.
pub(super) const MAX_METRICS: usize = 256;
const NONE: u32 = u32::MAX;
/// What is asked for of the line that is expected next: that of most lines, whole.
const TEXT_LINES: usize = 2;

/// A series that points of the session go to.
#[derive(Debug)]
pub(super) enum Target {
    /// Not looked up yet.
    Named(Name),
    Open(Series),
    /// There may not be one more.
    Refused(Name),
}

impl Target {
    pub(super) fn name(&self) -> &Name {
        match self {
            Self::Named(name) | Self::Refused(name) => name,
            Self::Open(series) => series.name(),
        }
    }
}

/// What a line with a name stands for: this many targets from `first` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub(super) first: u32,
    pub(super) count: u32,
    /// Whether some of them are series of events.
    pub(super) has_events: bool,
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    text: Box<[u8]>,
    row: Row,
    /// The entry that followed it.
    next: u32,
}

/// A target that was looked up.
#[derive(Debug)]
struct Opened {
    /// The first one of the same series.
    first: u32,
    /// When the series of a first one began, as far as it was looked at; 0 if it wasn't.
    start: i64,
    /// Whether it has events. The name, which says so as well, is far from the processor.
    has_events: bool,
}

/// All of a session's.
#[derive(Debug)]
pub(super) struct Names {
    seed: u64,
    /// Numbers of entries by hash; a power of two, at most half of them used.
    table: Vec<u32>,
    entries: Vec<Entry>,
    pub(super) targets: Vec<Target>,
    /// For each target that was looked up; and the first one of the same series by its number.
    opened: Vec<Opened>,
    by_series: HashMap<u64, u32>,
    /// The entry found last.
    last: u32,
    bytes: usize,
    /// Bytes of lines, and of the names that they mean, since names were looked up last.
    fresh: usize,
    /// Targets that stay: a dictionary's.
    fixed: usize,
    /// Where targets may begin that are not looked up.
    unopened: usize,
    has_refused: bool,
}

impl Names {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            table: vec![NONE; 64],
            entries: Vec::new(),
            targets: Vec::new(),
            opened: Vec::new(),
            by_series: HashMap::new(),
            last: NONE,
            bytes: 0,
            fresh: 0,
            fixed: 0,
            unopened: 0,
            has_refused: false,
        }
    }

    /// What the text `head` + `tail` stands for, if it came before.
    #[inline]
    pub(super) fn find(&mut self, head: &[u8], tail: &[u8]) -> Option<Row> {
        let is = |entry: &Entry| {
            entry.text.len() == head.len() + tail.len()
                && &entry.text[..head.len()] == head
                && &entry.text[head.len()..] == tail
        };
        let last = self.entries.get(self.last as usize);
        let guess = last.map_or(NONE, |last| last.next);
        if let Some(entry) = self.entries.get(guess as usize).filter(|entry| is(entry)) {
            self.last = guess;
            if let Some(next) = self.entries.get(entry.next as usize) {
                prefetch_lines(next.text.as_ptr(), TEXT_LINES);
            }
            return Some(entry.row);
        }
        let hash = hash(self.seed, head, tail);
        let mut place = hash as usize;
        loop {
            let number = self.table[place & (self.table.len() - 1)];
            let entry = self.entries.get(number as usize)?;
            if entry.hash == hash && is(entry) {
                let row = entry.row;
                self.follow(number);
                return Some(row);
            }
            place += 1;
        }
    }

    fn follow(&mut self, number: u32) {
        if let Some(last) = self.entries.get_mut(self.last as usize) {
            last.next = number;
        }
        self.last = number;
    }

    /// Notes what a text stands for.
    ///
    /// # Errors
    /// Those of a name that is none.
    pub(super) fn insert(
        &mut self,
        head: &[u8],
        tail: &[u8],
        metric: &[u8],
        tags: &[u8],
    ) -> Result<Row> {
        let row = self.add(metric, tags)?;
        let text = [head, tail].concat().into_boxed_slice();
        let hash = hash(self.seed, head, tail);
        self.bytes += text.len() + OVERHEAD;
        let named = &self.targets[row.first as usize..];
        let names: usize = named.iter().map(|target| target.name().as_str().len()).sum();
        self.fresh += text.len() + names + (1 + named.len()) * OVERHEAD;
        let number = self.entries.len() as u32;
        self.entries.push(Entry { hash, text, row, next: NONE });
        if self.entries.len() * 2 > self.table.len() {
            self.rehash(self.table.len() * 2);
        } else {
            self.place(number);
        }
        self.follow(number);
        Ok(row)
    }

    /// The targets that metrics, divided by `|`, have with these tags.
    ///
    /// # Errors
    /// Those of a name that is none.
    pub(super) fn add(&mut self, metrics: &[u8], tags: &[u8]) -> Result<Row> {
        let wrong = |why: &str| {
            let name = String::from_utf8_lossy(&metrics[..metrics.len().min(200)]).into_owned();
            crate::Error::Name { name, why: why.to_string() }
        };
        if metrics.len() + tags.len() > MAX_LINE_BYTES {
            return Err(wrong("it is longer than 16384 bytes"));
        }
        let metrics = std::str::from_utf8(metrics).map_err(|_| wrong("it is not UTF-8"))?;
        let tags = std::str::from_utf8(tags).map_err(|_| wrong("its tags are not UTF-8"))?;
        let mut targets = Vec::new();
        for metric in metrics.split('|') {
            if targets.len() == MAX_METRICS {
                return Err(wrong("it has more than 256 metrics"));
            }
            if metric.is_empty() {
                return Err(wrong("a metric is empty"));
            }
            targets.push(Target::Named(Name::parse(&format!("{metric} {tags}"))?));
        }
        let row = Row {
            first: self.targets.len() as u32,
            count: targets.len() as u32,
            has_events: metrics.split('|').any(|metric| metric.starts_with('!')),
        };
        // The name of an open series is the store's.
        self.bytes += targets.len() * OVERHEAD;
        self.targets.append(&mut targets);
        Ok(row)
    }

    fn place(&mut self, number: u32) {
        let mut place = self.entries[number as usize].hash as usize;
        let mask = self.table.len() - 1;
        while self.table[place & mask] != NONE {
            place += 1;
        }
        self.table[place & mask] = number;
    }

    fn rehash(&mut self, len: usize) {
        self.table = vec![NONE; len];
        (0..self.entries.len() as u32).for_each(|number| self.place(number));
    }

    /// All that was added so far stays for good.
    pub(super) fn fix(&mut self) {
        self.fixed = self.targets.len();
    }

    /// Nothing stays any more. What stayed is found by nobody, so it goes, and all else with it. No
    /// sample may be waiting.
    pub(super) fn unfix(&mut self) {
        if std::mem::take(&mut self.fixed) > 0 {
            self.forget(None);
        }
    }

    /// How many bytes it takes, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many bytes came since names were looked up last, about: nobody has counted them yet.
    #[inline]
    pub(super) fn fresh(&self) -> usize {
        self.fresh
    }

    /// Says that what came so far is counted, or is to be looked up by nobody.
    pub(super) fn settle(&mut self) {
        self.fresh = 0;
    }

    /// Forgets all but what is fixed and the row in hand, whose targets may get another place: says
    /// which. No sample may be waiting.
    pub(super) fn forget(&mut self, in_hand: Option<Row>) -> Option<Row> {
        let range = in_hand.map(|row| row.first as usize..(row.first + row.count) as usize);
        let kept =
            range.filter(|range| range.start >= self.fixed && range.end <= self.targets.len());
        let mut row = in_hand;
        match kept {
            Some(range) => {
                self.targets.truncate(range.end);
                self.targets.drain(self.fixed..range.start);
                row = row.map(|row| Row { first: self.fixed as u32, ..row });
            }
            None => self.targets.truncate(self.fixed),
        }
        self.opened.truncate(self.fixed);
        self.by_series.retain(|_, target| (*target as usize) < self.fixed);
        // What was refused and stays is asked for again: a dictionary's, or of a message that is
        // half there.
        let refused = self.targets.iter().position(|target| matches!(target, Target::Refused(_)));
        self.unopened = self.unopened.min(self.fixed).min(refused.unwrap_or(usize::MAX));
        self.has_refused = false;
        self.entries = Vec::new();
        self.table = vec![NONE; 64];
        self.last = NONE;
        self.bytes = self.targets.len() * OVERHEAD;
        self.fresh = 0;
        row
    }

    /// The targets that are not looked up: the place of the first, and their names.
    pub(super) fn unopened(&self) -> (usize, Vec<&str>) {
        (
            self.unopened,
            self.targets[self.unopened..].iter().map(|target| target.name().as_str()).collect(),
        )
    }

    /// Takes what the targets from `first` on mean; gives those that may not be, and why.
    pub(super) fn open(&mut self, first: usize, series: Vec<Result<Series>>) -> Vec<(Name, Error)> {
        let mut refused = Vec::new();
        self.opened.truncate(first);
        for (number, series) in (first as u32..).zip(series) {
            let target = &mut self.targets[number as usize];
            let has_events = target.name().as_str().starts_with('!');
            match series {
                Ok(series) => {
                    let first = *self.by_series.entry(series.id()).or_insert(number);
                    self.opened.push(Opened { first, start: 0, has_events });
                    *target = Target::Open(series);
                }
                Err(why) => {
                    self.opened.push(Opened { first: number, start: 0, has_events });
                    refused.push((target.name().clone(), why));
                    *target = Target::Refused(target.name().clone());
                    self.has_refused = true;
                }
            }
        }
        self.unopened = self.targets.len();
        self.fresh = 0;
        refused
    }

    /// All targets are to be looked up anew, in another store.
    pub(super) fn close(&mut self) {
        for target in &mut self.targets {
            if let Target::Open(series) = target {
                *target = Target::Named(series.name().clone());
            }
        }
        self.opened.clear();
        self.by_series.clear();
        self.unopened = 0;
    }

    /// Whether there may not be the series of this target.
    pub(super) fn is_refused(&self, target: u32) -> bool {
        self.has_refused && matches!(self.targets.get(target as usize), Some(Target::Refused(_)))
    }

    /// Whether that is so of any target.
    pub(super) fn has_refused(&self) -> bool {
        self.has_refused
    }

    /// Takes what one target means now.
    pub(super) fn reopen(&mut self, target: usize, series: Vec<Series>) {
        for series in series {
            // Another way to write its name may come, or have come.
            let first = *self.by_series.entry(series.id()).or_insert(target as u32);
            self.targets[target] = Target::Open(series);
            if let Some(opened) = self.opened.get_mut(target) {
                (opened.start, opened.first) = (0, first);
            }
        }
    }

    /// The series of a target, once it is looked up.
    #[inline]
    pub(super) fn series(&self, target: u32) -> Option<&Series> {
        match self.targets.get(target as usize) {
            Some(Target::Open(series)) => Some(series),
            _ => None,
        }
    }

    /// The first target of the same series, once it is looked up: a name may be written in several
    /// ways.
    #[inline]
    pub(super) fn first_of(&self, target: u32) -> u32 {
        self.opened.get(target as usize).map_or(target, |opened| opened.first)
    }

    /// Whether the series of a target, once it is looked up, has events.
    #[inline]
    pub(super) fn has_events(&self, target: u32) -> bool {
        self.opened.get(target as usize).is_some_and(|opened| opened.has_events)
    }

    /// Whether it is known that the series of a target began then.
    #[inline]
    pub(super) fn has_begun(&self, target: u32, start: i64) -> bool {
        let first = self.first_of(target) as usize;
        self.opened.get(first).is_some_and(|opened| opened.start == start)
    }

    /// Notes when the series of a target, which was looked up, began last.
    pub(super) fn begin(&mut self, target: u32, start: i64) {
        let first = self.first_of(target) as usize;
        if let Some(opened) = self.opened.get_mut(first) {
            opened.start = start;
        }
    }
}

/// Appends a part of a name; a blank in it is marked as its own.
pub(super) fn escape(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        if matches!(byte, b' ' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
}

/// A hash of `head` + `tail`, wherever they are divided. Not for keys that must resist who knows
/// the seed.
fn hash(seed: u64, head: &[u8], tail: &[u8]) -> u64 {
    let mut hasher = Hasher { state: seed, pending: [0; 16], len: 0, total: 0 };
    hasher.write(head);
    hasher.write(tail);
    hasher.finish()
}

/// Folded multiplications of 16 bytes at a time.
struct Hasher {
    state: u64,
    pending: [u8; 16],
    len: usize,
    total: u64,
}

impl Hasher {
    fn write(&mut self, mut bytes: &[u8]) {
        self.total += bytes.len() as u64;
        if self.len > 0 {
            let part = bytes.len().min(16 - self.len);
            self.pending[self.len..self.len + part].copy_from_slice(&bytes[..part]);
            self.len += part;
            bytes = &bytes[part..];
            if self.len < 16 {
                return;
            }
            let pending = self.pending;
            self.mix(&pending);
            self.len = 0;
        }
        let (blocks, rest) = bytes.as_chunks::<16>();
        blocks.iter().for_each(|block| self.mix(block));
        self.pending[..rest.len()].copy_from_slice(rest);
        self.len = rest.len();
    }

    #[inline]
    fn mix(&mut self, block: &[u8; 16]) {
        let block = u128::from_le_bytes(*block);
        let (low, high) = (block as u64, (block >> 64) as u64);
        self.state = fold(low ^ self.state, high ^ 0x9e37_79b9_7f4a_7c15);
    }

    fn finish(mut self) -> u64 {
        self.pending[self.len..].fill(0);
        let pending = self.pending;
        self.mix(&pending);
        fold(self.state ^ self.total, 0xd6e8_feb8_6659_fd93)
    }
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Random;
    use std::collections::BTreeMap;

    #[test]
    fn a_hash_does_not_see_where_a_text_is_divided() {
        let text: Vec<u8> = (0..100).collect();
        let whole = hash(7, &text, b"");
        assert!((0..=100).all(|at| hash(7, &text[..at], &text[at..]) == whole));
        assert_ne!(whole, hash(8, &text, b""));
        assert_ne!(hash(7, b"a", b""), hash(7, b"a\0", b""));
    }

    #[test]
    fn what_was_inserted_is_found_in_any_order_and_nothing_else() {
        let mut random = Random::new(3);
        let (mut names, mut model) = (Names::new(5), BTreeMap::new());
        for _ in 0..20_000 {
            let tags = format!("host=h{} x=y", random.below(700));
            let metric = ["cpu", "cpu|mem", "m"][random.below(3) as usize];
            let text = format!("{metric} {tags}");
            let found = names.find(text.as_bytes(), b"");
            assert_eq!(found, model.get(&text).copied(), "{text}");
            if found.is_none() {
                let row = names.insert(
                    metric.as_bytes(),
                    format!(" {tags}").as_bytes(),
                    metric.as_bytes(),
                    tags.as_bytes(),
                );
                let row = row.unwrap();
                let expected = metric.split('|').map(|metric| format!("{metric} {tags}"));
                let got = &names.targets[row.first as usize..(row.first + row.count) as usize];
                assert!(expected.eq(got.iter().map(|target| target.name().to_string())));
                model.insert(text, row);
            }
        }
        assert_eq!(names.entries.len(), model.len());
        names.forget(None);
        assert_eq!((names.find(b"cpu host=h1 x=y", b""), names.targets.len()), (None, 0));
    }

    #[test]
    fn what_is_forgotten_leaves_the_dictionary_and_the_row_in_hand() {
        let all = |names: &Names, row: Row| -> Vec<String> {
            let targets = &names.targets[row.first as usize..(row.first + row.count) as usize];
            targets.iter().map(|target| target.name().to_string()).collect()
        };
        let mut names = Names::new(1);
        let fixed = names.add(b"d|e", b" a=1").unwrap();
        names.fix();
        for row in ["f", "g|h", "i"] {
            names.insert(row.as_bytes(), b"", row.as_bytes(), b" a=1").unwrap();
        }
        let in_hand = names.find(b"g|h", b"").unwrap();
        let moved = names.forget(Some(in_hand)).unwrap();
        assert_eq!((moved.first, moved.count, names.targets.len()), (2, 2, 4));
        assert_eq!(
            (all(&names, fixed), all(&names, moved)),
            (vec!["d a=1".into(), "e a=1".into()], vec!["g a=1".into(), "h a=1".into()])
        );
        // One of the dictionary stays where it is, and takes nothing else with it.
        assert_eq!((names.forget(Some(fixed)), names.targets.len()), (Some(fixed), 2));
        // A name that is none stands for a row of which there is nothing.
        let none = Row { first: 9, count: 3, has_events: false };
        assert_eq!((names.forget(Some(none)), names.targets.len()), (Some(none), 2));
    }
}
