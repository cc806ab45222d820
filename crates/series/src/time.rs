//! Times as text: ISO 8601 in its basic form, `20170101T000000.000000000`, in UTC, to the
//! nanosecond; spans of time such as `1h30m`; and the other ways in which people write a time.
//!
//! A time is nanoseconds since 1970 in 64 bits, so the first one that can be written is in 1677 and
//! the last in 2262. What is no date, such as the 30th of February, is refused. Years are reckoned
//! by the Gregorian calendar throughout.

use crate::digits::{put_eight, put_pair};
use plinth_types::calendar::{Date, days_of_month, instant};

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400;

/// The nanoseconds since 1970 of `YYYYMMDDTHHMMSS`, with up to nine digits behind a point or a
/// comma; `None` if it is no such text, no such time, or before 1677 or after 2262.
pub fn parse_iso(text: &[u8]) -> Option<i64> {
    let (whole, rest) = text.split_at_checked(15)?;
    if whole[8] != b'T' {
        return None;
    }
    let field = |from: usize, to: usize| digits(&whole[from..to]);
    let (year, month, day) = (field(0, 4)?, field(4, 6)?, field(6, 8)?);
    let (hour, minute, second) = (field(9, 11)?, field(11, 13)?, field(13, 15)?);
    if !(1..=12).contains(&month) || !(1..=days_of_month(year, month)).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let fraction = match rest {
        [] => 0,
        [b'.' | b',', part @ ..] if (1..=9).contains(&part.len()) => {
            digits(part)? * 10_i64.pow(9 - part.len() as u32)
        }
        _ => return None,
    };
    let seconds = Date { year, month, day }.days() * DAY + hour * 3600 + minute * 60 + second;
    i64::try_from(i128::from(seconds) * i128::from(SECOND) + i128::from(fraction)).ok()
}

/// How a time may be written, for messages.
pub const FORMS: &str = "20260101T120000, 2026-01-01T12:00:00Z, 2026-01-01, now-1h, \
    1767268800, 1767268800.5, 1767268800000, or 1767268800000ms";

/// The nanoseconds since 1970 of a time as people and programs write it; `now` is what `now` means,
/// where it means anything. It may be: what [`parse_iso`] reads; RFC 3339, or a part of that
/// ([`instant`]); `now`, with a span such as `-1h30m` behind it; seconds since 1970 with a point in
/// them; a whole number with `s`, `ms`, `us` or `ns` behind it; or digits alone, whose unit their
/// size says: seconds, milliseconds, microseconds or nanoseconds, the largest of which they are a
/// time before the year 5138.
pub fn parse_moment(text: &str, now: Option<i64>) -> Option<i64> {
    if let Some(span) = text.strip_prefix("now") {
        if span.is_empty() {
            return now;
        }
        return match span.split_at_checked(1) {
            None => None,
            Some(("-", span)) => now?.checked_sub(duration(span)?),
            Some(("+", span)) => now?.checked_add(duration(span)?),
            Some(_) => None,
        };
    }
    unix(text).or_else(|| parse_iso(text.as_bytes())).or_else(|| i64::try_from(instant(text)?).ok())
}

/// The nanoseconds of the unit in which a number alone is a time: seconds up to the year 5138,
/// milliseconds and microseconds from 1973 up to that, and nanoseconds from 1973 on.
pub(crate) fn by_size(number: i128) -> i64 {
    const SECONDS: u128 = 100_000_000_000;
    match number.unsigned_abs() {
        ..SECONDS => SECOND,
        size if size < SECONDS * 1_000 => 1_000_000,
        size if size < SECONDS * 1_000_000 => 1_000,
        _ => 1,
    }
}

/// The beginnings of 2010 and of 2100, in seconds.
const OUR_DAYS: (i128, i128) = (1_262_304_000, 4_102_444_800);

/// The nanoseconds of the unit that a number's size says, if the number is a moment of our days in
/// it: for those who have numbers in other units, of other times, besides.
pub(crate) fn unit_of_our_days(number: i128) -> Option<i64> {
    let ((begin, end), unit) = (OUR_DAYS, by_size(number));
    let of_second = i128::from(SECOND / unit);
    (begin * of_second..end * of_second).contains(&number).then_some(unit)
}

