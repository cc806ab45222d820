//! Random transactions on the database and on a model of it, a map: each read, and all rows at the
//! end, must be the same.

use crate::Test;
use crate::data::{OPERATIONS, apply, select};
use crate::support::{Chance, begin, rows};
use foundationdb::options::StreamingMode;
use foundationdb::{Database, KeySelector, RangeOption, Transaction};
use futures::executor::block_on;
use std::collections::BTreeMap;

pub const TESTS: &[Test] = &[("random_transactions_follow_a_model", random)];

type View = BTreeMap<Vec<u8>, Vec<u8>>;

fn random(db: &Database, chance: &mut Chance) {
    let mut committed = View::new();
    for _ in 0..300 {
        let tr = begin(db);
        let mut view = committed.clone();
        for _ in 0..chance.between(1, 40) {
            step(&tr, &mut view, chance);
        }
        if !chance.one_in(5) {
            block_on(tr.commit()).expect("a commit");
            committed = view;
        }
    }
    let found = rows(&begin(db), RangeOption::from((&b""[..], &b"\xff"[..])), false).expect("a read");
    assert!(found.into_iter().eq(committed));
}

fn step(tr: &Transaction, view: &mut View, chance: &mut Chance) {
    let key = |chance: &mut Chance| chance.bytes(0, 3, b"\0ab\xfe");
    let (one, two) = (key(chance), key(chance));
    let (low, high) = if one < two { (one.clone(), two) } else { (two, one.clone()) };
    let snapshot = chance.one_in(3);
    match chance.between(0, 10) {
        0..=2 => {
            let value = chance.bytes(0, 4, b"xyz");
            tr.set(&one, &value);
            view.insert(one, value);
        }
        3 => {
            tr.clear(&one);
            view.remove(&one);
        }
        4 => {
            tr.clear_range(&low, &high);
            view.retain(|key, _| !(&low..&high).contains(&key));
        }
        5..=6 => {
            let (operation, operand) = (chance.pick(&OPERATIONS), chance.bytes(1, 4, b"\0\x01\xff"));
            tr.atomic_op(&one, &operand, operation);
            match apply(operation, view.get(&one).map(|old| &old[..]), &operand) {
                Some(value) => view.insert(one, value),
                None => view.remove(&one),
            };
        }
        7 => {
            let found = block_on(tr.get(&one, snapshot)).expect("a read").map(|value| value.to_vec());
            assert_eq!(found.as_ref(), view.get(&one), "{one:?}");
        }
        8 => {
            let (or_equal, offset) = (chance.one_in(2), chance.between(-5, 5));
            let selector = KeySelector::new((&one[..]).into(), or_equal, offset as i32);
            let found = block_on(tr.get_key(&selector, snapshot)).expect("a key").to_vec();
            let keys: Vec<Vec<u8>> = view.keys().cloned().collect();
            assert_eq!(found, select(&keys, &one, or_equal, offset), "{one:?} {or_equal} {offset}");
        }
        _ => range(tr, view, chance, (&low, &high), snapshot),
    }
}

fn range(tr: &Transaction, view: &View, chance: &mut Chance, (low, high): (&[u8], &[u8]), snapshot: bool) {
    let (limit, reverse) = (chance.pick(&[0, 0, 1, 2, 5]), chance.one_in(2));
    let mode = match chance.between(0, 3) {
        0 => StreamingMode::WantAll,
        1 => StreamingMode::Iterator,
        2 => StreamingMode::Small,
        _ => StreamingMode::Serial,
    };
    let mut want: Vec<_> = view.iter().filter(|(key, _)| (low..high).contains(&&key[..])).collect();
    if reverse {
        want.reverse();
    }
    want.truncate(if limit == 0 { usize::MAX } else { limit });
    let options =
        RangeOption { limit: (limit > 0).then_some(limit), reverse, mode, ..RangeOption::from((low, high)) };
    let found = rows(tr, options, snapshot).expect("a read");
    assert!(found.iter().map(|(key, value)| (key, value)).eq(want), "{low:?} {high:?} {limit} {reverse}");
}
