//! What a client asks: each request's bytes, both ways.
//!
//! The functions that encode append a whole frame. [`Request::decode`] gives what a server can
//! carry out as it is; lists of mutations and ranges are checked whole on the way.

use crate::frame::{self, Frame, Kind};
use crate::wire::{Put, Reader, malformed};
use plinth_types::{
    Bytes, ChangesRequest, CommitRequest, Conflicts, KeyList, KeyRange, KeySelector, KeySpace,
    MutationList, RangeList, RangeRead, Result, Version,
};

/// Most keys of one [`Kind::GetMany`]: the largest values of all of them fit a reply.
pub const MAX_KEYS: usize = 256;
/// No [`Kind::GetManyReply`] has more bytes of values, and of the last one of them. Since version
/// [`IN_PARTS`] of the protocol; before it a reply has all values.
pub const VALUES_BYTES: usize = 1 << 20;
/// So many bytes of values in the reply to a request for more than [`WHOLE_KEYS`], and the value
/// that reaches them: what is left out is asked for again. To make such a reply and to send it
/// takes a server about a fifth of a millisecond, which is how long others wait for it.
pub const PART_BYTES: usize = 256 << 10;
/// The version of the protocol since which a reply may have fewer values than were asked for.
pub const IN_PARTS: u16 = 3;
/// A request for so many values, or fewer, is answered whole: the largest ones stay below
/// [`VALUES_BYTES`].
pub const WHOLE_KEYS: usize = 10;

const _: () = assert!(WHOLE_KEYS * (plinth_types::limits::VALUE_SIZE + 4) < VALUES_BYTES);

/// Transactions that one request for a read version stands for, at most; more count as so many.
pub const MOST_TOGETHER: u32 = 1_000;

const _: () = assert!(MAX_KEYS * (plinth_types::limits::VALUE_SIZE + 4) < frame::MAX_REPLY);

/// Most bytes of a token.
pub const MAX_TOKEN: usize = 4 << 10;

/// Most tags of a request for a read version.
const MAX_TAGS: usize = 64;

/// What names a pinned snapshot at its server: nobody else can guess it.
pub type SnapshotId = [u8; 16];

/// The requests that can be asked in a pinned snapshot.
const IN_SNAPSHOT: [Kind; 5] =
    [Kind::GetMany, Kind::GetKey, Kind::GetRange, Kind::RangeSize, Kind::SplitPoints];

/// A request, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// [`Kind::Ping`].
    Ping,
    /// [`Kind::ReadVersion`].
    ReadVersion(ReadVersion),
    /// [`Kind::GetMany`].
    GetMany {
        /// The version to read at.
        version: Version,
        /// How much may be seen.
        space: KeySpace,
        /// At most [`MAX_KEYS`].
        keys: KeyList,
    },
    /// [`Kind::GetKey`].
    GetKey {
        /// The version to read at.
        version: Version,
        /// How much may be seen.
        space: KeySpace,
        /// Describes the key.
        selector: KeySelector,
    },
    /// [`Kind::GetRange`].
    GetRange {
        /// The version to read at.
        version: Version,
        /// How much may be seen.
        space: KeySpace,
        /// Which rows.
        read: RangeRead,
    },
    /// [`Kind::Commit`].
    Commit(Box<CommitRequest>),
    /// [`Kind::Watch`].
    Watch {
        /// The key.
        key: Bytes,
        /// The value that it has as far as the client knows.
        value: Option<Bytes>,
        /// The version at which it had it.
        version: Version,
    },
    /// [`Kind::Cancel`].
    Cancel,
    /// [`Kind::RangeSize`].
    RangeSize(KeyRange),
    /// [`Kind::SplitPoints`].
    SplitPoints {
        /// What to cut.
        range: KeyRange,
        /// Bytes of a piece.
        chunk: i64,
    },
    /// [`Kind::Addresses`]: of this key.
    Addresses(Bytes),
    /// [`Kind::Status`].
    Status,
    /// [`Kind::Pin`].
    Pin {
        /// For how long the snapshot is kept unless the lease is renewed, in milliseconds.
        lease_ms: u32,
    },
    /// [`Kind::Renew`].
    Renew {
        /// Which one.
        snapshot: SnapshotId,
        /// For how long from now on, in milliseconds.
        lease_ms: u32,
    },
    /// [`Kind::Release`].
    Release(SnapshotId),
    /// [`Kind::InSnapshot`].
    InSnapshot {
        /// Which one.
        snapshot: SnapshotId,
        /// A read: [`Request::GetMany`], [`Request::GetKey`], [`Request::GetRange`],
        /// [`Request::RangeSize`], [`Request::SplitPoints`].
        read: Box<Request>,
    },
    /// [`Kind::Clients`].
    Clients,
    /// [`Kind::Disconnect`]: `ip:port`, `ip` or `all`.
    Disconnect(Bytes),
    /// [`Kind::Locate`].
    Locate,
    /// [`Kind::Changes`].
    Changes(ChangesRequest),
    /// [`Kind::Reboot`]: the server's own address, `ip:port`.
    Reboot(Bytes),
    /// [`Kind::CountedVersion`].
    CountedVersion(ReadVersion),
    /// [`Kind::Standing`].
    Standing,
    /// [`Kind::GetNewest`].
    GetNewest {
        /// Whether it is answered while the database is locked.
        lock_aware: bool,
        /// How much may be seen.
        space: KeySpace,
        /// At most [`WHOLE_KEYS`].
        keys: KeyList,
    },
    /// [`Kind::Token`]: empty for none any more.
    Token(Bytes),
}

