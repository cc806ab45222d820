//! Random transactions through the C library, each step compared with a plain map.
//!
//! A second transaction commits in between now and then; then the first one must conflict exactly
//! if it had read what the second one wrote, and otherwise its writes come on top.

mod common;

use plinth_client::{KeySelector, RangeOptions, StreamingMode, Transaction};
use plinth_env::simulated::Random;
use plinth_types::{Error, strinc};
use std::collections::{BTreeMap, BTreeSet};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: u64 = 40;
const ROUNDS: usize = 400;

fn key(random: &mut Random) -> Vec<u8> {
    format!("k{:02}", random.below(KEYS)).into_bytes()
}

fn bounds(random: &mut Random) -> (Vec<u8>, Vec<u8>) {
    let (a, b) = (key(random), key(random));
    if a <= b { (a, b) } else { (b, a) }
}

fn add(old: Option<&Vec<u8>>, operand: u64) -> Vec<u8> {
    let mut bytes = [0; 8];
    if let Some(old) = old {
        let len = old.len().min(8);
        bytes[..len].copy_from_slice(&old[..len]);
    }
    u64::from_le_bytes(bytes).wrapping_add(operand).to_le_bytes().to_vec()
}

/// A write, for the database and for the model.
enum Write {
    Set(Vec<u8>, Vec<u8>),
    Clear(Vec<u8>),
    Add(Vec<u8>, u64),
    ClearRange(Vec<u8>, Vec<u8>),
}

impl Write {
    fn random(random: &mut Random) -> Self {
        let at = key(random);
        match random.below(5) {
            0 | 1 => Self::Set(at, vec![b'a' + random.below(26) as u8; random.below(20) as usize]),
            2 => Self::Clear(at),
            3 => Self::Add(at, random.below(1000)),
            _ => {
                let (begin, end) = bounds(random);
                Self::ClearRange(begin, end)
            }
        }
    }

    fn send(&self, tr: &Transaction) {
        match self {
            Self::Set(key, value) => tr.set(key, value),
            Self::Clear(key) => tr.clear(key),
            Self::Add(key, operand) => tr.add(key, operand.to_le_bytes()),
            Self::ClearRange(begin, end) => tr.clear_range(begin, end),
        }
    }

    fn apply(&self, model: &mut Map) {
        match self {
            Self::Set(key, value) => drop(model.insert(key.clone(), value.clone())),
            Self::Clear(key) => drop(model.remove(key)),
            Self::Add(key, operand) => {
                let sum = add(model.get(key), *operand);
                model.insert(key.clone(), sum);
            }
            Self::ClearRange(begin, end) => model.retain(|key, _| !(begin <= key && key < end)),
        }
    }

    /// The keys that it writes, and whether what they hold then depends on what they held.
    fn keys(&self) -> (Vec<Vec<u8>>, bool) {
        match self {
            Self::Set(key, _) | Self::Clear(key) => (vec![key.clone()], false),
            Self::Add(key, _) => (vec![key.clone()], true),
            Self::ClearRange(begin, end) => {
                let all = (0..KEYS).map(|n| format!("k{n:02}").into_bytes());
                (all.filter(|key| begin <= key && key < end).collect(), false)
            }
        }
    }
}

/// The key that a selector describes, by counting.
fn select(model: &Map, selector: &KeySelector) -> Vec<u8> {
    let keys: Vec<&Vec<u8>> = model.keys().collect();
    let below = keys.iter().filter(|key| match selector.or_equal {
        true => key[..] <= selector.key[..],
        false => key[..] < selector.key[..],
    });
    let at = below.count() as i64 - 1 + i64::from(selector.offset);
    match usize::try_from(at) {
        Err(_) => Vec::new(),
        Ok(at) => keys.get(at).map_or(b"\xff".to_vec(), |key| (*key).clone()),
    }
}

