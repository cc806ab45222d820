//! For how long points are kept, by metric: rules, and the deletion of what is older.
//!
//! Rules stand in a list, `cpu.*=30d,audit=forever,*=1y`, of which the first that fits a metric
//! counts. A series loses what is older in strides of a twentieth of its time, so that it is
//! touched now and then and not each time somebody looks; points live that much longer at most.
//! Only points go: a series without any keeps its name, since whoever has it open may write to it
//! at any moment. Where there are rollups they stay, for as long as their rules say (`raw.rs`).

use super::raw::aligned;
use super::rolls::Known;
use super::{Listing, Series, SeriesStore, roll, rolls};
use crate::error::{Error, Result};
use crate::rollup::{Keeping, Metrics};
use crate::time::duration;
use crate::tree::{Direction, Span};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Metrics that are read at a time.
const METRICS: usize = 1000;
/// Strides that the time of a rule has.
const STRIDES: u32 = 20;
/// How often there is to be a look at most and at least.
const OFTEN: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_hours(1);
const MILLISECOND: i64 = 1_000_000;

/// Rules about how long points are kept.
///
/// ```
/// use plinth_series::Retention;
/// use std::time::Duration;
/// let retention: Retention = "cpu.*=30d, audit=forever, *=1y".parse().unwrap();
/// assert_eq!(retention.kept("cpu.user"), Some(Duration::from_hours(30 * 24)));
/// assert_eq!(retention.kept("audit"), None);
/// assert!("cpu.*".parse::<Retention>().unwrap_err().contains("cpu.*"));
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Retention {
    rules: Vec<Rule>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    metrics: Metrics,
    kept: Option<Duration>,
}

impl FromStr for Retention {
    type Err = String;

    /// The rules of a text: `METRIC=TIME`, divided by commas. A metric that ends in `*` stands for
    /// all that begin so; a time is such as `30d`, `12h`, `1d12h`, or `forever`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let rule = |part: &str| {
            let wrong = || format!("`{part}` is no rule such as cpu.*=30d or audit=forever");
            let (metric, time) = part.rsplit_once('=').ok_or_else(wrong)?;
            let (metric, time) = (metric.trim(), time.trim());
            let kept = match time {
                "forever" => None,
                time => {
                    Some(Duration::from_nanos(duration(time).ok_or_else(wrong)?.unsigned_abs()))
                }
            };
            Ok(Rule { metrics: Metrics::parse(metric).ok_or_else(wrong)?, kept })
        };
        Ok(Self { rules: parts.map(rule).collect::<Result<_, String>>()? })
    }
}

impl Retention {
    /// For how long the points of a metric are kept; `None` for ever.
    pub fn kept(&self, metric: &str) -> Option<Duration> {
        self.rules.iter().find(|rule| rule.metrics.fits(metric))?.kept
    }

    /// How often to look for points that are too old; `None` if none ever is.
    pub fn interval(&self) -> Option<Duration> {
        self.rules.iter().filter_map(|rule| rule.kept).min().map(often_enough)
    }
}

/// How often to look for what is kept for so long.
fn often_enough(kept: Duration) -> Duration {
    (kept / STRIDES).clamp(OFTEN, SELDOM)
}

impl Keeping {
    /// The rules of retention that count: what was said at run time, and is in the database, counts
    /// instead of what the program was started with.
    pub fn counting(&self, asked: &Retention) -> Retention {
        // What is kept was looked at when it was said; text of a newer program's leaves points
        // alone.
        self.retention().map_or_else(|| asked.clone(), |text| text.parse().unwrap_or_default())
    }

    /// How often to look for what is too old by these rules of rollups; `None` if nothing ever is.
    pub fn interval(&self) -> Option<Duration> {
        let kept = self.rollups().iter().flat_map(|rollup| [rollup.keep, rollup.raw]);
        kept.flatten().min().map(often_enough)
    }

    /// Before which time a metric has neither points nor buckets any more; `None` if that is never.
    fn end_of_all(&self, metric: &str, first: i64, now: i64) -> Option<i64> {
        let mut end = first;
        for rollup in self.of(metric) {
            end = end.min(first_kept(now, rollup.keep?));
        }
        Some(aligned(end, &rolls::everies(self.of(metric))))
    }
}

/// The first moment that is kept at `now` of what is kept for so long.
fn first_kept(now: i64, kept: Duration) -> i64 {
    let kept = i64::try_from(kept.as_nanos()).unwrap_or(i64::MAX);
    // Whole milliseconds, so that no event is cut in two.
    let stride = (kept / i64::from(STRIDES) / MILLISECOND).max(1) * MILLISECOND;
    let first = now.saturating_sub(kept);
    first.saturating_sub(first.rem_euclid(stride))
}

