//! Times as dates, for people and for JSON.

use plinth_types::calendar::date_and_time;

pub(crate) const SECOND: i64 = 1_000_000_000;

/// A time as RFC 3339 has it, to the nanosecond where it isn't a whole second.
pub fn rfc3339(time: i64) -> String {
    let fraction = match time.rem_euclid(SECOND) {
        0 => String::new(),
        nanosecond => format!(".{nanosecond:09}").trim_end_matches('0').to_string(),
    };
    format!("{}{fraction}Z", date_and_time(time.div_euclid(SECOND)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds * SECOND), text);
        }
        assert_eq!(rfc3339(1_500_000_000), "1970-01-01T00:00:01.5Z");
    }
}
