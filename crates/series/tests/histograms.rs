//! Native histograms are kept as numbers are: none is lost or seen twice, whatever comes late, is
//! deleted, damaged, or dies. Random programs are compared with maps; a server dies at each of its
//! commits; rows and letters are damaged and put back.

use super::damage::{
    ASIDE, ILL, PREFIX, WELL, append, damage, database, open, rows, set, settings,
};
use super::set_aside::{clear, ending, spoiling};
use plinth::Database;
use plinth_env::block_on;
use plinth_series::workload::Random;
use plinth_series::{
    CUSTOM_BUCKETS, Direction, Error, Histogram, HistogramParts, HistogramSpan, Metrics, ResetHint,
    Retention, Rollup, SeriesStore, Settings,
};
use plinth_types::system::SERIES_LAYER_PREFIX;
use std::collections::BTreeMap;
use std::time::Duration;

const INBOX: u8 = 11;
const RECORDS: u8 = 25;

type Histograms = BTreeMap<i64, Histogram>;

fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

fn some_counts(random: &mut Random, spans: &[HistogramSpan], whole: bool) -> Vec<f64> {
    let count = |_| match whole {
        true => random.below(1000) as f64,
        false => random.unit() * 7.0,
    };
    (0..spans.iter().map(|span| span.length).sum::<u32>()).map(count).collect()
}

fn some_spans(random: &mut Random, most: u64) -> Vec<HistogramSpan> {
    let span = |random: &mut Random| HistogramSpan {
        offset: random.below(9) as i32,
        length: random.below(most) as u32,
    };
    (0..random.below(4)).map(|_| span(random)).collect()
}

/// Any histogram that there may be, small or large.
fn histogram(random: &mut Random) -> Histogram {
    let most = pick(random, &[3, 10, 160]);
    let whole = random.below(4) > 0;
    let mut parts = HistogramParts {
        hint: pick(
            random,
            &[ResetHint::Unknown, ResetHint::Reset, ResetHint::NotReset, ResetHint::Gauge],
        ),
        schema: random.below(13) as i32 - 4,
        count: random.below(1 << 40) as f64,
        sum: random.unit() * 1e9 - 5e8,
        positive_spans: some_spans(random, most),
        ..HistogramParts::default()
    };
    parts.positive = some_counts(random, &parts.positive_spans, whole);
    if random.below(4) == 0 {
        parts.schema = CUSTOM_BUCKETS;
        let reach: i64 = parts
            .positive_spans
            .iter()
            .map(|span| i64::from(span.offset) + i64::from(span.length))
            .sum();
        parts.bounds = (0..reach).map(|bound| bound as f64 / 4.0).collect();
    } else {
        parts.zero_threshold = pick(random, &[0.0, 1e-128, 0.5]);
        parts.zero_count = random.below(100) as f64;
        parts.negative_spans = some_spans(random, most);
        parts.negative = some_counts(random, &parts.negative_spans, whole);
    }
    Histogram::new(parts).unwrap()
}

fn found(store: &SeriesStore, name: &str) -> plinth_series::Result<Histograms> {
    block_on(async {
        let Some(series) = store.existing(name).await? else { return Ok(Histograms::new()) };
        Ok(series.histograms(..).await?.collect().await?.into_iter().collect())
    })
}

fn append_all(store: &SeriesStore, name: &str, all: &Histograms) -> plinth_series::Result<()> {
    let all: Vec<_> = all.iter().map(|(time, histogram)| (name, *time, histogram)).collect();
    block_on(store.append_histograms(&all))
}

/// So many of them, from a time on.
fn some(random: &mut Random, times: impl Iterator<Item = i64>) -> Histograms {
    times.map(|time| (time, histogram(random))).collect()
}

/// A store with what it should have.
struct World {
    db: Database,
    settings: Settings,
    random: Random,
    all: BTreeMap<&'static str, (Histograms, BTreeMap<i64, i64>)>,
}

const NAMES: [&str; 4] = ["h host=a", "h host=b", "i host=a", "j"];

impl World {
    fn new(seed: u64, parts: usize) -> Self {
        let settings = Settings { parts, ..settings() };
        Self { db: database(), settings, random: Random::new(seed), all: BTreeMap::new() }
    }

