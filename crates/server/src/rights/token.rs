//! Tokens: JWTs that somebody shows, and the keys of a file by which they are believed.
//!
//! ```text
//!   HEADER.PAYLOAD.SIGNATURE    each in base64url; the header names key (kid) and algorithm, the
//!                               payload has claims, the signature is over the first two
//! ```
//! The file is a JWK set. What came of tokens, and when the file is read: `tokens.rs`.
//!
//! Always: a token is believed only by the key that it names, with the algorithm of that key, and
//! only if it says when it ends.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_PAD_INDIFFERENT, URL_SAFE_NO_PAD};
use plinth_proto::request::MAX_TOKEN;
use plinth_types::{Bytes, Error, Result};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// What a token says that was believed.
#[derive(Debug)]
pub(crate) struct Claims {
    fields: Map<String, Value>,
    /// Seconds since 1970: from when, and until when.
    from: u64,
    until: u64,
    pub(super) tenants: Vec<Tenant>,
}

/// A tenant as FoundationDB's tokens name it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Tenant {
    /// By its id, as of version 7.3.
    Id([u8; 8]),
    /// By its name, as before.
    Name(Bytes),
}

impl Claims {
    /// Whether all these conditions hold, `CLAIM=VALUE,...`.
    pub(super) fn fulfil(&self, conditions: &str) -> bool {
        conditions.split(',').all(|condition| {
            let Some((claim, wanted)) = condition.split_once('=') else { return false };
            let is = |value: &Value| match value {
                Value::String(text) => text == wanted,
                Value::Number(number) => number.to_string() == wanted,
                _ => false,
            };
            match self.fields.get(claim) {
                Some(Value::Array(values)) => values.iter().any(is),
                Some(value) => is(value),
                None => false,
            }
        })
    }

    /// Whose they are, if they say so (`sub`).
    pub(crate) fn subject(&self) -> Option<&str> {
        self.fields.get("sub").and_then(Value::as_str)
    }

    /// Seconds since 1970 at which they end.
    pub(crate) fn until(&self) -> u64 {
        self.until
    }

    /// Whether they hold at this time.
    pub(super) fn check(&self, now: u64) -> Result<()> {
        if now >= self.until {
            return Err(refused("it has expired"));
        }
        if now < self.from {
            return Err(refused("it isn't valid yet"));
        }
        Ok(())
    }
}

pub(super) fn refused(why: &str) -> Error {
    Error::permission_denied().with_detail(format!("the token isn't accepted: {why}"))
}

/// Keys by their names.
#[derive(Default)]
pub(super) struct Keys {
    text: Vec<u8>,
    known: BTreeMap<String, Key>,
}

enum Key {
    Ed25519(Vec<u8>),
    P256(Vec<u8>),
    Rsa { n: Vec<u8>, e: Vec<u8> },
}

impl Key {
    fn parse(key: &Value) -> Option<(String, Self)> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
        // A private key has no business here.
        if key.get("d").is_some() {
            return None;
        }
        let made = match (text("kty")?, text("crv")) {
            ("OKP", Some("Ed25519")) => Self::Ed25519(bytes("x").filter(|x| x.len() == 32)?),
            ("EC", Some("P-256")) => {
                let (x, y) = (bytes("x")?, bytes("y")?);
                (x.len() == 32 && y.len() == 32).then_some(())?;
                Self::P256([&[4][..], &x, &y].concat())
            }
            ("RSA", _) => Self::Rsa { n: bytes("n")?, e: bytes("e")? },
            _ => return None,
        };
        let is_for = |algorithm| algorithm == made.algorithm();
        text("alg").is_none_or(is_for).then_some(())?;
        Some((text("kid")?.to_owned(), made))
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Ed25519(_) => "EdDSA",
            Self::P256(_) => "ES256",
            Self::Rsa { .. } => "RS256",
        }
    }

    fn has_signed(&self, text: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(text, signature),
            Self::P256(key) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(text, signature)
            }
            Self::Rsa { n, e } => {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, text, signature)
            }
        }
        .is_ok()
    }
}

