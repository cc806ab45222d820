//! What a server answers: each reply's bytes, both ways.
//!
//! Values and rows are not copied when a reply is read: they are slices of its body, which is why a
//! body that is decoded is [`Bytes`].

use crate::frame::{self, Kind};
use crate::request::{PART_BYTES, SnapshotId};
use crate::wire::{Put, Reader, malformed};
use plinth_types::{
    Bytes, ChangeBatch, Changes, CommitReply, Error, Located, LocatedMember, MutationList, Quorum,
    RangeLocks, RangeResult, Result, Rows, Standing, Version,
};

/// Longest detail of an error that is sent; longer ones are cut.
const MAX_DETAIL: usize = 4096;

/// Appends a [`Kind::Failure`].
pub fn put_failure(out: &mut Vec<u8>, id: u32, error: &Error) {
    let start = frame::begin(out, id, Kind::Failure);
    out.put_u16(code(error));
    let detail = error.detail().unwrap_or_default().as_bytes();
    out.extend_from_slice(detail.get(..MAX_DETAIL).unwrap_or(detail));
    frame::finish(out, start);
}

/// The number of an error, as it travels. One that FoundationDB can't have given is not known to
/// anybody.
pub(crate) fn code(error: &Error) -> u16 {
    /// `unknown_error`.
    const UNKNOWN: u16 = 4000;
    u16::try_from(error.code()).unwrap_or(UNKNOWN)
}

/// The error in a [`Kind::Failure`].
pub fn failure(body: &[u8]) -> Error {
    let mut reader = Reader::new(body);
    let Ok(code) = reader.u16() else { return malformed("a failure without a number") };
    let error = Error::from_code(code.into());
    match reader.rest() {
        [] => error,
        detail => error.with_detail(String::from_utf8_lossy(detail)),
    }
}

/// Appends a [`Kind::Pong`].
pub fn put_pong(out: &mut Vec<u8>, id: u32) {
    let start = frame::begin(out, id, Kind::Pong);
    frame::finish(out, start);
}

/// Appends a [`Kind::Waits`]. `is_unread`: and nothing more is read of the connection meanwhile.
pub fn put_waits(out: &mut Vec<u8>, id: u32, is_unread: bool) {
    let start = frame::begin(out, id, Kind::Waits);
    out.extend_from_slice(&[u8::from(is_unread)]);
    frame::finish(out, start);
}

/// Whether nothing more is read of the connection.
///
/// # Errors
/// As [`read_version`].
pub fn waits(body: &[u8]) -> Result<bool> {
    let mut reader = Reader::new(body);
    let is_unread = reader.flag()?;
    reader.end()?;
    Ok(is_unread)
}

/// A version to read at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadVersion {
    /// The version.
    pub version: Version,
    /// The value of `\xff/metadataVersion` at it.
    pub metadata_version: Option<Bytes>,
    /// The ranges that are locked at it. Only since version [`frame::RANGE_LOCKS`] of the protocol:
    /// a client of an older one wouldn't leave them alone, and gets no version while there are any.
    pub range_locks: Option<RangeLocks>,
}

/// Appends a [`Kind::ReadVersionReply`].
pub fn put_read_version(
    out: &mut Vec<u8>,
    id: u32,
    version: Version,
    metadata: Option<&[u8]>,
    locks: Option<&RangeLocks>,
) {
    let start = frame::begin(out, id, Kind::ReadVersionReply);
    put_version(out, version, metadata, locks);
    frame::finish(out, start);
}

fn put_version(
    out: &mut Vec<u8>,
    version: Version,
    metadata: Option<&[u8]>,
    locks: Option<&RangeLocks>,
) {
    out.put_i64(version);
    out.put_optional(metadata);
    put_range_locks(out, locks);
}

/// The version, with what belongs to it.
///
/// # Errors
/// `client_invalid_operation` if the body is not of that kind; so below.
pub fn read_version(body: &Bytes) -> Result<ReadVersion> {
    version(Reader::new(body), body)
}

