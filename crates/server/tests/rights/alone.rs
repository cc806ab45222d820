//! A member of a cluster that has yet to take its rows from the others: before it has heard from
//! them whether there are rights, and as long as there are, it lets nobody in.
//!
//! Its endpoint has nothing until it is told to have what the place has, as one that catches up.

use super::common::peer::ask_at;
use super::common::*;
use super::{Place, code, wait_until};
use plinth_client::endpoint::{Description, ReadVersionReply, ReadVersionRequest};
use plinth_client::remote::{ClusterFile, RemoteEndpoint};
use plinth_client::{Database, Endpoint, Reply};
use plinth_env::{Env, block_on};
use plinth_server::{Among, Server, ServerConfig};
use plinth_types::{
    Bytes, CommitReply, CommitRequest, Error, KeyList, KeyRange, KeySelector, KeySpace, RangeRead,
    RangeResult, Result, Version,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a member has: nothing, until it has taken in what there is.
struct Member {
    below: Arc<dyn Endpoint>,
    is_behind: Arc<AtomicBool>,
}

impl Member {
    fn check(&self) -> Result<()> {
        match self.is_behind.load(Ordering::Relaxed) {
            true => Err(Error::process_behind()),
            false => Ok(()),
        }
    }

    fn ask<T>(&self, ask: impl FnOnce(&dyn Endpoint) -> Reply<T>) -> Reply<T> {
        match self.check() {
            Ok(()) => ask(&*self.below),
            Err(why) => Reply::ready(Err(why)),
        }
    }
}

impl Endpoint for Member {
    fn env(&self) -> &Env {
        self.below.env()
    }

    fn newest_here(&self) -> Result<Version> {
        self.check().and_then(|()| self.below.newest_here())
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        self.ask(|below| below.read_version(request))
    }

    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        self.ask(|below| below.get_many(version, space, keys))
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        self.ask(|below| below.get_key(version, space, selector))
    }

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        self.ask(|below| below.get_range(version, space, read))
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        self.ask(|below| below.commit(request))
    }

    fn watch(&self, key: Bytes, value: Option<Bytes>, version: Version) -> Reply<Version> {
        self.ask(|below| below.watch(key, value, version))
    }

    fn range_size(&self, range: KeyRange) -> Reply<i64> {
        self.ask(|below| below.range_size(range))
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        self.ask(|below| below.split_points(range, chunk))
    }

    fn addresses_for_key(&self, key: &[u8]) -> Reply<Vec<String>> {
        self.below.addresses_for_key(key)
    }

    fn describe(&self) -> Description {
        self.below.describe()
    }

    fn status_json(&self) -> Reply<String> {
        self.below.status_json()
    }
}

/// A member that reaches the others by `database`.
fn member(place: &Place, database: Database, is_behind: &Arc<AtomicBool>) -> Server {
    let below = place.inside.endpoint().clone();
    let endpoint: Arc<dyn Endpoint> = Arc::new(Member { below, is_behind: is_behind.clone() });
    let among = Among { database, name: "member".to_owned(), machine: None, tls: None };
    let config = ServerConfig {
        listen: vec![loopback()],
        http: Some(loopback()),
        among: Some(among),
        ..ServerConfig::default()
    };
    block_on(Server::start(endpoint, config)).unwrap()
}

fn ask(server: &Server, path: &str) -> u32 {
    ask_at(server.http_address().unwrap(), "GET", path, "Host: localhost\r\n", "").0
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
    assert_eq!(disconnect(&alone), BEHIND);
    is_behind.store(false, Ordering::Relaxed);
    wait_until(|| ask(&alone, "/api/history") == 200);
    assert_eq!(disconnect(&alone), 0);
}
