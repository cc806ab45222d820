//! What is kept of a group, so that whoever evaluates it next goes on where this one ended.
//!
//! Two texts of JSON: the alerts, which change with most evaluations, and the series that were
//! written, of which there may be many and which seldom change. A rule is known again by its name
//! and its labels, and, where there are several of the same, by their order; so a file that was
//! edited keeps the alerts of all rules that are still there. Numbers are nanoseconds since 1970.

use crate::alert::{Alert, AlertState};
use crate::group::Group;
use crate::json::{object, texts};
use crate::restore::Restore;
use crate::rule::{Rule, stale};
use crate::store::Written;
use plinth_promql::{Labels, format_value};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const FORMAT: u64 = 1;

/// What is kept of a group. A text that is empty is nothing: what holds them may have room for one
/// and not for the other.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Saved {
    /// Its alerts.
    pub alerts: String,
    /// The series that it wrote.
    pub series: String,
}

impl Group {
    /// What to keep of it.
    pub fn save(&self) -> Saved {
        let alerts = self.rules.iter().filter(|rule| !rule.alerts.active.is_empty()).map(|rule| {
            let alerts: Vec<Json> = rule.alerts.active.values().map(written).collect();
            json!({ "rule": identity(rule), "alerts": alerts })
        });
        let alerts: Vec<Json> = alerts.collect();
        let series = self.rules.iter().filter(|rule| !rule.series.is_empty()).map(|rule| {
            let series: Vec<Json> = rule.series.iter().map(object).collect();
            json!({ "rule": identity(rule), "series": series })
        });
        let series: Vec<Json> = series.collect();
        let ended: Vec<Json> = self.ended.iter().map(object).collect();
        Saved {
            alerts: json!({ "format": FORMAT, "slot": self.slot, "rules": alerts }).to_string(),
            series: json!({ "format": FORMAT, "rules": series, "ended": ended }).to_string(),
        }
    }

    /// Goes on where the group ended of which this was kept.
    ///
    /// # Errors
    /// If it can't be read; then nothing was taken over.
    pub fn load(&mut self, saved: &Saved) -> Result<(), String> {
        let (slot, mut alerts) = read_alerts(&saved.alerts)?;
        let (mut series, ended) = read_series(&saved.series)?;
        for rule in &mut self.rules {
            let identity = identity(rule);
            if let Some(found) = alerts.get_mut(&identity).and_then(VecDeque::pop_front) {
                rule.alerts.active =
                    found.into_iter().map(|alert| (alert.labels.clone(), alert)).collect();
            }
            if let Some(found) = series.get_mut(&identity).and_then(VecDeque::pop_front) {
                rule.series = found;
            }
        }
        self.ended = ended.into_iter().chain(series.into_values().flatten().flatten()).collect();
        self.slot = slot;
        self.restore = if slot.is_some() { Restore::Carried } else { self.restore };
        Ok(())
    }

    /// The group of a file that was read again goes on where this one is.
    pub fn succeed(&mut self, before: &Self) {
        if self.load(&before.save()).is_ok() {
            // There was no pause.
            self.restore = before.restore;
            self.last.clone_from(&before.last);
        }
    }
}

impl Saved {
    /// The points by which all series end of a group that is no more.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn ends(&self, time: i64) -> Result<Vec<Written>, String> {
        let (series, ended) = read_series(&self.series)?;
        let all = series.into_values().flatten().flatten().chain(ended);
        Ok(all.map(|labels| (labels, stale(time))).collect())
    }
}

/// By which a rule is known again.
fn identity(rule: &Rule) -> String {
    format!("{}{}", rule.spec.name, rule.spec.plain_labels())
}

fn written(alert: &Alert) -> Json {
    json!({
        "labels": object(&alert.labels),
        "annotations": texts(&alert.annotations),
        "value": format_value(alert.value),
        "state": alert.state.word(),
        "active": alert.active_at,
        "fired": alert.fired_at,
        "resolved": alert.resolved_at,
        "sent": alert.sent_at,
        "kept": alert.kept_since,
    })
}

/// By the identity of a rule, what there is of each of those that have it.
type ByRule<T> = BTreeMap<String, VecDeque<T>>;

fn read(text: &str) -> Result<Json, String> {
    let json: Json = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match json["format"].as_u64() {
        Some(FORMAT) => Ok(json),
        other => Err(format!("format {FORMAT} expected, not {other:?}: a newer Plinth wrote it")),
    }
}

fn by_rule<T>(
    json: &Json,
    field: &str,
    one: impl Fn(&Json) -> Option<T>,
) -> Result<ByRule<Vec<T>>, String> {
    let wrong = || format!("a list `{field}` of each rule expected");
    let mut found = ByRule::new();
    for rule in json["rules"].as_array().ok_or_else(wrong)? {
        let identity = rule["rule"].as_str().ok_or_else(wrong)?;
        let items = rule[field].as_array().ok_or_else(wrong)?;
        let items = items.iter().map(&one).collect::<Option<Vec<T>>>().ok_or_else(wrong)?;
        found.entry(identity.to_string()).or_default().push_back(items);
    }
    Ok(found)
}

fn labels(json: &Json) -> Option<Labels> {
    let pairs = json.as_object()?.iter();
    let pairs = pairs.map(|(name, value)| Some((name.as_str(), value.as_str()?)));
    pairs.collect::<Option<Vec<_>>>().map(|pairs| pairs.into_iter().collect())
}

/// Nothing, if there was no room for them.
fn read_alerts(text: &str) -> Result<(Option<i64>, ByRule<Vec<Alert>>), String> {
    if text.is_empty() {
        return Ok(Default::default());
    }
    let json = read(text)?;
    Ok((json["slot"].as_i64(), by_rule(&json, "alerts", read_alert)?))
}

fn read_alert(json: &Json) -> Option<Alert> {
    let annotations = json["annotations"].as_object()?.iter();
    let annotations = annotations.map(|(name, text)| Some((name.clone(), text.as_str()?.into())));
    let state = match json["state"].as_str()? {
        "firing" => AlertState::Firing,
        "pending" => AlertState::Pending,
        "inactive" => AlertState::Inactive,
        _ => return None,
    };
    Some(Alert {
        labels: labels(&json["labels"])?,
        annotations: annotations.collect::<Option<_>>()?,
        value: json["value"].as_str()?.parse().ok()?,
        state,
        active_at: json["active"].as_i64()?,
        fired_at: json["fired"].as_i64(),
        resolved_at: json["resolved"].as_i64(),
        sent_at: json["sent"].as_i64(),
        kept_since: json["kept"].as_i64(),
    })
}

/// Nothing, if there was no room for them.
fn read_series(text: &str) -> Result<(ByRule<BTreeSet<Labels>>, BTreeSet<Labels>), String> {
    if text.is_empty() {
        return Ok(Default::default());
    }
    let json = read(text)?;
    let series = by_rule(&json, "series", labels)?;
    let series = series.into_iter().map(|(rule, lists)| {
        (rule, lists.into_iter().map(|list| list.into_iter().collect()).collect())
    });
    let ended = json["ended"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ended = ended.iter().map(labels).collect::<Option<_>>();
    Ok((series.collect(), ended.ok_or("a list `ended` of labels expected")?))
}
