//! Frames: how messages are told apart in a stream of bytes.
//!
//! A frame's header says how long it is, which request it belongs to and what it is. The checksum
//! covers everything behind it, the length too, so that neither a flipped bit nor a stream read
//! from the wrong place is taken for a message. A frame is written at the end of a buffer in which
//! others may stand, and read where it lies.

use crate::wire::{Put, Reader};
use plinth_types::{Error, Result};
use std::time::Duration;

/// Bytes of a header.
pub const HEADER: usize = 16;
/// Bytes of the checksum, which covers all behind it; the length comes next.
const CHECKSUM_LEN: usize = 4;
/// Where the id stands in a frame.
const ID: usize = 8;
/// Where the kind stands in a frame.
pub const KIND: usize = 12;
/// Most bytes of a request's body: a transaction of the largest size, and room.
pub const MAX_REQUEST: usize = 16 << 20;
/// Most bytes of a reply's body: the values of [`crate::request::MAX_KEYS`] keys, and room.
pub const MAX_REPLY: usize = 32 << 20;
/// The id of a message that belongs to no request: the server's last words on a connection.
pub const NO_ID: u32 = u32::MAX;

/// The version of the protocol with pinned snapshots and the operator's requests.
const SNAPSHOTS: u16 = 2;
/// The version of the protocol with clusters.
const CLUSTERS: u16 = 3;
/// The version of the protocol with streams of changes.
const CHANGES: u16 = 4;

/// The version of the protocol in which a server can be told to begin anew.
const REBOOT: u16 = 5;
/// The version of the protocol in which ranges can be locked, and a client is told which.
pub const RANGE_LOCKS: u16 = 6;
/// The version of the protocol in which clients can count for themselves who says who leads, and
/// read before they have a version.
pub const COUNTED: u16 = 7;
/// The version of the protocol in which a client can show tokens.
pub const TOKENS: u16 = 8;
/// The version of the protocol in which a server says that a request waits for a quota.
pub const WAITS: u16 = 9;
/// How often a server says so again, at least, while that lasts: who hears nothing for some times
/// as long needn't wait for it.
pub const WAITS_AGAIN: Duration = Duration::from_secs(1);

/// What marks a kind as a reply.
const REPLY: u8 = 0x80;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Asks whether anybody is there.
    Ping = 1,
    /// Asks for a version to read at.
    ReadVersion = 2,
    /// Asks for the values of keys.
    GetMany = 3,
    /// Asks for the key that a selector describes.
    GetKey = 4,
    /// Asks for the rows of a range.
    GetRange = 5,
    /// Commits a transaction.
    Commit = 6,
    /// Waits for a value to change.
    Watch = 7,
    /// Takes the request of the same id back; that one is still answered.
    Cancel = 8,
    /// Asks how large a range is.
    RangeSize = 9,
    /// Asks for keys that cut a range into pieces.
    SplitPoints = 10,
    /// Asks where a key is stored.
    Addresses = 11,
    /// Asks for the status document.
    Status = 12,
    /// Pins a snapshot, on a lease.
    Pin = 13,
    /// Renews the lease of a pinned snapshot.
    Renew = 14,
    /// Gives a pinned snapshot up.
    Release = 15,
    /// A read in a pinned snapshot; answered as that read is.
    InSnapshot = 16,
    /// Asks for the connections of clients.
    Clients = 17,
    /// Closes connections of clients.
    Disconnect = 18,
    /// Asks which nodes the database has, and which one leads.
    Locate = 19,
    /// Reads a stream of changes.
    Changes = 20,
    /// Has the server begin anew.
    Reboot = 21,
    /// Asks for a version to read at, as [`Kind::ReadVersion`] does, and for who has to agree that
    /// the server leads.
    CountedVersion = 22,
    /// Asks whom the node follows, in which term.
    Standing = 23,
    /// Asks for the values of keys at the newest version that the node has, and for that version.
    GetNewest = 24,
    /// Shows a token, for the requests behind it. Not answered.
    Token = 25,
    /// The answer to a ping.
    Pong = REPLY | 1,
    /// The answer to [`Kind::ReadVersion`].
    ReadVersionReply = REPLY | 2,
    /// The answer to [`Kind::GetMany`].
    GetManyReply = REPLY | 3,
    /// The answer to [`Kind::GetKey`].
    GetKeyReply = REPLY | 4,
    /// The answer to [`Kind::GetRange`].
    GetRangeReply = REPLY | 5,
    /// The answer to [`Kind::Commit`].
    CommitReply = REPLY | 6,
    /// The answer to [`Kind::Watch`].
    WatchReply = REPLY | 7,
    /// The answer to [`Kind::RangeSize`].
    RangeSizeReply = REPLY | 9,
    /// The answer to [`Kind::SplitPoints`].
    SplitPointsReply = REPLY | 10,
    /// The answer to [`Kind::Addresses`].
    AddressesReply = REPLY | 11,
    /// The answer to [`Kind::Status`].
    StatusReply = REPLY | 12,
    /// The answer to [`Kind::Pin`].
    PinReply = REPLY | 13,
    /// The answer to [`Kind::Renew`].
    RenewReply = REPLY | 14,
    /// The answer to [`Kind::Release`].
    ReleaseReply = REPLY | 15,
    /// The answer to [`Kind::Clients`].
    ClientsReply = REPLY | 17,
    /// The answer to [`Kind::Disconnect`].
    DisconnectReply = REPLY | 18,
    /// The answer to [`Kind::Locate`].
    LocateReply = REPLY | 19,
    /// The answer to [`Kind::Changes`].
    ChangesReply = REPLY | 20,
    /// The answer to [`Kind::Reboot`].
    RebootReply = REPLY | 21,
    /// The answer to [`Kind::CountedVersion`].
    CountedVersionReply = REPLY | 22,
    /// The answer to [`Kind::Standing`].
    StandingReply = REPLY | 23,
    /// The answer to [`Kind::GetNewest`].
    GetNewestReply = REPLY | 24,
    /// No answer yet: the request of this id waits for a quota. With [`NO_ID`]: those wait still of
    /// which that was said.
    Waits = REPLY | 26,
    /// The answer to any request: it failed. With [`NO_ID`]: why the connection ends.
    Failure = 0xff,
}