/// A time in numbers since 1970: seconds with a point, with a unit, or with that which the size
/// says.
fn unix(text: &str) -> Option<i64> {
    let (is_negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let split = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (whole, rest) = rest.split_at(split);
    let whole: i128 = whole.parse::<u64>().ok()?.into();
    let nanoseconds = match rest.strip_prefix('.') {
        Some(fraction) if (1..=9).contains(&fraction.len()) => {
            let part = digits(fraction.as_bytes())? * 10_i64.pow(9 - fraction.len() as u32);
            whole * i128::from(SECOND) + i128::from(part)
        }
        Some(_) => return None,
        None => {
            let unit = match rest {
                "" => by_size(whole),
                "ns" => 1,
                "us" => 1_000,
                "ms" => 1_000_000,
                "s" => SECOND,
                _ => return None,
            };
            whole * i128::from(unit)
        }
    };
    i64::try_from(if is_negative { -nanoseconds } else { nanoseconds }).ok()
}

/// Appends a time as `YYYYMMDDTHHMMSS.nnnnnnnnn`.
pub fn write_iso(time: i64, out: &mut Vec<u8>) {
    let (seconds, fraction) = (time.div_euclid(SECOND), time.rem_euclid(SECOND));
    let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let Date { year, month, day } = Date::of_days(days);
    let mut text = *b"00000000T000000.000000000";
    put(&mut text[0..4], year);
    put(&mut text[4..6], month);
    put(&mut text[6..8], day);
    put(&mut text[9..11], second / 3600);
    put(&mut text[11..13], second / 60 % 60);
    put(&mut text[13..15], second % 60);
    put(&mut text[16..25], fraction);
    out.extend_from_slice(&text);
}

/// Writes one time after the other as [`write_iso`] does; what a time has in common with the one
/// before stays as it is.
#[derive(Debug)]
pub(crate) struct IsoClock {
    day: i64,
    second: i64,
    fraction: i64,
    text: [u8; 25],
}

impl Default for IsoClock {
    /// It stands at 1970.
    fn default() -> Self {
        Self { day: 0, second: 0, fraction: 0, text: *b"19700101T000000.000000000" }
    }
}

impl IsoClock {
    /// The text of a time.
    pub(crate) fn text(&mut self, time: i64) -> &[u8; 25] {
        let (second, fraction) = (time.div_euclid(SECOND), time.rem_euclid(SECOND));
        if second != self.second {
            self.set_second(second);
        }
        if fraction != self.fraction {
            self.fraction = fraction;
            self.text[16] = b'0' + (fraction / 100_000_000) as u8;
            put_eight(&mut self.text[17..], (fraction % 100_000_000) as u64);
        }
        &self.text
    }

    fn set_second(&mut self, second: i64) {
        self.second = second;
        let (day, rest) = (second.div_euclid(DAY), second.rem_euclid(DAY) as u64);
        if day != self.day {
            self.day = day;
            let Date { year, month, day } = Date::of_days(day);
            put(&mut self.text[0..4], year);
            put(&mut self.text[4..6], month);
            put(&mut self.text[6..8], day);
        }
        put_pair(&mut self.text[9..], rest / 3600);
        put_pair(&mut self.text[11..], rest / 60 % 60);
        put_pair(&mut self.text[13..], rest % 60);
    }
}

/// The nanoseconds of `1h30m`, with the units `ms s m h d w y`; `None` if it is no such text, or
/// none at all.
pub fn duration(text: &str) -> Option<i64> {
    let (mut rest, mut sum) = (text, 0_i64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            "w" => 7 * 86_400_000_000_000,
            "y" => 365 * 86_400_000_000_000,
            _ => return None,
        };
        rest = &rest[end..];
        sum = sum.checked_add(number.checked_mul(unit)?)?;
    }
    (sum > 0).then_some(sum)
}

/// A number of decimal digits alone, at most 18 of them.
fn digits(text: &[u8]) -> Option<i64> {
    text.iter().try_fold(0, |number: i64, digit| {
        digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0'))
    })
}