impl SeriesStore {
    /// Deletes the points that are older at `now`, in nanoseconds since 1970
    /// ([`SeriesStore::time_to_forget`], where that is what a clock shows), than `retention`
    /// keeps them, unless the database says otherwise, or than the rules of rollups do; and rollups
    /// that are too old. A series that has lost its last point so, and its last bucket, goes whole,
    /// and its name is free. Gives how many series lost something.
    ///
    /// # Errors
    /// Those of [`Series::delete_range`] and of searching; what was deleted by then stays deleted.
    pub async fn forget(&self, retention: &Retention, now: i64) -> Result<u64> {
        self.learn_rules().await?;
        let known = &self.first().rolls.known();
        if let Some(why) = &known.fault {
            return Err(why.clone());
        }
        let keeping = &known.keeping;
        let retention = &keeping.counting(retention);
        self.take_in().await?;
        let may_have_records = self.has_any_records().await?;
        let (mut count, mut after, mut failed) = (0, None, Ok(()));
        loop {
            let metrics = self.list(&Listing::Metrics, "", after.as_deref(), METRICS).await?;
            for metric in &metrics {
                // By other rules points may have to be rolled up first, or stay: the next pass goes
                // by those. Others may have learnt them.
                self.learn_rules().await?;
                if !self.goes_by(known) {
                    return failed.map(|()| count);
                }
                let raw = keeping.of(metric).filter_map(|rollup| rollup.raw);
                let kept = raw.chain(retention.kept(metric)).min();
                let kept = kept.map(|kept| first_kept(now, kept));
                let is_rolled = keeping.has(metric);
                let old = Old { now, first: kept, known, is_rolled, may_have_records };
                if kept.is_none() && !is_rolled {
                    continue;
                }
                let forgotten = self.forget_of(metric, &old, &mut count).await;
                // What is wrong with one keeps no others.
                match forgotten {
                    Err(why @ (Error::Locked(_) | Error::NotOwner)) => return Err(why),
                    forgotten => failed = failed.and(forgotten),
                }
            }
            if metrics.len() < METRICS {
                return failed.map(|()| count);
            }
            after = metrics.into_iter().next_back();
        }
    }

    /// Looks whether there are other rules.
    async fn learn_rules(&self) -> Result<()> {
        for part in self.parts.iter().filter(|part| !part.is_foreign()) {
            rolls::learn(&part.shared).await?;
        }
        Ok(())
    }

    /// Whether these are still the rules, as far as any part knows.
    fn goes_by(&self, known: &Known) -> bool {
        let mut parts = self.parts.iter().filter(|part| !part.is_foreign());
        parts.all(|part| part.shared.rolls.known().row == known.row)
    }

    /// Deletes what is too old of a metric's series, and counts those that lost some. Goes on
    /// behind one that fails for a cause of its own; gives the first error.
    async fn forget_of(&self, metric: &str, old: &Old<'_>, count: &mut u64) -> Result<()> {
        let (mut failed, mut from) = (Ok(()), Some(0));
        while let Some(begin) = from {
            let (found, next) = self.browse_readable(metric, begin).await?;
            for series in found {
                if !self.goes_by(old.known) {
                    return failed;
                }
                match series.forget(old).await {
                    Ok(lost) => *count += u64::from(lost),
                    Err(why @ (Error::Locked(_) | Error::NotOwner)) => return Err(why),
                    Err(why) => failed = failed.and(Err(why)),
                }
            }
            from = next;
        }
        failed
    }
}

/// What is too old.
struct Old<'a> {
    now: i64,
    /// Points before this.
    first: Option<i64>,
    /// The rules by which they are.
    known: &'a Arc<Known>,
    /// Whether the metric has rollups.
    is_rolled: bool,
    /// Whether any series has records.
    may_have_records: bool,
}

impl Series {
    /// Deletes the points before a time, as when they are too old: where there are rollups, what is
    /// in these stays, and points that are not yet in them. Whether there were any.
    ///
    /// # Errors
    /// Those of [`Series::delete_range`].
    pub async fn forget_before(&self, first: i64) -> Result<bool> {
        let known = self.shared.rolls.known();
        if let Some(why) = &known.fault {
            return Err(why.clone());
        }
        if known.keeping.has(self.cell.name.metric()) {
            return self.forget_points(&known, first).await;
        }
        let old = Old {
            now: first,
            first: Some(first),
            known: &known,
            is_rolled: false,
            may_have_records: true,
        };
        self.forget_old(&old).await
    }

