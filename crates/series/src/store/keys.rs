//! Which keys the layer writes: tuples under one prefix, by kind.
//!
//! All of a kind lies together, and within it all of a series, so a tree is a few short ranges and
//! a series goes with a few range clears.

use crate::error::{Error, Result};
use crate::name::Name;
use crate::record::Kind;
use crate::tree::{Address, Span};
use foundationdb_tuple::{Element, Subspace, TuplePack, Versionstamp};
use plinth_types::{Bytes, strinc, system};

/// The kinds of keys; their numbers are part of the format.
const FORMAT: i64 = 0;
const OWNER: i64 = 1;
const NEXT_ID: i64 = 2;
const NAME: i64 = 3;
const SERIES: i64 = 4;
const INDEX: i64 = 5;
const NODE: i64 = 6;
const TWIG: i64 = 7;
const SIDE: i64 = 8;
const MASK: i64 = 9;
const TAIL: i64 = 10;
const INBOX: i64 = 11;
const INBOX_SIZE: i64 = 12;
const COUNT: i64 = 13;
const LEASE: i64 = 14;
const KEPT: i64 = 15;
const MOVED: i64 = 16;
const PART: i64 = 17;
const MEMBER: i64 = 18;
const KEEPING: i64 = 19;
const ROLLED: i64 = 20;
const CHANGED: i64 = 21;
const DAMAGED: i64 = 22;
const ASIDE: i64 = 23;
const FORGOT: i64 = 24;
const RECORDS: i64 = 25;

/// What there is a list of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listing {
    /// All metrics.
    Metrics,
    /// The tags that series of a metric have.
    Tags {
        /// The metric.
        metric: String,
    },
    /// The values that a tag of a metric's series has.
    Values {
        /// The metric.
        metric: String,
        /// The tag.
        tag: String,
    },
}

/// Whose points are set aside, in the order in which they come back: what the inbox had is newer
/// than what the tail had.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Whose {
    /// A series whose name can't be read, by its number.
    Number(Id),
    Name(Name),
    /// Those of rows of the inbox that can't be read.
    Unknown,
}

impl Whose {
    /// What a series may be damaged as.
    pub(super) fn of(id: Id, name: &Name) -> [Self; 2] {
        [Self::Number(id), Self::Name(name.clone())]
    }

    fn element(&self) -> Element<'_> {
        match self {
            Self::Unknown => Element::Nil,
            Self::Number(id) => Element::Int(*id as i64),
            Self::Name(name) => Element::String(name.as_str().into()),
        }
    }
}

/// The keys under one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    under: Subspace,
}

/// The numbers of series.
pub(crate) type Id = u64;

impl Keys {
    pub(crate) fn new(prefix: &[u8]) -> Self {
        Self { under: Subspace::from_bytes(prefix) }
    }

    fn pack(&self, tuple: &impl TuplePack) -> Vec<u8> {
        self.under.pack(tuple)
    }

    /// Whether they lie among the system's keys.
    pub(crate) fn is_of_system(&self) -> bool {
        self.under.bytes() >= system::NORMAL_END
    }

    /// What all keys begin with, and the first key behind them.
    pub(crate) fn bounds(&self) -> (Bytes, Bytes) {
        let prefix = Bytes::copy_from_slice(self.under.bytes());
        let end = strinc(&prefix).unwrap_or_else(|| system::SYSTEM_END.into());
        (prefix, end)
    }

    /// The kinds whose rows are moved when series get another place: all but those that say what
    /// the place is, and whose.
    pub(crate) const MOVED_KINDS: [i64; 20] = [
        NEXT_ID, NAME, SERIES, INDEX, NODE, TWIG, SIDE, MASK, TAIL, INBOX, INBOX_SIZE, COUNT, KEPT,
        KEEPING, ROLLED, CHANGED, DAMAGED, ASIDE, FORGOT, RECORDS,
    ];

    /// What the keys of a kind begin with.
    pub(crate) fn all_of(&self, kind: i64) -> Vec<u8> {
        self.pack(&(kind,))
    }

    /// The key here of a row that lies at `key` there.
    pub(crate) fn instead_of(&self, there: &Self, key: &[u8]) -> Result<Vec<u8>> {
        let rest = key.strip_prefix(there.under.bytes()).ok_or_else(|| foreign(key))?;
        Ok([self.under.bytes(), rest].concat())
    }

    /// The key that says what became of the rows in the place that was before.
    pub(crate) fn moved(&self) -> Vec<u8> {
        self.pack(&(MOVED,))
    }

