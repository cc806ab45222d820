//! Keys in one growing buffer, each named by the offset at which it begins.

/// The keys of one generation. They are only ever added, and go away together.
///
/// Before its bytes a key has its length: one byte, or 255 and four bytes (little-endian) from 255
/// bytes on.
pub(crate) struct Keys {
    bytes: Vec<u8>,
}

/// Where a key lies in [`Keys`].
pub(crate) type KeyAt = u32;

/// The length byte of keys whose length takes four bytes more.
const LONG: u8 = u8::MAX;

impl Keys {
    /// Where the empty key lies, always.
    pub(crate) const EMPTY: KeyAt = 0;

    /// A buffer that has the empty key only.
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0] }
    }

    /// Forgets all keys but the empty one and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(1);
    }

    /// Adds a copy of `key`.
    #[inline]
    pub(crate) fn push(&mut self, key: &[u8]) -> KeyAt {
        let at = self.bytes.len() as KeyAt;
        self.bytes.reserve(key.len() + 5);
        if key.len() < LONG as usize {
            self.bytes.push(key.len() as u8);
        } else {
            self.bytes.push(LONG);
            self.bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        }
        self.bytes.extend_from_slice(key);
        at
    }

    /// Takes the key at `at`, which is the last one added, back out.
    pub(crate) fn pop(&mut self, at: KeyAt) {
        self.bytes.truncate(at as usize);
    }

    /// The key at `at`, which came from [`Keys::push`].
    #[inline]
    pub(crate) fn get(&self, at: KeyAt) -> &[u8] {
        let (length, rest) =
            self.bytes[at as usize..].split_first().expect("every key has its length");
        if *length < LONG { &rest[..*length as usize] } else { Self::long(rest) }
    }

    #[cold]
    fn long(rest: &[u8]) -> &[u8] {
        let (length, rest) = rest.split_first_chunk().expect("a long key has four bytes of length");
        &rest[..u32::from_le_bytes(*length) as usize]
    }

    /// Bytes of keys and lengths so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}

/// How many bytes the two keys have in common at their beginnings.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The first eight bytes of `key` behind `depth` as a number that orders like them, zeros behind
/// the key's end.
///
/// `depth` is at most the key's length.
#[inline]
pub(crate) fn eight_bytes(key: &[u8], depth: usize) -> u64 {
    if let Some(bytes) = key[depth..].first_chunk() {
        return u64::from_be_bytes(*bytes);
    }
    // What is left is the end of the key's last eight bytes; short keys are rare.
    let end = key.last_chunk().map_or_else(|| short(key), |bytes| u64::from_be_bytes(*bytes));
    end.checked_shl(8 * (8 - (key.len() - depth) as u32)).unwrap_or(0)
}

/// The first sixteen bytes of `key` behind `depth`, likewise.
#[inline]
pub(crate) fn sixteen_bytes(key: &[u8], depth: usize) -> u128 {
    if let Some(bytes) = key[depth..].first_chunk() {
        return u128::from_be_bytes(*bytes);
    }
    let left = key.len() - depth;
    if let Some(bytes) = key.last_chunk() {
        return u128::from_be_bytes(*bytes).checked_shl(8 * (16 - left as u32)).unwrap_or(0);
    }
    let (high, low) = (eight_bytes(key, depth), eight_bytes(key, depth + left.min(8)));
    u128::from(high) << 64 | u128::from(low)
}

/// A key of less than eight bytes as a number.
fn short(key: &[u8]) -> u64 {
    key.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
