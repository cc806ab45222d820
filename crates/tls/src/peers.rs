//! `verify_peers`: what the other side's certificate must say beyond being signed by the right
//! authority.
//!
//! FoundationDB's words: alternatives divided by `|`, each a list of conditions divided by `,`. A
//! condition compares a field of the subject (`S.CN=shop`, or just `CN=shop`) or of the issuer
//! (`I.O=Authority`), or one of the subject's other names (`S.subjectAltName=DNS:db.example`), with
//! a text: `=` all of it, `>` its beginning, `<` its end. `Check.Valid=0` switches all checks off.
//! A backslash takes the meaning from the next character, or stands before two hexadecimal digits.
//! What can't be done is refused by name when the options are read, rather than taken for
//! fulfilled.

use crate::names::{Names, Other};
use plinth_types::{Error, Result};

/// All alternatives; none says that every certificate will do that the authorities signed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Peers {
    alternatives: Vec<Vec<Condition>>,
    unchecked: bool,
}

/// A rule for what somebody's certificate must say who was let in already: by another rule, for
/// others too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    peers: Peers,
}

impl Rule {
    /// The rule that these texts say, as those of
    /// [`TlsOptions::verify_peers`](crate::TlsOptions::verify_peers) do.
    ///
    /// # Errors
    /// `tls_error`, which names the condition that is not supported or makes no sense.
    pub fn parse(texts: &[String]) -> Result<Self> {
        Ok(Self { peers: Peers::parse(texts)? })
    }

    /// Whether everybody fulfils it: nothing is to be checked (`Check.Valid=0`), or one of its
    /// alternatives is empty.
    pub fn is_unchecked(&self) -> bool {
        let alternatives = &self.peers.alternatives;
        self.peers.is_unchecked()
            || alternatives.is_empty()
            || alternatives.iter().any(Vec::is_empty)
    }

