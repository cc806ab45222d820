//! Numbers and times as lines of text have them.
//!
//! Senders print integers of 64 bits and floats of 17 digits, and the same time for many series in
//! turn. Integers are read here, floats by a library, and a time that is written as the one before
//! is not read again. Whatever can't be held exactly is refused or kept as an integer, never
//! wrapped.

use crate::time;
use crate::value::Value;

/// Beyond it a float doesn't tell neighbouring integers apart.
const EXACT: u64 = 1 << 53;
/// Digits of the smallest integer beyond [`EXACT`].
const EXACT_DIGITS: usize = 16;
/// Decimal digits that any number of 64 bits has room for.
const SURE_DIGITS: usize = 19;
/// Decimal digits that an integer of 64 bits has room for, with a sign or without.
const SHORT_DIGITS: usize = 18;
/// Bytes of a line that may be looked at without knowing where it ends.
const SHORT_LINE: usize = 48;

/// What is wrong with a number or a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wrong {
    Digit,
    Overflow,
    Double,
    Time,
    Unit,
}

impl Wrong {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Digit => "can't parse integer (character value out of range)",
            Self::Overflow => "integer overflow",
            Self::Double => "can't parse double value",
            Self::Unit => {
                "digits alone are a time from 2010 to 2100, or nanoseconds since 1970 of 18 digits or more: write a unit \
                 behind them, such as 7s, 7ms, 7us or 7ns"
            }
            Self::Time => {
                "unexpected parameter timestamp format: YYYYMMDDTHHMMSS.nnnnnnnnn or nanoseconds are expected, from \
                 1677-09-21 to 2262-04-11"
            }
        }
    }
}

/// An integer of 64 bits in decimal digits, perhaps with a minus sign.
#[inline]
pub(super) fn integer(text: &[u8]) -> Result<i64, Wrong> {
    let (digits, is_negative) = match text {
        [b'-', digits @ ..] => (digits, true),
        digits => (digits, false),
    };
    if digits.is_empty() {
        return Err(Wrong::Digit);
    }
    let mut value: u64 = 0;
    let mut overflow = false;
    // So many digits fit without a look.
    let (head, tail) = digits.split_at(digits.len().min(SURE_DIGITS));
    for digit in head {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return Err(Wrong::Digit);
        }
        value = value * 10 + u64::from(digit);
    }
    for digit in tail {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return Err(Wrong::Digit);
        }
        let (tens, over) = value.overflowing_mul(10);
        let (sum, more) = tens.overflowing_add(u64::from(digit));
        overflow |= over | more;
        value = sum;
    }
    match (overflow, is_negative) {
        (true, _) => Err(Wrong::Overflow),
        (false, false) => i64::try_from(value).map_err(|_| Wrong::Overflow),
        (false, true) => 0_i64.checked_sub_unsigned(value).ok_or(Wrong::Overflow),
    }
}

/// A float; digits alone that a float would round stay an integer.
#[inline]
pub(super) fn value(text: &[u8]) -> Result<Value, Wrong> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if text.len() >= EXACT_DIGITS
        && digits.iter().all(u8::is_ascii_digit)
        && let Some(integer) = integer(text).ok().filter(|integer| integer.unsigned_abs() > EXACT)
    {
        return Ok(Value::Integer(integer));
    }
    fast_float2::parse(text).map(Value::Float).map_err(|_| Wrong::Double)
}

/// The digits that a text begins with, 18 at most: what they say, and how many they are.
#[inline]
pub(super) fn short_digits(text: &[u8]) -> (i64, usize) {
    let (mut number, mut count) = (0, 0);
    for letter in &text[..text.len().min(SHORT_DIGITS)] {
        let digit = letter.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        number = number * 10 + i64::from(digit);
        count += 1;
    }
    (number, count)
}

/// How long the end of a line is that the text begins with.
#[inline]
pub(super) fn line_break(text: &[u8]) -> Option<usize> {
    match text {
        [b'\r', b'\n', ..] => Some(2),
        [b'\n', ..] => Some(1),
        _ => None,
    }
}

/// A line with a number that is marked as in RESP, if it is a short one and well written: the
/// number, and how long the line is with its end. Nothing else is a mistake yet.
#[inline]
pub(super) fn value_line(text: &[u8]) -> Option<(Value, usize)> {
    let (mark, text) = text[..text.len().min(SHORT_LINE)].split_first()?;
    let (value, len) = match mark {
        b':' => {
            let digits = text.strip_prefix(b"-").unwrap_or(text);
            let sign = text.len() - digits.len();
            let (number, count) = short_digits(digits);
            let number = if sign > 0 { -number } else { number };
            (count > 0).then_some((Value::Integer(number), sign + count))?
        }
        b'+' => {
            let (float, len) = fast_float2::parse_partial::<f64, _>(text).ok()?;
            // From here on digits alone may be an integer.
            if len >= EXACT_DIGITS && !text[..len].contains(&b'.') {
                return None;
            }
            (Value::Float(float), len)
        }
        _ => return None,
    };
    Some((value, 1 + len + line_break(&text[len..])?))
}

/// A time in nanoseconds since 1970, as ISO 8601 in its basic form or as digits. A plus in front of
/// it is passed over, as Akumuli does: its own test of events sends one.
pub(super) fn time(text: &[u8]) -> Result<i64, Wrong> {
    let text = text.strip_prefix(b"+").unwrap_or(text);
    if text.get(8) == Some(&b'T') && text.len() >= 15 {
        return time::parse_iso(text).ok_or(Wrong::Time);
    }
    integer(text).map_err(|_| Wrong::Time)
}

