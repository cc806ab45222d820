//! Proving that ranges have not been written, without reading them.
//!
//! A transaction that names ranges as read at a version v, and commits at w, has been told by the
//! database that nothing in them was written between v and w. If it conflicts, the database says
//! which of its ranges did, and the others are tried again from the same v. Ranges that touch would
//! be taken for one: so every other range goes into a transaction of its own, and many small ranges
//! go as few large ones first and are looked at one by one only where something changed.
//!
//! What this can't see: writes for which the application turned conflicts off
//! (`next_write_no_write_conflict_range`).

use plinth_client::{Database, RangeOptions, Transaction, TransactionOption};
use plinth_types::{Error, KeyRange, Result, Version};

/// Ranges in one transaction.
const RANGES: usize = 200;
/// Attempts at a transaction whose fate stays unknown or that is refused for reasons of its own.
const ATTEMPTS: usize = 20;
/// What the transactions write to, so that they are ones that commit: never stored, in nobody's
/// way.
const MARK: &[u8] = b"\xff/SC/plinth-migrate";
const CONFLICTING_KEYS: &[u8] = b"\xff\xff/transaction/conflicting_keys/";

/// What was found out.
#[derive(Debug)]
pub(crate) struct Proof {
    /// Up to this version nothing has been written to the ranges that have not changed.
    pub until: Version,
    /// The ranges in which something has been written.
    pub changed: Vec<KeyRange>,
}

/// Which of these ranges (sorted, none overlapping another) have been written after `from`.
///
/// # Errors
/// `transaction_too_old` if `from` has left the window: then nothing is known.
pub(crate) fn prove(db: &Database, from: Version, ranges: &[KeyRange]) -> Result<Proof> {
    debug_assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].begin));
    let groups: Vec<&[KeyRange]> =
        ranges.chunks(ranges.len().div_ceil(2 * RANGES).max(1)).collect();
    let hull = |group: &&[KeyRange]| {
        let (first, last) = (&group[0], &group[group.len() - 1]);
        KeyRange::new(first.begin.clone(), last.end.clone())
    };
    let mut proof = Proof { until: Version::MAX, changed: Vec::new() };
    for parity in 0..2 {
        let apart: Vec<&[KeyRange]> = groups.iter().copied().skip(parity).step_by(2).collect();
        if apart.is_empty() {
            continue;
        }
        let found = prove_apart(db, from, apart.iter().map(hull).collect())?;
        proof.until = proof.until.min(found.until);
        for group in apart.iter().filter(|group| found.changed.contains(&hull(group))) {
            if let [single] = group {
                proof.changed.push(single.clone());
            } else {
                let inner = prove(db, from, group)?;
                proof.until = proof.until.min(inner.until);
                proof.changed.extend(inner.changed);
            }
        }
    }
    proof.changed.sort();
    Ok(proof)
}

/// The same for ranges of which none touches another.
fn prove_apart(db: &Database, from: Version, mut ranges: Vec<KeyRange>) -> Result<Proof> {
    let mut changed = Vec::new();
    while !ranges.is_empty() {
        let reported = match attempt(db, from, &ranges)? {
            Attempt::Unchanged(until) => return Ok(Proof { until, changed }),
            Attempt::Changed(reported) => reported,
        };
        let overlaps = |range: &KeyRange| {
            reported.iter().any(|other| range.begin < other.end && other.begin < range.end)
        };
        let (bad, good): (Vec<_>, Vec<_>) = ranges.into_iter().partition(overlaps);
        ranges = good;
        if bad.is_empty() && ranges.len() > 1 {
            // Not told which: halves will tell.
            let half = ranges.split_off(ranges.len() / 2);
            let (one, other) = (prove_apart(db, from, ranges)?, prove_apart(db, from, half)?);
            changed.extend(one.changed.into_iter().chain(other.changed));
            return Ok(Proof { until: one.until.min(other.until), changed });
        }
        if bad.is_empty() {
            changed.append(&mut ranges);
        }
        changed.extend(bad);
    }
    Ok(Proof { until: Version::MAX, changed })
}

enum Attempt {
    /// Nothing was written up to this version.
    Unchanged(Version),
    /// Something was, in these ranges; none if the database doesn't say.
    Changed(Vec<KeyRange>),
}

