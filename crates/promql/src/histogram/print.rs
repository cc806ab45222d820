//! A histogram as a text, as Prometheus prints it: the label of `count_values` is one.

use super::{Bucket, Histogram};
use crate::format_short as short;
use std::fmt;

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
