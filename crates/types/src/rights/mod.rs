//! Rights: who may do what in which part of a database, as rows of the system's keys say.
//!
//! ## Role
//! Plain data and pure functions: a [`Grant`] gives a [`Subject`] a [`Role`] in a [`Scope`]; its
//! row, its words (those of `plinth shell`), and in [`coverage`] what all of somebody's grants
//! together cover. A server judges requests by that, a shell writes the rows.
//!
//! ```text
//!   \xff/plinth/rights/grant/ | role 1 | subject: kind 1, length 2, text | scope: kind 1, fields: length 2, bytes each
//! ```
//! Lengths are big-endian. The key says everything; the value says since when, for people.
//!
//! ## Invariants
//! 1. Nobody has a right that no row gives. A row that can't be read gives none, and still counts
//!    as one: where there is any row, only rows say who may what.
//! 2. A grant has one row, whoever gives it and how often.
//!
//! ## Not here
//! Who somebody is (certificates, addresses): the server. Which keys a tenant has: its rows.
//! Read next: [`coverage`].

pub mod coverage;

pub use coverage::Coverage;

use crate::{Bytes, Error, KeyRange, Metrics, Result, printable, strinc, system};
use std::fmt;
use std::net::IpAddr;

/// Longest text of a subject.
const MAX_SUBJECT: usize = 1_000;
/// Longest text of metrics.
const MAX_METRIC: usize = 1_000;
/// How subjects are said.
const SUBJECTS: &str = "cert RULE, token CLAIM=VALUE, address IP[/BITS], user NAME, or anybody";

/// What somebody may do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// Read.
    Reader,
    /// Read and write.
    Writer,
    /// Everything, the system's keys and servers among it.
    Operator,
}

impl Role {
    const ALL: [(Self, u8, &'static str); 3] = [
        (Self::Reader, b'r', "reader"),
        (Self::Writer, b'w', "writer"),
        (Self::Operator, b'o', "operator"),
    ];

    fn letter(self) -> u8 {
        Self::ALL.iter().find(|known| known.0 == self).map_or(0, |known| known.1)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.iter().find(|known| known.0 == *self).map_or("", |known| known.2))
    }
}

/// Who somebody is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Subject {
    /// Whoever can connect.
    Anybody,
    /// Whoever shows a certificate that fulfils a rule, as `--tls-verify-peers` has them.
    Certificate(String),
    /// Whoever connects from an address that has these first bits.
    Address(IpAddr, u8),
    /// Whoever shows a token (JWT) that is believed and makes these claims: `CLAIM=VALUE,...`.
    Token(String),
    /// Whoever connects from the server's own machine as this user of it: his name, or his number.
    User(String),
}

