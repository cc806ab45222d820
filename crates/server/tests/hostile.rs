//! Whatever arrives on its sockets, the server answers with an error that names the cause, or
//! closes, and serves on.
//!
//! The client here is made of bare bytes, so that it can say what no library would: nothing, half
//! of something, lies in every field, more than it reads. After each attempt an ordinary client
//! must find the server as it was.

mod common;

use common::*;
use plinth_client::RangeOptions;
use plinth_env::{Env, block_on};
use plinth_proto::frame::{self, HEADER, Kind, MAX_REQUEST, NO_ID};
use plinth_proto::{Hello, ReadVersion, Request, reply};
use plinth_server::{Limits, Server};
use plinth_types::{
    Bytes, CommitRequest, KeyList, KeyRange, KeySelector, KeySpace, MutationType, RangeRead,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// The server does what it is for.
fn assert_serves(server: &Server) {
    let db = database(server);
    db.transact_blocking(|tr| {
        tr.set("still", "here");
        Ok(())
    })
    .unwrap();
    let value = db.transact_blocking(|tr| tr.get("still").wait()).unwrap();
    assert_eq!(value.as_deref(), Some(&b"here"[..]));
}

#[test]
fn other_protocols_and_other_versions_are_told_so() {
    let server = serve(Limits::default());
    let mut http = Raw::connect(&server);
    http.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let refused = http.welcome().unwrap().refused.unwrap();
    assert!(refused.detail().unwrap().contains("doesn't speak"), "{refused}");
    assert_eq!(http.receive(), 0);

    let mut newer = Raw::connect(&server);
    let mut hello = Vec::new();
    let newest = plinth_proto::hello::NEWEST;
    let newer_one = Hello { oldest: newest + 1, newest: newest + 3, ..Hello::new("", "newer") };
    newer_one.encode(&mut hello);
    newer.send(&hello).unwrap();
    let welcome = newer.welcome().unwrap();
    assert_eq!((welcome.version, welcome.newest), (0, newest));
    assert_eq!(welcome.refused.unwrap().code(), 2100);
    assert_serves(&server);
}

#[test]
fn a_lie_in_any_byte_of_a_greeting_is_told_and_nobody_waits_for_four_gigabytes() {
    let server = serve(Limits { greeting: Duration::from_millis(500), ..Limits::default() });
    let mut hello = Vec::new();
    Hello::new("plinth:any", "liar").encode(&mut hello);
    for at in 0..hello.len() {
        for bit in [0, 7] {
            let mut lie = hello.clone();
            lie[at] ^= 1 << bit;
            let mut raw = Raw::connect(&server);
            raw.send(&lie).unwrap();
            match raw.welcome() {
                Ok(welcome) => {
                    let refused =
                        welcome.refused.unwrap_or_else(|| panic!("byte {at}: it was believed"));
                    assert!(
                        refused.detail().is_some_and(|detail| !detail.is_empty()),
                        "byte {at}: {refused}"
                    );
                }
                // It says that it is a little longer than it is: the rest is waited for, and not
                // for long.
                Err(_) => assert!((8..10).contains(&at), "byte {at}, bit {bit}: no word"),
            }
        }
    }
    let mut huge = Raw::connect(&server);
    hello[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    huge.send(&hello).unwrap();
    let refused = huge.welcome().unwrap().refused.unwrap();
    assert!(refused.detail().unwrap().contains("4294967295"), "{refused}");
    assert_serves(&server);
}

#[test]
fn garbage_ends_its_connection_and_no_other() {
    let server = serve(Limits::default());
    let mut witness = Raw::greeted(&server);
    for seed in 1..300 {
        let mut random = Random(seed);
        let mut garbage: Vec<u8> =
            (0..HEADER + random.below(300)).map(|_| random.next() as u8).collect();
        if seed % 2 == 0 {
            let mut raw = Raw::connect(&server);
            raw.send(&garbage).unwrap();
            assert!(raw.welcome().unwrap().refused.is_some(), "seed {seed}");
            assert_eq!(raw.receive(), 0, "seed {seed}");
        } else {
            // As a frame it has a length that is there; else it would be waited for.
            let len = (garbage.len() - HEADER) as u32;
            garbage[4..8].copy_from_slice(&len.to_le_bytes());
            let mut raw = Raw::greeted(&server);
            raw.send(&garbage).unwrap();
            let (id, error) = raw.failure();
            assert_eq!((id, error.code()), (NO_ID, 1520), "seed {seed}: {error}");
            assert_eq!(raw.next(), None, "seed {seed}");
        }
        let id = seed as u32;
        witness.ask(id, &Request::Ping).unwrap();
        assert_eq!(witness.next().map(|(id, kind, _)| (id, kind)), Some((id, Kind::Pong as u8)));
    }
    assert_serves(&server);
}

#[test]
fn what_is_no_frame_ends_the_connection_with_the_cause() {
    let server = serve(Limits::default());
    let mut huge = Raw::greeted(&server);
    let mut header = vec![0; HEADER];
    header[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    huge.send(&header).unwrap();
    let (id, error) = huge.failure();
    assert!(id == NO_ID && error.detail().unwrap().contains("4294967295"), "{error}");
    assert_eq!(huge.next(), None);

    let mut damaged = Raw::greeted(&server);
    let mut frame = Vec::new();
    Request::Status.encode(&mut frame, 3);
    frame[0] ^= 1;
    damaged.send(&frame).unwrap();
    assert_eq!(damaged.failure().1.code(), 1520);
    assert_eq!(damaged.next(), None);
    assert_serves(&server);
}

#[test]
fn a_whole_frame_that_says_nonsense_is_answered_and_the_connection_goes_on() {
    let server = serve(Limits::default());
    let mut raw = Raw::greeted(&server);
    let mut frame = Vec::new();
    Request::Ping.encode(&mut frame, 5);
    frame[12] = 99;
    frame::finish(&mut frame, 0);
    raw.send(&frame).unwrap();
    let (id, error) = raw.failure();
    assert!(id == 5 && error.detail().unwrap().contains("kind 99"), "{error}");
    raw.ask(6, &Request::Ping).unwrap();
    assert_eq!(raw.next(), Some((6, Kind::Pong as u8, Vec::new())));
}

/// One of each request, sensible.
fn requests() -> Vec<Request> {
    let mut keys = KeyList::new();
    keys.push(b"k");
    let selector = || KeySelector::first_greater_or_equal(&b"k"[..]);
    let mut commit = CommitRequest::default();
    commit.mutations.push(MutationType::Set, b"k", b"v");
    commit.mutations.push(MutationType::ClearRange, b"x", b"y");
    commit.mutations.push(
        MutationType::SetVersionstampedKey,
        b"k\0\0\0\0\0\0\0\0\0\0\x01\0\0\0",
        b"v",
    );
    commit.conflicts.writes.push(b"k", b"y");
    commit.conflicts.reads.push_single(b"k");
    let range = KeyRange::new(&b"a"[..], &b"z"[..]);
    let snapshot_range = range.clone();
    vec![
        Request::Ping,
        Request::ReadVersion(ReadVersion {
            tags: vec![Bytes::from_static(b"tag")],
            ..Default::default()
        }),
        Request::GetMany { version: 1, space: KeySpace::Normal, keys },
        Request::GetKey { version: 1, space: KeySpace::System, selector: selector() },
        Request::GetRange {
            version: 1,
            space: KeySpace::System,
            read: RangeRead {
                begin: selector(),
                end: KeySelector::first_greater_than(&b"z"[..]),
                limit: 9,
                target_bytes: 999,
                reverse: false,
            },
        },
        Request::Commit(Box::new(commit)),
        Request::Watch { key: Bytes::from_static(b"k"), value: None, version: 1 },
        Request::Cancel,
        Request::RangeSize(range.clone()),
        Request::SplitPoints { range, chunk: 1 },
        Request::Addresses(Bytes::from_static(b"k")),
        Request::Status,
        Request::Pin { lease_ms: 1000 },
        Request::Renew { snapshot: [7; 16], lease_ms: 1000 },
        Request::Release([7; 16]),
        Request::InSnapshot {
            snapshot: [7; 16],
            read: Box::new(Request::RangeSize(snapshot_range)),
        },
        Request::Clients,
        Request::Disconnect(Bytes::from_static(b"192.0.2.1:9")),
        Request::Reboot(Bytes::from_static(b"192.0.2.1:9")),
    ]
}

#[test]
fn a_lie_in_any_byte_of_any_request_harms_nobody_else() {
    let server = serve(Limits::default());
    let all = requests();
    for (seed, request) in (1..).zip(all.iter().cycle().take(40 * all.len())) {
        let mut random = Random(seed);
        let mut raw = Raw::greeted(&server);
        let mut frame = Vec::new();
        request.encode(&mut frame, 1);
        for _ in 0..1 + random.below(3) {
            let len = frame.len() - HEADER;
            if len == 0 {
                break;
            }
            let at = HEADER + random.below(len);
            match random.below(3) {
                0 => frame[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
                1 => frame[at] = random.next() as u8,
                _ => frame.truncate(at.max(HEADER + 1)),
            }
        }
        frame::finish(&mut frame, 0);
        raw.send(&frame).unwrap();
        raw.ask(2, &Request::Ping).unwrap();
        // Whatever became of the first, the second is answered.
        while let Some((id, _, _)) = raw.next() {
            if id == 2 {
                break;
            }
        }
        raw.ask(3, &Request::Ping).unwrap();
        loop {
            let (id, _, _) =
                raw.next().unwrap_or_else(|| panic!("seed {seed}: the connection was closed"));
            if id == 3 {
                break;
            }
        }
    }
    assert_serves(&server);
}

/// What is wrong with an answer to a request of this kind, if anything is: it is either what such
/// requests are answered with, whole, or a failure that says why.
fn flaw(request: &Request, kind: u8, body: Vec<u8>) -> Option<String> {
    let body = Bytes::from(body);
    let kind = match Kind::from_code(kind) {
        Some(Kind::Failure) => {
            let error = reply::failure(&body);
            // Those that may mean anything need words: unknown, not allowed, an invalid value,
            // internal.
            let needs_words = [1500, 2000, 2006, 2018, 4000, 4100].contains(&error.code());
            let is_told = !needs_words || error.detail().is_some_and(|detail| !detail.is_empty());
            return (!is_told).then(|| format!("a failure without a cause: {error}"));
        }
        Some(kind) => kind,
        None => return Some(format!("an answer of kind {kind}")),
    };
    let decoded = match (request, kind) {
        (Request::Ping, Kind::Pong) => Ok(()),
        (Request::ReadVersion(_), Kind::ReadVersionReply) => reply::read_version(&body).map(drop),
        (Request::GetMany { .. }, Kind::GetManyReply) => reply::get_many(&body).map(drop),
        (Request::GetKey { .. }, Kind::GetKeyReply) => Ok(()),
        (Request::GetRange { .. }, Kind::GetRangeReply) => reply::get_range(&body).map(drop),
        (Request::Commit(_), Kind::CommitReply) => reply::commit(&body).map(drop),
        (Request::Watch { .. }, Kind::WatchReply) => reply::number(&body).map(drop),
        (Request::RangeSize(_), Kind::RangeSizeReply) => reply::number(&body).map(drop),
        (Request::SplitPoints { .. }, Kind::SplitPointsReply) => reply::list(&body).map(drop),
        (Request::Addresses(_), Kind::AddressesReply) => reply::list(&body).map(drop),
        (Request::Status, Kind::StatusReply) => Ok(()),
        (Request::Pin { .. }, Kind::PinReply) => reply::pin(&body).map(drop),
        (Request::Release(_), Kind::ReleaseReply) => Ok(()),
        (Request::Clients, Kind::ClientsReply) => reply::list(&body).map(drop),
        (Request::Disconnect(_), Kind::DisconnectReply) => reply::number(&body).map(drop),
        (Request::Reboot(_), Kind::RebootReply) => reply::number(&body).map(drop),
        _ => return Some(format!("an answer of another kind: {kind:?}")),
    };
    decoded.err().map(|error| format!("an answer that makes no sense: {error}"))
}

#[test]
fn each_byte_of_each_request_may_lie_and_every_lie_is_answered() {
    let server = serve(Limits::default());
    for request in requests() {
        let mut raw = Raw::greeted(&server);
        let (mut lies, mut waiting) = (Vec::new(), BTreeMap::new());
        let mut frame = Vec::new();
        request.encode(&mut frame, 0);
        let places =
            (frame::KIND..frame.len()).flat_map(|at| [0, 0xff, 0x80].map(|value| (at, value)));
        for (id, (at, value)) in (0..).zip(places) {
            let mut lie = frame.clone();
            lie[at] = value;
            frame::finish(&mut lie, 0);
            frame::set_id(&mut lie, id);
            lies.extend(lie);
            // A request to take back has no answer of its own.
            if !matches!(request, Request::Cancel) || at == frame::KIND {
                waiting.insert(id, format!("{request:?} with {value:#x} as byte {at}"));
            }
            // What waits for a change is taken back, and answered so.
            if let Request::Watch { .. } = request {
                Request::Cancel.encode(&mut lies, id);
            }
        }
        raw.send(&lies).unwrap();
        while !waiting.is_empty() {
            let next = raw.next();
            let (id, kind, body) =
                next.unwrap_or_else(|| panic!("the server closed, and left {waiting:?}"));
            let lie = waiting.remove(&id).unwrap_or_else(|| panic!("{id} was answered twice"));
            if let Some(flaw) = flaw(&request, kind, body) {
                panic!("{lie}: {flaw}");
            }
        }
        raw.ask(7, &Request::Ping).unwrap();
        assert_eq!(
            raw.next().map(|(id, kind, _)| (id, kind)),
            Some((7, Kind::Pong as u8)),
            "{request:?}"
        );
    }
    assert_serves(&server);
}

#[test]
fn clients_that_vanish_in_the_middle_of_anything_leave_nothing_behind() {
    let server = serve(Limits::default());
    for seed in 1..200 {
        let mut random = Random(seed);
        let mut raw = if seed % 3 == 0 { Raw::connect(&server) } else { Raw::greeted(&server) };
        let mut stream = Vec::new();
        for (id, request) in (0..).zip(requests()) {
            request.encode(&mut stream, id);
        }
        stream.truncate(random.below(stream.len()));
        let _ = raw.send(&stream);
    }
    assert_serves(&server);
    // The commits among them that were whole are done, or not; the connections end.
    while server.figures().connections > 4 {
        block_on(Env::real().sleep(Duration::from_millis(5)));
    }
}

#[test]
fn a_commit_whose_client_vanishes_takes_effect_whole_or_not_at_all() {
    const CLIENTS: u32 = 120;
    let server = serve(Limits::default());
    let waits = |client: u32| client.is_multiple_of(12);
    let mut whole = 0;
    for client in 0..CLIENTS {
        let mut random = Random(u64::from(client) + 1);
        let mut commit = CommitRequest::default();
        // Long enough to arrive in several pieces.
        for row in 0..20_u32 {
            commit.mutations.push(
                MutationType::Set,
                &[client.to_be_bytes(), row.to_be_bytes()].concat(),
                &[7; 9000],
            );
        }
        let mut frame = Vec::new();
        Request::Commit(Box::new(commit)).encode(&mut frame, 1);
        // Some say all of it, and a few of those wait for the answer.
        let said = if client % 3 == 0 { frame.len() } else { random.below(frame.len()) };
        whole += usize::from(said == frame.len());
        let mut raw = Raw::greeted(&server);
        raw.send(&frame[..said]).unwrap();
        if waits(client) {
            let answer = raw.next().map(|(id, kind, _)| (id, kind));
            assert_eq!(answer, Some((1, Kind::CommitReply as u8)));
        }
    }
    while server.figures().connections > 0 {
        block_on(Env::real().sleep(Duration::from_millis(5)));
    }
    let db = database(&server);
    let rows_of = |client: u32| {
        let range = client.to_be_bytes().to_vec()..(client + 1).to_be_bytes().to_vec();
        db.transact_blocking(|tr| block_on(tr.range(RangeOptions::from(range.clone())).collect()))
            .unwrap()
            .len()
    };
    let rows: Vec<_> = (0..CLIENTS).map(rows_of).collect();
    assert!(rows.iter().all(|rows| matches!(rows, 0 | 20)), "{rows:?}");
    let done = rows.iter().filter(|rows| **rows == 20).count();
    assert!(done <= whole, "{done} took effect, and {whole} were said to their end");
    // Of the others the server may learn that nobody waits before it begins.
    assert!((0..CLIENTS).filter(|client| waits(*client)).all(|client| rows[client as usize] == 20));
    assert_serves(&server);
}

#[test]
fn one_connection_too_many_is_told_the_limit() {
    let server = serve(Limits { connections: 8, ..Limits::default() });
    let mut held: Vec<_> = (0..8).map(|_| Raw::greeted(&server)).collect();
    let mut extra = Raw::connect(&server);
    let refused = extra.welcome().unwrap().refused.unwrap();
    assert!(refused.detail().unwrap().contains("8 connections"), "{refused}");
    assert_eq!(extra.receive(), 0);
    held[3].ask(1, &Request::Ping).unwrap();
    assert_eq!(held[3].next().unwrap().0, 1);
    held.truncate(4);
    while server.figures().connections > 4 {
        block_on(Env::real().sleep(Duration::from_millis(5)));
    }
    assert_serves(&server);
}

#[test]
fn twenty_thousand_connections_against_a_limit_are_told_it_and_those_within_it_are_served() {
    // However long it takes here, none of those who hold on is idle for long.
    let silence = Duration::from_secs(3600);
    let server = serve(Limits { connections: 200, silence, ..Limits::default() });
    let mut held: Vec<_> = (0..200).map(|_| Raw::greeted(&server)).collect();
    let mut told = 0;
    for batch in 0..10_usize {
        let mut crowd: Vec<_> = (0..2000).map(|_| Raw::connect(&server)).collect();
        // Somebody within the limit, while all of them knock.
        let within = &mut held[batch * 20];
        within.ask(batch as u32, &Request::Ping).unwrap();
        assert_eq!(within.next().unwrap().0, batch as u32);
        for raw in &mut crowd {
            // Who comes when too many are being told already is just closed.
            if let Ok(welcome) = raw.welcome() {
                assert!(welcome.refused.unwrap().detail().unwrap().contains("200 connections"));
                told += 1;
            }
        }
    }
    assert!(told >= 10_000, "only {told} of 20000 were told why");
    let figures = server.figures();
    assert_eq!((figures.connections, figures.refused), (200, 20_000));
    drop(held);
    while server.figures().connections > 0 {
        block_on(Env::real().sleep(Duration::from_millis(5)));
    }
    assert_serves(&server);
}

#[test]
fn a_client_that_takes_no_answers_is_asked_no_more_and_others_go_on() {
    let limits = Limits { silence: Duration::from_secs(3), ..Limits::default() };
    let server = serve(limits);
    let db = database(&server);
    db.transact_blocking(|tr| {
        (0..1000_u32).for_each(|number| tr.set(number.to_be_bytes(), [b'v'; 1000]));
        Ok(())
    })
    .unwrap();
    let version = db.create_transaction().get_read_version().wait().unwrap();
    let read = RangeRead {
        begin: KeySelector::first_greater_or_equal(&b""[..]),
        end: KeySelector::first_greater_or_equal(&b"\xff"[..]),
        limit: usize::MAX,
        target_bytes: usize::MAX,
        reverse: false,
    };
    let request = Request::GetRange { version, space: KeySpace::Normal, read };
    let mut slow = Raw::greeted(&server);
    let mut frames = Vec::new();
    // Answers of a few gigabytes.
    (0..20_000).for_each(|id| request.encode(&mut frames, id));
    slow.send(&frames[..frames.len().min(1 << 20)]).unwrap();
    assert_serves(&server);
    let asked = server.figures().ranges;
    assert!(asked < 2000, "{asked} of the answers were made although nobody takes them");
    // What waited for it is let go in the end, and so is the connection.
    drop(db);
    while server.figures().connections > 0 {
        block_on(Env::real().sleep(Duration::from_millis(20)));
    }
    drop(slow);
}

#[test]
fn half_a_frame_is_waited_for_and_a_silent_client_is_not() {
    let limits = Limits { greeting: Duration::from_millis(500), ..Limits::default() };
    let server = serve(limits);
    let mut silent = Raw::connect(&server);
    assert_eq!(silent.receive(), 0);
    let mut raw = Raw::greeted(&server);
    let mut frame = Vec::new();
    let mut commit = CommitRequest::default();
    for number in 0..50_u32 {
        commit.mutations.push(MutationType::Set, &number.to_be_bytes(), &[7; 90_000]);
    }
    Request::Commit(Box::new(commit)).encode(&mut frame, 1);
    assert!(frame.len() < MAX_REQUEST);
    let (first, second) = frame.split_at(frame.len() / 2 + 7);
    raw.send(first).unwrap();
    assert_serves(&server);
    raw.send(second).unwrap();
    assert_eq!(raw.next().map(|(id, kind, _)| (id, kind)), Some((1, Kind::CommitReply as u8)));
}
