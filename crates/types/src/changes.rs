//! Streams of changes: what is asked of one and what it answers, and the rows in which streams are
//! registered.
//!
//! ```text
//!   \xff/changes/stream/NAME          | format 1 | versionstamp 10 | id 8 | bound 8 | ranges ... |
//!   \xff/changes/acknowledged/ID      | version 8 |          the id big-endian, so that it sorts
//!   \xff/changes/last                 | id 8 |               the id that was given last
//! ```
//!
//! A client writes these rows in transactions of its own, and every node makes of them what its log
//! has to keep. Numbers in values are little-endian; the versionstamp is that of the registration,
//! so that its version is exact. Always: an id is given once, so a name that is registered anew is
//! another stream.

use crate::{
    Bytes, Error, KeyRange, MutationList, MutationType, RangeList, Result, Version, Versionstamp,
    system,
};

/// Prefix of all rows about streams.
pub const PREFIX: &[u8] = b"\xff/changes/";
/// The first key behind all rows about streams.
pub const PREFIX_END: &[u8] = b"\xff/changes0";
/// Prefix of registrations; the name follows.
pub const STREAM_PREFIX: &[u8] = b"\xff/changes/stream/";
/// The first key behind the registrations.
pub const STREAM_END: &[u8] = b"\xff/changes/stream0";
/// Prefix of acknowledged positions; the id follows.
pub const ACKNOWLEDGED_PREFIX: &[u8] = b"\xff/changes/acknowledged/";
/// The id that was given last.
pub const LAST_ID: &[u8] = b"\xff/changes/last";

/// Most bytes of a stream's name.
pub const MAX_NAME: usize = 255;
/// Most ranges of one stream.
pub const MAX_RANGES: usize = 100;
/// Most streams of a database.
pub const MAX_STREAMS: usize = 500;

const FORMAT: u8 = 1;
const STAMP: usize = 1;
const ID: usize = STAMP + Versionstamp::LEN;
const BOUND: usize = ID + 8;
const RANGES: usize = BOUND + 8;

/// What is read of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangesRequest {
    /// The stream's id.
    pub stream: u64,
    /// The first version that is wanted.
    pub from: Version,
    /// About how many bytes of mutations to give at most. A batch is given whole, however large it
    /// is.
    pub bytes: usize,
    /// Whether to wait, for a while, until there is something.
    pub wait: bool,
}

/// All mutations of one version that lie in a stream's ranges, in the order in which they took
/// effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeBatch {
    /// The version at which they were committed.
    pub version: Version,
    /// Versionstamps are filled in, atomic operations are operations, and clears are cut to the
    /// stream's ranges. Never empty.
    pub mutations: MutationList,
}

/// What a stream answers.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Changes {
    /// In the order of their versions, each version once.
    pub batches: Vec<ChangeBatch>,
    /// Everything up to here, from where it was asked for on, has been looked at. The next read
    /// goes on behind it.
    pub upto: Version,
    /// The newest version that the node which answered has applied.
    pub newest: Version,
}

