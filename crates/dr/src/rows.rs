//! The rows that both databases keep about a second site: keys, and what is in their values.
//!
//! ```text
//!   first    \xff\x02/plinth/dr/from/TAG   | 1 | versionstamp 10 | JSON |  to whom; the stamp: when it began to be the first
//!   second   \xff\x02/plinth/dr/to/head    | 1 | JSON |                    what it follows, and what is wanted
//!            \xff\x02/plinth/dr/to/place   | 1 | flags | stream 8 | position 8 | rows 8 | bytes 8 | copied | round, if any |
//!            \xff\x02/plinth/dr/to/half    | as the first's record |             a restore or a migration into the first is unfinished there
//!            \xff\x02/plinth/dr/to/agent   | run 16 |                      who may write it
//!            \xff\x02/plinth/dr/to/beat    | holder 16 | count 8 | milliseconds 8 | version 8 | given up 1 | what went wrong |
//! ```
//! Numbers are little-endian. `docs/format/second-site.md` has the whole of it, and the tests here
//! the bytes.
//!
//! Always: what is read is checked; a row of another version of this program is refused with words,
//! not guessed at.

use plinth_types::{Bytes, Error, Result, Version, Versionstamp, system};
use serde_json::{Value, json};

/// The tag of a second site that nobody gave one.
pub const DEFAULT_TAG: &str = "default";

pub(crate) const HEAD: &[u8] = system::SECOND_SITE_HEAD;
pub(crate) const PLACE: &[u8] = system::SECOND_SITE_PLACE;
/// There while the second has a part of what something is bringing into the first.
pub(crate) const HALF: &[u8] = system::SECOND_SITE_HALF;
/// What the first notes of that: what its stream says of these is noted in [`HALF`].
pub(crate) const HEADS: [&[u8]; 2] = [system::RESTORE_HEAD, system::MIGRATION_HEAD];
pub(crate) const AGENT: &[u8] = b"\xff\x02/plinth/dr/to/agent";
pub(crate) const BEAT: &[u8] = b"\xff\x02/plinth/dr/to/beat";
/// Begin and end of what a second site keeps.
pub(crate) const SECOND: (&[u8], &[u8]) = (b"\xff\x02/plinth/dr/to/", b"\xff\x02/plinth/dr/to0");
/// Begin and end of what a first site keeps, a row for each tag.
pub(crate) const FIRST: (&[u8], &[u8]) = (b"\xff\x02/plinth/dr/from/", b"\xff\x02/plinth/dr/from0");
/// Written by an agent to the first, so that its log has an entry behind a version.
pub(crate) const NUDGE: &[u8] = b"\xff\x02/plinth/dr/nudge";

const FORMAT: u8 = 1;
const STAMP: usize = 1;
const BODY: usize = STAMP + Versionstamp::LEN;

/// What names a relation of two databases for ever, and its lock.
pub(crate) type Id = [u8; 16];

pub(crate) fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Id> {
    let mut id = Id::default();
    for (at, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    (text.len() == 32).then_some(id)
}

/// The name of the stream of a relation; users' streams don't begin with a zero byte.
pub(crate) fn stream_name(id: &Id) -> String {
    format!("\u{0}dr/{}", hex(id))
}

/// Where the first keeps to whom its changes go.
pub(crate) fn first_key(tag: &str) -> Vec<u8> {
    [FIRST.0, tag.as_bytes()].concat()
}

fn wrong(row: &str, what: &str) -> Error {
    Error::unsupported_operation().with_detail(format!(
        "row {row} of a second site: {what}; it was written by another version of this program, use that one"
    ))
}

/// What becomes of the rows of a second site that isn't whole, when it is made free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leftover {
    /// It is free with the rows that it has.
    Keep,
    /// It is free and empty.
    Clear,
}

/// What is wanted of a second site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// To follow.
    Following,
    /// To become the first, under the id that the other direction will have.
    Switching(Id),
    /// It was the first until it was locked, and follows as soon as the other has been unlocked.
    Waiting,
    /// To end, on both sides; what becomes of rows that are a part. Without that an older program
    /// has noted it, which would have looked first.
    Aborting(Option<Leftover>),
}

/// What a second site follows, and what is wanted of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub id: Id,
    pub tag: String,
    /// The identity of the first.
    pub from: String,
    pub wanted: Wanted,
    /// The id that the other direction had or will have, if there was or will be one: an end takes
    /// its stream away, too.
    pub other: Option<Id>,
    pub is_paused: bool,
    /// How much of the first's log may wait, if somebody has said so.
    pub log_bytes: Option<u64>,
}