fn version(mut reader: Reader<'_>, body: &Bytes) -> Result<ReadVersion> {
    let version = reader.i64()?;
    let metadata_version = reader.optional()?.map(|metadata| body.slice_ref(metadata));
    Ok(ReadVersion { version, metadata_version, range_locks: range_locks(reader)? })
}

/// Appends a [`Kind::CountedVersionReply`].
pub fn put_counted_version(
    out: &mut Vec<u8>,
    id: u32,
    quorum: Option<&Quorum>,
    version: Version,
    metadata: Option<&[u8]>,
    locks: Option<&RangeLocks>,
) {
    let start = frame::begin(out, id, Kind::CountedVersionReply);
    match quorum {
        None => out.put_count(0),
        Some(Quorum { term, leader, voters }) => {
            out.put_count(voters.len());
            out.put_u64(*term);
            out.put_u64(*leader);
            voters.iter().for_each(|voter| out.put_u64(*voter));
        }
    }
    put_version(out, version, metadata, locks);
    frame::finish(out, start);
}

/// The version, with what belongs to it, and who has to agree before it may be read at; `None`: it
/// may.
///
/// # Errors
/// As [`read_version`].
pub fn counted_version(body: &Bytes) -> Result<(ReadVersion, Option<Quorum>)> {
    let mut reader = Reader::new(body);
    let voters = reader.count(8)?;
    let quorum = match voters {
        0 => None,
        voters => {
            let (term, leader) = (reader.u64()?, reader.u64()?);
            let voters = (0..voters).map(|_| reader.u64()).collect::<Result<_>>()?;
            Some(Quorum { term, leader, voters })
        }
    };
    Ok((version(reader, body)?, quorum))
}

/// Appends a [`Kind::StandingReply`].
pub fn put_standing(out: &mut Vec<u8>, id: u32, standing: &Standing) {
    let start = frame::begin(out, id, Kind::StandingReply);
    out.put_u64(standing.node);
    out.put_u64(standing.term);
    out.put_u64(standing.follows.unwrap_or(0));
    frame::finish(out, start);
}

/// Whom a node follows.
///
/// # Errors
/// As [`read_version`].
pub fn standing(body: &[u8]) -> Result<Standing> {
    let mut reader = Reader::new(body);
    let (node, term, follows) = (reader.u64()?, reader.u64()?, reader.u64()?);
    reader.end()?;
    Ok(Standing { node, term, follows: (follows != 0).then_some(follows) })
}

/// They are the last of a message, and left out where there are none, as before there were any.
fn put_range_locks(out: &mut Vec<u8>, locks: Option<&RangeLocks>) {
    out.extend_from_slice(locks.map_or(&[][..], |locks| locks.value()));
}

fn range_locks(mut reader: Reader<'_>) -> Result<Option<RangeLocks>> {
    let value = reader.rest();
    Ok((!value.is_empty()).then(|| RangeLocks::decode(Bytes::copy_from_slice(value))))
}

/// Appends a [`Kind::GetManyReply`].
#[inline]
pub fn put_get_many(out: &mut Vec<u8>, id: u32, values: &[Option<Bytes>]) {
    // Twice the room that a large reply needs would be no small matter.
    let len: usize = values.iter().map(|value| 4 + value.as_ref().map_or(0, Bytes::len)).sum();
    out.reserve(frame::HEADER + 4 + len);
    let start = frame::begin(out, id, Kind::GetManyReply);
    out.put_count(values.len());
    values.iter().for_each(|value| out.put_optional(value.as_deref()));
    frame::finish(out, start);
}

/// How many of the values fit one reply, since version [`IN_PARTS`](crate::request::IN_PARTS): one
/// at least.
pub fn fitting(values: &[Option<Bytes>]) -> usize {
    let mut bytes = 0;
    let reaches = |value: &Option<Bytes>| {
        bytes += 4 + value.as_ref().map_or(0, Bytes::len);
        bytes >= PART_BYTES
    };
    values.iter().position(reaches).map_or(values.len(), |last| last + 1)
}