    fn open(&self) -> SeriesStore {
        block_on(SeriesStore::open_with(&self.db, self.settings.clone())).unwrap()
    }

    fn write(&mut self, store: &SeriesStore) {
        let random = &mut self.random;
        let mut sent = Vec::new();
        let begin = random.below(3000) as i64;
        for at in 0..random.below(40) as i64 {
            let name = pick(random, &NAMES);
            let time = if random.below(3) == 0 { random.below(4000) as i64 } else { begin + at };
            let histogram = histogram(random);
            self.all.entry(name).or_default().0.insert(2 * time, histogram.clone());
            sent.push((name, 2 * time, histogram));
        }
        let sent: Vec<_> = sent.iter().map(|(name, time, one)| (*name, *time, one)).collect();
        block_on(store.append_histograms(&sent)).unwrap();
    }

    fn write_numbers(&mut self, store: &SeriesStore) {
        let name = pick(&mut self.random, &NAMES);
        let series = block_on(store.series(name)).unwrap();
        for _ in 0..self.random.below(9) {
            let time = 2 * self.random.below(4000) as i64 + 1;
            series.append(time, time).unwrap();
            self.all.entry(name).or_default().1.insert(time, time);
        }
        block_on(store.sync()).unwrap();
    }

    fn delete(&mut self, store: &SeriesStore) {
        let name = pick(&mut self.random, &NAMES);
        let Some(series) = block_on(store.existing(name)).unwrap() else { return };
        let first = self.random.below(8000) as i64;
        let last = first + self.random.below(1500) as i64;
        block_on(series.delete_range(first..=last)).unwrap();
        if let Some((histograms, numbers)) = self.all.get_mut(name) {
            histograms.retain(|time, _| !(first..=last).contains(time));
            numbers.retain(|time, _| !(first..=last).contains(time));
        }
    }

    fn delete_whole(&mut self, store: &SeriesStore) {
        let name = pick(&mut self.random, &NAMES);
        let Some(series) = block_on(store.existing(name)).unwrap() else { return };
        block_on(store.delete(&series)).unwrap();
        self.all.remove(name);
    }

    fn check(&mut self, store: &SeriesStore) {
        for name in NAMES {
            let (wanted, numbers) = self.all.get(name).cloned().unwrap_or_default();
            assert!(found(store, name).unwrap() == wanted, "{name}");
            let Some(series) = block_on(store.existing(name)).unwrap() else { continue };
            let scanned = block_on(async {
                series.scan(.., Direction::Forward).await.unwrap().collect().await.unwrap()
            });
            let scanned: Vec<i64> = scanned.iter().map(|point| point.time).collect();
            assert_eq!(scanned, numbers.keys().copied().collect::<Vec<_>>(), "{name}");
            let first = self.random.below(8000) as i64;
            let last = first + self.random.below(3000) as i64;
            let span = block_on(async {
                series.histograms(first..=last).await.unwrap().collect().await.unwrap()
            });
            let wanted: Vec<(i64, Histogram)> =
                wanted.range(first..=last).map(|(time, one)| (*time, one.clone())).collect();
            assert!(span == wanted, "{name} {first} {last}");
        }
    }
}

#[test]
fn a_store_has_what_was_written_and_not_deleted() {
    for seed in 0..12 {
        let mut world = World::new(seed, [1, 4][seed as usize % 2]);
        let mut store = world.open();
        for _ in 0..60 {
            match world.random.below(16) {
                0..8 => world.write(&store),
                8 | 9 => world.write_numbers(&store),
                10 | 11 => world.delete(&store),
                12 if world.random.below(3) == 0 => world.delete_whole(&store),
                13 => block_on(store.take_in()).unwrap(),
                14 => {
                    let view = SeriesStore::view(&world.db, world.settings.clone());
                    let view = block_on(view).unwrap();
                    world.check(&view);
                }
                // Without a word.
                _ => store = world.open(),
            }
            if world.random.below(4) == 0 {
                world.check(&store);
            }
        }
        world.check(&store);
        block_on(store.check_invariants()).unwrap();
    }
}

