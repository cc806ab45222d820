//! Keys are served whatever becomes of series, and whoever sends points or asks for some hears at
//! once why there are none.
//!
//! Series lie in a place of their own, so users' keys are set and cleared at will; what is wrong
//! with that place, or with the database, is told to senders, to those who ask, and by status and
//! health.

mod common;

use common::peer::{Peer, ask_at};
use common::*;
use plinth_client::{Database, Endpoint, TransactionOption};
use plinth_env::{Env, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_server::{SeriesConfig, Server, ServerConfig};
use plinth_types::system::{SERIES_END, SERIES_PREFIX};
use std::sync::Arc;
use std::time::Duration;

const LOCK: &[u8] = b"\xff\xff/management/db_locked";
const QUERY: &str = r#"{"select":"a","range":{"from":0,"to":100},"output":{"format":"csv"}}"#;

fn endpoint() -> Arc<dyn Endpoint> {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    Arc::new(node.endpoint())
}

fn start(endpoint: &Arc<dyn Endpoint>) -> Server {
    let at = Some(loopback());
    let series = SeriesConfig { resp: at, opentsdb: at, http: at, ..SeriesConfig::default() };
    let config =
        ServerConfig { listen: vec![loopback()], http: at, series, ..ServerConfig::default() };
    block_on(Server::start(endpoint.clone(), config)).unwrap()
}

/// Locks the database, or unlocks it.
fn set_lock(db: &Database, id: Option<&str>) {
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
    tr.set_option(TransactionOption::LockAware).unwrap();
    match id {
        Some(id) => tr.set(LOCK, id),
        None => tr.clear(LOCK),
    }
    tr.commit().wait().unwrap();
}

/// What a sender on lines hears who sends a point and waits until it is durable.
fn sent(server: &Server, time: u32) -> String {
    let mut peer = Peer::to(server.series_addresses().resp.unwrap());
    peer.send(&format!("+a b=c\r\n:{time}\r\n:1\r\n+SYNC\r\n"));
    peer.until("\r\n")
}

fn posted(server: &Server, path: &str, body: &str) -> (u32, String) {
    ask_at(server.series_addresses().http.unwrap(), "POST", path, "Host: localhost\r\n", body)
}

fn got(server: &Server, path: &str) -> (u32, String) {
    ask_at(server.series_addresses().http.unwrap(), "GET", path, "Host: localhost\r\n", "")
}

/// Until points are taken again.
fn until_taken(server: &Server, time: u32) {
    while !sent(server, time).starts_with("+OK") {
        block_on(Env::real().sleep(Duration::from_millis(20)));
    }
}

/// A server of a locked database hung in its start, and whoever sent points to one that was locked
/// later heard nothing.
#[test]
fn a_locked_database_is_told_to_senders_and_to_those_who_ask() {
    let endpoint = endpoint();
    let server = start(&endpoint);
    assert!(sent(&server, 1).starts_with("+OK 1"));
    let db = database(&server);
    set_lock(&db, Some("0123456789abcdef0123456789abcdef"));
    let check = |server: &Server| {
        let told = sent(server, 2);
        assert!(
            told.starts_with("-DB database_locked (1038)") && told.contains("unlock UID"),
            "{told}"
        );
        let (status, told) = posted(server, "/write", "a,b=c v=1 3");
        assert!(status == 503 && told.contains("database_locked (1038)"), "{status} {told}");
        assert!(told.contains("\"code\":\"unavailable\"") && told.contains("unlock UID"), "{told}");
        for probe in ["/health", "/ready", "/-/ready"] {
            let (status, told) = got(server, probe);
            assert!(status == 503 && told.contains("1038"), "{probe}: {status} {told}");
        }
        assert_eq!(got(server, "/-/healthy").0, 200);
        let (status, told) = posted(server, "/api/query", QUERY);
        assert!(status == 503 && told.starts_with('-') && told.contains("1038"), "{status} {told}");
        let (status, told) = posted(server, "/api/v1/query", "query=a");
        assert!(status == 503 && told.contains("1038"), "{status} {told}");
    };
    check(&server);
    block_on(server.stop());
    let server = start(&endpoint);
    check(&server);
    set_lock(&database(&server), None);
    until_taken(&server, 4);
    for probe in ["/health", "/ready", "/-/ready"] {
        assert_eq!(got(&server, probe).0, 200, "{probe}");
    }
    let (_, rows) = posted(&server, "/api/query", QUERY);
    assert!(rows.contains("a b=c"), "{rows}");
}

/// `clearrange "" \xff` destroyed all series and stopped the intake until a restart, and one `set`
/// kept a server from starting: series lay among users' keys.
#[test]
fn what_users_write_and_clear_leaves_points_intake_and_queries_alone() {
    let endpoint = endpoint();
    let server = start(&endpoint);
    assert!(sent(&server, 1).starts_with("+OK 1"));
    let db = database(&server);
    for format in [&b"\x09"[..], b"\x01", b""] {
        db.transact_blocking(|tr| {
            tr.clear_range(b"", b"\xff");
            tr.set(b"\x02plinth.series\0\x14", format);
            tr.set(b"\x02plinth.series\0\x15\x01", [7; 16]);
            Ok(())
        })
        .unwrap();
    }
    assert!(sent(&server, 2).starts_with("+OK 1"), "the same store takes them");
    let (_, rows) = posted(&server, "/api/query", QUERY);
    assert_eq!(rows.lines().filter(|line| line.contains("a b=c")).count(), 2, "{rows}");
    block_on(server.stop());
    let server = start(&endpoint);
    assert!(sent(&server, 3).starts_with("+OK 1"));
    let (_, rows) = posted(&server, "/api/query", QUERY);
    assert_eq!(rows.lines().filter(|line| line.contains("a b=c")).count(), 3, "{rows}");
    let users = database(&server)
        .transact_blocking(|tr| tr.range(&b""[..]..&b"\x7f"[..]).collect_blocking());
    assert_eq!(users.unwrap().len(), 2, "they are the user's");
}

/// An operator has removed them, as `docs/series.md` says.
#[test]
fn series_whose_rows_were_cleared_are_taken_up_again() {
    let endpoint = endpoint();
    let server = start(&endpoint);
    assert!(sent(&server, 1).starts_with("+OK 1"));
    let db = database(&server);
    db.clone()
        .with_system_keys()
        .transact_blocking(|tr| {
            tr.clear_range(SERIES_PREFIX, SERIES_END);
            Ok(())
        })
        .unwrap();
    until_taken(&server, 2);
    db.transact_blocking(|tr| tr.get("k").wait()).unwrap();
}

/// Rows that are damaged stop the series alone, and that is told wherever people look.
#[test]
fn a_damaged_place_is_told_and_taken_up_again_when_it_is_mended() {
    let endpoint = endpoint();
    let server = start(&endpoint);
    assert!(sent(&server, 1).starts_with("+OK 1"));
    block_on(server.stop());
    let set_format = |db: &Database, format: &[u8]| {
        let db = db.clone().with_system_keys();
        db.transact_blocking(|tr| {
            tr.set([SERIES_PREFIX, b"\x14"].concat(), format);
            Ok(())
        })
        .unwrap();
    };
    set_format(&Database::new(endpoint.clone()), b"\x09");
    let server = start(&endpoint);
    let db = database(&server);
    db.transact_blocking(|tr| {
        tr.set("key", "1");
        Ok(())
    })
    .unwrap();
    assert!(sent(&server, 2).contains("damaged"), "{}", sent(&server, 2));
    let status = db.status_json().wait().unwrap();
    assert!(status.contains("series_unavailable") && status.contains("damaged"), "{status}");
    let health = |at| ask_at(at, "GET", "/health", "", "");
    let (http, series) = (server.http_address().unwrap(), server.series_addresses().http.unwrap());
    let (code, told) = health(http);
    assert!(code == 200 && told.contains("time series can't be opened"), "{code} {told}");
    let (code, told) = ask_at(series, "GET", "/health", "Host: localhost\r\n", "");
    assert!(code == 503 && told.contains("damaged"), "{code} {told}");
    set_format(&db, b"\x01");
    until_taken(&server, 3);
    let (code, told) = health(http);
    assert_eq!((code, &*told), (200, "serving\n"));
    let status = db.status_json().wait().unwrap();
    assert!(!status.contains("series_unavailable"), "{status}");
    let (_, rows) = posted(&server, "/api/query", QUERY);
    assert_eq!(rows.lines().filter(|line| line.contains("a b=c")).count(), 2, "{rows}");
}

/// One damaged row of one series kept its whole place shut. It is told wherever people look, and
/// the others go on.
#[test]
fn a_damaged_series_is_told_and_the_others_go_on() {
    let endpoint = endpoint();
    let server = start(&endpoint);
    assert!(sent(&server, 1).starts_with("+OK 1"));
    block_on(server.stop());
    // The name of the first series.
    let set_name = |db: &Database, name: &[u8]| {
        let db = db.clone().with_system_keys();
        db.transact_blocking(|tr| {
            tr.set([SERIES_PREFIX, b"\x15\x04\x15\x01"].concat(), name);
            Ok(())
        })
        .unwrap();
    };
    set_name(&Database::new(endpoint.clone()), b"\xff");
    let server = start(&endpoint);
    let db = database(&server);
    let (status, told) = posted(&server, "/write", "other,b=c v=1 3\na,b=c v=1 3");
    assert_eq!(status, 204, "{told}");
    let told = sent(&server, 2);
    assert!(told.starts_with("-DB the name of series 1 is damaged") && told.contains("a b=c"));
    let status = db.status_json().wait().unwrap();
    assert!(status.contains("series_damaged") && status.contains("series number 1"), "{status}");
    let (_, metrics) = ask_at(server.http_address().unwrap(), "GET", "/metrics", "", "");
    assert!(metrics.contains("\nplinth_series_damaged 1\n"), "{metrics}");
    assert!(metrics.contains("\nplinth_series_points_aside_total 1\n"), "{metrics}");
    set_name(&db, b"a b=c");
    block_on(server.stop());
    let server = start(&endpoint);
    assert!(sent(&server, 3).starts_with("+OK 1"));
    let (_, rows) = posted(&server, "/api/query", QUERY);
    assert_eq!(rows.lines().filter(|line| line.contains("a b=c")).count(), 2, "{rows}");
    let status = database(&server).status_json().wait().unwrap();
    assert!(!status.contains("series_damaged"), "{status}");
}
