//! Random programs: batches, reads at random versions of the window, a window that moves.
//!
//! After each step the engine must have answered as the model does. Keys are drawn from a few
//! hundred or thousand, so that overwrites, removals and ranges hit, in shapes that trees find hard
//! (`Keys`).

use super::model::{Change, Model, Row};
use super::{Make, Store, position};
use crate::PinnedVersion;
use crate::chunk::{Chunk, MOST_CHUNK_BYTES};
use crate::failure::StorageError;
use plinth_env::simulated::Random;
use plinth_types::{
    KeyList, KeySelector, KeySpace, LogPosition, MutationList, MutationType, RangeRead,
    RangeResult, Version, system,
};

/// The rows of a range, exported in chunks that follow each other without a gap, each sent and
/// taken as bytes.
pub(super) fn exported(
    pinned: &dyn PinnedVersion,
    begin: &[u8],
    end: &[u8],
    target: usize,
) -> Vec<Row> {
    let (mut reached, mut rows) = (begin.to_vec(), Vec::new());
    while reached[..] < *end {
        let chunk = pinned.export(&reached, end, target).wait().expect("it is pinned");
        assert_eq!((&chunk.begin[..], chunk.at), (&reached[..], pinned.position()));
        assert!(chunk.end > reached && *chunk.end <= *end, "an export goes on");
        let bytes: usize = chunk.rows.iter().map(|(key, value)| 8 + key.len() + value.len()).sum();
        let last = chunk.rows.last().map_or(0, |(key, value)| 8 + key.len() + value.len());
        assert!(bytes - last < target.min(MOST_CHUNK_BYTES), "no row more than make up the target");
        let chunk = Chunk::decode(&chunk.encode()).expect("what was encoded");
        rows.extend(chunk.rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
        reached = chunk.end.to_vec();
    }
    rows
}

/// Runs the program of a seed.
///
/// # Panics
/// If the engine does something else than the model.
pub fn run(make: Make<'_>, seed: u64, steps: usize) {
    let mut random = Random::new(seed);
    let begin = random.index(1000) as Version;
    let keys = Keys::choose(&mut random);
    let mut program = Program {
        store: Store::new(make, begin),
        model: Model::new(),
        keys,
        random,
        seed,
        applied: begin,
        newest: begin,
        oldest: begin,
        batches: vec![LogPosition::without_log(begin)],
        pinned: Vec::new(),
    };
    for _ in 0..steps {
        program.step();
    }
    program.read_everything();
}

/// What keys a program uses: some hit what trees find hard.
#[derive(Clone, Copy, Debug)]
enum Keys {
    /// Few different bytes, short: keys that are prefixes of each other, equal heads, zeros.
    Tangled,
    /// Ascending numbers behind a prefix.
    Numbered,
    /// A long common prefix, then a number far behind.
    Deep,
    /// Sixteen random bytes.
    Scattered,
}

fn random_bytes(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}

impl Keys {
    fn choose(random: &mut Random) -> Self {
        [Self::Tangled, Self::Numbered, Self::Deep, Self::Scattered][random.index(4)]
    }
}

struct Program {
    store: Store,
    model: Model,
    keys: Keys,
    random: Random,
    seed: u64,
    applied: Version,
    newest: Version,
    oldest: Version,
    /// What the store began with, and all batches.
    batches: Vec<LogPosition>,
    /// Versions that are pinned, each with its rows.
    pinned: Vec<(Box<dyn PinnedVersion>, Vec<Row>)>,
}

/// Pinned versions at a time.
const PINS: usize = 3;

/// Compares what an engine tells of changes with what happened, in order.
struct Told<'e> {
    expected: &'e [Change],
    at: usize,
}

impl Told<'_> {
    fn hear(&mut self, change: crate::Change<'_>) {
        match change {
            crate::Change::Key(key, None) => {
                // Removing what was not there may be told or not.
                if self
                    .expected
                    .get(self.at)
                    .is_some_and(|(next, value)| next == key && value.is_none())
                {
                    self.at += 1;
                }
            }
            crate::Change::Key(key, Some(value)) => {
                assert_eq!(self.expected.get(self.at), Some(&(key.to_vec(), Some(value.to_vec()))));
                self.at += 1;
            }
            crate::Change::Range(begin, end) => {
                let inside =
                    |(key, value): &&Change| (begin..end).contains(&&key[..]) && value.is_none();
                self.at += self.expected[self.at..].iter().take_while(inside).count();
            }
        }
    }
}

