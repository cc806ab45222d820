//! Rights: what says who somebody is, and the rows that say what he may.
//!
//! No mutation would come to a signature, so the target signs what it is given by a key of its own,
//! in the way that the right issuer does. Signatures by Ed25519 are the same each time; those by
//! P-256 are not, and are tested with the server.
//!
//! Always: a token that is believed was signed by the key that it names, by the words of a reader
//! that knows nothing of the server's.

use crate::decoders::told;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use plinth_server::fuzzed::token_fulfils;
use plinth_types::rights::Grant;
use plinth_types::system;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::Value;

/// What signs; a key of tests' own.
const SECRET: [u8; 32] = [7; 32];
/// When they are judged, in seconds since 1970.
const NOW: u64 = 1_700_000_000;

fn issuer() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&SECRET).expect("32 bytes are a key")
}

fn public() -> String {
    URL_SAFE_NO_PAD.encode(issuer().public_key())
}

/// A token with this head and these claims, which the key has signed.
fn signed(header: &[u8], claims: &[u8]) -> String {
    let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = issuer().sign(text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

const HEADER: &str = r#"{"typ":"JWT","alg":"EdDSA","kid":"e"}"#;
const CLAIMS: &str = r#"{"exp":1700000010,"nbf":1700000000.5,"sub":"till","aud":["a","b"],"level":7,"tenants":["c2hvcA==","AAAAAAAAAAM="]}"#;

/// A file with a key of each kind; the second one's is of RFC 7515, A.3.
fn keys() -> String {
    let (x, n) = (public(), URL_SAFE_NO_PAD.encode([0xb5; 256]));
    format!(
        r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"e","alg":"EdDSA","x":"{x}"}},
{{"kty":"EC","crv":"P-256","kid":"p","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}},
{{"kty":"RSA","kid":"r","n":"{n}","e":"AQAB"}},
{{"kty":"OKP","crv":"Ed25519","kid":"private","d":"x","x":"{x}"}},
{{"kty":"oct","kid":"shared","k":"c2VjcmV0"}}]}}"#
    )
}

/// Whether these keys believe this token, which doesn't hold for ever.
fn is_believed(keys: &[u8], token: &[u8]) -> bool {
    let judged = token_fulfils(keys, token, "sub=till,aud=b,level=7", NOW);
    if let Err(error) = &judged {
        told(error);
    }
    let ended = token_fulfils(keys, token, "", u64::MAX);
    assert!(ended.is_err(), "a token without an end");
    judged.is_ok()
}

fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_default()
}

/// Tokens, and keys by which they are believed, as the first byte says: a token as it comes, the
/// head of one and on the next line its claims, or a file of keys.
pub(crate) fn tokens(bytes: &[u8]) {
    match bytes.split_first() {
        Some((b't', token)) => {
            if !is_believed(keys().as_bytes(), token) {
                return;
            }
            let parts: Vec<_> = token.split(|byte| *byte == b'.').collect();
            let parts: Vec<_> =
                parts.iter().filter_map(|part| URL_SAFE_NO_PAD.decode(part).ok()).collect();
            let again = signed(&parts[0], &parts[1]);
            assert_eq!(again.as_bytes(), token, "nobody has signed it");
        }
        Some((b's', text)) => {
            let at = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
            let (header, claims) = (&text[..at], text.get(at + 1..).unwrap_or_default());
            if is_believed(keys().as_bytes(), signed(header, claims).as_bytes()) {
                let (header, claims) = (json(header), json(claims));
                assert!(header["typ"] == "JWT" && header["alg"] == "EdDSA", "{header}");
                let key = &header["kid"];
                assert!(key == "e" && header.get("crit").is_none(), "{header}");
                let time = |name: &str| claims[name].as_f64();
                assert!(time("exp").is_some_and(|until| until > NOW as f64), "{claims}");
                // Times are cut to seconds.
                assert!(time("nbf").is_none_or(|from| from < NOW as f64 + 1.0), "{claims}");
            }
        }
        Some((_, keys))
            if is_believed(keys, signed(HEADER.as_bytes(), CLAIMS.as_bytes()).as_bytes()) =>
        {
            let (set, x) = (json(keys), public());
            let is_it =
                |key: &Value| key["kid"] == "e" && key["x"] == x.as_str() && key.get("d").is_none();
            let keys = set["keys"].as_array();
            assert!(keys.is_some_and(|keys| keys.iter().any(is_it)), "{set}");
        }
        Some(_) | None => {}
    }
}

pub(crate) fn token_seeds() -> Vec<Vec<u8>> {
    let token = |header: &str, claims: &str| signed(header.as_bytes(), claims.as_bytes());
    let p256 = r#"{"typ":"JWT","alg":"ES256","kid":"p"}"#;
    let rsa = r#"{"typ":"JWT","alg":"RS256","kid":"r"}"#;
    let none = r#"{"typ":"JWT","alg":"none","kid":"e"}"#;
    let private = format!(
        r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"e","d":"x","x":"{}"}}]}}"#,
        public()
    );
    [
        format!("t{}", token(HEADER, CLAIMS)),
        format!("t{}", token(p256, CLAIMS)),
        format!("t{}", token(rsa, CLAIMS)),
        format!("s{HEADER}\n{CLAIMS}"),
        format!("s{none}\n{CLAIMS}"),
        format!("s{{\"crit\":[],{}\n{{\"exp\":1e300}}", &HEADER[1..]),
        format!("s{HEADER}\n{{\"exp\":1700000000}}"),
        format!("s{HEADER}\n{{\"exp\":1700000010,\"nbf\":1700000001}}"),
        format!("k{}", keys()),
        format!("k{private}"),
    ]
    .into_iter()
    .map(String::into_bytes)
    .collect()
}

/// Grants: a row's key behind what all of them begin with, or words, as the first byte says. What
/// is read is written as the same.
pub(crate) fn grants(bytes: &[u8]) {
    match bytes.split_first() {
        Some((b'k', rest)) => {
            let key = [system::GRANTS.0, rest].concat();
            if let Some(grant) = Grant::decode(&key) {
                assert_eq!(grant.key(), key, "another key came out");
            }
            // What isn't one of their rows is none, whatever it ends with.
            assert_eq!(Grant::decode(rest).map(|grant| grant.key()).filter(|it| it != rest), None);
        }
        Some((_, text)) => {
            let words: Vec<_> = text.split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect();
            match Grant::parse(&words) {
                Ok(grant) => {
                    assert_eq!(Grant::decode(&grant.key()).as_ref(), Some(&grant), "{grant}");
                    assert!(!grant.to_string().is_empty());
                }
                Err(error) => told(&error),
            }
        }
        None => {}
    }
}

/// Rows of grants of each kind, and the words that say them.
pub(crate) fn grant_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "reader anybody",
        "operator cert S.CN=till all",
        "writer token sub=till,aud=plinth prefix shop/",
        "reader address 10.0.0.0/8 range a b",
        "reader address 2001:db8::/32 tenant app",
        "writer user 1000 series",
        "writer user till metric cpu.*",
        "reader anybody metric cpu",
    ];
    let seeds = |text: &str| {
        let words: Vec<_> = text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let key = Grant::parse(&words).expect("it says a grant").key();
        let tagged = |tag: &[u8], bytes: &[u8]| [tag, bytes].concat();
        [tagged(b"k", &key[system::GRANTS.0.len()..]), tagged(b"w", text.as_bytes())]
    };
    texts.into_iter().flat_map(seeds).collect()
}
