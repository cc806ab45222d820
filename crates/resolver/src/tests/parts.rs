//! The parts by themselves, where the whole would seldom take them.
//!
//! The hash table when hashes collide, the trees when they are deep, the order of points when it is
//! made in pieces.

use super::random::{Keys as TestKeys, Random};
use crate::hash::Hasher;
use crate::keys::{Keys, eight_bytes, sixteen_bytes};
use crate::points::Points;
use crate::tree::{Kind, Tree};
use crate::{Resolver, Transaction, Verdict};
use plinth_types::{Conflicts, Version};
use std::collections::{BTreeMap, HashSet};

#[test]
fn keys_that_share_a_hash_are_told_apart() {
    // From "all keys in one place with one tag" to a usual hash.
    for (round, mask) in [0, 0xffff, 0xffff << 48, u64::MAX].into_iter().enumerate() {
        let mut random = Random::new(round as u64);
        let (mut keys, mut points) = (Keys::new(), Points::with_capacity(1000));
        let hash = |key: &[u8]| Hasher::new(1).hash(key) & mask;
        let (universe, mut model) = (TestKeys::of(0, 1000), BTreeMap::new());
        while (points.newest() as usize) < points.capacity() {
            let key = universe.key(&mut random);
            points.write(&mut keys, hash(&key), &key, points.newest());
            model.insert(key, points.newest());
            let key = universe.key(&mut random);
            let newest = model.get(&key).copied().unwrap_or(0);
            for after in [0, newest.saturating_sub(1), newest, points.newest()] {
                assert_eq!(
                    points.written_after(&keys, hash(&key), &key, after),
                    newest > after,
                    "{key:?}"
                );
            }
        }
        points.check(&keys, hash);
    }
}

#[test]
fn hashes_spread_and_depend_on_every_byte_the_length_and_the_seed() {
    let mut hashes = HashSet::new();
    let mut keys: Vec<Vec<u8>> = (0..40).map(|length| vec![0; length]).collect();
    for length in 1..40 {
        for byte in 0..length {
            keys.push((0..length).map(|at| u8::from(at == byte)).collect());
        }
    }
    for seed in 0..8 {
        hashes.extend(keys.iter().map(|key| Hasher::new(seed).hash(key)));
    }
    assert_eq!(hashes.len(), 8 * keys.len());
    let mut buckets = [0; 64];
    (0..64_000u32)
        .for_each(|n| buckets[(Hasher::new(0).hash(&n.to_be_bytes()) >> 58) as usize] += 1);
    assert!(buckets.iter().all(|count| (800..1200).contains(count)), "{buckets:?}");
}

#[test]
fn heads_are_the_bytes_behind_the_depth_with_zeros_behind_the_end() {
    let bytes: Vec<u8> = (1..=40).collect();
    for length in 0..bytes.len() {
        for depth in 0..=length {
            let key = &bytes[..length];
            let padded = [&key[depth..], &[0; 16]].concat();
            assert_eq!(eight_bytes(key, depth).to_be_bytes(), padded[..8], "{length} {depth}");
            assert_eq!(sixteen_bytes(key, depth).to_be_bytes(), padded[..16], "{length} {depth}");
        }
    }
}

#[test]
fn a_tree_of_points_is_an_ordered_map() {
    for kind in 0..6 {
        let mut random = Random::new(kind as u64);
        let universe = TestKeys::of(kind, 20_000);
        let (mut keys, mut tree) = (Keys::new(), Tree::new(Kind::Points));
        let mut model: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        for step in 0..10_000 {
            let (key, stamp) = (universe.key(&mut random), 1 + random.below(1000) as u32);
            let at = keys.push(&key);
            tree.put(&keys, at, stamp);
            let newest = model.entry(key).or_default();
            *newest = stamp.max(*newest);
            let (range, after) = (universe.range(&mut random), random.below(1000) as u32);
            let expected = model
                .range(range.begin.to_vec()..range.end.to_vec())
                .any(|(_, stamp)| *stamp > after);
            assert_eq!(
                tree.any(&keys, &range.begin, &range.end, after),
                expected,
                "step {step}: {range:?}"
            );
        }
        let found = tree.check(&keys);
        let found = found.iter().map(|(at, stamp)| (keys.get(*at).to_vec(), *stamp));
        model.entry(Vec::new()).or_insert(0);
        assert!(found.eq(model), "kind {kind}");
        tree.clear();
        assert_eq!(tree.check(&keys), [(Keys::EMPTY, 0)]);
    }
}

