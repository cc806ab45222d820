//! How many series there may be, and how much they may take: whoever sends names that nobody has
//! sent before makes some.
//!
//! A name costs some hundred bytes of rows, and about a kilobyte of memory as long as points are
//! appended to it; a body of a few megabytes, compressed, holds a million of them. So series are
//! counted, all of them and those of each metric, in rows that change with the names; what those in
//! memory take is counted there; and rows as a whole are estimated, once a second. What would be
//! one too many is refused by name, and all else goes on.
//!
//! Senders are slowed down besides: whoever makes series faster than that waits with what comes
//! next ([`Newcomers`]).
//!
//! Points that transactions have written ([`SeriesLayer`](crate::SeriesLayer)) are not refused
//! here: they are committed already, and whoever may write keys has other bounds.

use super::{Cell, Series, Shared, lock};
use crate::error::{Error, Result};
use crate::name::Name;
use plinth_env::Env;
use plinth_types::KeyRange;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
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
    /// Bytes of memory for the series that points were appended to since the store was opened,
    /// about; open leaves are bounded by [`Settings::open_points`](crate::Settings::open_points).
    pub memory: usize,
    /// Bytes of all rows, keys and values, about; `None` for as many as the database takes.
    pub stored: Option<u64>,
}

impl Default for SeriesLimits {
    fn default() -> Self {
        let (series, of_metric) = (10_000_000, 5_000_000);
        Self { series, of_metric, of_label: None, memory: 1 << 30, stored: None }
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

impl SeriesLimits {
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
                let bytes = endpoint.range_size(KeyRange::new(begin, end)).await?;
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

/// How fast one sender may make series: what all of its sessions have together.
///
/// Series are made first and waited for afterwards, so that who makes a few of them now and then
/// never waits.
#[derive(Debug)]
pub struct Newcomers {
    a_second: u32,
    /// What may be made at once at that moment; less than 0 for what has been made too fast.
    state: Mutex<(Duration, f64)>,
}

/// So many seconds' series may be made at once.
const BURST: f64 = 2.0;

impl Newcomers {
    /// A sender that has made none and may make so many a second.
    pub fn new(env: &Env, a_second: u32) -> Self {
        Self { a_second, state: Mutex::new((env.now(), f64::from(a_second) * BURST)) }
    }

    /// Some were made: how long to wait before more are.
    pub(crate) fn made(&self, now: Duration, count: usize) -> Duration {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (then, left) = *state;
        let rate = f64::from(self.a_second);
        let left =
            (left + now.saturating_sub(then).as_secs_f64() * rate).min(rate * BURST) - count as f64;
        *state = (now, left);
        if left >= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(-left / rate) }
    }

    /// Whether it is as if it had made none.
    pub fn is_rested(&self, now: Duration) -> bool {
        self.made(now, 0);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 >= f64::from(self.a_second) * BURST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_makes_series_faster_than_allowed_waits_as_long_as_they_would_have_taken() {
        let at = Duration::from_millis;
        let newcomers = Newcomers { a_second: 100, state: Mutex::new((at(0), 200.0)) };
        assert_eq!(newcomers.made(at(0), 200), Duration::ZERO);
        assert!(!newcomers.is_rested(at(0)));
        assert_eq!(newcomers.made(at(0), 50), at(500));
        // Half of it has been waited for.
        assert_eq!(newcomers.made(at(250), 0), at(250));
        assert!(!newcomers.is_rested(at(2_400)) && newcomers.is_rested(at(2_500)));
    }
}
