//! Streams of changes as server-sent events: what comes, from where it goes on, how it ends, what
//! it may cost.
//!
//! Streams are asked for by HTTP/1.0, which has no chunks, so that what comes is the events and
//! nothing else; their end in chunks is looked at once.

use super::common::*;
use super::{OURS, get, get_with, json, open_console, post, start, status};
use plinth_client::{Database, MutationType};
use plinth_env::{Env, block_on};
use plinth_server::{ConsoleConfig, Server};
use plinth_types::{KeyRange, Version};
use std::time::Duration;

fn range(begin: &'static str, end: &'static str) -> KeyRange {
    KeyRange::new(begin, end)
}

fn set(db: &Database, key: &str, value: &[u8]) -> Version {
    let tr = db.create_transaction();
    tr.set(key, value);
    block_on(tr.commit()).unwrap();
    tr.committed_version().unwrap()
}

/// Asks for a stream, without the chunks of HTTP/1.1.
fn follow(server: &Server, path: &str, head: &str) -> Raw {
    let mut raw = Raw::to(server.http_address().unwrap());
    raw.send(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n{head}\r\n").as_bytes()).unwrap();
    raw
}

/// The events that have data in what came: id, kind, lines.
fn events(text: &str) -> Vec<(Option<Version>, String, Vec<String>)> {
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains("content-type: text/event-stream") && head.contains("no-store"),
        "{head}"
    );
    let event = |text: &str| {
        let field =
            |name: &'static str| text.lines().filter_map(move |line| line.strip_prefix(name));
        let id = field("id: ").next().map(|id| id.parse().unwrap());
        let lines: Vec<_> = field("data: ").map(str::to_owned).collect();
        (!lines.is_empty()).then(|| (id, field("event: ").collect(), lines))
    };
    body.split("\n\n").filter_map(event).collect()
}

