//! How many series there may be, and how much they may take: whoever sends names that nobody has
//! sent before makes some.
//!
//! A name costs some hundred bytes of rows, and about a kilobyte of memory as long as points are
//! appended to it; a body of a few megabytes, compressed, holds a million of them. So series are
//! counted, all of them and those of each metric, in rows that change with the names; what those in
//! memory take is counted there; and rows as a whole are estimated, once a second. What would be
//! one too many is refused by name, and all else goes on.
//!
//! Senders have bounds of their own besides ([`Newcomers`]): whoever makes series too fast waits
//! with what comes next, and whoever has made as many within a day as one source may makes no more
//! for now, so that none takes the room of all others.
//!
//! Points that transactions have written ([`SeriesLayer`](crate::SeriesLayer)) are not refused
//! here: they are committed already, and whoever may write keys has other bounds.

use super::{Cell, Series, Shared, lock};
use crate::error::{Error, Result};
use crate::name::Name;
use plinth_env::Env;
use plinth_types::KeyRange;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many series there may be, and how much they may take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeriesLimits {
    /// All series.
    pub series: u64,
    /// Series of one metric.
    pub of_metric: u64,
    /// Values of one label of a metric; `None` for as many as the metric has series. A store that
    /// is divided into parts has so many in each.
    pub of_label: Option<u64>,
    /// Series that one sender may make at once, and within a day; `None` for half of all.
    pub of_source: Option<u64>,
    /// Bytes of memory for the series that points were appended to since the store was opened,
    /// about; open leaves are bounded by [`Settings::open_points`](crate::Settings::open_points).
    pub memory: usize,
    /// Bytes that all rows take of the room the database has for some, about: keys and values, and
    /// what each row is counted as besides, where the rows are in this process. `None` for as many
    /// as the database takes.
    pub stored: Option<u64>,
}

impl Default for SeriesLimits {
    fn default() -> Self {
        let (series, of_metric) = (10_000_000, 5_000_000);
        let (of_label, of_source, stored) = (None, None, None);
        Self { series, of_metric, of_label, of_source, memory: 1 << 30, stored }
    }
}

/// What a series takes in memory besides its name.
const CELL: usize = size_of::<Cell>() + 128;
/// For how long an estimate of what is stored is good.
const LOOK: Duration = Duration::from_secs(1);

/// Bytes that a series of this name takes in memory, about.
pub(super) fn in_memory(name: &Name) -> usize {
    // In the cell, and as the key by which it is found.
    CELL + 2 * name.as_str().len()
}

/// What is used of what there may be.
#[derive(Debug, Default)]
pub(super) struct Used {
    /// Bytes of memory that the series of the part take that are known.
    pub(super) known_bytes: AtomicUsize,
    /// Whether what is stored was too much, and when that was looked at.
    stored: Mutex<Option<(Duration, bool)>>,
    /// The labels, by metric, whose values were counted: when, and how many there were, with those
    /// made since.
    pub(super) labels: Mutex<BTreeMap<(String, String), (Duration, u64)>>,
}

fn one_too_many(what: String) -> Error {
    Error::TooMany { what }
}

/// What bounds the series that are made of names that somebody sends.
#[derive(Clone, Copy)]
pub(super) struct Within<'a> {
    pub(super) limits: &'a SeriesLimits,
    /// What is left of his own.
    pub(super) grant: Option<&'a Grant<'a>>,
}

impl SeriesLimits {
    /// Series that one sender may make at once, and within a day.
    pub fn of_one_source(&self) -> u64 {
        self.of_source.unwrap_or(self.series / 2).max(1)
    }

    /// Whether so many new series could come to be too many, beside all that there are and the most
    /// of one metric, while other parts' owners make some.
    pub(super) fn is_near(&self, all: u64, of_metric: Option<u64>, new: usize) -> bool {
        let beyond = |count: u64, most: u64| count.saturating_add(new as u64) >= most - most / 8;
        beyond(all, self.series) || of_metric.is_some_and(|count| beyond(count, self.of_metric))
    }

    /// Whether one more series fits beside so many, and so many of its metric.
    pub(super) fn check(&self, name: &Name, all: u64, of_metric: u64) -> Result<()> {
        if all >= self.series {
            return Err(one_too_many(format!("there are {all} series, and no more may be made")));
        }
        if of_metric >= self.of_metric {
            let metric = name.metric();
            return Err(one_too_many(format!(
                "metric {metric:?} has {of_metric} series, and may have no more"
            )));
        }
        Ok(())
    }
}

