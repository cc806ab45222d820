//! From a batch of requests and a version to verdicts and the body of a log entry: pure.
//!
//! In order: transactions that may not commit at all (database locked, below the least commit
//! version) are turned away; versionstamps are filled in, for the version and each position are
//! known; the resolver decides; the mutations of the accepted, already in the form in which they
//! are logged and applied, become the entry.
//!
//! ```text
//!   entry body   | sections: one, for all rows | mutations of accepted transaction 1 | of 2 | ...
//! ```

use crate::failure::{NodeError, NodeResult};
use crate::metadata::{Metadata, may_concern};
use crate::metrics::SlowTransaction;
use crate::queue::{Answer, Submitted};
use plinth_log::ALL_ROWS;
use plinth_resolver::{Resolver, Transaction, Verdict};
use plinth_types::limits::BATCH_TRANSACTIONS;
use plinth_types::system::{IDEMPOTENCY_PREFIX, MEMBERS, METADATA_VERSION};
use plinth_types::{
    Bytes, CommitReply, CommitRequest, Conflicts, MutationList, MutationRef, MutationType, Version,
    Versionstamp, planted,
};
use std::collections::BTreeMap;

/// The protocol version that idempotency records begin with; FoundationDB 7.3's.
const IDEMPOTENCY_PROTOCOL: u64 = 0x0fdb_00b0_7300_0000;

/// A transaction's mutations as they are logged, and what its client will be told.
pub(crate) struct Accepted {
    pub mutations: MutationList,
    pub batch_index: u16,
    pub answer: Answer,
}

/// A transaction that takes no effect, and what its client will be told.
pub(crate) struct Refused {
    pub verdict: NodeResult<CommitReply>,
    pub answer: Answer,
}

/// A batch with its verdicts.
#[derive(Default)]
pub(crate) struct Decided {
    pub accepted: Vec<Accepted>,
    pub refused: Vec<Refused>,
    /// Idempotency records, logged and applied after the accepted transactions.
    pub records: MutationList,
    /// Who is a member of the cluster is among what it changes.
    pub changes_members: bool,
    /// The metadata after this batch, if the batch changes it.
    pub metadata: Option<Metadata>,
    /// Whether it changes rows of the system, which the replica has to look at.
    pub touches_system: bool,
    /// Where transactions of a sample conflicted.
    pub conflicting: Vec<Bytes>,
    /// Those that had begun long ago.
    pub slow: Vec<SlowTransaction>,
}

/// Of one conflict in so many it is found out where it was.
const CONFLICT_SAMPLE: usize = 4;

/// Slow transactions of one batch that are told of.
const SLOW_MOST: usize = 16;

/// Decides a batch at `version`; `wall_clock` is seconds since the Unix epoch, for idempotency
/// records. Transactions that began `slow` versions before it, or earlier, are noted.
pub(crate) fn decide(
    batch: Vec<Submitted>,
    version: Version,
    (wall_clock, slow): (u64, Version),
    in_cluster: bool,
    metadata: &Metadata,
    resolver: &mut Resolver,
) -> Decided {
    let (mut decided, count) = (Decided::default(), batch.len());
    let candidates = candidates(batch, version, in_cluster, metadata, &mut decided);
    let transactions: Vec<_> = candidates
        .iter()
        .enumerate()
        .map(|(at, candidate)| Transaction {
            conflicts: &candidate.request.conflicts,
            report: candidate.request.report_conflicting_keys || at % CONFLICT_SAMPLE == 0,
        })
        .collect();
    let mut verdicts = Vec::with_capacity(transactions.len());
    resolver.resolve(version, &transactions, &mut verdicts);
    assert_eq!(verdicts.len(), candidates.len(), "one verdict for each transaction");
    let mut folded = None;
    let mut records = IdempotencyRecords { version, wall_clock, by_high_byte: BTreeMap::new() };
    for (candidate, verdict) in candidates.into_iter().zip(verdicts) {
        let Candidate { request, answer, batch_index, concerns_metadata } = candidate;
        let verdict = match verdict {
            // Somebody before it in the same batch may have taken a lock.
            Verdict::Commit
                if let Some(refused) =
                    folded.as_ref().and_then(|now| is_locked_out(&request, now).err()) =>
            {
                Err(refused)
            }
            Verdict::Commit => {
                if concerns_metadata {
                    decided.touches_system = true;
                    fold(&request.mutations, metadata, &mut folded);
                }
                let forgotten = planted!("idempotency ids are forgotten");
                if let Some(id) = request.idempotency_id.as_ref().filter(|_| !forgotten) {
                    records.add(id, batch_index);
                }
                decided.note_slow(&request, version, slow);
                decided.accepted.push(Accepted {
                    mutations: request.mutations,
                    batch_index,
                    answer,
                });
                continue;
            }
            Verdict::Conflict { reads } => Ok(decided.conflict(&request, reads)),
            Verdict::TooOld => Err(NodeError::TooOld(None)),
        };
        decided.refused.push(Refused { verdict, answer });
    }
    let answered = decided.accepted.len() + decided.refused.len();
    assert_eq!(answered, count, "each transaction of a batch has one verdict");
    decided.metadata = folded;
    decided.records = records.into_mutations();
    assert!(
        decided.metadata.is_none() || decided.touches_system,
        "replicas look at what changes the metadata"
    );
    assert!(
        decided.records.is_empty() || !decided.accepted.is_empty(),
        "only what takes effect is recorded"
    );
    decided
}

