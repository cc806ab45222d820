//! Clients that ask for much and read nothing don't have the server build more than its bound.
//!
//! 300 connections once asked for 256 values of 90 kB each, and took nothing: the server held 2.9
//! GB beside a bound of 256 MiB, and under `ulimit -v` died of an allocation that failed. And those
//! who waited for the changes of a stream, and were charged with 64 KiB each, all got what one
//! commit brought. What counts is what the process really has: this file has one test, so that the
//! peak of its memory is that test's.

mod common;

use common::beside::Good;
use common::*;
use plinth_client::Database;
use plinth_env::{Env, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_proto::Request;
use plinth_proto::hello::NEWEST;
use plinth_server::{Limits, Server};
use plinth_types::{ChangesRequest, KeyList, KeyRange, KeySpace};
use std::sync::Arc;
use std::time::Duration;

const CLIENTS: usize = 100;
const KEYS: u32 = 256;
const VALUE: usize = 90_000;
const BOUND: usize = 32 << 20;

/// The most memory that this process has had, in bytes.
#[expect(
    clippy::disallowed_methods,
    reason = "what the system says of this process is no file of a node's"
)]
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

fn ask(db: &Database) -> Request {
    let mut keys = KeyList::new();
    (0..KEYS).for_each(|number| {
        keys.push(&number.to_be_bytes());
    });
    let version = block_on(db.create_transaction().get_read_version()).unwrap();
    Request::GetMany { version, space: KeySpace::Normal, keys }
}

#[test]
fn values_that_nobody_takes_are_built_up_to_the_bound_and_no_further() {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let near = Arc::new(node.endpoint());
    let server =
        serve_endpoint(near.clone(), Limits { buffered_bytes: BOUND, ..Limits::default() });
    let db = Database::new(near);
    for part in 0..KEYS / 64 {
        db.transact_blocking(|tr| {
            (part * 64..(part + 1) * 64)
                .for_each(|number| tr.set(number.to_be_bytes(), [b'v'; VALUE]));
            Ok(())
        })
        .unwrap();
    }
    changes_that_many_wait_for(&server, &db);
    let good = Good::alone(with_one_connection(&server));
    for version in [NEWEST, 3, 2] {
        let before = peak();
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| Raw::greeted_in(&server, version)).collect();
        let request = ask(&db);
        let mut attack = |good: &Good| {
            // Four each, since the system's buffers take a few megabytes.
            let ask = |client: &mut Raw| (0..4).for_each(|id| drop(client.ask(id, &request)));
            clients.iter_mut().for_each(ask);
            read_beside(&server);
            good.goes_on(100);
        };
        // Replies to clients of before are megabytes, which take their time to be copied.
        match version {
            2 => attack(&good),
            _ => good.beside("clients that read nothing", attack),
        }
        let grew = peak() - before;
        // Clients of before take replies of a megabyte as a whole.
        let times = if version == NEWEST { 2 } else { 6 };
        assert!(
            grew < times * BOUND,
            "version {version}: {grew} bytes more, of {BOUND} that may wait"
        );
        drop(clients);
    }
    good.end();
}

/// Those who read what the others leave unread are served beside them.
fn read_beside(server: &Server) {
    let reader = database(server);
    for _ in 0..50 {
        let read = reader.transact_blocking(|tr| tr.get(0_u32.to_be_bytes()).wait());
        assert_eq!(read.unwrap().map(|value| value.len()), Some(VALUE));
        block_on(Env::real().sleep(Duration::from_millis(5)));
    }
}

/// All of them are answered with the same commit, of two megabytes.
fn changes_that_many_wait_for(server: &Server, db: &Database) {
    let stream = block_on(db.register_changes("s", [KeyRange::new("x", "y")], None)).unwrap();
    let before = peak();
    let request = ChangesRequest {
        stream: stream.id,
        from: stream.registered + 1,
        bytes: 4 << 20,
        wait: true,
    };
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Raw::greeted(server)).collect();
    clients
        .iter_mut()
        .for_each(|client| (0..8).for_each(|id| drop(client.ask(id, &Request::Changes(request)))));
    block_on(Env::real().sleep(Duration::from_millis(200)));
    db.transact_blocking(|tr| {
        (0..24_u8).for_each(|number| tr.set([b'x', number], [b'v'; VALUE]));
        Ok(())
    })
    .unwrap();
    block_on(Env::real().sleep(Duration::from_millis(700)));
    // Who takes what comes gets it.
    let good = database(server);
    let changes = block_on(good.read_changes(request)).unwrap();
    assert_eq!(changes.batches.len(), 1);
    assert!(changes.bytes() > 24 * VALUE);
    let grew = peak().saturating_sub(before);
    assert!(grew < 3 * BOUND, "{grew} bytes more, of {BOUND} that may wait");
}
