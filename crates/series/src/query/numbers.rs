//! Numbers as text.
//!
//! A float is written as C's `%.17g` writes it, from which the same bits are read again; an integer
//! has all of its digits. Digits are made in pairs, by a table: a long answer is mostly numbers.

use crate::digits::{put_eight, put_pair};
use crate::value::Value;
use std::io::Write as _;

/// Appends a value.
pub(crate) fn write_value(value: Value, out: &mut Vec<u8>) {
    match value {
        Value::Integer(integer) => write_integer(integer, out),
        Value::Float(float) => write_float(float, out),
    }
}

/// Appends an integer in decimal digits.
pub(crate) fn write_integer(integer: i64, out: &mut Vec<u8>) {
    let mut text = [0; 20];
    let mut at = text.len();
    let mut left = integer.unsigned_abs();
    while left >= 100 {
        at -= 2;
        put_pair(&mut text[at..], left % 100);
        left /= 100;
    }
    if left >= 10 {
        at -= 2;
        put_pair(&mut text[at..], left);
    } else {
        at -= 1;
        text[at] = b'0' + left as u8;
    }
    if integer < 0 {
        at -= 1;
        text[at] = b'-';
    }
    out.extend_from_slice(&text[at..]);
}

/// Digits that tell any two floats apart.
const DIGITS: i32 = 17;
/// What a number of so many digits is at least; and less than.
const LEAST: u64 = 10_u64.pow(DIGITS as u32 - 1);
const MOST: u64 = LEAST * 10;

