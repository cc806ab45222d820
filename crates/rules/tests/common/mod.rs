//! Series in memory that rules are evaluated over, and groups that are evaluated time after time.
//!
//! The series may be away, refuse some of what is written, break a write off, and take their time,
//! by whatever clock they are given. All that was asked and written is noted.

use plinth_env::{Env, block_on};
use plinth_promql::{
    Answered, Histogram, Labels, Matcher, Memory, Options as Query, Samples, Source,
};
use plinth_rules::{AlertState, Group, Notice, Options, Outcome, Store, Written, WrittenHistogram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const SECOND: i64 = 1_000_000_000;
pub const MINUTE: i64 = 60 * SECOND;

/// Series in memory.
#[derive(Default)]
pub struct Series {
    memory: Mutex<Arc<Memory>>,
    /// All that was written, in its order.
    pub written: Mutex<Vec<Written>>,
    pub is_away: AtomicBool,
    /// How long a query takes, and by whose clock.
    pub cost: Mutex<Option<(Env, Duration)>>,
    /// All expressions that were asked for.
    pub asked: Mutex<Vec<String>>,
    /// Whether a write fails behind its first half.
    pub is_cut: AtomicBool,
}

/// A value of a label `i`, with which a series is refused.
pub const REFUSED: &str = "refused";

impl Series {
    /// Adds a point; `name` is a selector, as `up{job="a"}`.
    pub fn add(&self, name: &str, time: i64, value: f64) {
        Arc::make_mut(&mut self.memory.lock().unwrap()).add(&labels(name), time, value);
    }

    /// Adds a native histogram.
    pub fn add_histogram(&self, name: &str, time: i64, histogram: &Histogram) {
        let histogram = Arc::new(histogram.clone());
        let mut memory = self.memory.lock().unwrap();
        Arc::make_mut(&mut memory).add_histogram(&labels(name), time, histogram);
    }

    /// Adds the points of a line such as `up{job="a"} 0+1x10`, so far apart.
    pub fn load(&self, line: &str, step: i64) {
        let mut memory = self.memory.lock().unwrap();
        assert!(crate::script::load(Arc::make_mut(&mut memory), line, step), "{line}");
    }

    fn check(&self) -> Result<(), String> {
        if self.is_away.load(Ordering::Relaxed) {
            Err("the series are away".into())
        } else {
            Ok(())
        }
    }

    /// The value of an expression that gives one series.
    pub fn value(&self, expr: &str, time: i64) -> Option<f64> {
        match block_on(self.instant(expr, time, Duration::MAX)).unwrap() {
            Answered::Vector(series) => {
                assert!(series.len() < 2, "{expr}: {series:?}");
                series.first().map(|(_, value)| value.float().expect("a number"))
            }
            Answered::Scalar(number) => Some(number),
            other => panic!("{other:?}"),
        }
    }
}

impl Store for Series {
    async fn instant(&self, expr: &str, time: i64, within: Duration) -> Result<Answered, String> {
        self.check()?;
        self.asked.lock().unwrap().push(expr.to_string());
        let cost = self.cost.lock().unwrap().clone();
        if let Some((env, cost)) = cost {
            env.sleep(cost.min(within)).await;
            if cost >= within {
                return Err("the query timed out".into());
            }
        }
        let memory = self.memory.lock().unwrap().clone();
        let answer = plinth_promql::instant(&*memory, expr, time, &Query::default()).await;
        answer.map(|answer| answer.value).map_err(|error| error.to_string())
    }

    async fn newest(
        &self,
        matchers: &[Matcher],
        after: i64,
        until: i64,
    ) -> Result<Vec<Written>, String> {
        self.check()?;
        let memory = self.memory.lock().unwrap().clone();
        let mut newest = Vec::new();
        for (labels, series) in memory.find(matchers).await.map_err(|error| error.to_string())? {
            let mut samples = Vec::new();
            let mut reading = memory.read(&series, after, until).await.unwrap();
            while reading.more(&mut samples).await.unwrap() {}
            newest.extend(samples.last().map(|sample| (labels, *sample)));
        }
        Ok(newest)
    }

    async fn write(&self, points: &[Written]) -> Result<Vec<(usize, String)>, String> {
        self.check()?;
        let is_cut = self.is_cut.load(Ordering::Relaxed);
        let taken = if is_cut { points.len() / 2 } else { points.len() };
        let mut memory = self.memory.lock().unwrap();
        let mut refused = Vec::new();
        for (place, (labels, (time, value))) in points[..taken].iter().enumerate() {
            if labels.get("i") == REFUSED {
                refused.push((place, "the series is refused".to_string()));
                continue;
            }
            Arc::make_mut(&mut memory).add(labels, *time, *value);
            self.written.lock().unwrap().push((labels.clone(), (*time, *value)));
        }
        if is_cut { Err("the write was cut off".into()) } else { Ok(refused) }
    }

    async fn write_histograms(
        &self,
        histograms: &[WrittenHistogram],
    ) -> Result<Vec<(usize, String)>, String> {
        self.check()?;
        let mut memory = self.memory.lock().unwrap();
        for (labels, (time, one)) in histograms {
            Arc::make_mut(&mut memory).add_histogram(labels, *time, one.clone());
        }
        Ok(Vec::new())
    }
}

/// The labels of a selector.
pub fn labels(selector: &str) -> Labels {
    let matchers = plinth_promql::parse_selector(selector).unwrap();
    matchers.into_iter().map(|matcher| (matcher.label, matcher.value)).collect()
}

/// Groups of a file.
pub fn groups(text: &str, options: &Options) -> Vec<Group> {
    let specs = plinth_rules::parse("rules.yml", text).unwrap_or_else(|faults| {
        panic!("{}", faults.iter().map(|fault| format!("{fault}\n")).collect::<String>())
    });
    specs.into_iter().map(|spec| Group::new("rules.yml", spec, options)).collect()
}

/// The only group of a file.
pub fn group(text: &str) -> Group {
    groups(text, &Options::default()).remove(0)
}

/// Evaluates a group at a time.
pub fn run(group: &mut Group, series: &Series, time: i64) -> Outcome {
    block_on(group.evaluate(series, &Env::real(), time))
}

/// The states of a group's alerts by the value of their label `a`.
pub fn states(group: &Group) -> Vec<(String, AlertState)> {
    let status = group.status();
    let alerts = status.rules.iter().filter_map(|rule| rule.alerting.as_ref());
    alerts
        .flat_map(|alerting| &alerting.alerts)
        .map(|alert| (alert.labels.get("a").to_string(), alert.state))
        .collect()
}

/// What is told of alerts: which, and whether it is resolved.
pub fn told(notices: &[Notice]) -> Vec<(String, bool)> {
    notices
        .iter()
        .map(|notice| (notice.labels.get("alertname").to_string(), notice.is_resolved))
        .collect()
}

/// The last errors of a group's rules.
pub fn errors(group: &Group) -> Vec<String> {
    let rules = group.status().rules;
    rules.into_iter().filter_map(|rule| rule.last?.error).collect()
}
