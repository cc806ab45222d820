//! The alerts of one rule: which there are, since when, and who has to hear of them.
//!
//! ```text
//!              the expression gives it     for as long as `for` says
//!   (nothing) ------------------> pending --------------------------> firing
//!       ^                            |                                   |  it gives it no longer, and
//!       |   it gives it no longer    |                                   v  `keep_firing_for` is over
//!       +----------------------------+------- 15 minutes ---------- inactive: resolved
//! ```
//! The times of all of this are those of evaluations, never of a clock, so the same evaluations
//! give the same alerts; where those go back they all go back, so that what has been stays as long
//! as it has been. That an alert is resolved is told for a quarter of an hour, in case nobody
//! heard it the first time.

use crate::file::ALERT_NAME;
use crate::store::Written;
use crate::time::SECOND;
use plinth_promql::{Labels, NAME};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// For how long it is told that an alert is resolved.
const RESOLVED: i64 = 15 * 60 * SECOND;
/// Alerts of one rule, whatever its limit says.
const MAX_ALERTS: usize = 10_000;

/// The metrics that say which alerts there are, and since when.
pub(crate) const ALERTS: &str = "ALERTS";
pub(crate) const FOR_STATE: &str = "ALERTS_FOR_STATE";
const ALERT_STATE: &str = "alertstate";

/// How far an alert has got.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AlertState {
    /// It fired, and does no longer.
    Inactive,
    /// It is there, but not for long enough.
    Pending,
    /// It fires.
    Firing,
}

impl AlertState {
    /// Its name, as Prometheus writes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Pending => "pending",
            Self::Firing => "firing",
        }
    }
}

/// An alert. Times are nanoseconds since 1970.
#[derive(Clone, PartialEq, Debug)]
pub struct Alert {
    /// By which it is told from all others; its name is among them.
    pub labels: Labels,
    /// Texts for people.
    pub annotations: Vec<(String, String)>,
    /// What the expression gave last.
    pub value: f64,
    /// How far it has got.
    pub state: AlertState,
    /// Since when the expression gives it.
    pub active_at: i64,
    /// Since when it fires.
    pub fired_at: Option<i64>,
    /// When it was resolved.
    pub resolved_at: Option<i64>,
    /// When somebody was told last.
    pub sent_at: Option<i64>,
    /// Since when it fires although the expression gives it no longer.
    pub kept_since: Option<i64>,
}

impl Alert {
    /// One that the expression gives for the first time.
    pub(crate) fn new(
        labels: Labels,
        annotations: Vec<(String, String)>,
        (time, value): (i64, f64),
    ) -> Self {
        Self {
            labels,
            annotations,
            value,
            state: AlertState::Pending,
            active_at: time,
            fired_at: None,
            resolved_at: None,
            sent_at: None,
            kept_since: None,
        }
    }

    fn is_due(&self, time: i64, resend: i64) -> bool {
        match (self.state, self.sent_at, self.resolved_at) {
            (AlertState::Pending, ..) => false,
            (_, None, _) => true,
            (_, Some(sent), Some(resolved)) if resolved > sent => true,
            (_, Some(sent), _) => sent.saturating_add(resend) < time,
        }
    }
}

/// What somebody is to be told of an alert.
#[derive(Clone, PartialEq, Debug)]
pub struct Notice {
    /// The alert's labels.
    pub labels: Labels,
    /// Its texts.
    pub annotations: Vec<(String, String)>,
    /// Since when it fires.
    pub starts_at: i64,
    /// When it was resolved; or, while it fires, when it is to be taken for resolved if nothing
    /// more is heard of it.
    pub ends_at: i64,
    /// Whether it is resolved.
    pub is_resolved: bool,
    /// Where people find the expression, below this server's address.
    pub generator: String,
}

/// The alerts of a rule.
#[derive(Clone, Default, Debug)]
pub(crate) struct Alerts {
    pub(crate) active: BTreeMap<Labels, Alert>,
}

/// For how long an alert has to be there, how long it stays, and how many there may be.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) hold: i64,
    pub(crate) keep_firing: i64,
    /// As the group says it: 0 if it says none.
    pub(crate) limit: usize,
}

impl Alerts {
    /// Looks whether there are more than there may be.
    ///
    /// # Errors
    /// If so; then none is left.
    pub(crate) fn check_count(&mut self, count: usize, limit: usize) -> Result<(), String> {
        let most = if limit > 0 { limit.min(MAX_ALERTS) } else { MAX_ALERTS };
        if count <= most {
            return Ok(());
        }
        self.active.clear();
        Err(format!("exceeded limit of {most} with {count} alerts"))
    }

    /// A number that is another one if there is another alert, or one has got further: what each
    /// evaluation makes anew, its value and its texts, doesn't count, nor when it was told.
    pub(crate) fn fingerprint(&self, hasher: &mut impl Hasher) {
        for (labels, alert) in &self.active {
            labels.hash(hasher);
            let Alert { state, active_at, fired_at, resolved_at, kept_since, .. } = alert;
            (state, active_at, fired_at, resolved_at, kept_since).hash(hasher);
        }
    }