/// A transaction that the resolver is asked about.
struct Candidate {
    request: CommitRequest,
    answer: Answer,
    batch_index: u16,
    concerns_metadata: bool,
}

/// Those of a batch that may commit at all, with their versionstamps filled in; the others are
/// refused.
fn candidates(
    batch: Vec<Submitted>,
    version: Version,
    in_cluster: bool,
    metadata: &Metadata,
    decided: &mut Decided,
) -> Vec<Candidate> {
    let count = batch.len();
    assert!(count <= BATCH_TRANSACTIONS, "{count} transactions in a batch");
    let mut candidates = Vec::with_capacity(count);
    for (position, submitted) in batch.into_iter().enumerate() {
        let Submitted { mut request, changes_members, answer } = submitted;
        let last = planted!("stamps run backwards in a batch").then_some(count - 1);
        let batch_index = last.map_or(position, |last| last - position) as u16;
        let entrance = may_enter(&request, version, metadata)
            .and_then(|()| {
                may_change_members(&request, in_cluster, changes_members, decided.changes_members)
            })
            .and_then(|()| fill_in(&mut request, Versionstamp::new(version, batch_index)))
            .and_then(|concerns| may_touch(&request, metadata).map(|()| concerns));
        match entrance {
            Ok(concerns_metadata) => {
                decided.changes_members |= changes_members;
                candidates.push(Candidate { request, answer, batch_index, concerns_metadata });
            }
            Err(error) => decided.refused.push(Refused { verdict: Err(error), answer }),
        }
    }
    candidates
}

impl Decided {
    fn note_slow(&mut self, request: &CommitRequest, version: Version, slow: Version) {
        // Without reads the read version says nothing about when the transaction began.
        let age = version - request.conflicts.read_version;
        if age < slow || request.conflicts.reads.is_empty() || self.slow.len() >= SLOW_MOST {
            return;
        }
        let first = request.mutations.iter().next();
        self.slow.push(SlowTransaction {
            age,
            version,
            bytes: request.size(),
            mutations: request.mutations.len(),
            first_key: first
                .map_or_else(Bytes::new, |mutation| Bytes::copy_from_slice(mutation.param1)),
        });
    }

    /// The answer to a transaction that conflicts; where it does is noted, and told if it was asked
    /// for.
    fn conflict(&mut self, request: &CommitRequest, reads: Vec<usize>) -> CommitReply {
        let first = reads.first().and_then(|at| request.conflicts.reads.iter().nth(*at));
        self.conflicting.extend(first.map(|range| Bytes::copy_from_slice(range.begin)));
        CommitReply::Conflict {
            conflicting_reads: if request.report_conflicting_keys { reads } else { Vec::new() },
        }
    }
}

fn fold(mutations: &MutationList, before: &Metadata, folded: &mut Option<Metadata>) {
    let mut after = folded.clone().unwrap_or_else(|| before.clone());
    let mut touched = false;
    for mutation in mutations {
        touched |= after.fold(mutation);
    }
    if touched {
        *folded = Some(after);
    }
}

/// Whether a lock keeps a transaction out.
fn is_locked_out(request: &CommitRequest, metadata: &Metadata) -> NodeResult<()> {
    if metadata.locked.is_some() && !request.lock_aware {
        return Err(NodeError::Locked);
    }
    may_touch(request, metadata)
}

