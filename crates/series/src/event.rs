//! Events: texts in series of points, so that they are as durable, as mergeable and as deletable as
//! any point.
//!
//! A text becomes integers: the first has its length and what its time has below a microsecond,
//! each further one has eight bytes. They lie a nanosecond apart from the beginning of the event's
//! microsecond on, so a text has its microsecond for itself: of two events of one series and one
//! microsecond the last counts. A reader takes as many points as the first one says and leaves out
//! what an older, longer text has left behind.

use crate::error::{Error, Result};
use crate::value::{Point, Value};

/// Longest text, in bytes.
pub const MAX_EVENT_BYTES: usize = 4095;
const MICROSECOND: i64 = 1000;
/// Where in the first point what the time has below a microsecond begins.
const LENGTH_BITS: u32 = 16;

const _: () = assert!(
    MAX_EVENT_BYTES.div_ceil(8) < MICROSECOND as usize && MAX_EVENT_BYTES < 1 << LENGTH_BITS
);

/// The points that stand for a text at a time.
///
/// # Errors
/// [`Error::TooMany`] for a text beyond [`MAX_EVENT_BYTES`] and for a time in the first or last
/// microsecond of all time.
pub fn points(time: i64, text: &[u8]) -> Result<Vec<Point>> {
    if text.len() > MAX_EVENT_BYTES {
        return Err(Error::TooMany {
            what: format!("bytes in an event, {MAX_EVENT_BYTES} may be"),
        });
    }
    let below = time.rem_euclid(MICROSECOND);
    let (Some(start), Some(_)) = (time.checked_sub(below), time.checked_add(MICROSECOND)) else {
        return Err(Error::TooMany { what: "nanoseconds in the time of an event".to_string() });
    };
    let head = text.len() as i64 | below << LENGTH_BITS;
    let bytes = text.chunks(8).map(|chunk| {
        let mut eight = [0; 8];
        eight[..chunk.len()].copy_from_slice(chunk);
        i64::from_le_bytes(eight)
    });
    let values = [head].into_iter().chain(bytes);
    Ok((start..)
        .zip(values)
        .map(|(time, value)| Point { time, value: Value::Integer(value) })
        .collect())
}

/// Whether a point of a series of events is the first one of an event.
pub(crate) fn is_first(point: &Point) -> bool {
    point.time.rem_euclid(MICROSECOND) == 0
}

/// Puts events together from points that ascend by time. What is no event, such as a point of
/// another source, is left out.
#[derive(Clone, Default, Debug)]
pub struct Events {
    start: i64,
    time: i64,
    length: usize,
    text: Vec<u8>,
    /// Whether bytes of a text are awaited.
    open: bool,
}

impl Events {
    /// Takes the next point. Gives an event with its time if that completes one.
    pub fn push(&mut self, point: Point) -> Option<(i64, Vec<u8>)> {
        let Value::Integer(value) = point.value else {
            self.open = false;
            return None;
        };
        let place = point.time.rem_euclid(MICROSECOND);
        if place == 0 {
            let (length, below) = (value & ((1 << LENGTH_BITS) - 1), value >> LENGTH_BITS);
            self.open =
                (0..=MAX_EVENT_BYTES as i64).contains(&length) && (0..MICROSECOND).contains(&below);
            (self.start, self.time) = (point.time, point.time.saturating_add(below));
            self.length = length as usize;
            self.text.clear();
        } else if self.open && point.time == self.start + self.text.len().div_ceil(8) as i64 + 1 {
            let left = (self.length - self.text.len()).min(8);
            self.text.extend_from_slice(&value.to_le_bytes()[..left]);
        } else {
            self.open = false;
        }
        if !self.open || self.text.len() < self.length {
            return None;
        }
        self.open = false;
        Some((self.time, std::mem::take(&mut self.text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_back() {
        let long = vec![7; MAX_EVENT_BYTES];
        let texts: [(i64, &[u8]); 5] = [
            (-1, b""),
            (1_999, b"eight by"),
            (2_000, b"\0\xff"),
            (i64::MAX - 2_000, &long),
            (3, b"x"),
        ];
        for (time, text) in texts {
            let mut events = Events::default();
            let found: Vec<_> = points(time, text)
                .unwrap()
                .into_iter()
                .filter_map(|point| events.push(point))
                .collect();
            assert_eq!(found, [(time, text.to_vec())]);
        }
        assert!(points(0, &[0; MAX_EVENT_BYTES + 1]).is_err());
        assert!(points(i64::MIN, b"x").is_err() && points(i64::MAX, b"x").is_err());
    }

    #[test]
    fn what_a_longer_text_left_behind_is_no_event() {
        let mut all: std::collections::BTreeMap<i64, Point> = std::collections::BTreeMap::new();
        for (time, text) in [(5_000, &b"a text of four words and more"[..]), (5_700, b"short")] {
            all.extend(points(time, text).unwrap().into_iter().map(|point| (point.time, point)));
        }
        let mut events = Events::default();
        let found: Vec<_> = all.into_values().filter_map(|point| events.push(point)).collect();
        assert_eq!(found, [(5_700, b"short".to_vec())]);
        let stray =
            [(9_000, Value::Float(1.0)), (9_001, Value::Integer(4)), (10_000, Value::Integer(-1))];
        assert!(
            stray.into_iter().all(|(time, value)| events.push(Point { time, value }).is_none())
        );
    }
}
