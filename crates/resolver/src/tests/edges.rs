//! The rules, one by one.
//!
//! Each has a test of its own that a reader can check by hand: which versions count, where a range
//! ends, what a batch sees of itself, what is too old. `model.rs` draws everything between.

use super::{conflict, resolve, transaction};
use crate::{Resolver, Transaction, Verdict};
use Verdict::{Commit, TooOld};

#[test]
fn a_read_conflicts_with_what_was_written_after_its_version_only() {
    let mut resolver = Resolver::new(0);
    assert_eq!(resolve(&mut resolver, 10, &[transaction(0, &[], &["a"])]), [Commit]);
    let at = |version| transaction(version, &["a"], &[]);
    assert_eq!(
        resolve(&mut resolver, 20, &[at(9), at(10), at(11)]),
        [conflict(&[0]), Commit, Commit]
    );
    let over = |version| transaction(version, &["A..b"], &[]);
    assert_eq!(
        resolve(&mut resolver, 30, &[over(9), over(10), over(11)]),
        [conflict(&[0]), Commit, Commit]
    );
}

#[test]
fn later_transactions_of_a_batch_see_earlier_accepted_ones() {
    let mut resolver = Resolver::new(0);
    let batch = [
        transaction(5, &["b"], &["a"]),
        transaction(5, &["a"], &["b", "c..d"]),
        transaction(5, &["b", "c", "cc"], &["e"]),
        transaction(5, &["e", "d..z", "a"], &[]),
    ];
    // The second is rejected, so what it would have written disturbs nobody.
    assert_eq!(
        resolve(&mut resolver, 10, &batch),
        [Commit, conflict(&[0]), Commit, conflict(&[0, 1, 2])]
    );
}

#[test]
fn a_transaction_does_not_conflict_with_itself() {
    let mut resolver = Resolver::new(0);
    assert_eq!(
        resolve(&mut resolver, 10, &[transaction(9, &["a", "b..c"], &["a", "b..c"])]),
        [Commit]
    );
}

#[test]
fn whatever_the_read_version_the_own_batch_counts() {
    let mut resolver = Resolver::new(0);
    let batch = [
        transaction(0, &[], &["a"]),
        transaction(10, &["a"], &[]),
        transaction(99, &["A..z"], &[]),
    ];
    assert_eq!(resolve(&mut resolver, 10, &batch), [Commit, conflict(&[0]), conflict(&[0])]);
}

#[test]
fn the_end_of_a_range_is_not_in_it() {
    let mut resolver = Resolver::new(0);
    resolve(&mut resolver, 10, &[transaction(0, &[], &["b..d"])]);
    let batch = [
        transaction(0, &["a..b", "d..e", "a", "d"], &[]),
        transaction(0, &["a..b\0"], &[]),
        transaction(0, &["cz..e"], &[]),
        transaction(0, &["b", "c\0", "c\u{7f}"], &[]),
    ];
    let expected = [Commit, conflict(&[0]), conflict(&[0]), conflict(&[0, 1, 2])];
    assert_eq!(resolve(&mut resolver, 20, &batch), expected);
}

#[test]
fn a_key_and_its_successor_are_two_keys() {
    let mut resolver = Resolver::new(0);
    resolve(&mut resolver, 10, &[transaction(0, &[], &["k", "n\0"])]);
    let batch = [
        transaction(0, &["k\0", "n", "k\0..n\0"], &[]),
        transaction(0, &["k", "k..k\0\0", "n..n\0\0", "n\0"], &[]),
    ];
    assert_eq!(resolve(&mut resolver, 20, &batch), [Commit, conflict(&[0, 1, 2, 3])]);
}