    /// The keys of one of the parts into which a place is divided.
    pub(crate) fn part(&self, number: usize) -> Self {
        Self { under: self.under.subspace(&(PART, number as u64)) }
    }

    /// The key of what says that somebody is there who would own parts.
    pub(crate) fn member(&self, name: &str) -> Vec<u8> {
        self.pack(&(MEMBER, name))
    }

    /// What the keys of all of those begin with.
    pub(crate) fn members(&self) -> Vec<u8> {
        self.pack(&(MEMBER,))
    }

    pub(crate) fn name_of_member(&self, key: &[u8]) -> Result<String> {
        self.under.unpack::<(i64, String)>(key).map(|tuple| tuple.1).map_err(|_| foreign(key))
    }

    pub(crate) fn format(&self) -> Vec<u8> {
        self.pack(&(FORMAT,))
    }

    pub(crate) fn owner(&self) -> Vec<u8> {
        self.pack(&(OWNER,))
    }

    pub(crate) fn lease(&self) -> Vec<u8> {
        self.pack(&(LEASE,))
    }

    /// What the keys of all that is kept under a name begin with.
    pub(crate) fn kept(&self, name: &str) -> Vec<u8> {
        self.pack(&(KEPT, name))
    }

    /// The key of a part of what is kept under a name.
    pub(crate) fn kept_part(&self, name: &str, part: u32) -> Vec<u8> {
        self.pack(&(KEPT, name, part))
    }

    /// What the keys of all that is kept begin with.
    pub(crate) fn all_kept(&self) -> Vec<u8> {
        self.pack(&(KEPT,))
    }

    pub(crate) fn name_of_kept(&self, key: &[u8]) -> Result<String> {
        self.under.unpack::<(i64, String, u32)>(key).map(|tuple| tuple.1).map_err(|_| foreign(key))
    }

    pub(crate) fn next_id(&self) -> Vec<u8> {
        self.pack(&(NEXT_ID,))
    }

    /// The key of how many series there are.
    pub(crate) fn count(&self) -> Vec<u8> {
        self.pack(&(COUNT,))
    }

    /// The key of how many series a metric has.
    pub(crate) fn count_of(&self, metric: &str) -> Vec<u8> {
        self.pack(&(COUNT, metric))
    }

    pub(crate) fn name(&self, name: &str) -> Vec<u8> {
        self.pack(&(NAME, name))
    }

    pub(crate) fn series(&self, id: Id) -> Vec<u8> {
        self.pack(&(SERIES, id))
    }

    /// What the keys of all names by number begin with.
    pub(crate) fn all_series(&self) -> Vec<u8> {
        self.pack(&(SERIES,))
    }

    pub(crate) fn id_of_series(&self, key: &[u8]) -> Result<Id> {
        self.under.unpack::<(i64, Id)>(key).map(|tuple| tuple.1).map_err(|_| foreign(key))
    }

    /// What the keys of a list's item begin with.
    fn listed(&self, listing: &Listing, item: &str) -> Vec<u8> {
        match listing {
            Listing::Metrics => self.pack(&(INDEX, item)),
            Listing::Tags { metric } => self.pack(&(INDEX, metric.as_str(), item)),
            Listing::Values { metric, tag } => {
                self.pack(&(INDEX, metric.as_str(), tag.as_str(), item))
            }
        }
    }

    /// What the keys of a list's items that begin with `prefix` begin with.
    pub(crate) fn listing_prefix(&self, listing: &Listing, prefix: &str) -> Vec<u8> {
        let mut key = self.listed(listing, prefix);
        // A text ends with a zero byte, which longer ones do not have there.
        key.pop();
        key
    }

    /// A key behind those of a list's item, and before those of longer items with a zero byte
    /// there, which go on with 0xff.
    pub(crate) fn behind(&self, listing: &Listing, item: &str) -> Vec<u8> {
        let mut key = self.listed(listing, item);
        key.push(0xfe);
        key
    }

    /// The item of a list to which a key of the index belongs.
    pub(crate) fn item_of_index(&self, key: &[u8], listing: &Listing) -> Result<String> {
        let unpacked = self.under.unpack::<(i64, String, String, String, Id)>(key);
        let (_, metric, tag, value, _) = unpacked.map_err(|_| foreign(key))?;
        Ok(match listing {
            Listing::Metrics => metric,
            Listing::Tags { .. } => tag,
            Listing::Values { .. } => value,
        })
    }

