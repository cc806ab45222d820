//! The bytes on the page are the bytes of the code: what `docs/format/protocol.md` shows is what
//! client and server say.

use plinth_proto::frame::Kind;
use plinth_proto::{Hello, ReadVersion, Request, Welcome, reply};
use plinth_types::{
    Bytes, CommitReply, CommitRequest, Error, KeyList, KeySelector, KeySpace, MutationType,
    RangeRead, RangeResult, Rows, Version,
};

const PAGE: &str = include_str!("../../../docs/format/protocol.md");

/// The bytes of each block of the page, in order.
fn blocks() -> Vec<Vec<u8>> {
    let blocks = PAGE.split("```").skip(1).step_by(2);
    let byte = |digits| u8::from_str_radix(digits, 16).expect("two hexadecimal digits");
    blocks.map(|block| block.split_whitespace().map(byte).collect()).collect()
}

fn encoded(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out);
    out
}

fn get(version: Version) -> Request {
    let mut keys = KeyList::new();
    keys.push(b"hello");
    Request::GetMany { version, space: KeySpace::Normal, keys }
}

fn commit() -> Request {
    let mut request = CommitRequest::default();
    request.conflicts.read_version = 1_000_000;
    request.conflicts.writes.push_single(b"hello");
    request.mutations.push(MutationType::Set, b"hello", b"world");
    Request::Commit(Box::new(request))
}

fn range() -> Request {
    let read = RangeRead {
        begin: KeySelector::first_greater_or_equal(&b"h"[..]),
        end: KeySelector::first_greater_or_equal(&b"i"[..]),
        limit: usize::MAX,
        target_bytes: usize::MAX,
        reverse: false,
    };
    Request::GetRange { version: 1_100_000, space: KeySpace::Normal, read }
}

fn conversation() -> Vec<Vec<u8>> {
    let hello = Hello::new("", "example");
    let welcome = Welcome::accept(&hello, 9, "00112233445566778899aabbccddeeff");
    let begin = ReadVersion { priority: 1, count: 1, ..ReadVersion::default() };
    let mut rows = Rows::builder();
    rows.push(b"hello", b"world");
    let rows = RangeResult { rows: rows.finish(), ..RangeResult::default() };
    let committed = CommitReply::Committed { version: 1_100_000, batch_index: 0 };
    let too_old = Error::transaction_too_old().with_detail("the version is too old");
    vec![
        encoded(|out| hello.encode(out)),
        encoded(|out| welcome.encode(out)),
        encoded(|out| Request::ReadVersion(begin).encode(out, 1)),
        encoded(|out| reply::put_read_version(out, 1, 1_000_000, None, None)),
        encoded(|out| commit().encode(out, 2)),
        encoded(|out| reply::put_commit(out, 2, &committed)),
        encoded(|out| get(1_100_000).encode(out, 3)),
        encoded(|out| reply::put_get_many(out, 3, &[Some(Bytes::from_static(b"world"))])),
        encoded(|out| range().encode(out, 4)),
        encoded(|out| reply::put_get_range(out, 4, &rows)),
        encoded(|out| get(1).encode(out, 5)),
        encoded(|out| reply::put_failure(out, 5, &too_old)),
    ]
}

#[test]
fn every_block_on_the_page_is_what_the_code_says() {
    let mut expected = vec![encoded(|out| Hello::new("a:b", "c").encode(out))];
    expected.extend(conversation());
    let found = blocks();
    assert_eq!(found.len(), expected.len(), "blocks on the page");
    for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "block {at}: the page on the left, the code on the right");
    }
}

#[test]
fn every_kind_and_every_mutation_has_its_row() {
    let row = |number: u8| PAGE.lines().any(|line| line.starts_with(&format!("| {number} | ")));
    for kind in (0..=255).filter_map(Kind::from_code).filter(|kind| !kind.is_reply()) {
        assert!(row(kind as u8), "{kind:?}");
    }
    let mutations =
        PAGE.split("## Mutations").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    for code in 0..=255 {
        let has_row = mutations.lines().any(|line| line.starts_with(&format!("| {code} | ")));
        assert_eq!(has_row, MutationType::from_code(code).is_some(), "mutation {code}");
    }
}