impl Shared {
    /// Notes that a series takes so many bytes of memory more.
    pub(super) fn note_known(&self, bytes: usize) {
        self.index.used.known_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.known_bytes_of_all().fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that a series takes so many bytes of memory no more.
    pub(super) fn note_forgotten(&self, bytes: usize) {
        self.index.used.known_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.known_bytes_of_all().fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What the series take that are known to all parts that this process owns, or to all that it
    /// posts to: a part that comes over from the one to the other isn't counted twice.
    pub(super) fn known_bytes_of_all(&self) -> &AtomicUsize {
        if self.is_poster() { &self.of.whole.posted_bytes } else { &self.of.whole.known_bytes }
    }

    /// Whether more series fit in memory, beside those that are about to be there and take so much.
    pub(super) fn check_memory(&self, coming: usize) -> Result<()> {
        let known = self.known_bytes_of_all().load(Ordering::Relaxed);
        let most = self.settings.limits.memory;
        if known + coming < most {
            return Ok(());
        }
        let count = lock(&self.index.names).len();
        Err(one_too_many(format!(
            "{count} series are being written to, which take all of the {most} bytes of memory that there are for them"
        )))
    }

    /// Whether more may be stored.
    ///
    /// # Errors
    /// [`Error::TooMany`] if not.
    pub(super) async fn check_stored(&self) -> Result<()> {
        let Some(most) = self.settings.limits.stored else { return Ok(()) };
        let endpoint = self.database.endpoint();
        let now = endpoint.env().now();
        let known = *self.index.used.stored.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = match known {
            Some((looked, is_full)) if now < looked + LOOK => is_full,
            _ => {
                let (begin, end) = self.of.whole.root.bounds();
                let bytes = endpoint.range_footprint(KeyRange::new(begin, end)).await?;
                let is_full = u64::try_from(bytes).unwrap_or(0) >= most;
                *self.index.used.stored.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some((now, is_full));
                is_full
            }
        };
        if is_full {
            let what = format!(
                "bytes of series: they have the {most} that they may. Have points kept for less long, or delete series"
            );
            return Err(one_too_many(what));
        }
        Ok(())
    }
}

/// What became of names.
pub(crate) struct Admitted {
    /// The series of each name, or why there may be none.
    pub(crate) series: Vec<Result<Series>>,
    /// How many of them are new.
    pub(crate) made: usize,
}

/// How fast one sender may make series, and how many within a day: what all of its sessions have
/// together.
///
/// What comes too fast is made first and waited for afterwards, so that who makes a few of them now
/// and then never waits. What is too many is not made.
#[derive(Debug)]
pub struct Newcomers {
    /// Whose they are, in words.
    source: String,
    a_second: u32,
    a_day: u64,
    state: Mutex<Account>,
}

/// What a sender may make, as of a moment.
#[derive(Debug)]
struct Account {
    then: Duration,
    /// At once; less than 0 for what has been made too fast.
    at_once: f64,
    /// Within a day.
    within_day: f64,
}

/// So many seconds' series may be made at once.
const BURST: f64 = 2.0;
const DAY: f64 = 24.0 * 3600.0;
/// A sender that has so much of its day left is as one that has made none.
const NEARLY_ALL: f64 = 15.0 / 16.0;

impl Newcomers {
    /// A sender, called `source`, that has made none and may make so many a second and a day.
    pub fn new(env: &Env, source: String, a_second: u32, a_day: u64) -> Self {
        let state = Self::full(env.now(), a_second, a_day);
        Self { source, a_second, a_day, state: Mutex::new(state) }
    }

    fn full(now: Duration, a_second: u32, a_day: u64) -> Account {
        Account { then: now, at_once: f64::from(a_second) * BURST, within_day: a_day as f64 }
    }

    fn account(&self, now: Duration) -> MutexGuard<'_, Account> {
        let mut account = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_sub(account.then).as_secs_f64();
        let (rate, a_day) = (f64::from(self.a_second), self.a_day as f64);
        account.at_once = (account.at_once + passed * rate).min(rate * BURST);
        account.within_day = (account.within_day + passed * a_day / DAY).min(a_day);
        account.then = account.then.max(now);
        account
    }

    /// Some were made: how long to wait before more are.
    pub(crate) fn made(&self, now: Duration, count: usize) -> Duration {
        let mut account = self.account(now);
        account.at_once -= count as f64;
        let rate = f64::from(self.a_second);
        if account.at_once >= 0.0 {
            Duration::ZERO
        } else {
            Duration::from_secs_f64(-account.at_once / rate)
        }
    }

    /// Up to so many are about to be made: as many as still may.
    pub(crate) fn grant(&self, now: Duration, count: usize) -> Grant<'_> {
        let mut account = self.account(now);
        let granted = account.within_day.floor().max(0.0).min(count as f64);
        account.within_day -= granted;
        Grant { sender: self, left: AtomicU64::new(granted as u64) }
    }

