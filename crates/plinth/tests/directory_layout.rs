//! What directories look like in the database: the bytes that FoundationDB's bindings write, and
//! expect.
//!
//! An application in another language opens the same directories, so every row is held here as
//! literal bytes; and rows that no binding writes (a newer layout, damage) are refused without
//! harm.

use plinth::directory::{Directory, DirectoryLayer, PARTITION};
use plinth::{Error, KeyValue, Result, Subspace, Transaction, tuple};

include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/provided/database.rs"));

const VERSION_KEY: &[u8] = b"\xfe\x01\xfe\x00\x01version\x00";
const VERSION: &[u8] = b"\x01\0\0\0\0\0\0\0\0\0\0\0";

fn manual() -> Directory {
    DirectoryLayer::default().allow_manual_prefixes(true).root()
}

fn rows(tr: &Transaction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = tr.range(..).collect_blocking().unwrap();
    rows.into_iter().map(|KeyValue { key, value }| (key.to_vec(), value.to_vec())).collect()
}

fn code<T>(result: Result<T>) -> i32 {
    result.map(drop).map_err(|error| error.code()).expect_err("an error was expected")
}

#[test]
fn directories_are_these_rows() {
    let db = in_memory();
    let tr = db.create_transaction();
    manual().create(&tr, "a").prefix("\x20").layer("L").wait().unwrap();
    manual().create(&tr, ["a", "b"]).prefix("\x21\0").wait().unwrap();
    let expected: [(&[u8], &[u8]); 5] = [
        (b"\xfe\x01\x20\x00\x01layer\x00", b"L"),
        (b"\xfe\x01\x20\x00\x14\x02b\x00", b"\x21\0"),
        (b"\xfe\x01\x21\x00\xff\x00\x01layer\x00", b""),
        (b"\xfe\x01\xfe\x00\x01version\x00", VERSION),
        (b"\xfe\x01\xfe\x00\x14\x02a\x00", b"\x20"),
    ];
    assert_eq!(rows(&tr), expected.map(|(key, value)| (key.to_vec(), value.to_vec())));
}

#[test]
fn the_allocator_leaves_a_count_and_a_mark() {
    let db = in_memory();
    let tr = db.create_transaction();
    let directory = Directory::root().create(&tr, "a").wait().unwrap();
    let prefix = directory.subspace().unwrap().prefix().clone();
    let number: i64 = tuple::unpack(&prefix).unwrap();
    assert!((0..64).contains(&number));
    let hca = b"\xfe\x01\xfe\x00\x01hca\x00";
    let rows = rows(&tr);
    let (count, mark) =
        ([&hca[..], b"\x14\x14"].concat(), [&hca[..], b"\x15\x01", &prefix].concat());
    assert!(rows.contains(&(count, b"\x01\0\0\0\0\0\0\0".to_vec())), "{rows:?}");
    assert!(rows.contains(&(mark, Vec::new())), "{rows:?}");
    assert_eq!(rows.len(), 5, "{rows:?}");
}

#[test]
fn a_partition_keeps_everything_below_its_prefix() {
    let db = in_memory();
    let tr = db.create_transaction();
    let partition = manual().create(&tr, "p").prefix("pp").layer(PARTITION).wait().unwrap();
    let before = rows(&tr);
    let inside = partition.create(&tr, ["x", "y"]).wait().unwrap();
    assert_eq!(inside.path(), ["p", "x", "y"]);
    // The allocator's number: 0 to 63, each as likely.
    let prefix = inside.subspace().unwrap().prefix();
    let number: i64 = tuple::unpack(prefix.strip_prefix(b"pp").unwrap()).unwrap();
    assert!((0..64).contains(&number), "{prefix:?}");
    let added: Vec<_> = rows(&tr).into_iter().filter(|row| !before.contains(row)).collect();
    assert!(added.iter().all(|(key, _)| key.starts_with(b"pp\xfe")), "{added:?}");
    assert!(
        added.contains(&(b"pp\xfe\x01pp\xfe\x00\x01version\x00".to_vec(), VERSION.to_vec())),
        "{added:?}"
    );
    assert_eq!(code(partition.subspace().cloned()), 2262);
    partition.remove(&tr, ()).wait().unwrap();
    assert_eq!(rows(&tr), [(VERSION_KEY.to_vec(), VERSION.to_vec())]);
}

#[test]
fn what_another_binding_wrote_is_understood() {
    let db = in_memory();
    let tr = db.create_transaction();
    let foreign: [(&[u8], &[u8]); 8] = [
        (VERSION_KEY, VERSION),
        (b"\xfe\x01\xfe\x00\x14\x02shop\x00", b"\x15\x05"),
        (b"\xfe\x01\x15\x05\x00\x01layer\x00", b""),
        (b"\xfe\x01\x15\x05\x00\x14\x02part\x00", b"\x15\x09"),
        (b"\xfe\x01\x15\x09\x00\x01layer\x00", b"partition"),
        (b"\x15\x09\xfe\x01\x15\x09\xfe\x00\x14\x02items\x00", b"\x15\x09\x15\x2a"),
        (b"\x15\x09\xfe\x01\x15\x09\x15\x2a\x00\x01layer\x00", b"stock"),
        (b"\x15\x09\x15\x2a\x02apple\x00", b"7"),
    ];
    for (key, value) in foreign {
        tr.set(key, value);
    }
    let root = Directory::root();
    assert_eq!(root.list(&tr, ()).wait().unwrap(), ["shop"]);
    assert_eq!(root.list(&tr, ["shop", "part"]).wait().unwrap(), ["items"]);
    let items = root.open(&tr, ["shop", "part", "items"]).layer("stock").wait().unwrap();
    assert_eq!(items.subspace().unwrap(), &Subspace::from_bytes(&b"\x15\x09\x15\x2a"[..]));
    assert_eq!(code(root.open(&tr, ["shop", "part", "items"]).layer("other").wait()), 2259);
    let moved = items.move_to(&tr, ["shop", "part", "goods"]).wait().unwrap();
    let apples = tr.get(moved.subspace().unwrap().pack(&"apple")).wait().unwrap();
    assert_eq!(apples.as_deref(), Some(&b"7"[..]));
    assert_eq!(code(items.move_to(&tr, "goods").wait()), 2261);
    root.remove(&tr, "shop").wait().unwrap();
    assert_eq!(rows(&tr), [(VERSION_KEY.to_vec(), VERSION.to_vec())]);
}

