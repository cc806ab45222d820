//! Days as dates of the Gregorian calendar, which is taken to go on as it is in both directions,
//! and moments as people write them.
//!
//! Years are reckoned from March, so that a leap day is the last of its year, and in eras of 400
//! years, which all have as many days.

/// Days of 400 years.
const ERA: i64 = 146_097;
/// Days from the first of March of the year 0 to the first of January of 1970.
const TO_1970: i64 = 719_468;

/// A day of the calendar.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Date {
    /// The year; 0 is the one before the year 1.
    pub year: i64,
    /// 1 to 12.
    pub month: i64,
    /// 1 to 31.
    pub day: i64,
}

impl Date {
    /// The date so many days after the first of January of 1970, or before it.
    pub fn of_days(days: i64) -> Self {
        let days = days + TO_1970;
        let (era, day) = (days.div_euclid(ERA), days.rem_euclid(ERA));
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = (month + 2) % 12 + 1;
        Self { year: era * 400 + year + i64::from(month <= 2), month, day }
    }

    /// How many days it is after the first of January of 1970.
    pub fn days(self) -> i64 {
        let year = if self.month > 2 { self.year } else { self.year - 1 };
        let month = (self.month + 9) % 12;
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let before = era * ERA + of_era * 365 + of_era / 4 - of_era / 100;
        before + (153 * month + 2) / 5 + self.day - 1 - TO_1970
    }
}

