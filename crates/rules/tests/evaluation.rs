//! What rules give, time after time, as Prometheus would.
//!
//! Groups are evaluated over series in memory at times that a test chooses, so each of these is
//! exact: which points are written, which alerts are there, who is told of what and when.

use crate::common::*;
use plinth_env::simulated::Simulation;
use plinth_env::{Env, block_on};
use plinth_promql::{Histogram, Parts, STALE};
use plinth_rules::{AlertState, Options, Outside};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[test]
fn rules_of_a_group_see_what_those_before_them_wrote() {
    let mut group = group(
        "groups: [{name: g, rules: [{record: 'a:sum', expr: sum(a)}, {record: 'twice', expr: 'a:sum * 2', labels: {x: y}}]}]",
    );
    let series = Series::default();
    series.add("a{i=\"1\"}", MINUTE, 2.0);
    series.add("a{i=\"2\"}", MINUTE, 3.0);
    let outcome = run(&mut group, &series, MINUTE);
    assert_eq!((outcome.evaluations, outcome.failures, outcome.points), (2, 0, 2));
    assert_eq!(series.value("a:sum", MINUTE), Some(5.0));
    assert_eq!(series.value("twice{x=\"y\"}", MINUTE), Some(10.0));
}

#[test]
fn a_series_that_is_given_no_longer_ends_at_once_and_once() {
    let mut group = group("groups: [{name: g, rules: [{record: r, expr: 'a > 1'}]}]");
    let series = Series::default();
    for (minute, value) in [(1, 2.0), (2, 0.0), (3, 0.0), (4, 2.0)] {
        series.add("a{i=\"1\"}", minute * MINUTE, value);
        run(&mut group, &series, minute * MINUTE);
    }
    let written: Vec<(i64, bool)> = series
        .written
        .lock()
        .unwrap()
        .iter()
        .map(|(_, (time, value))| (time / MINUTE, value.to_bits() == STALE))
        .collect();
    assert_eq!(written, [(1, false), (2, true), (4, false)]);
    assert_eq!(series.value("r", 2 * MINUTE), None, "it doesn't linger for five minutes");
}

/// Which points of series with `i` were written: minute, series, whether it is the end.
fn written(series: &Series) -> Vec<(i64, String, bool)> {
    let written = series.written.lock().unwrap();
    let point = |(labels, (time, value)): &(plinth_promql::Labels, (i64, f64))| {
        (time / MINUTE, labels.get("i").to_string(), value.to_bits() == STALE)
    };
    written.iter().map(point).collect()
}

/// As long as one series of a rule was refused, what it wrote to was taken to be what it had
/// written to before the first refusal: others that vanished never got an end.
#[test]
fn series_end_beside_one_that_is_refused() {
    let mut group = group("groups: [{name: g, rules: [{record: r, expr: 'a > 1'}]}]");
    let series = Series::default();
    for (minute, value) in [(1, 2.0), (2, 2.0), (3, 0.0), (4, 0.0), (5, 2.0)] {
        series.add("a{i=\"1\"}", minute * MINUTE, value);
        series.add(&format!("a{{i={REFUSED:?}}}"), minute * MINUTE, 2.0);
        assert_eq!(run(&mut group, &series, minute * MINUTE).failures, 1);
        assert_eq!(errors(&group), ["the series is refused"]);
    }
    let is = |minute, is_end| (minute, "1".to_string(), is_end);
    assert_eq!(written(&series), [is(1, false), is(2, false), is(3, true), is(5, false)]);
}

#[test]
fn series_end_that_a_write_may_have_reached_before_it_failed() {
    let mut group = group("groups: [{name: g, rules: [{record: r, expr: 'a > 1'}]}]");
    let series = Series::default();
    for (minute, one, other) in [(1, 2.0, 2.0), (2, 0.0, 2.0), (3, 0.0, 0.0), (4, 0.0, 0.0)] {
        series.add("a{i=\"1\"}", minute * MINUTE, one);
        series.add("a{i=\"2\"}", minute * MINUTE, other);
        series.is_cut.store(minute != 2 && minute != 4, Ordering::Relaxed);
        let outcome = run(&mut group, &series, minute * MINUTE);
        assert_eq!(outcome.failures, u64::from(minute != 2 && minute != 4));
    }
    let is = |minute, i: &str, is_end| (minute, i.to_string(), is_end);
    // At the third minute nothing was written of the only point, which is an end.
    assert_eq!(
        written(&series),
        [is(1, "1", false), is(2, "1", true), is(2, "2", false), is(4, "2", true)]
    );
}

