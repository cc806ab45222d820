//! A store that is too simple to be wrong: each key with all its versions.

use plinth_types::{
    KeySelector, KeySpace, MutationRef, MutationType, RangeRead, Version, atomic, key_after, system,
};
use std::collections::BTreeMap;

/// Versions in ascending order, each with the value from then on.
type History = Vec<(Version, Option<Vec<u8>>)>;

/// A row of a range.
pub type Row = (Vec<u8>, Vec<u8>);

/// A change as the `changed` callback tells of it.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// Keys, each with all that became of it: what is pinned may have left the window.
#[derive(Default)]
pub struct Model {
    keys: BTreeMap<Vec<u8>, History>,
}

/// What a range read must give.
#[derive(PartialEq, Eq, Debug)]
pub struct Expected {
    /// The rows in the order asked for.
    pub rows: Vec<Row>,
    /// As in `RangeResult`.
    pub more: bool,
    /// As in `RangeResult`.
    pub read_to_begin: bool,
    /// As in `RangeResult`.
    pub read_through_end: bool,
}

impl Model {
    /// An empty model.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a key at a version.
    pub fn get(&self, version: Version, key: &[u8]) -> Option<&[u8]> {
        let history = self.keys.get(key)?;
        let after = history.partition_point(|(written, _)| *written <= version);
        history[..after].last()?.1.as_deref()
    }

    /// Applies one mutation, and notes what changed.
    pub fn apply(
        &mut self,
        version: Version,
        mutation: &MutationRef<'_>,
        changes: &mut Vec<Change>,
    ) {
        let (key, operand) = (mutation.param1, mutation.param2);
        if mutation.kind == MutationType::ClearRange {
            if key >= operand {
                return;
            }
            let range = self.keys.range(key.to_vec()..operand.to_vec());
            let keys: Vec<_> = range.map(|(key, _)| key.clone()).collect();
            for key in keys {
                if self.get(version, &key).is_some() {
                    self.write(version, &key, None);
                    changes.push((key, None));
                }
            }
            return;
        }
        let existing = self.get(version, key);
        let existed = existing.is_some();
        let value = match mutation.kind {
            MutationType::Set => Some(operand.to_vec()),
            operation => {
                atomic::apply(operation, existing, operand).map(|value| value.into_owned())
            }
        };
        self.write(version, key, value.clone());
        if mutation.kind != MutationType::CompareAndClear || (existed && value.is_none()) {
            changes.push((key.to_vec(), value));
        }
    }

    fn write(&mut self, version: Version, key: &[u8], value: Option<Vec<u8>>) {
        let history = self.keys.entry(key.to_vec()).or_default();
        match history.last_mut() {
            Some((last, old)) if *last == version => *old = value,
            _ => history.push((version, value)),
        }
    }

    /// All rows at a version that the space shows.
    pub fn rows(&self, version: Version, space: KeySpace) -> Vec<Row> {
        let shown = self.keys.range(..space.end().to_vec());
        let row = |(key, _): (&Vec<u8>, _)| Some((key.clone(), self.get(version, key)?.to_vec()));
        shown.filter_map(row).collect()
    }

    /// The key that a selector describes among `rows`, and whether it ran over an end.
    pub fn resolve(rows: &[Row], space: KeySpace, selector: &KeySelector) -> (Vec<u8>, bool) {
        let key = if selector.or_equal { key_after(&selector.key) } else { selector.key.clone() };
        let base = rows.partition_point(|(row, _)| row[..] < key[..]) as i64 - 1;
        let at = base + i64::from(selector.offset);
        match usize::try_from(at) {
            Err(_) => (Vec::new(), true),
            Ok(at) if at < rows.len() => (rows[at].0.clone(), false),
            Ok(at) => (space.end().to_vec(), at > rows.len()),
        }
    }

    /// What a range read must give among `rows`.
    pub fn range(rows: &[Row], space: KeySpace, read: &RangeRead) -> Expected {
        let normal =
            |selector: &KeySelector| selector.clone().normalized().key.min(space.end().into());
        let (begin, read_to_begin) = Self::resolve(rows, space, &read.begin);
        let (end, read_through_end) = Self::resolve(rows, space, &read.end);
        let inverted =
            read.begin.offset >= read.end.offset && normal(&read.begin) >= normal(&read.end);
        let mut expected =
            Expected { rows: vec![], more: false, read_to_begin: false, read_through_end: false };
        if read.limit == 0 || inverted {
            return expected;
        }
        (expected.read_to_begin, expected.read_through_end) = (read_to_begin, read_through_end);
        let mut inside: Vec<&Row> =
            rows.iter().filter(|(key, _)| *key >= begin && *key < end).collect();
        if read.reverse {
            inside.reverse();
        }
        let mut bytes = 0;
        for (key, value) in inside {
            bytes += 8 + key.len() + value.len();
            expected.rows.push((key.clone(), value.clone()));
            expected.more = expected.rows.len() >= read.limit || bytes >= read.target_bytes;
            if expected.more {
                break;
            }
        }
        expected
    }

    /// Whether a point read may see a key.
    pub fn shows(space: KeySpace, key: &[u8]) -> bool {
        key < space.end() || key == system::METADATA_VERSION
    }
}
