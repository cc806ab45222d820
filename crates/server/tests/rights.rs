//! Rights at the door of keys and at all others: what no grant covers is refused, at once and on
//! connections that are open, and nothing of what is there shows.
//!
//! Two users share a machine and come by two addresses of it, 127.0.0.1 and ::1; the operator is in
//! the process and writes rows as `plinth shell` does.

#[path = "rights/alone.rs"]
mod alone;
mod common;
#[path = "rights/locals.rs"]
mod locals;
#[path = "rights/metrics.rs"]
mod metrics;
#[path = "rights/metrics_among.rs"]
mod metrics_among;
#[path = "rights/metrics_sent.rs"]
mod metrics_sent;
#[path = "rights/programs.rs"]
mod programs;
#[path = "rights/tokens.rs"]
mod tokens;

use common::peer::{Peer, ask_at};
use common::*;
use plinth_client::remote::{ClusterFile, RemoteEndpoint, RemoteOptions};
use plinth_client::{Database, Endpoint, RangeOptions, TransactionOption};
use plinth_env::{Env, block_on};
use plinth_pipeline::{InProcess, Node, NodeConfig};
use plinth_proto::Request;
use plinth_proto::frame::Kind;
use plinth_server::{ConsoleConfig, RightsConfig, SeriesConfig, Server, ServerConfig};
use plinth_types::rights::Grant;
use plinth_types::{Error, KeySelector, MutationType, Result, codes, system};
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

fn other_loopback() -> SocketAddr {
    SocketAddr::from((Ipv6Addr::LOCALHOST, 0))
}

/// A server, and the database behind it.
struct Place {
    node: Arc<Node>,
    inside: Database,
    server: Server,
}

impl Place {
    fn new(config: ServerConfig) -> Self {
        Self::around(config, |node| Arc::new(node))
    }

    /// A server of an endpoint around the node's.
    fn around(config: ServerConfig, around: impl FnOnce(InProcess) -> Arc<dyn Endpoint>) -> Self {
        let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
        let inside = Database::new(Arc::new(node.endpoint()));
        let endpoint = around(node.endpoint());
        let config = ServerConfig { listen: vec![loopback(), other_loopback()], ..config };
        Self { inside, server: block_on(Server::start(endpoint, config)).unwrap(), node }
    }

    /// A place with these grants from its first moment.
    fn with(grants: &[&str]) -> Self {
        let place = Self::new(ServerConfig::default());
        grants.iter().for_each(|grant| place.grant(grant));
        place.until_heeded();
        place
    }

    fn change(&self, text: &str, is_granted: bool) {
        let words: Vec<_> = text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let key = Grant::parse(&words).unwrap().key();
        self.inside
            .transact_blocking(|tr| {
                tr.set_option(TransactionOption::AccessSystemKeys)?;
                match is_granted {
                    true => tr.set(&key, b"\x01"),
                    false => tr.clear(&key),
                }
                Ok(())
            })
            .unwrap_or_else(|error: Error| panic!("{error}"));
    }

    fn grant(&self, text: &str) {
        self.change(text, true);
    }

    fn revoke(&self, text: &str) {
        self.change(text, false);
    }

    fn set(&self, key: &str, value: &str) {
        self.inside
            .transact_blocking(|tr| {
                tr.set(key, value);
                Ok(())
            })
            .unwrap_or_else(|error: Error| panic!("{error}"));
    }

    fn clear(&self, begin: &str, end: &str) {
        self.inside
            .transact_blocking(|tr| {
                tr.clear_range(begin, end);
                Ok(())
            })
            .unwrap_or_else(|error: Error| panic!("{error}"));
    }

    fn at(&self, number: usize) -> ClusterFile {
        let (name, _) = self.server.connection_string().split_once('@').unwrap();
        ClusterFile::parse(&format!("{name}@{}", self.server.addresses()[number])).unwrap()
    }

    /// A client at 127.0.0.1, or at ::1.
    fn user(&self, number: usize) -> Database {
        let env = Env::real();
        let options = RemoteOptions { connections: 1, ..RemoteOptions::new(&env) };
        let endpoint = RemoteEndpoint::with_options(&env, self.at(number), &options);
        Database::new(Arc::new(endpoint))
    }

