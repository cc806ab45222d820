//! Mutations from the map: as few as do the same as all that were made.
//!
//! Cleared ranges come first, merged where they touch, then the operations in key order.

use super::{Edge, Kind, WriteMap};
use plinth_types::{MutationList, MutationType, system};

impl WriteMap {
    /// All mutations, coalesced.
    pub(crate) fn mutations(&self) -> MutationList {
        let mut out = MutationList::new();
        out.append(&self.flushed);
        self.emit(b"", system::SYSTEM_END, &mut out);
        out
    }

    /// Adds the mutations of the keys from `begin` up to `end`.
    pub(super) fn emit(&self, begin: &[u8], end: &[u8], out: &mut MutationList) {
        let mut cleared_from: Option<Edge<'_>> = None;
        let clear = |from: Edge<'_>, to: &[u8], out: &mut MutationList| {
            let from = if from.cmp_key(begin).is_lt() { Edge::before(begin) } else { from };
            out.push(MutationType::ClearRange, &from.to_key(), to);
        };
        for segment in self.segments(begin, end) {
            match (segment.kind, cleared_from) {
                (Kind::Cleared, None) => cleared_from = Some(segment.begin),
                (Kind::Cleared, Some(_)) | (_, None) => {}
                (_, Some(from)) => {
                    clear(from, &segment.begin.to_key(), out);
                    cleared_from = None;
                }
            }
        }
        if let Some(from) = cleared_from {
            clear(from, end, out);
        }
        for segment in self.segments(begin, end) {
            let (Kind::Independent(operations) | Kind::Dependent(operations)) = segment.kind else {
                continue;
            };
            let key = segment.begin.key;
            for operation in operations.iter() {
                match &operation.value {
                    Some(value) => out.push(operation.kind, key, value),
                    None => {
                        out.push(MutationType::ClearRange, key, &Edge { key, after: true }.to_key())
                    }
                }
            }
        }
    }
}