impl ChangeBatch {
    /// A line of text for each mutation: the version, the kind, both parameters.
    pub fn text_lines(&self) -> String {
        let line = |mutation: crate::MutationRef<'_>| {
            let [one, two] = [mutation.param1, mutation.param2].map(crate::printable);
            format!("{} {} `{one}' `{two}'\n", self.version, kind_name(mutation.kind))
        };
        self.mutations.iter().map(line).collect()
    }

    /// A line of JSON for each mutation: `{"key":K,"type":T,"value":V,"version":N}`, with `"end"`
    /// in the place of the value where a range is cleared. Keys and values are as
    /// [`printable`](crate::printable()) writes them.
    ///
    /// ```
    /// # use plinth_types::{ChangeBatch, MutationList, MutationType};
    /// let mut mutations = MutationList::new();
    /// mutations.push(MutationType::Set, b"a\"", b"\xff");
    /// mutations.push(MutationType::ClearRange, b"b", b"c");
    /// let lines = ChangeBatch { version: 7, mutations }.json_lines();
    /// let set = r#"{"key":"a\"","type":"set","value":"\\xff","version":7}"#;
    /// let clear = r#"{"end":"c","key":"b","type":"clear_range","version":7}"#;
    /// assert_eq!(lines, format!("{set}\n{clear}\n"));
    /// ```
    pub fn json_lines(&self) -> String {
        // What is printable needs no other escapes.
        let text =
            |bytes: &[u8]| crate::printable(bytes).replace('\\', "\\\\").replace('"', "\\\"");
        let line = |mutation: crate::MutationRef<'_>| {
            let (kind, version) = (kind_name(mutation.kind), self.version);
            let (key, other) = (text(mutation.param1), text(mutation.param2));
            match mutation.kind {
                MutationType::ClearRange => format!(
                    "{{\"end\":\"{other}\",\"key\":\"{key}\",\"type\":\"{kind}\",\"version\":{version}}}\n"
                ),
                _ => format!(
                    "{{\"key\":\"{key}\",\"type\":\"{kind}\",\"value\":\"{other}\",\"version\":{version}}}\n"
                ),
            }
        };
        self.mutations.iter().map(line).collect()
    }
}

/// What people call a mutation of this kind: `set`, `clear_range`, `add`, `bytemin` ...
fn kind_name(kind: MutationType) -> String {
    match kind {
        MutationType::ClearRange => "clear_range".to_owned(),
        kind => format!("{kind:?}").to_lowercase(),
    }
}

impl Changes {
    /// Bytes of all mutations.
    pub fn bytes(&self) -> usize {
        self.batches.iter().map(|batch| batch.mutations.as_bytes().len()).sum()
    }
}

/// A stream, as its row says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamRow {
    /// The version at which it was registered: everything committed after it is in the stream.
    pub registered: Version,
    /// What names it for ever.
    pub id: u64,
    /// How many bytes of the log it may hold back; 0: a share of the free disk.
    pub bound: u64,
    /// The ranges, in order, without overlaps.
    pub ranges: Vec<KeyRange>,
}

impl StreamRow {
    /// The value to be written by a mutation that fills the versionstamp in: four bytes at its end
    /// say where.
    pub fn to_be_stamped(id: u64, bound: u64, ranges: &[KeyRange]) -> Vec<u8> {
        let mut list = RangeList::new();
        ranges.iter().for_each(|range| list.push(&range.begin, &range.end));
        let mut value = vec![FORMAT];
        value.extend_from_slice(&[0xff; Versionstamp::LEN]);
        value.extend_from_slice(&id.to_le_bytes());
        value.extend_from_slice(&bound.to_le_bytes());
        value.extend_from_slice(list.as_bytes());
        value.extend_from_slice(&(STAMP as u32).to_le_bytes());
        value
    }

    /// The row of the stream of this name with this value; its ranges are as [`ranges_of`] gives
    /// them.
    ///
    /// # Errors
    /// `file_corrupt` if it is none.
    pub fn of(name: &[u8], value: &[u8]) -> Result<Self> {
        let row = Self::decode(value)?;
        Ok(Self { ranges: ranges_of(name, row.ranges), ..row })
    }