/// Whether none of the keys that it writes is locked; they have their versionstamps. What it read
/// it was told with its read version.
fn may_touch(request: &CommitRequest, metadata: &Metadata) -> NodeResult<()> {
    let Some(locks) = metadata.range_locks.as_ref().filter(|_| !request.lock_aware) else {
        return Ok(());
    };
    Ok(request.mutations.iter().try_for_each(|mutation| match mutation.kind {
        MutationType::ClearRange => locks.check(mutation.param1, mutation.param2),
        _ => locks.check_key(mutation.param1),
    })?)
}

fn may_enter(request: &CommitRequest, version: Version, metadata: &Metadata) -> NodeResult<()> {
    if metadata.locked.is_some() && !request.lock_aware {
        return Err(NodeError::Locked);
    }
    let least = metadata.min_required_commit_version();
    if request.idempotency_id.as_ref().is_some_and(|id| id.len() > usize::from(u8::MAX)) {
        return Err(NodeError::Option("an idempotency id has at most 255 bytes".into()));
    }
    if version < least {
        let detail = format!("nothing may commit below version {least}, and this is {version}");
        return Err(NodeError::TooOld(Some(detail.into())));
    }
    Ok(())
}

/// Who is a member follows from what operators want and what there is: the leader alone changes
/// that row, and once in a batch. In a database of its own the row means nothing.
fn may_change_members(
    request: &CommitRequest,
    in_cluster: bool,
    is_own: bool,
    has_one: bool,
) -> NodeResult<()> {
    let touches = |mutation: MutationRef<'_>| match mutation.kind {
        MutationType::ClearRange => (mutation.param1..mutation.param2).contains(&MEMBERS),
        _ => mutation.param1 == MEMBERS,
    };
    if is_own && has_one {
        return Err(NodeError::Behind(Some("another change of members is under way".into())));
    }
    if in_cluster && !is_own && request.mutations.iter().any(touches) {
        let detail = "who is a member of the cluster can't be written: use `coordinators`, `configure`, `exclude`";
        return Err(NodeError::Misused(detail.into()));
    }
    Ok(())
}

/// Fills the versionstamp into the mutations that ask for it, and adds the write conflict range of
/// each key that has one. Says whether any mutation may concern the metadata.
fn fill_in(request: &mut CommitRequest, stamp: Versionstamp) -> NodeResult<bool> {
    let (mut stamped, mut concerns_metadata) = (false, false);
    for mutation in &request.mutations {
        stamped |= mutation.kind.is_versionstamped();
        concerns_metadata |= may_concern(mutation);
    }
    if !stamped {
        return Ok(concerns_metadata);
    }
    let mut filled = MutationList::new();
    for MutationRef { kind, param1, param2 } in &request.mutations {
        match kind {
            MutationType::SetVersionstampedKey => {
                let key = with_stamp(param1, stamp)?;
                request.conflicts.writes.push_single(&key);
                filled.push(MutationType::Set, &key, param2);
            }
            MutationType::SetVersionstampedValue if param1 == METADATA_VERSION => {
                filled.push(MutationType::Set, param1, stamp.as_bytes());
            }
            MutationType::SetVersionstampedValue => {
                filled.push(MutationType::Set, param1, &with_stamp(param2, stamp)?);
            }
            _ => filled.push(kind, param1, param2),
        }
    }
    request.mutations = filled;
    Ok(concerns_metadata)
}

/// The parameter without its last four bytes, which say (little-endian) where in the rest the stamp
/// goes.
fn with_stamp(parameter: &[u8], stamp: Versionstamp) -> NodeResult<Vec<u8>> {
    let stamped = parameter.split_last_chunk::<4>().and_then(|(body, offset)| {
        let offset = u32::from_le_bytes(*offset) as usize;
        let mut body = body.to_vec();
        body.get_mut(offset..offset.checked_add(Versionstamp::LEN)?)?
            .copy_from_slice(stamp.as_bytes());
        Some(body)
    });
    stamped.ok_or_else(|| NodeError::Misused("the versionstamp's place lies outside".into()))
}

/// The records by which the clients of lost answers find out what became of their transactions: for
/// each 256 positions of the batch one key, whose value is a head and
/// `length, id, low byte of the position` for each.
struct IdempotencyRecords {
    version: Version,
    wall_clock: u64,
    by_high_byte: BTreeMap<u8, Vec<u8>>,
}