impl Keys {
    /// The keys of a file with this text.
    ///
    /// # Errors
    /// `invalid_option_value`, which says what is wrong with it.
    pub(super) fn parse(file: &Path, text: Vec<u8>) -> Result<Self> {
        let wrong = |why: &str| {
            let why = format!("{} is no set of keys: {why}", file.display());
            Error::invalid_option_value().with_detail(why)
        };
        let set: Value = serde_json::from_slice(&text).map_err(|why| wrong(&why.to_string()))?;
        let keys = set.get("keys").and_then(Value::as_array);
        let keys = keys.ok_or_else(|| wrong("there is no array called keys"))?;
        let known: BTreeMap<_, _> = keys.iter().filter_map(Key::parse).collect();
        let passed_over = keys.len() - known.len();
        tracing::info!(file = %file.display(), keys = known.len(), passed_over, "keys of tokens are in use");
        Ok(Self { text, known })
    }

    /// What the file contained.
    pub(super) fn text(&self) -> &Vec<u8> {
        &self.text
    }

    /// What a token says, if one of the keys has signed it, at whatever time.
    ///
    /// # Errors
    /// Why it isn't to be believed.
    pub(super) fn verify(&self, token: &[u8]) -> std::result::Result<Claims, &'static str> {
        if token.len() > MAX_TOKEN {
            return Err("it is too long");
        }
        let token = std::str::from_utf8(token).map_err(|_| "it is no text")?;
        let (signed, signature) = token.rsplit_once('.').ok_or("it has no signature")?;
        let (header, payload) = signed.split_once('.').ok_or("it has no claims")?;
        let json = |part: &str| -> Option<Map<String, Value>> {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
        };
        let header = json(header).ok_or("its header can't be read")?;
        let text = |name: &str| header.get(name).and_then(Value::as_str);
        if text("typ") != Some("JWT") || header.contains_key("crit") {
            return Err("it is no JWT as they are taken here");
        }
        let key = text("kid").and_then(|kid| self.known.get(kid));
        let key = key.ok_or("it names no key that is known")?;
        if text("alg") != Some(key.algorithm()) {
            return Err("its algorithm isn't that of its key");
        }
        let signature =
            URL_SAFE_NO_PAD.decode(signature).map_err(|_| "its signature can't be read")?;
        if !key.has_signed(signed.as_bytes(), &signature) {
            return Err("its key hasn't signed it");
        }
        let fields = json(payload).ok_or("its claims can't be read")?;
        let time = |name: &str| match fields.get(name) {
            None => Ok(None),
            Some(value) => match value.as_f64().filter(|seconds| *seconds >= 0.0) {
                Some(seconds) => Ok(Some(seconds as u64)),
                None => Err("one of its times is none"),
            },
        };
        let until = time("exp")?.ok_or("it doesn't say when it expires (exp)")?;
        let from = time("nbf")?.unwrap_or(0);
        let tenants = match fields.get("tenants") {
            None => Vec::new(),
            Some(tenants) => named(tenants).ok_or("its tenants can't be read")?,
        };
        Ok(Claims { fields, from, until, tenants })
    }
}

/// Tenants as FoundationDB's tokens have them: ids or names, in base64.
fn named(tenants: &Value) -> Option<Vec<Tenant>> {
    let one = |tenant: &Value| {
        let bytes = STANDARD_PAD_INDIFFERENT.decode(tenant.as_str()?).ok()?;
        Some(match <[u8; 8]>::try_from(&bytes[..]) {
            Ok(id) => Tenant::Id(id),
            Err(_) => Tenant::Name(bytes.into()),
        })
    };
    tenants.as_array()?.iter().map(one).collect()
}

/// Whether a token is believed by the keys of a file with this text at a time, and says what these
/// conditions want.
///
/// # Errors
/// What is wrong with the text, or why the token isn't believed.
pub(crate) fn fulfils(keys: &[u8], token: &[u8], conditions: &str, now: u64) -> Result<bool> {
    let keys = Keys::parse(Path::new("keys"), keys.to_vec())?;
    let claims = keys.verify(token).map_err(refused)?;
    claims.check(now)?;
    Ok(claims.fulfil(conditions))
}

#[cfg(test)]
pub(super) mod tests;