impl Kind {
    /// The kind with this code, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        use Kind::*;
        Some(match code {
            1 => Ping,
            2 => ReadVersion,
            3 => GetMany,
            4 => GetKey,
            5 => GetRange,
            6 => Commit,
            7 => Watch,
            8 => Cancel,
            9 => RangeSize,
            10 => SplitPoints,
            11 => Addresses,
            12 => Status,
            13 => Pin,
            14 => Renew,
            15 => Release,
            16 => InSnapshot,
            17 => Clients,
            18 => Disconnect,
            19 => Locate,
            20 => Changes,
            21 => Reboot,
            22 => CountedVersion,
            23 => Standing,
            24 => GetNewest,
            25 => Token,
            0x81 => Pong,
            0x82 => ReadVersionReply,
            0x83 => GetManyReply,
            0x84 => GetKeyReply,
            0x85 => GetRangeReply,
            0x86 => CommitReply,
            0x87 => WatchReply,
            0x89 => RangeSizeReply,
            0x8a => SplitPointsReply,
            0x8b => AddressesReply,
            0x8c => StatusReply,
            0x8d => PinReply,
            0x8e => RenewReply,
            0x8f => ReleaseReply,
            0x91 => ClientsReply,
            0x92 => DisconnectReply,
            0x93 => LocateReply,
            0x94 => ChangesReply,
            0x95 => RebootReply,
            0x96 => CountedVersionReply,
            0x97 => StandingReply,
            0x98 => GetNewestReply,
            0x9a => Waits,
            0xff => Failure,
            _ => return None,
        })
    }

    /// The byte that stands for it.
    #[expect(clippy::as_conversions, reason = "the number that a kind is declared with")]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The version of the protocol that this came with.
    pub fn since(self) -> u16 {
        match self.code() & !REPLY {
            _ if self == Self::Failure => 1,
            code if code < Self::Pin.code() => 1,
            code if code < Self::Locate.code() => SNAPSHOTS,
            code if code < Self::Changes.code() => CLUSTERS,
            code if code < Self::Reboot.code() => CHANGES,
            code if code < Self::CountedVersion.code() => REBOOT,
            code if code < Self::Token.code() => COUNTED,
            code if code == Self::Token.code() => TOKENS,
            _ => WAITS,
        }
    }

    /// Whether a server sends this, not a client.
    pub fn is_reply(self) -> bool {
        self.code() & REPLY != 0
    }
}

