//! Tokens as they are, and each way in which one isn't: none of those is believed.
//!
//! A signer of the test's own makes keys of each kind and signs what it is told, right or wrong.

use super::*;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::json;

const NOW: u64 = 1_000_000;

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(in crate::rights) struct Signer {
    edwards: Ed25519KeyPair,
    p256: EcdsaKeyPair,
    random: SystemRandom,
}

impl Signer {
    pub(in crate::rights) fn new() -> Self {
        let random = SystemRandom::new();
        let edwards = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let p256 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self {
            edwards: Ed25519KeyPair::from_pkcs8(edwards.as_ref()).unwrap(),
            p256: EcdsaKeyPair::from_pkcs8(algorithm, p256.as_ref(), &random).unwrap(),
            random,
        }
    }

    pub(in crate::rights) fn set(&self) -> Value {
        let point = self.p256.public_key().as_ref();
        json!({ "keys": [
            { "kty": "OKP", "crv": "Ed25519", "kid": "e", "alg": "EdDSA",
              "x": encode(self.edwards.public_key().as_ref()) },
            { "kty": "EC", "crv": "P-256", "kid": "p", "x": encode(&point[1..33]), "y": encode(&point[33..]) },
            { "kty": "oct", "kid": "shared", "k": "c2VjcmV0" },
            { "kty": "OKP", "crv": "Ed25519", "kid": "private", "d": "x",
              "x": encode(self.edwards.public_key().as_ref()) },
        ]})
    }

    fn keys(&self) -> Keys {
        Keys::parse(Path::new("keys"), self.set().to_string().into()).unwrap()
    }

    pub(in crate::rights) fn sign(&self, header: &Value, claims: &Value) -> String {
        let text = format!(
            "{}.{}",
            encode(header.to_string().as_bytes()),
            encode(claims.to_string().as_bytes())
        );
        let signature = match header["alg"].as_str() {
            Some("ES256") => {
                self.p256.sign(&self.random, text.as_bytes()).unwrap().as_ref().to_vec()
            }
            _ => self.edwards.sign(text.as_bytes()).as_ref().to_vec(),
        };
        format!("{text}.{}", encode(&signature))
    }
}

pub(in crate::rights) fn header(algorithm: &str, key: &str) -> Value {
    json!({ "typ": "JWT", "alg": algorithm, "kid": key })
}

/// Why a token isn't believed.
fn why(keys: &Keys, token: &str) -> String {
    let told = keys.verify(token.as_bytes()).map_err(refused);
    let error = told.and_then(|claims| claims.check(NOW)).unwrap_err();
    assert_eq!(error, Error::permission_denied());
    error.detail().unwrap_or_default().to_owned()
}

#[test]
fn tokens_that_their_keys_have_signed_are_believed() {
    let signer = Signer::new();
    let keys = signer.keys();
    assert_eq!(keys.known.keys().collect::<Vec<_>>(), ["e", "p"]);
    let claims = json!({
        "exp": NOW + 10, "nbf": NOW, "sub": "till", "aud": ["a", "b"], "level": 7,
        "tenants": ["c2hvcA==", "AAAAAAAAAAM="],
    });
    for header in [header("EdDSA", "e"), header("ES256", "p")] {
        let token = signer.sign(&header, &claims);
        let told = keys.verify(token.as_bytes()).unwrap();
        assert_eq!(
            told.tenants,
            [Tenant::Name(Bytes::from_static(b"shop")), Tenant::Id([0, 0, 0, 0, 0, 0, 0, 3]),]
        );
        for (conditions, holds) in [
            ("sub=till", true),
            ("sub=till,aud=b,level=7", true),
            ("sub=till,aud=c", false),
            ("sub=tills", false),
            ("sub", false),
            ("tenants=shop", false),
            ("nobody=x", false),
            ("", false),
        ] {
            assert_eq!(told.fulfil(conditions), holds, "{conditions}");
        }
        assert!(told.check(NOW + 9).is_ok() && told.check(NOW + 10).is_err());
        assert!(told.check(NOW - 1).is_err());
    }
}

#[test]
fn no_other_token_is_believed() {
    let signer = Signer::new();
    let keys = signer.keys();
    let claims = json!({ "exp": NOW + 10 });
    let good = signer.sign(&header("EdDSA", "e"), &claims);
    assert!(keys.verify(good.as_bytes()).is_ok());
    // A byte more, less or other, anywhere.
    for at in 0..good.len() {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        assert!(keys.verify(&bytes).is_err(), "{at}");
        assert!(keys.verify(&good.as_bytes()[..at]).is_err(), "{at}");
    }
    let unsigned = {
        let header =
            encode(json!({ "typ": "JWT", "alg": "none", "kid": "e" }).to_string().as_bytes());
        format!("{header}.{}.", encode(claims.to_string().as_bytes()))
    };
    let other = Signer::new();
    let cases = [
        (unsigned, "algorithm"),
        (signer.sign(&header("ES256", "e"), &claims), "algorithm"),
        (signer.sign(&header("HS256", "shared"), &claims), "no key"),
        (signer.sign(&header("EdDSA", "private"), &claims), "no key"),
        (other.sign(&header("EdDSA", "e"), &claims), "hasn't signed"),
        (other.sign(&header("ES256", "p"), &claims), "hasn't signed"),
        (signer.sign(&json!({ "alg": "EdDSA", "kid": "e" }), &claims), "no JWT"),
        (
            signer
                .sign(&json!({ "typ": "JWT", "alg": "EdDSA", "kid": "e", "crit": ["x"] }), &claims),
            "no JWT",
        ),
        (signer.sign(&header("EdDSA", "e"), &json!({})), "when it expires"),
        (signer.sign(&header("EdDSA", "e"), &json!({ "exp": "never" })), "times"),
        (signer.sign(&header("EdDSA", "e"), &json!({ "exp": NOW })), "expired"),
        (signer.sign(&header("EdDSA", "e"), &json!({ "exp": NOW + 9, "nbf": NOW + 1 })), "yet"),
        (signer.sign(&header("EdDSA", "e"), &json!({ "exp": NOW + 9, "tenants": "t" })), "tenants"),
        (
            signer.sign(&header("EdDSA", "e"), &json!({ "exp": NOW + 9, "tenants": ["?"] })),
            "tenants",
        ),
        ("a".repeat(MAX_TOKEN + 1), "too long"),
    ];
    for (token, words) in cases {
        let told = why(&keys, &token);
        assert!(told.contains(words), "{words}: {told}");
    }
}
