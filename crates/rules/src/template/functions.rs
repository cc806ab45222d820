//! The functions of templates: Go's own, and those that Prometheus adds.
//!
//! Each says how many arguments it takes, which is looked at when a template is read; of what kind
//! they are shows when it is carried out. Methods of times that take arguments are not among them.

use super::bounded::Bounded;
use super::context::{Context, Stop};
use super::gofmt::sprintf;
use super::human;
use super::pattern::{self, Pattern};
use super::value::Value;
use crate::digits::general;
use std::cmp::Ordering;
use std::fmt::Write;
use std::sync::Arc;

type Given<'a> = &'a [Value];
type Result<T> = std::result::Result<T, Stop>;

/// A function.
pub(super) struct Function {
    pub(super) name: &'static str,
    least: usize,
    most: usize,
    pub(super) run: fn(&mut Context<'_>, Given<'_>) -> Result<Value>,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name)
    }
}

const MANY: usize = usize::MAX;
/// How deep what `args` makes may lie in each other.
const MAX_ARGUMENTS: usize = 8;

const fn function(
    name: &'static str,
    (least, most): (usize, usize),
    run: fn(&mut Context<'_>, Given<'_>) -> Result<Value>,
) -> Function {
    Function { name, least, most, run }
}

static FUNCTIONS: [Function; 45] = [
    function("and", (1, MANY), |_, given| Ok(chosen(given, |value| !value.is_true()))),
    function("or", (1, MANY), |_, given| Ok(chosen(given, Value::is_true))),
    function("not", (1, 1), |_, given| Ok(Value::Bool(!given[0].is_true()))),
    function("eq", (2, MANY), equal),
    function("ne", (2, 2), |_, given| compared(given, |order| order != Some(Ordering::Equal))),
    function("lt", (2, 2), |_, given| compared(given, |order| order == Some(Ordering::Less))),
    function("le", (2, 2), |_, given| compared(given, |order| order.is_some_and(Ordering::is_le))),
    function("gt", (2, 2), |_, given| compared(given, |order| order == Some(Ordering::Greater))),
    function("ge", (2, 2), |_, given| compared(given, |order| order.is_some_and(Ordering::is_ge))),
    function("len", (1, 1), length),
    function("index", (1, 3), index),
    function("slice", (1, 3), slice),
    function("print", (0, MANY), |_, given| Ok(Value::text(printed(given, false)?))),
    function("println", (0, MANY), |_, given| Ok(Value::text(printed(given, true)?))),
    function("printf", (1, MANY), |_, given| {
        let format = text(&given[0])?;
        Bounded::written(|out| sprintf(out, &format, &given[1..])).map(Value::text)
    }),
    function("html", (1, MANY), |_, given| Ok(Value::text(escaped_html(&printed(given, false)?)))),
    function("js", (1, MANY), |_, given| Ok(Value::text(escaped_js(&printed(given, false)?)))),
    function("urlquery", (1, MANY), |_, given| {
        Ok(Value::text(human::query_escaped(&printed(given, false)?)))
    }),
    function("urlQueryEscape", (1, 1), |_, given| {
        Ok(Value::text(human::query_escaped(&text(&given[0])?)))
    }),
    function("query", (1, 1), |run, given| run.query(&text(&given[0])?)),
    function("first", (1, 1), first),
    function("label", (2, 2), |_, given| {
        let (name, sample) = (text(&given[0])?, sample(&given[1])?);
        Ok(Value::text(sample.labels.get(&*name).cloned().unwrap_or_default()))
    }),
    function("value", (1, 1), |_, given| Ok(Value::Float(sample(&given[0])?.value))),
    function("strvalue", (1, 1), |_, given| {
        let sample = sample(&given[0])?;
        Ok(Value::text(sample.labels.get("__value__").cloned().unwrap_or_default()))
    }),
    function("sortByLabel", (2, 2), sorted),
    function("reReplaceAll", (3, 3), |run, given| {
        let pattern = Pattern::compiled(run, &text(&given[0])?)?;
        let (replacement, within) = (text(&given[1])?, text(&given[2])?);
        replaced(run, &pattern, (&replacement, &within))
    }),
    function("match", (2, 2), |run, given| {
        let (pattern, within) = (text(&given[0])?, text(&given[1])?);
        let pattern = Pattern::compiled(run, &pattern)?;
        pattern.search(run, &within)?;
        Ok(Value::Bool(pattern.regex.is_match(&within)))
    }),
    function("title", (1, 1), |_, given| Ok(Value::text(human::titled(&text(&given[0])?)))),
    function("toUpper", (1, 1), |_, given| Ok(Value::text(text(&given[0])?.to_uppercase()))),
    function("toLower", (1, 1), |_, given| Ok(Value::text(text(&given[0])?.to_lowercase()))),
    function("stripPort", (1, 1), |_, given| {
        let place = text(&given[0])?;
        let host = human::split_host_port(&place).map_or(&*place, |(host, _)| host);
        Ok(Value::text(host))
    }),
    function("stripDomain", (1, 1), |_, given| {
        Ok(Value::text(human::without_domain(&text(&given[0])?)))
    }),
    function("humanize", (1, 1), |_, given| Ok(Value::text(human::thousands(number(given)?)))),
    function("humanize1024", (1, 1), |_, given| Ok(Value::text(human::binary(number(given)?)))),
    function("humanizeDuration", (1, 1), |_, given| {
        Ok(Value::text(human::duration(number(given)?)))
    }),
    function("humanizePercentage", (1, 1), |_, given| {
        Ok(Value::text(format!("{}%", general(number(given)? * 100.0, 4))))
    }),
    function("humanizeTimestamp", (1, 1), |_, given| {
        Ok(Value::text(human::timestamp(number(given)?).map_err(Stop::Wrong)?))
    }),
    function("parseDuration", (1, 1), |_, given| {
        let duration = text(&given[0])?;
        let (sign, plain) = duration.strip_prefix('-').map_or((1.0, &*duration), |d| (-1.0, d));
        let found = plinth_promql::duration(plain).map(|found| found as f64 / 1e9 * sign);
        found
            .map(Value::Float)
            .ok_or_else(|| Stop::Wrong(format!("not a valid duration string: {duration:?}")))
    }),
    function("toTime", (1, 1), |_, given| {
        let time = finite(number(given)?)?;
        human::milliseconds(time).map(Value::Time).map_err(Stop::Wrong)
    }),
    function("toDuration", (1, 1), |_, given| Ok(Value::Duration((number(given)? * 1e9) as i64))),
    function("args", (0, MANY), |run, given| {
        run.visit(4 * given.len())?;
        let depth = |value: &Value| if let Value::Arguments(_, depth) = value { *depth } else { 0 };
        let depth = given.iter().map(depth).max().unwrap_or(0) + 1;
        if depth > MAX_ARGUMENTS {
            return wrong(format!("args of args, more than {MAX_ARGUMENTS} levels deep"));
        }
        let named = given.iter().enumerate().map(|(at, value)| (format!("arg{at}"), value.clone()));
        Ok(Value::Arguments(Arc::new(named.collect()), depth))
    }),
    function("now", (0, 0), |run, _| Ok(Value::Float(run.seconds()))),
    function("graphLink", (1, 1), |_, given| Ok(Value::text(human::link(&text(&given[0])?, 0)))),
    function("tableLink", (1, 1), |_, given| Ok(Value::text(human::link(&text(&given[0])?, 1)))),
    function("safeHtml", (1, 1), |_, given| Ok(Value::text(text(&given[0])?))),
];

