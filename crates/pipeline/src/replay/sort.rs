//! Sorting many keys that lie scattered in memory.
//!
//! Comparing two keys means fetching both. Instead each place carries a *head*, the eight bytes of
//! its key that follow what all keys have in common, as a number; sorting by heads stays within one
//! small array. Many are sorted byte by byte of their heads, from the last to the first, which
//! keeps the order of equals. Places with the same head are sorted among themselves by the bytes
//! that follow, in the same way.

/// Where a mutation is.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Place {
    head: u64,
    /// In which body, and where in it: ascending in the order of the mutations.
    pub at: (u32, u32),
}

impl Place {
    pub fn new(body: u32, offset: u32) -> Self {
        Self { head: 0, at: (body, offset) }
    }
}

/// As many places are sorted by their keys themselves.
const FEW: usize = 12;
/// As many are sorted byte by byte.
const MANY: usize = 1024;
const HEAD: usize = size_of::<u64>();

/// Sorts places, which are in the order of the mutations, by the keys that `key` gives for them;
/// those of one key stay in that order.
pub(super) fn by_key<'k>(places: &mut [Place], key: &impl Fn(&Place) -> &'k [u8]) {
    let mut spare = Vec::new();
    sort(places, &mut spare, 0, key);
}

/// Sorts places whose keys agree in `depth` bytes.
fn sort<'k>(
    places: &mut [Place],
    spare: &mut Vec<Place>,
    depth: usize,
    key: &impl Fn(&Place) -> &'k [u8],
) {
    if places.len() <= FEW {
        return compare(places, depth, key);
    }
    let depth = depth + common(places, depth, key);
    for place in &mut *places {
        place.head = head(key(place), depth);
    }
    match places.len() >= MANY {
        true => byte_by_byte(places, spare),
        false => places.sort_unstable_by_key(|place| (place.head, place.at)),
    }
    for run in places.chunk_by_mut(|a, b| a.head == b.head) {
        if run.len() == 1 {
            continue;
        }
        // Keys that have ended look like those that go on with zeros.
        match run.iter().all(|place| key(place).len() >= depth + HEAD) {
            true => sort(run, spare, depth + HEAD, key),
            false => compare(run, depth, key),
        }
    }
}

fn compare<'k>(places: &mut [Place], depth: usize, key: &impl Fn(&Place) -> &'k [u8]) {
    places.sort_unstable_by(|a, b| key(a)[depth..].cmp(&key(b)[depth..]).then(a.at.cmp(&b.at)));
}

/// Sorts by heads; equal ones stay in their order.
fn byte_by_byte(places: &mut [Place], spare: &mut Vec<Place>) {
    let mut counts = [[0_usize; 256]; HEAD];
    for place in &*places {
        for (counts, byte) in counts.iter_mut().zip(place.head.to_le_bytes()) {
            counts[usize::from(byte)] += 1;
        }
    }
    spare.clear();
    spare.extend_from_slice(places);
    let (mut from, mut to) = (&mut *places, &mut spare[..]);
    let mut is_in_spare = false;
    for (number, counts) in counts.iter_mut().enumerate() {
        if counts.contains(&from.len()) {
            continue;
        }
        let mut next = 0;
        for count in counts.iter_mut() {
            next += std::mem::replace(count, next);
        }
        assert_eq!(next, from.len(), "each place goes to one bucket");
        for place in &*from {
            let bucket = &mut counts[usize::from(place.head.to_le_bytes()[number])];
            to[*bucket] = *place;
            *bucket += 1;
        }
        std::mem::swap(&mut from, &mut to);
        is_in_spare = !is_in_spare;
    }
    if is_in_spare {
        to.copy_from_slice(from);
    }
}

/// How many bytes from `depth` on all keys have in common.
fn common<'k>(places: &[Place], depth: usize, key: &impl Fn(&Place) -> &'k [u8]) -> usize {
    let Some((first, rest)) = places.split_first() else { return 0 };
    let mut common = &key(first)[depth..];
    for place in rest {
        let other = &key(place)[depth..];
        if !other.starts_with(common) {
            let same = common.iter().zip(other).take_while(|(a, b)| a == b).count();
            common = &common[..same];
        }
    }
    common.len()
}

/// The eight bytes from `depth` on, as a number that compares as they do; zeros where the key has
/// ended.
fn head(key: &[u8], depth: usize) -> u64 {
    let rest = &key[depth..];
    match rest.first_chunk::<HEAD>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; HEAD];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    }
}
