//! Quotas: how much somebody may of what a server gives to all, as rows of the system's keys say.
//!
//! ## Role
//! Plain data and pure functions: a [`Quota`] sets [`Bounds`] to somebody ([`Whom`]); its row, and
//! its words (those of `plinth shell`). A server holds people to them, a shell writes the rows.
//!
//! ```text
//!   \xff/plinth/quotas/ | whom: kind 1, length 2, text      ──▶      format 1 | since 8 | { which 1, how much 8 }
//! ```
//!
//! ## Invariants
//! 1. Somebody has one row, whoever sets his quota and how often.
//! 2. A row that can't be read bounds nobody, unlike one of rights: a server that knows less than
//!    the one before it should slow nobody down for that.
//!
//! ## Not here
//! Who somebody is, and how he is held to it: the server.

use crate::rights::{Subject, put, take, word};
use crate::{Bytes, Error, Result, system};
use std::fmt;
use std::ops::RangeInclusive;

/// The first byte of a row's value.
const FORMAT: u8 = 1;
/// Bytes of the seconds since 1970 at which a quota was set, and of an amount.
const NUMBER: usize = 8;
/// Longest name of a tenant.
const MAX_TENANT: usize = 1_000;

/// Of what somebody has a bounded amount.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Of {
    /// Bytes of keys and values that reads answer, a second.
    Read,
    /// Bytes of keys and values that commits write, a second.
    Write,
    /// Connections of clients that are open.
    Connections,
    /// Watches that wait.
    Watches,
    /// Pinned snapshots that are held.
    Snapshots,
}

impl Of {
    /// All of them, in the order in which they are told.
    pub const ALL: [Self; 5] =
        [Self::Read, Self::Write, Self::Connections, Self::Watches, Self::Snapshots];

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Connections => "connections",
            Self::Watches => "watches",
            Self::Snapshots => "snapshots",
        }
    }

    /// Whether it is an amount of bytes a second.
    pub fn is_rate(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    fn letter(self) -> u8 {
        match self {
            Self::Read => b'r',
            Self::Write => b'w',
            Self::Connections => b'c',
            Self::Watches => b'k',
            Self::Snapshots => b's',
        }
    }

    /// What makes sense: with less than that nobody could do anything, or would be heard for hours.
    fn range(self) -> RangeInclusive<u64> {
        match self {
            Self::Read | Self::Write => 1_000..=1_000_000_000_000,
            Self::Connections => 1..=1_000_000_000,
            Self::Watches | Self::Snapshots => 0..=1_000_000_000,
        }
    }

    /// How an amount of it is said.
    pub fn told(self, amount: u64) -> String {
        if !self.is_rate() {
            return amount.to_string();
        }
        let exact = UNITS.iter().find(|(_, unit)| amount >= *unit && amount.is_multiple_of(*unit));
        let (name, unit) = exact.unwrap_or(&("B", 1));
        format!("{}{name}/s", amount / unit)
    }

    fn check(self, amount: u64) -> std::result::Result<u64, String> {
        let range = self.range();
        if range.contains(&amount) {
            return Ok(amount);
        }
        let [least, most] = [*range.start(), *range.end()].map(|bound| self.told(bound));
        Err(format!(
            "{} is from {least} to {most}, not {}; none takes the bound away",
            self.name(),
            self.told(amount)
        ))
    }

    fn parse(self, text: &str) -> std::result::Result<u64, String> {
        let said = if self.is_rate() { rate(text) } else { text.parse().ok() };
        let amount = said.ok_or_else(|| match self.is_rate() {
            true => format!(
                "{text:?} is no rate: bytes a second, as 10MB/s, 512KiB/s or 250000; or none"
            ),
            false => format!("{text:?} is no number of {}; none takes the bound away", self.name()),
        })?;
        self.check(amount)
    }
}

/// Units of bytes, the largest first; those that are told come before those that are read too.
const UNITS: [(&str, u64); 8] = [
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("kB", 1_000),
];

/// Bytes a second, with a unit or without.
fn rate(text: &str) -> Option<u64> {
    let text = text.strip_suffix("/s").unwrap_or(text);
    let units = UNITS.iter().chain(&[("KB", 1_000), ("B", 1)]);
    let found = units.filter_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)));
    // `B` is the end of all of them.
    let (digits, unit) = found.min_by_key(|(digits, _)| digits.len()).unwrap_or((text, 1));
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// How much somebody may; of what isn't named, as much as anybody.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Bounds([Option<u64>; Of::ALL.len()]);

