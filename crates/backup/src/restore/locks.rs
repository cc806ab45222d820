//! What a restore into a running database keeps others out of: its ranges, or the database.
//!
//! Ranges are locked where that leaves something free. A restore of all keys locks the database, as
//! `fdbrestore` does, and so does one of more ranges than every transaction that begins should be
//! told of.

use plinth_types::{
    Bytes, Error, KeyRange, MutationList, MutationType, RangeLock, RangeLocks, Result, key_after,
    printable, system,
};

type Id = [u8; 16];

/// What is locked in a database.
pub(super) struct Locks {
    /// By whom the database is, if it is.
    database: Option<Option<Id>>,
    ranges: Option<RangeLocks>,
}

impl Locks {
    /// The rows that say it.
    pub const KEYS: [&'static [u8]; 2] = [system::DATABASE_LOCKED, system::RANGE_LOCKS];

    /// From the values of these rows.
    pub fn of(values: &[Option<Bytes>]) -> Self {
        let value = |at: usize| values.get(at).cloned().flatten();
        Self {
            database: value(0).map(|value| value.last_chunk::<16>().copied()),
            ranges: value(1).map(RangeLocks::decode),
        }
    }

    /// Adds what locks these ranges for a restore, unless it has them already.
    ///
    /// # Errors
    /// `database_locked` if they, or the database, are somebody else's.
    pub fn take(&self, id: Id, ranges: &[KeyRange], mutations: &mut MutationList) -> Result<()> {
        if let Some(holder) = self.database {
            // One that an older program began, or one of all keys.
            return match holder == Some(id) {
                true => Ok(()),
                false => {
                    let detail = "somebody else has locked the database; the command `lock` of plinth shell tells the lock's UID";
                    Err(Error::database_locked().with_detail(detail))
                }
            };
        }
        let known = self.ranges.as_ref().map_or(&[][..], RangeLocks::locks);
        if known.iter().any(|lock| lock.owner == id) {
            return Ok(());
        }
        if let Some(lock) =
            known.iter().find(|lock| ranges.iter().any(|range| overlap(range, &lock.range)))
        {
            let (begin, end) = (printable(&lock.range.begin), printable(&lock.range.end));
            let detail = format!("the range {begin} to {end} is locked by somebody else");
            return Err(Error::database_locked().with_detail(detail));
        }
        match lockable(known, id, ranges) {
            Some(locks) => mutations.push(MutationType::Set, system::RANGE_LOCKS, locks.value()),
            None => {
                let operand = [&b"0123456789"[..], &id, &[0; 4]].concat();
                mutations.push(
                    MutationType::SetVersionstampedValue,
                    system::DATABASE_LOCKED,
                    &operand,
                );
            }
        }
        Ok(())
    }

    /// Adds what ends the locks of a restore.
    pub fn give_back(&self, id: Id, mutations: &mut MutationList) {
        let mut clear = |key: &[u8]| mutations.push(MutationType::ClearRange, key, &key_after(key));
        if self.database == Some(Some(id)) {
            clear(system::DATABASE_LOCKED);
        }
        let Some(known) = &self.ranges else { return };
        let others: Vec<_> =
            known.locks().iter().filter(|lock| lock.owner != id).cloned().collect();
        if others.is_empty() {
            clear(system::RANGE_LOCKS);
        } else if others.len() < known.locks().len() {
            let left = RangeLocks::new(others);
            mutations.push(MutationType::Set, system::RANGE_LOCKS, left.value());
        }
    }
}

fn overlap(one: &KeyRange, other: &KeyRange) -> bool {
    one.begin < other.end && other.begin < one.end
}

/// The locks with those of these ranges; `None` if the database has to be locked.
fn lockable(known: &[RangeLock], id: Id, ranges: &[KeyRange]) -> Option<RangeLocks> {
    let is_part = |range: &KeyRange| {
        range.end[..] <= *system::NORMAL_END
            && !(range.begin.is_empty() && *range.end == *system::NORMAL_END)
    };
    if !ranges.iter().all(is_part) {
        return None;
    }
    let taken = ranges.iter().map(|range| RangeLock { range: range.clone(), owner: id });
    let locks = RangeLocks::new(known.iter().cloned().chain(taken).collect());
    (locks.value().len() <= RangeLocks::MAX_BYTES).then_some(locks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(bounds: &[(&'static str, &'static str)]) -> Vec<KeyRange> {
        bounds.iter().map(|(begin, end)| KeyRange::new(begin.as_bytes(), end.as_bytes())).collect()
    }

    /// What a row is after these mutations.
    fn row(mutations: &MutationList, key: &[u8], before: Option<Bytes>) -> Option<Bytes> {
        mutations.iter().filter(|mutation| mutation.param1 == key).fold(before, |_, mutation| {
            (mutation.kind != MutationType::ClearRange)
                .then(|| Bytes::copy_from_slice(mutation.param2))
        })
    }

    #[test]
    fn ranges_are_locked_beside_those_of_others_and_given_back_alone() {
        let other = RangeLocks::new(vec![RangeLock {
            range: ranges(&[("x", "y")])[0].clone(),
            owner: [9; 16],
        }]);
        let before = Some(other.value().clone());
        let mut mutations = MutationList::new();
        Locks::of(&[None, before.clone()])
            .take([1; 16], &ranges(&[("a", "b"), ("c", "d")]), &mut mutations)
            .unwrap();
        let taken = row(&mutations, system::RANGE_LOCKS, before.clone());
        let locked = RangeLocks::decode(taken.clone().unwrap());
        assert!(["a", "cc", "x"].iter().all(|key| locked.check_key(key.as_bytes()).is_err()));
        assert!(["b", "d", "z"].iter().all(|key| locked.check_key(key.as_bytes()).is_ok()));
        // It has them, and another can't.
        let (mut none, locks) = (MutationList::new(), Locks::of(&[None, taken.clone()]));
        locks.take([1; 16], &ranges(&[("a", "b"), ("c", "d")]), &mut none).unwrap();
        let refused = locks.take([2; 16], &ranges(&[("cc", "ce")]), &mut none).unwrap_err();
        assert_eq!(refused.detail(), Some("the range c to d is locked by somebody else"));
        assert!(none.is_empty());
        locks.give_back([2; 16], &mut none);
        assert!(none.is_empty());
        let mut mutations = MutationList::new();
        locks.give_back([1; 16], &mut mutations);
        assert_eq!(row(&mutations, system::RANGE_LOCKS, taken), before);
        let mut mutations = MutationList::new();
        Locks::of(&[None, before.clone()]).give_back([9; 16], &mut mutations);
        assert_eq!(row(&mutations, system::RANGE_LOCKS, before), None);
    }

    #[test]
    fn all_keys_or_too_many_ranges_take_the_database() {
        let many: Vec<_> =
            (0..400).map(|n| KeyRange::new(format!("{n:03}a"), format!("{n:03}b"))).collect();
        let all = ranges(&[("", "\u{0}")]);
        let with_tenants = vec![
            KeyRange::new(&b""[..], system::NORMAL_END),
            KeyRange::new(&b"\xff/tenant/map/"[..], &b"\xff/tenant/map0"[..]),
        ];
        for (ranges, takes_database) in [(many, true), (with_tenants, true), (all, false)] {
            let mut mutations = MutationList::new();
            Locks::of(&[None, None]).take([1; 16], &ranges, &mut mutations).unwrap();
            let is_taken = row(&mutations, system::DATABASE_LOCKED, None).is_some();
            assert_eq!(is_taken, takes_database, "{ranges:?}");
        }
        // Whoever has it goes on under it, and gives it back.
        let held = Some(Bytes::from([&b"0123456789"[..], &[1; 16]].concat()));
        let (mut mutations, locks) = (MutationList::new(), Locks::of(&[held.clone(), None]));
        locks.take([1; 16], &ranges(&[("a", "b")]), &mut mutations).unwrap();
        assert!(
            mutations.is_empty()
                && locks.take([2; 16], &ranges(&[("a", "b")]), &mut mutations).is_err()
        );
        locks.give_back([1; 16], &mut mutations);
        assert_eq!(row(&mutations, system::DATABASE_LOCKED, held), None);
    }
}