    /// One of the keys by which a series is found.
    pub(crate) fn index(&self, metric: &str, tag: &str, value: &str, id: Id) -> Vec<u8> {
        self.pack(&(INDEX, metric, tag, value, id))
    }

    /// What the keys of all series with this metric and tag begin with.
    pub(crate) fn index_of(&self, metric: &str, tag: &str, value: &str) -> Vec<u8> {
        self.pack(&(INDEX, metric, tag, value))
    }

    pub(crate) fn id_of_index(&self, key: &[u8]) -> Result<Id> {
        let unpacked = self.under.unpack::<(i64, String, String, String, Id)>(key);
        unpacked.map(|tuple| tuple.4).map_err(|_| foreign(key))
    }

    pub(crate) fn node(&self, id: Id, address: Address) -> Vec<u8> {
        self.pack(&(NODE, id, u32::from(address.level), address.index))
    }

    pub(crate) fn nodes(&self, id: Id) -> Vec<u8> {
        self.pack(&(NODE, id))
    }

    pub(crate) fn twig(&self, id: Id, address: Address) -> Vec<u8> {
        self.pack(&(TWIG, id, u32::from(address.level), address.index))
    }

    /// What the keys of the twigs of one level, or of all, begin with.
    pub(crate) fn twigs(&self, id: Id, level: Option<u8>) -> Vec<u8> {
        match level {
            Some(level) => self.pack(&(TWIG, id, u32::from(level))),
            None => self.pack(&(TWIG, id)),
        }
    }

    /// Whose a twig is, and of which node.
    pub(crate) fn of_twig(&self, key: &[u8]) -> Result<(Id, Address)> {
        let unpacked = self.under.unpack::<(i64, Id, u32, u64)>(key);
        let of = unpacked.ok().and_then(|(_, id, level, index)| {
            Some((id, Address { level: u8::try_from(level).ok()?, index }))
        });
        of.ok_or_else(|| foreign(key))
    }

    pub(crate) fn side(&self, id: Id, first: i64) -> Vec<u8> {
        self.pack(&(SIDE, id, first))
    }

    pub(crate) fn sides(&self, id: Id) -> Vec<u8> {
        self.pack(&(SIDE, id))
    }

    /// What the keys of all records of a kind begin with.
    pub(crate) fn all_records(&self, kind: Kind) -> Vec<u8> {
        self.pack(&(RECORDS, kind as u64))
    }

    /// What the keys of a series' records of a kind begin with.
    pub(crate) fn records(&self, kind: Kind, id: Id) -> Vec<u8> {
        self.pack(&(RECORDS, kind as u64, id))
    }

    /// The key of a row of such records, the first of which has this time.
    pub(crate) fn record_row(&self, kind: Kind, id: Id, first: i64) -> Vec<u8> {
        self.pack(&(RECORDS, kind as u64, id, first))
    }

    pub(crate) fn mask(&self, id: Id) -> Vec<u8> {
        self.pack(&(MASK, id))
    }

    pub(crate) fn tail(&self, number: u64) -> Vec<u8> {
        self.pack(&(TAIL, number))
    }

    pub(crate) fn tails(&self) -> Vec<u8> {
        self.pack(&(TAIL,))
    }

    /// The key of the rules about what is kept.
    pub(crate) fn keeping(&self) -> Vec<u8> {
        self.pack(&(KEEPING,))
    }

    /// The key of the time by which points went last that were too old.
    pub(crate) fn forgot(&self) -> Vec<u8> {
        self.pack(&(FORGOT,))
    }

    /// What the keys of all rollups of a rule begin with.
    pub(crate) fn rolled_by(&self, rule: u64) -> Vec<u8> {
        self.pack(&(ROLLED, rule))
    }

    /// What the keys of all rollups begin with.
    pub(crate) fn all_rolled(&self) -> Vec<u8> {
        self.pack(&(ROLLED,))
    }

    /// A key behind those of all rollups.
    pub(crate) fn behind_rolled(&self) -> Vec<u8> {
        strinc(&self.all_rolled()).map(|end| end.to_vec()).unwrap_or_default()
    }

    /// The rule of such a key.
    pub(crate) fn rule_of_rolled(&self, key: &[u8]) -> Result<u64> {
        let state = self.under.unpack::<(i64, u64, Id)>(key).map(|(_, rule, _)| rule);
        let row = || self.under.unpack::<(i64, u64, Id, i64)>(key).map(|(_, rule, ..)| rule);
        state.or_else(|_| row()).map_err(|_| foreign(key))
    }

