//! Tokens: who shows one may what is granted to it, over connections that others use too.
//!
//! Clients are as applications have them, with FoundationDB's option; whoever signs is the test.

use super::common::around::{Altered, Around};
use super::common::peer::{Peer, ask_at};
use super::common::quotas::write_quotas;
use super::common::*;
use super::{DENIED, HOST, Place, code, wait_until};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use plinth_client::{Database, Endpoint, TransactionOption};
use plinth_env::reply::{Reply, promise};
use plinth_env::{Env, TemporaryDir, block_on};
use plinth_pipeline::InProcess;
use plinth_server::{ConsoleConfig, RightsConfig, SeriesConfig, ServerConfig};
use plinth_types::{CommitReply, CommitRequest, Error, KeyRange, Result, Version, codes, system};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Whoever signs tokens, and the file by which servers believe them.
pub(super) struct Issuer {
    key: Ed25519KeyPair,
    file: PathBuf,
    _dir: TemporaryDir,
}

impl Issuer {
    pub(super) fn new() -> Self {
        let dir = block_on(Env::real().files().temporary_dir("tokens")).unwrap();
        let issuer = Self { key: new_key(), file: dir.path().join("keys.json"), _dir: dir };
        issuer.publish();
        issuer
    }

    fn publish(&self) {
        let x = URL_SAFE_NO_PAD.encode(self.key.public_key().as_ref());
        let set = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"k","x":"{x}"}}]}}"#);
        block_on(Env::real().files().replace(&self.file, set.as_bytes())).unwrap();
    }

    /// Has another key from now on.
    fn change_key(&mut self) {
        self.key = new_key();
        self.publish();
    }

    /// What a server goes by that believes them.
    pub(super) fn config(&self) -> ServerConfig {
        let rights =
            RightsConfig { token_keys: Some(self.file.clone()), ..RightsConfig::default() };
        ServerConfig { rights, ..ServerConfig::default() }
    }

    /// A token that ends in so many seconds.
    fn token(&self, seconds: u64, claims: &str) -> String {
        let until = Env::real().wall_clock().as_secs() + seconds;
        let header = URL_SAFE_NO_PAD.encode(br#"{"typ":"JWT","alg":"EdDSA","kid":"k"}"#);
        let claims = URL_SAFE_NO_PAD.encode(format!(r#"{{"exp":{until},{claims}}}"#));
        let text = format!("{header}.{claims}");
        let signature = URL_SAFE_NO_PAD.encode(self.key.sign(text.as_bytes()).as_ref());
        format!("{text}.{signature}")
    }

    /// One that says who it is for, and lasts.
    pub(super) fn token_of(&self, subject: &str) -> String {
        self.token(3_600, &format!(r#""sub":"{subject}""#))
    }
}

fn new_key() -> Ed25519KeyPair {
    let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap()
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
    let mut issuer = Issuer::new();
    let place = Place::new(ServerConfig { http: Some(loopback()), ..issuer.config() });
    let here = place.user(0);
    // Without rights nobody looks at tokens.
    assert_eq!(read_with(&here, "shop/a", Some("nonsense")), 0);
    assert_eq!(read_with(&here, "shop/a", None), 0);
    place.grant("operator address ::1");
    place.grant("reader token sub=till prefix shop/");
    place.grant("operator token sub=admin");
    place.until_heeded();
    let [till, admin, other] = ["till", "admin", "other"].map(|subject| issuer.token_of(subject));
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
    let short = issuer.token(2, r#""sub":"till""#);
    let tr = here.create_transaction();
    tr.set_option_raw(2000, Some(short.as_bytes())).unwrap();
    let watch = tr.watch("shop/a");
    tr.commit().wait().unwrap();
    assert_eq!(code(watch.wait()), DENIED);
    assert_eq!(read_with(&here, "shop/a", Some(&short)), DENIED);
    // Its key goes, and another comes.
    issuer.change_key();
    wait_until(|| read_with(&here, "shop/a", Some(&till)) == DENIED);
    let till = issuer.token_of("till");
    assert_eq!(read_with(&here, "shop/a", Some(&till)), 0);
}

/// Transactions of many users share a connection, and nobody waits for another's quota there.
#[test]
fn a_quota_of_a_token_is_for_whoever_shows_it() {
    let issuer = Issuer::new();
    let place = Place::new(issuer.config());
    place.grant("reader anybody");
    place.grant("operator address ::1");
    place.until_heeded();
    place.set("large", &"x".repeat(50_000));
    let asks = place.user(1);
    let of = |whose: &str, what: &str| {
        // Whoever asks more often is told what he was told before.
        block_on(Env::real().sleep(Duration::from_millis(60)));
        let status: Value = serde_json::from_str(&asks.status_json().wait().unwrap()).unwrap();
        let budgets = &status["cluster"]["plinth"]["server"]["quotas"]["budgets"];
        let mine = budgets.as_array().unwrap().iter().find(|budget| budget["whose"] == *whose);
        mine.map_or(Value::Null, |budget| budget["read"][what].clone())
    };
    write_quotas(&place.inside, &["token sub=till read=1kB/s", "* read=1GB/s"]);
    wait_until(|| of("token sub=till", "bytes_per_second_max") == 1_000);
    let here = place.user(0);
    let read = |token: Option<&str>| {
        let tr = here.create_transaction();
        tr.set_option_raw(2000, token.map(str::as_bytes)).unwrap();
        tr.get("large")
    };
    let [till, again, other] = ["till", "till", "other"].map(|subject| issuer.token_of(subject));
    assert!(read(Some(&till)).wait().unwrap().is_some());
    // Another one of the same person's is the same.
    let waits = [&till, &again].map(|token| {
        let read = read(Some(token));
        Env::real().spawn("reader", async move { drop(read.await) })
    });
    wait_until(|| of("token sub=till", "waiting") == 2);
    for _ in 0..3 {
        assert!(read(Some(&other)).wait().unwrap().is_some());
        assert!(read(None).wait().unwrap().is_some());
    }
    assert!(waits.iter().all(|read| !read.is_finished()));
    assert_eq!(place.server.figures().connections, 2, "all shared one");
    assert_eq!(of("token sub=till", "bytes"), 50_005);
    let others = ["* (token sub=other)", "* (address 127.0.0.1)"];
    assert_eq!(others.map(|whose| of(whose, "bytes")), [150_015, 150_015]);
}

/// What FoundationDB's tokens say.
#[test]
fn a_token_that_names_tenants_opens_them_and_no_others() {
    let issuer = Issuer::new();
    let place = Place::new(issuer.config());
    place.grant("operator address ::1");
    place.until_heeded();
    let there = place.user(1);
    for name in ["first", "shop", "bank"] {
        let tr = there.create_transaction();
        tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
        tr.set([b"\xff\xff/management/tenant/map/", name.as_bytes()].concat(), "");
        tr.commit().wait().unwrap();
    }
    // By its name, and by its id: the second one that was given. Among others that nobody knows:
    // all are looked for at once.
    let many: Vec<_> =
        (0..100).map(|n| URL_SAFE_NO_PAD.encode(format!("tenant number {n:03}"))).collect();
    let many = format!("c2hvcA==\",\"{}", many.join("\",\""));
    for named in ["c2hvcA==", "AAAAAAAAAAE=", &many] {
        let here = place.user(0);
        let token = issuer.token(3_600, &format!(r#""tenants":["{named}"]"#));
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

/// Over HTTP of series whoever shows a token may what is granted to it, and no more.
#[test]
fn a_token_that_is_granted_series_asks_or_sends_over_their_http() {
    let mut issuer = Issuer::new();
    let at = Some(loopback());
    let series = SeriesConfig { http: at, ..SeriesConfig::default() };
    let place = Place::new(ServerConfig { series, ..issuer.config() });
    place.grant("operator address ::1");
    place.grant("reader token sub=reads series");
    place.grant("writer token sub=writes,aud=points series");
    place.until_heeded();
    let address = place.server.series_addresses().http.unwrap();
    let ask = |token: Option<&str>, method: &str, path: &str, body: &str| {
        let bearer = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        let head = format!("{HOST}{}", bearer.unwrap_or_default());
        ask_at(address, method, path, &head, body)
    };
    let [reads, other] = ["reads", "other"].map(|subject| issuer.token_of(subject));
    let half = issuer.token_of("writes");
    let writes = issuer.token(3_600, r#""sub":"writes","aud":"points""#);
    for _ in 0..2 {
        for (token, asked, sent) in [
            (Some(&reads), 200, 401),
            (Some(&writes), 200, 204),
            (Some(&other), 401, 401),
            (Some(&half), 401, 401),
            (None, 401, 401),
        ] {
            let token = token.map(|token| &token[..]);
            assert_eq!(ask(token, "GET", "/api/v1/labels", "").0, asked, "{token:?}");
            assert_eq!(ask(token, "POST", "/write", "m,a=1 v=1 1").0, sent, "{token:?}");
        }
    }
    let names = ask(Some(&reads), "GET", "/api/v1/label/__name__/values", "").1;
    assert!(names.contains("\"m.v\"") || names.contains("\"m_v\""), "{names}");
    place.revoke("writer token sub=writes,aud=points series");
    place.until_heeded();
    assert_eq!(ask(Some(&writes), "POST", "/write", "m,a=1 v=1 1").0, 401);
    assert_eq!(ask(Some(&reads), "GET", "/api/v1/labels", "").0, 200);
    issuer.change_key();
    wait_until(|| ask(Some(&reads), "GET", "/api/v1/labels", "").0 == 401);
}

/// All that a client asks goes over one connection, whoever it is for: nothing of one is answered
/// as another's, or as anybody's.
#[test]
fn transactions_of_many_users_share_a_connection_and_no_rights() {
    const USERS: usize = 6;
    let issuer = Issuer::new();
    let place = Place::new(issuer.config());
    place.grant("operator address ::1");
    (0..USERS).for_each(|user| place.grant(&format!("writer token sub=u{user} prefix {user}/")));
    place.until_heeded();
    let here = place.user(0);
    std::thread::scope(|scope| {
        for user in 0..=USERS {
            let (here, issuer) = (&here, &issuer);
            scope.spawn(move || {
                // The last one shows nothing.
                let token = (user < USERS).then(|| issuer.token_of(&format!("u{user}")));
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

/// Commits, and says nothing of it.
struct Forgetful(InProcess);

impl Around for Forgetful {
    fn inner(&self) -> &InProcess {
        &self.0
    }

    fn newest_here(&self) -> Result<Version> {
        self.0.newest_here()
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        let loses = request.mutations.iter().any(|mutation| mutation.param1 == b"shop/lost");
        let (done, reply) = promise();
        self.0.commit(request).on_complete(move |outcome| {
            done.send(if loses { Err(Error::commit_unknown_result()) } else { outcome });
        });
        reply
    }
}

#[test]
fn what_became_of_a_lost_commit_is_found_out_by_its_token() {
    let issuer = Issuer::new();
    let place = Place::around(issuer.config(), |node| Arc::new(Altered(Arc::new(Forgetful(node)))));
    place.grant("operator address ::1");
    place.grant("writer token sub=till prefix shop/");
    place.until_heeded();
    let tr = place.user(0).create_transaction();
    tr.set_option_raw(2000, Some(issuer.token_of("till").as_bytes())).unwrap();
    tr.set_option(TransactionOption::AutomaticIdempotency).unwrap();
    tr.set("shop/lost", "v");
    assert_eq!(tr.commit().wait(), Ok(()));
    // Without an id it is known at least that it isn't under way any more.
    let tr = place.user(0).create_transaction();
    tr.set_option_raw(2000, Some(issuer.token_of("till").as_bytes())).unwrap();
    tr.set("shop/lost", "w");
    let why = tr.commit().wait().unwrap_err();
    assert_eq!((why.code(), why.detail()), (codes::COMMIT_UNKNOWN_RESULT, None), "{why}");
}

#[test]
fn a_feed_that_a_token_opened_ends_with_the_rights() {
    let (issuer, env) = (Issuer::new(), Env::real());
    let file = issuer.file.with_file_name("http-token");
    let console = ConsoleConfig { token_file: Some(file.clone()), ..ConsoleConfig::default() };
    let place = Place::new(ServerConfig { http: Some(loopback()), console, ..issuer.config() });
    place.grant("operator address ::1");
    place.grant("operator token sub=admin");
    place.until_heeded();
    let all = KeyRange::new(&b""[..], &b"\xff"[..]);
    block_on(place.inside.register_changes("all", [all], None)).unwrap();
    let feed = |bearer: &str| {
        let mut peer = Peer::to(place.server.http_address().unwrap());
        peer.send(&format!(
            "GET /api/changes/all HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {bearer}\r\n\r\n"
        ));
        assert!(peer.until("\r\n\r\n").starts_with("HTTP/1.1 200"));
        peer
    };
    let ours = String::from_utf8(block_on(env.files().read(&file)).unwrap()).unwrap();
    let (theirs, mut ours) = (feed(&issuer.token_of("admin")), feed(ours.trim()));
    place.revoke("operator token sub=admin");
    place.revoke("operator address ::1");
    place.until_heeded();
    place.set("secret", "x");
    ours.until("secret");
    let rest = theirs.all();
    assert!(!rest.contains("secret"), "{rest}");
}
