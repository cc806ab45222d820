//! What a time in seconds is in the calendar, in UTC.

use plinth_types::calendar::{Date, date_and_time, days_of_month};

const DAY: i64 = 86_400;

/// Day since 1970 and second of the day.
fn split(seconds: i64) -> (i64, i64) {
    (seconds.div_euclid(DAY), seconds.rem_euclid(DAY))
}

/// A part of a time; no number of none.
fn part(seconds: f64, part: impl Fn(i64, i64) -> i64) -> f64 {
    if seconds.is_nan() {
        return f64::NAN;
    }
    // Farther than any calendar goes, and far from where days would overflow.
    let (days, rest) = split(seconds.clamp(-1e15, 1e15) as i64);
    part(days, rest) as f64
}

/// The function of a time with this name, if there is one.
pub(crate) fn function(name: &str) -> Option<fn(f64) -> f64> {
    Some(match name {
        "minute" => |time| part(time, |_, rest| rest / 60 % 60),
        "hour" => |time| part(time, |_, rest| rest / 3600),
        "day_of_week" => |time| part(time, |days, _| (days + 4).rem_euclid(7)),
        "day_of_month" => |time| part(time, |days, _| Date::of_days(days).day),
        "day_of_year" => |time| {
            part(time, |days, _| {
                let first = Date { month: 1, day: 1, ..Date::of_days(days) };
                days - first.days() + 1
            })
        },
        "days_in_month" => |time| {
            part(time, |days, _| {
                let Date { year, month, .. } = Date::of_days(days);
                days_of_month(year, month)
            })
        },
        "month" => |time| part(time, |days, _| Date::of_days(days).month),
        "year" => |time| part(time, |days, _| Date::of_days(days).year),
        _ => return None,
    })
}

/// A time in nanoseconds, as RFC 3339 has it, to the second.
pub(crate) fn rfc3339(nanoseconds: i64) -> String {
    date_and_time(nanoseconds.div_euclid(1_000_000_000)) + "Z"
}