#[test]
fn the_empty_key_is_a_key() {
    let mut resolver = Resolver::new(0);
    assert_eq!(resolve(&mut resolver, 10, &[transaction(0, &["", "..\0"], &["a"])]), [Commit]);
    resolve(&mut resolver, 20, &[transaction(0, &[], &[""])]);
    let batch =
        [transaction(10, &["", "..z", "..\0", "\0..z"], &[]), transaction(20, &["", "..z"], &[])];
    assert_eq!(resolve(&mut resolver, 30, &batch), [conflict(&[0, 1, 2]), Commit]);
    resolve(&mut resolver, 40, &[transaction(0, &[], &["..a"])]);
    let batch = [transaction(30, &["", "A", "a", "..\0"], &[])];
    assert_eq!(resolve(&mut resolver, 50, &batch), [conflict(&[0, 1, 3])]);
}

#[test]
fn a_newer_range_hides_an_older_one_where_they_overlap_only() {
    let mut resolver = Resolver::new(0);
    resolve(&mut resolver, 10, &[transaction(0, &[], &["a..m"])]);
    resolve(&mut resolver, 20, &[transaction(0, &[], &["c..e", "g"])]);
    let reads = ["a..c", "c..d", "e..g", "g", "g\0..z", "d..f"];
    let batch =
        [transaction(9, &reads, &[]), transaction(15, &reads, &[]), transaction(20, &reads, &[])];
    let expected = [conflict(&[0, 1, 2, 3, 4, 5]), conflict(&[1, 3, 5]), Commit];
    assert_eq!(resolve(&mut resolver, 30, &batch), expected);
}

#[test]
fn only_transactions_with_reads_are_too_old() {
    let mut resolver = Resolver::new(10);
    let batch = [
        transaction(9, &["a"], &["b"]),
        transaction(9, &[], &["c"]),
        transaction(10, &["b"], &[]),
        transaction(10, &["c"], &[]),
    ];
    assert_eq!(resolve(&mut resolver, 20, &batch), [TooOld, Commit, Commit, conflict(&[0])]);
    resolver.forget_before(20);
    resolver.forget_before(15);
    assert_eq!((resolver.oldest(), resolver.newest()), (20, 20));
    let batch = [transaction(19, &["c"], &[]), transaction(20, &["c"], &[])];
    assert_eq!(resolve(&mut resolver, 30, &batch), [TooOld, Commit]);
}

#[test]
fn positions_are_given_only_when_asked_for() {
    let mut resolver = Resolver::new(0);
    resolve(&mut resolver, 10, &[transaction(0, &[], &["a"])]);
    let reader = transaction(0, &["b", "a", "a..b"], &[]);
    let mut verdicts = Vec::new();
    for (version, report, expected) in [(20, false, conflict(&[])), (30, true, conflict(&[1, 2]))] {
        resolver.resolve(version, &[Transaction { conflicts: &reader, report }], &mut verdicts);
        assert_eq!(verdicts, [expected]);
    }
}

#[test]
fn an_empty_batch_moves_the_version() {
    let mut resolver = Resolver::new(7);
    assert_eq!(resolver.newest(), 7);
    assert_eq!(resolve(&mut resolver, 8, &[]), []);
    assert_eq!((resolver.oldest(), resolver.newest()), (7, 8));
}

#[test]
#[should_panic(expected = "not above")]
fn versions_that_go_back_are_refused() {
    let mut resolver = Resolver::new(7);
    resolve(&mut resolver, 7, &[]);
}

#[test]
fn the_seed_changes_no_verdict() {
    let verdicts = [0, 1, u64::MAX].map(|seed| {
        let mut resolver = Resolver::with_seed(0, seed);
        resolve(
            &mut resolver,
            10,
            &[transaction(0, &[], &["a", "c..d", "", "longer than sixteen bytes"])],
        );
        let reads =
            ["a", "b", "c", "d", "", "longer than sixteen bytes", "longer than sixteen bytez"];
        resolve(&mut resolver, 20, &[transaction(0, &reads, &[])])
    });
    assert!(verdicts.iter().all(|one| *one == [conflict(&[0, 2, 4, 5])]), "{verdicts:?}");
}
