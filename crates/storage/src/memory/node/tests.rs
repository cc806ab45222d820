use super::*;
use crate::memory::arena::Arena;
use crate::memory::record;
use plinth_env::simulated::Random;

fn leaf_of<'a>(arena: &mut Arena, keys: &[Vec<u8>], prefix_len: usize) -> LeafRef<'a> {
    let mut builder = LeafBuilder::new(arena, prefix_len);
    for key in keys {
        let record = record::create(arena, 1, key, Some(b"v"), None);
        builder.push(record, key);
    }
    // SAFETY: the test keeps the arena until it is done with the leaf.
    match unsafe { NodeRef::new(builder.finish()) }.kind() {
        Node::Leaf(leaf) => leaf,
        Node::Inner(_) => unreachable!(),
    }
}

fn sorted_keys(random: &mut Random, count: usize, prefix: &[u8]) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..count)
        .map(|_| {
            // Few different bytes and lengths around eight: equal heads, prefixes of each other,
            // zeros.
            let len = random.index(12);
            let tail = (0..len).map(|_| [0, 0, 1, b'a', 0xff][random.index(5)]);
            prefix.iter().copied().chain(tail).collect()
        })
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

#[test]
fn heads_compare_as_the_bytes_do() {
    assert_eq!(head(b"abcdefghij", 2), u64::from_be_bytes(*b"cdefghij"));
    assert_eq!(head(b"ab", 1), u64::from_be_bytes(*b"b\0\0\0\0\0\0\0"));
    assert_eq!(head(b"ab", 5), 0);
    assert_eq!(shortest_between(b"abc", b"abd"), b"abd");
    assert_eq!(shortest_between(b"ab", b"abcd"), b"abc");
    assert_eq!(shortest_between(b"a", b"cd"), b"c");
}

#[test]
fn a_leaf_finds_each_key_and_the_place_of_each_other() {
    for seed in 0..if cfg!(miri) { 2 } else { 300 } {
        let mut random = Random::new(seed);
        let mut arena = Arena::new();
        let prefix: &[u8] = [&b""[..], b"p", b"some longer prefix"][random.index(3)];
        let count = random.index(LEAF_SLOTS) + 1;
        let keys = sorted_keys(&mut random, count, prefix);
        let shared = common_prefix(&keys[0], &keys[keys.len() - 1]);
        let leaf = leaf_of(&mut arena, &keys, random.index(shared + 1));
        let mut probes = keys.clone();
        probes.extend(sorted_keys(&mut random, 40, prefix));
        probes.extend(sorted_keys(&mut random, 20, b"so"));
        probes.extend([vec![], vec![0xff; 20], prefix.to_vec()]);
        for probe in &probes {
            let expected = keys.partition_point(|key| key < probe);
            assert_eq!(leaf.seek(probe, 0), expected, "seed {seed}, {probe:?} in {keys:?}");
            let verified = common_prefix(probe, prefix);
            assert_eq!(leaf.seek(probe, verified), expected, "seed {seed}, verified");
            let found =
                leaf.candidate(probe).and_then(|at| leaf.confirm(at, probe)).map(|(at, _)| at);
            assert_eq!(found, keys.binary_search(probe).ok(), "seed {seed}, {probe:?}");
        }
    }
}

#[test]
fn an_inner_node_routes_as_its_separators_say() {
    for seed in 0..if cfg!(miri) { 3 } else { 300 } {
        let mut random = Random::new(seed);
        let mut arena = Arena::new();
        let prefix: &[u8] =
            [&b""[..], b"p", b"some prefix that is longer than the tail"][random.index(3)];
        let count = random.index(INNER_CHILDREN - 1) + 1;
        let separators = sorted_keys(&mut random, count, prefix);
        let child = leaf_of(&mut arena, &[], 0).node();
        let mut builder = InnerBuilder::default();
        builder.children.extend((0..=separators.len()).map(|_| child.as_ptr()));
        for separator in &separators {
            builder.separators.push(Separator::create(&mut arena, separator).as_ptr());
        }
        // SAFETY: children and separators were just made, in order.
        let node =
            unsafe { NodeRef::new(builder.build(&mut arena, 1, 0..builder.children.len(), None)) };
        let Node::Inner(inner) = node.kind() else { unreachable!() };
        let mut probes = separators.clone();
        probes.extend(sorted_keys(&mut random, 40, prefix));
        probes.extend(sorted_keys(&mut random, 20, b"some prefix that is"));
        probes.extend([vec![], vec![0xff; 20], prefix.to_vec()]);
        for probe in &probes {
            let expected = separators.partition_point(|separator| separator <= probe);
            let mut verified = 0;
            assert_eq!(
                inner.route(probe, &mut verified),
                expected,
                "seed {seed}, {probe:?} in {separators:?}"
            );
            assert!(verified <= common_prefix(probe, &separators[0]), "seed {seed}, {probe:?}");
            let mut verified = common_prefix(probe, prefix);
            assert_eq!(inner.route(probe, &mut verified), expected, "seed {seed}, verified");
        }
    }
}

#[test]
fn appended_entries_appear_with_the_count() {
    let mut arena = Arena::new();
    let leaf = leaf_of(&mut arena, &[b"k1".to_vec()], 1);
    let record = record::create(&mut arena, 1, b"k2", Some(b"v"), None);
    leaf.append(record, b"k2");
    assert_eq!((leaf.count(), leaf.appended()), (2, 1));
    assert!(leaf.candidate(b"k2").and_then(|at| leaf.confirm(at, b"k2")).is_some());
}