/// The values, in the order of the keys: all of them, or the first ones.
///
/// # Errors
/// As [`read_version`].
#[inline]
pub fn get_many(body: &Bytes) -> Result<Vec<Option<Bytes>>> {
    let mut reader = Reader::new(body);
    let values = optional_values(&mut reader, body)?;
    reader.end()?;
    Ok(values)
}

#[inline]
fn optional_values(reader: &mut Reader<'_>, body: &Bytes) -> Result<Vec<Option<Bytes>>> {
    let count = reader.count(4)?;
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        values.push(reader.optional()?.map(|value| body.slice_ref(value)));
    }
    Ok(values)
}

/// Appends a [`Kind::GetNewestReply`].
pub fn put_get_newest(
    out: &mut Vec<u8>,
    id: u32,
    values: &[Option<Bytes>],
    version: Version,
    metadata: Option<&[u8]>,
    locks: Option<&RangeLocks>,
) {
    let start = frame::begin(out, id, Kind::GetNewestReply);
    out.put_count(values.len());
    values.iter().for_each(|value| out.put_optional(value.as_deref()));
    put_version(out, version, metadata, locks);
    frame::finish(out, start);
}

/// The values, in the order of the keys, and the version that they are of.
///
/// # Errors
/// As [`read_version`].
pub fn get_newest(body: &Bytes) -> Result<(ReadVersion, Vec<Option<Bytes>>)> {
    let mut reader = Reader::new(body);
    let values = optional_values(&mut reader, body)?;
    Ok((version(reader, body)?, values))
}

/// Appends a [`Kind::GetKeyReply`].
pub fn put_get_key(out: &mut Vec<u8>, id: u32, key: &[u8]) {
    let start = frame::begin(out, id, Kind::GetKeyReply);
    out.extend_from_slice(key);
    frame::finish(out, start);
}

/// Appends a [`Kind::GetRangeReply`].
pub fn put_get_range(out: &mut Vec<u8>, id: u32, result: &RangeResult) {
    let rows = &result.rows;
    out.reserve(frame::HEADER + 5 + 8 * rows.len() + rows.data_len());
    let start = frame::begin(out, id, Kind::GetRangeReply);
    let flags = u8::from(result.more)
        | u8::from(result.read_to_begin) << 1
        | u8::from(result.read_through_end) << 2;
    out.push(flags);
    out.put_count(rows.len());
    for (key_end, value_end) in rows.ends() {
        out.put_u64(u64::from(key_end) | u64::from(value_end) << 32);
    }
    out.extend_from_slice(rows.data());
    frame::finish(out, start);
}

/// The rows of a range.
///
/// # Errors
/// As [`read_version`].
pub fn get_range(body: &Bytes) -> Result<RangeResult> {
    let mut reader = Reader::new(body);
    let flags = reader.u8()?;
    let count = reader.count(8)?;
    if flags > 7 {
        return Err(malformed(format!("flags {flags}")));
    }
    let ends = reader.take(8 * count)?;
    let data = body.slice_ref(reader.rest());
    let (ends, _) = ends.as_chunks::<8>();
    let ends = ends.iter().map(|end| {
        let [a, b, c, d, e, f, g, h] = *end;
        (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
    });
    let rows = Rows::from_parts(data, ends).map_err(malformed)?;
    Ok(RangeResult {
        more: flags & 1 != 0,
        read_to_begin: flags & 2 != 0,
        read_through_end: flags & 4 != 0,
        rows,
    })
}

/// Appends a [`Kind::CommitReply`].
pub fn put_commit(out: &mut Vec<u8>, id: u32, reply: &CommitReply) {
    let start = frame::begin(out, id, Kind::CommitReply);
    match reply {
        CommitReply::Committed { version, batch_index } => {
            out.push(0);
            out.put_i64(*version);
            out.put_u16(*batch_index);
        }
        CommitReply::Conflict { conflicting_reads } => {
            out.push(1);
            out.put_count(conflicting_reads.len());
            conflicting_reads.iter().for_each(|at| out.put_count(*at));
        }
    }
    frame::finish(out, start);
}

/// What became of a transaction.
///
/// # Errors
/// As [`read_version`].
pub fn commit(body: &[u8]) -> Result<CommitReply> {
    let mut reader = Reader::new(body);
    let reply = match reader.u8()? {
        0 => CommitReply::Committed { version: reader.i64()?, batch_index: reader.u16()? },
        1 => {
            let count = reader.count(4)?;
            let positions = (0..count).map(|_| reader.size());
            CommitReply::Conflict { conflicting_reads: positions.collect::<Result<_>>()? }
        }
        other => return Err(malformed(format!("a commit's outcome is {other}"))),
    };
    reader.end()?;
    Ok(reply)
}

/// A snapshot that was pinned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pinned {
    /// What names it from here on.
    pub snapshot: SnapshotId,
    /// The version that its reads see.
    pub version: Version,
    /// The value of `\xff/metadataVersion` at that version.
    pub metadata_version: Option<Bytes>,
    /// For how long it is kept unless the lease is renewed, in milliseconds: at most what was asked
    /// for.
    pub lease_ms: u32,
    /// The ranges that are locked at that version; as in [`ReadVersion`].
    pub range_locks: Option<RangeLocks>,
}

