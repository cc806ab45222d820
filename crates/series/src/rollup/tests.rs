//! Buckets against their points one by one, whatever comes in between: marks, numbers that are
//! none, points at the beginnings of buckets, and pieces of any size. Rows with wrong bytes, rules
//! that are none.

use super::digest::Digest;
use super::*;
use crate::tree::Summary;
use crate::value::{Point, Points, Value};
use crate::workload::Random;
use plinth_promql::{STALE, Stretches, Wanted};
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

/// What is wanted of stretches, and what of digests.
const OF_STRETCHES: [Wanted; 4] = [Wanted::Count, Wanted::Sum, Wanted::Least, Wanted::Greatest];
const OF_ENDS: [Wanted; 2] = [Wanted::Ends, Wanted::Last];

/// Points of a gauge or a counter as most are: numbers, one a bucket's beginning at least, some of
/// them integers throughout.
fn plain_points(random: &mut Random, count: i64) -> Points {
    let begin = EVERY * (random.below(100) as i64 - 50);
    let is_integer = random.below(2) == 0;
    let each = EVERY / 4;
    let point = |at: i64| {
        let number = random.below(400) as i64 - 200;
        let value = match is_integer {
            true => Value::Integer(number),
            false => Value::Float(number as f64 / 4.0),
        };
        Point { time: begin + at * each, value }
    };
    (0..count).map(point).collect()
}

/// Rows of buckets of all kinds: those as most series have them, those with marks, NaN and holes,
/// and those without a point at any beginning.
fn rows(seed: u64) -> Vec<Bucket> {
    let mut random = Random::new(seed);
    let mut points = match seed % 3 {
        0 => plain_points(&mut random, 200),
        _ => points(&mut random, 200),
    };
    if seed % 4 == 1 {
        points = points.iter().filter(|point| point.time.rem_euclid(EVERY) != 0).collect();
    }
    let mut maker = Maker::new(EVERY);
    maker.add(&points);
    maker.until(i64::MAX)
}

/// What the points of some buckets come to one after the other: how many they are, and one number.
fn folded(buckets: &[Bucket], wanted: Wanted, window: (i64, i64)) -> Option<(u64, f64)> {
    let mut all: Option<(u64, f64)> = None;
    let mut add = |(first, last): (i64, i64), count: u64, value: f64| {
        if count == 0 || first < window.0 || last > window.1 {
            return;
        }
        all = match all {
            None => Some((count, value)),
            Some((before, one)) => Some((before + count, wanted.joined(one, value))),
        };
    };
    for Bucket { begin, at, rest } in buckets {
        if let Some(value) = at {
            let is_mark = value.as_f64().to_bits() == STALE;
            add((*begin, *begin), u64::from(!is_mark), value.as_f64());
        }
        let Some(Digest { summary, marks, .. }) = rest else { continue };
        let number = |point: Option<Point>| point.map_or(f64::NAN, |point| point.value.as_f64());
        let value = match wanted {
            Wanted::Sum if summary.numbers < summary.count - marks => f64::NAN,
            Wanted::Sum => summary.sum,
            Wanted::Least => number(summary.min),
            _ => number(summary.max),
        };
        add((begin + 1, begin + EVERY - 1), summary.count - marks, value);
    }
    all
}

/// Any stretch of time that windows of whole buckets may have, with the beginning of the next
/// bucket and without that of the first, or the other way around.
fn windows(random: &mut Random, buckets: &[Bucket], joined: Joined) -> (i64, i64) {
    let of = |random: &mut Random| buckets[random.below(buckets.len() as u64) as usize].begin;
    let (one, other) = (of(random), of(random));
    let (begin, end) = (one.min(other), one.max(other) + EVERY);
    match joined {
        Joined::Behind => (begin + 1, end),
        Joined::From => (begin, end - 1),
    }
}