const ATOMICS: [MutationType; 13] = [
    MutationType::Add,
    MutationType::BitAnd,
    MutationType::BitOr,
    MutationType::BitXor,
    MutationType::AppendIfFits,
    MutationType::Max,
    MutationType::Min,
    MutationType::ByteMin,
    MutationType::ByteMax,
    MutationType::MinV2,
    MutationType::BitAndV2,
    MutationType::CompareAndClear,
    MutationType::CompareAndClear,
];

impl Program {
    fn step(&mut self) {
        match self.random.index(11) {
            10 => self.pins(),
            0..4 => self.apply(),
            4 => self.forget(),
            5 => self.refused(),
            6 => self.points(),
            7 => self.key(),
            _ => self.range(),
        }
    }

    /// Pins a version, lets one go, or reads what one has.
    fn pins(&mut self) {
        if self.pinned.len() < PINS && self.random.index(2) == 0 {
            let pinned = self.store.writer.pin().wait().expect("nothing is in its way");
            assert!(
                pinned.version() <= self.newest,
                "seed {}: nothing newer was published",
                self.seed
            );
            let last = self.batches.iter().take_while(|at| at.version <= pinned.version()).last();
            assert_eq!(
                Some(&pinned.position()),
                last,
                "seed {}: at {}",
                self.seed,
                pinned.version()
            );
            let durable = self.store.durable();
            let is_batch = durable == LogPosition::default() || self.batches.contains(&durable);
            assert!(
                is_batch && durable <= pinned.position(),
                "seed {}: {durable} is durable",
                self.seed
            );
            let rows = self.model.rows(pinned.version(), KeySpace::System);
            return self.pinned.push((pinned, rows));
        }
        if self.pinned.is_empty() {
            return;
        }
        let at = self.random.index(self.pinned.len());
        self.read_pinned(at);
        if self.random.index(3) == 0 {
            drop(self.pinned.swap_remove(at));
        }
    }

    /// Compares all of a pinned version, some keys, and a selector.
    fn read_pinned(&mut self, at: usize) {
        let key = self.key_bytes();
        let (pinned, rows) = &self.pinned[at];
        let seed = self.seed;
        let read = RangeRead {
            begin: KeySelector::first_greater_or_equal(&b""[..]),
            end: KeySelector::first_greater_or_equal(&b"\xff\xff"[..]),
            limit: usize::MAX,
            target_bytes: usize::MAX,
            reverse: false,
        };
        let found = pinned.get_range(KeySpace::System, &read).wait().expect("it is pinned");
        let found: Vec<Row> =
            found.rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        assert!(
            found == *rows,
            "seed {seed}: the rows at {} stay what they were",
            pinned.version()
        );
        if self.random.index(4) == 0 {
            let target = [100, 1000, 20_000, usize::MAX][self.random.index(4)];
            let chunks = exported(&**pinned, b"", b"\xff\xff", target);
            assert!(chunks == *rows, "seed {seed}: in chunks of {target}");
        }
        let mut keys = KeyList::new();
        keys.push(&key);
        let value =
            pinned.get_many(KeySpace::System, &keys).wait().expect("it is pinned").remove(0);
        let expected = rows.iter().find(|(row, _)| *row == key).map(|(_, value)| &value[..]);
        assert_eq!(value.as_deref(), expected, "seed {seed}");
        let selector = KeySelector::last_less_than(key);
        let (expected, _) = Model::resolve(rows, KeySpace::System, &selector);
        assert_eq!(
            pinned.get_key(KeySpace::System, &selector).wait().expect("it is pinned"),
            expected
        );
    }

