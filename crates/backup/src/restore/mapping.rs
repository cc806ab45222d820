//! Which keys are restored, and under which names.

use bytes::Bytes;
use plinth_types::{
    Error, KeyRange, MutationList, MutationRef, MutationType, Result, Rows, printable, strinc,
    system,
};

/// Ranges to restore, and what becomes of the keys' prefixes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Mapping {
    /// What is restored, by the names in the backup; all of it if there are none.
    pub ranges: Vec<KeyRange>,
    /// Taken away from the begin of each key, which has to have it.
    pub remove_prefix: Bytes,
    /// Put before each key then.
    pub add_prefix: Bytes,
}

impl Mapping {
    /// The ranges of the backup that are restored, of those that a snapshot has: in order, without
    /// overlaps.
    ///
    /// # Errors
    /// `client_invalid_operation` if some of them are in no range that it has, nothing is left, or
    /// a range has keys without the prefix that is to be removed.
    pub fn select(&self, has: &[KeyRange]) -> Result<Vec<KeyRange>> {
        let refuse = |what: String| Err(Error::client_invalid_operation().with_detail(what));
        let renames = !self.remove_prefix.is_empty() || !self.add_prefix.is_empty();
        let mut wanted = self.ranges.clone();
        if wanted.is_empty() {
            wanted = has.to_vec();
            // Tenants are found by rows that no prefix may come before.
            wanted.retain(|range| !renames || range.begin[..] < *system::NORMAL_END);
        }
        if let Some(lacking) = wanted.iter().find_map(|range| first_outside(range, has)) {
            return refuse(format!(
                "the backup is of {} alone: of the keys that are to be restored it hasn't those from {} on",
                crate::ranges::show_ranges(has),
                printable(&lacking)
            ));
        }
        let mut selected = Vec::new();
        for range in has {
            for wanted in &wanted {
                let begin = range.begin.clone().max(wanted.begin.clone());
                let end = range.end.clone().min(wanted.end.clone());
                if begin < end {
                    selected.push(KeyRange { begin, end });
                }
            }
        }
        selected.sort();
        let mut united = Vec::<KeyRange>::new();
        for range in selected {
            match united.last_mut().filter(|last| range.begin <= last.end) {
                Some(last) => last.end = last.end.clone().max(range.end),
                None => united.push(range),
            }
        }
        if united.is_empty() {
            return refuse("the backup has none of the ranges that are to be restored".into());
        }
        if !self.remove_prefix.is_empty() {
            let begin = self.remove_prefix.clone();
            let end = strinc(&begin).unwrap_or_else(|| Bytes::from_static(system::NORMAL_END));
            if self.ranges.is_empty() {
                let part = |range: &KeyRange| KeyRange {
                    begin: range.begin.clone().max(begin.clone()),
                    end: range.end.clone().min(end.clone()),
                };
                united = united.iter().map(part).filter(|range| !range.is_empty()).collect();
            }
            if let Some(range) = united.iter().find(|range| range.begin < begin || range.end > end)
            {
                return refuse(format!(
                    "{range:?} has keys without the prefix that is to be removed"
                ));
            }
        }
        Ok(united)
    }

    /// Whether keys keep their names.
    pub fn keeps_names(&self) -> bool {
        self.remove_prefix == self.add_prefix
    }

    /// The name of a key of a selected range.
    pub fn key(&self, key: &[u8]) -> Bytes {
        let rest = key.strip_prefix(&self.remove_prefix[..]).unwrap_or(key);
        [&self.add_prefix[..], rest].concat().into()
    }

    /// The name of the end of a selected range, which need not begin with the prefix.
    pub fn end(&self, end: &[u8]) -> Bytes {
        if end.starts_with(&self.remove_prefix) {
            return self.key(end);
        }
        strinc(&self.add_prefix).unwrap_or_else(|| Bytes::from_static(system::NORMAL_END))
    }

    /// The rows under their names.
    pub fn rows(&self, rows: Rows) -> Rows {
        if self.keeps_names() {
            return rows;
        }
        let mut renamed = Rows::builder();
        for (key, value) in rows.iter() {
            renamed.push(&self.key(key), value);
        }
        renamed.finish()
    }

    /// Adds a mutation under its name.
    pub fn push(&self, mutation: MutationRef<'_>, out: &mut MutationList) {
        if self.keeps_names() {
            return out.push(mutation.kind, mutation.param1, mutation.param2);
        }
        let key = self.key(mutation.param1);
        match mutation.kind {
            MutationType::ClearRange => out.push(mutation.kind, &key, &self.end(mutation.param2)),
            _ => out.push(mutation.kind, &key, mutation.param2),
        }
    }
}

/// The first key of a range that lies in none of these, which are in order.
fn first_outside(range: &KeyRange, has: &[KeyRange]) -> Option<Bytes> {
    let mut reached = range.begin.clone();
    for own in has {
        if own.begin <= reached && reached < own.end {
            reached = own.end.clone();
        }
    }
    (reached < range.end).then_some(reached)
}