impl IdempotencyRecords {
    fn add(&mut self, id: &[u8], batch_index: u16) {
        let [high, low] = batch_index.to_be_bytes();
        let wall_clock = self.wall_clock;
        let value = self.by_high_byte.entry(high).or_insert_with(|| {
            [IDEMPOTENCY_PROTOCOL.to_le_bytes(), wall_clock.to_le_bytes()].concat()
        });
        value.push(id.len() as u8);
        value.extend_from_slice(id);
        value.push(low);
    }

    fn into_mutations(self) -> MutationList {
        let mut mutations = MutationList::new();
        for (high, value) in self.by_high_byte {
            let key = [IDEMPOTENCY_PREFIX, &self.version.to_be_bytes(), &[high]].concat();
            mutations.push(MutationType::Set, &key, &value);
        }
        mutations
    }
}

/// The mutations in the body of a log entry, checked whole.
///
/// # Errors
/// `Damaged` or `Log` if it is no body of this format, or has other sections than one for all rows.
pub(crate) fn entry_mutations(body: &Bytes) -> NodeResult<Bytes> {
    let sections = plinth_log::sections(body)?;
    let [(ALL_ROWS, mutations)] = &sections[..] else {
        let tags: Vec<_> = sections.iter().map(|(tag, _)| tag).collect();
        let detail =
            format!("log entry has sections with tags {tags:?}, expected one with tag {ALL_ROWS}");
        return Err(NodeError::Damaged(detail.into()));
    };
    MutationList::validate(mutations)?;
    Ok(mutations.clone())
}

/// A request that changes nothing and conflicts with nothing, for the pipeline's own use.
pub(crate) fn internal_request(mutations: MutationList, read_version: Version) -> CommitRequest {
    CommitRequest {
        conflicts: Conflicts { read_version, ..Conflicts::default() },
        mutations,
        lock_aware: true,
        ..CommitRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::reply::{Reply, promise};
    use plinth_types::Error;
    use plinth_types::system::{DATABASE_LOCKED, RANGE_LOCKS};
    use plinth_types::{KeyRange, RangeLock, RangeLocks};

    /// The verdicts on these requests as one batch.
    fn decided(requests: Vec<CommitRequest>) -> Vec<Result<(), Error>> {
        let mut replies = Vec::<Reply<CommitReply>>::new();
        let batch = requests.into_iter().map(|request| {
            let (answer, reply) = promise();
            replies.push(reply);
            Submitted { request, changes_members: false, answer: Answer::new(answer) }
        });
        let batch = batch.collect();
        let mut resolver = Resolver::new(0);
        let decided = decide(batch, 10, (0, 0), false, &Metadata::default(), &mut resolver);
        let accepted = decided.accepted.into_iter().map(|accepted| (accepted.answer, Ok(())));
        let refused =
            decided.refused.into_iter().map(|refused| (refused.answer, refused.verdict.map(drop)));
        for (answer, verdict) in accepted.chain(refused) {
            answer.send(verdict.map(|()| CommitReply::Committed { version: 10, batch_index: 0 }));
        }
        replies.into_iter().map(|mut reply| reply.try_take().unwrap().map(drop)).collect()
    }

    fn set(key: &[u8], value: &[u8], lock_aware: bool) -> CommitRequest {
        let mut request = CommitRequest { lock_aware, ..CommitRequest::default() };
        request.mutations.push(MutationType::Set, key, value);
        request.conflicts.writes.push_single(key);
        request
    }

    #[test]
    fn a_lock_keeps_out_who_comes_behind_it_in_the_same_batch() {
        let range = KeyRange::new(&b"b"[..], &b"c"[..]);
        let locks = RangeLocks::new(vec![RangeLock { range, owner: [1; 16] }]);
        let verdicts = decided(vec![
            set(b"b1", b"before", false),
            set(RANGE_LOCKS, locks.value(), true),
            set(b"b2", b"behind", false),
            set(b"c", b"beside", false),
            set(b"b3", b"aware", true),
            set(DATABASE_LOCKED, b"0123456789abcdefghijklmnop", true),
            set(b"c", b"behind", false),
        ]);
        let range = Error::transaction_rejected_range_locked;
        let expected =
            [Ok(()), Ok(()), Err(range()), Ok(()), Ok(()), Ok(()), Err(NodeError::Locked.into())];
        assert_eq!(verdicts, expected);
    }
}
