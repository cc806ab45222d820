//! Building the map from the list of mutations, as far as it has not been built yet.
//!
//! A transaction that only writes never needs the map. Its mutations stand in a flat list; the first read that may
//! meet one of them folds the list into the map, later ones what was added since.

use super::WriteMap;
use bytes::Bytes;
use plinth_types::{KeyRange, MutationList, MutationType};
use std::sync::Arc;

/// A key that gets its versionstamp at commit: where its mutation stands in the list, and where the key may end up.
#[derive(Clone, Debug)]
pub(crate) struct Stamped {
    pub(crate) offset: usize,
    pub(crate) range: KeyRange,
}

impl WriteMap {
    /// Applies the mutations from the offset `from` of the list on; gives the offset of its end.
    pub(crate) fn fold(&mut self, mutations: &MutationList, stamped: &[Stamped], from: usize) -> usize {
        let mut offset = from;
        while let Some(mutation) = mutations.at(offset) {
            match mutation.kind {
                MutationType::ClearRange => self.clear(mutation.param1, mutation.param2),
                kind => {
                    if kind == MutationType::SetVersionstampedKey
                        && let Ok(at) = stamped.binary_search_by_key(&offset, |stamped| stamped.offset)
                    {
                        self.make_unreadable(&stamped[at].range);
                    }
                    self.mutate(mutation.param1, kind, Bytes::copy_from_slice(mutation.param2));
                }
            }
            offset += 9 + mutation.param1.len() + mutation.param2.len();
        }
        offset
    }

    /// Makes a range unreadable. What was written in it before takes effect first, and leaves the map.
    fn make_unreadable(&mut self, range: &KeyRange) {
        if range.is_empty() {
            return;
        }
        let mut flushed = std::mem::take(Arc::make_mut(&mut self.flushed));
        self.emit(&range.begin, &range.end, &mut flushed);
        self.flushed = Arc::new(flushed);
        self.overwrite(&range.begin, &range.end, false, true);
    }
}
