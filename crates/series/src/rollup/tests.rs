//! Buckets against their points one by one, whatever comes in between: marks, numbers that are
//! none, points at the beginnings of buckets, and pieces of any size. Rows with wrong bytes, rules
//! that are none.

use super::digest::Digest;
use super::*;
use crate::tree::Summary;
use crate::value::{Point, Points, Value};
use crate::workload::Random;
use plinth_promql::STALE;
use std::collections::BTreeMap;
use std::time::Duration;

const EVERY: i64 = 60;

/// Some value, most often a number, now and then a mark or another NaN.
fn value(random: &mut Random) -> Value {
    match random.below(12) {
        0 => Value::Float(f64::from_bits(STALE)),
        1 => Value::Float(f64::NAN),
        2..5 => Value::Integer(random.below(100) as i64 - 20),
        _ => Value::Float(random.below(400) as f64 / 4.0 - 20.0),
    }
}

/// Points, many of which lie at the beginning of a bucket.
fn points(random: &mut Random, count: u64) -> Points {
    let mut time = -(random.below(2000) as i64);
    let mut next = || {
        time += 1 + match random.below(10) {
            0 => random.below(200) as i64,
            1..4 => begin_of(time + EVERY, EVERY) - time - 1,
            _ => random.below(20) as i64,
        };
        Point { time, value: value(random) }
    };
    (0..count).map(|_| next()).collect()
}

/// What a bucket has to have, point by point.
fn expected(points: &Points) -> Vec<Bucket> {
    let mut buckets: BTreeMap<i64, Vec<Point>> = BTreeMap::new();
    for point in points.iter() {
        buckets.entry(point.time.div_euclid(EVERY) * EVERY).or_default().push(point);
    }
    let bucket = |(begin, points): (i64, Vec<Point>)| {
        let at = points.first().filter(|point| point.time == begin).map(|point| point.value);
        let rest: Vec<Point> = points.into_iter().filter(|point| point.time > begin).collect();
        let is_mark =
            |point: &&Point| matches!(point.value, Value::Float(value) if value.to_bits() == STALE);
        let seen: Vec<Point> = rest.iter().filter(|point| !is_mark(point)).copied().collect();
        let falls = seen.windows(2).map(|pair| (pair[0].value.as_f64(), pair[1].value.as_f64()));
        let summary = Summary::of_points(rest.iter().copied());
        let rest = summary.map(|summary| Digest {
            summary,
            falls: falls.filter(|(before, now)| now < before).map(|(before, _)| before).sum(),
            marks: (rest.len() - seen.len()) as u64,
            seen: seen.first().copied().zip(seen.last().copied()),
        });
        Bucket { begin, at, rest }
    };
    buckets.into_iter().map(bucket).collect()
}

#[test]
fn buckets_are_what_their_points_say_however_these_come() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let points = points(&mut random, 300);
        let mut maker = Maker::new(EVERY);
        let mut place = 0;
        while place < points.len() {
            let end = (place + 1 + random.below(80) as usize).min(points.len());
            let some: Points = (place..end).map(|place| points.get(place)).collect();
            maker.add(&some);
            place = end;
        }
        let last = points.times[points.len() - 1];
        let all = expected(&points);
        let found = maker.until(i64::MAX);
        assert_eq!(found, all, "seed {seed}");
        let mut maker = Maker::new(EVERY);
        maker.add(&points);
        let whole = begin_of(last, EVERY);
        let before: Vec<Bucket> = all.into_iter().filter(|bucket| bucket.begin < whole).collect();
        assert_eq!(maker.until(whole), before, "seed {seed}");
        for some in found.chunks(1 + random.below(20) as usize) {
            assert_eq!(decode(&encode(some)).unwrap(), some, "seed {seed}");
        }
    }
}

#[test]
fn the_first_and_the_last_bucket_of_all_time_have_an_end() {
    for every in [1_000_000_000, 300_000_000_000, 86_400_000_000_000] {
        for time in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX] {
            let begin = begin_of(time, every);
            let end = end_of(begin, every);
            assert!(begin <= time && (time < end || end == i64::MAX), "{time} {every}");
            assert_eq!(begin_of(begin, every), begin, "{time} {every}");
            assert!(end == i64::MAX || begin_of(end, every) == end, "{time} {every}");
        }
    }
}

