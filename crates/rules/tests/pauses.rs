//! What is carried over a restart, a failover, and a file that is read again.
//!
//! A restart here is a group that is saved, and another one of the same file that is loaded. The
//! hardest test runs both beside each other, one restarted every five minutes, and wants the same
//! points and the same words of both.

use crate::common::*;
use plinth_promql::STALE;
use plinth_rules::{AlertState, Group};

const TEXT: &str = "groups: [{name: g, interval: 1m, rules: [{alert: A, expr: 'a > 1', for: 30m}, {record: r, expr: 'a > 1'}, {alert: Now, expr: 'a > 1'}]}]";

/// The same group in another process.
fn restarted(before: &Group) -> Group {
    let mut next = group(TEXT);
    next.load(&before.save()).unwrap();
    next
}

fn state_of(group: &Group, place: usize) -> Option<(AlertState, i64)> {
    let status = group.status();
    let alert = status.rules[place].alerting.as_ref()?.alerts.first()?;
    Some((alert.state, alert.active_at / MINUTE))
}

/// Evaluates each minute while the value is 5, or 0 from `until` on.
fn evaluate(
    group: &mut Group,
    series: &Series,
    minutes: std::ops::RangeInclusive<i64>,
    until: i64,
) {
    for minute in minutes {
        series.add("a{a=\"1\"}", minute * MINUTE, if minute < until { 5.0 } else { 0.0 });
        run(group, series, minute * MINUTE);
    }
}

#[test]
fn a_group_goes_on_as_it_would_have_without_a_restart() {
    let (one, other) = (Series::default(), Series::default());
    let (mut whole, mut parts) = (group(TEXT), group(TEXT));
    for minute in 1..=80 {
        let value = if (minute / 7) % 3 == 1 || (30..70).contains(&minute) { 5.0 } else { 0.0 };
        for series in [&one, &other] {
            series.add("a{a=\"1\"}", minute * MINUTE, value);
        }
        let told_whole = run(&mut whole, &one, minute * MINUTE).notices;
        if minute % 5 == 0 && minute > 2 {
            parts = restarted(&parts);
        }
        let told_parts = run(&mut parts, &other, minute * MINUTE).notices;
        assert_eq!(told_whole, told_parts, "{minute}");
        assert_eq!(whole.save(), parts.save(), "{minute}");
    }
    let bits = |series: &Series| -> Vec<_> {
        let written = series.written.lock().unwrap();
        written
            .iter()
            .map(|(labels, (time, value))| (labels.clone(), *time, value.to_bits()))
            .collect()
    };
    assert_eq!(bits(&one), bits(&other));
}

/// A failover, or a restart of some minutes: what is pending isn't held up by it.
#[test]
fn a_short_pause_is_missed_evaluations() {
    let series = Series::default();
    let mut before = group(TEXT);
    evaluate(&mut before, &series, 1..=10, 99);
    let mut next = restarted(&before);
    evaluate(&mut next, &series, 15..=15, 99);
    assert_eq!(state_of(&next, 0), Some((AlertState::Pending, 1)));
    evaluate(&mut next, &series, 31..=31, 99);
    assert_eq!(state_of(&next, 0), Some((AlertState::Firing, 1)));
}

/// As Prometheus: the time that it was pending counts, the pause doesn't.
#[test]
fn behind_a_long_pause_an_alert_has_the_time_that_it_had_and_ten_minutes_at_least() {
    for (spent, active_at) in [(5, 1 + 20), (28, 48 + 10 - 30)] {
        let series = Series::default();
        let mut before = group(TEXT);
        evaluate(&mut before, &series, 1..=spent, 99);
        let mut next = restarted(&before);
        let at = spent + 20;
        evaluate(&mut next, &series, at..=at, 99);
        assert_eq!(state_of(&next, 0), Some((AlertState::Pending, active_at)), "{spent}");
        // Firing before, firing behind it, and since the same time.
        assert_eq!(state_of(&next, 2), Some((AlertState::Firing, 1)), "{spent}");
    }
}

