//! What a target answers that is scraped: Prometheus' text format or OpenMetrics, a line at a time,
//! or the same in protocol buffers, a metric at a time.
//!
//! ```text
//!   text:     m_bucket{a="b",le="0.5"} 7 # {trace_id="x"} 0.3      --text.rs-----\
//!                                                                                 > samples: a name as it stands in
//!   families: name, type, metrics (labels; a value, or buckets ..) --families.rs-/  the text, a value, a time, exemplars
//! ```
//!
//! Whoever scrapes knows series by the bytes of their names, and looks at labels of those alone
//! that are new. So a metric of a message gets the names that it would have in the text, and either
//! format gives the same series. Only messages have native histograms.

mod distribution;
mod families;
mod text;

use super::exposition::labels_of;
use super::metadata::Metadata;
use crate::exemplar::Exemplar;
use families::Families;
use plinth_promql::Histogram;
use text::ScrapedText;

/// Metrics that are described in one answer, at most.
const DESCRIBED: usize = 10_000;
/// Work that a line or a sample is besides its bytes, as so many bytes.
const LINE: usize = 64;

/// An answer that is being read, a step at a time: a line, or as much of a message.
pub struct ScrapedBody<'a>(Form<'a>);

enum Form<'a> {
    Text {
        text: ScrapedText,
        /// What was not read yet, and how many lines were.
        rest: Option<&'a [u8]>,
        lines: usize,
    },
    Families(Families<'a>),
}

/// Which series histograms become that have buckets of both kinds, in messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScrapedHistograms {
    /// Whether native histograms are taken; where they aren't, their classic buckets are.
    pub native: bool,
    /// Whether classic buckets are taken beside.
    pub classic_too: bool,
}

/// A sample of an answer.
#[derive(Clone, PartialEq, Debug)]
pub struct ScrapedSample<'a> {
    /// The name of the series and its labels, as they stand in the text.
    pub series: &'a [u8],
    /// The value.
    pub value: ScrapedValue,
    /// When it is of, in nanoseconds since 1970, if that was said.
    pub time: Option<i64>,
    /// Examples of what was measured.
    pub exemplars: Vec<ScrapedExemplar>,
}

/// What a sample says.
#[derive(Clone, PartialEq, Debug)]
pub enum ScrapedValue {
    /// A number.
    Float(f64),
    /// A native histogram.
    Histogram(Histogram),
}

/// An exemplar of a sample, whose labels are no longer than is kept.
#[derive(Clone, PartialEq, Debug)]
pub struct ScrapedExemplar {
    /// The exemplar.
    pub exemplar: Exemplar,
    /// When it is of, in nanoseconds since 1970, if that was said.
    pub time: Option<i64>,
}

impl<'a> ScrapedBody<'a> {
    /// An answer of a type, which says what format it is in.
    ///
    /// # Errors
    /// If it is of messages that are not one behind the other, each with its length.
    pub fn of(
        content_type: &str,
        body: &'a [u8],
        histograms: ScrapedHistograms,
    ) -> Result<Self, String> {
        let mut parts = content_type.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        if !kind.eq_ignore_ascii_case("application/vnd.google.protobuf") {
            let is_open_metrics = kind.eq_ignore_ascii_case("application/openmetrics-text");
            let text = ScrapedText::new(is_open_metrics);
            return Ok(Self(Form::Text { text, rest: Some(body), lines: 0 }));
        }
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let expected = match name.trim() {
                "encoding" => "delimited",
                "proto" => "io.prometheus.client.MetricFamily",
                _ => continue,
            };
            let value = value.trim().trim_matches('"');
            if value != expected {
                let value = value.escape_debug();
                return Err(format!("{name}={expected} is read of messages, not {name}={value}"));
            }
        }
        Ok(Self(Form::Families(Families::of(body, histograms))))
    }

    /// Whether all of it was read.
    pub fn is_at_end(&self) -> bool {
        match &self.0 {
            Form::Text { rest, .. } => rest.is_none(),
            Form::Families(families) => families.is_at_end(),
        }
    }

    /// Reads on: the sample that was found, if there was one. What that took is added to `work`, as
    /// bytes that were read.
    ///
    /// # Errors
    /// What is none of the format, and where it stands.
    pub fn step(&mut self, work: &mut usize) -> Result<Option<ScrapedSample<'_>>, String> {
        match &mut self.0 {
            Form::Text { text, rest, lines } => {
                let Some(all) = rest.take() else { return Ok(None) };
                let mut parts = all.splitn(2, |byte| *byte == b'\n');
                let line = parts.next().unwrap_or_default();
                *rest = parts.next();
                *lines += 1;
                *work += line.len() + LINE;
                text.line(line).map_err(|why| format!("line {lines}: {why}"))
            }
            Form::Families(families) => families.step(work),
        }
    }

    /// Where it is: the line, or the metric.
    pub fn place(&self) -> String {
        match &self.0 {
            Form::Text { lines, .. } => format!("line {lines}"),
            Form::Families(families) => families.place(),
        }
    }

    /// Whether it is whole, behind the last step.
    ///
    /// # Errors
    /// If OpenMetrics has no end.
    pub fn end(&self) -> Result<(), String> {
        match &self.0 {
            Form::Text { text, .. } => text.end(),
            Form::Families(_) => Ok(()),
        }
    }

    /// What was said of metrics.
    pub fn take_metadata(&mut self) -> Vec<Metadata> {
        match &mut self.0 {
            Form::Text { text, .. } => text.take_metadata(),
            Form::Families(families) => families.take_metadata(),
        }
    }
}

/// The labels of a series as it stands in an answer, `__name__` among them. One without a value is
/// none of the series, but whoever adds labels has to know that it was said.
///
/// # Errors
/// If it is no name of a series.
pub fn scraped_labels(series: &[u8]) -> Result<Vec<(String, String)>, String> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| "a name is not UTF-8");
    let (metric, labels) = labels_of(series)?;
    let mut all = vec![("__name__".to_owned(), text(metric)?)];
    for (label, value) in labels {
        all.push((text(label)?, text(value)?));
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