    /// Until the server has read the rows as they are now.
    fn until_heeded(&self) {
        let count = block_on(self.inside.transact(async |tr| {
            tr.set_option(TransactionOption::AccessSystemKeys)?;
            let rows = tr.get_range(system::RIGHTS.0..system::RIGHTS.1).await?;
            Ok(rows.rows.len())
        }))
        .unwrap_or_else(|error: Error| panic!("{error}"));
        // What the server tells of itself, from within: doors may be closed.
        wait_until(|| self.server.rights() == count);
    }
}

fn wait_until(mut what: impl FnMut() -> bool) {
    while !what() {
        block_on(Env::real().sleep(Duration::from_millis(5)));
    }
}

fn code<T>(result: Result<T>) -> i32 {
    result.err().map_or(0, |error| error.code())
}

fn get(db: &Database, key: &str) -> Result<Option<String>> {
    db.transact_blocking(|tr| tr.get(key).wait())
        .map(|value| value.map(|value| String::from_utf8_lossy(&value).into_owned()))
}

fn put(db: &Database, key: &str) -> Result<()> {
    db.transact_blocking(|tr| {
        tr.set(key, "x");
        Ok(())
    })
}

const DENIED: i32 = codes::PERMISSION_DENIED;

#[test]
fn without_rights_everybody_may_everything_and_with_them_what_is_granted() {
    let place = Place::new(ServerConfig::default());
    let (here, there) = (place.user(0), place.user(1));
    put(&here, "shop/a").unwrap();
    put(&there, "log/a").unwrap();
    place.grant("operator address ::1");
    place.until_heeded();
    assert_eq!(code(get(&here, "shop/a")), DENIED);
    assert_eq!(get(&there, "shop/a"), Ok(Some("x".to_owned())));
    place.grant("reader address 127.0.0.1 prefix shop/");
    place.until_heeded();
    assert_eq!(get(&here, "shop/a"), Ok(Some("x".to_owned())));
    assert_eq!(code(get(&here, "log/a")), DENIED);
    assert_eq!(code(put(&here, "shop/a")), DENIED);
    place.grant("writer address 127.0.0.1 prefix shop/c");
    place.until_heeded();
    assert_eq!(put(&here, "shop/c"), Ok(()));
    assert_eq!(code(put(&here, "shop/d")), DENIED);
    put(&there, "shop/d").unwrap();
    // What is left is as it was before there were any.
    for grant in [
        "operator address ::1",
        "reader address 127.0.0.1 prefix shop/",
        "writer address 127.0.0.1 prefix shop/c",
    ] {
        place.revoke(grant);
    }
    place.until_heeded();
    put(&here, "log/a").unwrap();
}

#[test]
fn a_revoked_grant_ends_what_waits_on_open_connections() {
    let place = Place::with(&["operator address ::1", "reader address 127.0.0.1"]);
    let here = place.user(0);
    place.set("k", "old");
    let watch = here
        .transact_blocking(|tr| Ok(tr.watch("k")))
        .unwrap_or_else(|error: Error| panic!("{error}"));
    let kept = here
        .transact_blocking(|tr| Ok(tr.watch("shop/k")))
        .unwrap_or_else(|error: Error| panic!("{error}"));
    assert_eq!(get(&here, "k"), Ok(Some("old".to_owned())));
    let snapshot = here.pin_snapshot().wait().unwrap();
    assert!(snapshot.get("k").wait().unwrap().is_some());
    place.grant("reader address 127.0.0.1 prefix shop/");
    place.revoke("reader address 127.0.0.1");
    assert_eq!(code(watch.wait()), DENIED);
    assert_eq!(code(get(&here, "k")), DENIED);
    assert_eq!(code(snapshot.get("k").wait()), DENIED);
    assert_eq!(snapshot.get("shop/k").wait(), Ok(None));
    // What is still covered waits on.
    place.set("shop/k", "new");
    assert_eq!(code(kept.wait()), 0);
}

