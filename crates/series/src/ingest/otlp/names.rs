//! Names of OpenTelemetry as Prometheus has them: `http.server.duration` in `ms` is
//! `http_server_duration_milliseconds`.
//!
//! The rules are those of OpenTelemetry's page on compatibility with Prometheus, as Prometheus'
//! own receiver follows them: what may not stand in a name divides it, the unit is written out and
//! comes behind, then `total` or `ratio`. Queries and dashboards that were written for either find
//! the same names here.

/// What a metric is, as far as its name goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Suffix {
    None,
    /// A sum that only grows.
    Total,
    /// A gauge, which may be a ratio.
    Ratio,
}

/// The metric that a name and a unit mean; `None` if nothing of the name is left.
pub(super) fn metric(name: &str, unit: &str, suffix: Suffix) -> Option<String> {
    let is_divider = |c: char| !(c.is_ascii_alphanumeric() || c == ':');
    let mut words: Vec<&str> = name.split(is_divider).filter(|word| !word.is_empty()).collect();
    let (main, per) = units(unit);
    let main = if per.is_empty() { &main[..] } else { main.strip_suffix('_').unwrap_or(&main) };
    if !main.is_empty() && !words.contains(&main) {
        words.push(main);
    }
    if !per.is_empty() {
        words.push(&per);
    }
    let last = match suffix {
        Suffix::Total => "total",
        Suffix::Ratio if unit == "1" => "ratio",
        Suffix::Ratio | Suffix::None => "",
    };
    if !last.is_empty() {
        words.retain(|word| *word != last);
        words.push(last);
    }
    let mut name = words.join("_");
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    name.bytes().any(|byte| byte != b'_').then_some(name)
}

/// What stands behind a name for a unit: what is counted, and per what.
fn units(unit: &str) -> (String, String) {
    let (main, per) = unit.split_once('/').unwrap_or((unit, ""));
    let per = in_words(per, &PER);
    let per = if per.is_empty() { per } else { cleaned(&format!("per_{per}")) };
    let per = if per == "per_" { "" } else { per.strip_suffix('_').unwrap_or(&per) };
    (cleaned(&in_words(main, &UNITS)), per.to_owned())
}

/// A unit in words; nothing for an annotation in braces.
fn in_words(unit: &str, words: &[(&str, &str)]) -> String {
    let unit = unit.trim();
    if unit.contains(['{', '}']) {
        return String::new();
    }
    let known = words.iter().find(|(short, _)| *short == unit);
    known.map_or(unit, |(_, word)| word).to_owned()
}

/// A unit with what may stand in a name, and one `_` for all else.
fn cleaned(unit: &str) -> String {
    let mut text = String::with_capacity(unit.len());
    for c in unit.chars() {
        let c = if c.is_ascii_alphanumeric() || c == ':' { c } else { '_' };
        if c != '_' || !text.ends_with('_') {
            text.push(c);
        }
    }
    text.strip_prefix('_').unwrap_or(&text).to_owned()
}

/// Units as they are written for short.
const UNITS: [(&str, &str); 26] = [
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tibibytes"),
    ("KBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("1", ""),
    ("%", "percent"),
];
const PER: [(&str, &str); 7] = [
    ("s", "second"),
    ("m", "minute"),
    ("h", "hour"),
    ("d", "day"),
    ("w", "week"),
    ("mo", "month"),
    ("y", "year"),
];

/// The label that an attribute's key means; `None` if nothing of the key is left.
pub(super) fn label(key: &str) -> Option<String> {
    // What Prometheus reserves stays so.
    let reserved = key.strip_prefix("__").and_then(|key| key.strip_suffix("__"));
    let mut label = String::with_capacity(key.len() + 4);
    let mut follows_divider = false;
    for c in reserved.unwrap_or(key).chars() {
        if c.is_ascii_alphanumeric() {
            label.push(c);
        } else if !follows_divider {
            label.push('_');
        }
        follows_divider = !c.is_ascii_alphanumeric();
    }
    if reserved.is_some() {
        label = format!("__{label}__");
    }
    if label.starts_with(|c: char| c.is_ascii_digit()) {
        label.insert_str(0, "key_");
    }
    label.bytes().any(|byte| byte != b'_').then_some(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_the_names_that_prometheus_gives_them() {
        use Suffix::{None as Plain, Ratio, Total};
        for (name, unit, suffix, expected) in [
            ("http.server.duration", "ms", Plain, "http_server_duration_milliseconds"),
            ("http.server.request.duration", "s", Plain, "http_server_request_duration_seconds"),
            ("system.cpu.time", "s", Total, "system_cpu_time_seconds_total"),
            ("requests", "{request}", Total, "requests_total"),
            ("requests.total", "1", Total, "requests_total"),
            ("total.requests", "", Total, "requests_total"),
            ("system.memory.utilization", "1", Ratio, "system_memory_utilization_ratio"),
            ("ratio.of.hits", "1", Ratio, "of_hits_ratio"),
            ("queue.size", "", Ratio, "queue_size"),
            ("network.io", "By/s", Ratio, "network_io_bytes_per_second"),
            ("broken.bytes", "By", Ratio, "broken_bytes"),
            ("rate", "{packet}/s", Ratio, "rate_per_second"),
            ("fuel", "l/100km", Ratio, "fuel_l_per_100km"),
            ("speed", "m/s", Ratio, "speed_meters_per_second"),
            ("load", "%", Ratio, "load_percent"),
            ("odd", "foo/!", Ratio, "odd_foo"),
            ("odd", "!foo", Ratio, "odd_foo"),
            ("odd", "foo!", Ratio, "odd_foo_"),
            ("2xx", "", Ratio, "_2xx"),
            ("a__b..c-d", "", Ratio, "a_b_c_d"),
            ("job:rate:5m", "", Ratio, "job:rate:5m"),
            ("größe", "", Ratio, "gr_e"),
        ] {
            assert_eq!(metric(name, unit, suffix).as_deref(), Some(expected), "{name} {unit}");
        }
        assert_eq!((metric("", "", Ratio), metric("...", "", Ratio)), (None, None));
    }

    #[test]
    fn attributes_have_the_labels_that_prometheus_gives_them() {
        for (key, expected) in [
            ("http.method", Some("http_method")),
            ("k8s..pod--name", Some("k8s_pod_name")),
            ("2nd", Some("key_2nd")),
            ("_private", Some("_private")),
            ("__name__", Some("__name__")),
            ("__a.b__", Some("__a_b__")),
            ("ä", None),
            ("aä", Some("a_")),
            ("", None),
            ("____", None),
        ] {
            assert_eq!(label(key).as_deref(), expected, "{key}");
        }
    }
}