    /// The clock was moved by so much: what was so long ago still is.
    pub(crate) fn move_times(&mut self, by: i64) {
        for alert in self.active.values_mut() {
            alert.active_at = alert.active_at.saturating_add(by);
            let others = [
                &mut alert.fired_at,
                &mut alert.resolved_at,
                &mut alert.sent_at,
                &mut alert.kept_since,
            ];
            for time in others.into_iter().flatten() {
                *time = time.saturating_add(by);
            }
        }
    }

    /// Takes in what an evaluation gave.
    ///
    /// # Errors
    /// If there are more than there may be; then none is left.
    pub(crate) fn take(
        &mut self,
        given: BTreeMap<Labels, Alert>,
        time: i64,
        patience: Patience,
    ) -> Result<(), String> {
        let is_given: std::collections::BTreeSet<Labels> = given.keys().cloned().collect();
        for (labels, alert) in given {
            match self.active.get_mut(&labels) {
                Some(known) if known.state != AlertState::Inactive => {
                    known.value = alert.value;
                    known.annotations = alert.annotations;
                }
                _ => drop(self.active.insert(labels, alert)),
            }
        }
        self.active.retain(|labels, alert| {
            is_given.contains(labels) || !ends(alert, time, patience.keep_firing)
        });
        let mut count = 0;
        for (labels, alert) in &mut self.active {
            if is_given.contains(labels) {
                alert.kept_since = None;
            }
            if alert.state == AlertState::Inactive {
                continue;
            }
            count += 1;
            let been = time.saturating_sub(alert.active_at);
            match alert.state {
                AlertState::Pending if been >= patience.hold => {
                    alert.state = AlertState::Firing;
                    alert.fired_at = Some(time);
                }
                // `for` says more than before.
                AlertState::Firing if been < patience.hold => {
                    alert.state = AlertState::Pending;
                    (alert.fired_at, alert.sent_at, alert.kept_since) = (None, None, None);
                }
                _ => {}
            }
        }
        self.check_count(count, patience.limit)
    }

    /// The points that say which alerts there are.
    pub(crate) fn points(&self, time: i64) -> Vec<Written> {
        let there = self.active.values().filter(|alert| alert.state != AlertState::Inactive);
        let points = there.flat_map(|alert| {
            let state = alert.labels.with(NAME, ALERTS).with(ALERT_STATE, alert.state.word());
            let since = alert.active_at.div_euclid(SECOND) as f64;
            [(state, (time, 1.0)), (alert.labels.with(NAME, FOR_STATE), (time, since))]
        });
        points.collect()
    }

    /// What is to be told now; it is taken for told.
    pub(crate) fn notices(
        &mut self,
        time: i64,
        (resend, interval): (i64, i64),
        generator: &str,
    ) -> Vec<Notice> {
        let valid = resend.max(interval).saturating_mul(4);
        let mut notices = Vec::new();
        for alert in self.active.values_mut().filter(|alert| alert.is_due(time, resend)) {
            alert.sent_at = Some(time);
            notices.push(Notice {
                labels: alert.labels.clone(),
                annotations: alert.annotations.clone(),
                starts_at: alert.fired_at.unwrap_or(alert.active_at),
                ends_at: alert.resolved_at.unwrap_or(time.saturating_add(valid)),
                is_resolved: alert.resolved_at.is_some(),
                generator: generator.to_string(),
            });
        }
        notices
    }

    /// How far the one has got that has got the farthest.
    pub(crate) fn state(&self) -> AlertState {
        self.active.values().map(|alert| alert.state).max().unwrap_or(AlertState::Inactive)
    }
}

/// What becomes of an alert that the expression doesn't give; whether it is forgotten.
fn ends(alert: &mut Alert, time: i64, keep_firing: i64) -> bool {
    match alert.state {
        AlertState::Pending => true,
        AlertState::Firing => {
            let since = *alert.kept_since.get_or_insert(time);
            if keep_firing == 0 || time.saturating_sub(since) >= keep_firing {
                alert.state = AlertState::Inactive;
                alert.resolved_at = Some(time);
            }
            false
        }
        AlertState::Inactive => {
            alert.resolved_at.is_none_or(|resolved| time.saturating_sub(resolved) > RESOLVED)
        }
    }
}

/// The labels of an alert of this name: those of a series with what a rule sets, without its
/// metric.
pub(crate) fn labels_of(series: &Labels, set: Vec<(String, String)>, name: &str) -> Labels {
    let own = series.iter().filter(|(label, _)| *label != NAME);
    let own = own.map(|(label, value)| (label.to_string(), value.to_string()));
    let named = [(ALERT_NAME.to_string(), name.to_string())];
    own.chain(set).chain(named).collect()
}
