//! Numbers and times as lines of text have them.
//!
//! Senders print integers of 64 bits and floats of 17 digits, and the same time for many series in turn. Integers and floats of few digits are read here, other
//! floats by a library, and a time that is written as the one before is not read again. Whatever can't be held exactly is refused or kept as an integer, never wrapped.

use crate::time;
use crate::value::Value;

/// Beyond it a float doesn't tell neighbouring integers apart.
const EXACT: u64 = 1 << 53;
/// Digits of the smallest integer beyond [`EXACT`].
const EXACT_DIGITS: usize = 16;
/// Decimal digits that any number of 64 bits has room for.
const SURE_DIGITS: usize = 19;

/// What is wrong with a number or a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wrong {
    Digit,
    Overflow,
    Double,
    Time,
}

impl Wrong {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Digit => "can't parse integer (character value out of range)",
            Self::Overflow => "integer overflow",
            Self::Double => "can't parse double value",
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
    if text.len() < EXACT_DIGITS
        && let Some(float) = short_decimal(text)
    {
        return Ok(Value::Float(float));
    }
    fast_float2::parse(text).map(Value::Float).map_err(|_| Wrong::Double)
}

/// Powers of ten that a float holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// A float of few digits, without an exponent: two numbers that floats hold exactly, of which one is divided by the other, which rounds once. `None` for
/// all other texts.
#[inline]
fn short_decimal(text: &[u8]) -> Option<f64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let (mut number, mut point) = (0_u64, None);
    if digits.len() > SURE_DIGITS {
        return None;
    }
    for (place, byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => number = number * 10 + u64::from(byte - b'0'),
            b'.' if point.is_none() => point = Some(place),
            _ => return None,
        }
    }
    let behind = point.map_or(0, |place| digits.len() - 1 - place);
    if number > EXACT || digits.len() == usize::from(point.is_some()) {
        return None;
    }
    let float = number as f64 / POWERS.get(behind)?;
    Some(if digits.len() < text.len() { -float } else { float })
}

/// A time in nanoseconds since 1970, as ISO 8601 in its basic form or as digits.
pub(super) fn time(text: &[u8]) -> Result<i64, Wrong> {
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
    fn floats_of_few_digits_are_those_of_the_standard_library() {
        let mut random = crate::workload::Random::new(9);
        let mut short = 0;
        for _ in 0..100_000 {
            let mut text = (random.next() >> random.below(64)).to_string();
            if random.below(4) > 0 {
                text.insert(random.below(text.len() as u64 + 1) as usize, '.');
            }
            if random.below(2) == 0 {
                text.insert(0, '-');
            }
            let expected: f64 = text.parse().unwrap();
            if let Some(float) = short_decimal(text.as_bytes()) {
                assert_eq!(float.to_bits(), expected.to_bits(), "{text}");
                short += 1;
            }
        }
        assert!(short > 50_000, "{short}");
        for text in ["", "-", ".", "-.", "1.2.3", "1e5", "+1", "--1", "1-", "nan", "inf", " 1", "1 "] {
            assert_eq!(short_decimal(text.as_bytes()), None, "{text}");
        }
        assert_eq!(short_decimal(b"-0").map(f64::to_bits), Some((-0.0_f64).to_bits()));
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
            assert!(found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan()), "{text}");
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
        assert_eq!(time(b"-5"), Ok(-5));
        for text in
            ["", "bad", "20201302T030405", "16000101T000000", "23000101T000000", "99999999999999999999"]
        {
            assert_eq!(time(text.as_bytes()), Err(Wrong::Time), "{text}");
        }
    }
}
