//! Series as Prometheus' test files describe them, and an executor for what never waits.

use plinth_promql::ast::Expr;
use plinth_promql::{Labels, Memory, STALE};
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

/// A value; `None` for one that is left out.
type Value = Option<f64>;

/// Values such as `1 2 _ 3x2 0+10x3 stale`; `None` if there is a histogram among them.
pub fn values(text: &str) -> Option<Vec<Value>> {
    let mut all = Vec::new();
    for word in text.split_whitespace() {
        if word.contains("{{") {
            return None;
        }
        let (first, times) = match word.rsplit_once('x') {
            Some((first, times)) => (first, times.parse::<usize>().ok()?),
            None if word.starts_with('_') => (word, 1),
            None => (word, 0),
        };
        if first == "_" {
            all.extend(vec![None; times]);
            continue;
        }
        // A sign that is neither the first one nor an exponent's parts the value from the step.
        let is_step = |(place, sign): &(usize, char)| {
            *place > 0 && matches!(sign, '+' | '-') && !first[..*place].ends_with(['e', 'E'])
        };
        let (value, step) = match first.char_indices().find(is_step) {
            Some((place, _)) => (&first[..place], first[place..].parse::<f64>().ok()?),
            None => (first, 0.0),
        };
        let value = match value {
            "stale" => f64::from_bits(STALE),
            value => number(value)?,
        };
        if times == 0 {
            all.push(Some(value));
            continue;
        }
        let mut value = value;
        for _ in 0..=times {
            all.push(Some(value));
            if step != 0.0 {
                value += step;
            }
        }
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
    let Some(values) = values(rest) else { return false };
    for (place, value) in values.into_iter().enumerate() {
        if let Some(value) = value {
            memory.add(&labels, step * place as i64, value);
        }
    }
    true
}

/// Whether two values are the same but for a millionth.
pub fn is_near(a: f64, b: f64) -> bool {
    let (difference, sum) = ((a - b).abs(), a.abs() + b.abs());
    a == b || (a.is_nan() && b.is_nan()) || difference / sum.min(f64::MAX) < 1e-6
}
