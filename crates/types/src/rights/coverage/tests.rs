//! Coverage beside a plain model: which of a few keys each grant has, looked at one by one.
//!
//! Grants and requests are drawn at random, the model's answer is found without spans or searches,
//! and a selector is followed in it by somebody who sees only what may be read.

use super::*;
use crate::{Conflicts, MutationList};
use std::collections::BTreeSet;

/// Numbers that are as random as this needs.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

/// Keys of the model in order: some of a letter, some right behind others.
fn keys() -> Vec<Bytes> {
    let mut keys = vec![Bytes::new()];
    for letter in b'a'..=b'j' {
        keys.push(Bytes::copy_from_slice(&[letter]));
        keys.push(Bytes::copy_from_slice(&[letter, 0]));
    }
    keys.push(Bytes::from_static(system::NORMAL_END));
    keys
}

struct Model {
    keys: Vec<Bytes>,
    reads: BTreeSet<usize>,
    writes: BTreeSet<usize>,
    coverage: Coverage,
}

impl Model {
    /// Each key of the model stands for those up to the next one; the last one is the end.
    fn draw(draw: &mut Draw) -> Self {
        let keys = keys();
        let (mut reads, mut writes, mut roles) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        for _ in 0..draw.below(5) {
            let (begin, end) = (draw.below(keys.len()), draw.below(keys.len()));
            let role = [Role::Reader, Role::Writer][draw.below(2)];
            roles.push((role, KeyRange::new(keys[begin].clone(), keys[end].clone())));
            reads.extend(begin..end);
            if role == Role::Writer {
                writes.extend(begin..end);
            }
        }
        Self { keys, reads, writes, coverage: Coverage::of(roles) }
    }

    fn place(&self, key: &[u8]) -> usize {
        self.keys.iter().position(|known| *known == key).unwrap()
    }

    /// Where a selector leads among rows, if it never looks beyond what may be read.
    fn lead(&self, rows: &BTreeSet<usize>, place: usize, offset: i32) -> Option<Bytes> {
        let last = self.keys.len() - 1;
        let mut at = place;
        let mut left = if offset >= 1 { offset } else { 1 - offset };
        loop {
            if offset >= 1 {
                if at == last {
                    return Some(self.keys[last].clone());
                }
                if !self.reads.contains(&at) {
                    return None;
                }
                left -= i32::from(rows.contains(&at));
                if left == 0 {
                    return Some(self.keys[at].clone());
                }
                at += 1;
            } else {
                if at == 0 {
                    return Some(Bytes::new());
                }
                at -= 1;
                if !self.reads.contains(&at) {
                    return None;
                }
                left -= i32::from(rows.contains(&at));
                if left == 0 {
                    return Some(self.keys[at].clone());
                }
            }
        }
    }
}

#[test]
fn keys_and_ranges_are_covered_as_a_model_says() {
    let mut draw = Draw(7);
    for _ in 0..2_000 {
        let model = Model::draw(&mut draw);
        assert_eq!(model.coverage.is_nothing(), model.reads.is_empty());
        for (at, key) in model.keys.iter().enumerate() {
            assert_eq!(model.coverage.check_key(key).is_ok(), model.reads.contains(&at));
        }
        let (begin, end) = (draw.below(model.keys.len()), draw.below(model.keys.len()));
        let has_all = (begin..end).all(|at| model.reads.contains(&at));
        let (begin, end) = (&model.keys[begin], &model.keys[end]);
        assert_eq!(model.coverage.check_range(begin, end).is_ok(), has_all, "{begin:?} {end:?}");
    }
}

/// The endpoint follows a selector through everything; what is told of it must be what somebody
/// finds who can't see anything else.
#[test]
fn selectors_lead_where_they_would_without_all_other_keys() {
    let mut draw = Draw(11);
    let (mut led, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let model = Model::draw(&mut draw);
        let last = model.keys.len() - 1;
        let rows: BTreeSet<_> = (0..draw.below(12)).map(|_| draw.below(last)).collect();
        let (place, offset) = (draw.below(model.keys.len()), draw.below(9) as i32 - 4);
        let everything = Model { reads: (0..last).collect(), ..Model::draw(&mut draw) };
        let found = everything.lead(&rows, place, offset).unwrap();
        let (key, forward) = (&model.keys[place], offset >= 1);
        let told = model
            .coverage
            .check_begins(key, forward)
            .and_then(|()| model.coverage.check_led(KeySpace::Normal, key, forward, &found));
        // At an end of all keys it takes a grant to be told even that.
        let beside = if forward { place.min(last - 1) } else { place.saturating_sub(1) };
        let begins = model.reads.contains(&beside);
        let wanted = model.lead(&rows, place, offset).filter(|_| begins);
        assert_eq!(told.is_ok().then_some(found), wanted, "{key:?} {offset} {rows:?}");
        if wanted.is_some() { led += 1 } else { refused += 1 }
    }
    assert!(led > 1_000 && refused > 1_000, "{led} {refused}");
}