#[test]
fn one_that_dies_anywhere_while_they_are_taken_in_loses_none() {
    let mut random = Random::new(5);
    for commits in 0.. {
        let db = database();
        let all = some(&mut random, (0..300).chain(1000..1100));
        // Nobody has taken them in.
        let store = open(&db);
        append_all(&store, ILL, &all).unwrap();
        append_all(&store, WELL[0], &all).unwrap();
        assert!(!rows(&db, INBOX).is_empty());
        drop(store);
        let opened = block_on(SeriesStore::open_with(&ending(&db, commits), settings()));
        let is_done = opened.is_ok();
        let store = open(&db);
        assert!(found(&store, ILL).unwrap() == all && found(&store, WELL[0]).unwrap() == all);
        assert!(rows(&db, INBOX).is_empty());
        block_on(store.check_invariants()).unwrap();
        if is_done {
            assert!(commits > 3, "{commits}");
            return;
        }
    }
}

#[test]
fn a_damaged_row_of_them_is_its_series_affair_and_nothing_is_lost() {
    let (db, mut random) = (database(), Random::new(6));
    let store = open(&db);
    let mut all = some(&mut random, 0..200);
    for name in [ILL, WELL[0]] {
        append_all(&store, name, &all).unwrap();
        block_on(append(&store, name, 0..6)).unwrap();
    }
    block_on(store.take_in()).unwrap();
    block_on(store.sync()).unwrap();
    drop(store);
    // The series of the lower number is `ILL`, which came first; the last row is rewritten.
    let of_ill = |row: &&(Vec<u8>, Vec<u8>)| {
        row.0.starts_with(&[PREFIX, &[0x15, RECORDS, 0x15, 1, 0x15, 1]].concat())
    };
    let last = rows(&db, RECORDS).iter().rfind(of_ill).unwrap().clone();
    let (whole, _) = damage(&db, last);
    let more = some(&mut random, 150..260);
    let store = open(&db);
    for name in [ILL, WELL[0]] {
        append_all(&store, name, &more).unwrap();
    }
    block_on(store.take_in()).unwrap();
    all.extend(more);
    assert!(found(&store, WELL[0]).unwrap() == all, "others go on");
    assert_eq!(store.stats().damaged, 1);
    let told = block_on(append(&store, ILL, 900..901));
    assert!(matches!(told, Err(Error::Damaged { .. })), "{told:?}");
    assert!(matches!(append_all(&store, ILL, &all), Err(Error::Damaged { .. })));
    assert!(!rows(&db, ASIDE).is_empty() && rows(&db, INBOX).is_empty());
    drop(store);
    // It is still so; then the row is put back.
    let store = open(&db);
    assert_eq!(store.stats().damaged, 1);
    assert!(found(&store, WELL[0]).unwrap() == all);
    drop(store);
    set(&db, &whole);
    let store = open(&db);
    assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
    assert!(found(&store, ILL).unwrap() == all);
    let points = block_on(async {
        let series = store.existing(ILL).await.unwrap().unwrap();
        series.scan(.., Direction::Forward).await.unwrap().collect().await.unwrap()
    });
    assert_eq!(points.len(), 6);
    block_on(store.check_invariants()).unwrap();
}

#[test]
fn a_damaged_letter_is_set_aside_as_it_is_and_comes_back() {
    let (db, mut random) = (database(), Random::new(7));
    let store = open(&db);
    let all = some(&mut random, 0..9);
    append_all(&store, ILL, &all).unwrap();
    let letter = rows(&db, INBOX).pop().unwrap();
    let (whole, _) = damage(&db, letter);
    block_on(store.take_in()).unwrap();
    assert!(found(&store, ILL).unwrap().is_empty());
    assert_eq!((store.stats().damaged, rows(&db, ASIDE).len()), (1, 1));
    drop(store);
    let aside = rows(&db, ASIDE).pop().unwrap();
    // A letter stands there behind a byte that says so.
    set(&db, &(aside.0, [&[0], &whole.1[..]].concat()));
    let store = open(&db);
    assert!(found(&store, ILL).unwrap() == all);
    assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
}

