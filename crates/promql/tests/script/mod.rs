//! Series as Prometheus' test files describe them, and an executor for what never waits.
//!
//! A line has the labels of a series and its values, so far apart: numbers, histograms in two
//! braces, marks, and steps that are left out. Answers are compared with such lines.

pub mod histogram;

use plinth_promql::ast::Expr;
use plinth_promql::{Labels, Memory, STALE, Value};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

pub const SECOND: i64 = 1_000_000_000;

/// The result of a future that is always ready: series in memory are.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing to wait for in memory"),
    }
}

/// Nanoseconds of `5m` or of seconds.
pub fn time(text: &str) -> Option<i64> {
    match plinth_promql::parse(text).ok()?.expr {
        Expr::Number(seconds) => Some((seconds * 1000.0).round() as i64 * 1_000_000),
        _ => None,
    }
}

/// Labels as a selector writes them, and what stands behind.
pub fn labels(line: &str) -> Option<(Labels, &str)> {
    let (mut quote, mut depth) = (None, 0);
    let mut end = line.len();
    for (place, character) in line.char_indices() {
        match (quote, character) {
            (Some(open), _) if character == open && !line[..place].ends_with('\\') => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'' | '`') => quote = Some(character),
            (None, '{') => depth += 1,
            (None, '}') => depth -= 1,
            (None, ' ' | '\t') if depth == 0 => {
                end = place;
                break;
            }
            _ => {}
        }
    }
    let (text, rest) = line.split_at(end);
    if text == "{}" {
        return Some((Labels::default(), rest.trim()));
    }
    match plinth_promql::parse(text).ok()?.expr {
        Expr::Vector(selector) => {
            let pair =
                |matcher: &plinth_promql::Matcher| (matcher.label.clone(), matcher.value.clone());
            Some((selector.matchers.iter().map(pair).collect(), rest.trim()))
        }
        _ => None,
    }
}

/// A value of a line.
#[derive(Clone, Debug)]
pub enum Point {
    Left,
    Float(f64),
    Histogram(histogram::Literal),
}

impl Point {
    /// Whether a value is this one, but for a millionth.
    pub fn is(&self, found: &Value) -> bool {
        match (self, found) {
            (Self::Float(wanted), Value::Float(found)) => is_near(*wanted, *found),
            (Self::Histogram(wanted), Value::Histogram(found)) => histogram::is_near(wanted, found),
            _ => false,
        }
    }
}

/// Words between blanks, of which there may be some in a histogram.
pub fn words(text: &str) -> Vec<&str> {
    let (mut words, mut begin, mut depth) = (Vec::new(), None, 0);
    for (place, character) in text.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        match (begin, character.is_whitespace() && depth == 0) {
            (None, false) => begin = Some(place),
            (Some(first), true) => {
                words.push(&text[first..place]);
                begin = None;
            }
            _ => {}
        }
    }
    words.extend(begin.map(|first| &text[first..]));
    words
}

/// Values such as `1 2 _ 3x2 0+10x3 stale {{count:1 sum:2}}x3`.
pub fn points(text: &str) -> Option<Vec<Point>> {
    let mut all = Vec::new();
    for word in words(text) {
        match word.starts_with("{{") {
            true => all.extend(histogram::series(word)?.into_iter().map(Point::Histogram)),
            false => all.extend(floats(word)?.into_iter().map(|value| match value {
                Some(value) => Point::Float(value),
                None => Point::Left,
            })),
        }
    }
    Some(all)
}

/// The same where there are only floats.
pub fn values(text: &str) -> Option<Vec<Option<f64>>> {
    let value = |point| match point {
        Point::Left => Some(None),
        Point::Float(value) => Some(Some(value)),
        Point::Histogram(_) => None,
    };
    points(text)?.into_iter().map(value).collect()
}

/// The floats of a word; `None` for what is left out.
fn floats(word: &str) -> Option<Vec<Option<f64>>> {
    let (first, times) = match word.rsplit_once('x') {
        Some((first, times)) => (first, times.parse::<usize>().ok()?),
        None if word.starts_with('_') => (word, 1),
        None => (word, 0),
    };
    if first == "_" {
        return Some(vec![None; times]);
    }
    // A sign that is neither the first one nor an exponent's parts the value from the step.
    let is_step = |(place, sign): &(usize, char)| {
        *place > 0 && matches!(sign, '+' | '-') && !first[..*place].ends_with(['e', 'E'])
    };
    let (value, step) = match first.char_indices().find(is_step) {
        Some((place, _)) => (&first[..place], first[place..].parse::<f64>().ok()?),
        None => (first, 0.0),
    };
    let mut value = match value {
        "stale" => f64::from_bits(STALE),
        value => number(value)?,
    };
    let mut all = vec![Some(value)];
    for _ in 0..times {
        if step != 0.0 {
            value += step;
        }
        all.push(Some(value));
    }
    Some(all)
}

fn number(text: &str) -> Option<f64> {
    match plinth_promql::parse(text).ok()?.expr {
        Expr::Number(number) => Some(number),
        _ => None,
    }
}

/// Adds a series' values, so far apart; `false` if it can't be read.
pub fn load(memory: &mut Memory, line: &str, step: i64) -> bool {
    let Some((labels, rest)) = labels(line) else { return false };
    let Some(points) = points(rest) else { return false };
    for (place, point) in points.into_iter().enumerate() {
        let time = step * place as i64;
        match point {
            Point::Left => {}
            Point::Float(value) => memory.add(&labels, time, value),
            Point::Histogram(one) => memory.add_histogram(&labels, time, Arc::new(one.histogram)),
        }
    }
    true
}

/// Whether two values are the same but for a millionth.
pub fn is_near(a: f64, b: f64) -> bool {
    let (difference, sum) = ((a - b).abs(), a.abs() + b.abs());
    a == b || (a.is_nan() && b.is_nan()) || difference / sum.min(f64::MAX) < 1e-6
}
