//! A client of a server gets what a client in the process gets: every call of an endpoint, and the
//! database on top of it.
//!
//! Both look at the same node, so that their answers can be compared one by one; what only a client
//! over sockets meets (a server that isn't there, that is another, that comes back) has tests of
//! its own.

mod common;

use common::*;
use plinth_client::{
    Database, Endpoint, RangeOptions, ReadVersionRequest, StreamingMode, TransactionOption,
};
use plinth_env::{Env, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_proto::frame::Kind;
use plinth_proto::hello::NEWEST;
use plinth_proto::{Hello, Request, Welcome, reply};
use plinth_server::Limits;
use plinth_types::{Bytes, Error, KeyList, KeyRange, KeySelector, KeySpace, RangeRead};
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn every_call_gives_what_it_gives_in_the_process() {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let near = Arc::new(node.endpoint());
    let server = serve_endpoint(near.clone(), Limits::default());
    let far = remote(&server);
    let db = Database::new(far.clone());
    db.transact_blocking(|tr| {
        for number in 0..3000_u32 {
            tr.set(number.to_be_bytes(), vec![b'v'; (number % 200) as usize]);
        }
        Ok(())
    })
    .unwrap();
    let version = far.read_version(ReadVersionRequest::default()).wait().unwrap().version;
    let mut random = Random(7);
    for round in 0..500 {
        let mut key = || {
            let mut key = (random.below(3100) as u32).to_be_bytes().to_vec();
            if random.below(4) == 0 {
                key.push(0);
            }
            Bytes::from(key)
        };
        let mut keys = KeyList::new();
        for _ in 0..round % 600 {
            keys.push(&key());
        }
        let selector = KeySelector::new(key(), round % 2 == 0, round % 11 - 5);
        let end = KeySelector::new(key(), round % 3 == 0, round % 7 - 3);
        let read = RangeRead {
            begin: selector.clone(),
            end,
            limit: if round % 5 == 0 { usize::MAX } else { round as usize % 50 },
            target_bytes: if round % 4 == 0 { 80_000 } else { 1 + 13 * round as usize },
            reverse: round % 3 == 1,
        };
        let space = if round % 2 == 0 { KeySpace::Normal } else { KeySpace::System };
        let all = |endpoint: &dyn Endpoint| {
            (
                endpoint.get_many(version, space, &keys).wait(),
                endpoint.get_key(version, space, &selector).wait(),
                endpoint.get_range(version, space, &read).wait(),
            )
        };
        assert_eq!(all(&*near), all(&*far), "round {round}");
    }
    let range = KeyRange::new(&b""[..], &b"\xff"[..]);
    assert_eq!(near.range_size(range.clone()).wait(), far.range_size(range.clone()).wait());
    assert_eq!(near.split_points(range.clone(), 9999).wait(), far.split_points(range, 9999).wait());
    assert_eq!(far.addresses_for_key(b"k").wait().unwrap(), [server.addresses()[0].to_string()]);
    assert_eq!(near.describe().cluster_id, far.describe().cluster_id);
    assert_eq!(far.describe().connection_string, server.connection_string());
    assert!(far.status_json().wait().unwrap().contains("connections_accepted"));
    assert_eq!(
        far.get_many(-5, KeySpace::Normal, &KeyList::new()).wait(),
        Err(Error::transaction_too_old())
    );
    assert!(server.figures().reads > 1000 && server.figures().connections >= 1);
}

#[test]
fn transactions_conflict_retry_and_see_their_own_writes() {
    let server = serve(Limits::default());
    let db = database(&server);
    let (one, two) = (db.create_transaction(), db.create_transaction());
    assert_eq!(one.get("k").wait(), Ok(None));
    assert_eq!(two.get("k").wait(), Ok(None));
    one.set("k", "1");
    two.set("k", "2");
    one.commit().wait().unwrap();
    assert_eq!(two.commit().wait(), Err(Error::not_committed()));
    let value = db
        .transact_blocking(|tr| {
            tr.set("own", "write");
            let own = tr.get("own").wait()?;
            assert_eq!(own.as_deref(), Some(&b"write"[..]));
            tr.get("k").wait()
        })
        .unwrap();
    assert_eq!(value.as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_range_larger_than_a_reply_comes_whole() {
    let server = serve(Limits::default());
    let db = database(&server);
    db.transact_blocking(|tr| {
        (0..5000_u32).for_each(|number| tr.set(number.to_be_bytes(), [b'v'; 300]));
        Ok(())
    })
    .unwrap();
    for mode in [StreamingMode::WantAll, StreamingMode::Exact, StreamingMode::Serial] {
        let rows = db
            .transact_blocking(|tr| {
                let all = RangeOptions::from(&b""[..]..&b"\xff"[..]).mode(mode);
                let all = if mode == StreamingMode::Exact { all.limit(5000) } else { all };
                block_on(tr.range(all).collect())
            })
            .unwrap();
        assert_eq!(rows.len(), 5000, "{mode:?}");
    }
}

#[test]
fn watches_fire_over_the_network_and_are_given_up_there_too() {
    let server = serve(Limits::default());
    let (db, other) = (database(&server), database(&server));
    let watch = db.transact_blocking(|tr| Ok(tr.watch("k"))).unwrap();
    let dropped = db.transact_blocking(|tr| Ok(tr.watch("k"))).unwrap();
    drop(dropped);
    other
        .transact_blocking(|tr| {
            tr.set("other", "x");
            Ok(())
        })
        .unwrap();
    assert!(!watch.is_ready());
    other
        .transact_blocking(|tr| {
            tr.set("k", "v");
            Ok(())
        })
        .unwrap();
    watch.wait().unwrap();
}

#[test]
fn operations_wait_for_a_server_that_is_not_there_until_their_timeout() {
    let address = {
        let server = serve(Limits::default());
        server.addresses()[0]
    };
    let file = plinth_client::remote::ClusterFile::new("plinth", "memory", address);
    let db =
        Database::new(Arc::new(plinth_client::remote::RemoteEndpoint::connect(&Env::real(), file)));
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::Timeout(Some(Duration::from_millis(50)))).unwrap();
    assert_eq!(tr.get("k").wait(), Err(Error::transaction_timed_out()));
    tr.reset();
    tr.set_option(TransactionOption::Timeout(Some(Duration::from_millis(50)))).unwrap();
    tr.set("k", "v");
    assert_eq!(tr.commit().wait(), Err(Error::transaction_timed_out()));
}

#[test]
fn a_client_with_another_databases_cluster_file_is_told() {
    let server = serve(Limits::default());
    let file = plinth_client::remote::ClusterFile::new("another", "shop", server.addresses()[0]);
    let db =
        Database::new(Arc::new(plinth_client::remote::RemoteEndpoint::connect(&Env::real(), file)));
    let error = db.create_transaction().get("k").wait().unwrap_err();
    assert_eq!(error.code(), 2104);
    assert!(error.detail().unwrap().contains("another:shop"), "{error}");
}

/// What a server does that speaks newer versions of the protocol alone: it refuses everybody, and
/// says why.
async fn refusing_server(listener: plinth_env::Listener) {
    while let Ok(mut stream) = listener.accept().await {
        let (mut received, mut buffer, mut answer) = (Vec::new(), vec![0; 4096], Vec::new());
        while answer.is_empty() {
            let len =
                poll_fn(|context| stream.poll_receive(context, &mut buffer)).await.unwrap_or(0);
            received.extend_from_slice(&buffer[..len]);
            if len == 0 {
                break;
            }
            if let Some((hello, _)) = Hello::decode(&received).unwrap() {
                let why = format!(
                    "the client speaks versions {} to {} of the protocol, the server {} to {}",
                    hello.oldest,
                    hello.newest,
                    NEWEST + 1,
                    NEWEST + 3
                );
                let refusal =
                    Welcome::refuse(Error::incompatible_protocol_version().with_detail(why));
                Welcome { oldest: NEWEST + 1, newest: NEWEST + 3, ..refusal }.encode(&mut answer);
            }
        }
        let mut sent = 0;
        while sent < answer.len() {
            match poll_fn(|context| stream.poll_send(context, &answer[sent..])).await {
                Ok(more) if more > 0 => sent += more,
                _ => break,
            }
        }
        // Until the client has gone, so that it sees the words.
        while poll_fn(|context| stream.poll_receive(context, &mut buffer))
            .await
            .is_ok_and(|len| len > 0)
        {}
    }
}

#[test]
fn a_client_whose_versions_the_server_does_not_speak_is_told_by_every_operation() {
    let env = Env::real();
    let listener = block_on(env.sockets().listen(loopback())).unwrap();
    let file = plinth_client::remote::ClusterFile::new("plinth", "newer", listener.local_address());
    drop(env.spawn("refusing server", refusing_server(listener)));
    let options = plinth_client::remote::RemoteOptions {
        connections: 1,
        ..plinth_client::remote::RemoteOptions::new(&env)
    };
    let endpoint = plinth_client::remote::RemoteEndpoint::with_options(&env, file, &options);
    let db = Database::new(Arc::new(endpoint));
    let write = |db: &Database| {
        db.transact_blocking(|tr| {
            tr.set("k", "v");
            Ok(())
        })
    };
    // No timeout is set: whoever is not told waits for ever.
    for error in [
        db.create_transaction().get("k").wait().unwrap_err(),
        db.create_transaction().get_read_version().wait().unwrap_err(),
        write(&db).unwrap_err(),
        db.transact_blocking(|tr| tr.get("k").wait()).unwrap_err(),
    ] {
        assert_eq!(error.code(), 2100, "{error}");
        let detail = error.detail().unwrap_or_default();
        let (ours, theirs) =
            (format!("versions 1 to {NEWEST}"), format!("{} to {}", NEWEST + 1, NEWEST + 3));
        assert!(detail.contains(&ours) && detail.contains(&theirs), "{error}");
    }
}

#[test]
fn a_server_that_comes_back_finds_its_clients_waiting() {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    // An address of its own: on the usual one the port may be somebody else's by the time the
    // server is back.
    let start = |address| {
        let config = plinth_server::ServerConfig { listen: vec![address], ..Default::default() };
        block_on(plinth_server::Server::start(Arc::new(node.endpoint()), config)).unwrap()
    };
    let server = start("127.77.4.1:0".parse().unwrap());
    let address = server.addresses()[0];
    let db = database(&server);
    db.transact_blocking(|tr| {
        tr.set("k", "v");
        Ok(())
    })
    .unwrap();
    let watch = db.transact_blocking(|tr| Ok(tr.watch("k"))).unwrap();
    block_on(server.stop());
    let tr = db.create_transaction();
    let read = tr.get("k");
    assert!(!read.is_ready());
    let server = start(address);
    assert_eq!(read.wait().unwrap().as_deref(), Some(&b"v"[..]));
    assert!(!watch.is_ready());
    db.transact_blocking(|tr| {
        tr.set("k", "w");
        Ok(())
    })
    .unwrap();
    watch.wait().unwrap();
    drop(server);
}

#[test]
fn a_reply_ends_where_it_is_large_enough_and_the_rest_is_asked_for_again() {
    let server = serve(Limits::default());
    let db = database(&server);
    db.transact_blocking(|tr| {
        (0..60_u32).for_each(|number| tr.set(number.to_be_bytes(), [b'v'; 90_000]));
        Ok(())
    })
    .unwrap();
    let mut keys = KeyList::new();
    (0..256_u32).for_each(|number| {
        keys.push(&number.to_be_bytes());
    });
    let version = block_on(db.create_transaction().get_read_version()).unwrap();
    let request = Request::GetMany { version, space: KeySpace::Normal, keys: keys.clone() };
    let mut new = Raw::greeted(&server);
    new.ask(1, &request).unwrap();
    let values = |raw: &mut Raw| {
        let (_, kind, body) = raw.next().unwrap();
        assert_eq!(kind, Kind::GetManyReply as u8);
        reply::get_many(&Bytes::from(body)).unwrap()
    };
    // The one that reaches 256 KiB is among them.
    assert_eq!(values(&mut new).len(), 3);
    let mut old = Raw::greeted_in(&server, 2);
    old.ask(1, &request).unwrap();
    let all = values(&mut old);
    assert_eq!((all.len(), all.iter().flatten().count()), (256, 60));
    assert_eq!(remote(&server).get_many(version, KeySpace::Normal, &keys).wait().unwrap(), all);
}