/// The time read last, as it was written: many series share it.
#[derive(Default, Debug)]
pub(super) struct Recent {
    text: [u8; 32],
    len: usize,
    time: i64,
}

impl Recent {
    /// The time, if the text begins with a line that says the same as the one before, and how long
    /// that line is with its end.
    #[inline]
    pub(super) fn again(&self, text: &[u8]) -> Option<(i64, usize)> {
        let behind = text.strip_prefix(&self.text[..self.len])?;
        (self.len > 0).then_some(())?;
        Some((self.time, self.len + line_break(behind)?))
    }

    /// What `parse` makes of a text, unless it is the one before again.
    #[inline]
    pub(super) fn parse(
        &mut self,
        text: &[u8],
        parse: impl FnOnce(&[u8]) -> Result<i64, Wrong>,
    ) -> Result<i64, Wrong> {
        if text.len() == self.len && text == &self.text[..self.len] && self.len > 0 {
            return Ok(self.time);
        }
        let time = parse(text)?;
        if let Some(place) = self.text.get_mut(..text.len()) {
            place.copy_from_slice(text);
            (self.len, self.time) = (text.len(), time);
        }
        Ok(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_any_kind_are_what_the_standard_library_says() {
        const LETTERS: &[u8] = b"0123456789019.-+eEinfaty";
        let mut random = crate::workload::Random::new(9);
        let mut floats = 0;
        for _ in 0..300_000 {
            let count = random.below(9);
            let text: String = (0..count)
                .map(|_| LETTERS[random.below(LETTERS.len() as u64) as usize] as char)
                .collect();
            let found = value(text.as_bytes());
            match text.parse::<f64>() {
                Ok(expected) => {
                    assert_eq!(
                        found.map(Value::as_f64).map(f64::to_bits),
                        Ok(expected.to_bits()),
                        "{text}"
                    );
                    floats += 1;
                }
                Err(_) => assert_eq!(found, Err(Wrong::Double), "{text}"),
            }
        }
        assert!(floats > 10_000, "{floats}");
    }

    #[test]
    fn floats_of_any_bits_come_back_from_their_digits() {
        let mut random = crate::workload::Random::new(10);
        for _ in 0..100_000 {
            let float = f64::from_bits(random.next());
            let text = match random.below(3) {
                0 => format!("{float:?}"),
                1 => format!("{float:.17e}"),
                _ => format!("{:.15}", 10.0 + random.unit()),
            };
            let expected: f64 = text.parse().unwrap();
            let Ok(Value::Float(found)) = value(text.as_bytes()) else { panic!("{text}") };
            assert!(
                found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan()),
                "{text}"
            );
        }
    }

    #[test]
    fn integers_to_both_ends_and_not_beyond() {
        for (text, expected) in [
            ("0", Ok(0)),
            ("007", Ok(7)),
            ("9223372036854775807", Ok(i64::MAX)),
            ("-9223372036854775808", Ok(i64::MIN)),
            ("9223372036854775808", Err(Wrong::Overflow)),
            ("-9223372036854775809", Err(Wrong::Overflow)),
            ("99999999999999999999999999", Err(Wrong::Overflow)),
            ("", Err(Wrong::Digit)),
            ("-", Err(Wrong::Digit)),
            ("+1", Err(Wrong::Digit)),
            ("1 ", Err(Wrong::Digit)),
            ("1.0", Err(Wrong::Digit)),
        ] {
            assert_eq!(integer(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn values_keep_what_they_say() {
        for (text, expected) in [
            ("63.329999999999998", Value::Float(63.33)),
            ("-0", Value::Float(-0.0)),
            ("1e5", Value::Float(1e5)),
            ("inf", Value::Float(f64::INFINITY)),
            ("9007199254740993", Value::Integer(9_007_199_254_740_993)),
            ("-9007199254740993", Value::Integer(-9_007_199_254_740_993)),
            ("9007199254740992", Value::Float(9_007_199_254_740_992.0)),
            ("9223372036854775808", Value::Float(9.223_372_036_854_776e18)),
        ] {
            assert_eq!(value(text.as_bytes()), Ok(expected), "{text}");
        }
        assert!(value(b"nan").is_ok_and(Value::is_nan));
        for text in ["", "1.5x", "0x10", "x", "--1", "1,5", "\u{fc}"] {
            assert_eq!(value(text.as_bytes()), Err(Wrong::Double), "{text}");
        }
    }

    #[test]
    fn times_in_both_forms() {
        assert_eq!(time(b"20200102T030405.000000006"), Ok(1_577_934_245_000_000_006));
        assert_eq!(time(b"1577934245000000006"), Ok(1_577_934_245_000_000_006));
        assert_eq!(time(b"+20200102T030405.000000006"), Ok(1_577_934_245_000_000_006));
        assert_eq!(time(b"+5"), Ok(5));
        assert_eq!(time(b"-5"), Ok(-5));
        for text in [
            "",
            "+",
            "++5",
            "bad",
            "20201302T030405",
            "16000101T000000",
            "23000101T000000",
            "99999999999999999999",
        ] {
            assert_eq!(time(text.as_bytes()), Err(Wrong::Time), "{text}");
        }
    }
}