impl Subject {
    /// The subject that two words say; the second one is empty for `anybody`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(kind: &str, text: &str) -> std::result::Result<Self, String> {
        if text.len() > MAX_SUBJECT {
            return Err(format!("a subject has at most {MAX_SUBJECT} bytes, not {}", text.len()));
        }
        match kind {
            "anybody" if text.is_empty() => Ok(Self::Anybody),
            "cert" if text.trim().is_empty() => {
                Err("which certificate? by a rule like S.CN=shop".to_owned())
            }
            "cert" => Ok(Self::Certificate(text.to_owned())),
            "token" if !text.split(',').all(is_condition) => Err(format!(
                "{text:?} says nothing of a token: CLAIM=VALUE, as sub=till, and more of them behind commas"
            )),
            "token" => Ok(Self::Token(text.to_owned())),
            "address" => address(text).ok_or_else(|| {
                format!("{text:?} is no address: IP, or IP/BITS for all that begin like it")
            }),
            "user" if !is_user(text) => Err(format!(
                "{text:?} is no user of a machine: a name without blanks and colons, or a number below 4294967295"
            )),
            "user" => Ok(Self::User(text.to_owned())),
            _ => Err(format!("{kind:?} names nobody: {SUBJECTS}")),
        }
    }

    /// Whether an address is meant.
    pub fn has_address(&self, address: IpAddr) -> bool {
        let Self::Address(known, bits) = self else { return false };
        let bits = u32::from(*bits);
        match (known, address.to_canonical()) {
            (IpAddr::V4(known), IpAddr::V4(address)) => {
                let differ = u32::from(*known) ^ u32::from(address);
                differ.leading_zeros() >= bits
            }
            (IpAddr::V6(known), IpAddr::V6(address)) => {
                let differ = u128::from(*known) ^ u128::from(address);
                differ.leading_zeros() >= bits
            }
            _ => false,
        }
    }

    /// Puts it behind what a row's key begins with.
    pub(crate) fn put(&self, key: &mut Vec<u8>) {
        key.push(match self {
            Self::Anybody => b'*',
            Self::Certificate(_) => b'c',
            Self::Address(..) => b'a',
            Self::Token(_) => b't',
            Self::User(_) => b'u',
        });
        put(key, self.words().1.as_bytes());
    }

    /// The one that a part of a row's key begins with, and what is behind it.
    pub(crate) fn take(key: &[u8]) -> Option<(Self, &[u8])> {
        let (kind, rest) = key.split_first()?;
        let (text, rest) = take(rest)?;
        let kind = match kind {
            b'*' => "anybody",
            b'c' => "cert",
            b'a' => "address",
            b't' => "token",
            b'u' => "user",
            _ => return None,
        };
        Some((Self::parse(kind, std::str::from_utf8(text).ok()?).ok()?, rest))
    }

    fn words(&self) -> (&'static str, String) {
        match self {
            Self::Anybody => ("anybody", String::new()),
            Self::Certificate(rule) => ("cert", rule.clone()),
            Self::Token(claims) => ("token", claims.clone()),
            Self::User(name) => ("user", name.clone()),
            Self::Address(address, bits) if *bits == most_bits(*address) => {
                ("address", address.to_string())
            }
            Self::Address(address, bits) => ("address", format!("{address}/{bits}")),
        }
    }
}

/// Whether a text says what a claim is to be.
fn is_condition(text: &str) -> bool {
    text.split_once('=').is_some_and(|(claim, value)| !claim.trim().is_empty() && !value.is_empty())
}

/// Whether a text names a user, or is the number of one, written as systems write it.
fn is_user(text: &str) -> bool {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = || text.parse::<u32>().ok().filter(|uid| *uid != u32::MAX);
    match text.is_empty() {
        true => false,
        false if is_number => number().is_some_and(|uid| uid.to_string() == text),
        false => !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == ':'),
    }
}

fn most_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn address(text: &str) -> Option<Subject> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse().ok()?)),
        None => (text, None),
    };
    // Somebody who connects is known by the canonical form of his address.
    let address: IpAddr = address.parse().ok()?;
    if address.to_canonical() != address {
        return None;
    }
    let bits = bits.unwrap_or(most_bits(address));
    (bits <= most_bits(address)).then_some(Subject::Address(address, bits))
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.words() {
            (kind, text) if text.is_empty() => f.write_str(kind),
            (kind, text) => write!(f, "{kind} {}", word(text.as_bytes())),
        }
    }
}

/// Bytes as a word of the shell's.
pub(crate) fn word(bytes: &[u8]) -> String {
    let text = printable(bytes).replace('"', "\\\"");
    let is_plain =
        !text.is_empty() && !text.contains([' ', ';', '"', '(', '\'']) && !text.starts_with('(');
    if is_plain { text } else { format!("\"{text}\"") }
}

/// Where somebody may do it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// All keys.
    All,
    /// The keys of a range.
    Range(KeyRange),
    /// The keys of a tenant.
    Tenant(Bytes),
    /// All time series, by the doors that they have: points in, and questions about them.
    Series,
    /// The time series of these metrics, by the same doors.
    Metric(Metrics),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Range(range) => match strinc(&range.begin).filter(|end| *end == range.end) {
                Some(_) => write!(f, "prefix {}", word(&range.begin)),
                None => write!(f, "range {} {}", word(&range.begin), word(&range.end)),
            },
            Self::Tenant(name) => write!(f, "tenant {}", word(name)),
            Self::Series => f.write_str("series"),
            Self::Metric(metrics) => write!(f, "metric {}", word(metrics.to_string().as_bytes())),
        }
    }
}

