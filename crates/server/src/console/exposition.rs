//! Reads back what `/metrics` says, so that the console shows the very figures that Prometheus
//! gets, of whatever endpoint.
//!
//! Just what our own text needs: a name with its labels, a space, a number. Lines that are anything
//! else say nothing.

/// The measurements of one moment.
pub(super) struct Exposition<'a>(Vec<(&'a str, f64)>);

/// A histogram at one moment: upper bounds and how many lie at or below each, from the lowest.
pub(super) type Buckets = Vec<(f64, f64)>;

impl<'a> Exposition<'a> {
    pub(super) fn read(text: &'a str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self(
            lines
                .filter_map(|line| {
                    let (name, number) = line.rsplit_once(' ')?;
                    Some((name, number.parse().ok()?))
                })
                .collect(),
        )
    }

    /// The number of this name, labels and all.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(found, _)| *found == name).map(|(_, number)| *number)
    }

    /// The sum of all whose names begin so; `None` if there are none.
    pub(super) fn sum(&self, prefix: &str) -> Option<f64> {
        let mut found = self.0.iter().filter(|(name, _)| name.starts_with(prefix)).peekable();
        found.peek()?;
        Some(found.map(|(_, number)| number).sum())
    }

    /// The histogram of this name; empty if there is none.
    pub(super) fn buckets(&self, name: &str) -> Buckets {
        let bound = |found: &str| {
            let bound =
                found.strip_prefix(name)?.strip_prefix("_bucket{le=\"")?.strip_suffix("\"}")?;
            if bound == "+Inf" { Some(f64::INFINITY) } else { bound.parse().ok() }
        };
        self.0.iter().filter_map(|(found, count)| Some((bound(found)?, *count))).collect()
    }
}

/// The value, in the histogram's unit, that this share of what came between two moments lies at or
/// below, by interpolation in its bucket; `None` if nothing came.
pub(super) fn percentile(before: &Buckets, now: &Buckets, share: f64) -> Option<f64> {
    let counts: Vec<f64> = now
        .iter()
        .enumerate()
        .map(|(at, (_, count))| {
            (count - before.get(at).map_or(0.0, |(_, before)| *before)).max(0.0)
        })
        .collect();
    let all = counts.last().copied().filter(|all| *all >= 1.0)?;
    let wanted = (share * all).max(1.0);
    let at = counts.iter().position(|count| *count >= wanted)?;
    let (below, low) = if at == 0 { (0.0, 0.0) } else { (counts[at - 1], now[at - 1].0) };
    let high = now[at].0;
    if !high.is_finite() {
        return Some(low);
    }
    Some(low + (high - low) * (wanted - below) / (counts[at] - below).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a A.\n# TYPE a counter\na{k=\"x y\"} 3\na{k=\"z\"} 4.5\nab 1\nbroken\n\
                        h_bucket{le=\"0.001\"} 10\nh_bucket{le=\"0.002\"} 30\nh_bucket{le=\"+Inf\"} 40\nh_count 40\n";

    #[test]
    fn numbers_are_found_by_name_and_prefix() {
        let read = Exposition::read(TEXT);
        assert_eq!(read.number("a{k=\"x y\"}"), Some(3.0));
        assert_eq!(
            (read.sum("a{"), read.sum("c{"), read.number("broken")),
            (Some(7.5), None, None)
        );
        assert_eq!(read.buckets("h"), [(0.001, 10.0), (0.002, 30.0), (f64::INFINITY, 40.0)]);
        assert_eq!(read.buckets("a"), []);
    }

    #[test]
    fn percentiles_are_of_what_came_between() {
        let now = Exposition::read(TEXT).buckets("h");
        assert_eq!(percentile(&Vec::new(), &now, 0.5), Some(0.0015));
        assert_eq!(
            percentile(&Vec::new(), &now, 0.99),
            Some(0.002),
            "what has no bound is at least the last one"
        );
        assert_eq!(percentile(&now, &now, 0.5), None);
        let later = vec![(0.001, 10.0), (0.002, 32.0), (f64::INFINITY, 42.0)];
        assert_eq!(percentile(&now, &later, 0.5), Some(0.0015));
        assert_eq!(percentile(&later, &now, 0.5), None, "a count that fell is another server's");
    }
}