#[test]
fn columns_that_are_wanted_say_what_whole_buckets_say() {
    let mut plain = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let buckets = rows(seed);
        let bytes = encode(&buckets);
        let bounds = windows(&mut random, &buckets, Joined::From);
        let kept = |bucket: &&Bucket| (bounds.0..bounds.1).contains(&bucket.begin);
        let kept: Vec<Bucket> = buckets.iter().filter(kept).copied().collect();
        for (wanted, joined) in OF_STRETCHES
            .iter()
            .flat_map(|wanted| [Joined::Behind, Joined::From].map(|joined| (*wanted, joined)))
        {
            let mut columns = Columns::decode(&bytes, Needed::of(wanted)).unwrap();
            columns.keep(bounds.0, bounds.1);
            let mut stretches = Stretches::default();
            columns.put_stretches(wanted, (EVERY, joined), &mut stretches);
            plain += usize::from(stretches.len() <= kept.len() + 1 && kept.len() > 2);
            let times = stretches.firsts.iter().zip(&stretches.lasts);
            let all: Vec<i64> = times.flat_map(|(first, last)| [*first, *last]).collect();
            assert!(all.is_sorted(), "seed {seed}: {all:?}");
            for _ in 0..10 {
                let window = windows(&mut random, &buckets, joined);
                let is_in = |place: &usize| {
                    window.0 <= stretches.firsts[*place] && stretches.lasts[*place] <= window.1
                };
                let mut places = (0..stretches.len()).filter(is_in);
                let mut found: Option<(u64, f64)> = None;
                for place in places.by_ref().filter(|place| stretches.counts[*place] > 0) {
                    let (count, value) = (stretches.counts[place], stretches.values[place]);
                    found = match found {
                        None => Some((count, value)),
                        Some((all, one)) => Some((all + count, wanted.joined(one, value))),
                    };
                }
                let expected = folded(&kept, wanted, window);
                let what = format!("seed {seed}, {wanted:?} {joined:?} of {window:?}");
                assert_eq!(found.map(|all| all.0), expected.map(|all| all.0), "{what}");
                if let (Some((_, found)), Some((_, expected))) = (found, expected)
                    && wanted != Wanted::Count
                {
                    let is_same = found == expected || found.is_nan() && expected.is_nan();
                    assert!(is_same, "{what}: {found} and {expected}");
                }
            }
        }
    }
    assert!(plain > 100, "rows whose columns were added up as they are: {plain}");
}

/// The digests of each bucket: of the point at its beginning, and of those behind it.
fn digests(buckets: &[Bucket], wanted: Wanted) -> Vec<plinth_promql::Digest> {
    let of_rest = |Digest { summary, falls, marks, seen }: Digest| {
        let (first, last) = seen.unwrap_or((summary.first, summary.last));
        let sample = |point: Point| (point.time, point.value.as_f64());
        plinth_promql::Digest {
            count: summary.count - marks,
            first: sample(first),
            last: sample(last),
            falls: if wanted == Wanted::Ends { falls } else { 0.0 },
            is_ended: summary.last.value.as_f64().to_bits() == STALE,
        }
    };
    let of = |Bucket { begin, at, rest }: &Bucket| {
        let at = at.map(|value| plinth_promql::Digest::from((*begin, value.as_f64())));
        [at, rest.map(of_rest)]
    };
    buckets.iter().flat_map(of).flatten().collect()
}

/// How many points a window has, the bits of its ends, since NaN is not equal to itself, its falls,
/// of which those of both zeros are the same, and whether it is ended.
type Ends = (u64, [(i64, u64); 2], f64, bool);

/// What digests of a window come to.
fn ends(digests: &[plinth_promql::Digest], window: (i64, i64)) -> Option<Ends> {
    let is_in = |one: &&plinth_promql::Digest| window.0 <= one.first.0 && one.last.0 <= window.1;
    let mut all = digests.iter().filter(is_in).copied();
    let mut sum = all.next()?;
    all.for_each(|next| sum.add(&next));
    let bits = |(time, value): (i64, f64)| (time, value.to_bits());
    Some((sum.count, [bits(sum.first), bits(sum.last)], sum.falls, sum.is_ended))
}