/// A random read, compared. Gives the keys that it depends on, as far as that is simple to say.
fn read(random: &mut Random, tr: &Transaction, model: &Map) -> Option<Vec<Vec<u8>>> {
    match random.below(3) {
        0 => {
            let at = key(random);
            let value = tr.get(&at).wait().unwrap();
            assert_eq!(
                value.as_deref(),
                model.get(&at).map(|value| &value[..]),
                "{}",
                at.escape_ascii()
            );
            Some(vec![at])
        }
        1 => {
            let offset = random.below(7) as i32 - 3;
            let selector = KeySelector::new(key(random), random.below(2) == 0, offset);
            let found = tr.get_key(selector.clone()).wait().unwrap();
            assert_eq!(
                found.escape_ascii().to_string(),
                select(model, &selector).escape_ascii().to_string()
            );
            None
        }
        _ => {
            let (begin, end) = bounds(random);
            let (limit, reverse) = (random.below(8) as usize, random.below(2) == 0);
            let mut options = RangeOptions::from(&begin[..]..&end[..])
                .mode(StreamingMode::WantAll)
                .reverse(reverse);
            options.limit = (limit > 0).then_some(limit);
            let rows = tr.range(options).collect_blocking().unwrap();
            let mut wanted: Vec<_> = model.range(begin.clone()..end.clone()).collect();
            if reverse {
                wanted.reverse();
            }
            if limit > 0 {
                wanted.truncate(limit);
            }
            let rows: Vec<_> =
                rows.iter().map(|row| (row.key.to_vec(), row.value.to_vec())).collect();
            let wanted: Vec<_> =
                wanted.into_iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            assert_eq!(rows, wanted);
            None
        }
    }
}

fn run(seed: u64) {
    let db = common::memory();
    let mut random = Random::new(seed);
    let mut committed = Map::new();
    for _ in 0..ROUNDS {
        let tr = db.create_transaction();
        let (mut model, mut writes) = (committed.clone(), Vec::new());
        // The keys read from the database; `None` once a read depends on more than can be said
        // simply.
        let mut read_keys: Option<BTreeSet<Vec<u8>>> = Some(BTreeSet::new());
        let mut decided = BTreeSet::new();
        tr.get_read_version().wait().unwrap();
        for _ in 0..random.below(8) {
            if random.below(2) == 0 {
                let write = Write::random(&mut random);
                write.send(&tr);
                write.apply(&mut model);
                if let (keys, false) = write.keys() {
                    decided.extend(keys);
                }
                writes.push(write);
            } else {
                match (read(&mut random, &tr, &model), &mut read_keys) {
                    (Some(keys), Some(known)) => {
                        known.extend(keys.into_iter().filter(|key| !decided.contains(key)))
                    }
                    _ => read_keys = None,
                }
            }
        }
        let mut meanwhile = BTreeSet::new();
        if random.below(3) == 0 {
            let (other, write) = (db.create_transaction(), Write::random(&mut random));
            write.send(&other);
            other.commit().wait().unwrap();
            write.apply(&mut committed);
            meanwhile.extend(write.keys().0);
        }
        if random.below(5) == 0 {
            continue;
        }
        let result = tr.commit().wait();
        if let Some(read_keys) = read_keys {
            let conflict =
                !writes.is_empty() && read_keys.intersection(&meanwhile).next().is_some();
            assert_eq!(
                result.is_err(),
                conflict,
                "{result:?} read {read_keys:?} meanwhile {meanwhile:?}"
            );
        }
        match result {
            Ok(()) => writes.iter().for_each(|write| write.apply(&mut committed)),
            Err(error) => assert_eq!(error, Error::not_committed()),
        }
        assert_eq!(dump(&db), committed);
    }
}

fn dump(db: &plinth_client::Database) -> Map {
    let end = strinc(b"k").unwrap();
    let rows =
        db.create_transaction().range(RangeOptions::from(&b"k"[..]..&end[..])).collect_blocking();
    rows.unwrap().into_iter().map(|row| (row.key.to_vec(), row.value.to_vec())).collect()
}

#[test]
fn transactions_through_the_library_agree_with_a_map() {
    for seed in 0..6 {
        println!("seed {seed}");
        run(seed);
    }
}
