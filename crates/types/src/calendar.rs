//! Days as dates of the Gregorian calendar, which is taken to go on as it is in both directions.
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

#[cfg(test)]
mod tests {
    use super::*;

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