impl Head {
    pub fn encode(&self) -> Vec<u8> {
        let wanted = match self.wanted {
            Wanted::Following => "following",
            Wanted::Switching(_) => "switching",
            Wanted::Waiting => "waiting",
            Wanted::Aborting(None) => "aborting",
            // A word of its own: who doesn't know of leftovers would clear what is to be kept.
            Wanted::Aborting(Some(_)) => "ending",
        };
        let leftover = match self.wanted {
            Wanted::Aborting(Some(Leftover::Keep)) => Some("keep"),
            Wanted::Aborting(Some(Leftover::Clear)) => Some("clear"),
            _ => None,
        };
        let next = match self.wanted {
            Wanted::Switching(next) => Some(hex(&next)),
            _ => None,
        };
        let fields = json!({
            "from": self.from,
            "id": hex(&self.id),
            "leftover": leftover,
            "log_bytes": self.log_bytes,
            "next": next,
            "other": self.other.map(|id| hex(&id)),
            "paused": self.is_paused,
            "tag": self.tag,
            "wanted": wanted,
        });
        [&[FORMAT][..], fields.to_string().as_bytes()].concat()
    }

    /// Whether the row is still of this relation, and the same is wanted.
    pub fn is_in(&self, row: Option<&Bytes>) -> Result<bool> {
        let found = row.map(|value| Self::decode(value)).transpose()?;
        Ok(found.is_some_and(|found| (found.id, found.wanted) == (self.id, self.wanted)))
    }

    pub fn decode(value: &[u8]) -> Result<Self> {
        let Some((&FORMAT, body)) = value.split_first() else {
            return Err(wrong("head", &format!("format {:?}, expected {FORMAT}", value.first())));
        };
        let fields: Value = serde_json::from_slice(body).unwrap_or_default();
        let id = |name: &str| fields[name].as_str().and_then(unhex);
        let leftover = match fields["leftover"].as_str() {
            Some("keep") => Some(Leftover::Keep),
            Some("clear") => Some(Leftover::Clear),
            _ => None,
        };
        let wanted = match fields["wanted"].as_str() {
            Some("following") => Wanted::Following,
            Some("switching") => {
                Wanted::Switching(id("next").ok_or_else(|| wrong("head", "no next id"))?)
            }
            Some("waiting") => Wanted::Waiting,
            Some("aborting") => Wanted::Aborting(leftover),
            Some("ending") if leftover.is_some() => Wanted::Aborting(leftover),
            other => return Err(wrong("head", &format!("{other:?} is wanted"))),
        };
        Ok(Self {
            id: id("id").ok_or_else(|| wrong("head", "no id"))?,
            tag: fields["tag"].as_str().unwrap_or(DEFAULT_TAG).to_owned(),
            from: fields["from"].as_str().unwrap_or_default().to_owned(),
            wanted,
            other: id("other"),
            is_paused: fields["paused"].as_bool().unwrap_or_default(),
            log_bytes: fields["log_bytes"].as_u64(),
        })
    }
}

/// To whom the changes of a first site go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct First {
    pub id: Id,
    /// The identity of the second.
    pub to: String,
    /// The version at which this one began to be the first; 0 if it was so already.
    pub since: Version,
}

impl First {
    fn body(&self) -> String {
        json!({ "id": hex(&self.id), "to": self.to }).to_string()
    }

    /// The value of one that is the first already.
    pub fn encode(&self) -> Vec<u8> {
        [&[FORMAT][..], &[0; Versionstamp::LEN], self.body().as_bytes()].concat()
    }

    /// The value to be written by a mutation that fills the versionstamp in.
    pub fn to_be_stamped(&self) -> Vec<u8> {
        [&self.encode()[..], &(STAMP as u32).to_le_bytes()].concat()
    }

    pub fn decode(value: &[u8]) -> Result<Self> {
        let stamp = value.get(STAMP..).and_then(|rest| rest.first_chunk::<8>());
        let (Some(&FORMAT), Some(stamp)) = (value.first(), stamp) else {
            return Err(wrong("from", &format!("format {:?}, expected {FORMAT}", value.first())));
        };
        let fields: Value = value
            .get(BODY..)
            .and_then(|body| serde_json::from_slice(body).ok())
            .unwrap_or_default();
        Ok(Self {
            id: fields["id"].as_str().and_then(unhex).ok_or_else(|| wrong("from", "no id"))?,
            to: fields["to"].as_str().unwrap_or_default().to_owned(),
            since: Version::from_be_bytes(*stamp),
        })
    }
}

/// Rows that were read at a version, and that the changes up to it are not applied to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Round {
    /// The keys from what is copied up to this one.
    pub upto: Bytes,
    pub version: Version,
}

