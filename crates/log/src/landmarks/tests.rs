//! Landmarks against a plain list of entries.

use plinth_env::simulated::Random;
use plinth_types::Version;

use super::*;
use crate::entry::EntryKind;
use crate::format::Kind;

fn header(kind: Kind, at: LogPosition) -> RecordHeader {
    RecordHeader {
        checksum: 0,
        body_checksum: 0,
        body_len: 0,
        before: 0,
        term: at.term,
        sequence: 0,
        index: at.index,
        version: at.version,
        previous: at.version,
        committed: 0,
        opening: 1,
        unsure: 0,
        kind,
    }
}

fn at(index: u64, term: u64, version: Version) -> LogPosition {
    LogPosition { index, term, version }
}

/// A log, and its entries; the first is the one that it begins behind.
fn random_log(random: &mut Random) -> (Landmarks, Vec<LogPosition>) {
    let mut marks = Landmarks::default();
    let mut entries = vec![at(random.below(5), 1 + random.below(3), random.below(50) as Version)];
    marks.segment(&header(Kind::State, entries[0]));
    for _ in 0..random.index(60) {
        let last = entries[entries.len() - 1];
        match random.index(12) {
            0 => marks.segment(&header(Kind::State, last)),
            1 => {
                entries.truncate(1 + random.index(entries.len()));
                marks.rewind(&header(Kind::Rewind, entries[entries.len() - 1]));
            }
            _ => {
                let term = last.term + u64::from(random.index(5) == 0);
                let next = at(last.index + 1, term, last.version + 1 + random.below(4) as Version);
                marks.entry(&header(Kind::Entry(EntryKind::Mutations), next));
                entries.push(next);
            }
        }
    }
    (marks, entries)
}

#[test]
fn a_log_goes_on_from_each_of_its_entries() {
    for seed in 0..300 {
        let (marks, entries) = random_log(&mut Random::new(seed));
        assert_eq!(Some(&marks.last()), entries.last(), "seed {seed}");
        for entry in &entries {
            assert_eq!(marks.mismatch(*entry), None, "seed {seed}: {entry}");
        }
    }
}

#[test]
fn what_is_not_in_the_log_is_told() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let (marks, entries) = random_log(&mut random);
        let (first, last) = (entries[0], entries[entries.len() - 1]);
        let what = |at| marks.mismatch(at).map(|mismatch| mismatch.what);
        let later = at(last.index + 1 + random.below(3), last.term, last.version + 9);
        assert_eq!(what(later), Some("the log ends too early"), "seed {seed}");
        if let Some(index) = first.index.checked_sub(1) {
            let earlier = at(index, first.term, first.version - 1);
            assert_eq!(what(earlier), Some("the log begins too late"), "seed {seed}");
            // A lease has the version of the entry before it, and goes with it: nothing is missing
            // then.
            assert_eq!(what(at(index, first.term, first.version)), None, "seed {seed}");
        }
        for entry in &entries {
            for term in [entry.term - 1, entry.term + 1, entry.term + 5] {
                let other = LogPosition { term, ..*entry };
                assert_eq!(
                    what(other),
                    Some("the log is of another history"),
                    "seed {seed}: {other}"
                );
            }
            // In the middle of a segment only a version beyond its bounds is known to be another's.
            for version in [first.version - 1, last.version + 1] {
                let other = LogPosition { version, ..*entry };
                assert_eq!(
                    what(other),
                    Some("the log is of another history"),
                    "seed {seed}: {other}"
                );
            }
        }
    }
}
