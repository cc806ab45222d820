//! The database's own metadata, as far as the pipeline acts on it: a fold over the `\xff`
//! mutations.
//!
//! The front of the pipeline folds each accepted transaction in commit order, so that a lock taken
//! by one batch holds for the next even while the first is still being synced. What readers may
//! know travels with the batch and is shown when the batch is published.

use plinth_types::system::{
    self, DATABASE_LOCKED, METADATA_VERSION, MIN_REQUIRED_COMMIT_VERSION, RANGE_LOCKS,
};
use plinth_types::{Bytes, MutationRef, MutationType, RangeLocks, Version, atomic};

/// The metadata as of some version.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Metadata {
    /// The value of the lock key, while the database is locked.
    pub locked: Option<Bytes>,
    /// The ranges that are locked, if there are any.
    pub range_locks: Option<RangeLocks>,
    /// The value of the metadata version key.
    pub metadata_version: Option<Bytes>,
    /// The value of the key below whose version nothing may commit.
    min_required: Option<Bytes>,
}

impl Metadata {
    /// Reads the metadata by `get`, at a start.
    pub fn load(mut get: impl FnMut(&[u8]) -> Option<Bytes>) -> Self {
        Self {
            locked: get(DATABASE_LOCKED),
            range_locks: get(RANGE_LOCKS).map(RangeLocks::decode).filter(|locks| !locks.is_empty()),
            metadata_version: get(METADATA_VERSION),
            min_required: get(MIN_REQUIRED_COMMIT_VERSION),
        }
    }

    /// Folds in a mutation; says whether it concerned any of this.
    pub fn fold(&mut self, mutation: MutationRef<'_>) -> bool {
        let mut touched = false;
        let mut range_locks = self.range_locks.as_ref().map(|locks| locks.value().clone());
        for (key, field) in [
            (DATABASE_LOCKED, &mut self.locked),
            (RANGE_LOCKS, &mut range_locks),
            (METADATA_VERSION, &mut self.metadata_version),
            (MIN_REQUIRED_COMMIT_VERSION, &mut self.min_required),
        ] {
            if mutation.kind == MutationType::ClearRange {
                if (mutation.param1..mutation.param2).contains(&key) {
                    *field = None;
                    touched = true;
                }
            } else if mutation.param1 == key {
                let value = atomic::apply(mutation.kind, field.as_deref(), mutation.param2);
                *field = value.map(|value| Bytes::copy_from_slice(&value));
                touched = true;
            }
        }
        if range_locks.as_ref() != self.range_locks.as_ref().map(RangeLocks::value) {
            self.range_locks =
                range_locks.map(RangeLocks::decode).filter(|locks| !locks.is_empty());
        }
        let is_empty = self.range_locks.as_ref().is_some_and(RangeLocks::is_empty);
        assert!(!is_empty, "an empty list locks nothing, and isn't told to readers");
        touched
    }

    /// Folds in all of an entry's mutations.
    pub fn fold_all<'a>(&mut self, mutations: impl Iterator<Item = MutationRef<'a>>) {
        mutations.for_each(|mutation| _ = self.fold(mutation));
    }

    /// The version below which nothing may commit. The key holds it in 8 little-endian bytes.
    pub fn min_required_commit_version(&self) -> Version {
        let bytes = self.min_required.as_deref().and_then(|value| value.first_chunk::<8>());
        bytes.map_or(0, |bytes| Version::from_le_bytes(*bytes))
    }
}

/// Whether a mutation may touch what [`Metadata`] keeps; a quick look at its first bytes.
pub(crate) fn may_concern(mutation: MutationRef<'_>) -> bool {
    match mutation.kind {
        MutationType::ClearRange => mutation.param2 > system::NORMAL_END && !is_data(mutation),
        _ => mutation.param1.first() == Some(&0xff) && !is_data(mutation),
    }
}

/// Whether it is among the system's keys that are stored as users' are. What lies there is none of
/// the metadata, and may be written as often as anything.
fn is_data(mutation: MutationRef<'_>) -> bool {
    let end = match mutation.kind {
        MutationType::ClearRange => mutation.param2,
        _ => mutation.param1,
    };
    mutation.param1 >= system::NON_METADATA_BEGIN && end < system::NON_METADATA_END
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set<'a>(key: &'a [u8], value: &'a [u8]) -> MutationRef<'a> {
        MutationRef { kind: MutationType::Set, param1: key, param2: value }
    }

    #[test]
    fn sets_and_clears_of_the_known_keys_are_seen() {
        let mut metadata = Metadata::default();
        assert!(!metadata.fold(set(b"user", b"x")));
        assert!(!may_concern(set(system::SERIES_PREFIX, b"x")));
        assert!(metadata.fold(set(DATABASE_LOCKED, b"prefix----uid")));
        assert!(metadata.fold(set(MIN_REQUIRED_COMMIT_VERSION, &7i64.to_le_bytes())));
        assert_eq!(metadata.min_required_commit_version(), 7);
        let clear =
            MutationRef { kind: MutationType::ClearRange, param1: b"\xff/d", param2: b"\xff/e" };
        assert!(may_concern(clear) && metadata.fold(clear));
        assert_eq!(metadata.locked, None);
        assert_eq!(metadata.min_required_commit_version(), 7);
    }

    #[test]
    fn locks_of_ranges_come_and_go_with_their_row() {
        let range = plinth_types::KeyRange::new(&b"a"[..], &b"c"[..]);
        let locks = RangeLocks::new(vec![plinth_types::RangeLock { range, owner: [1; 16] }]);
        let mut metadata = Metadata::default();
        assert!(metadata.fold(set(RANGE_LOCKS, locks.value())));
        assert_eq!(metadata.range_locks.as_ref(), Some(&locks));
        assert!(
            metadata.fold(set(DATABASE_LOCKED, b"prefix----uid")) && metadata.range_locks.is_some()
        );
        let loaded = Metadata::load(|key| (key == RANGE_LOCKS).then(|| locks.value().clone()));
        assert_eq!(loaded.range_locks, metadata.range_locks);
        let clear =
            MutationRef { kind: MutationType::ClearRange, param1: b"\xff/p", param2: b"\xff/q" };
        assert!(may_concern(clear) && metadata.fold(clear));
        assert_eq!(metadata.range_locks, None);
        assert!(metadata.fold(set(RANGE_LOCKS, RangeLocks::new(Vec::new()).value())));
        assert_eq!(metadata.range_locks, None, "no range is locked by an empty list");
    }
}
