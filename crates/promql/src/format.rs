//! An expression as text, as Prometheus' `format_query` writes it, on one line.
//!
//! What was in parentheses stays there, so what is written is read as the same again; numbers and
//! durations are written in one form each, words in small letters.

use crate::ast::*;
use crate::format_value;
use crate::labels::{NAME, is_plain_label, is_plain_metric, quoted};
use std::fmt::{self, Display, Formatter};

/// Units from the longest on; a year and a week only stand alone, as Prometheus has them.
const UNITS: [(&str, i64); 7] = [
    ("y", 31_536_000_000),
    ("w", 604_800_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Nanoseconds as `1h30m`.
pub(crate) struct Duration(pub(crate) i64);

impl Display for Duration {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let mut rest = self.0 / 1_000_000;
        if rest < 0 {
            out.write_str("-")?;
            rest = -rest;
        }
        if rest == 0 {
            return out.write_str("0s");
        }
        for (unit, length) in UNITS {
            let is_whole = rest % length == 0;
            if rest >= length && (is_whole || !matches!(unit, "y" | "w")) {
                write!(out, "{}{unit}", rest / length)?;
                rest %= length;
            }
        }
        Ok(())
    }
}

impl Display for Shift {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self.at {
            Some(At::Time(time)) => write!(out, " @ {:.3}", time as f64 / 1e9)?,
            Some(At::Start) => out.write_str(" @ start()")?,
            Some(At::End) => out.write_str(" @ end()")?,
            None => {}
        }
        match self.offset {
            Some(offset) => write!(out, " offset {}", Duration(offset)),
            None => Ok(()),
        }
    }
}

impl Selector {
    fn write(&self, out: &mut Formatter<'_>, range: &str) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        match &self.name {
            Some(name) if is_plain_metric(name) => out.write_str(name)?,
            Some(name) => parts.push(quoted(name)),
            None => {}
        }
        let others =
            self.matchers.iter().filter(|matcher| self.name.is_none() || matcher.label != NAME);
        parts.extend(others.map(ToString::to_string));
        if !parts.is_empty() {
            write!(out, "{{{}}}", parts.join(","))?;
        }
        write!(out, "{range}{}", self.shift)
    }
}

fn listed(labels: &[String]) -> String {
    let label = |label: &String| if is_plain_label(label) { label.clone() } else { quoted(label) };
    labels.iter().map(label).collect::<Vec<String>>().join(", ")
}

impl Display for Binary {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let bool = if self.bool { " bool" } else { "" };
        write!(out, "{} {}{bool}", self.left, self.op.text())?;
        let matching = &self.matching;
        let side = match matching.cardinality {
            Cardinality::ManyToOne => Some("group_left"),
            Cardinality::OneToMany => Some("group_right"),
            _ => None,
        };
        if matching.on || !matching.labels.is_empty() || side.is_some() {
            let word = if matching.on { "on" } else { "ignoring" };
            write!(out, " {word} ({})", listed(&matching.labels))?;
        }
        if let Some(side) = side {
            write!(out, " {side} ({})", listed(&matching.include))?;
        }
        write!(out, " {}", self.right)
    }
}

impl Display for Aggregate {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(self.op.name())?;
        if self.without || !self.grouping.is_empty() {
            let word = if self.without { "without" } else { "by" };
            write!(out, " {word} ({}) ", listed(&self.grouping))?;
        }
        match &self.param {
            Some(param) => write!(out, "({param}, {})", self.inner),
            None => write!(out, "({})", self.inner),
        }
    }
}

impl Display for Node {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(if self.in_parens { "(" } else { "" })?;
        match &self.expr {
            Expr::Number(number) => out.write_str(&format_value(*number))?,
            Expr::String(text) => out.write_str(&quoted(text))?,
            Expr::Vector(selector) => selector.write(out, "")?,
            Expr::Matrix(selector, range) => {
                selector.write(out, &format!("[{}]", Duration(*range)))?
            }
            Expr::Subquery(subquery) => {
                let step = subquery.step.map_or(String::new(), |step| Duration(step).to_string());
                write!(
                    out,
                    "{}[{}:{step}]{}",
                    subquery.inner,
                    Duration(subquery.range),
                    subquery.shift
                )?;
            }
            Expr::Call(function, arguments) => {
                let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
                write!(out, "{}({})", function.name, arguments.join(", "))?;
            }
            Expr::Aggregate(aggregate) => aggregate.fmt(out)?,
            Expr::Binary(binary) => binary.fmt(out)?,
            Expr::Negative(inner) => write!(out, "-{inner}")?,
            Expr::Positive(inner) => write!(out, "+{inner}")?,
        }
        out.write_str(if self.in_parens { ")" } else { "" })
    }
}