#[test]
fn ends_that_are_wanted_are_those_of_whole_buckets() {
    let mut plain = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let buckets = rows(seed);
        let bytes = encode(&buckets);
        let bounds = windows(&mut random, &buckets, Joined::From);
        let kept = |bucket: &&Bucket| (bounds.0..bounds.1).contains(&bucket.begin);
        let kept: Vec<Bucket> = buckets.iter().filter(kept).copied().collect();
        for (wanted, joined) in OF_ENDS
            .iter()
            .flat_map(|wanted| [Joined::Behind, Joined::From].map(|joined| (*wanted, joined)))
        {
            let expected = digests(&kept, wanted);
            let mut columns = Columns::decode(&bytes, Needed::of(wanted)).unwrap();
            columns.keep(bounds.0, bounds.1);
            let mut found = Vec::new();
            columns.put_digests((EVERY, joined), &mut found);
            plain += usize::from(found.len() <= kept.len() + 1 && kept.len() > 2);
            let times = found.iter().flat_map(|one| [one.first.0, one.last.0]);
            assert!(times.is_sorted(), "seed {seed}: {found:?}");
            for _ in 0..10 {
                let window = windows(&mut random, &buckets, joined);
                let (mut found, mut expected) = (ends(&found, window), ends(&expected, window));
                if wanted == Wanted::Last {
                    // Falls aren't known where nobody asks for them.
                    found.iter_mut().chain(&mut expected).for_each(|all| all.2 = 0.0);
                }
                assert_eq!(found, expected, "seed {seed}, {wanted:?} {joined:?} of {window:?}");
            }
        }
        let mut found = Vec::new();
        let columns = Columns::decode(&bytes, Needed::SUMMARIES).unwrap();
        columns.summaries(false, |summary| found.push(*summary));
        let of = |bucket: &Bucket| {
            let at = bucket.at.map(|value| Summary::from(Point { time: bucket.begin, value }));
            [at, bucket.rest.map(|rest| rest.summary)]
        };
        let expected: Vec<Summary> = buckets.iter().flat_map(of).flatten().collect();
        assert_eq!(found.len(), expected.len());
        let same = |(one, other): (&Summary, &Summary)| {
            (one.count, one.numbers, one.first, one.last, one.min, one.max)
                == (other.count, other.numbers, other.first, other.last, other.min, other.max)
                && one.sum.to_bits() == other.sum.to_bits()
        };
        assert!(found.iter().zip(&expected).all(same), "seed {seed}");
        found.clear();
        columns.summaries(true, |summary| found.push(*summary));
        assert!(found.iter().rev().zip(&expected).all(same), "seed {seed}, backward");
    }
    assert!(plain > 100, "rows whose neighbours were put together: {plain}");
}

#[test]
fn a_row_with_a_wrong_byte_is_refused_whatever_is_wanted_of_it() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let bytes = encode(&rows(seed));
        for place in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[place] ^= 1 << random.below(8);
            for wanted in OF_STRETCHES.into_iter().chain(OF_ENDS) {
                assert!(Columns::decode(&bytes, Needed::of(wanted)).is_err(), "{place}");
            }
            // Also where the checksum fits nothing panics, and what is read has as much of all.
            crate::codec::put_checksum(&mut bytes);
            for wanted in OF_STRETCHES {
                let Ok(columns) = Columns::decode(&bytes, Needed::of(wanted)) else { continue };
                for joined in [Joined::Behind, Joined::From] {
                    let mut found = Stretches::default();
                    columns.put_stretches(wanted, (EVERY, joined), &mut found);
                    let lens = [found.firsts.len(), found.counts.len(), found.values.len()];
                    assert_eq!(lens, [found.lasts.len(); 3], "{place}");
                }
            }
            for wanted in OF_ENDS {
                let Ok(columns) = Columns::decode(&bytes, Needed::of(wanted)) else { continue };
                for joined in [Joined::Behind, Joined::From] {
                    columns.put_digests((EVERY, joined), &mut Vec::new());
                }
            }
            let columns = Columns::decode(&bytes, Needed::SUMMARIES);
            columns.into_iter().for_each(|columns| columns.summaries(true, |_| ()));
        }
    }
}