    /// The row with this value, as it says itself.
    ///
    /// # Errors
    /// `file_corrupt` if it is none.
    pub fn decode(value: &[u8]) -> Result<Self> {
        let wrong =
            |what: String| Error::file_corrupt().with_detail(format!("row of a stream: {what}"));
        if value.first() != Some(&FORMAT) {
            return Err(wrong(format!("format {:?}, expected {FORMAT}", value.first())));
        }
        let short = || wrong(format!("{} bytes, expected {RANGES} at least", value.len()));
        let number =
            |at: usize| value.get(at..).and_then(|rest| rest.first_chunk::<8>()).ok_or_else(short);
        let registered = Version::from_be_bytes(*number(STAMP)?);
        let (id, bound) = (u64::from_le_bytes(*number(ID)?), u64::from_le_bytes(*number(BOUND)?));
        let ranges = RangeList::decode(value.get(RANGES..).ok_or_else(short)?.to_vec())?;
        let ranges: Vec<_> = ranges.iter().map(|range| range.to_range()).collect();
        let is_sorted = ranges.is_sorted_by(|one, next| one.end < next.begin);
        if ranges.is_empty() || ranges.len() > MAX_RANGES || !is_sorted {
            return Err(wrong(format!("{} ranges, out of order or too many", ranges.len())));
        }
        Ok(Self { registered, id, bound, ranges })
    }
}

/// The name of the stream of a second site begins so.
pub const SECOND_SITE_NAMES: &[u8] = b"\0dr/";

/// The ranges of a stream of this name: those that its row says, and the rest of what users write
/// besides where it is one of Plinth's own (its name begins with a zero byte) and has all normal
/// keys. What it is for, a backup or a second site, needs all of it; and rows that earlier programs
/// wrote say nothing of the place of series, or, of a backup, of tenants. A second site has to
/// know, too, whether what it follows is being brought into its first one, by a restore or a
/// migration.
pub fn ranges_of(name: &[u8], mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    let has_all_normal =
        |range: &KeyRange| range.begin.is_empty() && range.end[..] >= *system::NORMAL_END;
    if name.first() == Some(&0) && ranges.iter().any(has_all_normal) {
        ranges.extend(system::USERS.map(|(begin, end)| KeyRange::new(begin, end)));
        if name.starts_with(SECOND_SITE_NAMES) {
            let heads = [system::RESTORE_HEAD, system::MIGRATION_HEAD];
            ranges.extend(heads.map(KeyRange::single));
        }
    }
    union(ranges)
}

/// The key of a registration.
pub fn stream_key(name: &[u8]) -> Vec<u8> {
    [STREAM_PREFIX, name].concat()
}

/// The key of an acknowledged position.
pub fn acknowledged_key(id: u64) -> Vec<u8> {
    [ACKNOWLEDGED_PREFIX, &id.to_be_bytes()[..]].concat()
}

/// The number in a row that is one.
///
/// # Errors
/// `file_corrupt` if it is none.
pub fn number(value: &[u8]) -> Result<u64> {
    let bytes = value.first_chunk::<8>().filter(|_| value.len() == 8);
    bytes.map(|bytes| u64::from_le_bytes(*bytes)).ok_or_else(|| {
        Error::file_corrupt()
            .with_detail(format!("row of a stream: {} bytes, expected 8", value.len()))
    })
}

/// The same keys as ranges in order that neither overlap nor touch.
pub fn union(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort();
    let mut united: Vec<KeyRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match united.last_mut().filter(|last| range.begin <= last.end) {
            Some(last) => last.end = last.end.clone().max(range.end),
            None => united.push(range),
        }
    }
    united
}

/// What of these mutations lies in the ranges, which are in order and don't overlap.
pub fn cut<'a>(
    mutations: impl Iterator<Item = crate::MutationRef<'a>>,
    ranges: &[KeyRange],
    into: &mut MutationList,
) {
    for mutation in mutations {
        let at = ranges.partition_point(|range| range.end[..] <= *mutation.param1);
        let Some(first) = ranges.get(at) else { continue };
        if mutation.kind != MutationType::ClearRange {
            if first.begin[..] <= *mutation.param1 {
                into.push(mutation.kind, mutation.param1, mutation.param2);
            }
            continue;
        }
        if crate::planted!("a clear isn't cut to the ranges of a stream") {
            if first.begin[..] < *mutation.param2 {
                into.push(mutation.kind, mutation.param1, mutation.param2);
            }
            continue;
        }
        for range in ranges[at..].iter().take_while(|range| range.begin[..] < *mutation.param2) {
            let begin: &[u8] = mutation.param1.max(&range.begin);
            let end: &[u8] = mutation.param2.min(&range.end);
            into.push(mutation.kind, begin, end);
        }
    }
}

