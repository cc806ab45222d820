//! What `/api/v1/rules` and `/api/v1/alerts` show, and what Alertmanager is sent.

use crate::common::*;
use plinth_rules::{GroupStatus, Options, Outside, alerts, posted, rules};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const TEXT: &str = r#"
groups:
- name: b
  rules:
  - {record: r, expr: a, labels: {x: y}}
  - {alert: A, expr: 'a > 1', for: 5m, annotations: {v: '{{ $value }}'}}
- name: a
  limit: 7
  interval: 30s
  rules:
  - {alert: Firing, expr: 'a > 1', keep_firing_for: 1h}
  - {record: broken, expr: 'a + on (a) group_left () twice'}
"#;

fn shown() -> Vec<Arc<GroupStatus>> {
    let series = Series::default();
    series.add("a{a=\"1\"}", MINUTE, 5.5);
    for i in ["1", "2"] {
        series.add(&format!("twice{{a=\"1\", i={i:?}}}"), MINUTE, 1.0);
    }
    let status = groups(TEXT, &Options::default()).into_iter().map(|mut group| {
        run(&mut group, &series, MINUTE);
        Arc::new(group.status())
    });
    status.collect()
}

fn asked(groups: &[Arc<GroupStatus>], parameters: &[(&str, &str)]) -> Result<Json, String> {
    let parameters: Vec<(String, String)> =
        parameters.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    rules(groups, &parameters)
}

/// The names of the rules of an answer.
fn names(answer: &Json) -> Vec<&str> {
    let groups = answer["groups"].as_array().unwrap().iter();
    groups
        .flat_map(|group| group["rules"].as_array().unwrap())
        .map(|rule| rule["name"].as_str().unwrap())
        .collect()
}

#[test]
fn rules_and_alerts_are_shown_as_prometheus_shows_them() {
    let groups = shown();
    let answer = asked(&groups, &[]).unwrap();
    assert_eq!(names(&answer), ["Firing", "broken", "r", "A"], "by file and name of the group");
    let (a, b) = (&answer["groups"][0], &answer["groups"][1]);
    assert_eq!(
        (&a["interval"], &a["limit"], &a["file"]),
        (&json!(30.0), &json!(7), &json!("rules.yml"))
    );
    let firing = &a["rules"][0];
    assert_eq!(firing["state"], "firing");
    assert_eq!((&firing["type"], &firing["keepFiringFor"]), (&json!("alerting"), &json!(3600.0)));
    assert_eq!(firing["alerts"][0]["value"], "5.5e+00");
    assert_eq!(firing["alerts"][0]["activeAt"], "1970-01-01T00:01:00Z");
    assert_eq!(firing["alerts"][0]["labels"], json!({ "alertname": "Firing", "a": "1" }));
    assert_eq!(
        (&a["rules"][1]["health"], &a["rules"][1]["type"]),
        (&json!("err"), &json!("recording"))
    );
    assert!(a["rules"][1]["lastError"].as_str().unwrap().contains("many-to-many"), "{a}");
    assert_eq!(
        (&b["rules"][0]["health"], &b["rules"][0]["labels"]),
        (&json!("ok"), &json!({ "x": "y" }))
    );
    assert_eq!(
        (&b["rules"][1]["state"], &b["rules"][1]["duration"]),
        (&json!("pending"), &json!(300.0))
    );
    assert_eq!(b["rules"][1]["annotations"], json!({ "v": "{{ $value }}" }));
    let found = alerts(&groups);
    let found: Vec<_> =
        found["alerts"].as_array().unwrap().iter().map(|alert| &alert["state"]).collect();
    assert_eq!(found, ["firing", "pending"]);
    let never = Arc::new(groups_of_none());
    let answer = asked(&[never], &[]).unwrap();
    assert_eq!(answer["groups"][0]["lastEvaluation"], "0001-01-01T00:00:00Z");
    assert_eq!(answer["groups"][0]["rules"][0]["health"], "unknown");
}

fn groups_of_none() -> GroupStatus {
    groups(TEXT, &Options::default())[0].status()
}

#[test]
fn what_is_asked_for_is_shown() {
    let groups = shown();
    for (parameters, wanted) in [
        (&[("type", "alert")][..], &["Firing", "A"][..]),
        (&[("type", "record")], &["broken", "r"]),
        (&[("rule_name[]", "A"), ("rule_name[]", "r")], &["r", "A"]),
        (&[("rule_group[]", "a")], &["Firing", "broken"]),
        (&[("file[]", "other.yml")], &[]),
        (&[("match[]", "{x=\"y\"}")], &["r"]),
    ] {
        assert_eq!(names(&asked(&groups, parameters).unwrap()), wanted, "{parameters:?}");
    }
    let without = asked(&groups, &[("exclude_alerts", "true")]).unwrap();
    assert_eq!(without["groups"][0]["rules"][0]["alerts"], Json::Null);
    let first = asked(&groups, &[("group_limit", "1")]).unwrap();
    let next = first["groupNextToken"].as_str().unwrap();
    assert_eq!(names(&first), ["Firing", "broken"]);
    let second = asked(&groups, &[("group_limit", "1"), ("group_next_token", next)]).unwrap();
    assert_eq!((names(&second), &second["groupNextToken"]), (vec!["r", "A"], &Json::Null));
    for wrong in [
        &[("type", "x")][..],
        &[("exclude_alerts", "maybe")],
        &[("match[]", "sum(")],
        &[("group_limit", "0")],
        &[("group_next_token", next)],
        &[("group_limit", "1"), ("group_next_token", "x")],
    ] {
        assert!(asked(&groups, wrong).unwrap_err().starts_with("invalid parameter"), "{wrong:?}");
    }
}

#[test]
fn alertmanager_is_sent_what_its_api_takes() {
    let outside = Outside::new(
        "http://here:8181/",
        BTreeMap::from([("dc".into(), "eu".into()), ("a".into(), "no".into())]),
    );
    let mut group = groups(TEXT, &Options::default()).remove(1);
    let series = Series::default();
    series.add("a{a=\"1\"}", MINUTE, 5.5);
    let notices = run(&mut group, &series, MINUTE).notices;
    let sent: Json = serde_json::from_str(&posted(&notices, &outside)).unwrap();
    assert_eq!(
        sent,
        json!([{
            "labels": { "alertname": "Firing", "a": "1", "dc": "eu" },
            "annotations": {},
            "startsAt": "1970-01-01T00:01:00Z",
            "endsAt": "1970-01-01T00:05:00Z",
            "generatorURL": "http://here:8181/graph?g0.expr=a+%3E+1&g0.tab=1",
        }])
    );
}
