//! Keys are served whatever becomes of series, and whoever sends points or asks for some hears at
//! once why there are none.

mod common;

use common::peer::{Peer, ask_at};
use common::*;
use plinth_client::{Database, Endpoint, TransactionOption};
use plinth_env::{Env, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_server::{SeriesConfig, Server, ServerConfig};
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
        let (_, told) = posted(server, "/api/query", QUERY);
        assert!(told.starts_with('-') && told.contains("1038"), "{told}");
        let (status, told) = posted(server, "/api/v1/query", "query=a");
        assert!(status == 503 && told.contains("1038"), "{status} {told}");
    };
    check(&server);
    block_on(server.stop());
    let server = start(&endpoint);
    check(&server);
    set_lock(&database(&server), None);
    until_taken(&server, 4);
    let (_, rows) = posted(&server, "/api/query", QUERY);
    assert!(rows.contains("a b=c"), "{rows}");
}

/// `clearrange "" \xff` stopped the intake until a restart.
#[test]
fn series_whose_rows_were_cleared_are_taken_up_again() {
    let endpoint = endpoint();
    let server = start(&endpoint);
    assert!(sent(&server, 1).starts_with("+OK 1"));
    let db = database(&server);
    db.transact_blocking(|tr| {
        tr.clear_range(b"", b"\xff");
        Ok(())
    })
    .unwrap();
    until_taken(&server, 2);
    db.transact_blocking(|tr| tr.get("k").wait()).unwrap();
}