#[test]
fn a_row_with_a_wrong_byte_is_refused() {
    let mut random = Random::new(7);
    let mut maker = Maker::new(EVERY);
    maker.add(&points(&mut random, 200));
    let bytes = encode(&maker.until(i64::MAX));
    for len in 0..bytes.len() {
        assert!(decode(&bytes[..len]).is_err(), "{len}");
    }
    for place in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[place] ^= 1 << random.below(8);
        assert!(decode(&bytes).is_err(), "{place}");
        // Also where the checksum fits.
        crate::codec::put_checksum(&mut bytes);
        let _ = decode(&bytes);
    }
}

fn rollup(metrics: &str, every: u64) -> Rollup {
    Rollup::new(Metrics::parse(metrics).unwrap(), Duration::from_secs(every))
}

#[test]
fn rules_come_back_and_their_numbers_never_do() {
    let mut keeping = Keeping::default();
    let day = Duration::from_hours(24);
    let kept = Rollup { keep: Some(730 * day), raw: Some(30 * day), ..rollup("cpu.*", 300) };
    keeping.add(kept).unwrap();
    keeping.add(rollup("cpu.*", 3600)).unwrap();
    keeping.add(rollup("*", 86_400)).unwrap();
    keeping.set_retention(Some("audit=forever".into()));
    let again = Keeping::decode(&keeping.encode()).unwrap();
    assert_eq!(again, keeping);
    assert_eq!(keeping.of("cpu.user").count(), 3);
    assert_eq!(keeping.of("!deploy").count(), 0, "texts add up to nothing");
    assert_eq!(keeping.of("mem").map(|rollup| rollup.id).collect::<Vec<_>>(), [3]);
    assert_eq!(keeping.rollups()[0].to_string(), "cpu.* every 5m keep 730d raw 30d");
    let cpu = Metrics::parse("cpu.*").unwrap();
    assert_eq!(keeping.remove(&cpu, Some(Duration::from_secs(300))).len(), 1);
    assert_eq!(keeping.gone(), [(0, 2), (4, u64::MAX)]);
    keeping.add(rollup("cpu.*", 300)).unwrap();
    assert_eq!(keeping.rollups()[2].id, 4);
    assert_eq!(keeping.remove(&cpu, None).len(), 2);
    assert_eq!(Keeping::decode(&keeping.encode()).unwrap(), keeping);
    assert_eq!(keeping.gone(), [(0, 3), (4, u64::MAX)]);
}

#[test]
fn what_is_no_rule_is_refused_with_a_reason() {
    let mut keeping = Keeping::default();
    let hour = Duration::from_hours(1);
    for (rule, why) in [
        (rollup("*", 0), "1s"),
        (rollup("*", 7), "a day"),
        (rollup("*", 172_800), "a day"),
        (Rollup { keep: Some(hour / 2), ..rollup("*", 3600) }, "keep 30m is shorter"),
        (Rollup { raw: Some(hour / 2), ..rollup("*", 3600) }, "raw 30m is shorter"),
        (Rollup { keep: Some(hour), raw: Some(2 * hour), ..rollup("*", 60) }, "nobody"),
    ] {
        let told = keeping.add(rule).unwrap_err();
        assert!(told.contains(why), "{told}");
    }
    keeping.add(Rollup { raw: Some(hour), ..rollup("*", 60) }).unwrap();
    // Said again it is changed, and is the same rule.
    keeping.add(Rollup { keep: Some(2 * hour), ..rollup("*", 60) }).unwrap();
    let expected = Rollup { id: 1, keep: Some(2 * hour), ..rollup("*", 60) };
    assert_eq!(keeping.rollups(), [expected]);
    for text in ["", "c*u", "**"] {
        assert_eq!(Metrics::parse(text), None, "{text}");
    }
    for text in ["", "{}", r#"{"format":2}"#, r#"{"format":1,"next":1,"rollups":[{}]}"#] {
        assert!(Keeping::decode(text.as_bytes()).is_err(), "{text}");
    }
}