fn change(kind: MutationType, param1: &[u8], param2: &[u8]) -> CommitRequest {
    let mut mutations = MutationList::new();
    mutations.push(kind, param1, param2);
    CommitRequest { mutations, ..CommitRequest::default() }
}

#[test]
fn commits_name_nothing_that_is_not_covered() {
    let mut draw = Draw(13);
    for _ in 0..5_000 {
        let model = Model::draw(&mut draw);
        let at = draw.below(model.keys.len());
        let end = draw.below(model.keys.len());
        let (key, last) = (&model.keys[at], &model.keys[end]);
        let is_written = |range: std::ops::Range<usize>| {
            !model.reads.is_empty() && range.into_iter().all(|at| model.writes.contains(&at))
        };
        let may = |request: CommitRequest| model.coverage.check_commit(&request).is_ok();
        if at < end {
            assert_eq!(may(change(MutationType::ClearRange, key, last)), is_written(at..end));
        }
        let is_one_written = model.writes.contains(&at);
        for kind in [MutationType::Set, MutationType::Add, MutationType::SetVersionstampedValue] {
            assert_eq!(may(change(kind, key, b"xxxxxxxxxxxxxx")), is_one_written, "{kind:?}");
        }
        let mut conflicts = Conflicts::default();
        conflicts.writes.push(key, last);
        let request = CommitRequest { conflicts, ..CommitRequest::default() };
        assert_eq!(may(request), !model.reads.is_empty() && is_written(at..end));
        let mut conflicts = Conflicts::default();
        conflicts.reads.push(key, last);
        let has_all = (at..end).all(|at| model.reads.contains(&at));
        let request = CommitRequest { conflicts, ..CommitRequest::default() };
        assert_eq!(may(request), !model.reads.is_empty() && has_all);
        assert_eq!(model.place(key), at);
    }
}

fn writer(begin: &'static [u8], end: &'static [u8]) -> Coverage {
    Coverage::of([(Role::Writer, KeyRange::new(begin, end))])
}

fn with_place(key: &[u8], place: u32) -> Vec<u8> {
    [key, &place.to_le_bytes()].concat()
}

#[test]
fn a_stamp_may_make_any_key_of_its_place() {
    let stamped = |coverage: &Coverage, key: &[u8], place| {
        let key = with_place(key, place);
        let request = change(MutationType::SetVersionstampedKey, &key, b"v");
        coverage.check_commit(&request).is_ok()
    };
    let shop = writer(b"shop/", b"shop0");
    assert!(stamped(&shop, b"shop/0123456789/x", 5));
    assert!(!stamped(&shop, b"shop/0123456789/x", 4), "the stamp takes the slash's place");
    assert!(!stamped(&shop, b"0123456789", 0));
    assert!(!stamped(&writer(b"a\x10", b"a\x90"), b"a0123456789", 1));
    // No version is so late that its stamp would be among the system's keys.
    assert!(stamped(&writer(b"", b"\xff"), b"0123456789", 0));
    assert!(!stamped(&shop, b"log/x", 90), "refused as it would be anyway, or for this");
}