fn attempt(db: &Database, from: Version, ranges: &[KeyRange]) -> Result<Attempt> {
    let mut failure = Error::timed_out();
    for _ in 0..ATTEMPTS {
        let tr = db.create_transaction();
        tr.set_option(TransactionOption::AccessSystemKeys)?;
        tr.set_option(TransactionOption::LockAware)?;
        tr.set_option(TransactionOption::ReportConflictingKeys)?;
        tr.set_read_version(from);
        for range in ranges {
            tr.add_read_conflict_range(&range.begin, &range.end)?;
        }
        tr.add_write_conflict_key(MARK);
        match tr.commit().wait() {
            Ok(()) => return Ok(Attempt::Unchanged(tr.committed_version().unwrap_or(from))),
            Err(error) if error == Error::not_committed() => {
                return Ok(Attempt::Changed(reported(&tr)?));
            }
            // `from` stays what it was: when it is too old, asking again can't help.
            Err(error) if error == Error::transaction_too_old() || !error.is_retryable() => {
                return Err(error);
            }
            Err(error) => {
                // For its delay alone.
                let _ = tr.on_error(error.clone()).wait();
                failure = error;
            }
        }
    }
    Err(failure)
}

/// The ranges on which a transaction conflicted.
fn reported(tr: &Transaction) -> Result<Vec<KeyRange>> {
    let rows = tr.range(RangeOptions::prefix(CONFLICTING_KEYS)).collect_blocking()?;
    let (mut ranges, mut begin) = (Vec::new(), None);
    for row in rows {
        let key = row.key.slice(CONFLICTING_KEYS.len()..);
        if row.value[..] == *b"1" {
            begin.get_or_insert(key);
        } else if let Some(begin) = begin.take() {
            ranges.push(KeyRange::new(begin, key));
        }
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::read_version;
    use plinth_env::simulated::Random;
    use plinth_types::Bytes;
    use std::collections::BTreeSet;

    const KEYS: u64 = 2000;

    fn key(number: u64) -> Bytes {
        format!("{number:05}").into()
    }

    fn set(db: &Database, key: &[u8]) {
        db.transact_blocking(|tr| {
            tr.set(key, "written");
            Ok(())
        })
        .unwrap();
    }

    /// Pieces side by side, now and then with a gap between.
    fn pieces(random: &mut Random) -> Vec<KeyRange> {
        let (mut pieces, mut at) = (Vec::new(), 0);
        while at < KEYS {
            let end = at + 1 + random.below(5);
            if random.below(8) > 0 {
                pieces.push(KeyRange::new(key(at), key(end)));
            }
            at = end;
        }
        pieces
    }

    #[test]
    fn exactly_the_written_ranges_are_found() {
        let db = plinth::Local::in_memory().unwrap().into_database();
        for seed in 0..12 {
            let mut random = Random::new(seed);
            let pieces = pieces(&mut random);
            set(&db, &key(random.below(KEYS)));
            let from = read_version(&db).unwrap();
            let written: BTreeSet<Bytes> =
                (0..random.below(1 << (seed % 10))).map(|_| key(random.below(KEYS))).collect();
            written.iter().for_each(|key| set(&db, key));
            let proof = prove(&db, from, &pieces).unwrap();
            let hit = |piece: &&KeyRange| written.iter().any(|key| piece.contains(key));
            let expected: Vec<KeyRange> = pieces.iter().filter(hit).cloned().collect();
            assert_eq!(proof.changed, expected, "seed {seed}");
            assert!(proof.until > from, "seed {seed}");
            // Nothing of it has left a trace.
            assert_eq!(prove(&db, proof.until, &pieces).unwrap().changed, [], "seed {seed}");
        }
    }

    #[test]
    fn a_version_that_has_left_the_window_proves_nothing() {
        let window = std::time::Duration::from_micros(1);
        let db = plinth::Builder::in_memory().window(window).open().unwrap().into_database();
        let from = read_version(&db).unwrap();
        for _ in 0..3 {
            set(&db, b"a");
        }
        let error = prove(&db, from, &[KeyRange::new(key(1), key(2))]).unwrap_err();
        assert_eq!(error, Error::transaction_too_old());
    }
}
