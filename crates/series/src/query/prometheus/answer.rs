//! Answers as Prometheus' clients read them: JSON, written as it goes, since a tree of it would
//! take ten times the room.
//!
//! Numbers are texts in it, as Prometheus has them, since JSON has neither infinities nor what is
//! no number; a histogram has its count, its sum and a list of its buckets.

use plinth_promql::{
    Answered, Bucket, Histogram, Labels, Row, Sample, Took, Value, format_value, put_value,
};
use serde_json::{Value as Json, json};
use std::fmt::Write;
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
const MILLISECOND: i64 = 1_000_000;

/// Data with what is to be said of it.
#[derive(Default)]
pub(super) struct Reply {
    /// JSON.
    pub(super) data: String,
    pub(super) warnings: Vec<String>,
    pub(super) infos: Vec<String>,
}

impl Reply {
    pub(super) fn of(data: &Json) -> Self {
        Self { data: data.to_string(), ..Self::default() }
    }

    /// The whole body.
    pub(super) fn told(self) -> String {
        // In place: it may be long.
        let mut text = self.data;
        text.insert_str(0, r#"{"data":"#);
        if !self.infos.is_empty() {
            let _ = write!(text, r#","infos":{}"#, json!(self.infos));
        }
        text.push_str(r#","status":"success""#);
        if !self.warnings.is_empty() {
            let _ = write!(text, r#","warnings":{}"#, json!(self.warnings));
        }
        text.push('}');
        text
    }
}

/// The value of an expression; that of one time has it beside it.
pub(super) fn data(value: &Answered, time: i64) -> String {
    let mut text = String::from(r#"{"result":"#);
    let kind = match value {
        Answered::Scalar(number) => {
            put_sample(&mut text, (time, *number));
            "scalar"
        }
        Answered::String(string) => {
            let _ = write!(text, "[{},{}]", seconds(time), json!(string));
            "string"
        }
        Answered::Vector(series) => {
            put_list(&mut text, series, |text, (labels, value)| {
                put_value_of(text, labels, value, time)
            });
            "vector"
        }
        Answered::Matrix(series) => {
            put_list(&mut text, series, put_row);
            "matrix"
        }
    };
    let _ = write!(text, r#","resultType":"{kind}"}}"#);
    text
}

/// Puts what an answer took into its data, as Prometheus names it. It evaluates while it reads and
/// sorts, and waits in no queue, so that one time is all that there is to say.
pub(super) fn put_stats(data: &mut String, took: Took, time: Duration) {
    let time = time.as_secs_f64();
    let stats = json!({
        "timings": {
            "evalTotalTime": time,
            "execQueueTime": 0.0,
            "execTotalTime": time,
            "innerEvalTime": time,
            "queryPreparationTime": 0.0,
            "resultSortTime": 0.0,
        },
        "samples": { "totalQueryableSamples": took.points, "peakSamples": took.values },
    });
    data.pop();
    let _ = write!(data, r#","stats":{stats}}}"#);
}

fn put_value_of(text: &mut String, labels: &Labels, value: &Value, time: i64) {
    let _ = write!(text, r#"{{"metric":{},"#, metric(labels));
    match value {
        Value::Float(value) => {
            text.push_str(r#""value":"#);
            put_sample(text, (time, *value));
        }
        Value::Histogram(one) => {
            text.push_str(r#""histogram":"#);
            put_histogram(text, time, one);
        }
    }
    text.push('}');
}

/// A series with its points, each kind by itself; of histograms alone there are no `values`.
fn put_row(text: &mut String, row: &Row) {
    let _ = write!(text, r#"{{"metric":{}"#, metric(&row.labels));
    if !row.samples.is_empty() || row.histograms.is_empty() {
        text.push_str(r#","values":"#);
        put_list(text, &row.samples, |text, sample| put_sample(text, *sample));
    }
    if !row.histograms.is_empty() {
        text.push_str(r#","histograms":"#);
        put_list(text, &row.histograms, |text, (time, one)| put_histogram(text, *time, one));
    }
    text.push('}');
}

fn put_list<T>(
    text: &mut String,
    parts: impl IntoIterator<Item = T>,
    put: impl Fn(&mut String, T),
) {
    text.push('[');
    for (place, part) in parts.into_iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        put(text, part);
    }
    text.push(']');
}

/// Labels as an object.
pub(super) fn metric(labels: &Labels) -> Json {
    labels
        .iter()
        .map(|(name, value)| (name.to_string(), Json::from(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Appends a number with its time. Long answers are made of these.
fn put_sample(text: &mut String, (time, value): Sample) {
    text.push('[');
    let _ = match time % SECOND {
        0 => write!(text, "{},\"", time / SECOND),
        _ => write!(text, "{},\"", seconds(time)),
    };
    put_value(text, value);
    text.push_str("\"]");
}

/// Appends a histogram with its time.
fn put_histogram(text: &mut String, time: i64, histogram: &Histogram) {
    let [count, sum] = [histogram.count(), histogram.sum()].map(format_value);
    let _ = write!(text, r#"[{},{{"count":"{count}","sum":"{sum}""#, seconds(time));
    let mut buckets = histogram.buckets().peekable();
    if buckets.peek().is_some() {
        text.push_str(r#","buckets":"#);
        put_list(text, buckets, put_bucket);
    }
    text.push_str("}]");
}

/// Which bounds are in a bucket, the bounds, and how many observations.
fn put_bucket(text: &mut String, bucket: Bucket) {
    let rule = match (bucket.has_lower, bucket.has_upper) {
        (false, true) => 0,
        (true, false) => 1,
        (false, false) => 2,
        (true, true) => 3,
    };
    let [lower, upper, count] = [bucket.lower, bucket.upper, bucket.count].map(format_value);
    let _ = write!(text, r#"[{rule},"{lower}","{upper}","{count}"]"#);
}

/// Seconds with milliseconds, as a number of JSON.
pub(super) fn seconds(time: i64) -> Json {
    match time {
        time if time % SECOND == 0 => json!(time / SECOND),
        // Rounded once, by the division: nanoseconds since 1970 are more than a float holds.
        time if time % MILLISECOND == 0 => json!((time / MILLISECOND) as f64 / 1e3),
        time => json!(time as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_promql::{Parts, Span};
    use std::sync::Arc;

    fn histogram() -> Arc<Histogram> {
        let parts = Parts {
            count: 42.0,
            sum: 34593.5,
            zero_threshold: 0.25,
            zero_count: 3.0,
            negative_spans: vec![Span { offset: 1, length: 1 }],
            negative: vec![4.0],
            positive_spans: vec![Span { offset: -1, length: 2 }, Span { offset: 1, length: 1 }],
            positive: vec![12.0, 0.0, 23.0],
            ..Parts::default()
        };
        Arc::new(Histogram::new(parts).unwrap())
    }

    const WRITTEN: &str = r#"{"count":"42","sum":"34593.5","buckets":[[1,"-2","-1","4"],[3,"-0.25","0.25","3"],[0,"0.25","0.5","12"],[0,"2","4","23"]]}"#;

    #[test]
    fn histograms_are_written_beside_numbers() {
        let labels = Labels::default();
        let value = (labels.clone(), Value::Histogram(histogram()));
        assert_eq!(
            data(&Answered::Vector(vec![value]), 1_500_000_000),
            format!(
                r#"{{"result":[{{"metric":{{}},"histogram":[1.5,{WRITTEN}]}}],"resultType":"vector"}}"#
            )
        );
        let histograms = vec![(2 * SECOND, histogram())];
        let both = Row { labels: labels.clone(), samples: vec![(SECOND, 1.0)], histograms };
        let alone = Row { samples: Vec::new(), ..both.clone() };
        let written = format!(r#""histograms":[[2,{WRITTEN}]]"#);
        assert_eq!(
            data(&Answered::Matrix(vec![both, alone]), 0),
            format!(
                r#"{{"result":[{{"metric":{{}},"values":[[1,"1"]],{written}}},{{"metric":{{}},{written}}}],"resultType":"matrix"}}"#
            )
        );
        let empty = Value::Histogram(Arc::new(Histogram::default()));
        let text = data(&Answered::Vector(vec![(labels, empty)]), 0);
        assert!(text.contains(r#""histogram":[0,{"count":"0","sum":"0"}]"#), "{text}");
    }
}
