//! How a frame is written: a message, and the entries that it speaks of.
//!
//! Index and term of an entry follow from the message, so that what is read is whole or not read at
//! all. Every length is held against a bound before anything is done with it, the checksum covers
//! all of it, and what no leader could have made (versions that don't follow each other, a body
//! that its kind doesn't have) is refused here. Bodies are not copied when a frame is read: they
//! are slices of what arrived.
//!
//! ```text
//!   | checksum 4 | length 4 | length of the message 4 | what 4 | message | checksum 4 | head of an entry ... | body ... |
//!   '- of all behind it     '- of all behind it          |                   '- of the entry before these, if what is 2
//!                                                        '- 0, or 2 (1: a parcel)
//!
//!   head of an entry   | kind | 0 0 0 | length of its body 4 | version 8 | previous version 8 | committed version 8 |
//! ```

use crate::failure::{ReplicationError, ReplicationResult};
use plinth_log::{Entry, EntryHead, EntryKind};
use plinth_types::{Bytes, Version};

use crate::members::Members;
use crate::message::{MAX_FRAME, Message};
use crate::peers::Frame;

const LENGTH: usize = 4;
const MESSAGE_LENGTH: usize = LENGTH + 4;
const MESSAGE: usize = MESSAGE_LENGTH + 8;
const ENTRY_HEAD: usize = 32;
/// What a frame is that has a checksum of the entry before its own.
const WITH_BEFORE: u32 = 2;

/// The checksum of an entry, the same on every node: of its head as in a frame, and its body. Two
/// entries with the same index and term have the same, unless two leaders have had that term.
pub(crate) fn checksum(head: &EntryHead, body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&head_bytes(head, body.len())), body)
}

impl Frame {
    /// How many bytes [`Frame::encode`] gives, about.
    pub fn size(&self) -> usize {
        let bodies: usize = self.entries.iter().map(|entry| ENTRY_HEAD + entry.body.len()).sum();
        MESSAGE + 80 + self.message.entries.len() * 8 + 4 + bodies
    }

    /// The frame's bytes.
    ///
    /// # Errors
    /// `TooLarge` if the entries aren't those of the message, or there is a checksum of the one
    /// before where there is none, or the frame is longer than [`MAX_FRAME`]: nobody would take it.
    pub fn encode(&self) -> ReplicationResult<Vec<u8>> {
        let invalid = |what: String| Err(ReplicationError::TooLarge(what));
        if !self.is_whole() {
            return invalid(format!("{} entries in a frame of other ones", self.entries.len()));
        }
        if self.before.is_some() && !self.message.has_entry_before() {
            return invalid("a checksum of an entry before the first".to_string());
        }
        if self.size() > MAX_FRAME {
            return invalid(format!(
                "a frame of {} bytes, at most {MAX_FRAME} are taken",
                self.size()
            ));
        }
        let message = self.message.encode();
        let mut bytes = Vec::with_capacity(self.size());
        bytes.extend_from_slice(&[0; MESSAGE_LENGTH]);
        let what = self.before.map_or(0, |_| WITH_BEFORE);
        bytes.extend_from_slice(&(message.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&what.to_le_bytes());
        bytes.extend_from_slice(&message);
        bytes.extend(self.before.map(u32::to_le_bytes).into_iter().flatten());
        for entry in &self.entries {
            bytes.extend_from_slice(&head_bytes(&entry.head(), entry.body.len()));
        }
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.body);
        }
        let len = (bytes.len() - MESSAGE_LENGTH) as u32;
        bytes[LENGTH..MESSAGE_LENGTH].copy_from_slice(&len.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[LENGTH..]);
        bytes[..LENGTH].copy_from_slice(&checksum.to_le_bytes());
        Ok(bytes)
    }

    /// Reads a frame. Its entries are slices of these bytes.
    ///
    /// # Errors
    /// `Damaged`; `Malformed` if these bytes are no frame, or none that a node could
    /// send.
    pub fn decode(bytes: &Bytes) -> ReplicationResult<Self> {
        let Some((head, rest)) = bytes.split_first_chunk::<MESSAGE>() else {
            return refuse(format!("{} bytes", bytes.len()));
        };
        let [checksum, len, message_len, what] = words(head);
        let is_known = [0, WITH_BEFORE].contains(&what);
        if bytes.len() > MAX_FRAME || bytes.len() - MESSAGE_LENGTH != len as usize || !is_known {
            return refuse(format!("{} bytes, of which {len} are said to be there", bytes.len()));
        }
        let found = crc32c::crc32c(&bytes[LENGTH..]);
        if found != checksum {
            let detail =
                format!("a frame's checksum is {checksum:08x}, its bytes have {found:08x}");
            return Err(ReplicationError::Damaged(detail));
        }
        let Some((message, rest)) = rest.split_at_checked(message_len as usize) else {
            return refuse(format!("a message of {message_len} bytes"));
        };
        let message = Message::decode(message)?;
        let (before, rest) = before(&message, what, rest)?;
        let count = message.entries.len();
        let (heads, rest) = rest.as_chunks::<ENTRY_HEAD>();
        if heads.len() < count {
            return refuse(format!("{count} entries, and fewer heads"));
        }
        let mut at = bytes.len() - rest.len() - (heads.len() - count) * ENTRY_HEAD;
        let mut entries = Vec::with_capacity(count);
        let mut previous = None;
        for ((head, term), index) in heads.iter().zip(&message.entries).zip(message.index + 1..) {
            let (head, body_len) = entry_head(head, index, *term)?;
            let end = at.checked_add(body_len).filter(|end| *end <= bytes.len());
            let Some(end) = end else { return refuse(format!("a body of {body_len} bytes")) };
            let entry = Entry::new(head, bytes.slice(at..end));
            check(&entry, previous)?;
            if (entry.kind == EntryKind::Members) != message.members.contains(&index) {
                return refuse(format!(
                    "entry {index}, a {:?} where the message has another kind",
                    entry.kind
                ));
            }
            (at, previous) = (end, Some(entry.version));
            entries.push(entry);
        }
        if at != bytes.len() {
            return refuse(format!("{} bytes behind its last body", bytes.len() - at));
        }
        Ok(Self { message, entries, before })
    }
}