/// Those that ask for what is outside; they have a table of their own, since they take nothing.
static OUTSIDE: [Function; 2] = [
    function("externalURL", (0, 0), |run, _| Ok(Value::text(run.outside.url.clone()))),
    function("pathPrefix", (0, 0), |run, _| {
        let path = run.outside.url.split_once("://").map_or("", |(_, rest)| rest);
        Ok(Value::text(path.find('/').map_or("", |at| &path[at..])))
    }),
];

/// The function of this name.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().chain(&OUTSIDE).find(|function| function.name == name)
}

impl Function {
    /// Whether it may look at all that it is given. Those that take any number of arguments end as
    /// soon as what they make of them is too long, but for the one that compares.
    pub(super) fn looks_at_all(&self) -> bool {
        self.most != MANY || self.name == "eq"
    }

    /// What is wrong with so many arguments.
    pub(super) fn wrong_count(&self, given: usize) -> Option<String> {
        let wanted = match (self.least, self.most) {
            (least, most) if (least..=most).contains(&given) => return None,
            (least, most) if least == most => least.to_string(),
            (least, MANY) => format!("at least {least}"),
            (least, most) => format!("{least} to {most}"),
        };
        Some(format!("wrong number of args for {}: want {wanted} got {given}", self.name))
    }

    /// What can be told of a first argument that stands there as a text: whether it is a pattern,
    /// or an expression.
    pub(super) fn check(&self, first: &str) -> std::result::Result<(), String> {
        match (self.name, first) {
            ("reReplaceAll" | "match", pattern) => {
                pattern::check(pattern).map_err(|why| format!("{}: {why}", self.name))
            }
            ("query", expression) => plinth_promql::parse(expression)
                .map(drop)
                .map_err(|why| format!("query {expression:?}: {why}")),
            _ => Ok(()),
        }
    }
}

