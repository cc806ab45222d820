//! What is held, what is forgotten, and when memory is given back.

use super::random::{Keys, Random};
use super::transaction;
use crate::{Resolver, Transaction};
use plinth_types::limits::WINDOW_VERSIONS;
use plinth_types::{Conflicts, Version};

/// Writes batches of random points, and ranges if wanted, with the window following.
fn write(resolver: &mut Resolver, batches: usize, step: Version, ranges: bool) -> usize {
    let mut random = Random::new(1);
    let keys = Keys::of(3, 1 << 30);
    let (mut verdicts, mut most) = (Vec::new(), 0);
    for _ in 0..batches {
        let mut writer = Conflicts::default();
        for _ in 0..100 {
            let key = keys.key(&mut random);
            if ranges {
                writer.writes.push(&key, &[&key[..], b"z"].concat())
            } else {
                writer.writes.push_single(&key)
            }
        }
        let version = resolver.newest() + step;
        resolver.resolve(
            version,
            &[Transaction { conflicts: &writer, report: false }],
            &mut verdicts,
        );
        resolver.forget_before(version - WINDOW_VERSIONS);
        most = most.max(resolver.memory());
    }
    most
}

#[test]
fn memory_follows_the_window() {
    for (ranges, bytes_per_write) in [(false, 40), (true, 160)] {
        let mut resolver = Resolver::new(0);
        // A window of 100,000 writes; then four times as many go through it.
        let step = WINDOW_VERSIONS / 1000;
        let first = write(&mut resolver, 2000, step, ranges);
        let most = write(&mut resolver, 4000, step, ranges);
        assert!(most <= first * 11 / 10, "{most} bytes after {first}");
        assert!(most < 100_000 * bytes_per_write, "{most} bytes for 100,000 writes");
        resolver.check_invariants();
    }
}

#[test]
fn what_is_forgotten_is_given_back() {
    let mut resolver = Resolver::new(0);
    let (idle, full) = (resolver.memory(), write(&mut resolver, 2000, 1, false));
    assert!(full > 100 * idle, "{full} bytes after {idle}");
    for _ in 0..50 {
        resolver.forget_before(resolver.newest());
    }
    // One large generation may be kept for the next time.
    assert!(resolver.memory() < 4 << 20, "{} bytes", resolver.memory());
    resolver.check_invariants();
}

#[test]
fn a_key_that_is_written_again_and_again_is_stored_once_a_generation() {
    let mut resolver = Resolver::new(0);
    let key = "k".repeat(1000);
    let writer = transaction(0, &[], &[&key]);
    let mut verdicts = Vec::new();
    for version in 1..=1000 {
        resolver.resolve(
            version,
            &[Transaction { conflicts: &writer, report: false }],
            &mut verdicts,
        );
    }
    assert!(resolver.memory() < 100_000, "{} bytes", resolver.memory());
    resolver.check_invariants();
}

#[test]
fn a_batch_may_fill_many_generations() {
    let mut resolver = Resolver::new(0);
    let writer = {
        let mut writer = Conflicts::default();
        (0..200_000u32).for_each(|number| writer.writes.push_single(&number.to_be_bytes()));
        writer
    };
    let mut reader = Conflicts { read_version: 5, ..Conflicts::default() };
    for number in [0u32, 100_000, 199_999, 200_000] {
        reader.reads.push_single(&number.to_be_bytes());
    }
    reader.reads.push(&150_000u32.to_be_bytes(), &150_001u32.to_be_bytes());
    reader.reads.push(&200_000u32.to_be_bytes(), &[0xff]);
    let batch = [&writer, &reader].map(|conflicts| Transaction { conflicts, report: true });
    let mut verdicts = Vec::new();
    resolver.resolve(10, &batch, &mut verdicts);
    resolver.check_invariants();
    assert_eq!(verdicts[1], super::conflict(&[0, 1, 2, 4]));
    resolver.resolve(20, &batch[1..], &mut verdicts);
    assert_eq!(verdicts, [super::conflict(&[0, 1, 2, 4])]);
}
