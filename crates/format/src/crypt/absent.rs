//! What stands for the primitives in programs that are built without them.
//!
//! There is no [`Secret`], so there is no key, and whatever takes one is never called. The types
//! say so: neither can be made.

use super::key::BadKey;
use super::{Key, KeyId, NONCE_LEN, TAG_LEN};
use std::convert::Infallible;

#[derive(Clone)]
pub(super) struct Secret {
    never: Infallible,
}

impl Secret {
    pub fn filled(
        fill: impl FnOnce(&mut [u8; Key::LEN]) -> Option<()>,
    ) -> Result<Option<Self>, BadKey> {
        if fill(&mut zeroize::Zeroizing::new([0; Key::LEN])).is_none() {
            return Ok(None);
        }
        let what = "this program is built without encryption: build it with the feature encryption";
        Err(BadKey::new(what))
    }

    pub fn id(&self) -> KeyId {
        match self.never {}
    }

    pub fn wrapping(&self) -> FileKey {
        match self.never {}
    }
}

/// The key of one file; in this program there is none.
pub struct FileKey {
    never: Infallible,
}

impl FileKey {
    /// That of these bytes.
    pub(super) fn of(_: &[u8; Key::LEN]) -> Option<Self> {
        None
    }

    /// Seals a body in place; gives the tag that belongs behind it.
    pub fn seal(&self, _: [u8; NONCE_LEN], _: &[u8], _: &mut [u8]) -> [u8; TAG_LEN] {
        match self.never {}
    }

    /// Opens a body with its tag, in place; gives the length of what was sealed.
    pub fn open(&self, _: [u8; NONCE_LEN], _: &[u8], _: &mut [u8]) -> Option<usize> {
        match self.never {}
    }

    /// The tag of a text that stays readable.
    pub fn tag(&self, _: [u8; NONCE_LEN], _: &[u8], _: &[u8]) -> [u8; TAG_LEN] {
        match self.never {}
    }

    /// Gives the length of a text with its tag behind it, if that is the one.
    pub fn tagged(&self, _: [u8; NONCE_LEN], _: &[u8], _: &mut [u8]) -> Option<usize> {
        match self.never {}
    }
}
