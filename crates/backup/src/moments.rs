//! Moments as people write them: UTC, or with an offset; FoundationDB's form and RFC 3339's.

use plinth_types::calendar::{date_and_time, instant};
use plinth_types::{Error, Result};

/// The milliseconds since 1970 that a text says: `2026-11-25T03:05:34Z`,
/// `2026-11-25 03:05:34+0100`, FoundationDB's `2026/11/25.03:05:34+0100`, a date, or seconds since
/// 1970. Without an offset it is UTC.
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
    u64::try_from(instant(text)? / 1_000_000).ok()
}

/// A time as RFC 3339 writes it, in UTC, to the millisecond.
pub fn show_time(millis: u64) -> String {
    let second = date_and_time((millis / 1000) as i64);
    match millis % 1000 {
        0 => second + "Z",
        of_second => format!("{second}.{of_second:03}Z"),
    }
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
            ("2000-02-29", 951_782_400_000),
        ] {
            assert_eq!(parse_time(text).unwrap(), expected, "{text}");
        }
        for text in [
            "",
            "now",
            "2025-13-01T00:00:00Z",
            "2025-02-29T00:00:00Z",
            "1969-12-31T23:59:59Z",
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
