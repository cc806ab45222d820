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
//! A pass whose clock is behind what was noted goes by that clock: nothing goes too early then. But
//! which of the two is wrong nobody knows, so what is noted goes back as slowly as it may go on. So
//! a clock that was years ahead is undone in the time for which it was, and one that began in 1970
//! until it was set holds nothing back for longer than that.

use super::{SeriesStore, retry};
use crate::codec::reader::Reader;
use crate::error::Result;
use plinth_types::version::VERSIONS_PER_SECOND;

/// How far it may go on, for what has passed: so that a database which was away for a month has
/// caught up in a day and a half.
const RATE: i64 = 24;
const SECOND: i64 = 1_000_000_000;
/// The first moment of 2020: a clock that shows less is wrong, and notes nothing where nothing is
/// known of the passes before.
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

    /// The time by which a pass goes at a version, whose clock shows `wall`; and what is noted.
    fn next(self, wall: i64, version: i64) -> (i64, Self) {
        // Less than before in a database that was restored, say.
        let passed = version.saturating_sub(self.version).max(0);
        let passed = i128::from(passed) * i128::from(SECOND) / i128::from(VERSIONS_PER_SECOND);
        let reach = i64::try_from(i128::from(RATE) * passed).unwrap_or(i64::MAX);
        let time = self.time.saturating_add(reach).min(wall);
        (time, Self { time: time.max(self.time.saturating_sub(reach)), version })
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
            let (time, mark) = match row.as_deref().map(Mark::decode).transpose()? {
                Some(mark) => mark.next(wall, version),
                None if wall < PLAUSIBLE => return Ok(wall),
                None => (wall, Mark { time: wall, version }),
            };
            tr.set(key, mark.encode());
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
    fn a_clock_that_leaps_is_followed_slowly_and_one_that_is_behind_at_once() {
        let next = |wall: i64, version: i64| {
            let before = mark(hours(1000), hours(5));
            let (time, mark) = before.next(wall * SECOND, version * VERSIONS_PER_SECOND);
            (time / SECOND, mark)
        };
        let same = |time: i64, version: i64| (time, mark(time, version));
        assert_eq!(next(hours(1001), hours(6)), same(hours(1001), hours(6)));
        assert_eq!(next(hours(90_000), hours(6)), same(hours(1024), hours(6)));
        assert_eq!(next(hours(980), hours(6)), same(hours(980), hours(6)));
        assert_eq!(next(hours(900), hours(6)), (hours(900), mark(hours(976), hours(6))));
        assert_eq!(next(hours(90_000), hours(1)), same(hours(1000), hours(1)));
        let end = i64::MAX / SECOND;
        assert_eq!(next(end, i64::MAX / VERSIONS_PER_SECOND).0, end);
        let (_, far) = Mark { time: i64::MIN, version: i64::MIN }.next(i64::MAX, i64::MAX);
        assert!(Mark::decode(&far.encode()).unwrap() == far && Mark::decode(&[0; 17]).is_err());
    }

    /// One pass by a clock that had not been set yet kept points for years: what was noted began
    /// anew in 1970, and went on from there.
    #[test]
    fn one_pass_in_1970_delays_the_next_ones_by_hours() {
        let now = hours(480_000);
        let next = |mark: Mark, at: i64| mark.next((now + at) * SECOND, at * VERSIONS_PER_SECOND);
        let (time, noted) = mark(now, 0).next(60 * SECOND, hours(1) * VERSIONS_PER_SECOND);
        assert_eq!(time, 60 * SECOND, "nothing goes by a clock that is behind");
        let (time, noted) = next(noted, hours(3));
        assert_eq!(time, (now + hours(3)) * SECOND);
        assert_eq!(next(noted, hours(4)).0, (now + hours(4)) * SECOND);
        // Beside a clock that is right one that is ahead goes no further, however long.
        let mut noted = mark(now, 0);
        for at in (2..200).step_by(2) {
            let far = i64::MAX;
            let (time, ahead) = noted.next(far, hours(at - 1) * VERSIONS_PER_SECOND);
            assert!(time <= (now + hours(at + 24)) * SECOND, "{at}");
            noted = next(ahead, hours(at)).1;
        }
    }
}
