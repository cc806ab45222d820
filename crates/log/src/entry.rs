//! Entries, as readers get them, and the sections of their bodies.
//!
//! The body of an entry with mutations is in sections, one for each tag: whoever keeps a part of
//! the rows pulls the sections of its tag and leaves the others. Today there is one tag.
//!
//! ```text
//!   | format | 0 | sections | tag, length | tag, length | mutations of the first | of the second |
//! ```

use crate::failure::{LogError, LogResult};
use plinth_types::{Bytes, LogPosition, Version};

/// What an entry is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum EntryKind {
    /// What transactions changed, at a version of its own. The body is the caller's.
    Mutations = 16,
    /// Versions up to the one in its body may be handed out.
    Lease = 17,
    /// A leader's first entry: it says nothing but its term. Its body is empty.
    Begin = 18,
    /// The same, and who is a member from here on, which is among what it changes.
    Members = 19,
}

impl EntryKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Mutations, Self::Lease, Self::Begin, Self::Members];

    /// Whether an entry of this kind has mutations, and so a version of its own.
    pub const fn has_mutations(self) -> bool {
        matches!(self, Self::Mutations | Self::Members)
    }

    /// The kind with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }
}

/// What an entry is, beside its body: the same on every node that has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryHead {
    /// What it is for.
    pub kind: EntryKind,
    /// Number of the entry, counted from 1 without gaps.
    pub index: u64,
    /// The term in which it was made. Never falls.
    pub term: u64,
    /// Its version: larger than the previous one if it has mutations, else the same.
    pub version: Version,
    /// The version of the entry before.
    pub previous: Version,
    /// The highest version that whoever made it knew to be committed.
    pub committed: Version,
}

/// An entry of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What it is for. Readers of committed entries get those with mutations alone.
    pub kind: EntryKind,
    /// Number of the entry, counted from 1 without gaps, entries without mutations included.
    pub index: u64,
    /// The term in which it was made.
    pub term: u64,
    /// Its version: larger than that of any entry before it if it has mutations.
    pub version: Version,
    /// The version of the entry before.
    pub previous: Version,
    /// The highest version that whoever made it knew to be committed.
    pub committed: Version,
    /// What was appended. A slice of a larger piece of the file (256 KiB or more): whoever keeps a
    /// small part for long should copy it.
    pub body: Bytes,
}

impl Entry {
    /// An entry of its two parts.
    pub fn new(head: EntryHead, body: Bytes) -> Self {
        let EntryHead { kind, index, term, version, previous, committed } = head;
        Self { kind, index, term, version, previous, committed, body }
    }

    /// What has everything up to this entry has come so far.
    pub fn position(&self) -> LogPosition {
        LogPosition { index: self.index, term: self.term, version: self.version }
    }

    /// The entry without its body.
    pub fn head(&self) -> EntryHead {
        let Self { kind, index, term, version, previous, committed, .. } = *self;
        EntryHead { kind, index, term, version, previous, committed }
    }
}

/// Which storage a section is for.
pub type Tag = u32;

/// The tag of every section as long as each node keeps all rows.
pub const ALL_ROWS: Tag = 0;

/// The first byte of a body in sections.
pub const SECTIONS_FORMAT: u8 = 2;
/// The most sections that a body may have.
pub const MAX_SECTIONS: usize = u16::MAX as usize;

const SECTION_COUNT: usize = 2;
const SECTIONS: usize = SECTION_COUNT + 2;
const SECTION_LEN: usize = 4 + 4;

/// What stands before the sections of a body: for each in order its tag and its length in bytes. At
/// most [`MAX_SECTIONS`] are taken; the log refuses a body that is longer than 2^30 bytes.
pub fn sections_head(sections: &[(Tag, usize)]) -> Vec<u8> {
    let count = u16::try_from(sections.len()).unwrap_or(u16::MAX);
    let mut head = Vec::with_capacity(SECTIONS + sections.len() * SECTION_LEN);
    head.extend_from_slice(&[SECTIONS_FORMAT, 0]);
    head.extend_from_slice(&count.to_le_bytes());
    for (tag, len) in sections.iter().take(MAX_SECTIONS) {
        let len = u32::try_from(*len).unwrap_or(u32::MAX);
        head.extend_from_slice(&tag.to_le_bytes());
        head.extend_from_slice(&len.to_le_bytes());
    }
    head
}

/// The sections of a body: tag and bytes of each, in order.
///
/// # Errors
/// `Corrupt` if these bytes are no such body.
pub fn sections(body: &Bytes) -> LogResult<Vec<(Tag, Bytes)>> {
    let corrupt = LogError::Malformed;
    match body.first() {
        Some(&SECTIONS_FORMAT) => {}
        found => {
            let found = found.map_or("no format".to_string(), |format| format!("format {format}"));
            return Err(corrupt(format!(
                "body of an entry has {found}, expected {SECTIONS_FORMAT}"
            )));
        }
    }
    let short =
        || corrupt(format!("body of an entry has {} bytes, fewer than its sections", body.len()));
    let count = body.get(SECTION_COUNT..SECTIONS).and_then(|bytes| bytes.first_chunk::<2>());
    let count = usize::from(u16::from_le_bytes(*count.ok_or_else(short)?));
    let mut at = SECTIONS + count * SECTION_LEN;
    let heads = body.get(SECTIONS..at).ok_or_else(short)?;
    let mut sections = Vec::with_capacity(count);
    for head in heads.as_chunks::<SECTION_LEN>().0 {
        let [a, b, c, d, e, f, g, h] = *head;
        let (tag, len) =
            (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]) as usize);
        let end = at.checked_add(len).filter(|end| *end <= body.len()).ok_or_else(short)?;
        sections.push((tag, body.slice(at..end)));
        at = end;
    }
    if at != body.len() {
        let found = body.len();
        return Err(corrupt(format!(
            "body of an entry has {found} bytes, its sections end at {at}"
        )));
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_body_in_sections() {
        let mut body = sections_head(&[(ALL_ROWS, 3), (7, 2)]);
        body.extend_from_slice(b"abcde");
        let golden = [2, 0, 2, 0, 0, 0, 0, 0, 3, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0];
        assert_eq!(body, [&golden[..], b"abcde"].concat());
        let body = Bytes::from(body);
        let expected = [(ALL_ROWS, Bytes::from_static(b"abc")), (7, Bytes::from_static(b"de"))];
        assert_eq!(sections(&body), Ok(expected.to_vec()));
        // Every prefix, every longer body, and every other format is refused.
        for len in 0..body.len() {
            assert_eq!(
                sections(&body.slice(..len)),
                Err(LogError::Malformed(String::new())),
                "{len}"
            );
        }
        assert_eq!(
            sections(&[&body[..], b"x"].concat().into()),
            Err(LogError::Malformed(String::new()))
        );
        let old = sections(&Bytes::from_static(b"\x01mutations")).expect_err("format 1");
        assert!(old.to_string().contains("format 1, expected 2"), "{old}");
        assert_eq!(sections(&Bytes::from(sections_head(&[]))), Ok(Vec::new()));
    }

    #[test]
    fn nonsense_is_no_body() {
        let mut state = 1_u64;
        for len in 0..200 {
            let bytes: Vec<u8> = (0..len)
                .map(|at| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    if at == 0 { SECTIONS_FORMAT } else { (state >> 56) as u8 & 3 }
                })
                .collect();
            if let Ok(sections) = sections(&Bytes::from(bytes)) {
                assert!(sections.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() < len);
            }
        }
    }
}
