//! Functions of each value by itself, of labels, and of what isn't there.
//!
//! They know nothing of steps but that each has its own value: `call.rs` goes through them. What is
//! no number stays what it is where Go leaves it so, which Rust's least and greatest of two do not.

use super::column::{ABSENT, Column, is_absent};
use super::dates;
use crate::ast::{Expr, Node};
use crate::labels::{Labels, NAME};
use crate::matcher::MatchOp;
use std::cmp::Ordering;

/// A function of one value.
pub(super) fn of_one(name: &str) -> Option<fn(f64) -> f64> {
    Some(match name {
        "abs" => f64::abs,
        "ceil" => f64::ceil,
        "floor" => f64::floor,
        "exp" => f64::exp,
        "sqrt" => f64::sqrt,
        "ln" => f64::ln,
        "log2" => f64::log2,
        "log10" => f64::log10,
        "sin" => f64::sin,
        "cos" => f64::cos,
        "tan" => f64::tan,
        "asin" => f64::asin,
        "acos" => f64::acos,
        "atan" => f64::atan,
        "sinh" => f64::sinh,
        "cosh" => f64::cosh,
        "tanh" => f64::tanh,
        "asinh" => f64::asinh,
        "acosh" => f64::acosh,
        "atanh" => f64::atanh,
        "rad" => |value| value * std::f64::consts::PI / 180.0,
        "deg" => |value| value * 180.0 / std::f64::consts::PI,
        "sgn" => |value| match value {
            value if value < 0.0 => -1.0,
            value if value > 0.0 => 1.0,
            value => value,
        },
        name => return dates::function(name),
    })
}

/// Neither of two if one is no number.
fn least(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

fn most(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// A function of a value and of numbers a step; `None` takes the value away.
pub(super) fn with_numbers(name: &str, value: f64, numbers: &[f64]) -> Option<f64> {
    let number = |place: usize| numbers.get(place).copied().unwrap_or(f64::NAN);
    match name {
        "clamp" if number(0) > number(1) => None,
        "clamp" => Some(most(number(0), least(number(1), value))),
        "clamp_min" => Some(most(number(0), value)),
        "clamp_max" => Some(least(number(0), value)),
        "round" => {
            let inverse = 1.0 / numbers.first().copied().unwrap_or(1.0);
            Some((value * inverse + 0.5).floor() / inverse)
        }
        _ => None,
    }
}

/// The labels that `absent` gives: what a selector asks to be equal, once.
pub(super) fn labels_of_absent(argument: &Node) -> Labels {
    let (Expr::Vector(selector) | Expr::Matrix(selector, _)) = &argument.expr else {
        return Labels::default();
    };
    let others = || selector.matchers.iter().filter(|matcher| matcher.label != NAME);
    let is_clear = |label: &str| {
        let mut all = others().filter(|matcher| matcher.label == label);
        all.next().is_some_and(|matcher| matcher.op == MatchOp::Equal) && all.next().is_none()
    };
    let clear = others().filter(|matcher| is_clear(&matcher.label));
    clear.map(|matcher| (matcher.label.as_str(), matcher.value.as_str())).collect()
}

/// One where none of these has a value.
pub(super) fn absence(columns: &[Column], labels: Labels, steps: usize) -> Vec<Column> {
    let mut column = Column::new(labels, steps);
    column.cells.fill(1.0);
    for present in columns {
        for (cell, value) in column.cells.iter_mut().zip(&present.cells) {
            if !is_absent(*value) {
                *cell = ABSENT;
            }
        }
    }
    if column.is_empty() { Vec::new() } else { vec![column] }
}

/// `label_replace`; `texts` are those behind the series.
pub(super) fn label_replace(columns: &mut [Column], texts: &[String]) -> Result<(), String> {
    let [to, replacement, from, pattern] = texts else {
        return Err("four texts expected".to_string());
    };
    let Ok(regex) = crate::matcher::compile(pattern) else {
        return Err(format!("invalid regular expression in label_replace(): {pattern}"));
    };
    if to.is_empty() {
        return Err(format!("invalid destination label name in label_replace(): {to}"));
    }
    for column in columns {
        if let Some(captures) = regex.captures(column.labels.get(from)) {
            let mut value = String::new();
            captures.expand(replacement, &mut value);
            column.labels = column.labels.with(to, &value);
            column.drop_name &= to != NAME;
        }
    }
    Ok(())
}

/// `label_join`; `texts` are those behind the series.
pub(super) fn label_join(columns: &mut [Column], texts: &[String]) -> Result<(), String> {
    let [to, separator, from @ ..] = texts else { return Err("two texts expected".to_string()) };
    if to.is_empty() || from.iter().any(String::is_empty) {
        let which = if to.is_empty() { "destination" } else { "source" };
        return Err(format!("invalid {which} label name in label_join(): "));
    }
    for column in columns {
        let values: Vec<&str> = from.iter().map(|label| column.labels.get(label)).collect();
        column.labels = column.labels.with(to, &values.join(separator));
        column.drop_name &= to != NAME;
    }
    Ok(())
}

/// Sorts series of one step, by value or by labels; `texts` are the labels.
pub(super) fn sort(name: &str, columns: &mut [Column], texts: &[String]) {
    let value = |column: &Column| column.float(0).unwrap_or(f64::NAN);
    let by_labels = |a: &Column, b: &Column| {
        let of = |label: &String| natural(a.labels.get(label), b.labels.get(label));
        texts.iter().map(of).find(|order| order.is_ne()).unwrap_or_else(|| a.labels.cmp(&b.labels))
    };
    // What is no number comes last in both directions.
    let by_value = |a: f64, b: f64| match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
        (a, b) => a.cmp(&b),
    };
    match name {
        "sort" => columns.sort_by(|a, b| by_value(value(a), value(b))),
        "sort_desc" => columns.sort_by(|a, b| {
            let (a, b) = (value(a), value(b));
            if a.is_nan() || b.is_nan() { by_value(a, b) } else { by_value(b, a) }
        }),
        "sort_by_label" => columns.sort_by(by_labels),
        _ => columns.sort_by(|a, b| by_labels(b, a)),
    }
}

/// Texts with the numbers in them compared as numbers.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let (first, second) = (chunk(&mut a), chunk(&mut b));
        let order = match (first.parse::<u64>(), second.parse::<u64>()) {
            (Ok(first), Ok(second)) => first.cmp(&second),
            _ => first.cmp(second),
        };
        if order.is_ne() || (first.is_empty() && second.is_empty()) {
            return order;
        }
    }
}

/// Takes digits, or what is none, from the beginning.
fn chunk<'a>(text: &mut &'a str) -> &'a str {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit());
    let end = text.find(|c: char| c.is_ascii_digit() != is_number).unwrap_or(text.len());
    let (chunk, rest) = text.split_at(end);
    *text = rest;
    chunk
}
