//! Encryption: the keys that people give, the key of each file, and how a file names whose it is.
//!
//! The key that somebody gives ([`Key`]) seals no rows. Each file has a random key of its own
//! ([`FileKey`], AES-256-GCM), which stands in the file, itself sealed by the given key: the
//! file's *envelope*. So a given key can be changed without a thought for what was sealed under
//! it, and what one file gives away says nothing of another.
//!
//! ```text
//!   given key ──HKDF──▶ wrapping key ──AES-256-GCM──▶ envelope   | key id | nonce | file's key, sealed |
//!                                                        │ what it is about: the file's header
//!                                                        ▼
//!                                                    file's key ──AES-256-GCM──▶ bodies
//! ```
//!
//! Always: no nonce is used twice under a file's key. Where each body is sealed once, and numbered,
//! the number is the nonce; where a place may be written again (the log), nonces are counted from
//! a random number of 96 bits ([`Nonces`]) and stand beside the body.
//!
//! Programs that are built without the feature `encryption` have no [`Key`], so nothing here is
//! ever done in them but to say so.

mod envelope;
mod key;
#[cfg(not(feature = "encryption"))]
#[path = "crypt/absent.rs"]
mod primitives;
#[cfg(feature = "encryption")]
#[path = "crypt/aes.rs"]
mod primitives;

pub use envelope::{Cipher, ENVELOPE_LEN, Keys, not_authentic};
pub use key::{BadKey, Key, KeyId, Nonces};
pub use primitives::FileKey;

/// Bytes that sealing adds to a body, behind it.
pub const TAG_LEN: usize = 16;
/// Bytes of a nonce.
pub const NONCE_LEN: usize = 12;

/// The nonce of a body that is sealed once in its file, and has this number there.
pub fn numbered(number: u64) -> [u8; NONCE_LEN] {
    let mut nonce = [0; NONCE_LEN];
    let (low, _) = nonce.split_at_mut(size_of::<u64>());
    low.copy_from_slice(&number.to_le_bytes());
    nonce
}