    /// The key of how far a series is rolled up by a rule, with which those of its rows begin.
    pub(crate) fn rolled(&self, rule: u64, id: Id) -> Vec<u8> {
        self.pack(&(ROLLED, rule, id))
    }

    /// The key of a row of buckets, the first of which begins at a time.
    pub(crate) fn rolled_row(&self, rule: u64, id: Id, begin: i64) -> Vec<u8> {
        self.pack(&(ROLLED, rule, id, begin))
    }

    /// What the keys of all changes of a series' points begin with that its rollups don't have.
    pub(crate) fn changes(&self, id: Id) -> Vec<u8> {
        self.pack(&(CHANGED, id))
    }

    /// The key of such a change, of a kind: the first and the last time of what was changed.
    pub(crate) fn change(&self, id: Id, kind: u64, span: Span) -> Vec<u8> {
        self.pack(&(CHANGED, id, kind, span.first, span.last))
    }

    pub(crate) fn of_change(&self, key: &[u8]) -> Result<(u64, Span)> {
        let unpacked = self.under.unpack::<(i64, Id, u64, i64, i64)>(key);
        let (_, _, kind, first, last) = unpacked.map_err(|_| foreign(key))?;
        Ok((kind, Span { first, last }))
    }

    /// What the keys of the inbox's rows begin with.
    pub(crate) fn inbox(&self) -> Vec<u8> {
        self.pack(&(INBOX,))
    }

    /// The key of how many bytes the inbox's rows have.
    pub(crate) fn inbox_size(&self) -> Vec<u8> {
        self.pack(&(INBOX_SIZE,))
    }

    /// The key of a row as a transaction writes it: with room for its versionstamp.
    pub(crate) fn inbox_row(&self, number: u64) -> Vec<u8> {
        self.under.pack_with_versionstamp(&(INBOX, Versionstamp::incomplete(0), number))
    }

    /// The key that says that a series is damaged.
    pub(super) fn damaged(&self, whose: &Whose) -> Vec<u8> {
        self.pack(&(DAMAGED, whose.element()))
    }

    /// What the keys of all that are damaged begin with.
    pub(crate) fn all_damaged(&self) -> Vec<u8> {
        self.pack(&(DAMAGED,))
    }

    pub(super) fn whose_damage(&self, key: &[u8]) -> Result<Whose> {
        let unpacked = self.under.unpack::<(i64, Element<'_>)>(key).map_err(|_| foreign(key))?;
        match unpacked.1 {
            Element::Nil => Ok(Whose::Unknown),
            Element::Int(id) => Ok(Whose::Number(id as Id)),
            Element::String(name) => Name::parse(&name).map(Whose::Name).map_err(|_| foreign(key)),
            _ => Err(foreign(key)),
        }
    }

    /// The first key of what is set aside of somebody's points, and one behind the last.
    pub(super) fn aside(&self, whose: &Whose) -> (Vec<u8>, Vec<u8>) {
        let begin = self.pack(&(ASIDE, whose.element()));
        // Before those of names that go on with a zero byte there.
        let end = [&begin[..], &[0xfe]].concat();
        (begin, end)
    }

    /// The key of a row of it as a transaction writes it: with room for its versionstamp.
    pub(super) fn aside_row(&self, whose: &Whose, number: u64) -> Vec<u8> {
        let row = (ASIDE, whose.element(), Versionstamp::incomplete(0), number);
        self.under.pack_with_versionstamp(&row)
    }

    /// The key of a row of it that lies before those there are, the first of which has this key.
    /// Numbers come before versionstamps.
    pub(super) fn aside_before(&self, whose: &Whose, first: Option<&[u8]>, number: u64) -> Vec<u8> {
        let place = first.and_then(|key| {
            match self.under.unpack::<Vec<Element<'_>>>(key).ok()?.get(2)? {
                Element::Int(place) => Some(*place),
                _ => None,
            }
        });
        self.pack(&(ASIDE, whose.element(), place.unwrap_or_default().saturating_sub(1), number))
    }

    /// The key of a row of it that came out of the row of another key, with which this begins: it
    /// is the next one.
    pub(super) fn aside_behind(key: &[u8], number: u64) -> Vec<u8> {
        [key, &foundationdb_tuple::pack(&number)].concat()
    }

    pub(crate) fn number_of_tail(&self, key: &[u8]) -> Result<u64> {
        self.under.unpack::<(i64, u64)>(key).map(|tuple| tuple.1).map_err(|_| foreign(key))
    }
}

fn foreign(key: &[u8]) -> Error {
    Error::damaged("a key of the series", format!("{} is none", plinth_types::printable(key)))
}
