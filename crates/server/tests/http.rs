//! What a monitoring program asks by HTTP.

mod common;

use common::*;
use plinth_client::TransactionOption;
use plinth_env::{Env, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_server::{Page, Pages, Server, ServerConfig};
use plinth_types::Error;
use std::sync::Arc;

fn start() -> Server {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let config = ServerConfig {
        listen: vec![loopback()],
        http: Some(loopback()),
        pages: Pages {
            metrics: Some(Page::new(|| "plinth_of_the_endpoint 7".to_owned())),
            ..Pages::default()
        },
        ..ServerConfig::default()
    };
    block_on(Server::start(Arc::new(node.endpoint()), config)).unwrap()
}

fn ask(server: &Server, request: &[u8]) -> String {
    let mut raw = Raw::to(server.http_address().unwrap());
    raw.send(request).unwrap();
    String::from_utf8(raw.all()).unwrap()
}

#[test]
fn metrics_status_and_health_are_there() {
    let server = start();
    let db = database(&server);
    db.transact_blocking(|tr| tr.get("k").wait()).unwrap();
    let metrics =
        ask(&server, b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    assert!(metrics.contains("\nplinth_of_the_endpoint 7\n"), "{metrics}");
    assert!(metrics.contains("\nplinth_server_keys_read_total 1\n"), "{metrics}");
    let status = ask(&server, b"GET /status HTTP/1.0\r\n\r\n");
    assert!(status.contains("\"connections_accepted\""), "{status}");
    assert!(ask(&server, b"GET /health HTTP/1.0\r\n\r\n").ends_with("\r\n\r\nserving\n"));
    assert!(
        ask(&server, b"HEAD /health HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n"),
        "a head has no body"
    );
    block_on(server.stop());
}

/// A probe was told "serving" while no commit was taken, and the console that nothing holds
/// transactions back.
#[test]
fn a_probe_and_the_console_are_told_that_commits_are_refused_and_that_they_are_not_any_more() {
    let config = NodeConfig { memory_bytes: Some(1 << 20), ..NodeConfig::default() };
    let node = block_on(Node::in_memory(&Env::real(), config)).unwrap();
    let config = ServerConfig {
        listen: vec![loopback()],
        http: Some(loopback()),
        ..ServerConfig::default()
    };
    let server = block_on(Server::start(Arc::new(node.endpoint()), config)).unwrap();
    let db = database(&server);
    let ask = |path: &str| ask(&server, format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes());
    let console = || -> serde_json::Value {
        let said = ask("/api/overview");
        serde_json::from_str(said.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    assert_eq!(console()["health"]["state"], "serving");
    let write = |n: u32| {
        db.transact_blocking(|tr| {
            tr.set(n.to_be_bytes(), [7; 50_000]);
            Ok(())
        })
    };
    let refused = (0..10_000).find_map(|n| write(n).err()).unwrap();
    assert_eq!(refused.code(), 1000, "{refused}");
    let said = ask("/health");
    assert!(said.split_once("\r\n").unwrap().0.ends_with("503 Service Unavailable"), "{said}");
    assert!(said.ends_with("commits are refused: operation_failed (1000)\n"), "{said}");
    let health = &console()["health"];
    assert_eq!(health["state"], "refusing");
    assert!(health["words"].as_str().unwrap().contains("--memory"), "{health}");
    let clear = |tr: &plinth_client::Transaction| {
        tr.clear_range("", "\u{7f}");
        Ok(())
    };
    db.transact_blocking(clear).unwrap();
    // What was overwritten leaves memory with the window.
    while !ask("/health").ends_with("serving\n") {
        block_on(Env::real().sleep(std::time::Duration::from_millis(50)));
    }
    block_on(server.stop());
}

/// Somebody meant it, so whoever looks after the server has no cause to end it.
#[test]
fn a_database_that_is_locked_is_not_unwell() {
    let server = start();
    let db = database(&server);
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
    tr.set(b"\xff\xff/management/db_locked", "0123456789abcdef0123456789abcdef");
    tr.commit().wait().unwrap();
    let tr = db.create_transaction();
    tr.set("a", "");
    assert_eq!(tr.commit().wait().unwrap_err(), Error::database_locked());
    let said = ask(&server, b"GET /health HTTP/1.0\r\n\r\n");
    let is_well = said.split_once("\r\n").unwrap().0.ends_with(" 200 OK");
    assert!(is_well && said.ends_with("\r\n\r\nserving\n"), "{said}");
    block_on(server.stop());
}

#[test]
fn what_is_not_asked_for_as_it_should_be_is_refused_and_nothing_breaks() {
    let server = start();
    let refused = |request: &[u8], status: &str| {
        let said = ask(&server, request);
        assert!(
            said.starts_with(&format!("HTTP/1.1 {status}"))
                || said.starts_with(&format!("HTTP/1.0 {status}")),
            "{said}"
        );
    };
    refused(b"GET /nothing HTTP/1.0\r\n\r\n", "404");
    refused(b"PUT /metrics HTTP/1.0\r\n\r\n", "405");
    refused(b"nonsense\r\n\r\n", "400");
    refused(b"GET /\xff\xfe HTTP/1.0\r\n\r\n", "4");
    refused(&[b'x'; 20_000], "4");
    let long = [&b"GET /"[..], &[b'y'; 70_000], b" HTTP/1.0\r\n\r\n"].concat();
    refused(&long, "4");
    let headers = [&b"GET /health HTTP/1.0\r\n"[..], &b"A: b\r\n".repeat(500), b"\r\n"].concat();
    refused(&headers, "431");
    refused(b"GET /health HTTP/1.0\r\n\r\n", "200");
    block_on(server.stop());
}

#[test]
fn a_connection_takes_one_request_after_another() {
    let server = start();
    let mut raw = Raw::to(server.http_address().unwrap());
    raw.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let all = String::from_utf8(raw.all()).unwrap();
    assert!(all.starts_with("HTTP/1.1 200 OK") && all.contains("HTTP/1.1 404 Not Found"), "{all}");
    block_on(server.stop());
}
