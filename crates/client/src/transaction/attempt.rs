//! A commit attempt: the request that a read set and a write set make, checked against what the
//! transaction may commit, and ready to be sent.
//!
//! Where an answer may get lost, the request conflicts with itself on some key: once another
//! transaction has written that key, this one can't commit any more, which is how its fate is found
//! out (see `unknown`).

use super::read_set::ReadSet;
use super::write_set::WriteSet;
use crate::conflicts::coalesced;
use crate::endpoint::{Endpoint, Pinned};
use crate::options::Settings;
use bytes::Bytes;
use plinth_env::Env;
use plinth_env::reply::Reply;
use plinth_types::version::INVALID_VERSION;
use plinth_types::{
    CommitReply, CommitRequest, Conflicts, Error, KeyRange, MutationList, MutationType, RangeList,
    Result, Version, key_after, planted, system,
};
use std::sync::Arc;

/// A commit before it is sent.
pub(super) struct Attempt {
    request: CommitRequest,
    sent: Sent,
}

/// What to know of a request once its answer comes.
pub(super) struct Sent {
    /// A key that the transaction conflicts with itself on, if its answer may get lost.
    pub(super) self_conflict: Option<Bytes>,
    /// The idempotency id.
    pub(super) id: Option<Bytes>,
    /// The version that was read.
    pub(super) version: Version,
    /// What is asked in place of the database's endpoint, as of when the commit began: by its
    /// token, if it has one, the commit is judged, and what became of it is found out.
    pub(super) shown: Option<Arc<dyn Endpoint>>,
    /// The read conflict ranges, if the answer names some of them.
    reads: Option<RangeList>,
}

/// What an attempt goes by besides what was read and written.
pub(super) struct Terms<'a> {
    pub(super) settings: &'a Settings,
    pub(super) env: &'a Env,
    pub(super) api: i32,
    /// Whether the answer may get lost.
    pub(super) may_lose_answers: bool,
    /// Whether the version is yet to be asked for, so that it will be as young as can be.
    pub(super) is_fresh: bool,
    /// As [`Sent::shown`].
    pub(super) shown: Option<Arc<dyn Endpoint>>,
}

impl Attempt {
    /// The request to commit; `None` if nothing was written.
    ///
    /// # Errors
    /// `transaction_read_only`, `transaction_too_large`.
    pub(super) fn of(
        reads: &ReadSet,
        writes: &mut WriteSet,
        terms: &Terms<'_>,
    ) -> Result<Option<Self>> {
        if writes.is_empty() {
            return Ok(None);
        }
        let options = &terms.settings.commit;
        if options.read_only {
            return Err(Error::transaction_read_only());
        }
        if terms.settings.version.pinned {
            return Err(Pinned::takes_no_writes());
        }
        let report = options.report_conflicting_keys;
        let are_seen = !terms.settings.ryw_disabled;
        let (mutations, merged) = writes.take_to_send(are_seen);
        let read = reads.conflicts();
        let mut request = CommitRequest {
            conflicts: Conflicts {
                read_version: 0,
                reads: if report { coalesced(read) } else { read.clone() },
                writes: writes.conflicts().clone(),
            },
            mutations,
            lock_aware: options.lock_aware,
            report_conflicting_keys: report,
            idempotency_id: options.idempotency.as_ref().map(|known| known.id.clone()),
        };
        if size(&request, terms.api) > options.size_limit {
            if are_seen && !merged {
                request.mutations = writes.merged(request.mutations);
            }
            request.conflicts.reads = coalesced(&request.conflicts.reads);
            request.conflicts.writes = coalesced(&request.conflicts.writes);
            let (size, most) = (size(&request, terms.api), options.size_limit);
            if size > most {
                return Err(Error::transaction_too_large()
                    .with_detail(format!("{size} bytes, at most {most}")));
            }
        }
        let sent = Sent {
            self_conflict: guard(&mut request, terms),
            id: request.idempotency_id.clone(),
            version: INVALID_VERSION,
            shown: terms.shown.clone(),
            reads: report.then(|| request.conflicts.reads.clone()),
        };
        Ok(Some(Self { request, sent }))
    }

    /// Sends the request, keys behind a tenant's prefix. Gives what to know once its answer comes.
    #[inline]
    pub(super) fn send(
        mut self,
        endpoint: &dyn Endpoint,
        version: Version,
        prefix: Option<&[u8]>,
    ) -> (Sent, Reply<CommitReply>) {
        self.place(version, prefix);
        let reply = match &self.sent.shown {
            Some(shown) => shown.commit(self.request),
            None => endpoint.commit(self.request),
        };
        (self.sent, reply)
    }

    fn place(&mut self, version: Version, prefix: Option<&[u8]>) {
        if let Some(prefix) = prefix {
            add_prefix(&mut self.request, prefix);
        }
        self.request.conflicts.read_version = version;
        self.sent.version = version;
    }
}

