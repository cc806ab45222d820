//! What is read and written: ranges, selectors, atomic operations, versionstamps, special keys,
//! estimates.
//!
//! Atomic operations stand here once more as functions of the old value and the operand; the model
//! uses them too.

use crate::Test;
use crate::support::{Chance, begin, code, get, kept, rows, seen, set, together, write};
use foundationdb::options::{MutationType, StreamingMode};
use foundationdb::{Database, KeySelector, RangeOption};
use futures::executor::block_on;
use std::collections::BTreeSet;

pub const TESTS: &[Test] = &[
    ("every_streaming_mode_gives_the_same_rows", modes),
    ("selectors_find_what_a_list_says", selectors),
    ("atomic_operations_are_their_definitions", atomics),
    ("additions_at_once_lose_nothing", additions),
    ("versionstamps", versionstamps),
    ("special_keys", special),
    ("where_rows_are_and_how_many_bytes", places),
];

fn modes(db: &Database, _: &mut Chance) {
    let want: Vec<_> = (0..2500).map(|i| (format!("k{i:05}").into_bytes(), vec![b'v'; i % 300])).collect();
    write(db, |tr| want.iter().for_each(|(key, value)| tr.set(key, value)));
    let backwards: Vec<_> = want.iter().rev().cloned().collect();
    use StreamingMode::{Exact, Iterator, Large, Medium, Serial, Small, WantAll};
    for (at, mode) in [WantAll, Iterator, Exact, Small, Medium, Large, Serial].into_iter().enumerate() {
        for reverse in [false, true] {
            let limit = (at == 2).then_some(10_000);
            let range = RangeOption { limit, reverse, mode, ..RangeOption::from((&b"k"[..], &b"l"[..])) };
            let found = rows(&begin(db), range, false).expect("a read");
            assert!(
                found == *if reverse { &backwards } else { &want },
                "mode {at} {reverse}: {}",
                found.len()
            );
        }
    }
}

/// The key that a selector finds in sorted keys: empty before all, `\xff` past them.
pub fn select(keys: &[Vec<u8>], key: &[u8], or_equal: bool, offset: i64) -> Vec<u8> {
    let before =
        keys.iter().filter(|other| if or_equal { &other[..] <= key } else { &other[..] < key }).count();
    match usize::try_from(before as i64 + offset - 1) {
        Err(_) => Vec::new(),
        Ok(at) => keys.get(at).cloned().unwrap_or_else(|| vec![0xff]),
    }
}

fn selectors(db: &Database, chance: &mut Chance) {
    let mut visible = BTreeSet::new();
    let tr = begin(db);
    for i in 0..80 {
        let key = chance.bytes(1, 4, b"abc");
        if i < 60 {
            set(db, &[(&key, b"db")]);
        } else {
            tr.set(&key, b"own");
        }
        visible.insert(key);
    }
    tr.clear_range(b"b", b"bb");
    let keys: Vec<Vec<u8>> =
        visible.into_iter().filter(|key| !(&b"b"[..]..&b"bb"[..]).contains(&&key[..])).collect();
    for _ in 0..500 {
        let (key, or_equal, offset) =
            (chance.bytes(0, 4, b"abcd"), chance.one_in(2), chance.between(-15, 15));
        let selector = KeySelector::new((&key[..]).into(), or_equal, offset as i32);
        let found = block_on(tr.get_key(&selector, false)).expect("a key").to_vec();
        assert_eq!(found, select(&keys, &key, or_equal, offset), "{key:?} {or_equal} {offset}");
    }
    let between = RangeOption {
        begin: KeySelector::new((&keys[0][..]).into(), false, 4),
        end: KeySelector::new((&b"z"[..]).into(), false, -1),
        ..RangeOption::default()
    };
    let found: Vec<_> = rows(&tr, between, false).expect("a read").into_iter().map(|(key, _)| key).collect();
    assert_eq!(found, keys[3..keys.len() - 2]);
}

/// The atomic operations that a test picks of.
pub const OPERATIONS: [MutationType; 10] = [
    MutationType::Add,
    MutationType::BitAnd,
    MutationType::BitOr,
    MutationType::BitXor,
    MutationType::Max,
    MutationType::Min,
    MutationType::ByteMax,
    MutationType::ByteMin,
    MutationType::AppendIfFits,
    MutationType::CompareAndClear,
];

/// What an operation makes of an old value, if there is one, and an operand.
pub fn apply(operation: MutationType, old: Option<&[u8]>, operand: &[u8]) -> Option<Vec<u8>> {
    let cut: Vec<u8> =
        (0..operand.len()).map(|at| old.and_then(|old| old.get(at)).copied().unwrap_or(0)).collect();
    let pairs = cut.iter().zip(operand);
    let number = |bytes: &[u8]| bytes.iter().rev().copied().collect::<Vec<u8>>();
    Some(match (operation, old) {
        (MutationType::Add, _) => {
            let mut carry = 0;
            let digit = |(a, b): (&u8, &u8)| {
                carry += u16::from(*a) + u16::from(*b);
                let low = carry as u8;
                carry >>= 8;
                low
            };
            pairs.map(digit).collect()
        }
        (MutationType::BitOr, _) => pairs.map(|(a, b)| a | b).collect(),
        (MutationType::BitXor, _) => pairs.map(|(a, b)| a ^ b).collect(),
        (MutationType::AppendIfFits, old) => [old.unwrap_or_default(), operand].concat(),
        (MutationType::CompareAndClear, None) => return None,
        (MutationType::CompareAndClear, Some(old)) => return (old != operand).then(|| old.to_vec()),
        (_, None) => operand.to_vec(),
        (MutationType::BitAnd, _) => pairs.map(|(a, b)| a & b).collect(),
        (MutationType::Max, _) if number(&cut) > number(operand) => cut,
        (MutationType::Min, _) if number(&cut) < number(operand) => cut,
        (MutationType::ByteMax, Some(old)) if old > operand => old.to_vec(),
        (MutationType::ByteMin, Some(old)) if old < operand => old.to_vec(),
        _ => operand.to_vec(),
    })
}

