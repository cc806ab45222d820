//! The primitives, which are those of `ring`: AES-256-GCM and HKDF with SHA-256.
//!
//! Two keys of the same secret for two purposes are derived under two names, so that what is
//! sealed for one is never opened for another. Nothing here decides on nonces: callers do, and
//! say why none comes twice. A key that was given is overwritten when it is let go; what `ring`
//! makes of it, for as long as it is used, it doesn't.

use super::key::BadKey;
use super::{Key, KeyId, NONCE_LEN, TAG_LEN};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use std::sync::Arc;
use zeroize::Zeroizing;

#[derive(Clone)]
pub(super) struct Secret(Arc<Zeroizing<[u8; Key::LEN]>>);

impl Secret {
    /// One whose bytes are filled in where they stay, unless there are none.
    #[expect(clippy::unnecessary_wraps, reason = "programs without encryption refuse")]
    pub fn filled(
        fill: impl FnOnce(&mut [u8; Key::LEN]) -> Option<()>,
    ) -> Result<Option<Self>, BadKey> {
        let mut secret = Arc::new(Zeroizing::new([0; Key::LEN]));
        let bytes: &mut Zeroizing<_> = Arc::make_mut(&mut secret);
        Ok(fill(bytes).map(|()| Self(secret)))
    }

    /// Which key it is, from what nobody gets back to it.
    pub fn id(&self) -> KeyId {
        let mut id = [0; KeyId::LEN];
        let name: [&[u8]; 1] = [b"plinth key id 1"];
        let derived = self
            .extracted(&[])
            .expand(&name, Length(KeyId::LEN))
            .and_then(|derived| derived.fill(&mut id));
        derived.expect("an id is no longer than HKDF gives");
        KeyId(id)
    }

    /// What seals the keys of files.
    pub fn wrapping(&self) -> FileKey {
        self.derived(&[], &[b"plinth files 1"])
    }

    pub(super) fn derived(&self, salt: &[u8], name: &[&[u8]]) -> FileKey {
        let key = self.extracted(salt).expand(name, &AES_256_GCM).map(UnboundKey::from);
        FileKey { key: LessSafeKey::new(key.expect("a key is no longer than HKDF gives")) }
    }

    fn extracted(&self, salt: &[u8]) -> Prk {
        Salt::new(HKDF_SHA256, salt).extract(&self.0[..])
    }
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Key {
    /// A key of the file with this salt, for a purpose that `name` says, for files whose key is no
    /// random one.
    pub fn derive(&self, salt: &[u8], name: &[&[u8]]) -> FileKey {
        self.secret.derived(salt, name)
    }
}

/// The key of one file.
pub struct FileKey {
    key: LessSafeKey,
}

impl FileKey {
    /// That of these bytes.
    pub(super) fn of(secret: &[u8; Key::LEN]) -> Option<Self> {
        let key = UnboundKey::new(&AES_256_GCM, secret).ok()?;
        Some(Self { key: LessSafeKey::new(key) })
    }

    /// Seals a body in place; gives the tag that belongs behind it. `about` is not sealed, and has
    /// to be the same when it is opened. No other body may be sealed with this nonce.
    pub fn seal(&self, nonce: [u8; NONCE_LEN], about: &[u8], body: &mut [u8]) -> [u8; TAG_LEN] {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(about), body);
        let tag = tag.expect("a body is far shorter than what AES-GCM may seal");
        tag.as_ref().try_into().expect("tags are as long as this")
    }

    /// Opens a body with its tag, in place; gives the length of what was sealed. `None` if this
    /// key, this nonce or `about` is another one than it was sealed with, or a bit has changed;
    /// the bytes are worth nothing then.
    pub fn open(&self, nonce: [u8; NONCE_LEN], about: &[u8], body: &mut [u8]) -> Option<usize> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.open_in_place(nonce, Aad::from(about), body).ok().map(|opened| opened.len())
    }

    /// The tag of a text that stays readable: nobody makes one without the key. For the nonce what
    /// [`FileKey::seal`] says holds.
    pub fn tag(&self, nonce: [u8; NONCE_LEN], about: &[u8], text: &[u8]) -> [u8; TAG_LEN] {
        self.seal(nonce, &[about, text].concat(), &mut [])
    }

    /// Gives the length of a text with its [tag](FileKey::tag) behind it, if that is the one.
    pub fn tagged(&self, nonce: [u8; NONCE_LEN], about: &[u8], body: &mut [u8]) -> Option<usize> {
        let len = body.len().checked_sub(TAG_LEN)?;
        let (text, tag) = body.split_at_mut(len);
        self.open(nonce, &[about, text].concat(), tag).map(|_| len)
    }
}