#[test]
fn behind_more_than_an_hour_nothing_is_carried_over() {
    let series = Series::default();
    let mut before = group(TEXT);
    evaluate(&mut before, &series, 1..=40, 99);
    assert_eq!(state_of(&before, 0), Some((AlertState::Firing, 1)));
    let mut next = restarted(&before);
    evaluate(&mut next, &series, 120..=120, 999);
    assert_eq!(state_of(&next, 0), Some((AlertState::Pending, 120)));
}

#[test]
fn what_was_resolved_before_a_restart_is_told_behind_it_and_what_ended_meanwhile_too() {
    let series = Series::default();
    let mut before = group(TEXT);
    evaluate(&mut before, &series, 1..=10, 10);
    let mut next = restarted(&before);
    series.add("a{a=\"1\"}", 12 * MINUTE, 0.0);
    let notices = run(&mut next, &series, 12 * MINUTE).notices;
    assert_eq!(told(&notices), [("Now".to_string(), true)]);

    let mut firing = group(TEXT);
    evaluate(&mut firing, &series, 21..=25, 99);
    let mut next = restarted(&firing);
    series.add("a{a=\"1\"}", 26 * MINUTE, 0.0);
    let notices = run(&mut next, &series, 26 * MINUTE).notices;
    assert_eq!(told(&notices), [("Now".to_string(), true)]);
    assert_eq!(series.value("r", 26 * MINUTE), None, "the series of a rule ends too");
}

/// Without anything kept: the series of a Prometheus that was here before.
#[test]
fn alerts_go_on_from_the_series_that_a_prometheus_left() {
    let for_state = r#"ALERTS_FOR_STATE{alertname="A", a="1"}"#;
    for (until, since, at, active_at) in
        [(100, 95, 110, 105), (100, 72, 110, 90), (100, 60, 110, 60)]
    {
        let series = Series::default();
        series.add(for_state, until * MINUTE, (since * 60) as f64);
        let mut fresh = group(TEXT);
        evaluate(&mut fresh, &series, at - 1..=at, 999);
        assert_eq!(state_of(&fresh, 0).map(|(_, since)| since), Some(active_at), "{since}");
    }
    // Its end was written: the alert was over.
    let series = Series::default();
    series.add(for_state, 99 * MINUTE, 5700.0);
    series.add(for_state, 100 * MINUTE, f64::from_bits(STALE));
    let mut fresh = group(TEXT);
    evaluate(&mut fresh, &series, 109..=110, 999);
    assert_eq!(state_of(&fresh, 0), Some((AlertState::Pending, 109)));
}