/// Everything that can be asked for, of whom no grant is for.
#[test]
fn whoever_has_no_grant_is_answered_nothing_but_where_the_servers_are() {
    let place = Place::with(&["operator address ::1"]);
    place.set("k", "v");
    let mut raw = Raw::greeted(&place.server);
    let (version, space) = (1, plinth_types::KeySpace::System);
    let key = || plinth_types::Bytes::from_static(b"k");
    let selector = || KeySelector::first_greater_or_equal(key());
    let range = || plinth_types::KeyRange::new(&b""[..], &b"\xff"[..]);
    let mut keys = plinth_types::KeyList::new();
    keys.push(b"k");
    let read = plinth_types::RangeRead {
        begin: selector(),
        end: selector(),
        limit: 1,
        target_bytes: 1,
        reverse: false,
    };
    let full = plinth_types::RangeRead {
        end: KeySelector::first_greater_or_equal(&b"\xff"[..]),
        ..read.clone()
    };
    let changes = plinth_types::ChangesRequest { stream: 1, from: 1, bytes: 1_000, wait: false };
    let mut mutations = plinth_types::MutationList::new();
    mutations.push(MutationType::Set, b"k", b"w");
    let commit = plinth_types::CommitRequest { mutations, ..Default::default() };
    let denied = [
        Request::ReadVersion(plinth_proto::ReadVersion { count: 1, ..Default::default() }),
        Request::GetMany { version, space, keys },
        Request::GetKey { version, space, selector: selector() },
        Request::GetRange { version, space, read: full },
        Request::Commit(Box::new(commit)),
        Request::Commit(Box::default()),
        Request::Watch { key: key(), value: None, version },
        Request::RangeSize(range()),
        Request::SplitPoints { range: range(), chunk: 1_000 },
        Request::Addresses(key()),
        Request::Status,
        Request::Pin { lease_ms: 1_000 },
        Request::Clients,
        Request::Disconnect(key()),
        Request::Disconnect(plinth_types::Bytes::from_static(b"all")),
        Request::Changes(changes),
        Request::Reboot(key()),
    ];
    for (id, request) in denied.iter().enumerate() {
        raw.ask(id as u32, request).unwrap();
        let (told, kind, body) = raw.next().unwrap();
        assert_eq!((told, kind), (id as u32, Kind::Failure as u8), "{request:?}");
        assert_eq!(plinth_proto::reply::failure(&body).code(), DENIED, "{request:?}");
    }
    for (id, request) in [(90, Request::Ping), (91, Request::Locate)] {
        raw.ask(id, &request).unwrap();
        let (told, kind, _) = raw.next().unwrap();
        assert_eq!(told, id);
        assert_ne!(kind, Kind::Failure as u8, "{request:?}");
    }
    assert!(!place.server.is_to_begin_anew());
    assert_eq!(get(&place.user(1), "k"), Ok(Some("v".to_owned())));
}

/// A part of the keys doesn't make an operator.
#[test]
fn who_may_write_all_keys_is_no_operator() {
    let place = Place::with(&["operator address ::1", "writer address 127.0.0.1"]);
    let here = place.user(0);
    put(&here, "k").unwrap();
    let endpoint = here.endpoint();
    assert_eq!(code(endpoint.status_json().wait()), DENIED);
    assert_eq!(code(endpoint.clients().wait()), DENIED);
    assert_eq!(code(endpoint.disconnect("all").wait()), DENIED);
    let address = place.server.addresses()[0].to_string();
    assert_eq!(code(endpoint.reboot(&address).wait()), DENIED);
    let grant = Grant::parse(&["operator", "anybody"].map(|word| word.as_bytes().to_vec()));
    let key = grant.unwrap().key();
    for key in [&key[..], b"\xff/conf/x", system::SERIES_PREFIX, b"\xff/tenant/nameIndex/t"] {
        let tr = here.create_transaction();
        tr.set_option(TransactionOption::AccessSystemKeys).unwrap();
        tr.set(key, b"");
        assert_eq!(code(tr.commit().wait()), DENIED, "{}", plinth_types::printable(key));
        let tr = here.create_transaction();
        tr.set_option(TransactionOption::AccessSystemKeys).unwrap();
        assert_eq!(code(tr.get(key).wait()), DENIED);
    }
    let lock = here.create_transaction();
    lock.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
    lock.set(b"\xff\xff/management/db_locked", "0123456789abcdef0123456789abcdef");
    assert_eq!(code(lock.commit().wait()), DENIED);
    assert!(!place.server.is_to_begin_anew());
    // What layers do by themselves goes on.
    let tr = here.create_transaction();
    let stamp = [&[0; 10][..], &0_u32.to_le_bytes()].concat();
    tr.atomic_op(system::METADATA_VERSION, &stamp, MutationType::SetVersionstampedValue);
    assert_eq!(code(tr.commit().wait()), 0);
    assert!(here.create_transaction().get(system::METADATA_VERSION).wait().unwrap().is_some());
}

