//! Encryption of blocks: AES-256-GCM, under a key of the file's own that the user's key and the
//! file's salt give.
//!
//! A file's key is used for that file alone, whose blocks are numbered: the number is the nonce,
//! and none is used twice. The file's name goes into the key, so that under another name its blocks
//! can't be opened.

use plinth_types::{Error, Result};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use std::fmt;
use std::sync::Arc;

/// Bytes that sealing adds to a body.
pub(super) const TAG_LEN: usize = 16;

/// The key of a backup. What it is never shows in a debug print.
#[derive(Clone)]
pub struct Key {
    secret: Arc<[u8; Key::LEN]>,
}

impl Key {
    /// Bytes of a key.
    pub const LEN: usize = 32;

    /// The key that a key file holds: 32 bytes, or 64 hexadecimal digits.
    ///
    /// # Errors
    /// `client_invalid_operation` for anything else.
    pub fn of_file(contents: &[u8]) -> Result<Self> {
        if let Ok(secret) = <[u8; Self::LEN]>::try_from(contents) {
            return Ok(Self { secret: Arc::new(secret) });
        }
        let text = contents.trim_ascii();
        let refused = || {
            let found = contents.len();
            Error::client_invalid_operation().with_detail(format!(
                "a key file holds 32 bytes or 64 hexadecimal digits, this one {found} bytes of something else; \
                 make one: head -c 32 /dev/urandom > FILE"
            ))
        };
        if text.len() != 2 * Self::LEN {
            return Err(refused());
        }
        let mut secret = [0; Self::LEN];
        for (byte, digits) in secret.iter_mut().zip(text.chunks(2)) {
            let digit = |at: usize| char::from(digits[at]).to_digit(16);
            let (Some(high), Some(low)) = (digit(0), digit(1)) else { return Err(refused()) };
            *byte = (high * 16 + low) as u8;
        }
        Ok(Self { secret: Arc::new(secret) })
    }

    /// The key of a file.
    pub(super) fn for_file(&self, salt: &[u8; 32], info: &[u8]) -> FileKey {
        let extracted = Salt::new(HKDF_SHA256, salt).extract(&*self.secret);
        let parts = [&b"plinth backup 1"[..], info];
        let expanded =
            extracted.expand(&parts, &AES_256_GCM).expect("a key is no longer than HKDF gives");
        FileKey { key: LessSafeKey::new(UnboundKey::from(expanded)) }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// The key of one file.
pub(super) struct FileKey {
    key: LessSafeKey,
}

impl FileKey {
    /// Seals what stands in `body`, with the tag behind it.
    pub fn seal(&self, number: u32, head: &[u8], body: &mut Vec<u8>) {
        let sealed = self.key.seal_in_place_append_tag(nonce(number), Aad::from(head), body);
        sealed.expect("a block is far shorter than what AES-GCM may seal");
    }

    /// Opens it; `None` if it was not sealed by this key.
    pub fn open(&self, number: u32, head: &[u8], body: &mut Vec<u8>) -> Option<()> {
        let len = self.key.open_in_place(nonce(number), Aad::from(head), body).ok()?.len();
        body.truncate(len);
        Some(())
    }
}

fn nonce(number: u32) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}