fn wrong<T>(why: impl Into<String>) -> Result<T> {
    Err(Stop::Wrong(why.into()))
}

/// The first value that a condition holds of, or the last.
fn chosen(given: Given<'_>, holds: impl Fn(&Value) -> bool) -> Value {
    given.iter().find(|value| holds(value)).or(given.last()).cloned().unwrap_or(Value::Nil)
}

fn text(value: &Value) -> Result<std::sync::Arc<str>> {
    match value {
        Value::Text(text) => Ok(text.clone()),
        other => wrong(format!("wrong type for value; expected string; got {}", other.kind())),
    }
}

fn number(given: Given<'_>) -> Result<f64> {
    given[0].number().map_err(Stop::Wrong)
}

fn finite(number: f64) -> Result<f64> {
    if number.is_finite() { Ok(number) } else { wrong("value is NaN or Inf") }
}

fn sample(value: &Value) -> Result<&super::value::Sample> {
    match value {
        Value::Sample(sample) => Ok(sample),
        other => wrong(format!("wrong type for value; expected a sample; got {}", other.kind())),
    }
}

fn equal(_: &mut Context<'_>, given: Given<'_>) -> Result<Value> {
    for other in &given[1..] {
        if given[0].compared(other).map_err(Stop::Wrong)? == Some(Ordering::Equal) {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn compared(given: Given<'_>, holds: impl Fn(Option<Ordering>) -> bool) -> Result<Value> {
    given[0].compared(&given[1]).map(|order| Value::Bool(holds(order))).map_err(Stop::Wrong)
}

fn length(_: &mut Context<'_>, given: Given<'_>) -> Result<Value> {
    let length = match &given[0] {
        Value::Text(text) => text.len(),
        Value::Map(map) => map.len(),
        Value::List(list) => list.len(),
        Value::Arguments(values, _) => values.len(),
        other => return wrong(format!("len of type {}", other.kind())),
    };
    Ok(Value::Int(length as i64))
}

fn index(_: &mut Context<'_>, given: Given<'_>) -> Result<Value> {
    let mut value = given[0].clone();
    for place in &given[1..] {
        value = match (&value, place) {
            (Value::Map(map), Value::Text(name)) => {
                Value::text(map.get(&**name).cloned().unwrap_or_default())
            }
            (Value::Arguments(values, _), Value::Text(name)) => {
                values.get(&**name).cloned().unwrap_or(Value::Nil)
            }
            (Value::List(list), Value::Int(place)) => {
                match usize::try_from(*place).ok().and_then(|place| list.get(place)) {
                    Some(sample) => Value::Sample(sample.clone()),
                    None => return wrong(format!("index out of range: {place}")),
                }
            }
            (Value::Map(_), place) => {
                return wrong(format!("value has type {}; should be string", place.kind()));
            }
            (value, _) => return wrong(format!("can't index item of type {}", value.kind())),
        };
    }
    Ok(value)
}

fn slice(_: &mut Context<'_>, given: Given<'_>) -> Result<Value> {
    let whole = text(&given[0])?;
    let place = |at: usize, usual: usize| match given.get(at) {
        None => Ok(usual),
        Some(Value::Int(place)) => {
            usize::try_from(*place).map_err(|_| Stop::Wrong(format!("index out of range: {place}")))
        }
        Some(other) => wrong(format!("cannot index slice/array with type {}", other.kind())),
    };
    let (from, to) = (place(1, 0)?, place(2, whole.len())?);
    match whole.get(from..to) {
        Some(part) => Ok(Value::text(part)),
        None => wrong(format!("index out of range: {from} to {to} of {}", whole.len())),
    }
}

/// As Go's `Print` writes operands: a blank between two of which neither is a text.
fn printed(given: Given<'_>, is_line: bool) -> Result<String> {
    let is_text = |value: &Value| matches!(value, Value::Text(_));
    Bounded::written(|out| {
        for (place, value) in given.iter().enumerate() {
            if place > 0 && (is_line || (!is_text(value) && !is_text(&given[place - 1]))) {
                out.write_char(' ')?;
            }
            write!(out, "{value}")?;
        }
        out.write_str(if is_line { "\n" } else { "" })
    })
}

/// What a text becomes by putting a replacement in place of each match.
fn replaced(
    run: &mut Context<'_>,
    pattern: &Pattern,
    (replacement, within): (&str, &str),
) -> Result<Value> {
    let mut out = Bounded::default();
    let mut end = 0;
    pattern.search(run, within)?;
    for found in pattern.regex.captures_iter(within) {
        run.visit(1 + replacement.len())?;
        let Some(whole) = found.get(0) else { continue };
        // The next one is looked for from there on, to the end if it has to be.
        pattern.search(run, &within[whole.end()..])?;
        out.add(|out| out.push_str(&within[end..whole.start()]))?;
        end = whole.end();
        // One reference at a time: each may stand for the whole text.
        for part in references(replacement) {
            out.add(|out| found.expand(part, out))?;
        }
    }
    out.add(|out| out.push_str(&within[end..]))?;
    Ok(Value::text(out.into_text()))
}

/// The parts of a replacement, of which each has one reference to a group at most, at its
/// beginning.
fn references(replacement: &str) -> impl Iterator<Item = &str> {
    let mut rest = replacement;
    std::iter::from_fn(move || {
        let len = match rest.strip_prefix('$') {
            // Two of them stand for one.
            Some(behind) if behind.starts_with('$') => 2,
            Some(behind) => behind.find('$').map_or(rest.len(), |at| at + 1),
            None => rest.find('$').unwrap_or(rest.len()),
        };
        let (part, behind) = rest.split_at(len);
        rest = behind;
        (len > 0).then_some(part)
    })
}

fn escaped_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\0' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

fn escaped_js(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '\'' | '"' => out.extend(['\\', character]),
            '<' | '>' | '&' | '=' => out.push_str(&format!("\\u{:04X}", character as u32)),
            other if other < ' ' => out.push_str(&format!("\\u{:04X}", other as u32)),
            other => out.push(other),
        }
    }
    out
}

fn first(_: &mut Context<'_>, given: Given<'_>) -> Result<Value> {
    match &given[0] {
        Value::List(list) => match list.first() {
            Some(sample) => Ok(Value::Sample(sample.clone())),
            None => wrong("first() called on vector with no elements"),
        },
        other => wrong(format!("wrong type for value; expected a vector; got {}", other.kind())),
    }
}

fn sorted(run: &mut Context<'_>, given: Given<'_>) -> Result<Value> {
    let (label, Value::List(list)) = (text(&given[0])?, &given[1]) else {
        return wrong(format!("wrong type for value; expected a vector; got {}", given[1].kind()));
    };
    // A comparison looks a label up on both sides.
    let each = list.len().checked_ilog2().unwrap_or(0) as usize + 1;
    run.visit(list.len().saturating_mul(each))?;
    let mut list = list.to_vec();
    list.sort_by(|one, other| one.labels.get(&*label).cmp(&other.labels.get(&*label)));
    Ok(Value::List(list.into()))
}
