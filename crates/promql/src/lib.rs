//! PromQL: reads an expression, checks its types, and evaluates it over whatever gives series.
//!
//! ## Role
//! A text comes in, and a [`Source`] of series; values of one time or of a range of times come out,
//! with the warnings and infos that Prometheus would give. What an expression means is what it
//! means to Prometheus 3, to the words of its errors. It does no I/O of its own and knows of no
//! store, so it is tested over series in memory.
//!
//! ## Data structure
//! ```text
//!   text --lexer--> tokens --parse--> Node (a tree, of bounded depth) --check--> Node whose types fit
//!                                                                          |
//!   Source: find(conditions) -> series; read(series) -> points, forward    | eval: calls itself down the tree
//!                       \                                                  v
//!                        window of one series --function--> Column: labels and a value a step,
//!                                                             |  a number or a native histogram
//!                                                             |  operators, aggregations: columns to columns
//!                                                             v
//!                                                           Answer
//! ```
//! A source that knows of stretches of points what they come to (`digest.rs`, `stretches.rs`) gives
//! that instead, where the windows of a function allow it.
//! The one rule: points are held for one window of one series, values as columns, and both are
//! counted, a histogram as what it holds (`histogram/`). What would exceed [`Options`] ends with an
//! error that says what to narrow.
//!
//! ## Invariants
//! 1. No text makes it panic, loop, or run out of stack: length, nesting and depth are bounded by
//!    the parser.
//! 2. No two series of an answer have the same labels.
//! 3. The same series and the same text give the same answer in the same order.
//!
//! ## Not here
//! HTTP and JSON (`series`). What keeps histograms: a [`Source`] gives them or has none. Functions
//! of Prometheus that are experimental and change more than themselves: `info`,
//! `histogram_quantiles`, fill modifiers, `anchored` and `smoothed`, arithmetic in durations, the
//! times at which counters began.
//! Read next: `ast.rs`, `parse.rs`, `eval/mod.rs`, then `histogram/mod.rs`.
#![forbid(unsafe_code)]

mod annotations;
pub mod ast;
mod check;
mod digest;
mod eval;
mod fault;
mod format;
pub mod functions;
mod histogram;
mod labels;
mod lexer;
mod matcher;
mod parse;
mod pattern;
#[cfg(test)]
mod random;
mod sample;
mod source;
mod stretches;
mod sum;

pub use digest::{Digest, Told, Wanted, Windows};
pub use fault::ParseError;
pub use histogram::{Bucket, CUSTOM, EXPONENTIAL, Histogram, Parts, ResetHint, Span};
pub use labels::{Labels, NAME, is_plain_label, quoted};
pub use matcher::{MatchOp, Matcher};
pub use parse::{nanoseconds, parse, parse_selector};
pub use pattern::{Pattern, compiled};
pub use sample::{HISTOGRAM, HistogramSample, STALE, Sample, Value};
pub use source::{Memory, Points, Samples, Source};
pub use stretches::Stretches;

use eval::{Evaluator, Steps};
use std::fmt::{self, Write as _};

const SECOND: i64 = 1_000_000_000;

/// Steps of a range query behind its first one, at most, as in Prometheus.
const MAX_STEPS: i64 = 11_000;