/// Somebody's role somewhere.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Grant {
    /// What he may.
    pub role: Role,
    /// Who.
    pub subject: Subject,
    /// Where.
    pub scope: Scope,
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.role, self.subject, self.scope)
    }
}

impl Grant {
    /// The grant that these words say: `ROLE SUBJECT [SCOPE]`.
    ///
    /// # Errors
    /// `invalid_option_value`, with what is wrong with them.
    pub fn parse(words: &[Vec<u8>]) -> Result<Self> {
        parse(words).map_err(|why| Error::invalid_option_value().with_detail(why))
    }

    /// Whether it makes somebody an operator.
    pub fn is_operator(&self) -> bool {
        self.role == Role::Operator
    }

    /// The key of its row.
    pub fn key(&self) -> Vec<u8> {
        let mut key = system::GRANTS.0.to_vec();
        key.push(self.role.letter());
        self.subject.put(&mut key);
        match &self.scope {
            Scope::All => key.push(b'*'),
            Scope::Range(range) => {
                key.push(b'r');
                put(&mut key, &range.begin);
                put(&mut key, &range.end);
            }
            Scope::Tenant(name) => {
                key.push(b't');
                put(&mut key, name);
            }
            Scope::Series => key.push(b's'),
            Scope::Metric(metrics) => {
                key.push(b'm');
                put(&mut key, metrics.to_string().as_bytes());
            }
        }
        key
    }

    /// The grant whose row has this key; `None` if it can't be read, or makes no sense: then it
    /// gives nothing.
    pub fn decode(key: &[u8]) -> Option<Self> {
        let (role, rest) = key.strip_prefix(system::GRANTS.0)?.split_first()?;
        let role = Role::ALL.iter().find(|known| known.1 == *role)?.0;
        let (subject, rest) = Subject::take(rest)?;
        let (kind, rest) = rest.split_first()?;
        let (scope, rest) = match kind {
            b'*' => (Scope::All, rest),
            b'r' => {
                let (begin, rest) = take(rest)?;
                let (end, rest) = take(rest)?;
                (range(begin, end).ok()?, rest)
            }
            b't' => {
                let (name, rest) = take(rest)?;
                (Scope::Tenant(Bytes::copy_from_slice(name)), rest)
            }
            b's' => (Scope::Series, rest),
            b'm' => {
                let (text, rest) = take(rest)?;
                (metric(text).ok()?, rest)
            }
            _ => return None,
        };
        let grant = Self { role, subject, scope };
        (rest.is_empty() && grant.check().is_ok() && grant.key() == key).then_some(grant)
    }

    fn check(&self) -> std::result::Result<(), String> {
        if self.is_operator() && self.scope != Scope::All {
            return Err("an operator has all of a database; a part of it has readers and writers"
                .to_owned());
        }
        Ok(())
    }
}

pub(crate) fn put(key: &mut Vec<u8>, bytes: &[u8]) {
    key.extend_from_slice(&u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes());
    key.extend_from_slice(bytes);
}

pub(crate) fn take(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

fn range(begin: &[u8], end: &[u8]) -> std::result::Result<Scope, String> {
    if begin >= end {
        return Err("the range is empty: it begins where it ends, or behind that".to_owned());
    }
    if end > system::NORMAL_END {
        return Err("a range ends at \\xff at most: what is behind has operators alone".to_owned());
    }
    if begin.len() > crate::limits::KEY_SIZE || end.len() > crate::limits::KEY_SIZE {
        return Err(format!("a key has at most {} bytes", crate::limits::KEY_SIZE));
    }
    Ok(Scope::Range(KeyRange::new(Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end))))
}

fn metric(text: &[u8]) -> std::result::Result<Scope, String> {
    let text = std::str::from_utf8(text).map_err(|_| "a metric is said in UTF-8".to_owned())?;
    let metrics = Some(text).filter(|text| text.len() <= MAX_METRIC).and_then(Metrics::parse);
    metrics.map(Scope::Metric).ok_or_else(|| {
    format!(
        "{text:?} is no metric: its name, or cpu.* for all that begin so, of {MAX_METRIC} bytes at most"
    )
})
}

