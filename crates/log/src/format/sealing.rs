//! Sealed bodies, as they stand in the file.
//!
//! ```text
//!   body   | nonce, 12 | what is sealed | tag, 16 |      about: the record's header, without its checksums
//! ```
//! The same place of a segment may be written twice, by an append that is tried again and after a
//! crash that cut the tail, and the same record may stand there both times. So the nonce is counted
//! by whoever writes, from a place that is random, and not made of what the header says.

use plinth_format::crypt::{FileKey, NONCE_LEN, Nonces, TAG_LEN, not_authentic};
use plinth_format::{Cipher, Flaw, array_at};
use plinth_types::Bytes;

/// Bytes that sealing adds to the body of a record.
pub const SEALING_LEN: usize = NONCE_LEN + TAG_LEN;

/// Adds a body to `out`, sealed.
pub(crate) fn seal(
    key: &FileKey,
    nonces: &mut Nonces,
    about: &[u8],
    parts: &[&[u8]],
    out: &mut Vec<u8>,
) {
    let nonce = nonces.take();
    out.extend_from_slice(&nonce);
    let begin = out.len();
    parts.iter().for_each(|part| out.extend_from_slice(part));
    let tag = key.seal(nonce, about, &mut out[begin..]);
    out.extend_from_slice(&tag);
}

/// The body of a record as its readers get it.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// What it says.
    Open(Bytes),
    /// It is sealed, and there is no key: nobody knows.
    Locked,
}

impl Body {
    /// What it says; nothing where nobody knows.
    pub fn or_empty(self) -> Bytes {
        match self {
            Self::Open(body) => body,
            Self::Locked => Bytes::new(),
        }
    }
}

/// Opens a body whose checksum has been compared.
pub(crate) fn unseal(cipher: &Cipher, about: &[u8], stored: Bytes) -> Result<Body, Flaw> {
    let key = match cipher {
        Cipher::Clear => return Ok(Body::Open(stored)),
        Cipher::Sealed(_, key) => key,
        Cipher::Locked(_) => return Ok(Body::Locked),
    };
    let wrong = || not_authentic("body of a record");
    let sealed = stored.get(NONCE_LEN..).ok_or_else(wrong)?;
    let mut body = sealed.to_vec();
    let len = key.open(array_at(&stored, 0), about, &mut body).ok_or_else(wrong)?;
    body.truncate(len);
    Ok(Body::Open(body.into()))
}