    fn key_bytes(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        if random.index(12) == 0 {
            let tail = random.index(4);
            return [&b"\xff"[..], &vec![b'a' + tail as u8; tail]].concat();
        }
        match self.keys {
            Keys::Tangled => {
                let len = random.index(11);
                (0..len).map(|_| [0, 0, b'a', b'b', 0xfe][random.index(5)]).collect()
            }
            Keys::Numbered => format!("key{:013}", random.index(3000)).into_bytes(),
            Keys::Deep => {
                let number = random.index(400);
                [&[b'd'; 45][..], format!("{:04}{}", number / 7, "x".repeat(number % 7)).as_bytes()]
                    .concat()
            }
            Keys::Scattered => {
                let mut number = Random::new(random.index(2000) as u64);
                random_bytes(&mut number, 16)
            }
        }
    }

    fn value_bytes(&mut self) -> Vec<u8> {
        let len = match self.random.index(40) {
            0 => 20_000,
            1..8 => 0,
            _ => self.random.index(30),
        };
        random_bytes(&mut self.random, len)
    }

    fn apply(&mut self) {
        if self.applied == self.newest || self.random.index(4) == 0 {
            self.applied += 1 + self.random.index(20) as Version;
        }
        let mut list = MutationList::new();
        let most = if self.random.index(6) == 0 { 300 } else { 20 };
        for _ in 0..self.random.index(most) {
            let key = self.key_bytes();
            match self.random.index(12) {
                0 => {
                    let end = if self.random.index(3) == 0 {
                        b"\xff\xff".to_vec()
                    } else {
                        self.key_bytes()
                    };
                    list.push(MutationType::ClearRange, &key, &end);
                }
                1 | 2 => list.push(MutationType::ClearRange, &key, &plinth_types::key_after(&key)),
                3 | 4 => {
                    let kind = ATOMICS[self.random.index(ATOMICS.len())];
                    let existing = self.model.get(self.applied, &key).map(<[u8]>::to_vec);
                    let operand = existing.filter(|_| self.random.index(2) == 0);
                    let operand = operand.unwrap_or_else(|| random_bytes(&mut self.random, 4));
                    list.push(kind, &key, &operand);
                }
                _ => {
                    let value = self.value_bytes();
                    list.push(MutationType::Set, &key, &value);
                }
            }
        }
        let mut expected: Vec<Change> = Vec::new();
        for mutation in &list {
            self.model.apply(self.applied, &mutation, &mut expected);
        }
        if self.random.index(2) == 0 {
            let mut told = Told { expected: &expected, at: 0 };
            self.store.apply(self.applied, &list, Some(&mut |change| told.hear(change)));
            assert!(
                told.at == expected.len(),
                "seed {}: {expected:?} happened, {} told",
                self.seed,
                told.at
            );
        } else {
            self.store.apply(self.applied, &list, None);
        }
        if self.batches.last().is_none_or(|last| last.version < self.applied) {
            self.batches.push(position(self.applied));
        }
        if self.random.index(3) != 0 {
            if self.random.index(4) == 0 {
                // Versions go by without a batch.
                self.applied += self.random.index(5) as Version;
            }
            self.newest = self.applied;
            self.store.publish(self.newest);
        }
        assert_eq!(
            (self.store.newest(), self.store.oldest()),
            (self.newest, self.oldest),
            "seed {}",
            self.seed
        );
    }

    fn forget(&mut self) {
        let back = self.random.index(60) as Version;
        let to = self.newest - back;
        let budget = [1, 7, 100, 100_000][self.random.index(4)];
        self.store.forget_before(to, budget);
        self.oldest = self.oldest.max(to);
        assert_eq!(self.store.oldest(), self.oldest, "seed {}", self.seed);
    }

    fn refused(&mut self) {
        let mut keys = KeyList::new();
        keys.push(b"a");
        let early = self.store.get_many(self.newest + 1, KeySpace::Normal, &keys).wait();
        assert_eq!(early, Err(StorageError::Future("".into())), "seed {}", self.seed);
        if self.oldest > 0 {
            let selector = KeySelector::first_greater_or_equal(&b""[..]);
            let late = self.store.get_key(self.oldest - 1, KeySpace::Normal, &selector).wait();
            assert_eq!(late, Err(StorageError::TooOld("".into())), "seed {}", self.seed);
        }
    }

    /// A version of the window.
    fn version(&mut self) -> Version {
        self.oldest + self.random.index((self.newest - self.oldest) as usize + 1) as Version
    }