/// How far the first copy is.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Copying {
    /// All keys before this one follow.
    pub copied: Bytes,
    pub round: Option<Round>,
}

/// What a second site holds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Place {
    /// The number of the first's stream.
    pub stream: u64,
    /// Everything up to this version of the first is in.
    pub position: Version,
    /// Rows of the first copy, so far.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// The first copy, if it isn't whole.
    pub copying: Option<Copying>,
}

const IS_COPYING: u8 = system::SECOND_SITE_IS_COPYING;
const HAS_ROUND: u8 = 2;

impl Place {
    /// The version of the first whose rows it has, if it is whole.
    pub fn whole_at(&self) -> Option<Version> {
        self.copying.is_none().then_some(self.position)
    }

    pub fn encode(&self) -> Vec<u8> {
        let round = self.copying.as_ref().and_then(|copying| copying.round.as_ref());
        let is_copying = if self.copying.is_some() { IS_COPYING } else { 0 };
        let mut value = vec![FORMAT, is_copying | if round.is_some() { HAS_ROUND } else { 0 }];
        for number in [self.stream, self.position as u64, self.rows, self.bytes] {
            value.extend_from_slice(&number.to_le_bytes());
        }
        let mut key = |key: &[u8]| {
            value.extend_from_slice(&(key.len() as u32).to_le_bytes());
            value.extend_from_slice(key);
        };
        if let Some(copying) = &self.copying {
            key(&copying.copied);
        }
        if let Some(round) = round {
            key(&round.upto);
            value.extend_from_slice(&round.version.to_le_bytes());
        }
        value
    }

    pub fn decode(value: &[u8]) -> Result<Self> {
        let (format, flags) = (value.first().copied(), value.get(1).copied().unwrap_or_default());
        if format != Some(FORMAT) || flags > (IS_COPYING | HAS_ROUND) {
            return Err(wrong(
                "place",
                &format!("format {format:?}, expected {FORMAT}, flags {flags}"),
            ));
        }
        let mut rest = value.get(2..).unwrap_or_default();
        let mut take = |len: usize| {
            let (taken, left) =
                rest.split_at_checked(len).ok_or_else(|| wrong("place", "it is too short"))?;
            rest = left;
            Ok::<_, Error>(taken)
        };
        let mut number =
            || Ok::<_, Error>(u64::from_le_bytes(take(8)?.try_into().unwrap_or_default()));
        let (stream, position, rows, bytes) =
            (number()?, number()? as Version, number()?, number()?);
        let mut key = || {
            let len = u32::from_le_bytes(take(4)?.try_into().unwrap_or_default());
            Ok::<_, Error>(Bytes::copy_from_slice(take(len as usize)?))
        };
        let mut copying = match flags & IS_COPYING {
            0 => None,
            _ => Some(Copying { copied: key()?, round: None }),
        };
        if let Some(copying) = copying.as_mut().filter(|_| flags & HAS_ROUND != 0) {
            let upto = key()?;
            let version = Version::from_le_bytes(take(8)?.try_into().unwrap_or_default());
            copying.round = Some(Round { upto, version });
        }
        if !rest.is_empty() {
            return Err(wrong("place", "it is too long"));
        }
        Ok(Self { stream, position, rows, bytes, copying })
    }
}

/// A sign of life of whoever works at it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Beat {
    /// The agent, whatever its run.
    pub holder: Id,
    pub count: u64,
    /// When, by the agent's clock: milliseconds since 1970.
    pub time: u64,
    /// The newest version of the first, then.
    pub newest: Version,
    /// The agent has ended for it, since no patience helps.
    pub is_given_up: bool,
    /// Why it gets no further, if it doesn't.
    pub problem: String,
}

impl Beat {
    pub fn encode(&self) -> Vec<u8> {
        let numbers = [self.count, self.time, self.newest as u64].map(u64::to_le_bytes).concat();
        [&self.holder[..], &numbers, &[u8::from(self.is_given_up)], self.problem.as_bytes()]
            .concat()
    }

