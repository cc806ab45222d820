//! What a backup is of: ranges of keys, in order and without overlaps.

use plinth_types::{KeyRange, printable, system};

/// Begin and end of the keys by which tenants are found: they are part of what users wrote.
pub(crate) const TENANTS: (&[u8], &[u8]) = (b"\xff/tenant/", b"\xff/tenant0");

/// All that users wrote: the normal keys, and what makes tenants of some of them.
pub fn everything() -> Vec<KeyRange> {
    let range = |begin: &'static [u8], end: &'static [u8]| KeyRange::new(begin, end);
    vec![range(b"", system::NORMAL_END), range(TENANTS.0, TENANTS.1)]
}

/// Ranges for people: what everything is is called so.
pub fn show_ranges(ranges: &[KeyRange]) -> String {
    if *ranges == everything()[..] {
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
