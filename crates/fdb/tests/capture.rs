//! Change data capture through the C library: ours, which has it as FoundationDB 8 has, and one
//! without it.

mod common;

use common::{memory, open, stub};
use plinth_client::{CapturedStream, ChangeCapture, MutationType};
use plinth_fdb::{Foundation, Target};
use plinth_types::{ChangeBatch, Error, KeyRange, Version};

fn lines(batches: &[ChangeBatch]) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mutations = batches.iter().flat_map(|batch| batch.mutations.iter());
    mutations.map(|it| format!("{:?} {} {}", it.kind, text(it.param1), text(it.param2))).collect()
}

/// What comes next that has something in it.
fn next(consumer: &dyn plinth_client::CaptureConsumer) -> (Vec<String>, Version) {
    loop {
        let changes = consumer.next().wait().unwrap();
        if !changes.batches.is_empty() {
            assert!(changes.batches.iter().all(|batch| batch.version <= changes.upto));
            return (lines(&changes.batches), changes.upto);
        }
    }
}

#[test]
fn a_stream_is_registered_read_acknowledged_and_removed() {
    let db = memory();
    let capture = db.endpoint().change_capture().expect("a C library may have it");
    let range = KeyRange::new("", &b"\xff"[..]);
    let id = capture.register(b"\0dr/1", &range).wait().unwrap();
    assert_eq!(capture.register(b"\0dr/1", &range).wait(), Ok(id), "it is there already");
    let other = KeyRange::new("a", "b");
    assert_eq!(capture.register(b"\0dr/1", &other).wait(), Err(Error::client_invalid_operation()));
    let found = capture.list().wait().unwrap();
    let [CapturedStream { name, id: listed, needed }] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&name[..], *listed), (&b"\0dr/1"[..], id));
    let tr = db.create_transaction();
    tr.set("a", "1");
    tr.clear_range("b", "c");
    tr.atomic_op("d", 7_u64.to_le_bytes(), MutationType::ByteMax);
    tr.commit().wait().unwrap();
    assert!(tr.committed_version() >= Some(*needed));
    let consumer = capture.consume(b"\0dr/1").wait().unwrap();
    let (mutations, upto) = next(&*consumer);
    assert!(
        mutations[..2] == ["Set a 1", "ClearRange b c"] && mutations[2].starts_with("ByteMax d "),
        "{mutations:?}"
    );
    // What wasn't acknowledged comes again.
    drop(consumer);
    let consumer = capture.consume(b"\0dr/1").wait().unwrap();
    assert_eq!(next(&*consumer).0, mutations);
    consumer.acknowledge().wait().unwrap();
    assert!(capture.list().wait().unwrap()[0].needed > upto - 1);
    let tr = db.create_transaction();
    tr.set("e", "2");
    tr.commit().wait().unwrap();
    let again = capture.consume(b"\0dr/1").wait().unwrap();
    assert_eq!(next(&*again).0, ["Set e 2"]);
    capture.remove(b"\0dr/1").wait().unwrap();
    assert_eq!(capture.list().wait(), Ok(Vec::new()));
    assert_eq!(capture.remove(b"\0dr/1").wait(), Err(Error::client_invalid_operation()));
    assert_eq!(consumer.next().wait(), Err(Error::client_invalid_operation()));
}

#[test]
fn a_reply_that_is_dropped_leaves_the_consumer_free() {
    let endpoint = open(":memory:");
    endpoint.register(b"s", &KeyRange::new("a", "b")).wait().unwrap();
    let consumer = endpoint.consume(b"s").wait().unwrap();
    drop(consumer.next());
    assert!(consumer.next().wait().unwrap().batches.is_empty());
}

#[test]
fn a_library_without_it_is_told_with_what_to_do() {
    let library = stub("libfdb_c_without.so", &["-DFUTURE_ERROR=0"]).display().to_string();
    let endpoint =
        Foundation::open(&Target { cluster_file: String::new(), library: Some(library) }).unwrap();
    let error = endpoint.list().wait().unwrap_err();
    assert_eq!(error, Error::unsupported_operation());
    let told = error.to_string();
    assert!(told.contains("libfdb_c_without.so") && told.contains("FoundationDB 8"), "{told}");
    assert!(told.contains("?lib=PATH") && told.contains("register"), "{told}");
}
