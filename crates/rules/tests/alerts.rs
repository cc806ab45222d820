//! The alert rules that `docs/monitoring.md` gives to people, evaluated by our own rules over the
//! measurements of `tests/alerts/cases.txt`: each fires when it should, alone, and none does while
//! all is well. `tests/alerts/suite.py` has the same cases judged by Prometheus' `promtool`, so a
//! case that holds here and not there is a difference between the two.

use crate::common::*;
use plinth_rules::AlertState;
use std::collections::BTreeMap;

const PAGE: &str = include_str!("../../../docs/monitoring.md");
const CASES: &str = include_str!("../../../tests/alerts/cases.txt");

/// What is measured in a case: values in the notation of `promtool`, by series.
type Measured = BTreeMap<&'static str, &'static str>;

/// Alerts with what is measured for them, and what is measured while all is well.
fn cases() -> (Vec<(&'static str, Measured)>, Measured) {
    let mut cases: Vec<(&str, Measured)> = Vec::new();
    for line in CASES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("    ") {
            None => cases.push((line, Measured::new())),
            Some(line) => {
                let (series, values) = line.rsplit_once(' ').unwrap();
                cases.last_mut().unwrap().1.insert(series, values);
            }
        }
    }
    let (name, well) = cases.remove(0);
    assert_eq!(name, "well");
    (cases, well)
}

/// The alerts that fire when this has been measured for three hours, evaluated in the last one.
fn firing(text: &str, measured: &Measured) -> Vec<String> {
    let series = Series::default();
    for (name, values) in measured {
        series.load(&format!("{name} {values}"), MINUTE);
    }
    let mut group = group(text);
    for minute in (120..=180).step_by(5) {
        run(&mut group, &series, minute * MINUTE);
        assert_eq!(errors(&group), [""; 0]);
    }
    let rules = group.status().rules.into_iter();
    let fires = rules.filter(|rule| rule.alerting.as_ref().unwrap().state == AlertState::Firing);
    fires.map(|rule| rule.name).collect()
}

#[test]
fn alerts_fire_as_promtool_has_them_fire() {
    let text = PAGE.split("```yaml\n").find(|block| block.starts_with("groups:")).unwrap();
    let text = text.split("```").next().unwrap();
    let (cases, well) = cases();
    let mut names: Vec<&str> = cases.iter().map(|(name, _)| *name).collect();
    let rules = group(text).status().rules;
    let mut all: Vec<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
    names.sort_unstable();
    all.sort_unstable();
    assert_eq!(names, all, "each has a case");
    assert_eq!(firing(text, &well), [""; 0]);
    for (name, unwell) in cases {
        let measured = well.clone().into_iter().chain(unwell).collect();
        assert_eq!(firing(text, &measured), [name]);
    }
}
