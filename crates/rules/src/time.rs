//! Times as dates, for people and for JSON.

use plinth_types::calendar::Date;

pub(crate) const SECOND: i64 = 1_000_000_000;

/// Nanoseconds since 1970 as `2026-01-01`, `00:00:00`, and the nanoseconds of the second.
pub(crate) fn written(time: i64) -> (String, String, i64) {
    let seconds = time.div_euclid(SECOND);
    let Date { year, month, day } = Date::of_days(seconds.div_euclid(86_400));
    let rest = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let date = format!("{year:04}-{month:02}-{day:02}");
    (date, format!("{hour:02}:{minute:02}:{second:02}"), time.rem_euclid(SECOND))
}

/// A time as RFC 3339 has it, to the nanosecond where it isn't a whole second.
pub(crate) fn rfc3339(time: i64) -> String {
    let (date, clock, nanosecond) = written(time);
    let fraction = match nanosecond {
        0 => String::new(),
        nanosecond => format!(".{nanosecond:09}").trim_end_matches('0').to_string(),
    };
    format!("{date}T{clock}{fraction}Z")
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