#[test]
fn a_stream_comes_as_events_goes_on_behind_the_last_one_and_says_when_it_is_over() {
    let server = open_console();
    let db = database(&server);
    db.register_changes("or/d+r s", [range("a", "b"), range("x", "z")], None).wait().unwrap();
    set(&db, "n", b"not in it");
    let tr = db.create_transaction();
    tr.set("a\"1", b"\x00\\");
    tr.clear_range("a2", "y");
    tr.atomic_op("x", [1, 0], MutationType::Add);
    block_on(tr.commit()).unwrap();
    let first = tr.committed_version().unwrap();
    let second = set(&db, "a3", b"v");
    let path = "/api/changes/or%2Fd+r%20s";
    let mut raw = follow(&server, path, "");
    let found = events(&raw.until(&format!("\"version\":{second}")));
    let expected = [
        format!(r#"{{"key":"a\"1","type":"set","value":"\\x00\\\\","version":{first}}}"#),
        format!(r#"{{"end":"b","key":"a2","type":"clear_range","version":{first}}}"#),
        format!(r#"{{"end":"y","key":"x","type":"clear_range","version":{first}}}"#),
        format!(r#"{{"key":"x","type":"add","value":"\\x01\\x00","version":{first}}}"#),
    ];
    assert_eq!(found[0], (Some(first), String::new(), expected.to_vec()));
    assert_eq!((found[1].0, found.len()), (Some(second), 2));
    // What comes later, too; and from behind an event, as a browser asks, or a version, as others
    // do.
    let third = set(&db, "a4", b"v");
    assert_eq!(events(&raw.until(&format!("\"version\":{third}")))[2].0, Some(third));
    let from = format!("{path}?from={first}");
    for (path, head, next) in [
        (path, format!("Last-Event-ID: {first}\r\n"), second),
        (&from[..], String::new(), second),
        (&from[..], format!("Last-Event-ID: {second}\r\n"), third),
    ] {
        let found = events(&follow(&server, path, &head).until(&format!("\"version\":{third}")));
        assert_eq!(found[0].0, Some(next), "{path} {head}");
    }
    for (path, head) in [(&path.replace("%20", "%zz")[..], ""), (path, "Last-Event-ID: x\r\n")] {
        assert_eq!(status(&get_with(&server, path, head)), "400", "{path} {head}");
    }
    assert_eq!(status(&get(&server, &format!("{path}?from=-1"))), "400");
    // In chunks the end can be told from a connection that broke.
    let mut chunked = Raw::to(server.http_address().unwrap());
    chunked.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
    chunked.until(&format!("\"version\":{third}"));
    db.remove_changes("or/d+r s").wait().unwrap();
    let text = chunked.until("\r\n0\r\n\r\n");
    assert!(text.contains("event: end\n") && text.ends_with("\r\n0\r\n\r\n"), "{text}");
    let found = events(&String::from_utf8(raw.all()).unwrap());
    let (id, kind, lines) = found.last().unwrap();
    assert_eq!((*id, &kind[..]), (None, "end"));
    assert!(lines[0].contains("was removed") && lines[0].contains("2000"), "{lines:?}");
    // No browser asks again behind such a status.
    let again = get(&server, path);
    assert!(status(&again) == "404" && again.contains("no stream of the name or/d+r s"), "{again}");
}

#[test]
fn a_reader_of_a_stream_that_was_lost_is_told_so() {
    let server = open_console();
    let db = database(&server);
    db.register_changes("s", [range("", "\u{7f}")], Some(20_000)).wait().unwrap();
    let first = set(&db, "k", b"v");
    let mut raw = follow(&server, "/api/changes/s", "");
    raw.until(&format!("\"version\":{first}"));
    for at in 0..10 {
        set(&db, &format!("k{at}"), &[b'v'; 10_000]);
    }
    let text = String::from_utf8(raw.all()).unwrap();
    let found = events(&text);
    let (_, kind, lines) = found.last().unwrap();
    assert!(kind == "end" && lines[0].contains("\"code\":2011"), "{text}");
    assert!(lines[0].contains("held back") && lines[0].contains("register it again"), "{text}");
    let again = get(&server, "/api/changes/s");
    assert!(status(&again) == "410" && again.contains("has lost changes"), "{again}");
}

#[test]
fn who_may_write_acknowledges() {
    let server = open_console();
    let db = database(&server);
    db.register_changes("s", [range("", "\u{7f}")], None).wait().unwrap();
    let version = set(&db, "k", b"v");
    let path = format!("/api/changes/s/ack?version={version}");
    assert_eq!(status(&post(&server, &path, "", "")), "403", "a form has no such header");
    assert_eq!(status(&get(&server, &path)), "405");
    let noted = post(&server, &path, OURS, "");
    assert!(status(&noted) == "200" && json(&noted)["acknowledged"] == version, "{noted}");
    assert_eq!(db.list_changes().wait().unwrap()[0].acknowledged, version);
    let back = json(&post(&server, "/api/changes/s/ack?version=1", OURS, ""));
    assert_eq!(back["acknowledged"], version, "it never goes back");
    let before = get(&server, "/api/changes/s?from=0");
    assert!(status(&before) == "410" && before.contains("have been acknowledged"), "{before}");
    for (path, expected) in [
        ("/api/changes/s/ack", "400"),
        ("/api/changes/s/ack?version=x", "400"),
        ("/api/changes/s/ack?version=9223372036854775807", "400"),
        ("/api/changes/t/ack?version=1", "404"),
        ("/api/changes/", "404"),
    ] {
        let told = post(&server, path, OURS, "");
        let expected = if path.ends_with('/') { "405" } else { expected };
        assert_eq!(status(&told), expected, "{path}: {told}");
    }
    let reader = start(ConsoleConfig::default());
    let refused = post(&reader, &path, OURS, "");
    assert!(status(&refused) == "403" && refused.contains("--console-write"), "{refused}");
}

#[test]
fn a_reader_that_does_not_read_takes_little_memory_and_misses_nothing() {
    let server = open_console();
    let db = database(&server);
    db.register_changes("s", [range("", "\u{7f}")], None).wait().unwrap();
    let last = (0..120).fold(0, |_, at| set(&db, &format!("k{at}"), &[b'v'; 99_000]));
    let mut raw = follow(&server, "/api/changes/s", "");
    raw.until("\"version\"");
    for _ in 0..10 {
        block_on(Env::real().sleep(Duration::from_millis(20)));
        let metrics = get(&server, "/metrics");
        let held =
            metrics.lines().find_map(|line| line.strip_prefix("plinth_server_buffered_bytes "));
        let held: usize = held.unwrap().parse().unwrap();
        assert!((1..1 << 20).contains(&held), "a feed that nobody reads holds {held} bytes");
    }
    let found = events(&raw.until(&format!("\"version\":{last}")));
    assert_eq!((found.len(), found[119].0), (120, Some(last)));
}

#[test]
fn feeds_are_few_so_that_others_find_a_connection() {
    let server = open_console();
    database(&server).register_changes("s", [range("", "\u{7f}")], None).wait().unwrap();
    let mut open: Vec<_> = (0..32).map(|_| follow(&server, "/api/changes/s", "")).collect();
    open.iter_mut().for_each(|raw| assert_eq!(status(&raw.until("id: ")), "200"));
    assert_eq!(status(&get(&server, "/api/changes/s")), "503");
    assert_eq!(status(&get(&server, "/health")), "200");
    open.pop();
    // Who has gone is found out by the next word.
    let mut raw = follow(&server, "/api/changes/s", "");
    while status(&raw.until("id: ")) != "200" {
        block_on(Env::real().sleep(Duration::from_millis(50)));
        raw = follow(&server, "/api/changes/s", "");
    }
}