#[test]
fn retention_takes_those_that_are_too_old_and_the_name_with_the_last() {
    const NOW: i64 = 1_767_225_600_000_000_000;
    const HOUR: i64 = 3_600_000_000_000;
    let (db, mut random) = (database(), Random::new(8));
    let store = open(&db);
    let kept: Retention = "*=12h".parse().unwrap();
    let old = some(&mut random, (20..30).map(|hour| NOW - hour * HOUR));
    let new = some(&mut random, (0..5).map(|hour| NOW - hour * HOUR));
    append_all(&store, ILL, &old).unwrap();
    append_all(&store, WELL[0], &old).unwrap();
    append_all(&store, WELL[0], &new).unwrap();
    block_on(append(&store, WELL[1], [NOW].into_iter())).unwrap();
    assert_eq!(block_on(store.forget(&kept, NOW)).unwrap(), 2);
    assert!(block_on(store.existing(ILL)).unwrap().is_none());
    assert!(found(&store, WELL[0]).unwrap() == new);
    assert_eq!(block_on(store.forget(&kept, NOW)).unwrap(), 0);
    block_on(store.check_invariants()).unwrap();
}

#[test]
fn what_is_too_large_is_refused_and_what_is_large_is_kept() {
    let store = open(&database());
    let of = |buckets: u32| {
        let parts = HistogramParts {
            count: f64::from(buckets),
            positive_spans: vec![HistogramSpan { offset: 0, length: buckets }],
            positive: (0..buckets).map(|at| f64::from(at) + 0.5).collect(),
            ..HistogramParts::default()
        };
        Histograms::from([(1, Histogram::new(parts).unwrap())])
    };
    append_all(&store, ILL, &of(8000)).unwrap();
    let told = append_all(&store, ILL, &of(9000)).unwrap_err().to_string();
    assert!(told.contains("9000 buckets of a native histogram"), "{told}");
    assert!(found(&store, ILL).unwrap() == of(8000));
}

#[test]
fn what_is_left_of_a_place_that_was_cleared_is_nothing() {
    let (db, mut random) = (database(), Random::new(9));
    let store = open(&db);
    append_all(&store, ILL, &some(&mut random, 0..50)).unwrap();
    block_on(store.take_in()).unwrap();
    let series = block_on(store.existing(ILL)).unwrap().unwrap();
    block_on(store.delete(&series)).unwrap();
    assert!(rows(&db, RECORDS).is_empty());
    // And one of which a row alone has gone is what the others are.
    let all = some(&mut random, 0..200);
    append_all(&store, ILL, &all).unwrap();
    block_on(store.take_in()).unwrap();
    let first = rows(&db, RECORDS).remove(0);
    clear(&db, &first.0);
    let left = found(&store, ILL).unwrap();
    assert!(left.len() < all.len() && left.iter().all(|(time, one)| all[time] == *one));
}

fn of_buckets(buckets: u32, count: impl Fn(u32) -> f64) -> Histogram {
    Histogram::new(HistogramParts {
        count: f64::from(buckets),
        positive_spans: vec![HistogramSpan { offset: 0, length: buckets }],
        positive: (0..buckets).map(count).collect(),
        ..HistogramParts::default()
    })
    .unwrap()
}

/// They stayed where series were before they had a place of their own.
#[test]
fn they_move_with_their_series() {
    let (db, mut random) = (database(), Random::new(10));
    let former = Settings { prefix: Some(SERIES_LAYER_PREFIX.to_vec()), ..Settings::default() };
    let store = block_on(SeriesStore::open_with(&db, former)).unwrap();
    let all = some(&mut random, 0..100);
    append_all(&store, ILL, &all).unwrap();
    block_on(store.take_in()).unwrap();
    let more = some(&mut random, 90..110);
    append_all(&store, ILL, &more).unwrap();
    drop(store);
    let store = block_on(SeriesStore::open(&db)).unwrap();
    let all: Histograms = all.into_iter().chain(more).collect();
    assert!(found(&store, ILL).unwrap() == all);
    block_on(store.check_invariants()).unwrap();
}

/// A page of letters was one transaction of 64 series, each of which reads and writes a row that
/// may be large: more than a transaction may have, and nothing was saved any more.
#[test]
fn what_rows_have_already_makes_no_transaction_too_large() {
    let store = open(&database());
    let wide = of_buckets(8000, |at| f64::from(at) + 0.5);
    let small = of_buckets(100, |at| f64::from(at) + 0.5);
    let names: Vec<String> = (0..80).map(|host| format!("h host={host}")).collect();
    let all = |histograms: &[(i64, &Histogram)]| {
        let all = names.iter().flat_map(|name| {
            histograms.iter().map(|(time, histogram)| (name.as_str(), *time, *histogram))
        });
        block_on(store.append_histograms(&all.collect::<Vec<_>>())).unwrap();
    };
    (0..9).for_each(|time| all(&[(time, &small)]));
    all(&[(1000, &wide)]);
    block_on(store.take_in()).unwrap();
    let before: Vec<(i64, &Histogram)> = (100..120).map(|time| (time, &small)).collect();
    all(&[&before[..], &[(1001, &wide)]].concat());
    block_on(store.take_in()).unwrap();
    for name in &names {
        assert_eq!(found(&store, name).unwrap().len(), 9 + 1 + 20 + 1);
    }
    block_on(store.check_invariants()).unwrap();
}