#[test]
fn a_newer_layout_is_refused_or_only_read() {
    let db = in_memory();
    let tr = db.create_transaction();
    let root = Directory::root();
    root.create(&tr, "a").wait().unwrap();
    tr.set(VERSION_KEY, b"\x01\0\0\0\x01\0\0\0\0\0\0\0");
    assert_eq!(root.list(&tr, ()).wait().unwrap(), ["a"]);
    assert!(root.open(&tr, "a").wait().is_ok());
    assert_eq!(code(root.create_or_open(&tr, "b").wait()), 2263);
    assert_eq!(code(root.remove(&tr, "a").wait()), 2263);
    assert_eq!(code(root.move_directory(&tr, "a", "b").wait()), 2263);
    tr.set(VERSION_KEY, b"\x02\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(code(root.list(&tr, ()).wait()), 2263);
    tr.set(VERSION_KEY, b"\x02");
    assert_eq!(code(root.exists(&tr, "a").wait()), 2260);
}

#[test]
fn prefixes_chosen_by_hand_must_be_allowed_and_free() {
    let db = in_memory();
    let tr = db.create_transaction();
    let create =
        |root: &Directory, name: &str, prefix: &[u8]| root.create(&tr, name).prefix(prefix).wait();
    assert_eq!(code(create(&Directory::root(), "a", b"pre")), 2253);
    create(&manual(), "a", b"pre").unwrap();
    for taken in [&b"pre"[..], b"prefix", b"p", b"", b"\xfe", b"\xfex"] {
        assert_eq!(code(create(&manual(), "b", taken)), 2265, "{taken:?}");
    }
    for free in [&b"prf"[..], b"prd", b"q", b"\xfd", b"\xff"] {
        create(&manual(), &format!("{free:?}"), free).unwrap();
    }
    let partition = manual().create(&tr, "part").layer(PARTITION).wait().unwrap();
    assert_eq!(code(create(&partition, "a", b"x")), 2254);
    assert_eq!(code(manual().create(&tr, ["part", "a"]).prefix("x").wait()), 2254);
}

#[test]
fn a_chosen_prefix_that_holds_data_is_refused() {
    let db = in_memory();
    let tr = db.create_transaction();
    for number in 0..64 {
        tr.set(tuple::pack(&(number, "squatter")), b"");
    }
    assert_eq!(code(Directory::root().create(&tr, "a").wait()), 2264);
    let elsewhere = DirectoryLayer::default().contents(Subspace::from_bytes(&b"app"[..])).root();
    let directory = elsewhere.create(&tr, "a").wait().unwrap();
    assert!(
        directory.subspace().unwrap().prefix().starts_with(b"app\x15")
            || directory.subspace().unwrap().prefix()[..] == *b"app\x14"
    );
}

#[test]
fn damaged_metadata_is_an_error_and_clears_nothing() {
    let root = Directory::root();
    let damage: [(&[u8], &[u8], Error); 4] = [
        (b"\xfe\x01\xfe\x00\x14\x02a\x00", b"", Error::invalid_directory_layer_metadata()),
        (b"\xfe\x01\xfe\x00\x14\x02a\x00", b"\xff", Error::invalid_directory_layer_metadata()),
        (b"\xfe\x01\xfe\x00\x14\x15\x07", b"\x15\x01", Error::invalid_directory_layer_metadata()),
        (
            b"\xfe\x01\xfe\x00\x01hca\x00\x14\x02x\x00",
            b"\x01",
            Error::invalid_directory_layer_metadata(),
        ),
    ];
    for (key, value, error) in damage {
        let db = in_memory();
        let tr = db.create_transaction();
        tr.set("data", "kept");
        tr.set(key, value);
        let results = [
            root.remove(&tr, "a").wait(),
            root.list(&tr, ()).wait().map(drop),
            root.create(&tr, "b").wait().map(drop),
        ];
        assert!(results.contains(&Err(error)), "{key:?}: {results:?}");
        assert_eq!(tr.get("data").wait().unwrap().as_deref(), Some(&b"kept"[..]));
    }
}

#[test]
fn the_root_is_no_directory() {
    let db = in_memory();
    let tr = db.create_transaction();
    let root = Directory::root();
    assert_eq!(code(root.open(&tr, ()).wait()), 2255);
    assert_eq!(code(root.create_or_open(&tr, ()).wait()), 2255);
    assert_eq!(code(root.subspace().cloned()), 2255);
    assert_eq!(code(root.remove(&tr, ()).wait()), 2267);
    assert_eq!(code(root.move_to(&tr, "a").wait()), 2267);
    assert_eq!(root.exists(&tr, ()).wait(), Ok(true));
    assert_eq!(root.list(&tr, ()).wait(), Ok(vec![]));
}
