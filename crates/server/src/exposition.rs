//! Prometheus' text format, as what is measured is written in it.

use std::fmt::{Display, Write};

/// Writes quantities, each with its kind, what it is, and its value.
pub(crate) fn write_all(
    text: &mut String,
    group: &str,
    numbers: &[(&str, &str, &str, impl Display)],
) {
    for (name, kind, help, number) in numbers {
        // Writing to a string can't fail.
        let _ = write!(
            text,
            "# HELP plinth_{group}_{name} {help}\n# TYPE plinth_{group}_{name} {kind}\nplinth_{group}_{name} {number}\n"
        );
    }
}
