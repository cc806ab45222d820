//! Numbers as text.
//!
//! A float has the fewest digits from which the same bits are read again, and no point where it is
//! whole; an integer has all of its digits. Those are made in pairs, by a table: a long answer is
//! mostly numbers.

use crate::digits::put_pair;
use crate::value::Value;

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

/// Below this, floats that are whole have all of their digits.
const WHOLE: f64 = 9e15;

/// Appends a float by the fewest digits that are read as the same one.
pub(crate) fn write_float(float: f64, out: &mut Vec<u8>) {
    if float.is_nan() {
        out.extend_from_slice(b"nan");
    } else if float.is_infinite() {
        out.extend_from_slice(if float > 0.0 { b"inf" } else { b"-inf" });
    } else if float.abs() < WHOLE && (float as i64) as f64 == float {
        if float == 0.0 && float.is_sign_negative() {
            out.push(b'-');
        }
        write_integer(float as i64, out);
    } else {
        out.extend_from_slice(zmij::Buffer::new().format_finite(float).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(value: f64) -> String {
        let mut out = Vec::new();
        write_float(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn floats_have_the_fewest_digits() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-24.75, "-24.75"),
            (63.33, "63.33"),
            (0.1, "0.1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (0.00001, "0.00001"),
            (1.5e-7, "1.5e-7"),
            (8e15, "8000000000000000"),
            (1e17, "1e+17"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (1.5e300, "1.5e+300"),
            (5e-324, "5e-324"),
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