/// The checksum of the entry before those of a frame, if it has one, and what follows.
fn before<'a>(
    message: &Message,
    what: u32,
    rest: &'a [u8],
) -> ReplicationResult<(Option<u32>, &'a [u8])> {
    if what != WITH_BEFORE {
        return Ok((None, rest));
    }
    let checked = rest.split_first_chunk().filter(|_| message.has_entry_before());
    let Some((checksum, rest)) = checked else {
        return refuse("a checksum of an entry before its own, and no such entry".to_string());
    };
    Ok((Some(u32::from_le_bytes(*checksum)), rest))
}

/// The bytes of an entry's head: what a message doesn't say of it.
fn head_bytes(head: &EntryHead, body_len: usize) -> [u8; ENTRY_HEAD] {
    let mut bytes = [0; ENTRY_HEAD];
    bytes[0] = head.kind as u8;
    bytes[4..8].copy_from_slice(&(body_len as u32).to_le_bytes());
    let versions = [head.version, head.previous, head.committed].map(Version::to_le_bytes);
    bytes[8..].copy_from_slice(versions.as_flattened());
    bytes
}

/// The head of an entry, and the length of its body.
fn entry_head(
    bytes: &[u8; ENTRY_HEAD],
    index: u64,
    term: u64,
) -> ReplicationResult<(EntryHead, usize)> {
    let [kind, len] = words(bytes);
    // The kind's byte, and three that are zero.
    let known = u8::try_from(kind).ok().and_then(EntryKind::from_code);
    let Some(kind) = known else { return refuse(format!("an entry of kind {kind:#x}")) };
    let version = |at: usize| {
        bytes[at..].first_chunk().map_or(-1, |bytes: &[u8; 8]| Version::from_le_bytes(*bytes))
    };
    let (version, previous, committed) = (version(8), version(16), version(24));
    Ok((EntryHead { kind, index, term, version, previous, committed }, len as usize))
}

/// Whether a leader could have made this entry, behind one of version `previous`.
fn check(entry: &Entry, previous: Option<Version>) -> ReplicationResult<()> {
    let Entry { kind, index, version, .. } = *entry;
    let follows = match kind {
        kind if kind.has_mutations() => version > entry.previous,
        _ => version == entry.previous,
    };
    let in_order =
        entry.previous >= 0 && previous.is_none_or(|previous| previous == entry.previous);
    if !follows || !in_order || !(0..=version).contains(&entry.committed) {
        return refuse(format!(
            "entry {index} at version {version} behind {} and {}",
            entry.previous, entry.committed
        ));
    }
    let len = entry.body.len();
    let fits = match kind {
        EntryKind::Lease => len == 8,
        EntryKind::Begin => len == 0,
        EntryKind::Mutations => true,
        EntryKind::Members => Members::of_entry(&entry.body).is_ok(),
    };
    if !fits {
        return refuse(format!(
            "entry {index}, a {kind:?} with {len} bytes that are no body of it"
        ));
    }
    Ok(())
}

/// The numbers of four bytes that `bytes` begin with.
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let (words, _) = bytes.as_chunks::<4>();
    std::array::from_fn(|at| words.get(at).map_or(0, |bytes| u32::from_le_bytes(*bytes)))
}

fn refuse<T>(found: String) -> ReplicationResult<T> {
    Err(ReplicationError::Malformed(format!("frame of a node with {found}")))
}

#[cfg(test)]
mod tests;
