//! What stands behind the question mark of an address: names and values, percent-encoded.
//!
//! Keys are written as everywhere else in the product: printable characters as they are, `\xhh` for
//! other bytes.

use super::answer::Answer;
use plinth_types::printable;

/// Most parameters that are looked at.
const PARAMETERS: usize = 32;

/// Parameters in their order, decoded.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// # Errors
    /// `400` if an escape is broken, or what it spells is no text.
    pub(crate) fn parse(text: &str) -> Result<Self, Answer> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let decoded = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        });
        let pairs = decoded.collect::<Result<Vec<_>, Answer>>()?;
        if pairs.len() > PARAMETERS {
            return Err(Answer::bad_request("too many parameters"));
        }
        Ok(Self(pairs))
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The bytes that a parameter spells.
    ///
    /// # Errors
    /// `400` if its escapes are broken.
    pub(crate) fn key(&self, name: &str) -> Result<Option<Vec<u8>>, Answer> {
        self.text(name).map(|text| key(name, text)).transpose()
    }

    /// # Errors
    /// `400` if it is no number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Answer> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Answer::bad_request(&format!("{name} is a whole number, not {text:?}"))),
        }
    }

    /// # Errors
    /// `400` if it is neither `true` nor `false`.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Answer> {
        match self.text(name) {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1" | "") => Ok(true),
            Some(other) => {
                Err(Answer::bad_request(&format!("{name} is true or false, not {other:?}")))
            }
        }
    }
}

/// The bytes that `text` spells.
///
/// # Errors
/// `400` that names the parameter and says what is wrong.
pub(crate) fn key(name: &str, text: &str) -> Result<Vec<u8>, Answer> {
    printable::parse(text).map_err(|why| Answer::bad_request(&format!("{name}: {why}")))
}

/// The bytes that a piece of an address's path spells, in which `+` is one.
///
/// # Errors
/// `400` if its escapes are broken.
pub(crate) fn path_key(name: &str, text: &str) -> Result<Vec<u8>, Answer> {
    key(name, &decode(&text.replace('+', "%2B"))?)
}

fn decode(text: &str) -> Result<String, Answer> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                let digits = text
                    .get(at + 1..at + 3)
                    .filter(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()));
                let hex = digits.and_then(|hex| u8::from_str_radix(hex, 16).ok());
                let broken = || {
                    Answer::bad_request(
                        "a % in the address has no two hexadecimal digits behind it",
                    )
                };
                out.push(hex.ok_or_else(broken)?);
                at += 3;
                continue;
            }
            b'+' => out.push(b' '),
            other => out.push(other),
        }
        at += 1;
    }
    String::from_utf8(out).map_err(|_| {
        Answer::bad_request(
            "the address spells bytes that are no UTF-8; write them as \\xhh (percent-encoded: %5Cxhh)",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_once() {
        let query = Query::parse("a=x%20y+z&key=%5Cx00%5C%5C&empty=&flag&n=12").ok().unwrap();
        assert_eq!(query.text("a"), Some("x y z"));
        assert_eq!(query.key("key").ok().unwrap(), Some(b"\0\\".to_vec()));
        assert_eq!((query.text("empty"), query.text("missing")), (Some(""), None));
        assert!(query.flag("flag").ok().unwrap() && !query.flag("missing").ok().unwrap());
        assert_eq!(query.number("n").ok().unwrap(), Some(12));
        assert!(query.number("a").is_err() && query.flag("a").is_err());
    }

    #[test]
    fn broken_escapes_are_told() {
        for bad in ["a=%", "a=%4", "a=%zz", "%=b", "a=%ff", "a=%e2%82", "a=%+1", "a=%\u{e9}x"] {
            assert!(Query::parse(bad).is_err(), "{bad}");
        }
        assert!(Query::parse("key=%5Cx0").ok().unwrap().key("key").is_err());
        assert!(Query::parse(&"a&".repeat(PARAMETERS + 1)).is_err());
    }
}
