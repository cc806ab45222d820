//! What a monitoring program asks by HTTP.

mod common;

use common::*;
use plinth_env::{Env, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_server::{Page, Server, ServerConfig};
use std::sync::Arc;

fn start() -> Server {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let config = ServerConfig {
        listen: vec![loopback()],
        http: Some(loopback()),
        metrics: Some(Page::new(|| "plinth_of_the_endpoint 7".to_owned())),
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
fn metrics_and_status_are_there_and_nothing_else() {
    let server = start();
    let db = database(&server);
    db.transact_blocking(|tr| tr.get("k").wait()).unwrap();
    let metrics = ask(&server, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    assert!(metrics.contains("\nplinth_of_the_endpoint 7\n"), "{metrics}");
    assert!(metrics.contains("\nplinth_server_keys_read_total 1\n"), "{metrics}");
    let status = ask(&server, b"GET /status HTTP/1.0\r\n\r\n");
    assert!(status.contains("\"connections_accepted\""), "{status}");
    assert!(ask(&server, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(ask(&server, b"PUT /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    assert!(ask(&server, b"nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert_eq!(ask(&server, &[b'x'; 20_000]), "", "a head without an end is not waited for");
    block_on(server.stop());
}