/// Powers of ten, as many as floats of everyday size are scaled by.
const POWERS: [u128; 22] = {
    let mut powers = [1; 22];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// The digits of a float, as one number, rounded as `%.16e` rounds; and the exponent of the first
/// one. Of floats between 1e-4 and 1e17 alone, where all of it is exact in 128 bits.
fn digits_of(float: f64) -> Option<(u64, i32)> {
    const FRACTION: u64 = (1 << 52) - 1;
    if !(1e-4..1e17).contains(&float) {
        return None;
    }
    let bits = float.to_bits();
    let (binary, mantissa) =
        ((bits >> 52) as i32 - 1023, u128::from(bits & FRACTION | (FRACTION + 1)));
    // The exponent, or one less: 1233 / 4096 is a little less than the logarithm of 2.
    let mut exponent = (binary * 1233) >> 12;
    loop {
        let scaled = mantissa * *POWERS.get(usize::try_from(DIGITS - 1 - exponent).ok()?)?;
        let digits = match 52 - binary {
            shift @ 1.. => {
                let (whole, rest, half) =
                    (scaled >> shift, scaled & ((1 << shift) - 1), 1 << (shift - 1));
                // To the nearest, and from the middle to the even one.
                whole + u128::from(rest > half || (rest == half && whole & 1 == 1))
            }
            shift => scaled << -shift,
        };
        match u64::try_from(digits) {
            Ok(digits @ LEAST..MOST) => return Some((digits, exponent)),
            _ => exponent += 1,
        }
    }
}

/// Appends a float as `%.17g` does.
pub(crate) fn write_float(float: f64, out: &mut Vec<u8>) {
    if float.is_nan() {
        out.extend_from_slice(b"nan");
        return;
    }
    if float.is_sign_negative() {
        out.push(b'-');
    }
    let float = float.abs();
    if float.is_infinite() {
        out.extend_from_slice(b"inf");
        return;
    }
    if float < 9e15 && (float as i64) as f64 == float {
        write_integer(float as i64, out);
        return;
    }
    let (digits, exponent) = match digits_of(float) {
        Some((number, exponent)) => {
            let mut digits = [b'0'; DIGITS as usize];
            let (first, rest) = (number / LEAST, number % LEAST);
            digits[0] += first as u8;
            put_eight(&mut digits[1..], rest / 100_000_000);
            put_eight(&mut digits[9..], rest % 100_000_000);
            (digits, exponent)
        }
        None => digits_of_any(float),
    };
    write_digits(&digits, exponent, out);
}

/// Appends a number by its digits and the exponent of the first, as short as `%g` does.
fn write_digits(all: &[u8; DIGITS as usize], exponent: i32, out: &mut Vec<u8>) {
    let length = all.iter().rposition(|digit| *digit != b'0').map_or(1, |last| last + 1);
    let digits = &all[..length];
    match exponent {
        -4..0 => {
            out.extend_from_slice(&b"0.000"[..(1 - exponent) as usize]);
            out.extend_from_slice(digits);
        }
        0..DIGITS => {
            let whole = exponent as usize + 1;
            out.extend_from_slice(&all[..whole]);
            if let Some(fraction) = digits.get(whole..).filter(|fraction| !fraction.is_empty()) {
                out.push(b'.');
                out.extend_from_slice(fraction);
            }
        }
        _ => {
            out.push(digits[0]);
            if digits.len() > 1 {
                out.push(b'.');
                out.extend_from_slice(&digits[1..]);
            }
            out.push(b'e');
            out.push(if exponent < 0 { b'-' } else { b'+' });
            let exponent = exponent.unsigned_abs();
            if exponent < 10 {
                out.push(b'0');
            }
            write_integer(i64::from(exponent), out);
        }
    }
}

/// The digits of any float, and the exponent of the first.
fn digits_of_any(float: f64) -> ([u8; DIGITS as usize], i32) {
    let mut text = [0_u8; 40];
    let mut rest = &mut text[..];
    // It fits: a digit, a point, 16 digits, and an exponent of at most five characters.
    let _ = write!(rest, "{float:.16e}");
    let left = rest.len();
    let text = &text[..text.len() - left];
    let e = text.iter().position(|byte| *byte == b'e').unwrap_or(text.len());
    let exponent =
        text.get(e + 1..).and_then(|text| std::str::from_utf8(text).ok()?.parse::<i32>().ok());
    let mut digits = [b'0'; DIGITS as usize];
    digits[0] = text[0];
    digits[1..].copy_from_slice(&text[2..2 + DIGITS as usize - 1]);
    (digits, exponent.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways to the digits say the same, wherever both may be gone: for decimals, for what lies
    /// in the middle, and around powers of ten.
    #[test]
    fn digits_are_the_same_either_way() {
        let mut random = crate::workload::Random::new(11);
        let same = |float: f64| {
            let Some((number, exponent)) = digits_of(float) else { return 0 };
            let (digits, expected) = digits_of_any(float);
            assert_eq!(
                (format!("{number}").as_bytes(), exponent),
                (&digits[..], expected),
                "{float:e}"
            );
            1
        };
        let mut compared = 0;
        for _ in 0..200_000 {
            let scale = 10_f64.powi(random.below(25) as i32 - 6);
            compared += same(random.unit() * scale);
            compared += same((random.unit() * 1e6).round() / 100.0);
            compared += same((random.below(1 << 40) as f64 + 0.5) / 1024.0);
        }
        for power in -5..18 {
            let float = 10_f64.powi(power);
            for near in [
                float,
                float.next_down(),
                float.next_up(),
                float * 9.5,
                float * 9.999_999_999_999_999,
            ] {
                compared += same(near);
            }
        }
        assert!(compared > 400_000, "{compared}");
    }

    fn float(value: f64) -> String {
        let mut out = Vec::new();
        write_float(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn floats_are_written_as_c_does() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-24.75, "-24.75"),
            (63.33, "63.329999999999998"),
            (0.1, "0.10000000000000001"),
            (0.05, "0.050000000000000003"),
            (0.0001, "0.0001"),
            (0.00012, "0.00012"),
            (0.00001, "1.0000000000000001e-05"),
            (1e15, "1000000000000000"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (1.5e300, "1.5000000000000001e+300"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::NAN, "nan"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(float(value), expected);
        }
    }

    #[test]
    fn floats_come_back() {
        let mut random = crate::workload::Random::new(7);
        for _ in 0..20_000 {
            let value = f64::from_bits(random.next());
            if !value.is_nan() {
                assert_eq!(
                    float(value).parse::<f64>().unwrap().to_bits(),
                    value.to_bits(),
                    "{value:e}"
                );
            }
            let value = random.below(1_000_000) as f64 / 1000.0;
            assert_eq!(float(value).parse::<f64>().unwrap(), value);
        }
    }

    #[test]
    fn integers_keep_their_digits() {
        for integer in [0, 7, -1, i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            write_value(Value::Integer(integer), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), integer.to_string());
        }
    }
}
