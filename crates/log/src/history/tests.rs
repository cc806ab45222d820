//! The books against a plain list of entries.

use plinth_types::Version;

use super::*;
use crate::format::Kind;

fn link(sequence: u64, index: u64, term: u64, version: Version, has_version: bool) -> Link {
    Link { sequence, index, term, version, has_version, ..Link::origin() }
}

fn rewind(sequence: u64, to: &Link) -> RecordHeader {
    RecordHeader {
        checksum: 0,
        body_checksum: 0,
        body_len: 0,
        before: 0,
        term: to.term,
        sequence,
        index: to.index,
        version: to.version,
        previous: to.version,
        committed: 0,
        opening: 1,
        unsure: 0,
        kind: Kind::Rewind,
    }
}

#[test]
fn entries_behind_a_rewind_are_void_and_no_others() {
    let mut history = History::beginning(link(1, 0, 0, 0, true));
    let entries: Vec<_> = (1..=5).map(|n| link(1 + n, n, 1 + n / 3, n as i64 * 10, true)).collect();
    entries.iter().for_each(|link| history.push(link.clone(), EntryKind::Mutations));
    assert_eq!([0, 1, 2, 3, 5].map(|index| history.term_of(index)), [0, 1, 1, 2, 2].map(Some));
    assert!(history.commit_index(2));
    assert!(
        !history.rewind(&rewind(7, &entries[0]), &Memory::default()),
        "what is committed stays"
    );
    assert!(history.rewind(&rewind(7, &entries[2]), &Memory::default()));
    let void: Vec<_> = (1..=8).filter(|sequence| is_void(history.voids(), *sequence)).collect();
    assert_eq!(void, [5, 6, 7]);
    assert_eq!((history.last().index, history.term_of(3)), (3, Some(2)));
    history.push(link(8, 4, 4, 45, true), EntryKind::Mutations);
    assert_eq!((history.term_of(3), history.term_of(4)), (Some(2), Some(4)));
    // Another one, which goes back further, covers the first.
    assert!(history.rewind(&rewind(9, &entries[1]), &Memory::default()));
    assert_eq!(**history.voids(), [Void { first: 4, last: 9 }]);
    history.check_invariants();
    assert!(!history.is_settled(8) && history.is_settled(9));
    history.forget(2, 9);
    assert!(history.voids().is_empty());
}

#[test]
fn a_version_commits_its_mutations_and_what_is_before_them() {
    let mut history = History::beginning(link(1, 0, 0, 0, true));
    for (index, version, has_version) in
        [(1, 0, false), (2, 10, true), (3, 10, false), (4, 20, true), (5, 20, false)]
    {
        history.push(link(1 + index, index, 1, version, has_version), EntryKind::Mutations);
    }
    for (version, committed) in [(0, 0), (9, 1), (10, 2), (15, 3), (20, 4), (19, 4)] {
        history.commit_version(version);
        assert_eq!(history.committed().index, committed, "version {version}");
    }
    assert!(history.commit_index(9) && history.committed().index == 5);
}

#[test]
fn the_entry_that_a_log_begins_behind_may_turn_out_to_be_void() {
    // Segments up to entry 50 are gone; entries from 46 on were voided before they went.
    let mut history = History::beginning(link(100, 50, 3, 500, true));
    history.push(link(101, 51, 3, 510, true), EntryKind::Mutations);
    assert!(history.rewind(&rewind(102, &link(0, 45, 2, 450, true)), &Memory::default()));
    assert_eq!(
        (history.committed().index, history.last().index, history.term_of(45)),
        (45, 45, Some(2))
    );
    history.push(link(103, 46, 5, 600, true), EntryKind::Mutations);
    assert!(is_void(history.voids(), 101) && !is_void(history.voids(), 103));
    assert!(history.commit_index(46));
    assert!(!history.rewind(&rewind(104, &link(0, 44, 2, 440, true)), &Memory::default()));
}