/// How an expression is evaluated, and what it may hold.
#[derive(Clone, Debug)]
pub struct Options {
    /// Nanoseconds for which a point is seen that is followed by none.
    pub lookback: i64,
    /// Nanoseconds from step to step of a subquery that doesn't say.
    pub subquery_step: i64,
    /// Whether metrics are dropped when all is done, as Prometheus does behind a flag.
    pub late_names: bool,
    /// Values that are held at once. A histogram is as many of them as [`Histogram::size`] says.
    pub max_values: usize,
    /// Points of one window, histograms counted alike.
    pub max_window: usize,
    /// Points that functions look at, again for each window that has them, histograms counted
    /// alike.
    pub max_visits: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lookback: 300 * SECOND,
            subquery_step: 60 * SECOND,
            late_names: false,
            max_values: 16 << 20,
            max_window: 1 << 20,
            max_visits: 1 << 32,
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Error<E> {
    /// The text is no expression.
    Parse(ParseError),
    /// What is asked can't be answered: it is too much, or of a wrong kind.
    Asked(String),
    /// Series don't fit together, or a value is one that a function doesn't take.
    Execution(String),
    /// It took too long.
    Timeout(String),
    /// Series couldn't be read.
    Source(E),
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parse(error) => error.fmt(out),
            Self::Asked(why) | Self::Execution(why) | Self::Timeout(why) => out.write_str(why),
            Self::Source(error) => error.fmt(out),
        }
    }
}

/// What an expression came to.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// The value.
    pub value: Answered,
    /// What may be wrong with it.
    pub warnings: Vec<String>,
    /// What may have been meant otherwise.
    pub infos: Vec<String>,
    /// What it took.
    pub took: Took,
}

/// What an expression took.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Took {
    /// Points that were looked at, once for each step that looks at them; a bucket of a rollup is
    /// one, and so is what else was put together before.
    pub points: u64,
    /// Values that were held, of the answer and on the way to it.
    pub values: usize,
}

/// The kinds of values.
#[derive(Clone, PartialEq, Debug)]
pub enum Answered {
    /// A number, at the time that was asked for.
    Scalar(f64),
    /// A text.
    String(String),
    /// A value of each series at the time that was asked for, in an order that `sort` and `topk`
    /// made.
    Vector(Vec<(Labels, Value)>),
    /// Points of each series, by labels.
    Matrix(Vec<Row>),
}

/// A series of an answer with its points.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// What names it.
    pub labels: Labels,
    /// Its numbers, in the order of time.
    pub samples: Vec<Sample>,
    /// Its histograms, in the order of time.
    pub histograms: Vec<HistogramSample>,
}

impl Row {
    /// Whether it has no point.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.histograms.is_empty()
    }
}

/// The value of a text at one time.
pub async fn instant<S: Source>(
    source: &S,
    text: &str,
    time: i64,
    options: &Options,
) -> Result<Answer, Error<S::Error>> {
    let node = parse(text).map_err(Error::Parse)?;
    Evaluator::new(source, options, Steps::one(time)).answer(text, &node, false).await
}

/// The values of a text from one time to another, both of them included, every so many nanoseconds.
pub async fn range<S: Source>(
    source: &S,
    text: &str,
    (first, last, step): (i64, i64, i64),
    options: &Options,
) -> Result<Answer, Error<S::Error>> {
    if step <= 0 || last < first {
        return Err(Error::Asked(
            "a step above 0, and an end that is no earlier than the start, expected".into(),
        ));
    }
    let behind = (i128::from(last) - i128::from(first)) / i128::from(step);
    if behind > i128::from(MAX_STEPS) {
        return Err(Error::Asked(
            "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query \
             resolution (?step=XX)"
                .into(),
        ));
    }
    let node = parse(text).map_err(Error::Parse)?;
    let steps = Steps { first, count: behind as usize + 1, step };
    Evaluator::new(source, options, steps).answer(text, &node, true).await
}

/// Nanoseconds of `1h30m`, whose units come from the longest on and each once; also of `0`. `None`
/// if it is no duration, or longer than 292 years.
pub fn duration(text: &str) -> Option<i64> {
    if text == "0" { Some(0) } else { lexer::duration(text)?.ok() }
}

/// Nanoseconds as a duration is written: `1h30m`.
pub fn format_duration(nanoseconds: i64) -> String {
    format::Duration(nanoseconds).to_string()
}

