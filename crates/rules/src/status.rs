//! What there is to be seen of groups, and the answers of Prometheus' `rules` and `alerts`.
//!
//! A group is shown as it was behind its last evaluation; whoever asks never waits for one that is
//! under way.

use crate::alert::{Alert, AlertState};
use crate::digits::exponential;
use crate::file::RuleKind;
use crate::group::Group;
use crate::json::{object, texts};
use crate::rule::Evaluated;
use crate::time::{SECOND, rfc3339};
use plinth_promql::{Labels, Matcher, parse_selector};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What Prometheus shows as the time of what has never been.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// A group as it was at some moment.
#[derive(Clone, Debug)]
pub struct GroupStatus {
    /// The file, as it was named.
    pub file: String,
    /// The group's name.
    pub name: String,
    /// Nanoseconds from one evaluation to the next.
    pub interval: i64,
    /// Its limit.
    pub limit: usize,
    /// Its last evaluation.
    pub last: Option<Evaluated>,
    /// Its rules.
    pub rules: Vec<RuleStatus>,
}

/// A rule as it was at some moment.
#[derive(Clone, Debug)]
pub struct RuleStatus {
    /// The metric, or the alert's name.
    pub name: String,
    /// The expression.
    pub query: String,
    /// Its labels as they were written.
    pub labels: Labels,
    /// Its last evaluation.
    pub last: Option<Evaluated>,
    /// What there is of one that alerts.
    pub alerting: Option<Alerting>,
}

/// What there is of a rule that alerts.
#[derive(Clone, Debug)]
pub struct Alerting {
    /// Nanoseconds for which an alert has to be there.
    pub hold: i64,
    /// Nanoseconds for which it goes on firing.
    pub keep_firing: i64,
    /// The annotations as they were written.
    pub annotations: Vec<(String, String)>,
    /// How far the alert has got that has got the farthest.
    pub state: AlertState,
    /// Alerts that are there.
    pub alerts: Vec<Alert>,
}

impl Group {
    /// How it is now.
    pub fn status(&self) -> GroupStatus {
        let rules = self.rules.iter().map(|rule| {
            let alerting = match &rule.spec.kind {
                RuleKind::Record => None,
                RuleKind::Alert { hold, keep_firing, annotations } => Some(Alerting {
                    hold: *hold,
                    keep_firing: *keep_firing,
                    annotations: annotations
                        .iter()
                        .map(|(name, text)| (name.clone(), text.text().to_string()))
                        .collect(),
                    state: rule.alerts.state(),
                    alerts: rule
                        .alerts
                        .active
                        .values()
                        .filter(|alert| alert.resolved_at.is_none())
                        .cloned()
                        .collect(),
                }),
            };
            RuleStatus {
                name: rule.spec.name.clone(),
                query: rule.spec.expr.clone(),
                labels: rule.spec.plain_labels(),
                last: rule.last.clone(),
                alerting,
            }
        });
        GroupStatus {
            file: self.file.clone(),
            name: self.name.clone(),
            interval: self.interval,
            limit: self.limit,
            last: self.last.clone(),
            rules: rules.collect(),
        }
    }
}

/// The data of `/api/v1/alerts`.
pub fn alerts(groups: &[Arc<GroupStatus>]) -> Json {
    let mut rules: Vec<(&RuleStatus, &Alerting)> = groups
        .iter()
        .flat_map(|group| &group.rules)
        .filter_map(|rule| Some((rule, rule.alerting.as_ref()?)))
        .collect();
    rules.sort_by(|(one, a), (other, b)| b.state.cmp(&a.state).then(one.name.cmp(&other.name)));
    let alerts: Vec<Json> =
        rules.iter().flat_map(|(_, alerting)| alerting.alerts.iter().map(shown)).collect();
    json!({ "alerts": alerts })
}

/// What of rules somebody wants to see.
#[derive(Default)]
struct Wish {
    alerting: bool,
    recording: bool,
    without_alerts: bool,
    names: BTreeSet<String>,
    groups: BTreeSet<String>,
    files: BTreeSet<String>,
    matchers: Vec<Vec<Matcher>>,
    at_most: Option<usize>,
    token: Option<String>,
}

impl Wish {
    fn read(parameters: &[(String, String)]) -> Result<Self, String> {
        let mut wish = Self { alerting: true, recording: true, ..Self::default() };
        for (name, value) in parameters {
            match name.as_str() {
                "type" => match value.to_ascii_lowercase().as_str() {
                    "" => {}
                    "alert" => wish.recording = false,
                    "record" => wish.alerting = false,
                    other => {
                        return Err(format!(
                            "invalid parameter \"type\": not supported value {other:?}"
                        ));
                    }
                },
                "exclude_alerts" => match value.to_ascii_lowercase().as_str() {
                    "" | "0" | "f" | "false" => {}
                    "1" | "t" | "true" => wish.without_alerts = true,
                    _ => {
                        return Err(format!(
                            "invalid parameter \"exclude_alerts\": true or false expected, not {value:?}"
                        ));
                    }
                },
                "rule_name[]" => drop(wish.names.insert(value.clone())),
                "rule_group[]" => drop(wish.groups.insert(value.clone())),
                "file[]" => drop(wish.files.insert(value.clone())),
                "match[]" => wish.matchers.push(
                    parse_selector(value)
                        .map_err(|error| format!("invalid parameter \"match[]\": {error}"))?,
                ),
                "group_limit" => match value.parse() {
                    Ok(limit) if limit > 0 => wish.at_most = Some(limit),
                    _ => {
                        return Err(
                            "invalid parameter \"group_limit\": group_limit needs to be a number greater than 0"
                                .into(),
                        );
                    }
                },
                "group_next_token" if !value.is_empty() => wish.token = Some(value.clone()),
                _ => {}
            }
        }
        if wish.token.is_some() && wish.at_most.is_none() {
            let why = "group_limit needs to be present in order to paginate over the groups";
            return Err(format!("invalid parameter \"group_next_token\": {why}"));
        }
        Ok(wish)
    }

