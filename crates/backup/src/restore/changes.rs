//! What of the log comes on top of a snapshot: each file of rows gets what was committed after its
//! own version.

use super::Plan;
use crate::manifest::RowsFile;
use plinth_types::{KeyRange, MutationRef, MutationType, Version};

/// The versions of the files of a plan, by key.
pub(crate) struct Extents {
    extents: Vec<(KeyRange, Version)>,
    ranges: Vec<KeyRange>,
}

impl Extents {
    pub fn of(plan: &Plan) -> Self {
        let extent = |file: &RowsFile| (file.range.clone(), file.version);
        let mut extents: Vec<(KeyRange, Version)> = Vec::new();
        for (range, version) in plan.files.iter().map(extent) {
            // Most snapshots are of one version: one extent for each range, not one for each file.
            match extents.last_mut().filter(|last| last.1 == version && last.0.end == range.begin) {
                Some(last) => last.0.end = range.end,
                None => extents.push((range, version)),
            }
        }
        fill_gaps(&mut extents, &plan.ranges, plan.snapshot.header.from);
        Self { extents, ranges: plan.ranges.clone() }
    }

    /// Calls `each` with what of a mutation is to be applied.
    pub fn apply(
        &self,
        version: Version,
        mutation: MutationRef<'_>,
        each: &mut impl FnMut(MutationRef<'_>),
    ) {
        let at = self.extents.partition_point(|(extent, _)| extent.end[..] <= *mutation.param1);
        for (extent, snapshot) in &self.extents[at..] {
            let is_clear = mutation.kind == MutationType::ClearRange;
            let ends = match is_clear {
                true => *mutation.param2 <= extent.begin[..],
                false => *mutation.param1 < extent.begin[..],
            };
            if ends {
                return;
            }
            if version <= *snapshot
                && !plinth_types::planted!("a restore applies what its snapshot has")
            {
                if is_clear { continue } else { return }
            }
            for range in &self.ranges {
                let begin: &[u8] =
                    if range.begin > extent.begin { &range.begin } else { &extent.begin };
                let end: &[u8] = if range.end < extent.end { &range.end } else { &extent.end };
                if is_clear {
                    let (begin, end) = (begin.max(mutation.param1), end.min(mutation.param2));
                    if begin < end {
                        each(MutationRef { kind: mutation.kind, param1: begin, param2: end });
                    }
                } else if begin <= mutation.param1 && mutation.param1 < end {
                    return each(mutation);
                }
            }
            if !is_clear {
                return;
            }
        }
    }
}

/// What no file of a snapshot is of, and is restored nevertheless, had no rows when the snapshot
/// was begun, at `version`: the place of series, from when they lay among users' keys. All that the
/// log says of it is to be applied, the rows that were moved there before all.
fn fill_gaps(extents: &mut Vec<(KeyRange, Version)>, ranges: &[KeyRange], version: Version) {
    let mut gaps = Vec::new();
    for range in ranges {
        let mut begin = &range.begin;
        for (extent, _) in extents.iter() {
            let end = (&extent.begin).min(&range.end);
            if begin < end {
                gaps.push((KeyRange::new(begin.clone(), end.clone()), version));
            }
            begin = begin.max(&extent.end);
        }
        if *begin < range.end {
            gaps.push((KeyRange::new(begin.clone(), range.end.clone()), version));
        }
    }
    extents.append(&mut gaps);
    extents.sort_by(|(one, _), (other, _)| one.begin.cmp(&other.begin));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(begin: &str, end: &str) -> KeyRange {
        KeyRange::new(begin.as_bytes().to_vec(), end.as_bytes().to_vec())
    }

    #[test]
    fn what_no_file_is_of_gets_the_whole_log() {
        let mut extents = vec![(range("b", "d"), 7), (range("d", "f"), 8), (range("m", "p"), 7)];
        let whole = extents.clone();
        fill_gaps(&mut extents, &[range("b", "e"), range("n", "o")], 5);
        assert_eq!(extents, whole, "files are of all of it");
        fill_gaps(&mut extents, &[range("a", "c"), range("h", "k"), range("m", "q")], 5);
        let gaps: Vec<_> =
            extents.iter().filter(|extent| !whole.contains(extent)).cloned().collect();
        assert_eq!(gaps, [(range("a", "b"), 5), (range("h", "k"), 5), (range("p", "q"), 5)]);
        assert!(extents.is_sorted_by(|(one, _), (other, _)| one.end <= other.begin));
    }
}