impl Bounds {
    /// How much of it; `None` for no bound.
    pub fn get(&self, of: Of) -> Option<u64> {
        self.0[of as usize]
    }

    /// Bounds it, or doesn't any more.
    pub fn set(&mut self, of: Of, amount: Option<u64>) {
        self.0[of as usize] = amount;
    }

    /// Whether nothing is bounded.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// What is bounded, and how.
    pub fn iter(&self) -> impl Iterator<Item = (Of, u64)> {
        Of::ALL.into_iter().filter_map(|of| Some((of, self.get(of)?)))
    }

    /// The value of a row that was set at this time, in seconds since 1970.
    pub fn value(&self, since: u64) -> Vec<u8> {
        let mut value = vec![FORMAT];
        value.extend_from_slice(&since.to_le_bytes());
        for (of, amount) in self.iter() {
            value.push(of.letter());
            value.extend_from_slice(&amount.to_le_bytes());
        }
        value
    }

    /// What a row's value says; `None` if it can't be read, or makes no sense.
    pub fn decode(value: &[u8]) -> Option<Self> {
        let (format, rest) = value.split_first()?;
        let (_, mut rest) = rest.split_at_checked(NUMBER)?;
        if *format != FORMAT {
            return None;
        }
        let mut bounds = Self::default();
        while let Some((letter, behind)) = rest.split_first() {
            let of = Of::ALL.into_iter().find(|of| of.letter() == *letter)?;
            let (amount, behind) = behind.split_first_chunk::<NUMBER>()?;
            let amount = of.check(u64::from_le_bytes(*amount)).ok()?;
            if bounds.get(of).is_some() {
                return None;
            }
            bounds.set(of, Some(amount));
            rest = behind;
        }
        Some(bounds)
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> =
            self.iter().map(|(of, amount)| format!("{}={}", of.name(), of.told(amount))).collect();
        f.write_str(&words.join(" "))
    }
}

/// To whom a quota is set.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Whom {
    /// Everybody who has none of his own, each for himself.
    Each,
    /// All whom this means, together. Not [`Subject::Anybody`].
    User(Subject),
    /// All who use the keys of the tenant of this name.
    Tenant(Bytes),
}

impl Whom {
    /// Of what it can have a bounded amount.
    ///
    /// # Errors
    /// Why it can't.
    pub fn check(&self, of: Of) -> std::result::Result<(), String> {
        let why = match (self, of) {
            (Self::Tenant(_), Of::Connections) => {
                "a tenant has no connections: whoever uses it has"
            }
            (Self::Tenant(_), Of::Snapshots) => "a snapshot is of all keys, and no tenant's",
            (Self::User(Subject::Token(_)), Of::Connections) => {
                "a token is shown over a connection that is open by then: bound connections by certificate or address"
            }
            _ => return Ok(()),
        };
        Err(why.to_owned())
    }

    /// The key of its row.
    pub fn key(&self) -> Vec<u8> {
        let mut key = system::QUOTAS.0.to_vec();
        match self {
            Self::Each => Subject::Anybody.put(&mut key),
            Self::User(subject) => subject.put(&mut key),
            Self::Tenant(name) => {
                key.push(b'n');
                put(&mut key, name);
            }
        }
        key
    }

    /// Whose row has this key; `None` if it can't be read.
    pub fn decode(key: &[u8]) -> Option<Self> {
        let rest = key.strip_prefix(system::QUOTAS.0)?;
        let (whom, rest) = match rest.split_first()? {
            (b'n', rest) => {
                let (name, rest) = take(rest)?;
                (Self::Tenant(Bytes::copy_from_slice(name)), rest)
            }
            _ => match Subject::take(rest)? {
                (Subject::Anybody, rest) => (Self::Each, rest),
                (subject, rest) => (Self::User(subject), rest),
            },
        };
        let is_known = match &whom {
            Self::Tenant(name) => (1..=MAX_TENANT).contains(&name.len()),
            Self::Each | Self::User(_) => true,
        };
        (is_known && rest.is_empty() && whom.key() == key).then_some(whom)
    }

