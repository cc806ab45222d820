//! Encryption of blocks: AES-256-GCM, under a key of the file's own that the user's key and the
//! file's salt give.
//!
//! A file's key is used for that file alone, whose blocks are numbered: the number is the nonce,
//! and none is used twice. The file's name goes into the key, so that under another name its blocks
//! can't be opened.

use plinth_format::crypt;
use plinth_format::crypt::{Key, numbered};
use plinth_types::{Error, Result};

/// Bytes that sealing adds to a body.
pub(super) const TAG_LEN: usize = crypt::TAG_LEN;

/// The key that a key file holds: 32 bytes, or 64 hexadecimal digits.
///
/// # Errors
/// `client_invalid_operation` for anything else.
pub fn key_of_file(contents: &[u8]) -> Result<Key> {
    Key::of_file(contents)
        .map_err(|bad| Error::client_invalid_operation().with_detail(bad.to_string()))
}

/// The key of one file.
pub(super) struct FileKey {
    key: crypt::FileKey,
}

impl FileKey {
    /// Of the file with this salt, and what it says of itself.
    pub fn of(key: &Key, salt: &[u8; 32], info: &[u8]) -> Self {
        Self { key: key.derive(salt, &[b"plinth backup 1", info]) }
    }

    /// Seals what stands in `body`, with the tag behind it.
    pub fn seal(&self, number: u32, head: &[u8], body: &mut Vec<u8>) {
        let tag = self.key.seal(numbered(number.into()), head, body);
        body.extend_from_slice(&tag);
    }

    /// Opens it; `None` if it was not sealed by this key.
    pub fn open(&self, number: u32, head: &[u8], body: &mut Vec<u8>) -> Option<()> {
        let len = self.key.open(numbered(number.into()), head, body)?;
        body.truncate(len);
        Some(())
    }
}