/// A request for a read version, for one or more transactions.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ReadVersion {
    /// 0 batch, 1 default, 2 immediate.
    pub priority: u8,
    /// Whether it is answered while the database is locked.
    pub lock_aware: bool,
    /// Whether it may miss commits acknowledged a moment before.
    pub causal_risky: bool,
    /// How many transactions begin with the answer: at least one, at most [`MOST_TOGETHER`].
    pub count: u32,
    /// The tags that they count towards.
    pub tags: Vec<Bytes>,
}

impl Request {
    /// The request in a frame.
    ///
    /// # Errors
    /// `client_invalid_operation` if its kind is unknown or a reply's, or if the body is not of
    /// that kind.
    pub fn decode(frame: &Frame<'_>) -> Result<Self> {
        let mut body = Reader::new(frame.body);
        let kind = Kind::from_code(frame.kind).filter(|kind| !kind.is_reply());
        let kind =
            kind.ok_or_else(|| malformed(format!("no request has the kind {}", frame.kind)))?;
        let request = match kind {
            Kind::Ping => Self::Ping,
            Kind::ReadVersion => Self::ReadVersion(read_version(&mut body)?),
            Kind::GetMany => many(&mut body)?,
            Kind::GetKey => {
                let (version, space) = (body.i64()?, key_space(&mut body)?);
                Self::GetKey { version, space, selector: selector(&mut body)? }
            }
            Kind::GetRange => {
                let (version, space) = (body.i64()?, key_space(&mut body)?);
                Self::GetRange { version, space, read: range_read(&mut body)? }
            }
            Kind::Commit => Self::Commit(Box::new(commit(&mut body)?)),
            Kind::Watch => {
                let version = body.i64()?;
                let value = body.optional()?.map(Bytes::copy_from_slice);
                Self::Watch { key: Bytes::copy_from_slice(body.bytes()?), value, version }
            }
            Kind::Cancel => Self::Cancel,
            Kind::RangeSize => Self::RangeSize(key_range(&mut body)?),
            Kind::SplitPoints => {
                let chunk = body.i64()?;
                Self::SplitPoints { range: key_range(&mut body)?, chunk }
            }
            Kind::Addresses => Self::Addresses(Bytes::copy_from_slice(body.bytes()?)),
            Kind::Status => Self::Status,
            Kind::Pin => Self::Pin { lease_ms: body.u32()? },
            Kind::Renew => Self::Renew { snapshot: body.array()?, lease_ms: body.u32()? },
            Kind::Release => Self::Release(body.array()?),
            Kind::InSnapshot => in_snapshot(&mut body)?,
            Kind::Clients => Self::Clients,
            Kind::Locate => Self::Locate,
            Kind::Changes => Self::Changes(changes(&mut body)?),
            Kind::Reboot => Self::Reboot(Bytes::copy_from_slice(body.bytes()?)),
            Kind::Token => Self::Token(token(&mut body)?),
            Kind::Disconnect => Self::Disconnect(Bytes::copy_from_slice(body.bytes()?)),
            Kind::CountedVersion => Self::CountedVersion(read_version(&mut body)?),
            Kind::Standing => Self::Standing,
            Kind::GetNewest => newest(&mut body)?,
            _ => return Err(malformed(format!("no request has the kind {}", frame.kind))),
        };
        body.end()?;
        Ok(request)
    }

