//! Usual addresses give way to whoever is there already, and addresses that were asked for don't.
//!
//! `plinth dev` once tried whether a port was free and listened on it later: whoever took it in
//! between kept it from starting.

mod common;

use common::*;
use plinth_env::{Env, Listener, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_server::{SeriesConfig, Server, ServerConfig, Usual};
use plinth_types::{Error, Result};
use std::net::SocketAddr;
use std::sync::Arc;

fn start(config: ServerConfig) -> Result<Server> {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default()))?;
    block_on(Server::start(Arc::new(node.endpoint()), config))
}

/// Somebody who listens, and where.
fn somebody() -> (Listener, SocketAddr) {
    let listener = block_on(Env::real().sockets().listen(loopback())).unwrap();
    let address = listener.local_address();
    (listener, address)
}

/// Where a server is: for clients, for HTTP, and for series.
fn places(server: &Server) -> [Option<SocketAddr>; 5] {
    let SeriesConfig { resp, opentsdb, http, .. } = server.series_addresses();
    [server.addresses().first().copied(), server.http_address(), resp, opentsdb, http]
}

fn usual([listen, http, resp, opentsdb, queries]: [SocketAddr; 5]) -> Usual {
    let series = SeriesConfig {
        resp: Some(resp),
        opentsdb: Some(opentsdb),
        http: Some(queries),
        ..SeriesConfig::default()
    };
    Usual { listen: Some(listen), http: Some(http), series }
}

#[test]
fn a_server_finds_another_port_where_the_usual_one_is_taken() {
    let (others, taken): (Vec<_>, Vec<_>) = (0..5).map(|_| somebody()).unzip();
    let taken: [SocketAddr; 5] = taken.try_into().unwrap();
    let config =
        ServerConfig { listen: Vec::new(), usual: usual(taken), ..ServerConfig::default() };
    let server = start(config).unwrap();
    let found = places(&server);
    for (place, taken) in found.iter().zip(taken) {
        let place = place.expect("it listens for each of them");
        assert!(
            place != taken && place.ip() == taken.ip() && place.port() != 0,
            "{place}, {taken}"
        );
    }
    // Clients are told the port that it has.
    let told = server.connection_string();
    assert!(told.ends_with(&format!("@{}", found[0].unwrap())), "{told}");
    database(&server).transact_blocking(|tr| tr.get("k").wait()).unwrap();
    drop(others);
}

#[test]
fn what_is_asked_for_counts_before_what_is_usual_and_does_not_give_way() {
    let (other, taken) = somebody();
    let asked = |config: ServerConfig| start(config).unwrap_err();
    let plain = || ServerConfig { listen: vec![loopback()], ..ServerConfig::default() };
    let series = SeriesConfig { resp: Some(taken), ..SeriesConfig::default() };
    for config in [
        ServerConfig {
            listen: vec![taken],
            usual: usual([loopback(); 5]),
            ..ServerConfig::default()
        },
        ServerConfig { http: Some(taken), usual: usual([loopback(); 5]), ..plain() },
        ServerConfig { series, usual: usual([loopback(); 5]), ..plain() },
    ] {
        assert_eq!(asked(config), Error::address_in_use());
    }
    drop(other);
    let server = start(plain()).unwrap();
    assert_eq!(places(&server)[1..], [None; 4], "there is nothing usual unless it is said");
}