    /// Whom these words name, and what stands behind them.
    fn parse(words: &[Vec<u8>]) -> std::result::Result<(Self, &[Vec<u8>]), String> {
        let (kind, rest) = words.split_first().ok_or_else(|| format!("for whom? {WHO}"))?;
        let kind = String::from_utf8_lossy(kind).into_owned();
        if kind == "*" {
            return Ok((Self::Each, rest));
        }
        if !["cert", "token", "address", "user", "tenant"].contains(&kind.as_str()) {
            return Err(format!("{kind:?} names nobody: {WHO}"));
        }
        let (name, rest) = rest.split_first().ok_or_else(|| format!("which {kind}? {WHO}"))?;
        if kind == "tenant" {
            if !(1..=MAX_TENANT).contains(&name.len()) {
                return Err(format!("a tenant's name has 1 to {MAX_TENANT} bytes"));
            }
            return Ok((Self::Tenant(Bytes::copy_from_slice(name)), rest));
        }
        let text =
            std::str::from_utf8(name).map_err(|_| "who somebody is is said in UTF-8".to_owned())?;
        Ok((Self::User(Subject::parse(&kind, text)?), rest))
    }
}

/// How somebody is named.
const WHO: &str = "cert RULE, token CLAIM=VALUE, address IP[/BITS], user NAME, tenant NAME, or * for everybody who has none of his own";

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Each => f.write_str("*"),
            Self::User(subject) => write!(f, "{subject}"),
            Self::Tenant(name) => write!(f, "tenant {}", word(name)),
        }
    }
}

/// What words say of somebody's quota: `WHO [NAME=AMOUNT|NAME=none ...]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quota {
    /// Whose it is.
    pub whom: Whom,
    /// What is said of it, in order.
    pub changes: Vec<(Of, Option<u64>)>,
}

impl Quota {
    /// The one that these words say.
    ///
    /// # Errors
    /// `invalid_option_value`, with what is wrong with them.
    pub fn parse(words: &[Vec<u8>]) -> Result<Self> {
        Self::parsed(words).map_err(|why| Error::invalid_option_value().with_detail(why))
    }

    fn parsed(words: &[Vec<u8>]) -> std::result::Result<Self, String> {
        let (whom, words) = Whom::parse(words)?;
        let mut changes = Vec::<(Of, Option<u64>)>::new();
        for word in words {
            let word = String::from_utf8_lossy(word).into_owned();
            let names = Of::ALL.map(Of::name).join(", ");
            let (name, amount) = word.split_once('=').ok_or_else(|| {
                format!("{word:?} says no bound: NAME=AMOUNT, with a NAME of {names}")
            })?;
            let of = Of::ALL
                .into_iter()
                .find(|of| of.name() == name)
                .ok_or_else(|| format!("{name:?} is nothing that a quota bounds: {names}"))?;
            whom.check(of)?;
            if changes.iter().any(|(known, _)| *known == of) {
                return Err(format!("{name} is said twice"));
            }
            let amount = if amount == "none" { None } else { Some(of.parse(amount)?) };
            changes.push((of, amount));
        }
        Ok(Self { whom, changes })
    }