fn parse(words: &[Vec<u8>]) -> std::result::Result<Grant, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut words = words.iter();
    let mut next = |what: &str| words.next().cloned().ok_or_else(|| format!("{what} is missing"));
    let role = text(&next("a role: reader, writer or operator,")?);
    let role = Role::ALL
        .iter()
        .find(|known| known.2 == role)
        .map(|known| known.0)
        .ok_or_else(|| format!("{role:?} is no role: reader, writer or operator"))?;
    let kind = text(&next(&format!("who: {SUBJECTS},"))?);
    let who = match kind.as_str() {
        "cert" | "token" | "address" | "user" => {
            String::from_utf8(next(&format!("which {kind},"))?)
                .map_err(|_| "who somebody is is said in UTF-8".to_owned())?
        }
        _ => String::new(),
    };
    let subject = Subject::parse(&kind, &who)?;
    let scope = match next("").as_deref().map(text) {
        Err(_) => Scope::All,
        Ok(kind) => match kind.as_str() {
            "all" => Scope::All,
            "series" => Scope::Series,
            "metric" => metric(&next("the metric")?)?,
            "prefix" => {
                let prefix = next("the prefix")?;
                let end = strinc(&prefix).unwrap_or_else(|| system::NORMAL_END.into());
                range(&prefix, &end)?
            }
            "range" => range(&next("the range's begin")?, &next("the range's end")?)?,
            "tenant" => Scope::Tenant(next("the tenant's name")?.into()),
            _ => {
                return Err(format!(
                    "{kind:?} is no part of a database: all, prefix KEY, range BEGIN END, tenant NAME, series, or metric NAME"
                ));
            }
        },
    };
    if let Ok(more) = next("") {
        return Err(format!("{:?} is one word too many", text(&more)));
    }
    let grant = Grant { role, subject, scope };
    grant.check().map(|()| grant)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(text: &str) -> Result<Grant> {
        let words: Vec<_> = text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        Grant::parse(&words)
    }

    #[test]
    fn grants_are_said_written_and_read() {
        for text in [
            "operator cert S.CN=admin all",
            "operator anybody all",
            "reader address 10.0.0.0/8 prefix shop/",
            "writer address ::1 range a bc",
            "writer cert S.O=Shop,S.CN>till- tenant shop",
            "writer address 10.0.0.0/8 series",
            "reader token sub=till,aud=plinth prefix shop/",
            "operator user postgres all",
            "writer user 1000 prefix shop/",
            "reader anybody metric cpu.*",
            "writer token sub=till metric shop.sales",
        ] {
            let grant = grant(text).unwrap();
            assert_eq!(grant.to_string(), text);
            assert_eq!(Grant::decode(&grant.key()), Some(grant.clone()), "{text}");
            for len in 0..grant.key().len() {
                assert_eq!(Grant::decode(&grant.key()[..len]), None, "{text}, {len} bytes");
            }
            assert_eq!(Grant::decode(&[&grant.key()[..], b"x"].concat()), None);
        }
        assert_eq!(grant("reader anybody").unwrap().scope, Scope::All);
    }

    /// The example of docs/format/rights.md.
    #[test]
    fn a_row_has_the_bytes_that_its_page_shows() {
        let key = grant("writer cert S.CN=till prefix shop/").unwrap().key();
        let rest = b"wc\x00\x09S.CN=tillr\x00\x05shop/\x00\x05shop0";
        assert_eq!(key, [&b"\xff/plinth/rights/grant/"[..], rest].concat());
        let key = grant("reader anybody metric cpu.*").unwrap().key();
        let rest = b"r*\x00\x00m\x00\x05cpu.*";
        assert_eq!(key, [&b"\xff/plinth/rights/grant/"[..], rest].concat());
        // Of a kind that is unknown here, it gives nothing: not all, and not all series.
        let unknown: Vec<u8> =
            key.iter().map(|byte| if *byte == b'm' { b'n' } else { *byte }).collect();
        assert_eq!(Grant::decode(&unknown), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_to_say_instead() {
        for (text, why) in [
            ("king anybody", "no role"),
            ("reader", "is missing"),
            ("reader cert", "is missing"),
            ("reader sailor x", "names nobody"),
            ("reader address 10.0.0.0/33", "no address"),
            ("reader address shop", "no address"),
            ("reader token till", "says nothing of a token"),
            ("reader token sub=till,", "says nothing of a token"),
            ("reader user", "is missing"),
            ("reader user a:b", "no user"),
            ("reader user 007", "no user"),
            ("reader user 4294967295", "no user"),
            ("reader anybody prefix", "is missing"),
            ("reader anybody range b a", "is empty"),
            ("reader anybody metric", "is missing"),
            ("reader anybody metric a*b", "no metric"),
            ("reader anybody metric a b", "too many"),
            ("operator anybody metric a", "all of a database"),
            ("reader anybody everything", "no part"),
            ("reader anybody all more", "too many"),
            ("operator anybody prefix a", "all of a database"),
        ] {
            let error = grant(text).unwrap_err();
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
        let words = [&b"reader"[..], b"anybody", b"range", b"a", b"\xff\x02"];
        let error = Grant::parse(&words.map(<[u8]>::to_vec)).unwrap_err();
        assert!(error.to_string().contains("at most"), "{error}");
        for (metric, why) in [
            (vec![b'a'; MAX_METRIC + 1], "1000 bytes"),
            (vec![], "no metric"),
            (vec![0xff], "UTF-8"),
        ] {
            let words = [b"reader".to_vec(), b"anybody".to_vec(), b"metric".to_vec(), metric];
            let error = Grant::parse(&words).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
        let longest = "x".repeat(MAX_SUBJECT);
        assert!(Subject::parse("user", &longest).is_ok());
        for kind in ["cert", "token", "user"] {
            let why = Subject::parse(kind, &format!("a={longest}")).unwrap_err();
            assert!(why.contains("at most 1000 bytes"), "{kind}: {why}");
        }
    }

    /// Whoever could write an operator of a range would have one of everything.
    #[test]
    fn a_row_that_says_what_cannot_be_said_gives_nothing() {
        let Grant { subject, .. } = grant("reader anybody").unwrap();
        let scope = range(b"a", b"b").unwrap();
        let grant = Grant { role: Role::Operator, subject: subject.clone(), scope };
        assert_eq!(Grant::decode(&grant.key()), None);
        let scope = Scope::Range(KeyRange::new(&b""[..], &b"\xff\xff"[..]));
        let grant = Grant { role: Role::Writer, subject: subject.clone(), scope };
        assert_eq!(Grant::decode(&grant.key()), None);
        let scope = metric(b"cpu").unwrap();
        let grant = Grant { role: Role::Operator, subject, scope };
        assert_eq!(Grant::decode(&grant.key()), None);
    }

    #[test]
    fn addresses_are_compared_by_their_first_bits() {
        let is = |rule: &str, address: &str| {
            Subject::parse("address", rule).unwrap().has_address(address.parse().unwrap())
        };
        assert!(is("10.1.0.0/16", "10.1.255.1") && !is("10.1.0.0/16", "10.2.0.1"));
        assert!(is("127.0.0.1", "127.0.0.1") && !is("127.0.0.1", "127.0.0.2"));
        assert!(is("127.0.0.1", "::ffff:127.0.0.1"), "the same machine over a socket of both");
        assert!(is("0.0.0.0/0", "1.2.3.4") && !is("0.0.0.0/0", "::1"));
        assert!(is("fd00::/8", "fd12::1") && !is("fd00::/8", "fe80::1"));
        assert!(!Subject::Anybody.has_address("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn words_can_be_read_back_by_a_shell() {
        assert_eq!(word(b"a b"), "\"a b\"");
        assert_eq!(word(b""), "\"\"");
        assert_eq!(word(b"(x"), "\"(x\"");
        assert_eq!(word(b"\x00\xff"), "\\x00\\xff");
        assert_eq!(word(b"a\"b"), "\"a\\\"b\"");
    }
}