/// A frame where it lies in a buffer, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Which request it is or answers.
    pub id: u32,
    /// The code of its kind; one that [`Kind::from_code`] doesn't know is no reason to end a
    /// connection.
    pub kind: u8,
    /// What it says.
    pub body: &'a [u8],
}

impl Frame<'_> {
    /// How many bytes it takes in the stream.
    pub fn len(&self) -> usize {
        HEADER + self.body.len()
    }

    /// Never: a frame has a header.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// The frame that `bytes` begin with; `None` while it is not whole.
///
/// # Errors
/// `client_invalid_operation` if its body is longer than `max_body`, told by the header alone;
/// `checksum_failed`. Neither leaves a way to find the next frame: the connection is of no more
/// use.
#[inline]
pub fn split(bytes: &[u8], max_body: usize) -> Result<Option<Frame<'_>>> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
    let mut header = Reader::new(header);
    let (expected, len, id, kind) = (header.u32()?, header.size()?, header.u32()?, header.u8()?);
    if len > max_body {
        return Err(too_long(len, max_body));
    }
    let Some(body) = rest.get(..len) else { return Ok(None) };
    let covered = bytes.get(CHECKSUM_LEN..HEADER + len).unwrap_or_default();
    let found = crc32c::crc32c(covered);
    if found != expected {
        return Err(damaged(expected, found));
    }
    Ok(Some(Frame { id, kind, body }))
}

/// How many bytes the frame at the begin of `bytes` will have, as far as can be told: at least a
/// header.
pub fn wanted(bytes: &[u8]) -> usize {
    let len = bytes.get(CHECKSUM_LEN..).and_then(|bytes| Reader::new(bytes).size().ok());
    HEADER.saturating_add(len.unwrap_or(0))
}

/// Begins a frame at the end of `out`; its body is what is appended until [`finish`], which takes
/// what this gives.
#[inline]
pub fn begin(out: &mut Vec<u8>, id: u32, kind: Kind) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    out.put_u32(id);
    out.extend_from_slice(&[kind.code(), 0, 0, 0]);
    start
}

/// Ends the frame that began at `start`: writes its length and checksum.
///
/// # Panics
/// If no frame was begun there.
#[inline]
pub fn finish(out: &mut [u8], start: usize) {
    let frame = out.get_mut(start..).expect(BEGUN);
    let len = frame.len().checked_sub(HEADER).expect(BEGUN);
    put(frame, CHECKSUM_LEN, u32::try_from(len).expect("a frame is shorter").to_le_bytes());
    seal(frame);
}

const BEGUN: &str = "a frame was begun there";

/// Writes a field of a frame's header.
#[inline]
fn put<const N: usize>(frame: &mut [u8], at: usize, field: [u8; N]) {
    *frame.get_mut(at..).and_then(|frame| frame.first_chunk_mut()).expect(BEGUN) = field;
}

/// Writes the checksum, the last of a frame that is written.
#[inline]
fn seal(frame: &mut [u8]) {
    let (checksum, covered) = frame.split_first_chunk_mut::<CHECKSUM_LEN>().expect(BEGUN);
    *checksum = crc32c::crc32c(covered).to_le_bytes();
}

/// Makes the last frame of `out`, which begins at `start`, one of another kind, whose body is
/// `prefix`, the kind that it had, and the body that it had.
///
/// # Panics
/// If no frame begins there.
pub(crate) fn wrap(out: &mut Vec<u8>, start: usize, kind: Kind, prefix: &[u8]) {
    let inner = std::mem::replace(out.get_mut(start + KIND).expect(BEGUN), kind.code());
    let at = start + HEADER;
    out.splice(at..at, prefix.iter().copied().chain([inner]));
    finish(out, start);
}

/// Gives the frame at the begin of `frame` another id.
///
/// # Panics
/// If it is no whole frame.
pub fn set_id(frame: &mut [u8], id: u32) {
    put(frame, ID, id.to_le_bytes());
    seal(frame);
}

#[cold]
fn too_long(len: usize, max_body: usize) -> Error {
    let detail = format!("malformed message: a frame of {len} bytes, at most {max_body} are taken");
    Error::client_invalid_operation().with_detail(detail)
}

#[cold]
fn damaged(expected: u32, found: u32) -> Error {
    let detail = format!("a frame's checksum is {expected:08x}, its bytes have {found:08x}");
    Error::checksum_failed().with_detail(detail)
}
