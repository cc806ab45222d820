//! Named cases: each says one thing that an engine must do.
//!
//! The random programs find what nobody thought of; these say what was thought of, and fail with a
//! name.

use super::random::exported;
use super::{Make, Store, position};
use crate::Reader;
use crate::failure::StorageError;
use plinth_types::{
    Bytes, KeyList, KeySelector, KeySpace, MutationList, MutationType, RangeRead, Version, system,
};

pub(super) fn run_all(make: Make<'_>) {
    a_batch_is_invisible_until_it_is_published(make);
    versions_of_the_window_are_all_readable(make);
    the_window_refuses_what_is_outside(make);
    atomic_operations_see_their_own_batch(make);
    the_row_that_crosses_the_target_is_given(make);
    selectors_stop_at_the_ends(make);
    system_keys_are_hidden_from_the_normal_space(make);
    empty_keys_and_values_are_rows(make);
    long_keys_and_values_are_kept(make);
    estimates_add_up(make);
    everything_can_be_forgotten(make);
    an_export_goes_on_from_any_key(make);
}

fn set(store: &mut Store, version: Version, rows: &[(&[u8], &[u8])]) {
    let mut list = MutationList::new();
    for (key, value) in rows {
        list.push(MutationType::Set, key, value);
    }
    store.apply(version, &list, None);
}

fn get(store: &dyn Reader, version: Version, key: &[u8]) -> Option<Bytes> {
    let mut keys = KeyList::new();
    keys.push(key);
    store.get_many(version, KeySpace::Normal, &keys).wait().expect("in the window").remove(0)
}

fn all(
    store: &dyn Reader,
    version: Version,
    limit: usize,
    target_bytes: usize,
) -> (Vec<Vec<u8>>, bool) {
    let read = RangeRead {
        begin: KeySelector::first_greater_or_equal(&b""[..]),
        end: KeySelector::first_greater_or_equal(&b"\xff"[..]),
        limit,
        target_bytes,
        reverse: false,
    };
    let result = store.get_range(version, KeySpace::Normal, &read).wait().expect("in the window");
    (result.rows.iter().map(|(key, _)| key.to_vec()).collect(), result.more)
}

fn a_batch_is_invisible_until_it_is_published(make: Make<'_>) {
    let mut store = Store::new(make, 10);
    set(&mut store, 20, &[(b"a", b"1")]);
    assert_eq!(store.newest(), 10);
    assert_eq!(get(&*store, 10, b"a"), None);
    let mut keys = KeyList::new();
    keys.push(b"a");
    assert_eq!(
        store.get_many(20, KeySpace::Normal, &keys).wait(),
        Err(StorageError::Future("".into()))
    );
    store.publish(20);
    assert_eq!(get(&*store, 20, b"a").as_deref(), Some(&b"1"[..]));
    assert_eq!(get(&*store, 15, b"a"), None);
}

fn versions_of_the_window_are_all_readable(make: Make<'_>) {
    let mut store = Store::new(make, 0);
    for version in 1..=50u8 {
        match version % 10 {
            0 => {
                let mut list = MutationList::new();
                list.push(MutationType::ClearRange, b"a", b"z");
                store.apply(version.into(), &list, None);
            }
            _ => set(&mut store, version.into(), &[(b"k", &[version])]),
        }
        store.publish(version.into());
    }
    for version in 1..=50u8 {
        let expected = if version % 10 == 0 { None } else { Some(vec![version]) };
        assert_eq!(get(&*store, version.into(), b"k").as_deref(), expected.as_deref());
    }
}

fn the_window_refuses_what_is_outside(make: Make<'_>) {
    let mut store = Store::new(make, 0);
    for version in 1..=9 {
        set(&mut store, version * 10, &[(b"k", b"v")]);
        store.publish(version * 10);
    }
    while store.forget_before(55, 2) {}
    assert_eq!(store.oldest(), 55);
    store.forget_before(40, 100);
    assert_eq!(store.oldest(), 55, "the window does not move back");
    let selector = KeySelector::first_greater_or_equal(&b""[..]);
    let read = |version| store.get_key(version, KeySpace::Normal, &selector).wait().map(|_| ());
    assert_eq!(read(54), Err(StorageError::TooOld("".into())));
    assert_eq!((read(55), read(90)), (Ok(()), Ok(())));
    assert_eq!(read(91), Err(StorageError::Future("".into())));
    store.forget_before(500, 100);
    assert_eq!(store.oldest(), 90, "the newest version stays");
}

