//! Moments as people write them: UTC, or with an offset; FoundationDB's form and RFC 3339's.

use plinth_types::calendar::{Date, days_of_month};
use plinth_types::{Error, Result};
use std::fmt::Write;

/// The milliseconds since 1970 that a text says: `2026-11-25T03:05:34Z`,
/// `2026-11-25 03:05:34+0100`, FoundationDB's `2026/11/25.03:05:34+0100`, or seconds since 1970.
/// Without an offset it is UTC.
///
/// # Errors
/// `client_invalid_operation` for anything else.
pub fn parse_time(text: &str) -> Result<u64> {
    parse(text.trim()).ok_or_else(|| {
        Error::client_invalid_operation().with_detail(format!(
            "{text:?} is no time; write 2026-11-25T03:05:34Z, 2026/11/25.03:05:34+0100, or seconds since 1970"
        ))
    })
}

fn parse(text: &str) -> Option<u64> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse::<u64>().ok()?.checked_mul(1000);
    }
    let bytes = text.as_bytes();
    let separators = [(4, &b"-/"[..]), (7, b"-/"), (10, b"T .t"), (13, b":"), (16, b":")];
    if !text.is_ascii()
        || bytes.len() < 19
        || separators.iter().any(|(at, of)| !of.contains(&bytes[*at]))
    {
        return None;
    }
    let digits = |range: std::ops::Range<usize>| {
        let part = &text[range];
        part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<i64>().ok()).flatten()
    };
    let (year, month, day) = (digits(0..4)?, digits(5..7)?, digits(8..10)?);
    let (hour, minute, second) = (digits(11..13)?, digits(14..16)?, digits(17..19)?);
    let in_range = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_of_month(year, month)).contains(&day);
    if !in_range || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut rest = &text[19..];
    let mut millis = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let len = fraction.bytes().take_while(u8::is_ascii_digit).count();
        millis =
            format!("{:0<3}", &fraction[..len])[..3].parse::<i64>().ok().filter(|_| len > 0)?;
        rest = &fraction[len..];
    }
    let offset = match rest {
        "" | "Z" | "z" => 0,
        _ => {
            let sign = match rest.as_bytes()[0] {
                b'+' => 1,
                b'-' => -1,
                _ => return None,
            };
            let digits = rest[1..].replace(':', "");
            let number = digits.parse::<i64>().ok().filter(|_| digits.len() == 4)?;
            sign * (number / 100 * 60 + number % 100) * 60
        }
    };
    let seconds =
        Date { year, month, day }.days() * 86_400 + hour * 3600 + minute * 60 + second - offset;
    u64::try_from(seconds * 1000 + millis).ok()
}

/// A time as RFC 3339 writes it, in UTC, to the millisecond.
pub fn show_time(millis: u64) -> String {
    let (seconds, of_second) = ((millis / 1000) as i64, millis % 1000);
    let Date { year, month, day } = Date::of_days(seconds / 86_400);
    let mut text = format!("{year:04}-{month:02}-{day:02}T");
    let of_day = seconds % 86_400;
    let _ = write!(text, "{:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60);
    if of_second > 0 {
        let _ = write!(text, ".{of_second:03}");
    }
    text + "Z"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, expected) in [
            ("1764039934", 1_764_039_934_000),
            ("2025-11-25T03:05:34Z", 1_764_039_934_000),
            ("2025-11-25 03:05:34", 1_764_039_934_000),
            ("2025/11/25.04:05:34+0100", 1_764_039_934_000),
            ("2025-11-24T22:05:34.25-05:00", 1_764_039_934_250),
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T00:00:00Z", 951_782_400_000),
        ] {
            assert_eq!(parse_time(text).unwrap(), expected, "{text}");
        }
        for text in [
            "",
            "now",
            "2025-13-01T00:00:00Z",
            "2025-02-29T00:00:00Z",
            "2025-11-25",
            "2025-11-25T03:05:34X",
            "é025-11-25T03:05:34Z",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_shown_is_read_again() {
        for millis in [0, 1_764_039_934_250, 951_782_400_000, 4_102_444_799_000, 68_169_599_001] {
            assert_eq!(parse_time(&show_time(millis)).unwrap(), millis, "{}", show_time(millis));
        }
    }
}