    /// What comes of somebody's bounds.
    pub fn change(&self, mut bounds: Bounds) -> Bounds {
        self.changes.iter().for_each(|(of, amount)| bounds.set(*of, *amount));
        bounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(text: &str) -> Result<Quota> {
        let words: Vec<_> = text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        Quota::parse(&words)
    }

    fn bounds(text: &str) -> Bounds {
        quota(text).unwrap().change(Bounds::default())
    }

    #[test]
    fn quotas_are_said_written_and_read() {
        for text in [
            "cert S.CN=till read=10MB/s write=1500B/s connections=10",
            "token sub=till,aud=plinth read=3MiB/s watches=0 snapshots=2",
            "address 10.0.0.0/8 write=1TB/s",
            "tenant app read=250kB/s watches=7",
            "* read=1GB/s write=2KiB/s connections=1000000000 watches=1 snapshots=1",
        ] {
            let quota = quota(text).unwrap();
            let bounds = quota.change(Bounds::default());
            assert_eq!(format!("{} {bounds}", quota.whom), text);
            let (key, value) = (quota.whom.key(), bounds.value(7));
            assert_eq!(Whom::decode(&key), Some(quota.whom.clone()), "{text}");
            assert_eq!(Bounds::decode(&value), Some(bounds), "{text}");
            for len in 0..key.len() {
                assert_eq!(Whom::decode(&key[..len]), None, "{text}, {len} bytes");
            }
            assert_eq!(Whom::decode(&[&key[..], b"x"].concat()), None);
            for len in (0..value.len()).filter(|len| *len < 9 || (len - 9) % 9 != 0) {
                assert_eq!(Bounds::decode(&value[..len]), None, "{text}, {len} bytes");
            }
        }
    }

    /// The example of docs/format/quotas.md.
    #[test]
    fn a_row_has_the_bytes_that_its_page_shows() {
        let quota = quota("cert S.CN=till read=10MB/s watches=5").unwrap();
        assert_eq!(quota.whom.key(), b"\xff/plinth/quotas/c\x00\x09S.CN=till");
        let mut value = b"\x01\x00\xf1\x53\x65\x00\x00\x00\x00".to_vec();
        value.extend_from_slice(
            b"r\x80\x96\x98\x00\x00\x00\x00\x00k\x05\x00\x00\x00\x00\x00\x00\x00",
        );
        assert_eq!(quota.change(Bounds::default()).value(1_700_000_000), value);
    }

    #[test]
    fn what_is_said_changes_that_and_leaves_the_rest() {
        let before = bounds("* read=10MB/s write=1MB/s watches=5");
        let after = quota("* read=none watches=6 snapshots=1").unwrap().change(before);
        assert_eq!(after, bounds("* write=1MB/s watches=6 snapshots=1"));
        let none = quota("* write=none watches=none snapshots=none").unwrap().change(after);
        assert!(none.is_empty());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_to_say_instead() {
        for (text, told) in [
            ("mytag read=1MB", "names nobody"),
            ("cert", "which cert?"),
            ("address 10.0.0.0/40 read=1MB", "is no address"),
            ("tenant  read=1MB", "1 to 1000 bytes"),
            ("* read", "says no bound"),
            ("* reads=1MB", "is nothing that a quota bounds: read, write"),
            ("* read=fast", "is no rate"),
            ("* read=-1", "is no rate"),
            ("* read=MB", "is no rate"),
            ("* read=99999999999TB", "is no rate"),
            ("* read=999", "from 1kB/s to 1TB/s"),
            ("* write=2TB/s", "from 1kB/s to 1TB/s"),
            ("* connections=0", "from 1 to"),
            ("* connections=1kB", "is no number of connections"),
            ("* read=1MB read=2MB", "said twice"),
            ("tenant app connections=3", "has no connections"),
            ("tenant app snapshots=3", "no tenant's"),
            ("token sub=a connections=3", "is shown over a connection"),
        ] {
            let error = quota(text).unwrap_err();
            assert_eq!(error.code(), crate::codes::INVALID_OPTION_VALUE);
            assert!(error.to_string().contains(told), "{text}: {error}");
        }
    }

    /// Rows of a later program's, or of nobody's.
    #[test]
    fn values_that_say_what_cannot_be_said_bound_nobody() {
        let good = bounds("* read=10MB/s").value(0);
        assert!(Bounds::decode(&good).is_some());
        let with = |at: usize, byte: u8| {
            let mut value = good.clone();
            value[at] = byte;
            Bounds::decode(&value)
        };
        assert_eq!(with(0, 2), None, "another format");
        assert_eq!(with(9, b'x'), None, "something else is bounded");
        assert_eq!(with(17, 0xff), None, "more than makes sense");
        let twice = [&good[..], &good[9..]].concat();
        assert_eq!(Bounds::decode(&twice), None);
        let nothing = bounds("* read=1kB").value(0).len();
        assert_eq!(nothing, 18);
    }

    #[test]
    fn rates_are_read_with_units_and_without() {
        let rates = [
            ("250000", 250_000),
            ("1kB/s", 1_000),
            ("1KB", 1_000),
            ("10MB/s", 10_000_000),
            ("2MiB", 2 << 20),
            ("5000B/s", 5_000),
        ];
        for (text, bytes) in rates {
            assert_eq!(rate(text), Some(bytes), "{text}");
        }
        for text in ["", "/s", "1 MB", "1.5MB", "1mb", "+1", "MB/s"] {
            assert_eq!(rate(text), None, "{text}");
        }
    }
}
