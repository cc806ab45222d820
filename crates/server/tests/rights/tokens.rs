//! Tokens: who shows one may what is granted to it, over connections that others use too.
//!
//! Clients are as applications have them, with FoundationDB's option; whoever signs is the test.

use super::common::peer::ask_at;
use super::common::*;
use super::{DENIED, Place, code, wait_until};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use plinth_client::{Database, TransactionOption};
use plinth_env::{Env, block_on};
use plinth_server::{RightsConfig, ServerConfig};
use plinth_types::{Error, system};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};

/// Whoever signs tokens.
struct Signer(Ed25519KeyPair);

impl Signer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let key = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        Self(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
    }

    fn set(&self) -> String {
        let x = URL_SAFE_NO_PAD.encode(self.0.public_key().as_ref());
        format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"k","x":"{x}"}}]}}"#)
    }

    fn sign(&self, claims: &str) -> String {
        let header = URL_SAFE_NO_PAD.encode(br#"{"typ":"JWT","alg":"EdDSA","kid":"k"}"#);
        let text = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.as_bytes()));
        let signature = URL_SAFE_NO_PAD.encode(self.0.sign(text.as_bytes()).as_ref());
        format!("{text}.{signature}")
    }
}

/// What a client reads who shows a token, or none, in a transaction of its own.
fn read_with(db: &Database, key: &str, token: Option<&str>) -> i32 {
    let tr = db.create_transaction();
    tr.set_option_raw(2000, token.map(str::as_bytes)).unwrap();
    loop {
        match tr.get(key).wait() {
            Err(error) if error.code() != DENIED => tr.on_error(error).wait().unwrap(),
            told => return code(told),
        }
    }
}

