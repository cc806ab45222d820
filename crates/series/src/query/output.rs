//! Rows as text, in the two forms of Akumuli: RESP, three lines a row, and CSV; or, with the feature `arrow`, as a stream of Arrow's.
//!
//! A float is written as C's `%.17g` writes it, from which the same bits are read again; an integer has all of its digits.

use super::cursor::Text;
use super::error::QueryResult;
use super::merge::Rows;
use super::parse::{Format, Output};
#[cfg(feature = "arrow")]
use crate::arrow::{Columns, Sheet};
use crate::time::write_iso;
use crate::value::Value;
use std::io::Write as _;

/// What rows are written by.
pub(crate) enum Sink {
    Text(Writer),
    #[cfg(feature = "arrow")]
    Arrow(Box<Sheet>),
}

impl Sink {
    pub(crate) fn text(output: Output, is_tuple: bool) -> Self {
        Self::Text(Writer::new(output, is_tuple))
    }

    #[cfg(feature = "arrow")]
    pub(crate) fn arrow(columns: &Columns) -> QueryResult<Self> {
        Ok(Self::Arrow(Box::new(Sheet::new(columns)?)))
    }

    pub(crate) fn is_text(&self) -> bool {
        matches!(self, Self::Text(_))
    }

    /// Writes rows of values.
    pub(crate) fn rows(
        &mut self,
        rows: &Rows<Value>,
        names: &[String],
        out: &mut Vec<u8>,
    ) -> QueryResult<()> {
        match self {
            Self::Text(writer) => writer.rows(rows, names, out),
            #[cfg(feature = "arrow")]
            Self::Arrow(sheet) => {
                for row in 0..rows.len() {
                    let (line, time) = (rows.lines[row], rows.times[row]);
                    sheet.cells(line, &names[line as usize], time, rows.row(row), None, out)?;
                }
            }
        }
        Ok(())
    }

    /// Writes events.
    pub(crate) fn events(
        &mut self,
        rows: &Rows<Text>,
        names: &[String],
        out: &mut Vec<u8>,
    ) -> QueryResult<()> {
        match self {
            Self::Text(writer) => writer.events(rows, names, out),
            #[cfg(feature = "arrow")]
            Self::Arrow(sheet) => {
                for row in 0..rows.len() {
                    let (line, time) = (rows.lines[row], rows.times[row]);
                    let text = rows.row(row).first().and_then(Option::as_deref).unwrap_or_default();
                    let text = String::from_utf8_lossy(text).into_owned();
                    sheet.cells(line, &names[line as usize], time, &[], Some(text), out)?;
                }
            }
        }
        Ok(())
    }

    /// Writes a name alone.
    pub(crate) fn name(&mut self, name: &str, out: &mut Vec<u8>) -> QueryResult<()> {
        match self {
            Self::Text(writer) => writer.name(name, out),
            #[cfg(feature = "arrow")]
            Self::Arrow(sheet) => sheet.name(name, out)?,
        }
        Ok(())
    }

    /// Writes what stands behind all rows.
    pub(crate) fn end(&mut self, out: &mut Vec<u8>) -> QueryResult<()> {
        match self {
            Self::Text(_) => {}
            #[cfg(feature = "arrow")]
            Self::Arrow(sheet) => sheet.finish(out)?,
        }
        let _ = out;
        Ok(())
    }
}

/// Writes rows as text.
pub(crate) struct Writer {
    is_csv: bool,
    is_iso: bool,
    /// Whether rows are arrays, even those with one column.
    is_tuple: bool,
    /// The beginning of a time's text, and the second it stands for.
    second: (i64, [u8; 15]),
}

const SECOND: i64 = 1_000_000_000;

impl Writer {
    pub(crate) fn new(output: Output, is_tuple: bool) -> Self {
        let is_csv = output.format == Some(Format::Csv);
        Self { is_csv, is_iso: output.iso, is_tuple, second: (i64::MAX, [0; 15]) }
    }

    /// Writes rows of values.
    pub(crate) fn rows(&mut self, rows: &Rows<Value>, names: &[String], out: &mut Vec<u8>) {
        for row in 0..rows.len() {
            self.head(&names[rows.lines[row] as usize], rows.times[row], out);
            let cells = rows.row(row);
            match self.is_csv {
                true => {
                    for cell in cells {
                        out.push(b',');
                        if let Some(value) = cell {
                            write_value(*value, out);
                        }
                    }
                    out.push(b'\n');
                }
                false => {
                    if self.is_tuple {
                        // A vector takes whatever is written.
                        let _ = write!(out, "*{}\r\n", cells.len());
                    }
                    for cell in cells {
                        match cell {
                            Some(value) => {
                                out.push(b'+');
                                write_value(*value, out);
                            }
                            None => out.extend_from_slice(b"$-1"),
                        }
                        out.extend_from_slice(b"\r\n");
                    }
                }
            }
        }
    }

    /// Writes events.
    pub(crate) fn events(&mut self, rows: &Rows<Text>, names: &[String], out: &mut Vec<u8>) {
        for row in 0..rows.len() {
            self.head(&names[rows.lines[row] as usize], rows.times[row], out);
            let text = rows.row(row).first().and_then(Option::as_deref).unwrap_or_default();
            let (before, after) = match self.is_csv {
                true => (b',', &b"\n"[..]),
                false => (b'+', &b"\r\n"[..]),
            };
            out.push(before);
            // A row stays a row whatever an event has in it.
            out.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
            out.extend_from_slice(after);
        }
    }

