//! The rows about streams, folded from mutations: pure.
//!
//! Kept as bytes, so that any mutation of them has the effect that it has in storage, whoever wrote
//! it. A row that is no row of a stream's is passed over, and told: nobody but a client with access
//! to the system's keys can have written it.

use plinth_types::changes::{
    self, ACKNOWLEDGED_PREFIX, PREFIX, PREFIX_END, STREAM_END, STREAM_PREFIX, StreamRow,
};
use plinth_types::{Bytes, MutationRef, MutationType, Version, atomic, printable};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A registration, and how far its consumer is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Registered {
    pub name: Bytes,
    pub row: StreamRow,
    /// At least the version of the registration.
    pub acknowledged: Version,
}

/// What a mutation has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Touched {
    /// How far the consumer of a stream is.
    Acknowledged(u64, Version),
    /// Which streams there are.
    Streams,
}

/// All rows about streams.
#[derive(Clone, Default, Debug)]
pub(crate) struct StreamRows {
    rows: BTreeMap<Bytes, Bytes>,
}

impl StreamRows {
    /// A row as storage has it.
    pub fn set(&mut self, key: &[u8], value: &[u8]) {
        self.rows.insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
    }

    /// Folds mutations in; gives what they changed.
    pub(super) fn fold_all<'a>(
        &mut self,
        mutations: impl Iterator<Item = MutationRef<'a>>,
    ) -> Vec<Touched> {
        let mut all: Vec<Touched> = Vec::new();
        for touched in mutations.filter_map(|mutation| self.fold(mutation)) {
            if all.last() != Some(&touched) {
                all.push(touched);
            }
        }
        all
    }

    fn fold(&mut self, mutation: MutationRef<'_>) -> Option<Touched> {
        let key = mutation.param1;
        if mutation.kind == MutationType::ClearRange {
            if key >= PREFIX_END || mutation.param2 <= PREFIX {
                return None;
            }
            let range = (Bound::Included(key), Bound::Excluded(mutation.param2));
            let cleared: Vec<_> =
                self.rows.range::<[u8], _>(range).map(|(key, _)| key.clone()).collect();
            cleared.iter().for_each(|key| drop(self.rows.remove(key)));
            return (!cleared.is_empty()).then_some(Touched::Streams);
        }
        if !key.starts_with(PREFIX) {
            return None;
        }
        let old = self.rows.get(key).cloned();
        match atomic::apply(mutation.kind, old.as_deref(), mutation.param2) {
            Some(value) => self.set(key, &value),
            None => drop(self.rows.remove(key)),
        }
        match key.strip_prefix(ACKNOWLEDGED_PREFIX).and_then(|id| id.first_chunk::<8>()) {
            Some(id) => {
                let id = u64::from_be_bytes(*id);
                Some(
                    self.acknowledged(id)
                        .map_or(Touched::Streams, |at| Touched::Acknowledged(id, at)),
                )
            }
            None if key.starts_with(STREAM_PREFIX) => Some(Touched::Streams),
            None => None,
        }
    }

    fn acknowledged(&self, id: u64) -> Option<Version> {
        let value = self.rows.get(&changes::acknowledged_key(id)[..])?;
        changes::number(value).ok().and_then(|version| Version::try_from(version).ok())
    }

    /// All streams.
    pub(super) fn registered(&self) -> Vec<Registered> {
        let rows = self
            .rows
            .range::<[u8], _>((Bound::Included(STREAM_PREFIX), Bound::Excluded(STREAM_END)));
        let mut registered: Vec<Registered> = Vec::new();
        for (key, value) in rows {
            let name = changes::name_of(key).unwrap_or_default();
            match StreamRow::of(&name, value) {
                Ok(row) if !registered.iter().any(|other| other.row.id == row.id) => {
                    let acknowledged = self
                        .acknowledged(row.id)
                        .map_or(row.registered, |at| at.max(row.registered));
                    registered.push(Registered { name, row, acknowledged });
                }
                Ok(_) => refuse(&name, "another stream has the same id"),
                Err(error) => refuse(&name, &error.to_string()),
            }
        }
        registered
    }
}

fn refuse(name: &[u8], why: &str) {
    tracing::warn!(stream = %printable(name), why, "a row that should register a stream of changes is none");
}
