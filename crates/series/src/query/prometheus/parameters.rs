//! What a request says beside its path, and the name of a label within the path.
//!
//! All of it is text that somebody wrote by hand or a program escaped: what can't be read is told
//! with the parameter's name, and nothing is taken for what it isn't.

use super::{Failure, missing};
use crate::time::{duration, parse_moment};
use crate::tree::Span;
use plinth_promql::nanoseconds;
use plinth_types::calendar::instant;

/// How Prometheus' own programs write what is before everything, and behind it.
const BEFORE_ALL: &str = "-292273086-05-16T16:47:06Z";
const BEHIND_ALL: &str = "292277025-08-18T07:12:54.999999999Z";

/// What was sent, decoded.
pub(super) struct Parameters {
    pairs: Vec<(String, String)>,
    /// What `now` means, in nanoseconds since 1970.
    now: i64,
}

impl Parameters {
    /// Those of the URL and of the body.
    pub(super) fn of(encoded: &[&[u8]], now: i64) -> Self {
        Self { pairs: encoded.iter().flat_map(|part| form_pairs(part)).collect(), now }
    }

    /// One that has a value: forms send those that nobody filled in, too.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut found = self.pairs.iter().filter(|(found, _)| found == name);
        found.find(|(_, value)| !value.is_empty()).map(|(_, value)| value.as_str())
    }

    pub(super) fn needed<'a>(&'a self, name: &'a str) -> Result<&'a str, Failure> {
        self.all(name).next().ok_or_else(|| missing(name))
    }

    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Nanoseconds since 1970: of seconds, as Prometheus has them, or of a time as people write it.
    pub(super) fn time(&self, name: &str) -> Result<Option<i64>, Failure> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let found = match text.parse::<f64>() {
            Ok(seconds) => nanoseconds(seconds),
            Err(_) => parse_moment(text, Some(self.now)),
        };
        found.map(Some).ok_or_else(|| no_time(name))
    }

    /// The same of a bound of what is looked for: what lies before all times that there are is the
    /// first of them, and what lies behind all the last. Programs say so for no bound at all.
    pub(super) fn bound(&self, name: &str) -> Result<Option<i64>, Failure> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let end = |is_before: bool| Ok(Some(if is_before { i64::MIN } else { i64::MAX }));
        match (text, text.parse::<f64>(), instant(text)) {
            (BEFORE_ALL, ..) => end(true),
            (BEHIND_ALL, ..) => end(false),
            (_, Ok(seconds), _) if seconds.is_finite() && nanoseconds(seconds).is_none() => {
                end(seconds < 0.0)
            }
            (_, Err(_), Some(time)) if i64::try_from(time).is_err() => end(time < 0),
            _ => self.time(name),
        }
    }

    /// From `start` to `end`, both included, of a list; `None` if neither is there.
    pub(super) fn span(&self) -> Result<Option<Span>, Failure> {
        let (first, last) = (self.bound("start")?, self.bound("end")?);
        if first.is_none() && last.is_none() {
            return Ok(None);
        }
        let span = Span { first: first.unwrap_or(i64::MIN), last: last.unwrap_or(i64::MAX) };
        if span.last < span.first {
            return Err(Failure::Asked(
                "invalid parameter \"end\": end timestamp must not be before start timestamp"
                    .into(),
            ));
        }
        Ok(Some(span))
    }

    /// Nanoseconds, more than none.
    pub(super) fn duration(&self, name: &str) -> Result<Option<i64>, Failure> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let found = match text.parse::<f64>() {
            Ok(seconds) => nanoseconds(seconds),
            Err(_) => duration(text),
        };
        let found = found.filter(|duration| *duration > 0);
        let wrong = || {
            let wanted = "seconds or a duration such as 15s expected, more than 0";
            Failure::Asked(format!("parameter `{name}`: {wanted}"))
        };
        found.map(Some).ok_or_else(wrong)
    }
}

fn no_time(name: &str) -> Failure {
    let wanted = "seconds since 1970, RFC 3339 or a time such as now-1h expected";
    Failure::Asked(format!("parameter `{name}`: {wanted}"))
}

/// The names and values of a form, or of what stands in a URL behind the question mark.
pub fn form_pairs(text: &[u8]) -> Vec<(String, String)> {
    let pairs = text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    let pair = |pair: &[u8]| {
        let mut parts = pair.splitn(2, |byte| *byte == b'=');
        let mut next = || decoded(parts.next().unwrap_or_default(), b' ');
        (next(), next())
    };
    pairs.map(pair).collect()
}

/// A text without its escapes; a plus stands for this byte.
fn decoded(text: &[u8], plus: u8) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let [first, tail @ ..] = rest {
        rest = tail;
        let hex = |byte: &u8| (*byte as char).to_digit(16).map(|digit| digit as u8);
        bytes.push(match (first, tail) {
            (b'+', _) => plus,
            (b'%', [high, low, after @ ..]) if hex(high).is_some() && hex(low).is_some() => {
                rest = after;
                hex(high).unwrap_or(0) * 16 + hex(low).unwrap_or(0)
            }
            _ => *first,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The label whose values a path asks for: as it is, with the escapes of URLs, or as Prometheus
/// writes a name that has more than letters, digits and underscores.
pub(super) fn label_of(path: &str) -> Option<String> {
    let name = path.strip_prefix("label/")?.strip_suffix("/values")?;
    let name = decoded(name.as_bytes(), b'+');
    Some(unescaped(&name).unwrap_or(name))
}

/// The name behind one of Prometheus' escaped names, `U__la_20_bel`: a character is its number in
/// hexadecimal digits between underscores, and an underscore two of them. `None` for any other
/// text.
fn unescaped(name: &str) -> Option<String> {
    let mut rest = name.strip_prefix("U__")?;
    let mut plain = String::new();
    while let Some((before, behind)) = rest.split_once('_') {
        plain += before;
        let (digits, behind) = behind.split_once('_')?;
        match digits {
            "" => plain.push('_'),
            digits if digits.len() <= 6 => {
                plain.push(char::from_u32(u32::from_str_radix(digits, 16).ok()?)?);
            }
            _ => return None,
        }
        rest = behind;
    }
    Some(plain + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_found_in_a_path_however_it_is_written() {
        for (path, label) in [
            ("label/host/values", Some("host")),
            ("label/la%20bel/values", Some("la bel")),
            ("label/a+b/values", Some("a+b")),
            ("label/U__la_20_bel/values", Some("la bel")),
            ("label/U__a__b_2e_c/values", Some("a_b.c")),
            ("label/U___1F600_/values", Some("😀")),
            // What is no escape is a name.
            ("label/U__a_zz_b/values", Some("U__a_zz_b")),
            ("label/U__a_20/values", Some("U__a_20")),
            ("label/U__a_11FFFF_/values", Some("U__a_11FFFF_")),
            ("labels", None),
        ] {
            assert_eq!(label_of(path).as_deref(), label, "{path}");
        }
    }
}
