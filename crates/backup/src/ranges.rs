//! What a backup is of: ranges of keys, in order and without overlaps.

use plinth_types::{KeyRange, printable, system};

/// All that users wrote: the normal keys, time series, and what makes tenants of some of the normal
/// keys.
pub fn everything() -> Vec<KeyRange> {
    system::USERS.iter().map(|(begin, end)| KeyRange::new(*begin, *end)).collect()
}

/// What a backup is of, by the ranges that it says. One of everything from when series lay among
/// the normal keys doesn't name their place; nothing was there then, so it is of that, too.
pub(crate) fn meant(ranges: &[KeyRange]) -> Vec<KeyRange> {
    let all = everything();
    let before = [all[0].clone(), all[2].clone()];
    if *ranges == before { all } else { ranges.to_vec() }
}

/// Whether backups of these ranges are of the same keys.
pub(crate) fn are_same(one: &[KeyRange], other: &[KeyRange]) -> bool {
    one == other || meant(one) == meant(other)
}

/// Ranges for people: what everything is is called so.
pub fn show_ranges(ranges: &[KeyRange]) -> String {
    if meant(ranges) == everything() {
        return "everything".to_owned();
    }
    let shown = |range: &KeyRange| match range.begin.is_empty() {
        true => format!("up to {}", printable(&range.end)),
        false => format!("{} to {}", printable(&range.begin), printable(&range.end)),
    };
    format!("the keys {}", ranges.iter().map(shown).collect::<Vec<_>>().join(", and "))
}

/// Pairs of keys, with escapes.
pub(crate) fn json_of_ranges(ranges: &[KeyRange]) -> serde_json::Value {
    ranges.iter().map(|range| [printable(&range.begin), printable(&range.end)]).collect()
}

pub(crate) fn ranges_of_json(value: &serde_json::Value) -> Option<Vec<KeyRange>> {
    let bound = |range: &serde_json::Value, at: usize| printable::parse(range[at].as_str()?).ok();
    let range = |range| Some(KeyRange::new(bound(range, 0)?, bound(range, 1)?));
    value.as_array()?.iter().map(range).collect()
}
