//! The keys that people give, and what is counted.
//!
//! A key comes from a file's bytes straight into the place where it stays, and that is overwritten
//! when it is let go. What is counted are nonces, of which none is taken twice.

use super::NONCE_LEN;
use super::primitives::Secret;
use std::fmt;

/// A key that somebody gives. What it is never shows in a debug print, and is overwritten in memory
/// when the last clone goes.
#[derive(Clone)]
pub struct Key {
    pub(super) secret: Secret,
}

/// Why something is no key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadKey {
    what: String,
}

impl BadKey {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for BadKey {}

impl Key {
    /// Bytes of a key.
    pub const LEN: usize = 32;

    /// The key that a key file holds: 32 bytes, or 64 hexadecimal digits.
    ///
    /// # Errors
    /// For anything else, and in programs that are built without encryption.
    pub fn of_file(contents: &[u8]) -> Result<Self, BadKey> {
        let found = contents.len();
        // Into its place at once: no other has a copy that stays when it is let go.
        let secret = Secret::filled(|secret| {
            raw(contents, secret).or_else(|| hexadecimal(contents.trim_ascii(), secret))
        })?;
        let secret = secret.ok_or_else(|| {
            BadKey::new(format!(
                "a key file holds 32 bytes or 64 hexadecimal digits, this one {found} bytes of something else; \
                 make one: head -c 32 /dev/urandom > FILE"
            ))
        })?;
        Ok(Self { secret })
    }
}

fn raw(contents: &[u8], secret: &mut [u8; Key::LEN]) -> Option<()> {
    let contents: &[u8; Key::LEN] = contents.try_into().ok()?;
    secret.copy_from_slice(contents);
    Some(())
}

fn hexadecimal(text: &[u8], secret: &mut [u8; Key::LEN]) -> Option<()> {
    let digits = text.chunks_exact(2);
    if text.len() != 2 * Key::LEN {
        return None;
    }
    for (byte, digits) in secret.iter_mut().zip(digits) {
        let digits = std::str::from_utf8(digits).ok()?;
        // A sign is no digit.
        let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        *byte = u8::from_str_radix(digits, 16).ok().filter(|_| is_hexadecimal)?;
    }
    Some(())
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// Which key it is: says nothing of what it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub(super) [u8; KeyId::LEN]);

impl KeyId {
    /// Bytes of it.
    pub const LEN: usize = 8;
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Nonces that nobody has used: counted from a random place among 2^96. Whoever writes takes one
/// for each try, so neither a write that failed nor a crash has one used again.
#[derive(Debug)]
pub struct Nonces {
    next: u128,
}

impl Nonces {
    /// From a place that is random.
    pub fn starting_at(random: [u8; NONCE_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = random;
        Self { next: u128::from_le_bytes([a, b, c, d, e, f, g, h, i, j, k, l, 0, 0, 0, 0]) }
    }

    /// The next.
    pub fn take(&mut self) -> [u8; NONCE_LEN] {
        let bytes = self.next.to_le_bytes();
        self.next = self.next.wrapping_add(1);
        bytes.first_chunk().copied().expect("sixteen bytes have twelve")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_are_counted_over_the_end_of_their_place() {
        let mut nonces = Nonces::starting_at([0xff; NONCE_LEN]);
        assert_eq!(nonces.take(), [0xff; NONCE_LEN]);
        assert_eq!(nonces.take(), [0; NONCE_LEN]);
        assert_eq!(nonces.take()[0], 1);
    }

    #[test]
    fn only_digits_are_digits() {
        let digits = "0123456789abcdefABCDEF0123456789".repeat(2);
        let hexadecimal = |text: &[u8]| super::hexadecimal(text, &mut [0; Key::LEN]);
        let raw = |contents: &[u8]| super::raw(contents, &mut [0; Key::LEN]);
        assert!(hexadecimal(digits.as_bytes()).is_some());
        for wrong in ["+1", "g0", " 1", "\u{e9}"] {
            let text = digits.replacen("01", wrong, 1);
            assert_eq!(hexadecimal(text.as_bytes()), None, "{wrong:?}");
        }
        assert_eq!((hexadecimal(b""), raw(&[7; 31])), (None, None));
        assert!(raw(&[7; 32]).is_some());
    }
}