/// The series is written only once it is known since when the alert is there: what is to be
/// restored would be written over.
#[test]
fn what_may_be_restored_is_not_written_before() {
    let series = Series::default();
    let mut fresh = group(TEXT);
    evaluate(&mut fresh, &series, 1..=2, 99);
    assert_eq!(series.value(r#"ALERTS_FOR_STATE{alertname="A"}"#, 2 * MINUTE), None);
    assert_eq!(series.value(r#"ALERTS_FOR_STATE{alertname="Now"}"#, 2 * MINUTE), Some(60.0));
    evaluate(&mut fresh, &series, 3..=3, 99);
    assert_eq!(series.value(r#"ALERTS_FOR_STATE{alertname="A"}"#, 3 * MINUTE), Some(60.0));
}

#[test]
fn a_file_that_is_read_again_keeps_what_is_still_there_and_ends_the_rest() {
    let series = Series::default();
    let mut before = group(TEXT);
    evaluate(&mut before, &series, 1..=3, 99);
    let text = "groups: [{name: g, interval: 1m, rules: [{record: other, expr: vector(1)}, {alert: A, expr: 'a > 2', for: 2m}]}]";
    let mut after = group(text);
    after.succeed(&before);
    evaluate(&mut after, &series, 4..=4, 99);
    assert_eq!(state_of(&after, 1), Some((AlertState::Firing, 1)));
    assert_eq!(series.value("r", 4 * MINUTE), None);
    assert_eq!(series.value(r#"ALERTS{alertname="Now"}"#, 4 * MINUTE), None);
    assert_eq!(series.value("other", 4 * MINUTE), Some(1.0));
    let count = series.written.lock().unwrap().len();
    evaluate(&mut after, &series, 5..=5, 99);
    assert_eq!(series.written.lock().unwrap().len() - count, 3, "each ends once");
    let ends = after.save().ends(6 * MINUTE).unwrap();
    assert_eq!(ends.len(), 3, "{ends:?}");
    assert!(ends.iter().all(|(_, (_, value))| value.to_bits() == STALE));
}

#[test]
fn what_was_kept_and_is_damaged_is_refused_and_changes_nothing() {
    let series = Series::default();
    let mut before = group(TEXT);
    evaluate(&mut before, &series, 1..=3, 99);
    let saved = before.save();
    let mut next = group(TEXT);
    let empty = next.save();
    for cut in [1, saved.alerts.len() / 2, saved.alerts.len() - 1] {
        let broken = plinth_rules::Saved { alerts: saved.alerts[..cut].into(), ..saved.clone() };
        assert!(next.load(&broken).is_err());
    }
    let newer = plinth_rules::Saved {
        alerts: saved.alerts.replace("\"format\":1", "\"format\":2"),
        ..saved.clone()
    };
    assert!(next.load(&newer).unwrap_err().contains("newer Plinth"));
    let other =
        plinth_rules::Saved { series: saved.series.replace("\"series\"", "\"seriez\""), ..saved };
    assert!(next.load(&other).is_err());
    assert_eq!(next.save(), empty);
}

/// A group of so many series that there was no room for them lost its alerts with them.
#[test]
fn of_what_was_kept_one_part_is_enough() {
    let series = Series::default();
    let mut before = group(TEXT);
    evaluate(&mut before, &series, 1..=3, 99);
    let saved = before.save();
    let mut next = group(TEXT);
    next.load(&plinth_rules::Saved { series: String::new(), ..saved.clone() }).unwrap();
    assert_eq!(states(&next), states(&before));
    let mut next = group(TEXT);
    next.load(&plinth_rules::Saved { alerts: String::new(), ..saved.clone() }).unwrap();
    assert_eq!((states(&next), next.save().series), (Vec::new(), saved.series));
}

/// The format, byte by byte: what one version wrote the next one reads.
#[test]
fn what_is_kept_is_this() {
    let text = "groups: [{name: g, interval: 1m, rules: [{alert: A, expr: 'a > 1', labels: {x: y}, annotations: {t: '{{ $value }}'}}]}]";
    let mut group = group(text);
    let series = Series::default();
    series.add("a{a=\"1\"}", MINUTE, 5.0);
    run(&mut group, &series, MINUTE);
    let saved = group.save();
    assert_eq!(
        saved.alerts,
        r#"{"format":1,"rules":[{"alerts":[{"active":60000000000,"annotations":{"t":"5"},"fired":60000000000,"kept":null,"labels":{"a":"1","alertname":"A","x":"y"},"resolved":null,"sent":60000000000,"state":"firing","value":"5"}],"rule":"A{x=\"y\"}"}],"slot":60000000000}"#
    );
    assert_eq!(
        saved.series,
        r#"{"ended":[],"format":1,"rules":[{"rule":"A{x=\"y\"}","series":[{"__name__":"ALERTS","a":"1","alertname":"A","alertstate":"firing","x":"y"},{"__name__":"ALERTS_FOR_STATE","a":"1","alertname":"A","x":"y"}]}]}"#
    );
}