/// A number as Go's `%g` has it: an exponent below -4 and from 6 digits on, with a sign and two
/// digits at least.
pub fn format_short(value: f64) -> String {
    match value {
        value if value.is_nan() => return "NaN".into(),
        f64::INFINITY => return "+Inf".into(),
        f64::NEG_INFINITY => return "-Inf".into(),
        value if value == 0.0 => return value.to_string(),
        _ => {}
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        exponent if (-4..6).contains(&exponent) => value.to_string(),
        exponent if exponent < 0 => format!("{digits}e-{:02}", -exponent),
        exponent => format!("{digits}e+{exponent:02}"),
    }
}

/// A value as Prometheus prints it.
pub fn format_value(value: f64) -> String {
    let mut text = String::new();
    put_value(&mut text, value);
    text
}

/// Appends a value as Prometheus prints it: the fewest digits that are read as the same, of two
/// such that are equally near that with the even last digit, in Go's forms.
pub fn put_value(text: &mut String, value: f64) {
    match value {
        value if value.is_nan() => return text.push_str("NaN"),
        f64::INFINITY => return text.push_str("+Inf"),
        f64::NEG_INFINITY => return text.push_str("-Inf"),
        _ => {}
    }
    let mut buffer = zmij::Buffer::new();
    let digits = buffer.format_finite(value);
    let Some((digits, exponent)) = digits.split_once('e') else {
        return text.push_str(digits.strip_suffix(".0").unwrap_or(digits));
    };
    let (digits, exponent) = (digits.strip_suffix(".0").unwrap_or(digits), exponent.parse::<i32>());
    let exponent = exponent.unwrap_or_default();
    if !(-6..21).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(text, "{digits}e{sign}{:02}", exponent.unsigned_abs());
        return;
    }
    let unsigned = digits.trim_start_matches('-');
    text.push_str(&digits[..digits.len() - unsigned.len()]);
    let unsigned = unsigned.replacen('.', "", 1);
    let places = exponent.unsigned_abs() as usize;
    let _ = match exponent {
        0.. => write!(text, "{unsigned:0<width$}", width = places + 1),
        _ => write!(text, "0.{:0>width$}", unsigned, width = unsigned.len() + places - 1),
    };
}

#[cfg(test)]
mod tests {
    use super::format_value;
    use super::random::Random;

    #[test]
    fn values_are_written_as_go_writes_them() {
        // As `strconv.FormatFloat(value, 'f' or 'e', -1, 64)` gives them.
        for (value, text) in [
            (-245_777_903_432_188.62, "-245777903432188.62"),
            (245_777_903_432_188.38, "245777903432188.38"),
            (1e-6, "0.000001"),
            (-1.25e-5, "-0.0000125"),
            (-0.000_001_5, "-0.0000015"),
            (9.5e-7, "9.5e-07"),
            (-1.5e-10, "-1.5e-10"),
            (5e-324, "5e-324"),
            (-0.0, "-0"),
            (1e16, "10000000000000000"),
            (-1.25e17, "-125000000000000000"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (-1.25e300, "-1.25e+300"),
        ] {
            assert_eq!(format_value(value), text);
        }
    }

    #[test]
    fn values_are_read_as_they_were() {
        let mut random = Random(1);
        let numbers = std::iter::repeat_with(|| {
            let bits = random.bits();
            [f64::from_bits(bits), (bits >> 40) as f64 / 1000.0, (bits as i64 >> 20) as f64]
        });
        let finite = numbers.take(20_000).flatten().filter(|value| value.is_finite());
        for value in finite {
            let text = format_value(value);
            let is_plain = value == 0.0 || (1e-6..1e21).contains(&value.abs());
            assert_eq!(!text.contains('e'), is_plain, "{text}");
            let shortest = if is_plain { value.to_string() } else { format!("{value:e}") };
            let zeros = text.len() - shortest.len();
            assert!(zeros <= if is_plain { 0 } else { 2 }, "{text} is no longer than {shortest}");
            assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits());
        }
    }
}