fn atomic_operations_see_their_own_batch(make: Make<'_>) {
    let mut store = Store::new(make, 0);
    set(&mut store, 1, &[(b"n", &[1, 0])]);
    let mut list = MutationList::new();
    list.push(MutationType::Add, b"n", &[255, 0]);
    list.push(MutationType::Add, b"n", &[2, 0]);
    list.push(MutationType::AppendIfFits, b"new", b"ab");
    list.push(MutationType::AppendIfFits, b"new", b"cd");
    list.push(MutationType::CompareAndClear, b"new", b"other");
    list.push(MutationType::Set, b"gone", b"x");
    list.push(MutationType::CompareAndClear, b"gone", b"x");
    store.apply(2, &list, None);
    store.publish(2);
    assert_eq!(get(&*store, 2, b"n").as_deref(), Some(&[2, 1][..]));
    assert_eq!(get(&*store, 1, b"n").as_deref(), Some(&[1, 0][..]));
    assert_eq!(get(&*store, 2, b"new").as_deref(), Some(&b"abcd"[..]));
    assert_eq!(get(&*store, 2, b"gone"), None);
}

fn the_row_that_crosses_the_target_is_given(make: Make<'_>) {
    let mut store = Store::new(make, 0);
    set(&mut store, 1, &[(b"a", b"1234567890"), (b"b", b"1234567890"), (b"c", b"")]);
    store.publish(1);
    assert_eq!(all(&*store, 1, usize::MAX, 1), (vec![b"a".to_vec()], true));
    assert_eq!(all(&*store, 1, usize::MAX, 19), (vec![b"a".to_vec()], true));
    assert_eq!(all(&*store, 1, usize::MAX, 20).0.len(), 2);
    assert_eq!(
        all(&*store, 1, usize::MAX, usize::MAX),
        (vec![b"a".to_vec(), b"b".to_vec(), b"c".to_vec()], false)
    );
    assert_eq!(all(&*store, 0, 1, 1), (vec![], false));
}

fn selectors_stop_at_the_ends(make: Make<'_>) {
    let mut store = Store::new(make, 0);
    set(&mut store, 1, &[(b"b", b""), (b"d", b""), (b"\xff/system", b"")]);
    store.publish(1);
    let key = |key: &[u8], or_equal, offset| {
        let selector = KeySelector::new(Bytes::copy_from_slice(key), or_equal, offset);
        store.get_key(1, KeySpace::Normal, &selector).wait().expect("in the window")
    };
    assert_eq!(key(b"d", false, 0), "b");
    assert_eq!(key(b"d", true, 0), "d");
    assert_eq!(key(b"b", false, 0), "");
    assert_eq!(key(b"", false, i32::MIN), "");
    assert_eq!(key(b"", false, 2), "d");
    assert_eq!(key(b"", false, 3), &b"\xff"[..]);
    assert_eq!(key(b"d", true, i32::MAX), &b"\xff"[..]);
    assert_eq!(key(b"\xff", true, 0), "d");
    assert_eq!(key(b"\xff", true, -1), "b");
    let system = KeySelector::first_greater_than(&b"d"[..]);
    assert_eq!(
        store.get_key(1, KeySpace::System, &system).wait().as_deref(),
        Ok(&b"\xff/system"[..])
    );
}

fn system_keys_are_hidden_from_the_normal_space(make: Make<'_>) {
    let mut store = Store::new(make, 0);
    set(&mut store, 1, &[(b"a", b"1"), (b"\xff/conf/x", b"2"), (system::METADATA_VERSION, b"3")]);
    store.publish(1);
    let mut keys = KeyList::new();
    for key in [&b"a"[..], b"\xff/conf/x", system::METADATA_VERSION] {
        keys.push(key);
    }
    let values = |space| store.get_many(1, space, &keys).wait().expect("in the window");
    let shown = |space| values(space).into_iter().map(|value| value.is_some()).collect::<Vec<_>>();
    assert_eq!(shown(KeySpace::Normal), [true, false, true]);
    assert_eq!(shown(KeySpace::System), [true, true, true]);
    assert_eq!(all(&*store, 1, usize::MAX, usize::MAX).0, [b"a".to_vec()]);
}

fn empty_keys_and_values_are_rows(make: Make<'_>) {
    let mut store = Store::new(make, 0);
    set(&mut store, 1, &[(b"", b""), (b"\0", b"")]);
    store.publish(1);
    assert_eq!(get(&*store, 1, b"").as_deref(), Some(&b""[..]));
    assert_eq!(all(&*store, 1, usize::MAX, usize::MAX).0, [vec![], vec![0]]);
    let selector = KeySelector::last_less_or_equal(&b""[..]);
    assert_eq!(store.get_key(1, KeySpace::Normal, &selector).wait().as_deref(), Ok(&b""[..]));
}