impl Sent {
    /// The read conflict ranges at these positions, if they were to be reported.
    pub(super) fn conflicting(&self, positions: &[usize]) -> Option<Box<RangeList>> {
        self.reads.as_ref().map(|reads| {
            let mut conflicting = RangeList::new();
            for (at, range) in reads.iter().enumerate() {
                if positions.contains(&at) {
                    conflicting.push(range.begin, &range.end_key());
                }
            }
            Box::new(conflicting)
        })
    }
}

fn size(request: &CommitRequest, api: i32) -> usize {
    if api >= 300 {
        return request.size();
    }
    request.mutations.as_bytes().len() + request.mutations.len() * (44 - 9)
}

/// Adds keys that the transaction conflicts with itself on, so that it can't commit any more once
/// another transaction has written one of them. Gives such a key.
fn guard(request: &mut CommitRequest, terms: &Terms<'_>) -> Option<Bytes> {
    let conflicts = &mut request.conflicts;
    if planted!("commits do not conflict with themselves") {
        return None;
    }
    if terms.may_lose_answers
        && let Some(id) = &request.idempotency_id
    {
        return Some(add_to_both(conflicts, id));
    }
    if terms.settings.commit.causal_write_risky {
        return None;
    }
    if terms.may_lose_answers {
        let common = intersection(&conflicts.writes, &conflicts.reads);
        if common.is_some() {
            return common;
        }
    } else if terms.is_fresh || !conflicts.reads.is_empty() {
        // No answer gets lost here, and a read, or a read version from a moment ago, says how old
        // it is.
        return None;
    }
    let mut id = [0; 16];
    terms.env.fill_random(&mut id);
    Some(add_to_both(conflicts, &id))
}

/// Adds a key to both conflict sets.
fn add_to_both(conflicts: &mut Conflicts, id: &[u8]) -> Bytes {
    let key = [system::SELF_CONFLICT_PREFIX, id].concat();
    conflicts.reads.push_single(&key);
    conflicts.writes.push_single(&key);
    key.into()
}

/// A key that lies in a range of both lists.
fn intersection(writes: &RangeList, reads: &RangeList) -> Option<Bytes> {
    if writes.is_empty() || reads.is_empty() {
        return None;
    }
    let sorted = |list: &RangeList| {
        let mut ranges: Vec<KeyRange> = list.iter().map(|range| range.to_range()).collect();
        ranges.sort();
        ranges
    };
    if writes.len() * reads.len() <= 64 {
        return writes.iter().find_map(|write| {
            let read = reads.iter().find(|read| read.overlaps(&write))?;
            Some(Bytes::copy_from_slice(write.begin.max(read.begin)))
        });
    }
    let (writes, reads) = (sorted(writes), sorted(reads));
    let (mut writes, mut reads) = (writes.iter().peekable(), reads.iter().peekable());
    while let (Some(write), Some(read)) = (writes.peek(), reads.peek()) {
        if write.end <= read.begin {
            writes.next();
        } else if read.end <= write.begin {
            reads.next();
        } else {
            return Some(write.begin.clone().max(read.begin.clone()));
        }
    }
    None
}