/// An owner that commits when it is asked to waited for somebody else to take in.
#[test]
fn an_owner_makes_room_in_its_own_inbox() {
    let (db, mut random) = (database(), Random::new(11));
    let settings = Settings { inbox_bytes: 100_000, ..settings() };
    let store = block_on(SeriesStore::open_with(&db, settings)).unwrap();
    let wide = Histograms::from([(0, of_buckets(4000, |at| f64::from(at) + 0.5))]);
    for _ in 0..12 {
        append_all(&store, WELL[0], &wide).unwrap();
    }
    let all = some(&mut random, 1..50);
    append_all(&store, WELL[0], &all).unwrap();
    assert_eq!(found(&store, WELL[0]).unwrap().len(), 50);
}

/// Where rollups keep a series, its records stayed for ever.
#[test]
fn they_go_by_the_age_of_points_where_there_are_rollups() {
    const NOW: i64 = 1_767_225_600_000_000_000;
    const HOUR: i64 = 3_600_000_000_000;
    let (db, mut random) = (database(), Random::new(12));
    let store = open(&db);
    let raw = Some(Duration::from_hours(12));
    let rollup =
        Rollup { raw, ..Rollup::new(Metrics::parse("*").unwrap(), Duration::from_hours(1)) };
    block_on(SeriesStore::change_keeping(&db, &settings(), |keeping| keeping.add(rollup.clone())))
        .unwrap();
    let old = some(&mut random, (20..30).map(|hour| NOW - hour * HOUR));
    let new = some(&mut random, (0..5).map(|hour| NOW - hour * HOUR));
    append_all(&store, WELL[0], &old).unwrap();
    append_all(&store, WELL[0], &new).unwrap();
    block_on(append(&store, WELL[0], [NOW].into_iter())).unwrap();
    block_on(store.roll_up()).unwrap();
    block_on(store.forget(&Retention::default(), NOW)).unwrap();
    assert!(found(&store, WELL[0]).unwrap() == new);
}

/// A page of what was aside went behind the others when a row of the series was damaged again: of
/// two histograms of one time the older one was left.
#[test]
fn what_was_aside_comes_back_in_its_order_though_the_row_is_damaged_again() {
    let (db, mut random) = (database(), Random::new(13));
    let store = open(&db);
    append_all(&store, ILL, &some(&mut random, 0..50)).unwrap();
    block_on(store.take_in()).unwrap();
    block_on(append(&store, ILL, 0..6)).unwrap();
    block_on(store.sync()).unwrap();
    drop(store);
    let row = rows(&db, RECORDS).pop().unwrap();
    let (whole, _) = damage(&db, row);
    let store = open(&db);
    let mut all = Histograms::new();
    // More letters than a page, of the same times, from somebody who doesn't know.
    let poster = block_on(SeriesStore::post(&db, settings())).unwrap();
    for _ in 0..90 {
        let more = some(&mut random, 0..60);
        append_all(&poster, ILL, &more).unwrap();
        all.extend(more);
        block_on(store.take_in()).unwrap();
    }
    assert!(rows(&db, ASIDE).len() > 64);
    drop(store);
    set(&db, &whole);
    for commits in 0..12 {
        // It is found whole, and damaged when a page is saved.
        let (spoiling, spoilt) = spoiling(&db, commits, &whole.0);
        let store = block_on(SeriesStore::open_with(&spoiling, settings()));
        drop(store);
        spoilt.mend(&db);
    }
    let store = open(&db);
    assert_eq!((store.damaged(), rows(&db, ASIDE).len()), (vec![], 0));
    assert!(found(&store, ILL).unwrap() == all);
    block_on(store.check_invariants()).unwrap();
}