#[test]
fn an_alert_is_pending_then_fires_then_is_resolved_and_that_is_told_for_a_quarter_of_an_hour() {
    let text = "groups: [{name: g, interval: 1m, rules: [{alert: High, expr: 'a > 1', for: 2m, labels: {severity: page}, annotations: {v: '{{ $value }}'}}]}]";
    let mut group = group(text);
    let series = Series::default();
    let mut heard = Vec::new();
    for minute in 1..=30 {
        let value = if (2..=6).contains(&minute) { 5.0 } else { 0.0 };
        series.add("a{a=\"1\"}", minute * MINUTE, value);
        let outcome = run(&mut group, &series, minute * MINUTE);
        for notice in &outcome.notices {
            assert_eq!(notice.labels, labels(r#"{alertname="High", a="1", severity="page"}"#));
            assert_eq!(notice.annotations, [("v".to_string(), "5".to_string())]);
            assert_eq!(notice.starts_at, 4 * MINUTE);
            let ends = if notice.is_resolved { 7 } else { minute + 4 };
            assert_eq!(notice.ends_at, ends * MINUTE);
            heard.push((minute, notice.is_resolved));
        }
        let state = match minute {
            2 | 3 => Some(AlertState::Pending),
            4..=6 => Some(AlertState::Firing),
            _ => None,
        };
        let states: Vec<AlertState> = states(&group).into_iter().map(|(_, state)| state).collect();
        assert_eq!(states, Vec::from_iter(state), "{minute}");
        let of =
            |state: &str| series.value(&format!("ALERTS{{alertstate={state:?}}}"), minute * MINUTE);
        assert_eq!(of("pending"), (state == Some(AlertState::Pending)).then_some(1.0));
        assert_eq!(of("firing"), (state == Some(AlertState::Firing)).then_some(1.0));
        let since = series.value("ALERTS_FOR_STATE", minute * MINUTE);
        assert_eq!(since, state.map(|_| 120.0), "{minute}");
    }
    // More than a minute between two, as Prometheus has it; resolved ones until 22.
    let resolved = [7, 9, 11, 13, 15, 17, 19, 21].map(|minute| (minute, true));
    assert_eq!(heard, [&[(4, false), (6, false)][..], &resolved].concat());
}

#[test]
fn without_for_it_fires_at_once_and_keeps_firing_for_as_long_as_it_says() {
    let mut group =
        group("groups: [{name: g, rules: [{alert: A, expr: 'a > 1', keep_firing_for: 3m}]}]");
    let series = Series::default();
    let mut fires = Vec::new();
    for minute in 1..=10 {
        let value = if matches!(minute, 2 | 4) { 5.0 } else { 0.0 };
        series.add("a{a=\"1\"}", minute * MINUTE, value);
        run(&mut group, &series, minute * MINUTE);
        if !states(&group).is_empty() {
            fires.push(minute);
        }
    }
    assert_eq!(fires, [2, 3, 4, 5, 6, 7], "three minutes behind the last time");
}

#[test]
fn a_limit_is_an_error_and_no_alert_is_left() {
    let mut group =
        group("groups: [{name: g, limit: 1, rules: [{alert: A, expr: a}, {record: r, expr: a}]}]");
    let series = Series::default();
    series.add("a{a=\"1\"}", MINUTE, 1.0);
    run(&mut group, &series, MINUTE);
    assert_eq!(states(&group).len(), 1);
    series.add("a{a=\"2\"}", 2 * MINUTE, 1.0);
    let outcome = run(&mut group, &series, 2 * MINUTE);
    assert_eq!(outcome.failures, 2);
    let wanted = ["exceeded limit of 1 with 2 alerts", "exceeded limit of 1 with 2 series"];
    assert_eq!(errors(&group), wanted);
    assert!(states(&group).is_empty());
}

/// The texts of ten thousand alerts and more were made before it was seen that there were too many.
#[test]
fn more_alerts_than_there_may_be_are_refused_before_their_texts_are_made() {
    let text = "groups: [{name: g, limit: LIMIT, rules: [{alert: A, expr: a, annotations: {v: '{{ query \"b\" | len }}'}}]}]";
    let series = Series::default();
    for place in 0..10_001 {
        series.add(&format!("a{{a=\"{place}\"}}"), MINUTE, 1.0);
    }
    for (limit, most) in [("2", 2), ("0", 10_000), ("20000", 10_000)] {
        let mut group = group(&text.replace("LIMIT", limit));
        run(&mut group, &series, MINUTE);
        assert_eq!(errors(&group), [format!("exceeded limit of {most} with 10001 alerts")]);
    }
    assert_eq!(*series.asked.lock().unwrap(), ["a"; 3]);
}

/// Each query of each template of each alert had a minute of its own.
#[test]
fn a_rule_has_one_deadline_for_all_that_it_asks() {
    let text = r#"groups: [{name: g, rules: [{alert: A, expr: a, annotations: {v: '{{ query "b" | len }}{{ query "c" | len }}{{ query "d" | len }}'}}]}]"#;
    let sim = Simulation::new(1);
    let env = sim.process("server");
    let mut group = group(text);
    let series = Series::default();
    for place in ["1", "2", "3"] {
        series.add(&format!("a{{a={place:?}}}"), MINUTE, 1.0);
    }
    *series.cost.lock().unwrap() = Some((env.clone(), Duration::from_secs(4)));
    // The expression, and three queries for each alert.
    let outcome = sim.run_until(group.evaluate(&series, &env, MINUTE));
    assert_eq!((outcome.failures, series.asked.lock().unwrap().len()), (0, 10));
    *series.cost.lock().unwrap() = Some((env.clone(), Duration::from_secs(9)));
    let outcome = sim.run_until(group.evaluate(&series, &env, 2 * MINUTE));
    assert_eq!((outcome.failures, outcome.notices.len()), (1, 0));
    assert_eq!(errors(&group), ["it takes longer than 60s"]);
    assert_eq!(series.asked.lock().unwrap().len(), 10 + 7);
    assert_eq!(states(&group).len(), 3, "what was there stays");
}

/// A group of many alerts kept its thread until all their texts were made.
#[test]
fn others_on_the_thread_go_first_between_two_alerts() {
    let mut group = group("groups: [{name: g, rules: [{alert: A, expr: a}]}]");
    let series = Series::default();
    for place in 0..100 {
        series.add(&format!("a{{a=\"{place}\"}}"), MINUTE, 1.0);
    }
    let env = Env::real();
    let mut evaluation = std::pin::pin!(group.evaluate(&series, &env, MINUTE));
    let mut polls = 0;
    let outcome = block_on(std::future::poll_fn(|context| {
        polls += 1;
        evaluation.as_mut().poll(context)
    }));
    assert_eq!(outcome.notices.len(), 100);
    assert!(polls > 100, "{polls}");
}

/// What has happened is kept at once, so that another server goes on from it. That is not so of a
/// value, which the next evaluation finds again; almost all of them did so.
#[test]
fn a_group_is_another_one_when_something_has_happened_to_an_alert() {
    let mut group = group(
        "groups: [{name: g, rules: [{alert: A, expr: 'a > 1', for: 2m, keep_firing_for: 2m, annotations: {v: '{{ $value }}'}}]}]",
    );
    let series = Series::default();
    let mut happened = Vec::new();
    for minute in 1..=30 {
        let value = if (3..=8).contains(&minute) { minute as f64 } else { 0.0 };
        series.add("a{a=\"1\"}", minute * MINUTE, value);
        let before = group.fingerprint();
        run(&mut group, &series, minute * MINUTE);
        if group.fingerprint() != before {
            happened.push(minute);
        }
    }
    // Pending, firing, kept, resolved, forgotten.
    assert_eq!(happened, [3, 5, 9, 11, 27]);
}

/// They made the evaluation panic.
#[test]
fn durations_of_centuries_overflow_nothing() {
    let text = "groups: [{name: g, interval: 290y, query_offset: 290y, rules: [{alert: A, expr: vector(1), keep_firing_for: 290y}, {alert: B, expr: vector(1), for: 290y}]}]";
    let series = Series::default();
    let mut before = group(text);
    for minute in 1..=2 {
        run(&mut before, &series, minute * MINUTE);
    }
    assert_eq!(told(&run(&mut before, &series, 3 * MINUTE).notices), [("A".to_string(), false)]);
    for active in ["-9223372036854775808", "9223372036854775807", "0"] {
        let mut saved = before.save();
        saved.alerts =
            saved.alerts.replace("\"active\":60000000000", &format!("\"active\":{active}"));
        for slot in [i64::MIN, 0, 30 * MINUTE, i64::MAX] {
            let mut next = group(text);
            next.load(&saved).unwrap();
            assert_eq!(run(&mut next, &series, slot).failures, 0);
            run(&mut next, &series, slot.saturating_add(MINUTE));
            assert_eq!(next.status().rules.len(), 2);
        }
    }
}

#[test]
fn series_that_become_one_are_an_error() {
    let mut group = group(
        "groups: [{name: g, rules: [{record: r, expr: a, labels: {i: x}}, {alert: A, expr: a, labels: {i: '{{ 1 }}'}}, {record: s, expr: 'a[1m]'}]}]",
    );
    let series = Series::default();
    series.add("a{i=\"1\"}", MINUTE, 1.0);
    series.add("a{i=\"2\"}", MINUTE, 1.0);
    run(&mut group, &series, MINUTE);
    let errors = errors(&group);
    assert!(errors[0].contains("same labelset after applying rule labels"), "{errors:?}");
    assert!(errors[1].contains("same labelset after applying alert labels"), "{errors:?}");
    assert_eq!(errors[2], "rule result is not a vector or scalar");
}

#[test]
fn labels_are_templates_and_one_that_is_empty_is_none() {
    let outside = Outside::new("http://here", BTreeMap::from([("dc".into(), "eu".into())]));
    let options = Options { outside, ..Options::default() };
    let text = r#"
groups:
- name: g
  rules:
  - alert: A
    expr: a
    labels: {host: '{{ $labels.i | toUpper }}', none: '{{ $labels.nope }}', i: '', dc: '{{ $externalLabels.dc }}'}
    annotations:
      others: '{{ range query "count(a)" }}{{ .Value }}{{ end }}'
      broken: '{{ humanize "x" }}'
"#;
    let mut group = groups(text, &options).remove(0);
    let series = Series::default();
    series.add("a{i=\"x\"}", MINUTE, 1.0);
    let notices = run(&mut group, &series, MINUTE).notices;
    assert_eq!(notices[0].labels, labels(r#"{alertname="A", host="X", dc="eu"}"#));
    assert_eq!(notices[0].annotations[1].1, "1");
    assert!(
        notices[0].annotations[0]
            .1
            .starts_with("<error expanding template: error executing template __alert_A: ")
    );
    assert_eq!(notices[0].generator, "/graph?g0.expr=a&g0.tab=1");
}

#[test]
fn what_is_asked_and_written_lies_back_by_the_offset() {
    let mut group = group(
        "groups: [{name: g, query_offset: 2m, rules: [{record: r, expr: a}, {alert: A, expr: 'a == 7'}]}]",
    );
    let series = Series::default();
    series.add("a{a=\"1\"}", MINUTE, 7.0);
    series.add("a{a=\"1\"}", 3 * MINUTE, 9.0);
    run(&mut group, &series, 3 * MINUTE);
    let times: Vec<i64> =
        series.written.lock().unwrap().iter().map(|(_, (time, _))| time / MINUTE).collect();
    assert_eq!(times, [1, 1, 1]);
    let status = group.status();
    let alert = &status.rules[1].alerting.as_ref().unwrap().alerts[0];
    assert_eq!(alert.active_at, 3 * MINUTE);
}

#[test]
fn a_store_that_is_away_leaves_alerts_as_they_were() {
    let mut group = group("groups: [{name: g, rules: [{alert: A, expr: 'a > 1', for: 2m}]}]");
    let series = Series::default();
    for minute in 1..=6 {
        series.add("a{a=\"1\"}", minute * MINUTE, 5.0);
        series.is_away.store((2..=3).contains(&minute), Ordering::Relaxed);
        let outcome = run(&mut group, &series, minute * MINUTE);
        assert_eq!(outcome.failures, u64::from((2..=3).contains(&minute)));
        let wanted = if minute < 4 { AlertState::Pending } else { AlertState::Firing };
        assert_eq!(states(&group), [("1".to_string(), wanted)], "{minute}");
    }
    assert!(errors(&group).is_empty());
}

#[test]
fn a_rule_that_gives_nothing_for_a_day_writes_nothing_and_holds_nothing() {
    let mut group = group(
        "groups: [{name: g, rules: [{record: r, expr: nothing}, {alert: A, expr: nothing > 1}]}]",
    );
    let series = Series::default();
    let empty = group.save();
    for minute in 1..=1440 {
        let outcome = run(&mut group, &series, minute * MINUTE);
        assert_eq!((outcome.failures, outcome.points, outcome.notices.len()), (0, 0, 0));
    }
    assert!(series.written.lock().unwrap().is_empty());
    assert_eq!(group.save().series, empty.series);
}

#[test]
fn times_are_slots_and_a_clock_may_jump() {
    let mut group = group("groups: [{name: g, interval: 1m, rules: []}]");
    let series = Series::default();
    let now = 1_767_225_600 * SECOND;
    let slot = group.due(now).unwrap();
    assert!((0..MINUTE).contains(&(now - slot)) && slot == group.slot_at(now));
    assert_eq!(run(&mut group, &series, slot).missed, 0);
    assert_eq!(group.due(now), None);
    assert_eq!(group.next(now), slot + MINUTE);
    assert_eq!(group.due(slot + MINUTE - 1), None);
    // A little back: what was evaluated isn't again.
    assert_eq!(
        (group.due(slot - 5 * SECOND), group.next(slot - 5 * SECOND)),
        (None, slot + MINUTE)
    );
    // Forward by ten minutes: those are missed.
    let later = group.due(slot + 10 * MINUTE).unwrap();
    assert_eq!(later, slot + 10 * MINUTE);
    assert_eq!(run(&mut group, &series, later).missed, 9);
    // Back by an hour: it goes on from there.
    let earlier = group.due(now - 60 * MINUTE).unwrap();
    assert!(earlier <= now - 60 * MINUTE);
    assert_eq!(run(&mut group, &series, earlier).missed, 0);
    assert_eq!(group.next(earlier), earlier + MINUTE);
}

/// With the clock an hour back what was there since "later" became pending for an hour, and what
/// was resolved then was told to nobody.
#[test]
fn alerts_outlive_a_clock_that_is_set_back() {
    let text = "groups: [{name: g, interval: 1m, rules: [{alert: A, expr: 'a > 1', for: 5m}, {alert: B, expr: 'b > 1', for: 5m}]}]";
    let mut group = group(text);
    let series = Series::default();
    for minute in (30..=60).chain(90..=100) {
        let high = |is_high: bool| if is_high { 5.0 } else { 0.0 };
        series.add("a{a=\"a\"}", minute * MINUTE, high(minute <= 45 || minute >= 90));
        series.add("b{a=\"b\"}", minute * MINUTE, high(minute <= 45 || minute >= 98));
    }
    let mut heard = Vec::new();
    for minute in (90..=100).chain(40..=60) {
        for notice in run(&mut group, &series, minute * MINUTE).notices {
            let name = notice.labels.get("a").to_string();
            assert!(notice.starts_at <= minute * MINUTE && notice.starts_at < notice.ends_at);
            heard.push((minute, name, notice.is_resolved));
        }
        let state = |is_firing| if is_firing { AlertState::Firing } else { AlertState::Pending };
        let of = |name: &str, is_firing| (name.to_string(), state(is_firing));
        let wanted = match minute {
            90..98 => vec![of("a", minute >= 95)],
            98..=100 => vec![of("a", true), of("b", false)],
            // B was there for two minutes, and this is the third.
            40..=45 => vec![of("a", true), of("b", minute >= 42)],
            _ => Vec::new(),
        };
        assert_eq!(states(&group), wanted, "{minute}");
    }
    let of = |name: &str| -> Vec<(i64, bool)> {
        let of = heard.iter().filter(|(_, heard, _)| heard == name);
        of.map(|(minute, _, is_resolved)| (*minute, *is_resolved)).collect()
    };
    // Told again every second minute, as without it; then resolved for a quarter of an hour.
    let firing = [95, 97, 99, 40, 42, 44].map(|minute| (minute, false));
    let resolved = [46, 48, 50, 52, 54, 56, 58, 60].map(|minute| (minute, true));
    assert_eq!(of("a"), [&firing[..], &resolved].concat());
    assert_eq!(of("b"), [&[(42, false), (44, false)][..], &resolved].concat());
}

/// They were an error of the rule.
#[test]
fn a_rule_records_native_histograms_and_alerts_by_them() {
    let mut group = group(
        "groups: [{name: g, rules: [{record: r, expr: 'h + h', labels: {by: rule}}, {alert: A, expr: h}]}]",
    );
    let series = Series::default();
    let histogram = Histogram::new(Parts { count: 3.0, sum: 1.5, ..Parts::default() }).unwrap();
    for minute in 0..3 {
        series.add_histogram("h{i=\"a\"}", minute * MINUTE, &histogram);
    }
    for minute in 0..3 {
        let outcome = run(&mut group, &series, minute * MINUTE);
        assert_eq!(outcome.failures, 0, "{outcome:?}");
    }
    let recorded = "histogram_count(r{i=\"a\", by=\"rule\"})";
    assert_eq!(series.value(recorded, 2 * MINUTE), Some(6.0));
    assert_eq!(series.value("ALERTS{alertname=\"A\", i=\"a\"}", 2 * MINUTE), Some(1.0));
    // One that isn't there any more has ended.
    run(&mut group, &series, 20 * MINUTE);
    assert_eq!(series.value(recorded, 20 * MINUTE), None);
    assert_eq!(series.value(recorded, 20 * MINUTE - 1), None);
}
