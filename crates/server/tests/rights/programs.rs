//! Random programs of somebody with rights to some keys, against a model of what they are.
//!
//! Each program runs in two databases that are alike where its user may look and differ where he
//! may not. Whatever he does, he sees the same in both: by an answer, an error, a conflict, the
//! keys that are told to be in conflict, a watch, or what an index leads to. The model says besides
//! which of these are refused.

use super::{DENIED, Place, code};
use plinth_client::{Database, Mapped, RangeOptions, Transaction, TransactionOption};
use plinth_env::reply::Reply;
use plinth_env::sync::{First, race};
use plinth_env::{Env, block_on};
use plinth_types::{KeySelector, MutationType, Result, codes};
use std::collections::BTreeMap;
use std::time::Duration;

/// Whoever waits for longer waits for good.
const PATIENCE: Duration = Duration::from_secs(60);
const CONFLICTING: &[u8] = b"\xff\xff/transaction/conflicting_keys/";

/// An encoded tuple of strings.
fn tuple(parts: &[&str]) -> String {
    parts.iter().map(|part| format!("\u{2}{part}\0")).collect()
}

fn grants() -> Vec<String> {
    let mut grants = vec!["operator address ::1".to_owned()];
    let ours = [
        "reader range b d".to_owned(),
        "writer range f h".to_owned(),
        "reader range h i".to_owned(),
        format!("reader prefix {}", tuple(&["index"])),
        format!("reader prefix {}", tuple(&["record", "b"])),
    ];
    grants.extend(ours.iter().map(|grant| grant.replacen(' ', " address 127.0.0.1 ", 1)));
    grants
}

/// What the grants come to: the keys that may be read.
fn may_read(key: &str) -> bool {
    let ranges = [("b", "d"), ("f", "i")];
    let prefixes = [tuple(&["index"]), tuple(&["record", "b"])];
    ranges.iter().any(|(begin, end)| (*begin..*end).contains(&key))
        || prefixes.iter().any(|prefix| key.starts_with(prefix))
}

/// Rows of the index, by number: the letter of the records that each leads to.
type Index = BTreeMap<usize, &'static str>;

#[test]
fn nothing_of_what_is_denied_shows_by_an_answer_an_error_or_a_conflict() {
    let grants = grants();
    let grants: Vec<_> = grants.iter().map(String::as_str).collect();
    let places = [Place::with(&grants), Place::with(&grants)];
    let users = places.each_ref().map(|place| place.user(0));
    let (mut random, mut index, mut count) = (Random(42), Index::new(), Count::default());
    for _ in 0..300 {
        draw_rows(&places, &mut index, &mut random);
        let program = Program::draw(&mut random);
        let seen = [0, 1].map(|at| program.run(&places[at], &users[at], at));
        if seen.iter().flatten().any(|told| *told == Seen::Error(codes::TRANSACTION_TOO_OLD)) {
            // The machine was busy. Both go on from the same.
            places.iter().for_each(|place| {
                place.clear("b", "d");
                place.clear("f", "i");
            });
            continue;
        }
        assert_eq!(seen[0], seen[1], "{program:?}");
        program.judge(&seen[0], &index);
        count.add(&program, &seen[0]);
    }
    count.check();
}

/// What came of the programs: a test that refuses everything, or nothing, shows nothing.
#[derive(Default, Debug)]
struct Count {
    answered: u32,
    refused: u32,
    conflicts: u32,
    told: u32,
    fired: u32,
    mapped: u32,
    maps_refused: u32,
    watches_refused: u32,
}

impl Count {
    fn add(&mut self, program: &Program, seen: &[Seen]) {
        for (at, told) in seen.iter().enumerate() {
            let step = program.steps.get(at);
            match told {
                Seen::Error(DENIED) => {
                    self.refused += 1;
                    self.maps_refused += u32::from(matches!(step, Some(Step::Mapped(..))));
                }
                Seen::Error(codes::NOT_COMMITTED) => self.conflicts += 1,
                Seen::Error(code) => panic!("{code}: {program:?}"),
                Seen::Conflicting(keys) => self.told += u32::from(!keys.is_empty()),
                Seen::Watched(_, Ok(())) => self.fired += 1,
                Seen::Watched(_, Err(DENIED)) => self.watches_refused += 1,
                Seen::Mapped(rows) => self.mapped += u32::from(!rows.is_empty()),
                _ => self.answered += 1,
            }
        }
    }

