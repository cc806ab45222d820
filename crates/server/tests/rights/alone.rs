//! A member of a cluster that has yet to take its rows from the others: before it has heard from
//! them whether there are rights, and as long as there are, it lets nobody in.
//!
//! Its endpoint has nothing until it is told to have what the place has, as one that catches up.

use super::common::around::{Altered, Around};
use super::common::peer::ask_at;
use super::common::*;
use super::{Place, code, wait_until};
use plinth_client::remote::{ClusterFile, RemoteEndpoint};
use plinth_client::{Database, Endpoint};
use plinth_env::{Env, block_on};
use plinth_pipeline::InProcess;
use plinth_server::{Among, SeriesConfig, Server, ServerConfig};
use plinth_types::{Error, Result, Version};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a member has: nothing, until it has taken in what there is.
struct Member {
    below: InProcess,
    is_behind: Arc<AtomicBool>,
}

impl Around for Member {
    fn inner(&self) -> &InProcess {
        &self.below
    }

    fn newest_here(&self) -> Result<Version> {
        match self.is_behind.load(Ordering::Relaxed) {
            true => Err(Error::process_behind()),
            false => self.below.newest_here(),
        }
    }
}

/// A member that reaches the others by `database`.
fn member(place: &Place, database: Database, is_behind: &Arc<AtomicBool>) -> Server {
    let member = Member { below: place.node.endpoint(), is_behind: is_behind.clone() };
    let endpoint: Arc<dyn Endpoint> = Arc::new(Altered(Arc::new(member)));
    let among = Among {
        database,
        name: "member".to_owned(),
        machine: None,
        #[cfg(feature = "tls")]
        tls: None,
    };
    let config = ServerConfig {
        listen: vec![loopback()],
        http: Some(loopback()),
        series: SeriesConfig { http: Some(loopback()), ..SeriesConfig::default() },
        among: Some(among),
        ..ServerConfig::default()
    };
    block_on(Server::start(endpoint, config)).unwrap()
}

fn ask(server: &Server, path: &str) -> u32 {
    ask_at(server.http_address().unwrap(), "GET", path, "Host: localhost\r\n", "").0
}

/// What the series' door says to whoever wants to delete some, or to know of some.
fn series(server: &Server) -> [u32; 2] {
    let at = server.series_addresses().http.unwrap();
    let host = "Host: localhost\r\n";
    [
        ask_at(at, "POST", "/api/v1/admin/tsdb/delete_series?match[]=x", host, "").0,
        ask_at(at, "GET", "/api/v1/labels", host, "").0,
    ]
}

/// What the clients' door says to whoever wants to end others' connections.
fn disconnect(server: &Server) -> i32 {
    let env = Env::real();
    let file = ClusterFile::parse(server.connection_string()).unwrap();
    code(RemoteEndpoint::connect(&env, file).disconnect("192.0.2.1:1").wait())
}

const BEHIND: i32 = plinth_types::codes::PROCESS_BEHIND;

#[test]
fn a_member_without_rows_lets_nobody_in_whom_the_others_would_not() {
    let place = Place::new(ServerConfig::default());
    let is_behind = Arc::new(AtomicBool::new(true));
    let among = member(&place, place.inside.clone(), &is_behind);
    // Without rights it is as open as the others, as far as it has anything.
    wait_until(|| ask(&among, "/api/history") == 200);
    assert_eq!(disconnect(&among), 0);
    place.grant("operator address ::1");
    wait_until(|| ask(&among, "/api/history") == 503);
    assert_eq!((ask(&among, "/health"), disconnect(&among)), (200, BEHIND));
    is_behind.store(false, Ordering::Relaxed);
    wait_until(|| ask(&among, "/api/history") == 401);
    assert_eq!(disconnect(&among), super::DENIED);
}

#[test]
fn a_member_that_has_yet_to_hear_from_the_others_tells_of_itself_alone() {
    let place = Place::new(ServerConfig::default());
    let is_behind = Arc::new(AtomicBool::new(true));
    // Nobody answers there.
    let nowhere = ClusterFile::parse("nowhere:x@127.0.0.1:1").unwrap();
    let nowhere = Database::new(Arc::new(RemoteEndpoint::connect(&Env::real(), nowhere)));
    let alone = member(&place, nowhere, &is_behind);
    assert_eq!(["/health", "/metrics"].map(|path| ask(&alone, path)), [200, 200]);
    assert_eq!(["/api/history", "/api/audit"].map(|path| ask(&alone, path)), [503, 503]);
    assert_eq!((series(&alone), disconnect(&alone)), ([503, 503], BEHIND));
    is_behind.store(false, Ordering::Relaxed);
    wait_until(|| ask(&alone, "/api/history") == 200);
    assert_eq!(disconnect(&alone), 0);
}
