//! What the nodes of a cluster know and nobody else: 32 random bytes, made when the cluster is
//! formed.
//!
//! It never travels after that. Whoever has it proves so by a code (HMAC with SHA-256) over what
//! both sides have said, which has a random number of each in it: so a proof is of no use on
//! another connection, nor in the other direction.

use plinth_env::Env;
use ring::hmac;

/// Bytes of a secret, of a proof and of a random number to be proven over.
pub const LEN: usize = 32;

/// The secret of a cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; LEN]);

impl Secret {
    /// A new one.
    pub fn random(env: &Env) -> Self {
        let mut bytes = [0; LEN];
        env.fill_random(&mut bytes);
        Self(bytes)
    }

    /// The one that has these bytes.
    pub fn from_bytes(bytes: [u8; LEN]) -> Self {
        Self(bytes)
    }

    /// Its bytes, to be written where others can't read them.
    pub fn bytes(&self) -> &[u8; LEN] {
        &self.0
    }

    /// Proof that this side has it, over `parts`, for one purpose.
    pub fn prove(&self, purpose: &str, parts: &[&[u8]]) -> [u8; LEN] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let tag = hmac::sign(&key, &joined(purpose, parts));
        tag.as_ref().try_into().expect("a code by SHA-256 has 32 bytes")
    }

    /// Whether a proof over `parts` is by somebody who has it. Takes as long whatever is wrong.
    pub fn accepts(&self, proof: &[u8; LEN], purpose: &str, parts: &[&[u8]]) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        hmac::verify(&key, &joined(purpose, parts), proof).is_ok()
    }
}

/// The parts, each behind its length, so that no two lists of them look alike.
fn joined(purpose: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut all = Vec::new();
    for part in [purpose.as_bytes()].iter().chain(parts) {
        all.extend_from_slice(&(part.len() as u64).to_le_bytes());
        all.extend_from_slice(part);
    }
    all
}

/// Without the bytes.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_good_for_what_it_was_made_for_alone() {
        let (ours, theirs) = (Secret::from_bytes([1; LEN]), Secret::from_bytes([2; LEN]));
        let proof = ours.prove("welcome", &[b"ab", b"c"]);
        assert!(ours.accepts(&proof, "welcome", &[b"ab", b"c"]));
        assert!(!ours.accepts(&proof, "hello", &[b"ab", b"c"]));
        assert!(!ours.accepts(&proof, "welcome", &[b"a", b"bc"]));
        assert!(!theirs.accepts(&proof, "welcome", &[b"ab", b"c"]));
        assert!(!ours.accepts(&[0; LEN], "welcome", &[b"ab", b"c"]));
        assert_eq!(format!("{ours:?}"), "Secret");
    }
}