    fn check(&self) {
        let Self { answered, refused, conflicts, told, fired, .. } = *self;
        let Self { mapped, maps_refused, watches_refused, .. } = *self;
        println!("{self:?}");
        assert!(answered > 200 && refused > 100 && conflicts > 5 && told > 5, "{self:?}");
        assert!(fired > 5 && watches_refused > 5, "{self:?}");
        assert!(mapped > 5 && maps_refused > 5, "{self:?}");
    }
}

/// Gives each place its own rows of what is denied, and both the same of all else.
fn draw_rows(places: &[Place], index: &mut Index, random: &mut Random) {
    let secret = [tuple(&["record", "e", "1"]), tuple(&["record", "e", "2"]), tuple(&["secret"])];
    for place in places {
        let hidden = ["a", "a\0", "d", "e", "ex", "i", "j"].map(str::to_owned);
        let all = [&hidden[..], &secret].concat();
        let hidden = &all[random.below(all.len())];
        match random.below(3) {
            0 => place.set(hidden, &random.below(1_000).to_string()),
            1 => place.clear(hidden, &format!("{hidden}\0")),
            _ => {}
        }
    }
    let [one, two] = ["1", "2"].map(|field| tuple(&["record", "b", field]));
    let shown = ["b", "bx", "c", "f", "fx", "g", "h", &one, &two][random.below(9)];
    let (value, is_set) = (random.below(3).to_string(), random.below(2) == 0);
    let (number, letter) = (random.below(4), ["b", "b", "e"][random.below(3)]);
    let (row, leads) = (tuple(&["index", &number.to_string()]), random.below(3) > 0);
    for place in places {
        match is_set {
            true => place.set(shown, &value),
            false => place.clear(shown, &format!("{shown}\0")),
        }
        match leads {
            true => place.set(&row, &tuple(&[letter])),
            false => place.clear(&row, &format!("{row}\0")),
        }
    }
    match leads {
        true => index.insert(number, letter),
        false => index.remove(&number),
    };
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

/// To what a row of an index leads.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Map {
    /// All records of its letter.
    Records,
    /// The first record of its letter.
    First,
    /// The records of `b`, whatever its letter is.
    Covered,
    /// All records.
    All,
}

impl Map {
    fn mapper(self) -> String {
        match self {
            Self::Records => tuple(&["record", "{V[0]}", "{...}"]),
            Self::First => tuple(&["record", "{V[0]}", "1"]),
            Self::Covered => tuple(&["record", "b", "{...}"]),
            Self::All => tuple(&["record", "{...}"]),
        }
    }

    fn is_denied(self, letter: &str) -> bool {
        match self {
            Self::Records | Self::First => letter != "b",
            Self::Covered => false,
            Self::All => true,
        }
    }
}

