//! Going on behind a pause: a restart, or another server that evaluates from now on.
//!
//! What the database kept of a group (`saved.rs`) says all there is to know of its alerts. Behind a
//! pause that is no longer than a point is seen for, it goes on as if some evaluations had been
//! missed. Behind a longer one, up to an hour, it does as Prometheus does: what was pending goes on
//! with the time that it had spent so, and has ten minutes at least to come right. Behind a pause
//! that is longer still nothing is carried over.
//!
//! Where nothing was kept, as when series came from a Prometheus, the series `ALERTS_FOR_STATE` say
//! since when alerts were there, behind the second evaluation: by then rules that alerts depend on
//! have been evaluated once.

use crate::alert::{Alert, AlertState, FOR_STATE};
use crate::file::ALERT_NAME;
use crate::rule::Rule;
use crate::store::Store;
use crate::time::SECOND;
use plinth_promql::{Labels, MatchOp, Matcher, NAME, STALE};
use std::collections::BTreeMap;

/// A pause that is taken for missed evaluations: as long as a point is seen for.
const MISSED: i64 = 300 * SECOND;

/// Where a group is in this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Restore {
    /// Nothing was kept; evaluations that there were so far.
    FromSeries {
        evaluations: u8,
    },
    /// Its alerts are those that were kept.
    Carried,
    Done,
}

impl Restore {
    /// Whether the alerts of a rule are written as series: not before it is known since when they
    /// are there.
    pub(crate) fn is_written(self, rule: &Rule, bounds: Bounds) -> bool {
        self == Self::Done || rule.hold().is_some_and(|hold| hold < bounds.grace)
    }
}

/// How long a pause may be, and how long an alert has to be there behind it, at least.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) tolerance: i64,
    pub(crate) grace: i64,
}

impl Bounds {
    /// Since when an alert is taken to be there, `now`, that was until a time, since another one.
    fn active_at(self, hold: i64, (since, until): (i64, i64), now: i64) -> i64 {
        // What was kept may have any times, and a file any durations.
        let left = hold.saturating_sub(until.saturating_sub(since));
        match left {
            left if left <= 0 => since,
            left if left < self.grace => now.saturating_add(self.grace).saturating_sub(hold),
            _ => since.saturating_add(now.saturating_sub(until)),
        }
    }
}

/// Takes what was kept, as it was at a time, over into an evaluation at another one.
pub(crate) fn carry_over(
    rules: &mut [Rule],
    (until, now): (i64, i64),
    interval: i64,
    bounds: Bounds,
) {
    let pause = now.saturating_sub(until);
    if pause <= MISSED.max(interval.saturating_mul(2)) {
        return;
    }
    for rule in rules {
        let Some(hold) = rule.hold() else { continue };
        if pause > bounds.tolerance {
            rule.alerts.active.clear();
            continue;
        }
        let pending =
            rule.alerts.active.values_mut().filter(|alert| alert.state == AlertState::Pending);
        for alert in pending {
            let is_short = hold < bounds.grace;
            let since = alert.active_at;
            alert.active_at =
                if is_short { now } else { bounds.active_at(hold, (since, until), now) };
        }
    }
}

/// Looks in the series since when alerts are there.
pub(crate) async fn from_series<S: Store>(rules: &mut [Rule], store: &S, now: i64, bounds: Bounds) {
    let after = now.saturating_sub(bounds.tolerance);
    for rule in rules {
        let Some(hold) = rule.hold().filter(|hold| *hold >= bounds.grace) else { continue };
        if rule.alerts.active.is_empty() {
            continue;
        }
        // What can't be read now won't be waited for: the alert then begins now.
        let found = store.newest(&conditions(rule), after, now).await.unwrap_or_default();
        let found: BTreeMap<Labels, (i64, f64)> = found
            .into_iter()
            .map(|(labels, point)| (labels.only(|name| name != NAME), point))
            .collect();
        for Alert { labels, active_at, .. } in rule.alerts.active.values_mut() {
            if let Some((until, since)) = found.get(labels)
                && since.to_bits() != STALE
                && let Some(since) = plinth_promql::nanoseconds(*since)
            {
                *active_at = bounds.active_at(hold, (since, *until), now);
            }
        }
    }
}

/// What the series of a rule's alerts meet. Labels that are made for each alert are none of it.
fn conditions(rule: &Rule) -> Vec<Matcher> {
    let set = rule.spec.labels.iter().map(|(name, value)| (name.as_str(), value.text()));
    let set = set.filter(|(_, value)| !value.contains("{{"));
    let all = [(NAME, FOR_STATE), (ALERT_NAME, rule.spec.name.as_str())].into_iter().chain(set);
    all.filter_map(|(name, value)| Matcher::new(name, MatchOp::Equal, value).ok()).collect()
}
