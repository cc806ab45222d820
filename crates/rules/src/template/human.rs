//! Numbers, times and names as people read them: the functions that Prometheus gives to templates.
//!
//! What they write is compared with what Prometheus' own program wrote (`tests.rs`), digit by
//! digit: people match on these texts.

use crate::digits::general;
use crate::time::SECOND;
use plinth_types::calendar::date_and_time;
use std::net::IpAddr;

/// With a prefix for thousands, or thousandths.
pub(super) fn thousands(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return general(number, 4);
    }
    if number.abs() >= 1.0 {
        return scaled(number, 1000.0, &["k", "M", "G", "T", "P", "E", "Z", "Y"]);
    }
    small(number)
}

fn scaled(number: f64, unit: f64, prefixes: &[&'static str]) -> String {
    let (mut number, mut prefix) = (number, "");
    for next in prefixes {
        if number.abs() < unit {
            break;
        }
        (number, prefix) = (number / unit, next);
    }
    format!("{}{prefix}", general(number, 4))
}

fn small(number: f64) -> String {
    let (mut number, mut prefix) = (number, "");
    for next in ["m", "u", "n", "p", "f", "a", "z", "y"] {
        if number.abs() >= 1.0 {
            break;
        }
        (number, prefix) = (number * 1000.0, next);
    }
    format!("{}{prefix}", general(number, 4))
}

/// With a prefix for powers of 1024.
pub(super) fn binary(number: f64) -> String {
    if number.abs() <= 1.0 || !number.is_finite() {
        return general(number, 4);
    }
    scaled(number, 1024.0, &["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"])
}

/// Seconds as `1d 2h 3m 4s`.
pub(super) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return general(seconds, 4);
    }
    if seconds == 0.0 {
        return format!("{}s", general(seconds, 4));
    }
    if seconds.abs() < 1.0 {
        return format!("{}s", small(seconds));
    }
    let sign = if seconds < 0.0 { "-" } else { "" };
    let whole = seconds.abs() as i64;
    let (second, minute, hour, day) =
        (whole % 60, whole / 60 % 60, whole / 3600 % 24, whole / 86_400);
    match (day, hour, minute) {
        (0, 0, 0) => format!("{sign}{}s", general(seconds.abs(), 4)),
        (0, 0, _) => format!("{sign}{minute}m {second}s"),
        (0, _, _) => format!("{sign}{hour}h {minute}m {second}s"),
        _ => format!("{sign}{day}d {hour}h {minute}m {second}s"),
    }
}

/// Seconds since 1970 as a date and a time in UTC, to the millisecond.
pub(super) fn timestamp(seconds: f64) -> Result<String, String> {
    if !seconds.is_finite() {
        return Ok(general(seconds, 4));
    }
    milliseconds(seconds).map(moment)
}

/// Milliseconds since 1970 of seconds since then, which are a number.
pub(super) fn milliseconds(seconds: f64) -> Result<i64, String> {
    let nanoseconds = seconds * 1e9;
    if nanoseconds.abs() >= i64::MAX as f64 {
        let why = format!(
            "{seconds} cannot be represented as a nanoseconds timestamp since it overflows int64"
        );
        return Err(why);
    }
    Ok((nanoseconds as i64).div_euclid(SECOND / 1000))
}

/// A time in milliseconds since 1970 as Go prints it.
pub(super) fn moment(milliseconds: i64) -> String {
    let shown = date_and_time(milliseconds.div_euclid(1000)).replace('T', " ");
    let fraction = match milliseconds.rem_euclid(1000) {
        0 => String::new(),
        millis => format!(".{millis:03}").trim_end_matches('0').to_string(),
    };
    format!("{shown}{fraction} +0000 UTC")
}

/// Nanoseconds as Go prints a duration: `1h0m1.5s`, `1.5ms`.
pub(super) fn go_duration(nanoseconds: i64) -> String {
    let (sign, whole) = (if nanoseconds < 0 { "-" } else { "" }, nanoseconds.unsigned_abs());
    let fraction = |number: u64, of: u64| {
        let digits = of.ilog10() as usize;
        let rest = format!("{:0digits$}", number % of);
        match rest.trim_end_matches('0') {
            "" => format!("{}", number / of),
            rest => format!("{}.{rest}", number / of),
        }
    };
    let second = SECOND as u64;
    if whole < second {
        return match whole {
            0 => "0s".to_string(),
            1..1000 => format!("{sign}{whole}ns"),
            1000..1_000_000 => format!("{sign}{}\u{b5}s", fraction(whole, 1000)),
            _ => format!("{sign}{}ms", fraction(whole, 1_000_000)),
        };
    }
    let (hours, minutes) = (whole / (3600 * second), whole / (60 * second) % 60);
    let seconds = fraction(whole % (60 * second), second);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, _) => format!("{sign}{minutes}m{seconds}s"),
        _ => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// The first letter of each word as a capital. A dot, a colon or an apostrophe between two letters
/// doesn't end a word, nor does a digit.
pub(super) fn titled(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut in_word = false;
    for (place, character) in characters.iter().enumerate() {
        match character {
            letter if letter.is_alphabetic() && !in_word => {
                out.extend(letter.to_uppercase());
                in_word = true;
            }
            other => {
                out.push(*other);
                let is_inside = in_word
                    && matches!(other, '\'' | '.' | ':' | '\u{2019}')
                    && characters.get(place + 1).is_some_and(|next| next.is_alphabetic());
                in_word = other.is_alphanumeric() || *other == '_' || is_inside;
            }
        }
    }
    out
}

/// The host and the port of `host:port` or `[host]:port`.
pub(super) fn split_host_port(place: &str) -> Option<(&str, &str)> {
    let (host, port) = place.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(inner) => Some((inner.strip_suffix(']')?, port)),
        None if host.contains([':', '[', ']']) => None,
        None => Some((host, port)),
    }
}

/// A host by its first name alone, its port kept. An address stays what it is.
pub(super) fn without_domain(place: &str) -> String {
    let (host, port) = split_host_port(place).unwrap_or((place, ""));
    if host.parse::<IpAddr>().is_ok() {
        return place.to_string();
    }
    let first = host.split('.').next().unwrap_or_default();
    match (port, first.contains(':')) {
        ("", _) => first.to_string(),
        (port, true) => format!("[{first}]:{port}"),
        (port, false) => format!("{first}:{port}"),
    }
}

/// A text as a part of a URL behind its question mark.
pub(crate) fn query_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(byte as char);
            }
            b' ' => out.push('+'),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// Where a browser shows an expression: as a graph (0), or as a table (1).
pub(crate) fn link(expression: &str, tab: u8) -> String {
    format!("/graph?g0.expr={}&g0.tab={tab}", query_escaped(expression))
}