/// Writes the last digits of a number.
fn put(text: &mut [u8], mut number: i64) {
    for digit in text.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_in_all_their_forms() {
        const NOW: i64 = 1_767_225_600 * SECOND;
        for (text, expected) in [
            ("0", 0),
            ("-7", -7 * SECOND),
            ("-7ns", -7),
            ("1767225600", NOW),
            ("1767225600001", NOW + 1_000_000),
            ("1767225600000001", NOW + 1_000),
            ("1767225600000000001", NOW + 1),
            ("-1767225600001", -NOW - 1_000_000),
            // The first of each unit.
            ("100000000000", 100_000_000 * SECOND),
            ("100000000000000", 100_000_000 * SECOND),
            ("100000000000000000", 100_000_000 * SECOND),
            ("1767225600s", NOW),
            ("1767225600001ms", NOW + 1_000_000),
            ("1767225600000001us", NOW + 1_000),
            ("1767225600000000001ns", NOW + 1),
            ("1767225600.0", NOW),
            ("1767225600.000000001", NOW + 1),
            ("-1.5", -1_500_000_000),
            ("20260101T000000", NOW),
            ("20260101T000000.5", NOW + SECOND / 2),
            ("2026-01-01", NOW),
            ("2026-01-01T01:00:00+01:00", NOW),
            ("now", NOW),
            ("now-1h30m", NOW - 5400 * SECOND),
            ("now+1d", NOW + 86_400 * SECOND),
        ] {
            assert_eq!(parse_moment(text, Some(NOW)), Some(expected), "{text}");
        }
        for text in [
            "",
            "-",
            "s",
            "1x",
            "1.",
            "1.0s",
            ".5",
            "now-",
            "now1h",
            "now-1x",
            "nowhere",
            "1e9",
            "9223372036854775808",
            "9223372037s",
            // The last of each unit, all behind 2262.
            "99999999999",
            "99999999999999",
            "99999999999999999",
            "99999999999999999999",
            "2263-01-01",
            "+1",
        ] {
            assert_eq!(parse_moment(text, Some(NOW)), None, "{text}");
        }
        assert_eq!(parse_moment("now", None), None);
        assert_eq!(parse_moment("now-1h", Some(i64::MIN)), None);
        for word in FORMS.split(", ").map(|form| form.split(' ').next().unwrap()) {
            let is_read = word == "or" || parse_moment(word, Some(NOW)).is_some();
            assert!(is_read, "{word} is offered");
        }
    }

    fn iso(time: i64) -> String {
        let mut out = Vec::new();
        write_iso(time, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn times_come_back() {
        for (text, time) in [
            ("19700101T000000.000000000", 0),
            ("19691231T235959.999999999", -1),
            ("20200102T030405.678900001", 1_577_934_245_678_900_001),
            ("20000229T235959.000000000", 951_868_799 * SECOND),
            ("16770921T001243.145224192", i64::MIN),
            ("22620411T234716.854775807", i64::MAX),
        ] {
            assert_eq!(parse_iso(text.as_bytes()), Some(time), "{text}");
            assert_eq!(iso(time), text);
        }
        assert_eq!(parse_iso(b"20170101T000000"), parse_iso(b"20170101T000000,0"));
        for day in (-106_000..106_000).step_by(13) {
            let time = day * DAY * SECOND;
            assert_eq!(parse_iso(iso(time).as_bytes()), Some(time), "{day}");
        }
    }

    #[test]
    fn a_clock_says_of_each_time_what_it_says_alone() {
        let mut random = crate::workload::Random::new(5);
        let mut clock = IsoClock::default();
        let mut time: i64 = 0;
        for _ in 0..100_000 {
            // Steps of all sizes: nothing changes, or the fraction, the second, the day.
            let step = (random.next() >> random.below(64)) as i64;
            time = if random.below(2) == 0 {
                time.wrapping_add(step)
            } else {
                time.wrapping_sub(step)
            };
            assert_eq!(clock.text(time), iso(time).as_bytes());
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "T",
            "20170101",
            "20170101T0000",
            "20170101 000000",
            "2017-01-01T00:00:00",
            "20172107T120300",
            "20170230T120300",
            "21000229T000000",
            "20170101T240000",
            "20170101T006000",
            "20170101T000060",
            "20170101T000000.",
            "20170101T000000.1234567890",
            "20170101T000000Z",
            "20170101T00000x",
            "16770921T001243.145224191",
            "22620411T234716.854775808",
            "00000101T000000",
        ] {
            assert_eq!(parse_iso(text.as_bytes()), None, "{text}");
        }
    }
}