#[derive(Debug)]
enum Step {
    Get(&'static str),
    GetKey(KeySelector),
    Range(KeySelector, KeySelector, usize, bool),
    Size(&'static str, &'static str),
    Set(&'static str),
    Add(&'static str),
    ClearRange(&'static str, &'static str),
    Depend(&'static str, &'static str),
    Watch(&'static str),
    /// Of the index or, if not, of what is denied: so many rows, from the end or not.
    Mapped(bool, Map, usize, bool),
}

/// A transaction of some steps.
#[derive(Debug)]
struct Program {
    steps: Vec<Step>,
    /// Whether it asks which keys were in conflict.
    reports: bool,
    interrupted_at: usize,
    seed: u64,
}

#[derive(PartialEq, Debug)]
enum Seen {
    Value(Option<Vec<u8>>),
    Key(Vec<u8>),
    Rows(Vec<(Vec<u8>, Vec<u8>)>, bool),
    Size(i64),
    Mapped(Vec<Mapped>),
    /// The keys that are told to have been in conflict.
    Conflicting(Vec<String>),
    /// What became of a watch of this key, after which the key was changed.
    Watched(&'static str, std::result::Result<(), i32>),
    Done,
    Error(i32),
}

impl Seen {
    fn of(result: Result<Self>) -> Self {
        result.unwrap_or_else(|error| Self::Error(error.code()))
    }
}

impl Program {
    const KEYS: [&str; 14] =
        ["", "a", "b", "bx", "c", "cx", "d", "e", "f", "fx", "g", "h", "hx", "i"];

    fn draw(random: &mut Random) -> Self {
        let mut steps: Vec<_> = (0..1 + random.below(4)).map(|_| Step::draw(random)).collect();
        if random.below(4) == 0 {
            // One that may all that it does, and conflicts if somebody comes between.
            steps = vec![Step::Depend("b", "d"), Step::Get("f"), Step::Set("g")];
        }
        let interrupted_at = random.below(steps.len() + 1);
        Self { steps, reports: random.below(2) == 0, interrupted_at, seed: random.0 }
    }

    /// Somebody writes where the user may look, and, in one of both places, where not.
    fn interrupt(&self, place: &Place, at: usize) {
        let shown = ["f", "bx", &tuple(&["record", "b", "1"])][self.interrupted_at % 3].to_owned();
        place.set(&shown, &format!("between {}", self.seed));
        if (self.seed as usize + at).is_multiple_of(2) {
            let secret = tuple(&["record", "e", "1"]);
            ["a", "e", &secret].iter().for_each(|key| place.set(key, "hidden"));
        }
    }

    /// What somebody sees who runs it in the place of this number.
    fn run(&self, place: &Place, db: &Database, at: usize) -> Vec<Seen> {
        let tr = db.create_transaction();
        if self.reports {
            tr.set_option(TransactionOption::ReportConflictingKeys).unwrap();
        }
        assert_eq!(code(tr.get_read_version().wait()), 0);
        let (mut seen, mut watches) = (Vec::new(), Vec::new());
        for (number, step) in self.steps.iter().enumerate() {
            if number == self.interrupted_at {
                self.interrupt(place, at);
            }
            if let Step::Watch(key) = step {
                watches.push((*key, tr.watch(key)));
            }
            seen.push(Seen::of(step.run(&tr, self.seed)));
        }
        if self.steps.len() == self.interrupted_at {
            self.interrupt(place, at);
        }
        let committed = tr.commit().wait();
        let is_committed = committed.is_ok();
        seen.push(Seen::of(committed.map(|()| Seen::Done)));
        seen.push(Seen::of(conflicting(&tr)));
        // Of a transaction that failed nothing is watched; who may not watch hears that all the
        // same.
        watches.retain(|(key, _)| is_committed || !may_read(key));
        seen.extend(watches.into_iter().map(|(key, watch)| self.changed(place, at, key, watch)));
        seen
    }

    /// Changes what is watched: in one place only, if nobody may see that.
    fn changed(&self, place: &Place, at: usize, key: &'static str, watch: Reply<()>) -> Seen {
        if may_read(key) || at == 0 {
            place.set(key, &format!("changed {}", self.seed));
        }
        match block_on(race(watch, Env::real().sleep(PATIENCE))) {
            First::Left(result) => Seen::Watched(key, result.map_err(|error| error.code())),
            First::Right(()) => panic!("a watch of {key:?} waits for good: {self:?}"),
        }
    }

    /// Whether what is refused is what the model says.
    fn judge(&self, seen: &[Seen], index: &Index) {
        for (step, told) in self.steps.iter().zip(seen) {
            if let Step::Mapped(is_index, map, limit, reverse) = step {
                let letters = || index.values().copied();
                let mut read: Vec<_> =
                    if *reverse { letters().rev().collect() } else { letters().collect() };
                read.truncate(*limit);
                let is_denied = !is_index || read.iter().any(|letter| map.is_denied(letter));
                assert_eq!(*told == Seen::Error(DENIED), is_denied, "{told:?} {index:?} {self:?}");
            }
        }
        let committed = &seen[self.steps.len()];
        let denied = |step: &Step| matches!(step, Step::Watch(key) if !may_read(key));
        if self.steps.iter().any(denied) {
            assert_eq!(*committed, Seen::Error(DENIED), "{self:?}");
        }
        for told in &seen[self.steps.len() + 1..] {
            match told {
                Seen::Conflicting(keys) => {
                    assert!(keys.iter().all(|key| may_read(key)), "{keys:?}: {self:?}");
                    let is_told = self.reports && *committed == Seen::Error(codes::NOT_COMMITTED);
                    assert_eq!(!keys.is_empty(), is_told, "{seen:?} {self:?}");
                }
                Seen::Watched(key, result) => {
                    let expected = if may_read(key) { Ok(()) } else { Err(DENIED) };
                    assert_eq!(*result, expected, "{key:?}: {self:?}");
                }
                _ => panic!("{told:?}: {self:?}"),
            }
        }
    }
}

/// The beginnings of the ranges that are told to have been in conflict.
fn conflicting(tr: &Transaction) -> Result<Seen> {
    let rows = tr.get_range(RangeOptions::prefix(CONFLICTING)).wait()?.rows;
    let begins = rows.iter().filter(|(_, value)| *value == b"1");
    let key = |key: &[u8]| String::from_utf8_lossy(&key[CONFLICTING.len()..]).into_owned();
    Ok(Seen::Conflicting(begins.map(|(row, _)| key(row)).collect()))
}

impl Step {
    fn draw(random: &mut Random) -> Self {
        let key = |random: &mut Random| Program::KEYS[random.below(Program::KEYS.len())];
        let selector = |random: &mut Random| {
            let (key, or_equal) = (key(random), random.below(2) == 0);
            KeySelector::new(key.as_bytes(), or_equal, random.below(7) as i32 - 3)
        };
        match random.below(16) {
            0 | 1 => Self::Get(key(random)),
            2 | 3 => Self::GetKey(selector(random)),
            4 | 5 => Self::Range(
                selector(random),
                selector(random),
                1 + random.below(4),
                random.below(2) == 0,
            ),
            6 => {
                let (begin, end) =
                    [("b", "d"), ("f", "h"), ("b", "e"), ("f", "i")][random.below(4)];
                let plain = |key: &'static str| KeySelector::first_greater_or_equal(key.as_bytes());
                Self::Range(plain(begin), plain(end), 10, random.below(2) == 0)
            }
            7 => Self::Size(key(random), key(random)),
            8 => Self::Set(["f", "fx", "g", "gx", "e", "b"][random.below(6)]),
            9 => Self::Add(["f", "g", "h", "a"][random.below(4)]),
            10 => {
                let (begin, end) =
                    [("f", "g"), ("f", "h"), ("f", "i"), ("a", "z")][random.below(4)];
                Self::ClearRange(begin, end)
            }
            11 => {
                let (begin, end) =
                    [("b", "d"), ("f", "g"), ("a", "b"), ("a", "z")][random.below(4)];
                Self::Depend(begin, end)
            }
            12 | 13 => Self::Watch(key(random)),
            _ => {
                let map = [Map::Records, Map::First, Map::Covered, Map::All][random.below(4)];
                let (is_index, limit) = (random.below(5) > 0, 1 + random.below(3));
                Self::Mapped(is_index, map, limit, random.below(2) == 0)
            }
        }
    }

    fn run(&self, tr: &Transaction, seed: u64) -> Result<Seen> {
        match self {
            Self::Get(key) => {
                tr.get(key).wait().map(|value| Seen::Value(value.map(|value| value.to_vec())))
            }
            Self::GetKey(selector) => {
                tr.get_key(selector.clone()).wait().map(|key| Seen::Key(key.to_vec()))
            }
            Self::Range(begin, end, limit, reverse) => {
                let range = RangeOptions::new(begin.clone(), end.clone());
                let range = range.limit(*limit).reverse(*reverse);
                tr.get_range(range).wait().map(|result| {
                    let row = |(key, value): (&[u8], &[u8])| (key.to_vec(), value.to_vec());
                    Seen::Rows(result.rows.iter().map(row).collect(), result.more)
                })
            }
            Self::Size(begin, end) if begin <= end => {
                tr.estimated_range_size(*begin, *end).wait().map(Seen::Size)
            }
            Self::Size(..) | Self::Watch(_) => Ok(Seen::Done),
            Self::Set(key) => {
                tr.set(key, seed.to_string());
                Ok(Seen::Done)
            }
            Self::Add(key) => {
                tr.atomic_op(key, b"\x01\0\0\0", MutationType::Add);
                Ok(Seen::Done)
            }
            Self::ClearRange(begin, end) => {
                tr.clear_range(begin, end);
                Ok(Seen::Done)
            }
            Self::Depend(begin, end) => tr.add_read_conflict_range(begin, end).map(|()| Seen::Done),
            Self::Mapped(is_index, map, limit, reverse) => {
                let primary = if *is_index { "index" } else { "secret" };
                let range = RangeOptions::prefix(tuple(&[primary])).limit(*limit).reverse(*reverse);
                let found = tr.get_mapped_range(range, map.mapper()).wait()?;
                Ok(Seen::Mapped(found.rows.into_iter().map(|row| row.mapped).collect()))
            }
        }
    }
}
