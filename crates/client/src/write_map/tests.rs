//! The map against a plain one: random mutations of few keys, applied one by one to a `BTreeMap`.
//!
//! Three things must come to the same: the mutations as they were made, the mutations that the map
//! emits, and what its segments say of each key. Folding in parts must give what folding at once
//! gives.

use super::*;
use plinth_env::simulated::Random;
use plinth_types::{MutationRef, atomic};
use std::collections::BTreeMap;

type Rows = BTreeMap<Vec<u8>, Bytes>;

fn apply(rows: &mut Rows, mutation: MutationRef<'_>) {
    if mutation.kind == MutationType::ClearRange {
        rows.retain(|key, _| !(mutation.param1..mutation.param2).contains(&&key[..]));
        return;
    }
    let old = rows.get(mutation.param1).cloned();
    match atomic::apply(mutation.kind, old.as_deref(), mutation.param2) {
        Some(value) => rows.insert(mutation.param1.to_vec(), Bytes::copy_from_slice(&value)),
        None => rows.remove(mutation.param1),
    };
}

fn random_key(random: &mut Random) -> Vec<u8> {
    let len = random.below(3);
    (0..len).map(|_| *[0, b'a', b'b', 0xfe].get(random.index(4)).unwrap()).collect()
}

fn push_random(random: &mut Random, mutations: &mut MutationList) {
    use MutationType as M;
    let (one, two) = (random_key(random), random_key(random));
    if random.chance(0.2) && one != two {
        return mutations.push(M::ClearRange, (&one).min(&two), (&one).max(&two));
    }
    let kinds = [
        M::Set,
        M::Set,
        M::Add,
        M::BitAndV2,
        M::BitXor,
        M::AppendIfFits,
        M::MinV2,
        M::Max,
        M::ByteMax,
    ];
    let kind =
        if random.chance(0.1) { M::CompareAndClear } else { kinds[random.index(kinds.len())] };
    let operand: Vec<u8> = (0..random.below(3)).map(|_| random.below(3) as u8).collect();
    mutations.push(kind, &one, &operand);
}

/// What the map says that `key` holds if the database has `before`.
fn seen(map: &WriteMap, key: &[u8], before: Option<&Bytes>) -> Option<Bytes> {
    match map.segment(key).kind {
        Kind::Unmodified => before.cloned(),
        Kind::Cleared => None,
        Kind::Independent(operations) => operations.apply(None).unwrap(),
        Kind::Dependent(operations) => operations.apply(before.cloned()).unwrap(),
    }
}

fn check(seed: u64) {
    let mut random = Random::new(seed);
    let mut before = Rows::new();
    for _ in 0..random.below(8) {
        before.insert(
            random_key(&mut random),
            Bytes::from(vec![random.below(3) as u8; random.index(3)]),
        );
    }
    let (mut map, mut mutations, mut folded) = (WriteMap::new(), MutationList::new(), 0);
    for _ in 0..random.in_range(1..40) {
        push_random(&mut random, &mut mutations);
        if random.chance(0.5) {
            folded = map.fold(&mutations, &[], folded);
            map.check_invariants();
        }
    }
    map.fold(&mutations, &[], folded);
    map.check_invariants();
    let (mut direct, mut emitted) = (before.clone(), before.clone());
    mutations.iter().for_each(|mutation| apply(&mut direct, mutation));
    map.mutations().iter().for_each(|mutation| apply(&mut emitted, mutation));
    assert_eq!(emitted, direct, "seed {seed}: {mutations:?} became {:?}", map.mutations());
    for _ in 0..30 {
        let key = random_key(&mut random);
        assert_eq!(
            seen(&map, &key, before.get(&key)),
            direct.get(&key).cloned(),
            "seed {seed}, key {key:?}"
        );
    }
    let forward: Vec<_> =
        map.segments(b"", b"\xff").map(|segment| segment.begin.to_key()).collect();
    let mut segment = map.segment(b"\xfe\xfe\xfe");
    let mut backward = vec![segment.begin.to_key()];
    while let Some(previous) = map.previous(&segment) {
        backward.push(previous.begin.to_key());
        segment = previous;
    }
    backward.reverse();
    assert_eq!(backward, forward, "seed {seed}: both ways lead through the same segments");
}

#[test]
fn the_map_does_what_the_mutations_do() {
    (0..2000).for_each(check);
}