#[test]
fn tokens_open_what_is_granted_to_them_until_they_end_or_their_key_goes() {
    let env = Env::real();
    let dir = block_on(env.files().temporary_dir("tokens")).unwrap();
    let file = dir.path().join("keys.json");
    let signer = Signer::new();
    block_on(env.files().replace(&file, signer.set().as_bytes())).unwrap();
    let rights = RightsConfig { token_keys: Some(file.clone()), ..RightsConfig::default() };
    let place =
        Place::new(ServerConfig { rights, http: Some(loopback()), ..ServerConfig::default() });
    let here = place.user(0);
    // Without rights nobody looks at tokens.
    assert_eq!(read_with(&here, "shop/a", Some("nonsense")), 0);
    assert_eq!(read_with(&here, "shop/a", None), 0);
    place.grant("operator address ::1");
    place.grant("reader token sub=till prefix shop/");
    place.grant("operator token sub=admin");
    place.until_heeded();
    let soon = env.wall_clock().as_secs() + 3_600;
    let till = signer.sign(&format!(r#"{{"exp":{soon},"sub":"till"}}"#));
    let admin = signer.sign(&format!(r#"{{"exp":{soon},"sub":"admin"}}"#));
    let other = signer.sign(&format!(r#"{{"exp":{soon},"sub":"other"}}"#));
    // One connection, and in turns whoever it is.
    for _ in 0..3 {
        assert_eq!(read_with(&here, "shop/a", Some(&till)), 0);
        assert_eq!(read_with(&here, "log/a", Some(&till)), DENIED);
        assert_eq!(read_with(&here, "shop/a", None), DENIED);
        assert_eq!(read_with(&here, "log/a", Some(&admin)), 0);
        assert_eq!(read_with(&here, "shop/a", Some(&other)), DENIED);
        assert_eq!(read_with(&here, "shop/a", Some("nonsense")), DENIED);
    }
    assert_eq!(place.server.figures().connections, 1, "tokens open no connections");
    // It lasts for retries, and a transaction that is reset shows nothing any more.
    let tr = here.create_transaction();
    tr.set_option_raw(2000, Some(till.as_bytes())).unwrap();
    assert_eq!(code(tr.get("shop/a").wait()), 0);
    tr.on_error(Error::not_committed()).wait().unwrap();
    assert_eq!(code(tr.get("shop/a").wait()), 0);
    tr.reset();
    assert_eq!(code(tr.get("shop/a").wait()), DENIED);
    // Whose it was is told of what operators do.
    let tr = here.create_transaction();
    tr.set_option_raw(2000, Some(admin.as_bytes())).unwrap();
    tr.set_option(TransactionOption::AccessSystemKeys).unwrap();
    tr.set(system::EXCLUDED_PREFIX, "");
    tr.commit().wait().unwrap();
    // HTTP takes them as bearers.
    let asked = |token: &str| {
        let head = format!("Host: localhost\r\nAuthorization: Bearer {token}\r\n");
        ask_at(place.server.http_address().unwrap(), "GET", "/status", &head, "").0
    };
    assert_eq!([&admin, &till, &other].map(|token| asked(token)), [200, 401, 401]);
    let head = format!("Host: localhost\r\nAuthorization: Bearer {admin}\r\n");
    let told = ask_at(place.server.http_address().unwrap(), "GET", "/api/audit", &head, "").1;
    assert!(told.contains("by a token of admin"), "{told}");
    // One ends while what it has opened waits.
    let short = env.wall_clock().as_secs() + 2;
    let short = signer.sign(&format!(r#"{{"exp":{short},"sub":"till"}}"#));
    let tr = here.create_transaction();
    tr.set_option_raw(2000, Some(short.as_bytes())).unwrap();
    let watch = tr.watch("shop/a");
    tr.commit().wait().unwrap();
    assert_eq!(code(watch.wait()), DENIED);
    assert_eq!(read_with(&here, "shop/a", Some(&short)), DENIED);
    // Its key goes, and another comes.
    let others = Signer::new();
    block_on(env.files().replace(&file, others.set().as_bytes())).unwrap();
    wait_until(|| read_with(&here, "shop/a", Some(&till)) == DENIED);
    let till = others.sign(&format!(r#"{{"exp":{soon},"sub":"till"}}"#));
    assert_eq!(read_with(&here, "shop/a", Some(&till)), 0);
}

/// What FoundationDB's tokens say.
#[test]
fn a_token_that_names_tenants_opens_them_and_no_others() {
    let env = Env::real();
    let dir = block_on(env.files().temporary_dir("tenants")).unwrap();
    let file = dir.path().join("keys.json");
    let signer = Signer::new();
    block_on(env.files().replace(&file, signer.set().as_bytes())).unwrap();
    let rights = RightsConfig { token_keys: Some(file), ..RightsConfig::default() };
    let place = Place::new(ServerConfig { rights, ..ServerConfig::default() });
    place.grant("operator address ::1");
    place.until_heeded();
    let there = place.user(1);
    for name in ["first", "shop", "bank"] {
        let tr = there.create_transaction();
        tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
        tr.set([b"\xff\xff/management/tenant/map/", name.as_bytes()].concat(), "");
        tr.commit().wait().unwrap();
    }
    let until = env.wall_clock().as_secs() + 3_600;
    // By its name, and by its id: the second one that was given.
    for named in ["c2hvcA==", "AAAAAAAAAAE="] {
        let here = place.user(0);
        let token = signer.sign(&format!(r#"{{"exp":{until},"tenants":["{named}"]}}"#));
        let set = |tenant: &str| {
            let tr = here.create_tenant_transaction(tenant);
            tr.set_option_raw(2000, Some(token.as_bytes())).unwrap();
            loop {
                tr.set("k", "v");
                match tr.commit().wait() {
                    Err(error) if error.code() != DENIED => tr.on_error(error).wait().unwrap(),
                    told => return code(told),
                }
            }
        };
        assert_eq!([set("shop"), set("bank"), set("nobodys")], [0, DENIED, DENIED], "{named}");
        assert_eq!(read_with(&here, "k", Some(&token)), DENIED);
    }
    let shop = there.open_tenant("shop").wait().unwrap();
    let value = shop.transact_blocking(|tr| tr.get("k").wait());
    assert_eq!(value.unwrap_or_else(|error: Error| panic!("{error}")).as_deref(), Some(&b"v"[..]));
}

/// All that a client asks goes over one connection, whoever it is for: nothing of one is answered
/// as another's, or as anybody's.
#[test]
fn transactions_of_many_users_share_a_connection_and_no_rights() {
    const USERS: usize = 6;
    let env = Env::real();
    let dir = block_on(env.files().temporary_dir("users")).unwrap();
    let file = dir.path().join("keys.json");
    let signer = Signer::new();
    block_on(env.files().replace(&file, signer.set().as_bytes())).unwrap();
    let rights = RightsConfig { token_keys: Some(file), ..RightsConfig::default() };
    let place = Place::new(ServerConfig { rights, ..ServerConfig::default() });
    place.grant("operator address ::1");
    (0..USERS).for_each(|user| place.grant(&format!("writer token sub=u{user} prefix {user}/")));
    place.until_heeded();
    let here = place.user(0);
    let until = env.wall_clock().as_secs() + 3_600;
    std::thread::scope(|scope| {
        for user in 0..=USERS {
            let (here, signer) = (&here, &signer);
            scope.spawn(move || {
                // The last one shows nothing.
                let token = signer.sign(&format!(r#"{{"exp":{until},"sub":"u{user}"}}"#));
                let token = (user < USERS).then_some(token);
                for round in 0..150 {
                    let whose = (user + round * 5) % USERS;
                    let key = format!("{whose}/{round}");
                    let expected = if whose == user { 0 } else { DENIED };
                    assert_eq!(read_with(here, &key, token.as_deref()), expected, "{user}: {key}");
                    let tr = here.create_transaction();
                    tr.set_option_raw(2000, token.as_deref().map(str::as_bytes)).unwrap();
                    tr.set(&key, "v");
                    assert_eq!(code(tr.commit().wait()), expected, "{user} writes {key}");
                }
            });
        }
    });
    assert_eq!(place.server.figures().connections, 1);
}
