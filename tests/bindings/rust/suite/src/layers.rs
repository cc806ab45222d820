//! The package's layers on this database: tuples, subspaces, directories.

use crate::Test;
use crate::support::{Chance, begin, kept, rows, set, together, write};
use foundationdb::directory::{Directory, DirectoryLayer};
use foundationdb::options::MutationType;
use foundationdb::tuple::{Element, Subspace, Versionstamp, pack, unpack};
use foundationdb::{Database, RangeOption};
use futures::executor::block_on;
use std::collections::BTreeSet;
use std::sync::Mutex;

pub const TESTS: &[Test] = &[
    ("tuples_come_back_and_sort", tuples),
    ("tuples_with_versionstamps", stamped),
    ("directories", directories),
    ("directories_are_allocated_at_once_without_clashes", allocation),
];

fn element(chance: &mut Chance, depth: i64) -> Element<'static> {
    match chance.between(0, if depth < 2 { 7 } else { 6 }) {
        0 => Element::Nil,
        1 => Element::Int(chance.between(-(1 << 60), 1 << 60)),
        2 => Element::Int(chance.between(-300, 300)),
        3 => Element::Double(chance.between(-9999, 9999) as f64 / 7.0),
        4 => Element::Bytes(chance.bytes(0, 5, b"\0\x01a\xff").into()),
        5 => Element::String(String::from_utf8(chance.bytes(0, 5, b"ab\0")).expect("letters").into()),
        6 => Element::Bool(chance.one_in(2)),
        _ => Element::Tuple(elements(chance, depth + 1, 3)),
    }
}

fn elements(chance: &mut Chance, depth: i64, most: i64) -> Vec<Element<'static>> {
    (0..chance.between(0, most)).map(|_| element(chance, depth)).collect()
}

fn tuples(db: &Database, chance: &mut Chance) {
    let mut keys = BTreeSet::new();
    for _ in 0..300 {
        let tuple = elements(chance, 0, 4);
        let packed = pack(&tuple);
        let back: Vec<Element<'_>> = unpack(&packed).expect("a tuple");
        assert_eq!(pack(&back), packed);
        keys.insert([&b"t"[..], &packed].concat());
    }
    write(db, |tr| keys.iter().for_each(|key| tr.set(key, b"")));
    let found = rows(&begin(db), RangeOption::from((&b"t"[..], &b"u"[..])), false).expect("a read");
    assert!(found.iter().map(|(key, _)| key).eq(keys.iter()));
}

fn stamped(db: &Database, _: &mut Chance) {
    let space = Subspace::all().subspace(&"stamped");
    write(db, |tr| {
        for i in 0..3_u16 {
            let key = space.pack_with_versionstamp(&(Versionstamp::incomplete(i), "x"));
            tr.atomic_op(&key, &[i as u8], MutationType::SetVersionstampedKey);
        }
    });
    let (first, last) = space.range();
    let found = rows(&begin(db), RangeOption::from((first, last)), false).expect("a read");
    assert_eq!(found.len(), 3);
    for (at, (key, _)) in found.iter().enumerate() {
        let (stamp, _): (Versionstamp, String) = space.unpack(key).expect("a tuple");
        assert!(stamp.is_complete() && usize::from(stamp.user_version()) == at);
    }
}

fn path(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

fn directories(db: &Database, _: &mut Chance) {
    let layer = DirectoryLayer::default();
    let tr = begin(db);
    let users =
        block_on(layer.create_or_open(&tr, &path(&["app", "users"]), None, None)).expect("a directory");
    block_on(tr.commit()).expect("a commit");
    let key = [users.bytes().expect("a prefix"), b"ada"].concat();
    set(db, &[(&key, b"1815")]);
    let tr = begin(db);
    let moved =
        block_on(layer.move_to(&tr, &path(&["app", "users"]), &path(&["app", "people"]))).expect("a move");
    assert_eq!(moved.bytes().expect("a prefix"), users.bytes().expect("a prefix"));
    assert_eq!(block_on(layer.list(&tr, &path(&["app"]))).expect("names"), ["people"]);
    assert!(block_on(layer.create(&tr, &path(&["app", "people"]), None, None)).is_err());
    assert!(block_on(layer.open(&tr, &path(&["nothing"]), None)).is_err());
    assert!(block_on(layer.remove(&tr, &path(&["app"]))).expect("a removal"));
    block_on(tr.commit()).expect("a commit");
    assert_eq!(kept(db, &key), None);
}

fn allocation(db: &Database, _: &mut Chance) {
    let made = Mutex::new(BTreeSet::new());
    together(8, |i| {
        for n in 0..12 {
            let path = path(&["many", &i.to_string(), &n.to_string()]);
            let prefix = loop {
                let tr = begin(db);
                let created = block_on(DirectoryLayer::default().create(&tr, &path, None, None));
                match (created, block_on(tr.commit())) {
                    (Ok(directory), Ok(_)) => break directory.bytes().expect("a prefix").to_vec(),
                    (_, Err(error)) => assert!(error.is_retryable(), "{error}"),
                    (Err(error), Ok(_)) => panic!("{error:?}"),
                }
            };
            made.lock().expect("nobody panicked").insert(prefix);
        }
    });
    assert_eq!(made.into_inner().expect("nobody panicked").len(), 96);
}