/// Puts a tenant's prefix before all keys.
fn add_prefix(request: &mut CommitRequest, prefix: &[u8]) {
    let stored = |key: &[u8]| {
        if *key == *system::METADATA_VERSION { key.to_vec() } else { [prefix, key].concat() }
    };
    let mut mutations = MutationList::new();
    for mutation in &request.mutations {
        match mutation.kind {
            MutationType::ClearRange => {
                mutations.push(mutation.kind, &stored(mutation.param1), &stored(mutation.param2));
            }
            MutationType::SetVersionstampedKey => {
                let mut key = stored(mutation.param1);
                if let Some(offset) = key.last_chunk_mut::<4>() {
                    *offset = (i32::from_le_bytes(*offset) + prefix.len() as i32).to_le_bytes();
                }
                mutations.push(mutation.kind, &key, mutation.param2);
            }
            kind => mutations.push(kind, &stored(mutation.param1), mutation.param2),
        }
    }
    request.mutations = mutations;
    for list in [&mut request.conflicts.reads, &mut request.conflicts.writes] {
        let mut prefixed = RangeList::new();
        for range in list.iter() {
            if *range.begin == *system::METADATA_VERSION {
                prefixed.push(range.begin, &key_after(range.begin));
            } else {
                prefixed.push(&stored(range.begin), &stored(&range.end_key()));
            }
        }
        *list = prefixed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::write_set::Rules;
    use std::sync::LazyLock;

    fn rules() -> Rules<'static> {
        static SETTINGS: LazyLock<Settings> = LazyLock::new(|| Settings::new(1));
        Rules { api: 730, settings: &SETTINGS }
    }

    fn attempt(
        reads: &ReadSet,
        writes: &mut WriteSet,
        change: impl FnOnce(&mut Settings),
        may_lose_answers: bool,
    ) -> Result<Option<Attempt>> {
        let mut settings = Settings::new(1);
        change(&mut settings);
        let env = Env::real();
        let terms = Terms {
            settings: &settings,
            env: &env,
            api: 730,
            may_lose_answers,
            is_fresh: false,
            shown: None,
        };
        Attempt::of(reads, writes, &terms)
    }

    fn one_write() -> WriteSet {
        let mut writes = WriteSet::default();
        writes.set(&rules(), b"key", b"value", true).unwrap();
        writes
    }

    #[test]
    fn nothing_written_is_nothing_to_send() {
        let mut reads = ReadSet::default();
        reads.add_key(b"read");
        let none = attempt(&reads, &mut WriteSet::default(), |_| (), true);
        assert!(none.unwrap().is_none());
    }

    #[test]
    fn options_refuse_what_was_written() {
        let refused = |change: fn(&mut Settings)| {
            let attempt = attempt(&ReadSet::default(), &mut one_write(), change, true);
            attempt.map(drop).unwrap_err()
        };
        let read_only = refused(|settings| settings.commit.read_only = true);
        assert_eq!(read_only, Error::transaction_read_only());
        let pinned = refused(|settings| settings.version.pinned = true);
        assert_eq!(pinned, Error::transaction_read_only());
        let too_large = refused(|settings| settings.commit.size_limit = 32);
        assert_eq!(too_large, Error::transaction_too_large());
    }

    #[test]
    fn what_is_too_large_is_merged_first() {
        let mut writes = WriteSet::default();
        for _ in 0..10 {
            writes.set(&rules(), b"key", &[0; 100], true).unwrap();
        }
        let small = |settings: &mut Settings| settings.commit.size_limit = 400;
        let made = attempt(&ReadSet::default(), &mut writes, small, false).unwrap().unwrap();
        assert_eq!(made.request.mutations.len(), 1);
        assert_eq!(
            made.request.conflicts.writes.len(),
            1 + usize::from(made.sent.self_conflict.is_some())
        );
    }

    #[test]
    fn an_answer_that_may_get_lost_has_a_key_to_find_it_out_by() {
        let nothing = ReadSet::default();
        let made = attempt(&nothing, &mut one_write(), |_| (), true).unwrap().unwrap();
        let key = made.sent.self_conflict.clone().unwrap();
        let has = |list: &RangeList| list.iter().any(|range| *range.begin == key[..]);
        assert!(has(&made.request.conflicts.reads) && has(&made.request.conflicts.writes));
        // What is read and written by itself is such a key.
        let mut reads = ReadSet::default();
        reads.add_key(b"key");
        let made = attempt(&reads, &mut one_write(), |_| (), true).unwrap().unwrap();
        assert_eq!(made.sent.self_conflict.as_deref(), Some(&b"key"[..]));
        assert_eq!(made.request.conflicts.writes.len(), 1);
    }

    #[test]
    fn a_tenants_prefix_stands_before_every_key_but_the_metadata_version() {
        let (mut reads, mut writes) = (ReadSet::default(), one_write());
        reads.add_key(system::METADATA_VERSION);
        writes.clear_range(&rules(), b"a", b"b", true).unwrap();
        let key = [&b"k"[..], &[0; 10], &1_i32.to_le_bytes()].concat();
        let code = MutationType::SetVersionstampedKey as i32;
        writes.atomic_op(&rules(), &key, b"", code, true, None).unwrap();
        let mut made = attempt(&reads, &mut writes, |_| (), false).unwrap().unwrap();
        made.place(5, Some(b"12345678"));
        let Attempt { request, sent } = made;
        assert_eq!((request.conflicts.read_version, sent.version), (5, 5));
        let keys: Vec<_> = request.mutations.iter().map(|one| one.param1.to_vec()).collect();
        assert!(keys.iter().all(|key| key.starts_with(b"12345678")));
        let stamped = keys.iter().find(|key| key[8] == b'k' && key.len() == 8 + 15).unwrap();
        assert_eq!(stamped.last_chunk::<4>(), Some(&9_i32.to_le_bytes()));
        let read = request.conflicts.reads.iter().next().unwrap();
        assert_eq!(read.begin, system::METADATA_VERSION);
    }

    #[test]
    fn reads_that_conflicted_are_named_if_that_was_asked_for() {
        let mut reads = ReadSet::default();
        reads.add_key(b"a");
        reads.add_key(b"c");
        let report = |settings: &mut Settings| settings.commit.report_conflicting_keys = true;
        let made = attempt(&reads, &mut one_write(), report, false).unwrap().unwrap();
        let named = made.sent.conflicting(&[1]).unwrap();
        assert_eq!(named.iter().map(|range| range.begin.to_vec()).collect::<Vec<_>>(), [b"c"]);
        let made = attempt(&reads, &mut one_write(), |_| (), false).unwrap().unwrap();
        assert!(made.sent.conflicting(&[1]).is_none());
    }
}
