//! Building the map from the list of mutations, as far as it has not been built yet.
//!
//! A transaction that only writes never needs the map. Its mutations stand in a flat list; the
//! first read that may meet one of them folds the list into the map, later ones what was added
//! since.

use super::WriteMap;
use bytes::Bytes;
use plinth_types::{KeyRange, MutationList, MutationType};
use std::sync::Arc;

/// What stands before a mutation's parameters in the list: its kind and two lengths.
const MUTATION_HEADER: usize = 9;

/// A key that gets its versionstamp at commit: where its mutation stands in the list, and where the
/// key may end up.
#[derive(Clone, Debug)]
pub(crate) struct Stamped {
    pub(crate) offset: usize,
    pub(crate) range: KeyRange,
}

impl WriteMap {
    /// Applies the mutations from the offset `from` of the list on; gives the offset of its end.
    pub(crate) fn fold(
        &mut self,
        mutations: &MutationList,
        stamped: &[Stamped],
        from: usize,
    ) -> usize {
        // One copy of the bytes, shared by all keys and values of the map.
        let shared = Bytes::copy_from_slice(&mutations.as_bytes()[from..]);
        let mut offset = from;
        while let Some(mutation) = mutations.at(offset) {
            let (key_at, key_len) = (offset - from + MUTATION_HEADER, mutation.param1.len());
            let key = shared.slice(key_at..key_at + key_len);
            let value = shared.slice(key_at + key_len..key_at + key_len + mutation.param2.len());
            match mutation.kind {
                MutationType::ClearRange => self.clear(key, value),
                kind => {
                    if kind == MutationType::SetVersionstampedKey
                        && let Ok(at) =
                            stamped.binary_search_by_key(&offset, |stamped| stamped.offset)
                    {
                        self.make_unreadable(&stamped[at].range);
                    }
                    self.mutate(key, kind, value);
                }
            }
            offset += MUTATION_HEADER + key_len + mutation.param2.len();
        }
        offset
    }

    /// Makes a range unreadable. What was written in it before takes effect first, and leaves the
    /// map.
    fn make_unreadable(&mut self, range: &KeyRange) {
        if range.is_empty() {
            return;
        }
        let mut flushed = std::mem::take(Arc::make_mut(&mut self.flushed));
        self.emit(&range.begin, &range.end, &mut flushed);
        self.flushed = Arc::new(flushed);
        self.overwrite(range.begin.clone(), range.end.clone(), false, true);
    }
}