    /// Appends the request, as a frame.
    pub fn encode(&self, out: &mut Vec<u8>, id: u32) {
        match self {
            Self::Ping => empty(out, id, Kind::Ping),
            Self::ReadVersion(request) => put_read_version(out, id, Kind::ReadVersion, request),
            Self::GetMany { version, space, keys } => {
                put_get_many(out, id, *version, *space, keys.iter());
            }
            Self::GetKey { version, space, selector } => {
                put_get_key(out, id, *version, *space, selector)
            }
            Self::GetRange { version, space, read } => {
                put_get_range(out, id, *version, *space, read)
            }
            Self::Commit(request) => put_commit(out, id, request),
            Self::Watch { key, value, version } => {
                put_watch(out, id, key, value.as_deref(), *version)
            }
            Self::Cancel => empty(out, id, Kind::Cancel),
            Self::RangeSize(range) => put_range_size(out, id, range),
            Self::SplitPoints { range, chunk } => put_split_points(out, id, range, *chunk),
            Self::Addresses(key) => put_addresses(out, id, key),
            Self::Status => empty(out, id, Kind::Status),
            Self::Pin { lease_ms } => put_pin(out, id, *lease_ms),
            Self::Renew { snapshot, lease_ms } => put_renew(out, id, snapshot, *lease_ms),
            Self::Release(snapshot) => put_release(out, id, snapshot),
            Self::InSnapshot { snapshot, read } => {
                put_in_snapshot(out, snapshot, |out| read.encode(out, id));
            }
            Self::Clients => empty(out, id, Kind::Clients),
            Self::Locate => empty(out, id, Kind::Locate),
            Self::Changes(request) => put_changes(out, id, request),
            Self::Reboot(address) => put_reboot(out, id, address),
            Self::Token(token) => put_token(out, id, token),
            Self::Disconnect(client) => put_disconnect(out, id, client),
            Self::CountedVersion(request) => {
                put_read_version(out, id, Kind::CountedVersion, request);
            }
            Self::Standing => empty(out, id, Kind::Standing),
            Self::GetNewest { lock_aware, space, keys } => {
                put_get_newest(out, id, *lock_aware, *space, keys);
            }
        }
    }
}

/// Appends a request without a body: [`Kind::Ping`], [`Kind::Cancel`], [`Kind::Status`],
/// [`Kind::Clients`], [`Kind::Locate`], [`Kind::Standing`].
pub fn empty(out: &mut Vec<u8>, id: u32, kind: Kind) {
    let start = frame::begin(out, id, kind);
    frame::finish(out, start);
}

/// Appends a [`Kind::ReadVersion`], or a [`Kind::CountedVersion`].
pub fn put_read_version(out: &mut Vec<u8>, id: u32, kind: Kind, request: &ReadVersion) {
    let start = frame::begin(out, id, kind);
    let flags = u8::from(request.lock_aware) | u8::from(request.causal_risky) << 1;
    out.extend_from_slice(&[request.priority, flags]);
    out.put_u32(request.count);
    out.put_count(request.tags.len().min(MAX_TAGS));
    request.tags.iter().take(MAX_TAGS).for_each(|tag| out.put_bytes(tag));
    frame::finish(out, start);
}