    pub fn decode(value: &[u8]) -> Option<Self> {
        let (holder, rest) = value.split_first_chunk::<16>()?;
        let number = |at: usize| Some(u64::from_le_bytes(*rest.get(8 * at..)?.first_chunk::<8>()?));
        Some(Self {
            holder: *holder,
            count: number(0)?,
            time: number(1)?,
            newest: number(2)? as Version,
            is_given_up: *rest.get(24)? == 1,
            problem: String::from_utf8_lossy(rest.get(25..)?).into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_place() {
        let mut place = Place { stream: 7, position: 258, rows: 3, bytes: 40, copying: None };
        let numbers = |value: &mut Vec<u8>| {
            for number in [7_u64, 258, 3, 40] {
                value.extend_from_slice(&number.to_le_bytes());
            }
        };
        let mut whole = vec![1, 0];
        numbers(&mut whole);
        assert_eq!(place.encode(), whole);
        assert_eq!(place.whole_at(), Some(258));
        let round = Some(Round { upto: "bcd".into(), version: 259 });
        place.copying = Some(Copying { copied: "a".into(), round });
        let mut copying = vec![1, 3];
        numbers(&mut copying);
        copying.extend_from_slice(b"\x01\0\0\0a\x03\0\0\0bcd\x03\x01\0\0\0\0\0\0");
        assert_eq!(place.encode(), copying);
        assert_eq!(place.whole_at(), None);
        for value in [&whole, &copying] {
            assert_eq!(Place::decode(value).unwrap().encode(), *value);
            for len in 0..value.len() {
                assert_eq!(
                    Place::decode(&value[..len]),
                    Err(Error::unsupported_operation()),
                    "{len}"
                );
            }
            let long = [&value[..], &[0]].concat();
            assert_eq!(Place::decode(&long), Err(Error::unsupported_operation()));
        }
    }

    #[test]
    fn the_bytes_of_a_head() {
        let head = Head {
            id: [0x1a; 16],
            tag: "default".into(),
            from: "f0".into(),
            wanted: Wanted::Switching([2; 16]),
            other: Some([2; 16]),
            is_paused: false,
            log_bytes: Some(9),
        };
        let (one, two) = ("1a".repeat(16), "02".repeat(16));
        let text = format!(
            r#"{{"from":"f0","id":"{one}","leftover":null,"log_bytes":9,"next":"{two}","other":"{two}","paused":false,"tag":"default","wanted":"switching"}}"#
        );
        assert_eq!(head.encode(), [&[1][..], text.as_bytes()].concat());
        assert_eq!(Head::decode(&head.encode()), Ok(head.clone()));
        for (leftover, word, wanted) in [
            (Some(Leftover::Keep), "\"keep\"", "ending"),
            (Some(Leftover::Clear), "\"clear\"", "ending"),
            (None, "null", "aborting"),
        ] {
            let head = Head { wanted: Wanted::Aborting(leftover), ..head.clone() };
            let text = String::from_utf8(head.encode()).unwrap();
            assert!(text.contains(&format!("\"leftover\":{word},")), "{text}");
            assert!(text.ends_with(&format!("\"wanted\":\"{wanted}\"}}")), "{text}");
            assert_eq!(Head::decode(text.as_bytes()), Ok(head.clone()));
            // As it was noted for a while, and by nobody.
            let text = text.replace("ending", "aborting");
            assert_eq!(Head::decode(text.as_bytes()), Ok(head));
            let text = text.replace("aborting", "ending").replace(word, "\"burn\"");
            assert_eq!(Head::decode(text.as_bytes()), Err(Error::unsupported_operation()));
        }
        for value in [&b""[..], b"\x02{}", b"\x01{}", b"\x01"] {
            assert_eq!(Head::decode(value), Err(Error::unsupported_operation()));
        }
    }

    #[test]
    fn the_bytes_of_the_other_rows() {
        let first = First { id: [3; 16], to: "t0".into(), since: 0 };
        let text = format!(r#"{{"id":"{}","to":"t0"}}"#, "03".repeat(16));
        assert_eq!(first.encode(), [&[1][..], &[0; 10], text.as_bytes()].concat());
        let mut stamped = first.to_be_stamped();
        assert_eq!(stamped.split_off(stamped.len() - 4), [1, 0, 0, 0]);
        stamped[1..11].copy_from_slice(Versionstamp::new(258, 1).as_bytes());
        assert_eq!(First::decode(&stamped), Ok(First { since: 258, ..first }));
        assert_eq!(First::decode(b"\x01short"), Err(Error::unsupported_operation()));
        let beat = Beat {
            holder: [4; 16],
            count: 1,
            time: 2,
            newest: 3,
            is_given_up: true,
            problem: "no".into(),
        };
        let numbers = [1_u64, 2, 3].map(u64::to_le_bytes).concat();
        assert_eq!(beat.encode(), [&[4; 16][..], &numbers, b"\x01no"].concat());
        assert_eq!(Beat::decode(&beat.encode()), Some(beat));
        assert_eq!(Beat::decode(&[0; 40]), None);
        assert_eq!(first_key("a"), b"\xff\x02/plinth/dr/from/a");
        assert_eq!(stream_name(&[5; 16]), format!("\0dr/{}", "05".repeat(16)));
    }
}