fn long_keys_and_values_are_kept(make: Make<'_>) {
    let mut store = Store::new(make, 0);
    let (key, value) = (vec![b'k'; 10_000], vec![b'v'; 100_000]);
    let system_key = vec![0xff; 30_000];
    set(
        &mut store,
        1,
        &[(&key, &value), (&[&key[..], b"x"].concat(), b"after"), (&system_key, &value)],
    );
    store.publish(1);
    assert_eq!(get(&*store, 1, &key).as_deref(), Some(&value[..]));
    assert_eq!(all(&*store, 1, usize::MAX, usize::MAX).0.len(), 2);
    set(&mut store, 2, &[(&key, b"short")]);
    store.publish(2);
    while store.forget_before(2, 10) {}
    assert_eq!(get(&*store, 2, &key).as_deref(), Some(&b"short"[..]));
}

fn estimates_add_up(make: Make<'_>) {
    let mut store = Store::new(make, 0);
    let rows: Vec<_> = (0..20_000).map(|n| format!("key{n:06}").into_bytes()).collect();
    let value = [b'v'; 91];
    let rows: Vec<(&[u8], &[u8])> = rows.iter().map(|key| (&key[..], &value[..])).collect();
    set(&mut store, 1, &rows);
    store.publish(1);
    let near = |size: u64, wanted: u64| size > wanted / 2 && size < wanted * 2;
    assert!(near(store.count(), 20_000), "{}", store.count());
    assert!(near(store.range_size(b"", b"\xff"), 2_000_000));
    assert!(near(store.range_size(b"key005000", b"key015000"), 1_000_000));
    assert_eq!(store.range_size(b"b", b"a"), 0);
    assert!(near(store.range_count(b"", b"\xff"), 20_000));
    assert!(near(store.range_count(b"key005000", b"key015000"), 10_000));
    assert_eq!(store.range_count(b"b", b"a"), 0);
    let points = store.split_points(b"key", b"l", 100_000);
    assert!(points.len() > 10 && points.len() < 40, "{}", points.len());
    assert!(points[0] == "key" && points[points.len() - 1] == "l");
    assert!(points.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(store.split_points(b"x", b"y", 100), ["x", "y"]);
    assert_eq!(store.split_points(b"x", b"x", 100), ["x"]);
}

fn everything_can_be_forgotten(make: Make<'_>) {
    let mut store = Store::new(make, 0);
    let value = [b'v'; 500];
    let mut version = 0;
    for round in 0..6 {
        let keys: Vec<_> =
            (0..3000).map(|n| format!("key{:06}", n * 7 % 3000).into_bytes()).collect();
        for part in keys.chunks(500) {
            version += 10;
            let rows: Vec<(&[u8], &[u8])> = part.iter().map(|key| (&key[..], &value[..])).collect();
            set(&mut store, version, &rows);
            store.publish(version);
        }
        if round % 2 == 1 {
            version += 10;
            let mut list = MutationList::new();
            list.push(MutationType::ClearRange, b"", b"\xff");
            store.apply(version, &list, None);
            store.publish(version);
        }
        while store.forget_before(version, 1000) {}
        let (rows, _) = all(&*store, version, usize::MAX, usize::MAX);
        assert_eq!(rows.len(), if round % 2 == 1 { 0 } else { 3000 });
        assert!(round % 2 == 0 || store.count() == 0, "{} rows of none", store.count());
    }
    let memory = store.memory();
    assert!(memory.data == 0 && memory.window < 8 << 20, "{memory:?}");
}

fn an_export_goes_on_from_any_key(make: Make<'_>) {
    let mut store = Store::new(make, 0);
    let keys: [&[u8]; 7] = [b"", b"\0", b"a", b"a\0", b"a\0\0", b"b", b"\xff/system"];
    set(&mut store, 1, &keys.map(|key| (key, &b"value"[..])));
    store.publish(1);
    while store.forget_before(1, 1000) {}
    let pinned = store.writer.pin().wait().expect("nothing is in its way");
    set(&mut store, 2, &[(b"a\0\0\0", b"later")]);
    store.publish(2);
    assert_eq!(pinned.position(), position(1));
    let end = KeySpace::System.end();
    for target in [1, 20, 1000] {
        for (at, from) in keys.iter().enumerate() {
            let rows = exported(&*pinned, from, end, target);
            assert!(
                rows.iter().map(|(key, _)| &key[..]).eq(keys[at..].iter().copied()),
                "from {from:?}"
            );
        }
        let rows = exported(&*pinned, b"a\0", b"b", target);
        assert_eq!(rows.len(), 2, "without the end");
        assert_eq!(exported(&*pinned, b"c", b"d", target), []);
    }
}
