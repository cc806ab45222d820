//! What senders say of a metric besides its points: its type, what it is about, its unit.
//!
//! They say it again and again, so it is gathered where the name of a series is put together, or
//! where it comes by itself, and not with every point.

/// What was said of a metric.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// The name that its series have, without what a histogram or a summary adds.
    pub metric: String,
    /// Its type, as Prometheus calls it.
    pub kind: &'static str,
    /// What it is about.
    pub help: String,
    /// Its unit.
    pub unit: String,
}

/// Longest text that is kept of one.
const MAX_TEXT: usize = 1024;

impl Metadata {
    pub(super) fn new(metric: &[u8], kind: &'static str, help: &[u8], unit: &[u8]) -> Self {
        let text = |bytes: &[u8]| {
            let mut text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT)]);
            // A character that was cut is no character.
            if bytes.len() > MAX_TEXT {
                text = text.trim_end_matches('\u{fffd}').to_owned().into();
            }
            text.into_owned()
        };
        let mut metric = text(metric);
        if matches!(kind, "histogram" | "summary") {
            let suffixes = ["_bucket", "_count", "_sum"];
            let short = suffixes.iter().find_map(|suffix| metric.strip_suffix(suffix));
            metric = short.map(str::to_owned).unwrap_or(metric);
        }
        Self { metric, kind, help: text(help), unit: text(unit) }
    }

    /// The type that a number means in Prometheus' messages.
    pub(super) fn kind(number: u64) -> &'static str {
        const KINDS: [&str; 7] =
            ["counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset"];
        let at = number.checked_sub(1).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| KINDS.get(at)).copied().unwrap_or("unknown")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_histogram_adds_to_its_name_is_not_the_metrics() {
        for (metric, kind, expected) in [
            ("took_bucket", "histogram", "took"),
            ("took_sum", "summary", "took"),
            ("took_sum", "gauge", "took_sum"),
            ("took", "histogram", "took"),
        ] {
            let metadata = Metadata::new(metric.as_bytes(), kind, b"h", b"u");
            assert_eq!(metadata.metric, expected);
        }
        let long = "é".repeat(MAX_TEXT);
        let help = Metadata::new(b"m", "gauge", &long.as_bytes()[1..], b"").help;
        assert!(help.len() <= MAX_TEXT + 2 && help.ends_with('é'), "{help}");
        assert_eq!([0, 1, 5, 8].map(Metadata::kind), ["unknown", "counter", "summary", "unknown"]);
    }
}