#[test]
fn a_tree_of_steps_is_a_step_function() {
    for kind in 0..6 {
        let mut random = Random::new(kind as u64);
        let universe = TestKeys::of(kind, 3000);
        let (mut keys, mut tree) = (Keys::new(), Tree::new(Kind::Steps));
        // The stamp from a key on.
        let mut model: BTreeMap<Vec<u8>, u32> = BTreeMap::from([(Vec::new(), 0)]);
        for stamp in 1..4000 {
            let range = universe.range(&mut random);
            let (begin, end) = (range.begin.to_vec(), range.end.to_vec());
            tree.raise(&mut keys, &begin, &end, stamp);
            let behind = *model.range(..=end.clone()).next_back().unwrap().1;
            model.retain(|key, _| !(&begin..&end).contains(&key));
            model.insert(begin, stamp);
            model.insert(end, behind);

            let (range, after) = (universe.range(&mut random), random.below(stamp as usize) as u32);
            let (begin, end) = (range.begin.to_vec(), range.end.to_vec());
            let at_begin = *model.range(..=begin.clone()).next_back().unwrap().1;
            assert_eq!(
                tree.is_raised(&keys, &begin, after),
                at_begin > after,
                "stamp {stamp}: {range:?}"
            );
            let expected = at_begin > after
                || model.range(begin.clone()..end.clone()).any(|step| *step.1 > after);
            assert_eq!(tree.any(&keys, &begin, &end, after), expected, "stamp {stamp}: {range:?}");
        }
        tree.check(&keys);
    }
}

/// Points in tens of thousands, read by ranges and points of every age: the order is made in
/// pieces, the trees are deep.
#[test]
fn many_points_agree_with_an_ordered_map() {
    for kind in [1, 3] {
        let mut random = Random::new(kind as u64);
        let universe = TestKeys::of(kind, 300_000);
        let mut resolver = Resolver::new(0);
        let mut model: BTreeMap<Vec<u8>, Version> = BTreeMap::new();
        let mut verdicts = Vec::new();
        for batch in 1..=400 {
            let version = batch * 1000;
            let (mut writer, mut reader) = (Conflicts::default(), Conflicts::default());
            (0..200).for_each(|_| writer.writes.push_single(&universe.key(&mut random)));
            let oldest = 1 + random.below(batch as usize);
            reader.read_version = version - 1000 * (1 + random.below(oldest) as Version);
            for _ in 0..random.below(8) {
                let begin = universe.key(&mut random);
                let end = [&begin[..begin.len() - 1], &[0xff]].concat();
                reader.reads.push(&begin, &end);
                reader.reads.push_single(&begin);
            }
            let batch = [&reader, &writer].map(|conflicts| Transaction { conflicts, report: true });
            resolver.resolve(version, &batch, &mut verdicts);
            let is_conflict = |(_, read): &(usize, plinth_types::RangeRef<'_>)| {
                let keys = model.range(read.begin.to_vec()..read.end_key().to_vec());
                keys.into_iter().any(|(_, written)| *written > reader.read_version)
            };
            let reads: Vec<usize> =
                reader.reads.iter().enumerate().filter(is_conflict).map(|read| read.0).collect();
            let expected =
                if reads.is_empty() { Verdict::Commit } else { Verdict::Conflict { reads } };
            assert_eq!(verdicts, [expected, Verdict::Commit], "batch {version}");
            model.extend(writer.writes.iter().map(|write| (write.begin.to_vec(), version)));
        }
        resolver.check_invariants();
    }
}