/// How many days a month has.
pub fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// A second since 1970 as `2026-11-25T03:05:34`, in UTC: RFC 3339's form, but for a fraction and
/// the `Z` behind it.
pub fn date_and_time(seconds: i64) -> String {
    let Date { year, month, day } = Date::of_days(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// The nanoseconds since 1970 of a moment in RFC 3339's form, `2026-11-25T03:05:34.25+01:00`, as
/// freely as people write it: a blank or a point for the `T`, slashes in the date, an offset
/// without a colon, or with hours alone, no offset for UTC, no seconds, or a date alone, which is
/// its begin. `None` for anything else. Digits of a second behind the ninth are dropped.
pub fn instant(text: &str) -> Option<i128> {
    let (date, rest) = text.split_at_checked(10)?;
    let mut days = date_in(date)?.days();
    let Some(separator) = rest.bytes().next() else { return Some(i128::from(days) * DAY) };
    if !b"Tt .".contains(&separator) {
        return None;
    }
    let rest = &rest[1..];
    let (hour, rest) = (number(rest.get(..2)?)?, rest.get(2..)?.strip_prefix(':')?);
    let (minute, mut rest) = (number(rest.get(..2)?)?, &rest[2..]);
    let (mut second, mut fraction) = (0, 0);
    if let Some(found) = rest.strip_prefix(':') {
        second = number(found.get(..2)?)?;
        rest = &found[2..];
        if let Some(found) = rest.strip_prefix('.') {
            let len = found.bytes().take_while(u8::is_ascii_digit).count();
            let digits = &found[..len.min(9)];
            fraction = number(digits)? * 10_i64.pow(9 - digits.len() as u32);
            rest = &found[len..];
        }
    }
    // A leap second is the first of the next minute.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let offset = offset(rest)?;
    let mut seconds = hour * 3600 + minute * 60 + second - offset;
    days += seconds.div_euclid(86_400);
    seconds = seconds.rem_euclid(86_400);
    Some(i128::from(days) * DAY + i128::from(seconds * 1_000_000_000 + fraction))
}

/// Nanoseconds of a day.
const DAY: i128 = 86_400_000_000_000;

/// A date as `2026-11-25` or `2026/11/25`.
fn date_in(text: &str) -> Option<Date> {
    let mut parts = text.split(['-', '/']);
    let mut part = |len: usize| parts.next().filter(|part| part.len() == len).and_then(number);
    let (year, month, day) = (part(4)?, part(2)?, part(2)?);
    let is_one = (1..=12).contains(&month) && (1..=days_of_month(year, month)).contains(&day);
    (is_one && parts.next().is_none()).then_some(Date { year, month, day })
}

/// The seconds by which a time of day is ahead of UTC: nothing, `Z`, `+01:00`, `+0100` or `+01`.
fn offset(text: &str) -> Option<i64> {
    let (sign, rest) = match text.bytes().next() {
        None => return Some(0),
        Some(b'Z' | b'z') => return (text.len() == 1).then_some(0),
        Some(b'+') => (1, &text[1..]),
        Some(b'-') => (-1, &text[1..]),
        Some(_) => return None,
    };
    let (hours, rest) = (number(rest.get(..2)?)?, &rest[2..]);
    let minutes = match rest.strip_prefix(':').unwrap_or(rest) {
        "" if rest.is_empty() => 0,
        minutes if minutes.len() == 2 => number(minutes)?,
        _ => return None,
    };
    (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes) * 60)
}

/// Decimal digits alone, one at least.
fn number(text: &str) -> Option<i64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_of_a_second_is_read_again() {
        for (second, text) in [
            (0, "1970-01-01T00:00:00"),
            (-1, "1969-12-31T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (1_764_039_934, "2025-11-25T03:05:34"),
        ] {
            assert_eq!(date_and_time(second), text);
            assert_eq!(instant(text), Some(i128::from(second) * 1_000_000_000));
        }
    }

    #[test]
    fn moments_are_read_as_people_write_them() {
        const SECOND: i128 = 1_000_000_000;
        for (text, expected) in [
            ("2025-11-25T03:05:34Z", 1_764_039_934 * SECOND),
            ("2025-11-25 03:05:34", 1_764_039_934 * SECOND),
            ("2025-11-25t03:05:34z", 1_764_039_934 * SECOND),
            ("2025/11/25.04:05:34+0100", 1_764_039_934 * SECOND),
            ("2025-11-25T04:05:34+01", 1_764_039_934 * SECOND),
            ("2025-11-24T22:05:34.25-05:00", 1_764_039_934_250_000_000),
            ("2025-11-25T03:05", 1_764_039_900 * SECOND),
            ("2025-11-25", 1_764_028_800 * SECOND),
            ("1970-01-01T00:00:00.0000000019Z", 1),
            ("1970-01-01T00:30:00+01:00", -1800 * SECOND),
            ("1969-12-31T23:59:59.5Z", -500_000_000),
            ("2016-12-31T23:59:60Z", 1_483_228_800 * SECOND),
            ("2000-02-29T00:00:00Z", 951_782_400 * SECOND),
            ("9999-12-31", 253_402_214_400 * SECOND),
        ] {
            assert_eq!(instant(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "now",
            "2025",
            "2025-11",
            "2025-1-25",
            "2025-13-01",
            "2025-02-29",
            "2025-11-25T",
            "2025-11-25T03",
            "2025-11-25T24:00",
            "2025-11-25T03:60",
            "2025-11-25T03:05:34.",
            "2025-11-25T03:05:34X",
            "2025-11-25T03:05:34+1",
            "2025-11-25T03:05:34+01:",
            "2025-11-25T03:05:34+01:000",
            "2025-11-25T+3:05:34",
            "+025-11-25",
            "é025-11-25T03:05:34Z",
            "2025-11-25é",
            "2025-11-25Té3:05:34Z",
        ] {
            assert_eq!(instant(text), None, "{text}");
        }
    }

    #[test]
    fn each_day_is_the_one_behind_the_day_before() {
        let mut date = Date { year: -401, month: 1, day: 1 };
        let first = date.days();
        for days in first..first + 3 * ERA {
            assert_eq!((Date::of_days(days), date.days()), (date, days));
            date.day += 1;
            if date.day > days_of_month(date.year, date.month) {
                (date.month, date.day) = (date.month + 1, 1);
            }
            if date.month > 12 {
                (date.year, date.month) = (date.year + 1, 1);
            }
        }
        assert_eq!(Date::of_days(0), Date { year: 1970, month: 1, day: 1 });
        assert_eq!(Date::of_days(11_016), Date { year: 2000, month: 2, day: 29 });
    }
}
