//! Native histograms as Prometheus' test files write them:
//! `{{schema:0 count:4 sum:5 buckets:[1 2 1]}}`.

use plinth_promql::{Histogram, Parts, ResetHint, Span};

/// A histogram, and whether the text says anything of its hint.
#[derive(Clone, PartialEq, Debug)]
pub struct Literal {
    pub histogram: Histogram,
    pub has_hint: bool,
}

/// The fields of a literal: what stands before each colon, and behind.
fn fields(text: &str) -> Option<Vec<(&str, &str)>> {
    let (mut fields, mut rest) = (Vec::new(), text.trim());
    while !rest.is_empty() {
        let (name, after) = rest.split_once(':')?;
        let (value, next) = match after.strip_prefix('[') {
            Some(list) => list.split_once(']')?,
            None => after.split_once(char::is_whitespace).unwrap_or((after, "")),
        };
        fields.push((name, value));
        rest = next.trim();
    }
    Some(fields)
}

/// The histogram between two braces on each side.
pub fn literal(text: &str) -> Option<Literal> {
    let (mut parts, mut has_hint) = (Parts::default(), false);
    let (mut offset, mut negative_offset) = (0, 0);
    let number = super::number;
    let list = |text: &str| text.split_whitespace().map(number).collect::<Option<Vec<f64>>>();
    for (name, value) in fields(text)? {
        match name {
            "schema" => parts.schema = value.parse().ok()?,
            "count" => parts.count = number(value)?,
            "sum" => parts.sum = number(value)?,
            "z_bucket" => parts.zero_count = number(value)?,
            "z_bucket_w" => parts.zero_threshold = number(value)?,
            "offset" => offset = value.parse().ok()?,
            "n_offset" => negative_offset = value.parse().ok()?,
            "buckets" => parts.positive = list(value)?,
            "n_buckets" => parts.negative = list(value)?,
            "custom_values" => parts.bounds = list(value)?,
            "counter_reset_hint" => {
                has_hint = true;
                parts.hint = match value {
                    "unknown" => ResetHint::Unknown,
                    "reset" => ResetHint::Reset,
                    "not_reset" => ResetHint::NotReset,
                    "gauge" => ResetHint::Gauge,
                    _ => return None,
                };
            }
            _ => return None,
        }
    }
    let spans = |offset, counts: &[f64]| vec![Span { offset, length: counts.len() as u32 }];
    parts.positive_spans = spans(offset, &parts.positive);
    parts.negative_spans = spans(negative_offset, &parts.negative);
    Some(Literal { histogram: Histogram::new(parts).ok()?, has_hint })
}

/// One after the other: `{{..}}x3`, or `{{..}}+{{..}}x3`, which adds the second again and again.
pub fn series(word: &str) -> Option<Vec<Literal>> {
    let (first, rest) = word.strip_prefix("{{")?.split_once("}}")?;
    let first = literal(first)?;
    let times = |text: &str| match text.strip_prefix('x') {
        Some(times) => times.parse::<usize>().ok(),
        None => text.is_empty().then_some(0),
    };
    let Some((step, rest)) =
        rest.get(1..).and_then(|step| step.strip_prefix("{{")?.split_once("}}"))
    else {
        return Some(vec![first; times(rest)? + 1]);
    };
    let is_sum = word.contains("}}+{{");
    let (step, mut all) = (literal(step)?, vec![first]);
    for _ in 0..times(rest)? {
        let last = &all.last()?.histogram;
        let next = if is_sum { last.plus(&step.histogram) } else { last.minus(&step.histogram) };
        all.push(Literal { histogram: next.ok()?, has_hint: step.has_hint });
    }
    all[0].has_hint = step.has_hint;
    Some(all)
}

/// Whether two are the same but for a millionth in counts and the sum.
pub fn is_near(wanted: &Literal, found: &Histogram) -> bool {
    let (a, b) = (wanted.histogram.parts(), found.parts());
    let near = |a: &[f64], b: &[f64]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| super::is_near(*a, *b))
    };
    a.schema == b.schema
        && a.bounds == b.bounds
        && a.zero_threshold == b.zero_threshold
        && (a.positive_spans == b.positive_spans && a.negative_spans == b.negative_spans)
        && near(&[a.count, a.sum, a.zero_count], &[b.count, b.sum, b.zero_count])
        && near(&a.positive, &b.positive)
        && near(&a.negative, &b.negative)
        && (!wanted.has_hint || a.hint == b.hint)
}
