//! The envelope: a file's key as it stands in the file, sealed by a given key.
//!
//! ```text
//!   | PLNTHKEY | format | length | id of the given key | nonce | file's key, sealed | zeros | checksum |
//!     8          4        4        8                     12      48                   8       4
//! ```
//! The checksum is continued from the file's seed, and the key is sealed about the file's header:
//! an envelope of another file is not taken, nor one whose header was changed.

use super::primitives::FileKey;
use super::{Key, KeyId, NONCE_LEN, TAG_LEN};
use crate::corruption::Flaw;
use crate::field::{array_at, put};
use crate::header::{FIELDS, Form, HeaderFlaw};
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

const FORM: Form<ENVELOPE_LEN> = Form::new(*b"PLNTHKEY");
const FORMAT: u32 = 1;

const KEY_ID: usize = FIELDS;
const NONCE: usize = KEY_ID + KeyId::LEN;
const SEALED: usize = NONCE + NONCE_LEN;
const SEALED_LEN: usize = Key::LEN + TAG_LEN;
const RESERVED: usize = SEALED + SEALED_LEN;
/// Bytes of an envelope.
pub const ENVELOPE_LEN: usize = RESERVED + 8 + 4;

const _: () = assert!(ENVELOPE_LEN == 96);

/// The keys that were given: the first seals what is written, all of them open.
#[derive(Clone, Default)]
pub struct Keys {
    ring: Arc<[Given]>,
}

struct Given {
    id: KeyId,
    wrapping: FileKey,
}

impl Keys {
    /// These, the newest first.
    pub fn new(keys: &[Key]) -> Self {
        let given = |key: &Key| Given { id: key.secret.id(), wrapping: key.secret.wrapping() };
        Self { ring: keys.iter().map(given).collect() }
    }

    /// None: what is written is not sealed.
    pub fn none() -> Self {
        Self::default()
    }

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        self.ring.is_empty()
    }

    /// The one by which what is written is sealed.
    pub fn newest(&self) -> Option<KeyId> {
        self.ring.first().map(|given| given.id)
    }

    /// All of them.
    pub fn ids(&self) -> impl Iterator<Item = KeyId> + '_ {
        self.ring.iter().map(|given| given.id)
    }

    /// What is told of a file for which the key is not among these.
    pub fn lack(&self, file: &str, id: KeyId) -> String {
        let given: Vec<_> = self.ids().map(|id| id.to_string()).collect();
        let given = match &given[..] {
            [] => "no key was given".to_owned(),
            given => format!("the key that was given is {}", given.join(", another one ")),
        };
        format!("{file} is encrypted with the key {id}; {given}")
    }

    /// The cipher of a new file with this header, and the envelope for it. `random` fills its
    /// bytes with ones that are fit for keys. Without keys neither.
    pub fn of_new_file(
        &self,
        header: &[u8],
        seed: u32,
        random: impl FnOnce(&mut [u8]),
    ) -> (Cipher, Option<[u8; ENVELOPE_LEN]>) {
        let Some(given) = self.ring.first() else { return (Cipher::Clear, None) };
        let mut fresh = Zeroizing::new([0; Key::LEN + NONCE_LEN]);
        random(&mut fresh[..]);
        let secret: Zeroizing<[u8; Key::LEN]> = Zeroizing::new(array_at(&fresh[..], 0));
        let nonce: [u8; NONCE_LEN] = array_at(&fresh[..], Key::LEN);
        let mut sealed = *secret;
        // Nonces of 96 random bits: for each of 2^32 files the odds of one that was used are below
        // 2^-64.
        let tag = given.wrapping.seal(nonce, header, &mut sealed);
        let key = FileKey::of(&secret).expect("a key of this length is one");
        let envelope = FORM.encode(FORMAT, seed, |envelope| {
            put(envelope, KEY_ID, given.id.0);
            put(envelope, NONCE, nonce);
            put(envelope, SEALED, sealed);
            put(envelope, SEALED + Key::LEN, tag);
        });
        (Cipher::Sealed(given.id, Arc::new(key)), Some(envelope))
    }

    /// The cipher of the file with this header, from the envelope that `bytes` begin with.
    ///
    /// # Errors
    /// What is wrong with the envelope. That there is no key for it is no error here:
    /// [`Cipher::Locked`].
    pub fn of_file(&self, bytes: &[u8], header: &[u8], seed: u32) -> Result<Cipher, Flaw> {
        let (envelope, _) =
            FORM.decode(bytes, seed, FORMAT..=FORMAT).map_err(|flaw| match flaw {
                HeaderFlaw::Damaged(flaw) => Flaw { what: "envelope of the file's key", ..flaw },
                HeaderFlaw::Foreign(format) => {
                    Flaw::new("format of the envelope of the file's key", FORMAT, format)
                }
            })?;
        let id = KeyId(array_at(envelope, KEY_ID));
        let Some(given) = self.ring.iter().find(|given| given.id == id) else {
            return Ok(Cipher::Locked(id));
        };
        let mut sealed: Zeroizing<[u8; SEALED_LEN]> = Zeroizing::new(array_at(envelope, SEALED));
        let opened = given.wrapping.open(array_at(envelope, NONCE), header, &mut sealed[..]);
        let key = opened.and_then(|_| sealed.first_chunk().and_then(FileKey::of));
        let wrong =
            || Flaw::new("file's key", format_args!("one that the key {id} has sealed"), "another");
        Ok(Cipher::Sealed(id, Arc::new(key.ok_or_else(wrong)?)))
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

/// How the bodies of a file are kept.
#[derive(Clone, Default)]
pub enum Cipher {
    /// As they are.
    #[default]
    Clear,
    /// Sealed by the file's key, which the key with this id has sealed.
    Sealed(KeyId, Arc<FileKey>),
    /// The same, and the key is not there.
    Locked(KeyId),
}

impl Cipher {
    /// The given key by which the file is sealed.
    pub fn key_id(&self) -> Option<KeyId> {
        match self {
            Self::Clear => None,
            Self::Sealed(id, _) | Self::Locked(id) => Some(*id),
        }
    }

    /// The key that is not there.
    pub fn locked(&self) -> Option<KeyId> {
        if let Self::Locked(id) = self { Some(*id) } else { None }
    }

    /// Whether it is to be written anew, for these are the keys now.
    pub fn is_outdated(&self, keys: &Keys) -> bool {
        self.key_id() != keys.newest()
    }

    /// What seals and opens bodies, if they are sealed and the key is there.
    pub fn key(&self) -> Option<&FileKey> {
        if let Self::Sealed(_, key) = self { Some(key) } else { None }
    }
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clear => f.write_str("Clear"),
            Self::Sealed(id, _) => write!(f, "Sealed({id})"),
            Self::Locked(id) => write!(f, "Locked({id})"),
        }
    }
}

/// The flaw of a body that its key doesn't open.
pub fn not_authentic(what: &'static str) -> Flaw {
    Flaw::new(what, "what the file's key has sealed", "something else")
}

#[cfg(all(test, feature = "encryption"))]
mod tests;