    fn space(&mut self) -> KeySpace {
        if self.random.index(3) == 0 { KeySpace::System } else { KeySpace::Normal }
    }

    fn points(&mut self) {
        let (version, space) = (self.version(), self.space());
        let mut keys = KeyList::new();
        for _ in 0..self.random.index(40) {
            let key = self.key_bytes();
            keys.push(&key);
        }
        keys.push(system::METADATA_VERSION);
        let values = self
            .store
            .get_many(version, space, &keys)
            .wait()
            .expect("the version is in the window");
        assert_eq!(values.len(), keys.len());
        for (key, value) in keys.iter().zip(&values) {
            let expected = self.model.get(version, key).filter(|_| Model::shows(space, key));
            assert_eq!(value.as_deref(), expected, "seed {}: {key:?} at {version}", self.seed);
        }
    }

    fn selector(&mut self) -> KeySelector {
        let key = if self.random.index(8) == 0 { b"\xff".to_vec() } else { self.key_bytes() };
        let offset = match self.random.index(6) {
            0 => self.random.index(200) as i32 - 100,
            1 => [i32::MIN, i32::MAX][self.random.index(2)],
            _ => self.random.index(5) as i32 - 1,
        };
        KeySelector::new(key, self.random.index(2) == 0, offset)
    }

    fn key(&mut self) {
        let (version, space, selector) = (self.version(), self.space(), self.selector());
        let rows = self.model.rows(version, space);
        let key = self
            .store
            .get_key(version, space, &selector)
            .wait()
            .expect("the version is in the window");
        let (expected, _) = Model::resolve(&rows, space, &selector);
        assert_eq!(key, expected, "seed {}: {selector:?} at {version}", self.seed);
    }

    fn range(&mut self) {
        let (version, space) = (self.version(), self.space());
        let (begin, end) = match self.random.index(3) {
            0 => (self.selector(), self.selector()),
            _ => {
                let (a, b) = (self.key_bytes(), self.key_bytes());
                let from = KeySelector::first_greater_or_equal(a.clone().min(b.clone()));
                (from, KeySelector::first_greater_or_equal(a.max(b)))
            }
        };
        let limit = [usize::MAX, 0, 1, 2, 50][self.random.index(5)];
        let target_bytes = [usize::MAX, 0, 1, 300, 5000][self.random.index(5)];
        let read =
            RangeRead { begin, end, limit, target_bytes, reverse: self.random.index(2) == 0 };
        let rows = self.model.rows(version, space);
        let result = self
            .store
            .get_range(version, space, &read)
            .wait()
            .expect("the version is in the window");
        self.compare(&rows, space, &read, &result);
    }

    fn compare(&self, rows: &[Row], space: KeySpace, read: &RangeRead, result: &RangeResult) {
        let expected = Model::range(rows, space, read);
        let got: Vec<Row> =
            result.rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        let seed = self.seed;
        if let Some(at) = (0..got.len().max(expected.rows.len()))
            .find(|at| got.get(*at) != expected.rows.get(*at))
        {
            let (got, expected) = (got.get(at), expected.rows.get(at));
            panic!("seed {seed}: {read:?} gives {got:?} as row {at}, not {expected:?}");
        }
        let flags = (result.more, result.read_to_begin, result.read_through_end);
        let wanted = (expected.more, expected.read_to_begin, expected.read_through_end);
        assert_eq!(flags, wanted, "seed {seed}: {read:?}");
    }

    fn read_everything(&mut self) {
        for _ in 0..3 {
            let version = self.version();
            for reverse in [false, true] {
                let read = RangeRead {
                    begin: KeySelector::first_greater_or_equal(&b""[..]),
                    end: KeySelector::first_greater_or_equal(KeySpace::System.end()),
                    limit: usize::MAX,
                    target_bytes: usize::MAX,
                    reverse,
                };
                let rows = self.model.rows(version, KeySpace::System);
                let result = self.store.get_range(version, KeySpace::System, &read).wait();
                self.compare(
                    &rows,
                    KeySpace::System,
                    &read,
                    &result.expect("the version is in the window"),
                );
            }
        }
    }
}