#[test]
fn the_systems_keys_are_an_operators_but_for_a_few() {
    let (all, shop) = (writer(b"", b"\xff"), writer(b"shop/", b"shop0"));
    let reader = Coverage::of([(Role::Reader, KeyRange::new(&b""[..], &b"\xff"[..]))]);
    let nobody = Coverage::default();
    let random = [system::SELF_CONFLICT_PREFIX, &[7; 16]].concat();
    for coverage in [&all, &shop, &reader] {
        assert!(coverage.check_key(system::METADATA_VERSION).is_ok());
        for key in [&b"\xff"[..], b"\xff/conf/x", system::GRANTS.0, b"\xff\x02/x", &random] {
            assert!(coverage.check_key(key).is_err(), "{}", printable(key));
            assert!(coverage.check_commit(&change(MutationType::Set, key, b"")).is_err());
        }
        assert!(coverage.check_range(b"\xfe", b"\xff\x01").is_err());
        let mut conflicts = Conflicts::default();
        conflicts.reads.push_single(&random);
        conflicts.writes.push_single(&random);
        let request = CommitRequest { conflicts, ..CommitRequest::default() };
        assert!(coverage.check_commit(&request).is_ok());
        // An idempotency id of the user's own has 16 to 255 bytes.
        for (len, may) in [(15, false), (255, true)] {
            let id = [system::SELF_CONFLICT_PREFIX, &vec![7; len]].concat();
            let mut conflicts = Conflicts::default();
            conflicts.writes.push_single(&id);
            let request = CommitRequest { conflicts, ..CommitRequest::default() };
            assert_eq!(coverage.check_commit(&request).is_ok(), may, "{len}");
        }
        // Of all of them together nobody else's commits could be told apart.
        let mut conflicts = Conflicts::default();
        conflicts.reads.push(system::SELF_CONFLICT_PREFIX, b"\xff/SC0");
        let request = CommitRequest { conflicts, ..CommitRequest::default() };
        assert!(coverage.check_commit(&request).is_err());
        assert!(coverage.check_operator("that").is_err());
    }
    let stamp = change(
        MutationType::SetVersionstampedValue,
        system::METADATA_VERSION,
        &with_place(&[0; 10], 0),
    );
    assert!(all.check_commit(&stamp).is_ok());
    assert!(shop.check_commit(&stamp).is_err() && reader.check_commit(&stamp).is_err());
    let records = [system::IDEMPOTENCY_PREFIX, &[0; 8]].concat();
    let end = [system::IDEMPOTENCY_PREFIX, &[1; 8]].concat();
    assert!(
        shop.check_range(&records, &end).is_ok() && reader.check_range(&records, &end).is_err()
    );
    assert!(nobody.check_key(system::METADATA_VERSION).is_err());
    assert!(nobody.check_commit(&CommitRequest::default()).is_err());
    let operator = Coverage::everything();
    assert!(operator.check_key(b"\xff/conf/x").is_ok() && operator.check_operator("that").is_ok());
    assert!(operator.check_commit(&change(MutationType::Set, system::GRANTS.0, b"")).is_ok());
}

/// Keys and series are granted apart.
#[test]
fn series_are_granted_by_themselves() {
    let may =
        |coverage: &Coverage| [false, true].map(|writes| coverage.check_series(writes).is_ok());
    assert_eq!(may(&writer(b"", b"\xff")), [false, false]);
    assert_eq!(may(&Coverage::everything()), [true, true]);
    let reader = Coverage::default().with_series(Some(Role::Reader));
    assert_eq!(may(&reader), [true, false]);
    assert_eq!(may(&reader.clone().with_series(Some(Role::Writer))), [true, true]);
    assert_eq!(may(&reader.clone().with_series(None)), [true, false]);
    assert!(reader.is_nothing() && reader.check_key(b"k").is_err());
}

/// A grant of some metrics gives these, and nothing where there is one of all.
#[test]
fn series_of_some_metrics_are_those_of_all_grants_together() {
    let metrics = |text: &str| Metrics::parse(text).unwrap();
    let set = |texts: &[&str]| Some(Arc::new(MetricSet::of(texts.iter().copied().map(metrics))));
    let some = Coverage::default().with_metrics([
        (Role::Reader, metrics("cpu.*")),
        (Role::Writer, metrics("mem")),
        (Role::Reader, metrics("disk")),
    ]);
    assert_eq!(some.check_series(false).unwrap(), set(&["cpu.*", "disk", "mem"]));
    assert_eq!(some.check_series(true).unwrap(), set(&["mem"]));
    assert!(
        some.is_nothing() && some.check_key(b"k").is_err() && some.check_operator("x").is_err()
    );
    let reader = some.with_series(Some(Role::Reader));
    assert_eq!(reader.check_series(false).unwrap(), None);
    assert_eq!(reader.check_series(true).unwrap(), set(&["mem"]));
    let reads = Coverage::default().with_metrics([(Role::Reader, metrics("cpu"))]);
    assert!(reads.check_series(true).is_err());
    let operator = Coverage::everything().with_metrics([(Role::Reader, metrics("cpu"))]);
    assert_eq!(operator.check_series(true).unwrap(), None);
}

#[test]
fn locks_elsewhere_are_not_told() {
    let lock = |begin: &'static [u8], end: &'static [u8]| RangeLock {
        range: KeyRange::new(begin, end),
        owner: [1; 16],
    };
    let locks = RangeLocks::new(vec![lock(b"a", b"c"), lock(b"x", b"y")]);
    let cut = writer(b"b", b"d").cut_locks(&locks).unwrap();
    assert_eq!(cut.locks(), [lock(b"b", b"c")]);
    assert_eq!(writer(b"e", b"f").cut_locks(&locks), None);
    assert_eq!(Coverage::everything().cut_locks(&locks), Some(locks));
}
