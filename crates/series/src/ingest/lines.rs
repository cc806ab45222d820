//! Lines of a stream that arrives in pieces: whole ones only, counted, and none longer than a
//! limit.
//!
//! A line that is too long is told once, when that is known, and skipped to its end; so what is
//! held of a stream never exceeds the limit. Most lines are a few bytes long, and millions come in
//! a second: their ends are looked for a word at a time.

use memchr::memchr;

/// Longest line, in bytes, its end not counted: a row of many metrics with long tags fits.
pub const MAX_LINE_BYTES: usize = 16 << 10;

/// What is said of a line beyond the limit.
pub(super) const TOO_LONG: &str = "the line is longer than 16384 bytes";

/// What stands next in a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Line<'a> {
    /// A line without its end.
    Whole(&'a [u8]),
    /// A line beyond [`MAX_LINE_BYTES`]; it is said once, and the rest of it is skipped.
    TooLong,
}

/// Where in the stream of lines the reading is.
#[derive(Clone, Default, Debug)]
pub(super) struct Lines {
    /// The number of the line given last, from 1 on.
    pub(super) number: u64,
    /// In the middle of a line that is too long.
    pub(super) skipping: bool,
}

impl Lines {
    /// The next line of `bytes` from `at` on, which moves behind it; `None` if its end has not
    /// arrived.
    #[inline]
    pub(super) fn next<'a>(&mut self, bytes: &'a [u8], at: &mut usize) -> Option<Line<'a>> {
        loop {
            let rest = &bytes[*at..];
            let Some(end) = line_end(rest) else { return self.unfinished(rest, at) };
            *at += end + 1;
            if self.skipping {
                self.skipping = false;
                continue;
            }
            self.number += 1;
            let line = without_return(&rest[..end]);
            return Some(if line.len() > MAX_LINE_BYTES {
                Line::TooLong
            } else {
                Line::Whole(line)
            });
        }
    }

    #[cold]
    fn unfinished<'a>(&mut self, rest: &'a [u8], at: &mut usize) -> Option<Line<'a>> {
        if self.skipping {
            *at += rest.len();
            return None;
        }
        // One more byte may be the first of the line's end.
        if rest.len() <= MAX_LINE_BYTES + 1 {
            return None;
        }
        *at += rest.len();
        self.skipping = true;
        self.number += 1;
        Some(Line::TooLong)
    }
}

/// The line that the bytes begin with, if it is whole and not too long, without its end; and how
/// many bytes it has with it.
#[inline]
pub(super) fn whole_line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = line_end(bytes).filter(|end| *end <= MAX_LINE_BYTES)?;
    Some((without_return(&bytes[..end]), end + 1))
}

/// A line that may end in `\r\n` without the first of these, once the second is gone.
#[inline]
fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Where the line that the bytes begin with ends.
#[inline]
fn line_end(bytes: &[u8]) -> Option<usize> {
    find_near(b'\n', bytes)
}

/// Where a byte is that stands near the beginning, as a rule: most lines, and the words of others,
/// are a few bytes long. Those are looked at here, eight at a time.
#[inline]
pub(super) fn find_near(byte: u8, bytes: &[u8]) -> Option<usize> {
    const EACH: u64 = u64::MAX / 255;
    const SHORT: usize = 3;
    for (place, eight) in bytes.as_chunks::<8>().0.iter().take(SHORT).enumerate() {
        // What is looked for is zero now, and the lowest of those is the lowest whose highest bit
        // appears.
        let eight = u64::from_le_bytes(*eight) ^ (EACH * u64::from(byte));
        let found = eight.wrapping_sub(EACH) & !eight & EACH << 7;
        if found != 0 {
            return Some(place * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    memchr(byte, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Vec<(u64, Option<usize>)> {
        let (mut lines, mut at, mut found) = (Lines::default(), 0, Vec::new());
        while let Some(line) = lines.next(bytes, &mut at) {
            let len = match line {
                Line::Whole(line) => Some(line.len()),
                Line::TooLong => None,
            };
            found.push((lines.number, len));
        }
        found
    }

    #[test]
    fn the_first_of_a_byte_is_found_wherever_it_is() {
        let mut random = crate::workload::Random::new(1);
        for length in 0..64 {
            for _ in 0..200 {
                // Neighbours of what is looked for, and bytes with the highest bit, among others.
                let end = [b'\n', b' '][random.below(2) as usize];
                let any = |random: &mut crate::workload::Random| match random.below(8) {
                    0 => end,
                    1 => end + 1,
                    2 => end | 0x80,
                    3 => end - 1,
                    _ => random.next() as u8,
                };
                let bytes: Vec<u8> = (0..length).map(|_| any(&mut random)).collect();
                let first = bytes.iter().position(|byte| *byte == end);
                assert_eq!(find_near(end, &bytes), first, "{end} in {bytes:?}");
            }
        }
    }

    #[test]
    fn ends_of_both_kinds_and_lines_at_the_limit() {
        assert_eq!(all(b"a\r\n\nbc\nrest"), [(1, Some(1)), (2, Some(0)), (3, Some(2))]);
        let limit = "x".repeat(MAX_LINE_BYTES);
        assert_eq!(
            all(format!("{limit}\r\na\n").as_bytes()),
            [(1, Some(MAX_LINE_BYTES)), (2, Some(1))]
        );
        assert_eq!(all(format!("{limit}x\r\na\n").as_bytes()), [(1, None), (2, Some(1))]);
        assert_eq!(all(format!("{limit}\r").as_bytes()), []);
        assert_eq!(all(format!("{limit}xx").as_bytes()), [(1, None)]);
    }

    #[test]
    fn a_line_without_an_end_is_told_once_and_held_nowhere() {
        let (mut lines, piece) = (Lines::default(), vec![b'x'; MAX_LINE_BYTES * 2]);
        let mut at = 0;
        assert_eq!(lines.next(&piece, &mut at), Some(Line::TooLong));
        for _ in 0..10 {
            assert_eq!(at, piece.len());
            at = 0;
            assert_eq!(lines.next(&piece, &mut at), None);
        }
        let mut at = 0;
        assert_eq!(lines.next(b"xxx\nb\n", &mut at), Some(Line::Whole(b"b")));
    }
}