fn read_version(body: &mut Reader<'_>) -> Result<ReadVersion> {
    let (priority, flags, count) = (body.u8()?, body.u8()?, body.u32()?);
    if priority > 2 || flags > 3 {
        return Err(malformed(format!("priority {priority}, flags {flags}")));
    }
    let tags = body.count(4)?;
    if tags > MAX_TAGS {
        return Err(malformed(format!("{tags} tags, at most {MAX_TAGS} are taken")));
    }
    let tags =
        (0..tags).map(|_| body.bytes().map(Bytes::copy_from_slice)).collect::<Result<_>>()?;
    Ok(ReadVersion {
        priority,
        lock_aware: flags & 1 != 0,
        causal_risky: flags & 2 != 0,
        count,
        tags,
    })
}

/// Appends a [`Kind::GetMany`] of at most [`MAX_KEYS`] keys.
pub fn put_get_many<'a>(
    out: &mut Vec<u8>,
    id: u32,
    version: Version,
    space: KeySpace,
    keys: impl ExactSizeIterator<Item = &'a [u8]>,
) {
    let start = frame::begin(out, id, Kind::GetMany);
    out.put_i64(version);
    out.push(space_code(space));
    out.put_count(keys.len());
    keys.for_each(|key| out.put_bytes(key));
    frame::finish(out, start);
}

fn many(body: &mut Reader<'_>) -> Result<Request> {
    let (version, space) = (body.i64()?, key_space(body)?);
    Ok(Request::GetMany { version, space, keys: keys(body, MAX_KEYS)? })
}

/// Appends a [`Kind::GetNewest`] of at most [`WHOLE_KEYS`] keys.
pub fn put_get_newest(
    out: &mut Vec<u8>,
    id: u32,
    lock_aware: bool,
    space: KeySpace,
    keys: &KeyList,
) {
    let start = frame::begin(out, id, Kind::GetNewest);
    out.push(lock_aware.into());
    out.push(space_code(space));
    out.put_count(keys.len());
    keys.iter().for_each(|key| out.put_bytes(key));
    frame::finish(out, start);
}

fn newest(body: &mut Reader<'_>) -> Result<Request> {
    let (lock_aware, space) = (body.flag()?, key_space(body)?);
    Ok(Request::GetNewest { lock_aware, space, keys: keys(body, WHOLE_KEYS)? })
}

fn keys(body: &mut Reader<'_>, most: usize) -> Result<KeyList> {
    let count = body.count(4)?;
    if count > most {
        return Err(malformed(format!("{count} keys, at most {most} are taken")));
    }
    let mut keys = KeyList::new();
    for _ in 0..count {
        keys.push(body.bytes()?);
    }
    Ok(keys)
}

/// Appends a [`Kind::GetKey`].
pub fn put_get_key(
    out: &mut Vec<u8>,
    id: u32,
    version: Version,
    space: KeySpace,
    selector: &KeySelector,
) {
    let start = frame::begin(out, id, Kind::GetKey);
    out.put_i64(version);
    out.push(space_code(space));
    put_selector(out, selector);
    frame::finish(out, start);
}

/// Appends a [`Kind::GetRange`].
pub fn put_get_range(
    out: &mut Vec<u8>,
    id: u32,
    version: Version,
    space: KeySpace,
    read: &RangeRead,
) {
    let start = frame::begin(out, id, Kind::GetRange);
    out.put_i64(version);
    out.push(space_code(space));
    out.push(u8::from(read.reverse));
    out.put_u32(u32::try_from(read.limit).unwrap_or(u32::MAX));
    out.put_u32(u32::try_from(read.target_bytes).unwrap_or(u32::MAX));
    put_selector(out, &read.begin);
    put_selector(out, &read.end);
    frame::finish(out, start);
}