    /// Deletes what is too old, and the series itself if nothing is left. Whether there was
    /// anything.
    async fn forget(&self, old: &Old<'_>) -> Result<bool> {
        let had_records = match old.first {
            Some(first) if old.may_have_records => self.has_records_before(first).await?,
            _ => false,
        };
        let lost = self.forget_old(old).await?;
        let has_ended = old.first.is_some() && self.delete_if_ended(old.known, had_records).await?;
        Ok(lost || has_ended)
    }

    /// Deletes what is too old. Whether there was anything.
    async fn forget_old(&self, old: &Old<'_>) -> Result<bool> {
        let metric = self.cell.name.metric();
        if !old.is_rolled {
            let Some(first) = old.first else { return Ok(false) };
            let has_any = self.has_any_before(first, old.may_have_records).await?;
            return Ok(has_any && self.delete_by(old.known, first).await?);
        }
        let keeping = &old.known.keeping;
        let mut lost = match old.first {
            // Rollups are of numbers alone.
            Some(first) => {
                let points = self.forget_points(old.known, first).await?;
                (old.may_have_records && self.forget_records(first).await?) || points
            }
            None => false,
        };
        for rollup in keeping.of(metric) {
            let Some(keep) = rollup.keep else { continue };
            let of = (self.cell.id, rollup);
            lost |= roll::forget_buckets(&self.shared, of, first_kept(old.now, keep)).await?;
        }
        // Of a series that ended, the points that no bucket is made of any more.
        let end = old.first.and_then(|first| keeping.end_of_all(metric, first, old.now));
        if let Some(end) = end
            && self.has_any_before(end, old.may_have_records).await?
        {
            lost |= self.delete_by(old.known, end).await?;
        }
        Ok(lost)
    }

    /// Deletes the points before a time, if these are still the rules. Whether it did.
    async fn delete_by(&self, known: &Arc<Known>, first: i64) -> Result<bool> {
        self.delete_span(Span::new(..first), Some(known.clone())).await
    }

    async fn has_any_before(&self, first: i64, may_have_records: bool) -> Result<bool> {
        Ok(self.scan_unchecked(..first, Direction::Forward).await?.next().await?.is_some()
            || (may_have_records && self.has_records_before(first).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_counts() {
        let retention: Retention =
            " cpu.user = 1h30m,cpu.*=2d,cpu=3d,!*=forever,,a=b*=1w".parse().unwrap();
        for (metric, hours) in [
            ("cpu.user", Some(1.5)),
            ("cpu.users", Some(48.0)),
            ("cpu", Some(72.0)),
            ("cpus", None),
            ("!deploy", None),
            ("a=bc", Some(168.0)),
        ] {
            assert_eq!(
                retention.kept(metric).map(|kept| kept.as_secs_f64() / 3600.0),
                hours,
                "{metric}"
            );
        }
        assert_eq!(retention.interval(), Some(Duration::from_secs(270)));
        let of = |text: &str| text.parse::<Retention>().unwrap();
        assert_eq!((of("").interval(), of("*=forever").interval()), (None, None));
        assert_eq!((of("*=1y").interval(), of("*=1ms").interval()), (Some(SELDOM), Some(OFTEN)));
    }

    #[test]
    fn what_is_no_rule_is_named() {
        for text in [
            "cpu",
            "cpu=",
            "=1d",
            "cpu=1",
            "cpu=-1d",
            "cpu=0d",
            "c*u=1d",
            "**=1d",
            "cpu=1 d",
            "cpu=never",
        ] {
            let told = format!("ok=1d,{text}").parse::<Retention>().unwrap_err();
            assert!(told.contains(&format!("`{text}`")), "{told}");
        }
    }

    #[test]
    fn what_goes_is_older_by_a_stride_at_most() {
        const NOW: i64 = 1_767_225_600_123_456_789;
        for kept in
            [Duration::from_nanos(1), Duration::from_secs(7), Duration::from_hours(24 * 365)]
        {
            let limit = NOW - kept.as_nanos() as i64;
            let stride = (kept / STRIDES).as_nanos() as i64 + MILLISECOND;
            let first = first_kept(NOW, kept);
            assert!(
                first <= limit && limit - first <= stride && first % MILLISECOND == 0,
                "{kept:?}: {first}"
            );
        }
        assert_eq!(first_kept(i64::MIN, Duration::from_secs(1)), i64::MIN);
    }
}
