//! For how long points are kept, by metric: rules, and the deletion of what is older.
//!
//! Rules stand in a list, `cpu.*=30d,audit=forever,*=1y`, of which the first that fits a metric
//! counts. A series loses what is older in strides of a twentieth of its time, so that it is
//! touched now and then and not each time somebody looks; points live that much longer at most.
//! Only points go: a series without any keeps its name, since whoever has it open may write to it
//! at any moment.

use super::{Listing, Series, SeriesStore};
use crate::error::Result;
use crate::time::duration;
use crate::tree::Direction;
use std::str::FromStr;
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
    /// The whole metric, or what it begins with.
    metric: String,
    is_beginning: bool,
    kept: Option<Duration>,
}

impl Rule {
    fn fits(&self, metric: &str) -> bool {
        if self.is_beginning { metric.starts_with(&self.metric) } else { metric == self.metric }
    }
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
            let beginning = metric.strip_suffix('*');
            let name = beginning.unwrap_or(metric);
            if name.contains('*') || (name.is_empty() && beginning.is_none()) {
                return Err(wrong());
            }
            Ok(Rule { metric: name.to_string(), is_beginning: beginning.is_some(), kept })
        };
        Ok(Self { rules: parts.map(rule).collect::<Result<_, String>>()? })
    }
}

impl Retention {
    /// For how long the points of a metric are kept; `None` for ever.
    pub fn kept(&self, metric: &str) -> Option<Duration> {
        self.rules.iter().find(|rule| rule.fits(metric))?.kept
    }

    /// How often to look for points that are too old; `None` if none ever is.
    pub fn interval(&self) -> Option<Duration> {
        let shortest = self.rules.iter().filter_map(|rule| rule.kept).min()?;
        Some((shortest / STRIDES).clamp(OFTEN, SELDOM))
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
    /// Deletes the points that are older at `now`, in nanoseconds since 1970, than `retention`
    /// keeps them. Gives how many series lost some.
    ///
    /// # Errors
    /// Those of [`Series::delete_range`] and of searching; what was deleted by then stays deleted.
    pub async fn forget(&self, retention: &Retention, now: i64) -> Result<u64> {
        let (mut count, mut after) = (0, None);
        loop {
            let metrics = self.list(&Listing::Metrics, "", after.as_deref(), METRICS).await?;
            for metric in &metrics {
                if let Some(kept) = retention.kept(metric) {
                    count += self.forget_before(metric, first_kept(now, kept)).await?;
                }
            }
            if metrics.len() < METRICS {
                return Ok(count);
            }
            after = metrics.into_iter().next_back();
        }
    }

    /// Deletes the points of a metric before a time.
    async fn forget_before(&self, metric: &str, first: i64) -> Result<u64> {
        let (mut count, mut from) = (0, Some(0));
        while let Some(begin) = from {
            let (found, next) = self.browse(Some(metric), &[], begin).await?;
            for series in found {
                if series.has_any_before(first).await? {
                    series.delete_range(..first).await?;
                    count += 1;
                }
            }
            from = next;
        }
        Ok(count)
    }
}

impl Series {
    async fn has_any_before(&self, first: i64) -> Result<bool> {
        Ok(self.scan(..first, Direction::Forward).await?.next().await?.is_some())
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