    /// Whether a certificate (DER) fulfils it. None does, unless nothing at all is to be checked.
    ///
    /// # Errors
    /// `tls_error`, with what it does not say.
    pub fn check(&self, certificate: Option<&[u8]>) -> Result<()> {
        if self.peers.is_unchecked() {
            return Ok(());
        }
        let wrong = |why: String| Error::tls_error().with_detail(why);
        let certificate =
            certificate.ok_or_else(|| wrong("it shows no certificate, and must".to_owned()))?;
        self.peers
            .check(certificate)
            .map_err(|why| wrong(format!("its certificate is not wanted: {why}")))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Condition {
    place: Place,
    how: How,
    text: String,
    /// As it was given, for errors.
    words: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// A field of the subject, by the last number of its object identifier below 2.5.4.
    Subject(u8),
    Issuer(u8),
    Other(Other),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Whole,
    Beginning,
    End,
}

const FIELDS: [(&str, u8); 6] = [("CN", 3), ("C", 6), ("L", 7), ("ST", 8), ("O", 10), ("OU", 11)];

impl Peers {
    /// What the texts say, each of which may have alternatives.
    ///
    /// # Errors
    /// `tls_error`, which names the condition that is not supported or makes no sense.
    pub(crate) fn parse(texts: &[String]) -> Result<Self> {
        let mut peers = Self::default();
        for alternative in texts.iter().flat_map(|text| divide(text, '|')) {
            let mut conditions = Vec::new();
            for words in divide(alternative, ',').into_iter().filter(|words| !words.is_empty()) {
                match words.trim() {
                    "Check.Valid=0" => peers.unchecked = true,
                    "Check.Valid=1" | "Check.Unexpired=1" => {}
                    words => conditions.push(condition(words)?),
                }
            }
            peers.alternatives.push(conditions);
        }
        Ok(peers)
    }

    /// Whether nothing at all is to be checked.
    pub(crate) fn is_unchecked(&self) -> bool {
        self.unchecked
    }

    /// Whether a certificate (DER) says what one of the alternatives wants.
    ///
    /// # Errors
    /// What it does not say.
    pub(crate) fn check(&self, certificate: &[u8]) -> std::result::Result<(), String> {
        if self.alternatives.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let names = Names::of(certificate).ok_or("its names can't be read")?;
        let missing = |conditions: &Vec<Condition>| {
            conditions
                .iter()
                .find(|condition| !condition.holds(&names))
                .map(|missing| missing.words.clone())
        };
        let missing: Option<Vec<_>> = self.alternatives.iter().map(missing).collect();
        match missing {
            None => Ok(()),
            Some(missing) => Err(format!("verify_peers wants {}", missing.join(" or "))),
        }
    }
}

impl Condition {
    fn holds(&self, names: &Names) -> bool {
        let found: Vec<&str> = match self.place {
            Place::Subject(field) => field_of(&names.subject, field),
            Place::Issuer(field) => field_of(&names.issuer, field),
            Place::Other(kind) => names
                .others
                .iter()
                .filter(|(of, _)| *of == kind)
                .map(|(_, name)| name.as_str())
                .collect(),
        };
        found.into_iter().any(|name| match self.how {
            How::Whole => name == self.text,
            How::Beginning => name.starts_with(&self.text),
            How::End => name.ends_with(&self.text),
        })
    }
}

fn field_of(fields: &[(u8, String)], wanted: u8) -> Vec<&str> {
    fields.iter().filter(|(field, _)| *field == wanted).map(|(_, text)| text.as_str()).collect()
}

fn condition(words: &str) -> Result<Condition> {
    let refuse =
        |why: &str| Err(Error::tls_error().with_detail(format!("verify_peers: {words:?} {why}")));
    let Some(at) = words.find(['=', '<', '>']) else {
        return refuse("is no condition: FIELD=TEXT");
    };
    let (field, rest) = words.split_at(at);
    let how = match rest.as_bytes()[0] {
        b'>' => How::Beginning,
        b'<' => How::End,
        _ => How::Whole,
    };
    let value = rest[1..].strip_prefix('=').filter(|_| how != How::Whole).unwrap_or(&rest[1..]);
    let Some(value) = unescape(value) else { return refuse("ends in the middle of an escape") };
    let named =
        |name: &str| FIELDS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    let subject =
        field.strip_prefix("S.").or_else(|| field.strip_prefix("Subject.")).unwrap_or(field);
    let issuer = field.strip_prefix("I.").or_else(|| field.strip_prefix("Issuer."));
    let made =
        |place, text: &str| Ok(Condition { place, how, text: text.into(), words: words.into() });
    match (issuer.and_then(named), named(subject)) {
        (Some(field), _) => return made(Place::Issuer(field), &value),
        (None, Some(field)) => return made(Place::Subject(field), &value),
        (None, None) => {}
    }
    if subject == "subjectAltName" {
        let kinds = [
            ("DNS:", Other::Dns),
            ("EMAIL:", Other::Email),
            ("URI:", Other::Uri),
            ("IP:", Other::Ip),
        ];
        for (prefix, kind) in kinds {
            if let Some(text) = value.strip_prefix(prefix) {
                return made(Place::Other(kind), text);
            }
        }
        return refuse("is not supported: the name begins with DNS:, EMAIL:, URI: or IP:");
    }
    if field.starts_with("Check.") {
        return refuse(
            "is not supported: there are Check.Valid=0, Check.Valid=1 and Check.Unexpired=1",
        );
    }
    if field.starts_with("R.") || field.starts_with("Root.") {
        return refuse("is not supported: keep the authorities that are trusted in the CA file");
    }
    refuse(
        "is not supported: fields are CN, C, L, ST, O, OU and subjectAltName of S, and the first six of I",
    )
}

/// The parts of a text between dividers that no backslash stands before.
fn divide(text: &str, divider: char) -> Vec<&str> {
    let (mut parts, mut begin, mut escaped) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        if letter == divider && !escaped {
            parts.push(&text[begin..at]);
            begin = at + letter.len_utf8();
        }
        escaped = letter == '\\' && !escaped;
    }
    parts.push(&text[begin..]);
    parts
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let hexadecimal = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match hexadecimal.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[2..];
            }
            None => {
                let (second, behind) = rest.split_first()?;
                bytes.push(*second);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Peers> {
        Peers::parse(&[text.to_owned()])
    }

    fn one(text: &str) -> Condition {
        parse(text).unwrap().alternatives.remove(0).remove(0)
    }

    #[test]
    fn conditions_have_a_place_a_way_and_a_text() {
        let of = |text| {
            let Condition { place, how, text, .. } = one(text);
            (place, how, text)
        };
        assert_eq!(of("CN=shop"), (Place::Subject(3), How::Whole, "shop".into()));
        assert_eq!(of("S.O=XYZ\\, LLC"), (Place::Subject(10), How::Whole, "XYZ, LLC".into()));
        assert_eq!(of("Issuer.C=\\44E"), (Place::Issuer(6), How::Whole, "DE".into()));
        assert_eq!(of("S.CN>db-"), (Place::Subject(3), How::Beginning, "db-".into()));
        assert_eq!(of("S.CN<=.shop"), (Place::Subject(3), How::End, ".shop".into()));
        assert_eq!(
            of("S.subjectAltName=DNS:a"),
            (Place::Other(Other::Dns), How::Whole, "a".into())
        );
    }

    #[test]
    fn alternatives_are_divided_by_bars_and_checks_can_be_switched_off() {
        let peers = parse("CN=a,O=b|CN=c\\|d").unwrap();
        assert_eq!(peers.alternatives.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        assert!(!peers.is_unchecked() && parse("Check.Valid=0").unwrap().is_unchecked());
        assert_eq!(Peers::default().check(b"nonsense"), Ok(()));
        assert!(parse("CN=a").unwrap().check(b"nonsense").is_err());
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        for text in [
            "Check.Unexpired=0",
            "Root.CN=x",
            "R.CN=x",
            "S.XX=1",
            "S.subjectAltName=x",
            "nonsense",
            "CN=\\",
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                error.code() == 2107 && error.detail().unwrap().contains(&format!("{text:?}")),
                "{error}"
            );
        }
    }
}
