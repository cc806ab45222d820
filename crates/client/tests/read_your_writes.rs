//! Random programs of all operations against a plain model: values, selectors, ranges, and the
//! conflict ranges that each read adds; with answers at once, and late and in random order. The
//! model materialises the database and the writes; a program that disagrees prints its seed.

mod support;

use plinth_client::{
    Get, KeySelector, MutationType, RangeOptions, RangeResult, Reply, StreamingMode, Transaction,
    TransactionOption,
};
use plinth_types::Bytes;
use std::collections::BTreeMap;
use support::model::{
    Intervals, MAX, Model, RangeAnswer, RangeLimits, Selector, after, random_key,
};
use support::{Random, StandIn};

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// A read under way, and what it must give.
enum Read {
    Value(Get, Result<Option<Vec<u8>>, i32>),
    Key(Reply<Bytes>, Result<Vec<u8>, i32>),
    Range(Reply<RangeResult>, Result<RangeAnswer, i32>),
}

struct Program {
    random: Random,
    tr: Transaction,
    model: Model,
    pending: Vec<(String, Read)>,
    /// What was done, for the message of a failure.
    log: Vec<String>,
    stamps: bool,
}

impl Program {
    fn note(&mut self, what: String) {
        self.log.push(what);
    }

    fn value(&mut self) -> Vec<u8> {
        (0..self.random.below(6)).map(|_| self.random.next() as u8).collect()
    }

    fn write(&mut self) {
        let key = random_key(&mut self.random);
        match self.random.below(10) {
            0..=3 => {
                let value = self.value();
                self.note(format!("set {key:?} {value:?}"));
                self.tr.set(&key, &value);
                self.model.mutate(&key, MutationType::Set, &value);
            }
            4 => {
                self.note(format!("clear {key:?}"));
                self.tr.clear(&key);
                self.model.clear(&key, &after(&key));
            }
            5 => {
                let other = random_key(&mut self.random);
                let (begin, end) = if key < other { (key, other) } else { (other, key) };
                self.note(format!("clear_range {begin:?} {end:?}"));
                self.tr.clear_range(&begin, &end);
                self.model.clear(&begin, &end);
            }
            6 if self.stamps => self.write_stamped(&key),
            _ => {
                use MutationType as M;
                if self.model.bypass && self.model.unreadable.contains(&key) {
                    return;
                }
                let kinds = [
                    M::Add,
                    M::BitAndV2,
                    M::BitOr,
                    M::BitXor,
                    M::AppendIfFits,
                    M::Max,
                    M::MinV2,
                    M::ByteMin,
                    M::ByteMax,
                    M::CompareAndClear,
                ];
                let kind = *self.random.pick(&kinds);
                let operand = self.value();
                self.note(format!("{kind:?} {key:?} {operand:?}"));
                self.tr.atomic_op(&key, &operand, kind);
                self.model.mutate(&key, kind, &operand);
            }
        }
    }

    fn write_stamped(&mut self, key: &[u8]) {
        let value = self.value();
        if self.random.chance(50) {
            let operand = [&value[..], &[7; 10], &(value.len() as i32).to_le_bytes()].concat();
            self.note(format!("set_versionstamped_value {key:?} {operand:?}"));
            self.tr.set_versionstamped_value(key, &operand);
            self.model.mutate(key, MutationType::SetVersionstampedValue, &operand);
        } else {
            let stamped = [key, &[9; 10], b"z", &(key.len() as i32).to_le_bytes()].concat();
            self.note(format!("set_versionstamped_key {stamped:?}"));
            self.tr.set_versionstamped_key(&stamped, &value);
            self.model.mutate(&stamped, MutationType::SetVersionstampedKey, &value);
        }
    }

    fn selector(&mut self) -> (KeySelector, Selector) {
        let key = if self.random.chance(5) { MAX.to_vec() } else { random_key(&mut self.random) };
        let or_equal = self.random.chance(50);
        let offset = if self.random.chance(60) { 1 } else { self.random.below(13) as i32 - 6 };
        let plain = if or_equal { after(&key) } else { key.clone() };
        (KeySelector::new(key, or_equal, offset), Selector { key: plain, offset: offset.into() })
    }

    fn read(&mut self) {
        let snapshot = self.random.chance(25);
        match self.random.below(6) {
            0..=1 => {
                let key = random_key(&mut self.random);
                let what = format!("get {key:?} snapshot {snapshot}");
                let get = if snapshot { self.tr.snapshot().get(&key) } else { self.tr.get(&key) };
                let expected = self.model.get(&key, snapshot);
                self.pending.push((what, Read::Value(get, expected)));
            }
            2 => {
                let (selector, plain) = self.selector();
                let what = format!("get_key {selector:?} snapshot {snapshot}");
                let reply = if snapshot {
                    self.tr.snapshot().get_key(selector)
                } else {
                    self.tr.get_key(selector)
                };
                let expected = self.model.get_key(&plain, snapshot);
                self.pending.push((what, Read::Key(reply, expected)));
            }
            _ => self.read_range(snapshot),
        }
        let what = self.pending.last().unwrap().0.clone();
        self.note(what);
    }