#[test]
fn a_tenants_grant_is_for_its_keys_and_nobody_learns_of_others() {
    let place = Place::with(&["operator address ::1", "writer address 127.0.0.1 tenant mine"]);
    let there = place.user(1);
    for name in ["mine", "theirs"] {
        let tr = there.create_transaction();
        tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
        tr.set([b"\xff\xff/management/tenant/map/", name.as_bytes()].concat(), "");
        tr.commit().wait().unwrap();
    }
    let theirs = there.open_tenant("theirs").wait().unwrap();
    theirs
        .transact_blocking(|tr| {
            tr.set("k", "v");
            Ok(())
        })
        .unwrap_or_else(|error: Error| panic!("{error}"));
    let here = place.user(0);
    wait_until(|| here.open_tenant("mine").wait().is_ok());
    let mine = here.open_tenant("mine").wait().unwrap();
    let rows = mine.transact_blocking(|tr| {
        tr.set("a", "1");
        tr.set("b", "2");
        let first = tr.get_key(KeySelector::first_greater_or_equal(&b""[..])).wait()?;
        let behind = tr.get_key(KeySelector::first_greater_than(&b"b"[..])).wait()?;
        let all = tr.get_range(RangeOptions::from(""..)).wait()?.rows.len();
        Ok((first, behind, all))
    });
    let (first, behind, all) = rows.unwrap_or_else(|error: Error| panic!("{error}"));
    assert_eq!((&first[..], &behind[..], all), (&b"a"[..], &b"\xff"[..], 2));
    // One that is there and one that isn't are refused alike.
    assert_eq!(code(here.open_tenant("theirs").wait()), DENIED);
    assert_eq!(code(here.open_tenant("nobodys").wait()), DENIED);
    assert_eq!(code(get(&here, "a")), DENIED);
}

const HOST: &str = "Host: localhost\r\n";

/// The status of an answer of the console's.
fn ask(server: &Server, path: &str, headers: &str) -> u32 {
    ask_at(server.http_address().unwrap(), "GET", path, &format!("{HOST}{headers}"), "").0
}

/// What a sender on lines hears.
fn points(server: &Server) -> String {
    let mut peer = Peer::to(server.series_addresses().resp.unwrap());
    peer.send("+a b=c\r\n:1\r\n:1\r\n+SYNC\r\n");
    peer.until("\r\n")
}

/// The status of an answer to a query of series.
fn query(server: &Server, headers: &str) -> u32 {
    let text = r#"{"select":"a","range":{"from":0,"to":100},"output":{"format":"csv"}}"#;
    let address = server.series_addresses().http.unwrap();
    ask_at(address, "POST", "/api/query", &format!("{HOST}{headers}"), text).0
}

/// The status of an answer to who asks whom the server scrapes.
fn targets(server: &Server, headers: &str) -> u32 {
    let address = server.series_addresses().http.unwrap();
    ask_at(address, "GET", "/api/v1/targets", &format!("{HOST}{headers}"), "").0
}

/// The status of an answer to points over HTTP.
fn put_points(server: &Server) -> u32 {
    let address = server.series_addresses().http.unwrap();
    ask_at(address, "POST", "/write", HOST, "a,b=c value=1 1").0
}

fn with_series() -> ServerConfig {
    let at = Some(loopback());
    let series = SeriesConfig { resp: at, opentsdb: at, http: at, ..SeriesConfig::default() };
    ServerConfig { http: at, series, ..ServerConfig::default() }
}

const PATHS: [&str; 5] = ["/metrics", "/status", "/api/overview", "/api/range", "/api/key?key=k"];