    /// Whether it is nearly as if it had made none.
    pub fn is_rested(&self, now: Duration) -> bool {
        let account = self.account(now);
        let full = Self::full(now, self.a_second, self.a_day);
        account.at_once >= full.at_once && account.within_day >= full.within_day * NEARLY_ALL
    }
}

/// How many series a sender may make of what it sends now. What isn't made of them is its own again
/// when this is let go.
pub(crate) struct Grant<'a> {
    sender: &'a Newcomers,
    left: AtomicU64,
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        let left = *self.left.get_mut() as f64;
        let mut account = self.sender.state.lock().unwrap_or_else(PoisonError::into_inner);
        account.within_day = (account.within_day + left).min(self.sender.a_day as f64);
    }
}

/// What one try to make series takes of a grant: it is given back unless they were made.
pub(super) struct Taken<'a> {
    grant: Option<&'a Grant<'a>>,
    count: u64,
}

impl<'a> Taken<'a> {
    pub(super) fn of(grant: Option<&'a Grant<'a>>) -> Self {
        Self { grant, count: 0 }
    }

    /// One more is about to be made.
    ///
    /// # Errors
    /// [`Error::TooMany`] if there is nothing left.
    pub(super) fn take_one(&mut self) -> Result<()> {
        let Some(grant) = self.grant else { return Ok(()) };
        let one_less = |left: u64| left.checked_sub(1);
        if grant.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err() {
            let Newcomers { source, a_day, .. } = grant.sender;
            let what = format!("{source} has made the {a_day} series that one source may in a day");
            return Err(one_too_many(what));
        }
        self.count += 1;
        Ok(())
    }

    /// They are made.
    pub(super) fn keep(mut self) {
        self.count = 0;
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(grant) = self.grant {
            grant.left.fetch_add(self.count, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newcomers(a_second: u32, a_day: u64) -> Newcomers {
        let state = Mutex::new(Newcomers::full(Duration::ZERO, a_second, a_day));
        Newcomers { source: "somebody".into(), a_second, a_day, state }
    }

    #[test]
    fn who_makes_series_faster_than_allowed_waits_as_long_as_they_would_have_taken() {
        let at = Duration::from_millis;
        let newcomers = newcomers(100, 1_000_000);
        assert_eq!(newcomers.made(at(0), 200), Duration::ZERO);
        assert!(!newcomers.is_rested(at(0)));
        assert_eq!(newcomers.made(at(0), 50), at(500));
        // Half of it has been waited for.
        assert_eq!(newcomers.made(at(250), 0), at(250));
        assert!(!newcomers.is_rested(at(2_400)) && newcomers.is_rested(at(2_500)));
    }

    #[test]
    fn what_a_sender_has_made_of_its_day_comes_back_within_one_and_what_it_has_not_made_at_once() {
        let at = Duration::from_secs;
        let newcomers = newcomers(1_000, 240);
        let makes = |now: Duration, wanted: usize, made: usize| {
            let grant = newcomers.grant(now, wanted);
            let mut failed = Taken::of(Some(&grant));
            let mut taken = Taken::of(Some(&grant));
            let first = failed.take_one();
            drop(failed);
            let refused = (0..made).filter(|_| taken.take_one().is_err()).count();
            taken.keep();
            assert_eq!(first.is_err(), made > 0 && refused == made);
            made - refused
        };
        assert_eq!(makes(at(0), 300, 200), 200);
        assert_eq!(makes(at(0), 300, 50), 40);
        assert_eq!(makes(at(0), 300, 50), 0);
        assert!(!newcomers.is_rested(at(3600)));
        assert_eq!(makes(at(3600), 300, 50), 10);
        assert_eq!(makes(at(3600 * 30), 1_000, 1_000), 240);
        let why = Taken::of(Some(&newcomers.grant(at(3600 * 30), 1))).take_one().unwrap_err();
        assert!(why.to_string().contains("somebody has made the 240 series"), "{why}");
    }
}
