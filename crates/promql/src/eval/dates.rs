//! What a time in seconds is in the calendar, in UTC.

/// A day of the calendar that goes on as it is for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Date {
    pub(crate) year: i64,
    pub(crate) month: i64,
    pub(crate) day: i64,
}

const DAY: i64 = 86_400;

/// The date of so many days since 1970.
pub(crate) fn date(days: i64) -> Date {
    // Years that begin with March, so that the odd day comes last; in eras of 400 of them.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    Date { year: era * 400 + year + i64::from(month <= 2), month, day }
}

fn is_leap(year: i64) -> bool {
    year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0)
}

fn days_in_month(date: Date) -> i64 {
    match date.month {
        2 => 28 + i64::from(is_leap(date.year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// One of the functions of a time; `None` if it is no such function.
pub(crate) fn part(name: &str, seconds: f64) -> Option<f64> {
    // Farther than any calendar goes, and far from where days would overflow.
    let whole = (seconds.clamp(-1e15, 1e15)) as i64;
    let (days, rest) = (whole.div_euclid(DAY), whole.rem_euclid(DAY));
    let found = date(days);
    let part = match name {
        "minute" => rest / 60 % 60,
        "hour" => rest / 3600,
        "day_of_week" => (days + 4).rem_euclid(7),
        "day_of_month" => found.day,
        "day_of_year" => {
            (1..found.month).map(|month| days_in_month(Date { month, ..found })).sum::<i64>() + found.day
        }
        "days_in_month" => days_in_month(found),
        "month" => found.month,
        "year" => found.year,
        _ => return None,
    };
    Some(if seconds.is_nan() { f64::NAN } else { part as f64 })
}

/// A time in nanoseconds, as RFC 3339 has it, to the second.
pub(crate) fn rfc3339(nanoseconds: i64) -> String {
    let seconds = nanoseconds.div_euclid(1_000_000_000);
    let (Date { year, month, day }, rest) = (date(seconds.div_euclid(DAY)), seconds.rem_euclid(DAY));
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