/// Appends a [`Kind::PinReply`].
pub fn put_pin(out: &mut Vec<u8>, id: u32, pinned: &Pinned) {
    let start = frame::begin(out, id, Kind::PinReply);
    out.extend_from_slice(&pinned.snapshot);
    out.put_i64(pinned.version);
    out.put_optional(pinned.metadata_version.as_deref());
    out.put_u32(pinned.lease_ms);
    put_range_locks(out, pinned.range_locks.as_ref());
    frame::finish(out, start);
}

/// What was pinned.
///
/// # Errors
/// As [`read_version`].
pub fn pin(body: &Bytes) -> Result<Pinned> {
    let mut reader = Reader::new(body);
    let (snapshot, version) = (reader.array()?, reader.i64()?);
    let metadata_version = reader.optional()?.map(Bytes::copy_from_slice);
    let lease_ms = reader.u32()?;
    Ok(Pinned { snapshot, version, metadata_version, lease_ms, range_locks: range_locks(reader)? })
}

/// Appends a [`Kind::ReleaseReply`].
pub fn put_released(out: &mut Vec<u8>, id: u32) {
    let start = frame::begin(out, id, Kind::ReleaseReply);
    frame::finish(out, start);
}

/// Appends a reply that is a number: [`Kind::WatchReply`] (a version), [`Kind::RangeSizeReply`]
/// (bytes), [`Kind::RenewReply`] (milliseconds), [`Kind::DisconnectReply`] (connections),
/// [`Kind::RebootReply`] (1: it begins anew, 0: it isn't at that address).
pub fn put_number(out: &mut Vec<u8>, id: u32, kind: Kind, number: i64) {
    let start = frame::begin(out, id, kind);
    out.put_i64(number);
    frame::finish(out, start);
}

/// The number.
///
/// # Errors
/// As [`read_version`].
pub fn number(body: &[u8]) -> Result<i64> {
    let mut reader = Reader::new(body);
    let number = reader.i64()?;
    reader.end()?;
    Ok(number)
}

/// Appends a reply that is a list: [`Kind::SplitPointsReply`] (keys), [`Kind::AddressesReply`] and
/// [`Kind::ClientsReply`] (texts).
pub fn put_list(out: &mut Vec<u8>, id: u32, kind: Kind, list: &[impl AsRef<[u8]>]) {
    let start = frame::begin(out, id, kind);
    out.put_count(list.len());
    list.iter().for_each(|bytes| out.put_bytes(bytes.as_ref()));
    frame::finish(out, start);
}

/// The list.
///
/// # Errors
/// As [`read_version`].
pub fn list(body: &Bytes) -> Result<Vec<Bytes>> {
    let mut reader = Reader::new(body);
    let count = reader.count(4)?;
    let list = (0..count).map(|_| reader.bytes().map(|bytes| body.slice_ref(bytes)));
    let list = list.collect::<Result<_>>()?;
    reader.end()?;
    Ok(list)
}

