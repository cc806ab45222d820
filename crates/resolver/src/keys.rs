//! Keys in one growing buffer, each named by the offset at which it begins.

/// The keys of one generation. They are only ever added, and go away together.
///
/// Before its bytes a key has its length: one byte, or 255 and four bytes (little-endian) from 255 bytes on.
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
        let (length, rest) = self.bytes[at as usize..].split_first().expect("every key has its length");
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

/// The first eight bytes as a number that orders like them, zeros behind the end.
#[inline]
pub(crate) fn first_bytes(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let number = bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
            number.checked_shl(8 * (8 - bytes.len() as u32)).unwrap_or(0)
        }
    }
}
