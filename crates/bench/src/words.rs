//! Figures as people read them.

use std::time::Duration;

/// A count with separators: `1,000,000`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with what is counted: `1 point`, `1,000 points`.
pub fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// Three significant digits with `k` or `M`: `917`, `11.2 k`, `1.52 M`.
pub fn short(value: f64) -> String {
    let three = |value: f64| {
        let decimals = if value.abs() < 9.995 {
            2
        } else if value.abs() < 99.95 {
            1
        } else {
            0
        };
        format!("{value:.decimals$}")
    };
    match value.abs() {
        size if !size.is_finite() => "-".to_owned(),
        size if size >= 999_500.0 => format!("{} M", three(value / 1e6)),
        size if size >= 9_999.5 => format!("{} k", three(value / 1e3)),
        size if size >= 999.5 => grouped(value.round() as u64),
        _ => three(value).trim_end_matches(".00").to_owned(),
    }
}

/// A size with the unit that suits it: `512 B`, `19.3 KiB`, `4.10 MiB`.
pub fn bytes(bytes: u64) -> String {
    let size = bytes as f64;
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", short(size / 1_024.0)),
        1_048_576..1_073_741_824 => format!("{} MiB", short(size / 1_048_576.0)),
        _ => format!("{} GiB", short(size / 1_073_741_824.0)),
    }
}

/// A duration with the unit that suits it: `640 ns`, `92.1 µs`, `1.30 ms`, `2.00 s`.
pub fn duration(duration: Duration) -> String {
    let nanos = duration.as_nanos() as f64;
    let (value, unit) = match nanos {
        nanos if nanos < 999.5 => (nanos, "ns"),
        nanos if nanos < 999_500.0 => (nanos / 1e3, "µs"),
        nanos if nanos < 999_500_000.0 => (nanos / 1e6, "ms"),
        nanos => (nanos / 1e9, "s"),
    };
    format!("{} {unit}", short(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_digits() {
        let counts = [0, 12, 999, 1_000, 1_000_000, 12_345_678].map(grouped);
        assert_eq!(counts, ["0", "12", "999", "1,000", "1,000,000", "12,345,678"]);
        let figures = [
            0.0,
            1.234,
            9.999,
            917.0,
            4_425.0,
            11_234.0,
            99_960.0,
            999_499.0,
            999_600.0,
            12_345_678.0,
        ];
        let expected =
            ["0", "1.23", "10.0", "917", "4,425", "11.2 k", "100 k", "999 k", "1.00 M", "12.3 M"];
        assert_eq!(figures.map(short), expected);
        assert_eq!(short(f64::INFINITY), "-");
    }

    #[test]
    fn sizes_choose_their_unit() {
        let sizes = [0, 1_023, 1_024, 20_000, 5 << 20, 3 << 30].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1 KiB", "19.5 KiB", "5 MiB", "3 GiB"]);
    }

    #[test]
    fn durations_choose_their_unit() {
        let durations = [5, 1_500, 92_100, 1_300_000, 2_000_000_000]
            .map(|nanos| duration(Duration::from_nanos(nanos)));
        assert_eq!(durations, ["5 ns", "1.50 µs", "92.1 µs", "1.30 ms", "2 s"]);
    }
}