/// Appends a [`Kind::StatusReply`].
pub fn put_status(out: &mut Vec<u8>, id: u32, document: &str) {
    let start = frame::begin(out, id, Kind::StatusReply);
    out.extend_from_slice(document.as_bytes());
    frame::finish(out, start);
}

/// Most bytes of the mutations of one [`Kind::ChangesReply`]: a batch that is larger can't be sent.
pub const CHANGES_BYTES: usize = frame::MAX_REPLY - (1 << 10);

/// Appends a [`Kind::ChangesReply`] with the first batches: as many as make [`CHANGES_BYTES`] at
/// most. What is left out is asked for again.
///
/// # Errors
/// `value_too_large` if the first one is larger by itself; nothing is appended then.
pub fn put_changes(out: &mut Vec<u8>, id: u32, changes: &Changes) -> Result<()> {
    let size = |batch: &ChangeBatch| 12 + batch.mutations.as_bytes().len();
    let mut bytes = 0;
    let fits = |batch: &&ChangeBatch| {
        bytes += size(batch);
        bytes <= CHANGES_BYTES
    };
    let fitting = changes.batches.iter().take_while(fits).count();
    let (fitting, rest) = changes.batches.split_at(fitting);
    let upto = match (rest.first(), fitting.last()) {
        (None, _) => changes.upto,
        (Some(_), Some(last)) => last.version,
        (Some(large), None) => {
            let detail = format!(
                "the changes at version {} have {} bytes, one reply takes {CHANGES_BYTES}: register streams of fewer ranges",
                large.version,
                size(large)
            );
            return Err(Error::value_too_large().with_detail(detail));
        }
    };
    out.reserve(frame::HEADER + 20 + fitting.iter().map(size).sum::<usize>());
    let start = frame::begin(out, id, Kind::ChangesReply);
    out.put_i64(upto);
    out.put_i64(changes.newest);
    out.put_count(fitting.len());
    for batch in fitting {
        out.put_i64(batch.version);
        out.put_bytes(batch.mutations.as_bytes());
    }
    frame::finish(out, start);
    Ok(())
}

/// What a stream of changes has answered: versions rise, and none is beyond the one up to which
/// everything was looked at.
///
/// # Errors
/// As [`read_version`].
pub fn changes(body: &[u8]) -> Result<Changes> {
    let mut reader = Reader::new(body);
    let (upto, newest) = (reader.i64()?, reader.i64()?);
    let mut batches: Vec<ChangeBatch> = Vec::new();
    for _ in 0..reader.count(12)? {
        let version = reader.i64()?;
        let mutations = MutationList::decode(reader.bytes()?.to_vec()).map_err(malformed)?;
        let is_next = batches.last().is_none_or(|last| last.version < version);
        if !is_next || version > upto || mutations.is_empty() {
            return Err(malformed(format!("changes at version {version}, up to {upto}")));
        }
        batches.push(ChangeBatch { version, mutations });
    }
    reader.end()?;
    Ok(Changes { batches, upto, newest })
}

/// Appends a [`Kind::LocateReply`].
pub fn put_located(out: &mut Vec<u8>, id: u32, located: &Located) {
    let start = frame::begin(out, id, Kind::LocateReply);
    out.put_u64(located.term);
    out.put_u64(located.node);
    out.put_u64(located.leader.unwrap_or(0));
    out.put_count(located.members.len());
    for member in &located.members {
        out.put_u64(member.node);
        out.push(member.votes.into());
        out.put_bytes(member.address.as_bytes());
    }
    frame::finish(out, start);
}

/// Which nodes there are, and which of them leads.
///
/// # Errors
/// As [`read_version`].
pub fn located(body: &[u8]) -> Result<Located> {
    let mut reader = Reader::new(body);
    let (term, node, leader) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let count = reader.count(13)?;
    let mut members = Vec::with_capacity(count);
    for _ in 0..count {
        let (node, votes) = (reader.u64()?, reader.flag()?);
        let address = String::from_utf8_lossy(reader.bytes()?).into_owned();
        members.push(LocatedMember { node, address, votes });
    }
    reader.end()?;
    Ok(Located { term, node, leader: (leader != 0).then_some(leader), members })
}