fn range_read(body: &mut Reader<'_>) -> Result<RangeRead> {
    let unbounded = |limit: u32| match limit {
        u32::MAX => usize::MAX,
        limit => usize::try_from(limit).unwrap_or(usize::MAX),
    };
    let reverse = body.flag()?;
    let (limit, target_bytes) = (unbounded(body.u32()?), unbounded(body.u32()?));
    let (begin, end) = (selector(body)?, selector(body)?);
    Ok(RangeRead { begin, end, limit, target_bytes, reverse })
}

/// Appends a [`Kind::Commit`].
pub fn put_commit(out: &mut Vec<u8>, id: u32, request: &CommitRequest) {
    let lists = [
        request.conflicts.reads.as_bytes(),
        request.conflicts.writes.as_bytes(),
        request.mutations.as_bytes(),
    ];
    out.reserve(frame::HEADER + 64 + lists.iter().map(|list| list.len()).sum::<usize>());
    let start = frame::begin(out, id, Kind::Commit);
    out.put_i64(request.conflicts.read_version);
    out.push(u8::from(request.lock_aware) | u8::from(request.report_conflicting_keys) << 1);
    out.put_optional(request.idempotency_id.as_deref());
    lists.iter().for_each(|list| out.put_bytes(list));
    frame::finish(out, start);
}

fn commit(body: &mut Reader<'_>) -> Result<CommitRequest> {
    let (read_version, flags) = (body.i64()?, body.u8()?);
    if flags > 3 {
        return Err(malformed(format!("flags {flags}")));
    }
    let idempotency_id = body.optional()?.map(Bytes::copy_from_slice);
    let broken = |error| malformed(error);
    let reads = RangeList::decode(body.bytes()?.to_vec()).map_err(broken)?;
    let writes = RangeList::decode(body.bytes()?.to_vec()).map_err(broken)?;
    let mutations = MutationList::decode(body.bytes()?.to_vec()).map_err(broken)?;
    Ok(CommitRequest {
        conflicts: Conflicts { read_version, reads, writes },
        mutations,
        lock_aware: flags & 1 != 0,
        report_conflicting_keys: flags & 2 != 0,
        idempotency_id,
    })
}

/// Appends a [`Kind::Watch`].
pub fn put_watch(out: &mut Vec<u8>, id: u32, key: &[u8], value: Option<&[u8]>, version: Version) {
    let start = frame::begin(out, id, Kind::Watch);
    out.put_i64(version);
    out.put_optional(value);
    out.put_bytes(key);
    frame::finish(out, start);
}

/// Appends a [`Kind::RangeSize`].
pub fn put_range_size(out: &mut Vec<u8>, id: u32, range: &KeyRange) {
    let start = frame::begin(out, id, Kind::RangeSize);
    put_key_range(out, range);
    frame::finish(out, start);
}

/// Appends a [`Kind::SplitPoints`].
pub fn put_split_points(out: &mut Vec<u8>, id: u32, range: &KeyRange, chunk: i64) {
    let start = frame::begin(out, id, Kind::SplitPoints);
    out.put_i64(chunk);
    put_key_range(out, range);
    frame::finish(out, start);
}

/// Appends a [`Kind::Addresses`].
pub fn put_addresses(out: &mut Vec<u8>, id: u32, key: &[u8]) {
    let start = frame::begin(out, id, Kind::Addresses);
    out.put_bytes(key);
    frame::finish(out, start);
}

/// Appends a [`Kind::Pin`].
pub fn put_pin(out: &mut Vec<u8>, id: u32, lease_ms: u32) {
    let start = frame::begin(out, id, Kind::Pin);
    out.put_u32(lease_ms);
    frame::finish(out, start);
}

/// Appends a [`Kind::Renew`].
pub fn put_renew(out: &mut Vec<u8>, id: u32, snapshot: &SnapshotId, lease_ms: u32) {
    let start = frame::begin(out, id, Kind::Renew);
    out.extend_from_slice(snapshot);
    out.put_u32(lease_ms);
    frame::finish(out, start);
}