#[test]
fn other_doors_are_closed_while_there_are_rights_and_series_are_granted_by_themselves() {
    let open = Place::new(with_series());
    for path in PATHS {
        assert_eq!(ask(&open.server, path, ""), 200, "{path}");
    }
    assert!(points(&open.server).starts_with("+OK"));
    assert_eq!((query(&open.server, ""), targets(&open.server, "")), (200, 200));
    let mut sender = Peer::to(open.server.series_addresses().resp.unwrap());
    sender.send("+a b=c\r\n:2\r\n:1\r\n+SYNC\r\n");
    assert!(sender.until("\r\n").starts_with("+OK"));
    open.grant("operator address ::1");
    open.until_heeded();
    for path in PATHS {
        assert_eq!(ask(&open.server, path, ""), 401, "{path}");
    }
    assert_eq!(ask(&open.server, "/health", ""), 200);
    assert!(points(&open.server).contains("permission_denied"));
    assert_eq!((query(&open.server, ""), put_points(&open.server)), (401, 401));
    assert_eq!(targets(&open.server, ""), 401);
    // Whoever had connected before has no more rights than others.
    sender.send("+a b=c\r\n:3\r\n:1\r\n+SYNC\r\n");
    assert!(sender.all().contains("permission_denied"));
    open.grant("reader address 127.0.0.1 series");
    open.until_heeded();
    assert_eq!((query(&open.server, ""), put_points(&open.server)), (200, 401));
    assert_eq!(targets(&open.server, ""), 200);
    assert!(points(&open.server).contains("permission_denied"));
    open.grant("writer address 127.0.0.1 series");
    open.until_heeded();
    assert!(points(&open.server).starts_with("+OK"));
    assert_eq!(put_points(&open.server), 204);
    assert_eq!(ask(&open.server, "/metrics", ""), 401);
    assert_eq!(code(get(&open.user(0), "k")), DENIED);
}

/// Those who have the tokens of these doors are operators there.
#[test]
fn other_doors_take_their_tokens_while_there_are_rights() {
    let env = Env::real();
    let dir = block_on(env.files().temporary_dir("rights")).unwrap();
    let token = dir.path().join("token");
    let config = with_series();
    let with = Place::new(ServerConfig {
        console: ConsoleConfig { token_file: Some(token.clone()), ..ConsoleConfig::default() },
        series: SeriesConfig { token_file: Some(token.clone()), ..config.series.clone() },
        ..config
    });
    with.grant("operator address ::1");
    with.until_heeded();
    let token = String::from_utf8(block_on(env.files().read(&token)).unwrap()).unwrap();
    let bearer = format!("Authorization: Bearer {}\r\n", token.trim());
    for path in PATHS {
        assert_eq!(ask(&with.server, path, ""), 401, "{path}");
        assert_eq!(ask(&with.server, path, &bearer), 200, "{path}");
    }
    assert_eq!((query(&with.server, ""), query(&with.server, &bearer)), (401, 200));
    assert_eq!((targets(&with.server, ""), targets(&with.server, &bearer)), (401, 200));
}

#[test]
fn an_operator_of_the_start_options_gets_in_whatever_the_rows_say() {
    let operators = vec!["address 127.0.0.1".to_owned()];
    let rights = RightsConfig { operators, ..RightsConfig::default() };
    let place = Place::new(ServerConfig { rights, ..ServerConfig::default() });
    // A row that can't be read gives nothing, and is one all the same.
    place
        .inside
        .transact_blocking(|tr| {
            tr.set_option(TransactionOption::AccessSystemKeys)?;
            tr.set([system::RIGHTS.0, b"x"].concat(), "");
            Ok(())
        })
        .unwrap_or_else(|error: Error| panic!("{error}"));
    place.until_heeded();
    assert_eq!(code(get(&place.user(1), "k")), DENIED);
    put(&place.user(0), "k").unwrap();
    let wrong = RightsConfig {
        operators: vec!["cert Check.Valid=0".to_owned()],
        ..RightsConfig::default()
    };
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let config = ServerConfig { rights: wrong, ..ServerConfig::default() };
    let error = block_on(Server::start(Arc::new(node.endpoint()), config)).unwrap_err();
    assert_eq!(error.code(), codes::INVALID_OPTION_VALUE, "{error}");
}
