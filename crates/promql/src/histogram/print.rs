//! A histogram as a text, as Prometheus prints it: the label of `count_values` is one.

use super::{Bucket, Histogram};
use std::fmt;

/// A number as Go's `%g` has it: an exponent below -4 and from 6 digits on, with a sign and two
/// digits at least.
fn short(value: f64) -> String {
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

impl fmt::Display for Bucket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) =
            (if self.has_lower { '[' } else { '(' }, if self.has_upper { ']' } else { ')' });
        let (lower, upper, count) = (short(self.lower), short(self.upper), short(self.count));
        write!(out, "{open}{lower},{upper}{close}:{count}")
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{{count:{}, sum:{}", short(self.count), short(self.sum))?;
        for bucket in self.buckets() {
            write!(out, ", {bucket}")?;
        }
        out.write_str("}")
    }
}