    /// Writes a name alone.
    pub(crate) fn name(&self, name: &str, out: &mut Vec<u8>) {
        match self.is_csv {
            true => out.extend_from_slice(name.as_bytes()),
            false => {
                out.push(b'+');
                out.extend_from_slice(name.as_bytes());
                out.push(b'\r');
            }
        }
        out.push(b'\n');
    }

    /// Writes what all rows begin with.
    fn head(&mut self, name: &str, time: i64, out: &mut Vec<u8>) {
        let is_resp = !self.is_csv;
        if is_resp {
            out.push(b'+');
        }
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(if is_resp { b"\r\n+" } else { b"," });
        if self.is_iso {
            self.time(time, out);
        } else {
            out.extend_from_slice(b"ts=");
            write_integer(time, out);
        }
        if is_resp {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Writes a time; rows of the same second share the work.
    fn time(&mut self, time: i64, out: &mut Vec<u8>) {
        let second = time.div_euclid(SECOND);
        if self.second.0 != second {
            let mut text = Vec::with_capacity(32);
            write_iso(time, &mut text);
            self.second.0 = second;
            self.second.1.copy_from_slice(&text[..15]);
        }
        let mut text = *b"00000000T000000.000000000";
        text[..15].copy_from_slice(&self.second.1);
        let mut fraction = time.rem_euclid(SECOND);
        for digit in text[16..].iter_mut().rev() {
            *digit = b'0' + (fraction % 10) as u8;
            fraction /= 10;
        }
        out.extend_from_slice(&text);
    }
}

pub(crate) fn write_value(value: Value, out: &mut Vec<u8>) {
    match value {
        Value::Integer(integer) => write_integer(integer, out),
        Value::Float(float) => write_float(float, out),
    }
}

fn write_integer(integer: i64, out: &mut Vec<u8>) {
    let mut text = [0; 20];
    let mut at = text.len();
    let mut left = integer.unsigned_abs();
    loop {
        at -= 1;
        text[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
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

/// The digits of a float, as one number, rounded as `%.16e` rounds; and the exponent of the first one. Of floats between 1e-4 and 1e17 alone, where all of
/// it is exact in 128 bits.
fn digits_of(float: f64) -> Option<(u64, i32)> {
    const FRACTION: u64 = (1 << 52) - 1;
    if !(1e-4..1e17).contains(&float) {
        return None;
    }
    let bits = float.to_bits();
    let (binary, mantissa) = ((bits >> 52) as i32 - 1023, u128::from(bits & FRACTION | (FRACTION + 1)));
    // The exponent, or one less: 1233 / 4096 is a little less than the logarithm of 2.
    let mut exponent = (binary * 1233) >> 12;
    loop {
        let scaled = mantissa * *POWERS.get(usize::try_from(DIGITS - 1 - exponent).ok()?)?;
        let digits = match 52 - binary {
            shift @ 1.. => {
                let (whole, rest, half) = (scaled >> shift, scaled & ((1 << shift) - 1), 1 << (shift - 1));
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
    if float < 9e15 && float.fract() == 0.0 {
        write_integer(float as i64, out);
        return;
    }
    let (digits, exponent) = match digits_of(float) {
        Some((mut number, exponent)) => {
            let mut digits = [b'0'; DIGITS as usize];
            for digit in digits.iter_mut().rev() {
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
            }
            (digits, exponent)
        }
        None => digits_of_any(float),
    };
    let length = digits.iter().rposition(|digit| *digit != b'0').map_or(1, |last| last + 1);
    let digits = &digits[..length];
    match exponent {
        -4..0 => {
            out.extend_from_slice(&b"0.000"[..(1 - exponent) as usize]);
            out.extend_from_slice(digits);
        }
        0..DIGITS => {
            let whole = exponent as usize + 1;
            for place in 0..whole {
                out.push(digits.get(place).copied().unwrap_or(b'0'));
            }
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
    let exponent = text.get(e + 1..).and_then(|text| std::str::from_utf8(text).ok()?.parse::<i32>().ok());
    let mut digits = [b'0'; DIGITS as usize];
    digits[0] = text[0];
    digits[1..].copy_from_slice(&text[2..2 + DIGITS as usize - 1]);
    (digits, exponent.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways to the digits say the same, wherever both may be gone: for decimals, for what lies in the middle, and around powers of ten.
    #[test]
    fn digits_are_the_same_either_way() {
        let mut random = crate::workload::Random::new(11);
        let same = |float: f64| {
            let Some((number, exponent)) = digits_of(float) else { return 0 };
            let (digits, expected) = digits_of_any(float);
            assert_eq!((format!("{number}").as_bytes(), exponent), (&digits[..], expected), "{float:e}");
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
            for near in
                [float, float.next_down(), float.next_up(), float * 9.5, float * 9.999_999_999_999_999]
            {
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
                assert_eq!(float(value).parse::<f64>().unwrap().to_bits(), value.to_bits(), "{value:e}");
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