fn atomics(db: &Database, chance: &mut Chance) {
    for round in 0..600 {
        let operation = OPERATIONS[round % OPERATIONS.len()];
        let operand = chance.bytes(1, 5, &[0, 1, 2, 255]);
        let old = match chance.between(0, 4) {
            0 => None,
            1 => Some(operand.clone()),
            _ => Some(chance.bytes(1, 5, &[0, 1, 2, 255])),
        };
        let want = apply(operation, old.as_deref(), &operand);
        write(db, |tr| {
            tr.clear(b"k");
            old.iter().for_each(|old| tr.set(b"k", old));
        });
        let tr = begin(db);
        tr.atomic_op(b"k", &operand, operation);
        assert_eq!(seen(&tr, b"k"), want, "{round} {old:?} {operand:?}");
        block_on(tr.commit()).expect("a commit");
        assert_eq!(kept(db, b"k"), want, "{round} {old:?} {operand:?}, kept");
    }
}

fn additions(db: &Database, _: &mut Chance) {
    together(8, |_| (0..60).for_each(|_| write(db, |tr| tr.atomic_op(b"n", &[1, 0, 0], MutationType::Add))));
    assert_eq!(kept(db, b"n"), Some(vec![0xe0, 1, 0]));
}

fn versionstamps(db: &Database, _: &mut Chance) {
    let tr = begin(db);
    tr.atomic_op(b"k/0123456789/end\x02\0\0\0", b"v", MutationType::SetVersionstampedKey);
    tr.atomic_op(b"value", b"<0123456789>\x01\0\0\0", MutationType::SetVersionstampedValue);
    assert_eq!(code(get(&tr, b"value")), 1036);
    let mut tr = tr.cancel().reset();
    tr.reset();
    tr.atomic_op(b"k/0123456789/end\x02\0\0\0", b"v", MutationType::SetVersionstampedKey);
    tr.atomic_op(b"value", b"<0123456789>\x01\0\0\0", MutationType::SetVersionstampedValue);
    let stamp = tr.get_versionstamp();
    block_on(tr.commit()).expect("a commit");
    let stamp = block_on(stamp).expect("a stamp").to_vec();
    assert_eq!(kept(db, &[b"k/", &stamp[..], b"/end"].concat()), Some(b"v".to_vec()));
    assert_eq!(kept(db, b"value"), Some([b"<", &stamp[..], b">"].concat()));
    let log = |tr: &foundationdb::Transaction| {
        tr.atomic_op(b"log/0123456789\x04\0\0\0", b"", MutationType::SetVersionstampedKey);
    };
    together(4, |_| (0..25).for_each(|_| write(db, log)));
    let range = RangeOption::from((&b"log/"[..], &b"log0"[..]));
    assert_eq!(rows(&begin(db), range, false).expect("a read").len(), 100);
    let bad = begin(db);
    bad.atomic_op(b"abc", b"", MutationType::SetVersionstampedKey);
    assert_eq!(code(block_on(bad.commit())), 2000);
}

fn special(db: &Database, _: &mut Chance) {
    let status = kept(db, b"\xff\xff/status/json").expect("a status");
    assert!(String::from_utf8_lossy(&status).contains("\"cluster\""));
    let client = block_on(db.get_client_status()).expect("a status");
    assert!(String::from_utf8_lossy(&client).replace(' ', "").contains("\"Healthy\":true"));
    let tr = begin(db);
    get(&tr, b"r").expect("a read");
    tr.set(b"w", b"");
    for (kind, key) in [("read", b"r"), ("write", b"w")] {
        let prefix = [&b"\xff\xff/transaction/"[..], kind.as_bytes(), b"_conflict_range/"].concat();
        let end = [&prefix[..], b"\xff"].concat();
        let found = rows(&tr, RangeOption::from((&prefix[..], &end[..])), false).expect("a read");
        let want = vec![
            ([&prefix[..], key].concat(), b"1".to_vec()),
            ([&prefix[..], key, b"\0"].concat(), b"0".to_vec()),
        ];
        assert_eq!(found, want);
    }
    assert_eq!(code(get(&tr, b"\xff\xff/no/such/module")), 2113);
    assert_eq!(code(get(&tr, b"\xff/conf")), 2004);
}

fn places(db: &Database, _: &mut Chance) {
    for page in 0..20 {
        write(db, |tr| (0..50).for_each(|n| tr.set(format!("e{page:02}{n:02}").as_bytes(), &[1; 1000])));
    }
    let tr = begin(db);
    assert!(block_on(tr.get_estimated_range_size_bytes(b"e", b"f")).expect("a size") >= 0);
    let points = block_on(tr.get_range_split_points(b"e", b"f", 100_000)).expect("points");
    let points: Vec<&[u8]> = points.iter().map(|point| point.key()).collect();
    assert_eq!((points.first(), points.last()), (Some(&&b"e"[..]), Some(&&b"f"[..])));
    assert!(!block_on(tr.get_addresses_for_key(b"e")).expect("addresses").is_empty());
    let small = block_on(tr.get_approximate_size()).expect("a size");
    tr.set(b"k", &[1; 1000]);
    assert!(block_on(tr.get_approximate_size()).expect("a size") >= small + 1000);
}