/// Appends a [`Kind::Release`].
pub fn put_release(out: &mut Vec<u8>, id: u32, snapshot: &SnapshotId) {
    let start = frame::begin(out, id, Kind::Release);
    out.extend_from_slice(snapshot);
    frame::finish(out, start);
}

/// Appends the one request that `read` appends, as a [`Kind::InSnapshot`].
pub fn put_in_snapshot(out: &mut Vec<u8>, snapshot: &SnapshotId, read: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    read(out);
    frame::wrap(out, start, Kind::InSnapshot, snapshot);
}

fn in_snapshot(body: &mut Reader<'_>) -> Result<Request> {
    let (snapshot, kind) = (body.array()?, body.u8()?);
    if !IN_SNAPSHOT.iter().any(|known| known.code() == kind) {
        return Err(malformed(format!(
            "in a snapshot nothing can be asked that has the kind {kind}"
        )));
    }
    let read = Request::decode(&Frame { id: frame::NO_ID, kind, body: body.rest() })?;
    Ok(Request::InSnapshot { snapshot, read: Box::new(read) })
}

/// Appends a [`Kind::Disconnect`].
pub fn put_disconnect(out: &mut Vec<u8>, id: u32, client: &[u8]) {
    let start = frame::begin(out, id, Kind::Disconnect);
    out.put_bytes(client);
    frame::finish(out, start);
}

/// Appends a [`Kind::Reboot`].
pub fn put_reboot(out: &mut Vec<u8>, id: u32, address: &[u8]) {
    let start = frame::begin(out, id, Kind::Reboot);
    out.put_bytes(address);
    frame::finish(out, start);
}

/// Appends a [`Kind::Token`], which isn't answered, whatever its id.
pub fn put_token(out: &mut Vec<u8>, id: u32, token: &[u8]) {
    let start = frame::begin(out, id, Kind::Token);
    out.put_bytes(token);
    frame::finish(out, start);
}

fn token(body: &mut Reader<'_>) -> Result<Bytes> {
    let token = body.bytes()?;
    if token.len() > MAX_TOKEN {
        let len = token.len();
        return Err(malformed(format!("a token of {len} bytes, at most {MAX_TOKEN} are taken")));
    }
    Ok(Bytes::copy_from_slice(token))
}

/// Appends a [`Kind::Changes`].
pub fn put_changes(out: &mut Vec<u8>, id: u32, request: &ChangesRequest) {
    let start = frame::begin(out, id, Kind::Changes);
    out.put_u64(request.stream);
    out.put_i64(request.from);
    out.put_u32(u32::try_from(request.bytes).unwrap_or(u32::MAX));
    out.push(u8::from(request.wait));
    frame::finish(out, start);
}

fn changes(body: &mut Reader<'_>) -> Result<ChangesRequest> {
    let (stream, from, bytes) = (body.u64()?, body.i64()?, body.size()?);
    Ok(ChangesRequest { stream, from, bytes, wait: body.flag()? })
}

fn space_code(space: KeySpace) -> u8 {
    match space {
        KeySpace::Normal => 0,
        KeySpace::System => 1,
    }
}

fn key_space(body: &mut Reader<'_>) -> Result<KeySpace> {
    Ok(if body.flag()? { KeySpace::System } else { KeySpace::Normal })
}

fn put_selector(out: &mut Vec<u8>, selector: &KeySelector) {
    out.push(u8::from(selector.or_equal));
    out.extend_from_slice(&selector.offset.to_le_bytes());
    out.put_bytes(&selector.key);
}

fn selector(body: &mut Reader<'_>) -> Result<KeySelector> {
    let (or_equal, offset) = (body.flag()?, body.i32()?);
    Ok(KeySelector::new(Bytes::copy_from_slice(body.bytes()?), or_equal, offset))
}

fn put_key_range(out: &mut Vec<u8>, range: &KeyRange) {
    out.put_bytes(&range.begin);
    out.put_bytes(&range.end);
}

fn key_range(body: &mut Reader<'_>) -> Result<KeyRange> {
    let (begin, end) = (body.bytes()?, body.bytes()?);
    Ok(KeyRange::new(Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end)))
}