    fn read_range(&mut self, snapshot: bool) {
        let ((begin, plain_begin), (end, plain_end)) = (self.selector(), self.selector());
        let limit = self.random.chance(60).then(|| 1 + self.random.below(8));
        let target_bytes = self.random.chance(30).then(|| 1 + self.random.below(100));
        let modes = [
            StreamingMode::WantAll,
            StreamingMode::Iterator,
            StreamingMode::Small,
            StreamingMode::Medium,
            StreamingMode::Large,
            StreamingMode::Serial,
        ];
        let mode = if limit.is_some() && self.random.chance(30) {
            StreamingMode::Exact
        } else {
            *self.random.pick(&modes)
        };
        let reverse = self.random.chance(40);
        let mut options = RangeOptions::new(begin, end)
            .mode(mode)
            .iteration(1 + self.random.below(3))
            .reverse(reverse);
        (options.limit, options.target_bytes) = (limit, target_bytes);
        let most = |n: Option<usize>| n.unwrap_or(usize::MAX);
        let of_mode = most(mode.target_bytes(options.iteration));
        let limits =
            RangeLimits { rows: most(limit), bytes: most(target_bytes).min(of_mode), reverse };
        let what = format!("get_range {options:?} snapshot {snapshot}");
        let reply = if snapshot {
            self.tr.snapshot().get_range(options)
        } else {
            self.tr.get_range(options)
        };
        let expected = self.model.get_range(&plain_begin, &plain_end, limits, snapshot);
        self.pending.push((what, Read::Range(reply, expected)));
    }

    /// Waits for a read, any of those under way.
    fn settle_one(&mut self) {
        let at = self.random.below(self.pending.len());
        let (what, read) = self.pending.swap_remove(at);
        match read {
            Read::Value(get, expected) => {
                let found = get.wait().map(|value| value.map(|value| value.to_vec()));
                assert_eq!(
                    found.map_err(|error| error.code()),
                    expected,
                    "{what}\n{:#?}",
                    self.log
                );
            }
            Read::Key(reply, expected) => {
                let found = reply.wait().map(|key| key.to_vec());
                assert_eq!(
                    found.map_err(|error| error.code()),
                    expected,
                    "{what}\n{:#?}",
                    self.log
                );
            }
            Read::Range(reply, expected) => {
                let found = reply.wait().map_err(|error| error.code());
                let rows = |result: &RangeResult| -> Rows {
                    result.rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
                };
                let found = found.map(|result| (rows(&result), result.more));
                let expected = expected.map(|answer| (answer.rows, answer.more));
                assert_eq!(found, expected, "{what}\n{:#?}", self.log);
            }
        }
    }

    fn settle(&mut self) {
        while !self.pending.is_empty() {
            self.settle_one();
        }
    }

    /// Compares the read conflict ranges with the model's.
    fn check_conflicts(&mut self) {
        self.settle();
        let prefix = b"\xff\xff/transaction/read_conflict_range/";
        let range = RangeOptions::prefix(prefix).mode(StreamingMode::WantAll);
        let Ok(result) = self.tr.get_range(range).wait() else {
            // A read has failed: then this one does, too.
            return;
        };
        let mut found = Intervals::default();
        let mut begin = None;
        for (key, value) in result.rows.iter() {
            let key = key[prefix.len()..].to_vec();
            match value {
                b"1" => begin = Some(key),
                _ => found.add(&begin.take().expect("a range begins before it ends"), &key),
            }
        }
        assert_eq!(found, self.model.conflicts, "{:#?}", self.log);
    }
}

fn run(seed: u64, delayed: bool) {
    let mut random = Random::new(seed);
    let (endpoint, db) = StandIn::new(delayed, seed);
    let mut database = BTreeMap::new();
    for _ in 0..random.below(25) {
        database.insert(random_key(&mut random), vec![random.next() as u8; random.below(5)]);
    }
    let rows: Vec<(&[u8], &[u8])> =
        database.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    endpoint.load(&rows);
    let tr = db.create_transaction();
    let mut model = Model::new(database);
    let mode = random.below(8);
    if mode == 0 {
        tr.set_option(TransactionOption::ReadYourWritesDisable).unwrap();
        model.ryw_disabled = true;
    }
    if mode == 1 {
        tr.set_option(TransactionOption::SnapshotRywDisable).unwrap();
        model.snapshot_ryw = 0;
    }
    if mode == 2 {
        tr.set_option(TransactionOption::BypassUnreadable).unwrap();
        model.bypass = true;
    }
    let stamps = mode >= 2 && random.chance(40);
    if stamps {
        model.version = tr.get_read_version().wait().unwrap();
    }
    let mut program = Program {
        random,
        tr,
        model,
        pending: Vec::new(),
        log: vec![format!("seed {seed}")],
        stamps,
    };
    for _ in 0..40 {
        if program.random.chance(45) {
            program.write();
        } else {
            program.read();
        }
        if !program.pending.is_empty() && program.random.chance(60) {
            program.settle_one();
        }
        // Half of the programs look after each step, half let reads pile up.
        if seed.is_multiple_of(2) || program.random.chance(10) {
            program.check_conflicts();
        }
    }
    program.check_conflicts();
}

/// How many programs to run: few in a test run, any number with
/// `PLINTH_PROGRAMS=100000 cargo test --release`.
fn programs(usual: u64) -> u64 {
    std::env::var("PLINTH_PROGRAMS").ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

#[test]
fn reads_see_what_the_model_sees() {
    for seed in 1..=programs(1200) {
        run(seed, false);
    }
}

#[test]
fn late_answers_in_any_order_change_nothing() {
    for seed in 1..=programs(200) {
        run(1_000_000 + seed, true);
    }
}
