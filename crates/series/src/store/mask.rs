//! Masks: the spans of a series' tree that were deleted. Nodes that lie within one are gone; the
//! rest of it is left out by readers.
//!
//! A mask covers the tree alone. Late points have their own place, from which a delete removes
//! them, so a point that comes after the delete is seen.

use crate::codec::{self, reader::Reader};
use crate::error::{Error, Result};
use crate::tree::Span;

/// Most masks of a series.
pub(crate) const MAX_MASKS: usize = 4096;
const FORMAT: u8 = 1;
const HEADER: usize = 8;

/// The masks with one more: ascending, neither overlapping nor touching.
pub(crate) fn with(mut masks: Vec<Span>, added: Span) -> Vec<Span> {
    if added.is_empty() {
        return masks;
    }
    masks.push(added);
    masks.sort_unstable_by_key(|mask| mask.first);
    let mut joined: Vec<Span> = Vec::new();
    for mask in masks {
        match joined.last_mut() {
            Some(last) if mask.first <= last.last.saturating_add(1) => {
                last.last = last.last.max(mask.last)
            }
            _ => joined.push(mask),
        }
    }
    joined
}

pub(crate) fn encode(masks: &[Span]) -> Vec<u8> {
    assert!((1..=MAX_MASKS).contains(&masks.len()), "there are masks to write");
    let mut out = vec![FORMAT, 0];
    out.extend_from_slice(&((masks.len() - 1) as u16).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    codec::encode_integers(&masks.iter().map(|mask| mask.first).collect::<Vec<_>>(), &mut out);
    codec::encode_integers(&masks.iter().map(|mask| mask.last).collect::<Vec<_>>(), &mut out);
    codec::put_checksum(&mut out);
    out
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<Span>> {
    codec::check_checksum("the masks of a series", bytes)?;
    let mut reader = Reader::new(bytes);
    let [format, _, low, high, ..] = reader.fixed::<HEADER>()?;
    if format != FORMAT {
        return Err(Error::damaged(
            "the masks of a series",
            format!("format {FORMAT} expected, {format} found"),
        ));
    }
    let count = usize::from(u16::from_le_bytes([low, high])) + 1;
    let first = codec::decode_integers(&mut reader, count)?;
    let last = codec::decode_integers(&mut reader, count)?;
    Ok(first.into_iter().zip(last).map(|(first, last)| Span { first, last }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_join_and_come_back() {
        let span = |first, last| Span { first, last };
        let mut masks = Vec::new();
        for added in
            [span(10, 20), span(40, 50), span(21, 25), Span::NONE, span(30, 45), span(i64::MIN, 0)]
        {
            masks = with(masks, added);
        }
        assert_eq!(masks, [span(i64::MIN, 0), span(10, 25), span(30, 50)]);
        assert_eq!(decode(&encode(&masks)).unwrap(), masks);
        assert_eq!(with(masks, Span::ALL), [Span::ALL]);
    }
}