/// An owned key of a name's row without the prefix.
pub fn name_of(key: &[u8]) -> Option<Bytes> {
    key.strip_prefix(STREAM_PREFIX).map(Bytes::copy_from_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MutationRef;

    fn range(begin: &'static str, end: &'static str) -> KeyRange {
        KeyRange::new(begin, end)
    }

    #[test]
    fn the_bytes_of_a_row() {
        let mut value = StreamRow::to_be_stamped(7, 1 << 20, &[range("a", "b")]);
        assert_eq!(value.split_off(value.len() - 4), [1, 0, 0, 0]);
        value[STAMP..ID].copy_from_slice(Versionstamp::new(0x0102, 3).as_bytes());
        let stamp = [0, 0, 0, 0, 0, 0, 1, 2, 0, 3];
        let numbers = [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0];
        let ranges = [1, 0, 0, 0, 1, 0, 0, 0, b'a', b'b'];
        assert_eq!(value, [&[1][..], &stamp, &numbers, &ranges].concat());
        let row =
            StreamRow { registered: 0x0102, id: 7, bound: 1 << 20, ranges: vec![range("a", "b")] };
        assert_eq!(StreamRow::decode(&value), Ok(row));
        for len in 0..value.len() {
            assert_eq!(StreamRow::decode(&value[..len]), Err(Error::file_corrupt()), "{len}");
        }
        assert_eq!(acknowledged_key(258), b"\xff/changes/acknowledged/\0\0\0\0\0\0\x01\x02");
        assert_eq!(number(&[5, 0, 0, 0, 0, 0, 0, 0]), Ok(5));
        assert_eq!(number(&[5]), Err(Error::file_corrupt()));
    }

    #[test]
    fn ranges_become_a_union() {
        let ranges = vec![
            range("m", "p"),
            range("a", "c"),
            range("c", "d"),
            range("o", "z"),
            range("x", "b"),
        ];
        assert_eq!(union(ranges), [range("a", "d"), range("m", "z")]);
    }

    #[test]
    fn what_lies_in_the_ranges_is_kept_and_clears_are_cut() {
        let ranges = [range("b", "d"), range("f", "h"), range("m", "n")];
        let cut_to = |kind, param1: &'static str, param2: &'static str| {
            let mut kept = MutationList::new();
            let mutation =
                MutationRef { kind, param1: param1.as_bytes(), param2: param2.as_bytes() };
            cut([mutation].into_iter(), &ranges, &mut kept);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            kept.iter()
                .map(|it| format!("{}..{}", text(it.param1), text(it.param2)))
                .collect::<Vec<_>>()
        };
        assert_eq!(cut_to(MutationType::Set, "a", "1"), [""; 0]);
        assert_eq!(cut_to(MutationType::Set, "b", "1"), ["b..1"]);
        assert_eq!(cut_to(MutationType::Add, "d", "1"), [""; 0]);
        assert_eq!(cut_to(MutationType::Add, "g", "1"), ["g..1"]);
        assert_eq!(cut_to(MutationType::Set, "z", "1"), [""; 0]);
        assert_eq!(cut_to(MutationType::ClearRange, "a", "z"), ["b..d", "f..h", "m..n"]);
        assert_eq!(cut_to(MutationType::ClearRange, "c", "g"), ["c..d", "f..g"]);
        assert_eq!(cut_to(MutationType::ClearRange, "d", "f"), [""; 0]);
        assert_eq!(cut_to(MutationType::ClearRange, "m1", "m2"), ["m1..m2"]);
        assert_eq!(cut_to(MutationType::ClearRange, "n", "z"), [""; 0]);
    }
}
