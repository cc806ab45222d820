//! The time by which points are too old: a clock's, but no further on than the database says that
//! it can be.
//!
//! A clock that is years ahead would have everything deleted, in one pass. Stamps of points are no
//! evidence against it: those that a server makes itself, of measurements and rules, go by the same
//! clock. What goes by no clock of day is the database's version, a million a second as long as
//! there is one. So each pass notes the time by which it went, with the version then, and none goes
//! further beyond the one before than so many times what has passed since. Of several servers that
//! make passes the one whose clock is behind holds the others back; and whoever's clock is wrong
//! alone deletes a day too much in an hour, and is told of from the first pass on.
//!
//! A clock that goes back is followed at once, whichever of the two was wrong: nothing goes too
//! early then, and beside a clock that is right one that is ahead gets no further than a day. But
//! one that shows a time before 2020 had not been set yet. Nothing goes by it, and nothing is
//! noted: else what came behind would go on from 1970, by a day an hour.

use super::{SeriesStore, retry};
use crate::codec::reader::Reader;
use crate::error::Result;
use plinth_types::version::VERSIONS_PER_SECOND;

/// How far it may go on, for what has passed: so that a database which was away for a month has
/// caught up in a day and a half.
const RATE: i64 = 24;
const SECOND: i64 = 1_000_000_000;
/// The first moment of 2020: a clock that shows less has not been set.
const PLAUSIBLE: i64 = 1_577_836_800 * SECOND;

/// The time by which the last pass went, and when that was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    time: i64,
    version: i64,
}

impl Mark {
    fn encode(self) -> Vec<u8> {
        [self.time.to_le_bytes(), self.version.to_le_bytes()].concat()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let (time, version) = (reader.fixed::<8>()?, reader.fixed::<8>()?);
        if !reader.is_empty() {
            return Err(reader.wrong("the time by which points went last"));
        }
        let (time, version) = (i64::from_le_bytes(time), i64::from_le_bytes(version));
        Ok(Self { time, version })
    }

    /// The time by which a pass goes at a version, whose clock shows `wall`.
    fn next(self, wall: i64, version: i64) -> Self {
        // Less than before in a database that was restored, say.
        let passed = version.saturating_sub(self.version).max(0);
        let passed = i128::from(passed) * i128::from(SECOND) / i128::from(VERSIONS_PER_SECOND);
        let most = i128::from(self.time) + i128::from(RATE) * passed;
        let time = i64::try_from(most).unwrap_or(i64::MAX).min(wall);
        Self { time, version }
    }

    /// The same of the pass behind this one, if there was one; and what is noted of it.
    fn step(before: Option<Self>, wall: i64, version: i64) -> (i64, Option<Self>) {
        if wall < PLAUSIBLE {
            return (wall, None);
        }
        let mark = before.map_or(Self { time: wall, version }, |mark| mark.next(wall, version));
        (mark.time, Some(mark))
    }
}

impl SeriesStore {
    /// The time by which a pass of [`SeriesStore::forget`] is to go, in nanoseconds since 1970,
    /// where the clock shows `wall`: that, unless it is further ahead of the passes before than it
    /// can be. Nothing is known of the first pass, whose clock is believed.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged), [`Error::Locked`](crate::Error::Locked),
    /// [`Error::Database`](crate::Error::Database): nothing should be deleted.
    pub async fn time_to_forget(&self, wall: i64) -> Result<i64> {
        let shared = self.first();
        let key = &shared.of.whole.root.forgot();
        retry::transact_all(&shared.database, |tr| async move {
            let row = tr.get(key).await?;
            let version = tr.get_read_version().await?;
            let before = row.as_deref().map(Mark::decode).transpose()?;
            let (time, mark) = Mark::step(before, wall, version);
            mark.iter().for_each(|mark| tr.set(key, mark.encode()));
            Ok(time)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(count: i64) -> i64 {
        count * 3600
    }

    /// In seconds, both.
    fn mark(time: i64, version: i64) -> Mark {
        Mark { time: time * SECOND, version: version * VERSIONS_PER_SECOND }
    }

    #[test]
    fn a_clock_that_leaps_is_followed_slowly_and_one_that_goes_back_at_once() {
        let next = |wall: i64, version: i64| {
            mark(hours(1000), hours(5)).next(wall * SECOND, version * VERSIONS_PER_SECOND)
        };
        assert_eq!(next(hours(1001), hours(6)), mark(hours(1001), hours(6)));
        assert_eq!(next(hours(90_000), hours(6)), mark(hours(1024), hours(6)));
        assert_eq!(next(hours(900), hours(6)), mark(hours(900), hours(6)));
        assert_eq!(next(hours(90_000), hours(1)), mark(hours(1000), hours(1)));
        assert_eq!(
            next(i64::MAX / SECOND, i64::MAX / VERSIONS_PER_SECOND).time / SECOND,
            i64::MAX / SECOND
        );
        let far = Mark { time: i64::MIN, version: i64::MIN }.next(i64::MAX, i64::MAX);
        assert!(Mark::decode(&far.encode()).unwrap() == far && Mark::decode(&[0; 17]).is_err());
    }

    fn step(before: Option<Mark>, wall: i64, at: i64) -> (i64, Option<Mark>) {
        let (time, noted) = Mark::step(before, wall * SECOND, at * VERSIONS_PER_SECOND);
        (time / SECOND, noted)
    }

    /// One pass by a clock that had not been set yet kept points for years: what was noted began
    /// anew in 1970, and went on from there.
    #[test]
    fn a_pass_in_1970_is_not_gone_by_afterwards() {
        let now = hours(480_000);
        for before in [None, Some(mark(now, 0))] {
            assert_eq!(step(before, 60, hours(1)), (60, None), "{before:?}: nothing goes");
        }
        let (time, _) = step(Some(mark(now, 0)), now + hours(2), hours(2));
        assert_eq!(time, now + hours(2));
    }

    /// Where what was noted went back as slowly as it goes on, a clock that was years ahead, and
    /// made its passes soon before one that was right, went by a time that was half a year ahead
    /// within days.
    #[test]
    fn beside_a_clock_that_is_right_one_that_is_ahead_goes_no_further_than_a_day() {
        let now = hours(480_000);
        for minutes in [1, 5, 30, 55] {
            let mut noted = Some(mark(now, 0));
            for hour in 1..1000 {
                let (ahead, right) = (hours(hour), hours(hour) + 60 * minutes);
                let (time, after) = step(noted, now * 2, ahead);
                assert!(time <= now + ahead + hours(24), "{minutes} minutes, hour {hour}");
                noted = step(after, now + right, right).1;
            }
        }
    }

    /// The first pass is believed, and the next one that is right sets what it noted right.
    #[test]
    fn a_first_pass_that_was_years_ahead_is_undone_by_the_next() {
        let now = hours(480_000);
        let (_, noted) = step(None, now * 2, 0);
        let (time, noted) = step(noted, now + hours(1), hours(1));
        assert_eq!(time, now + hours(1));
        assert_eq!(step(noted, now * 2, hours(2)).0, now + hours(25));
    }
}