    fn wants(&self, rule: &RuleStatus) -> bool {
        let fits = |matchers: &Vec<Matcher>| {
            matchers.iter().all(|matcher| matcher.matches(rule.labels.get(&matcher.label)))
        };
        (if rule.alerting.is_some() { self.alerting } else { self.recording })
            && (self.names.is_empty() || self.names.contains(&rule.name))
            && (self.matchers.is_empty() || self.matchers.iter().any(fits))
    }

    fn wants_group(&self, group: &GroupStatus) -> bool {
        (self.groups.is_empty() || self.groups.contains(&group.name))
            && (self.files.is_empty() || self.files.contains(&group.file))
    }
}

/// By which a page begins with a group.
fn token(group: &GroupStatus) -> String {
    let place = format!("{};{}", group.file, group.name);
    place.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// The data of `/api/v1/rules`.
///
/// # Errors
/// What is wrong with a parameter.
pub fn rules(groups: &[Arc<GroupStatus>], parameters: &[(String, String)]) -> Result<Json, String> {
    let wish = Wish::read(parameters)?;
    let mut groups: Vec<&GroupStatus> = groups.iter().map(|group| &**group).collect();
    groups.sort_by(|one, other| (&one.file, &one.name).cmp(&(&other.file, &other.name)));
    let mut from = 0;
    if let Some(wanted) = &wish.token {
        from = groups.iter().position(|group| token(group) == *wanted).ok_or_else(|| {
            format!("invalid parameter \"group_next_token\": invalid group_next_token '{wanted}'. were rule groups changed?")
        })?;
    }
    let (mut shown, mut next) = (Vec::new(), None);
    for group in groups[from..].iter().filter(|group| wish.wants_group(group)) {
        let rules: Vec<Json> = group
            .rules
            .iter()
            .filter(|rule| wish.wants(rule))
            .map(|rule| shown_rule(rule, wish.without_alerts))
            .collect();
        if rules.is_empty() {
            continue;
        }
        if wish.at_most == Some(shown.len()) {
            next = Some(token(group));
            break;
        }
        shown.push(json!({
            "name": group.name,
            "file": group.file,
            "interval": seconds(group.interval),
            "limit": group.limit,
            "rules": rules,
            "evaluationTime": took(group.last.as_ref()),
            "lastEvaluation": at(group.last.as_ref()),
        }));
    }
    Ok(match next {
        Some(next) => json!({ "groups": shown, "groupNextToken": next }),
        None => json!({ "groups": shown }),
    })
}

fn seconds(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / SECOND as f64
}

fn took(last: Option<&Evaluated>) -> f64 {
    last.map_or(0.0, |last| last.took.as_secs_f64())
}

fn at(last: Option<&Evaluated>) -> String {
    last.map_or(NEVER.to_string(), |last| rfc3339(last.at))
}

fn shown_rule(rule: &RuleStatus, without_alerts: bool) -> Json {
    let error = rule.last.as_ref().and_then(|last| last.error.as_deref());
    let health = match (&rule.last, error) {
        (None, _) => "unknown",
        (Some(_), None) => "ok",
        (Some(_), Some(_)) => "err",
    };
    let mut json = json!({
        "name": rule.name,
        "query": rule.query,
        "labels": object(&rule.labels),
        "health": health,
        "evaluationTime": took(rule.last.as_ref()),
        "lastEvaluation": at(rule.last.as_ref()),
        "type": "recording",
    });
    if let Some(error) = error {
        json["lastError"] = error.into();
    }
    if let Some(alerting) = &rule.alerting {
        let state = if rule.last.is_some() { alerting.state.word() } else { "unknown" };
        let alerts: Vec<Json> = alerting.alerts.iter().map(shown).collect();
        json["type"] = "alerting".into();
        json["state"] = state.into();
        json["duration"] = seconds(alerting.hold).into();
        json["keepFiringFor"] = seconds(alerting.keep_firing).into();
        json["annotations"] = texts(&alerting.annotations);
        json["alerts"] = if without_alerts { Json::Null } else { alerts.into() };
    }
    json
}

fn shown(alert: &Alert) -> Json {
    let mut json = json!({
        "labels": object(&alert.labels),
        "annotations": texts(&alert.annotations),
        "state": alert.state.word(),
        "activeAt": rfc3339(alert.active_at),
        "value": exponential(alert.value, None),
    });
    if let Some(since) = alert.kept_since {
        json["keepFiringSince"] = rfc3339(since).into();
    }
    json
}

/// Alerts as Alertmanager takes them in; `outside` is what they get besides.
pub fn posted(notices: &[crate::Notice], outside: &crate::Outside) -> String {
    let one = |notice: &crate::Notice| {
        let own = notice.labels.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let external = outside.labels.iter().map(|(name, value)| (name.clone(), value.clone()));
        let labels: Labels = external.chain(own).collect();
        json!({
            "labels": object(&labels),
            "annotations": texts(&notice.annotations),
            "startsAt": rfc3339(notice.starts_at),
            "endsAt": rfc3339(notice.ends_at),
            "generatorURL": format!("{}{}", outside.url, notice.generator),
        })
    };
    Json::from(notices.iter().map(one).collect::<Vec<_>>()).to_string()
}
