//! What tests of queries share: a few metrics of some hosts, with the same points in a store and in
//! maps; stores with points that a test says; asking.
#![allow(dead_code, reason = "each test file uses a part")]

use plinth::Local;
use plinth_env::block_on;
use plinth_series::workload::Random;
use plinth_series::{Name, Query, SeriesStore};
use std::collections::BTreeMap;

/// An empty store.
pub fn store() -> SeriesStore {
    block_on(SeriesStore::open(&Local::in_memory().unwrap().into_database())).unwrap()
}

/// One of these.
pub fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

/// The tags of a name.
pub fn tags(name: &str) -> BTreeMap<String, String> {
    let name = Name::parse(name).unwrap();
    name.tags().map(|(tag, value)| (tag.to_string(), value.to_string())).collect()
}

/// The tags of the series of each metric.
pub const HOSTS: [&str; 6] = [
    "host=a region=eu",
    "host=b rack=1 region=eu",
    "host=c rack=2 region=us",
    "host=d",
    "host=e rack=1",
    "host=f region=asia",
];

/// Points of three metrics on a few hosts, small multiples of 1/4 whose sums do not depend on their
/// order, at most one second apart.
pub fn measured(random: &mut Random) -> (SeriesStore, BTreeMap<String, BTreeMap<i64, f64>>) {
    let (store, mut all) = (store(), BTreeMap::new());
    for metric in ["x", "y", "z"] {
        for host in HOSTS {
            if random.below(4) == 0 {
                continue;
            }
            let name = format!("{metric} {host}");
            let series = block_on(store.series(&name)).unwrap();
            let (mut points, mut time) = (BTreeMap::new(), random.below(5) as i64);
            for _ in 0..random.below(300) {
                time += 1 + random.below(4) as i64;
                let value = random.below(800) as f64 / 4.0 - 100.0;
                series.append(time * 250_000_000, value).unwrap();
                points.insert(time * 250_000_000, value);
            }
            all.insert(name, points);
        }
        block_on(store.sync()).unwrap();
    }
    (store, all)
}

/// Whether two values are the same but for how their sums were rounded.
pub fn is_near(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

/// A store with some points, a second apart, by series.
pub fn filled(series: &[(&str, &[f64])]) -> SeriesStore {
    block_on(async {
        let db = Local::in_memory().unwrap().into_database();
        let store = SeriesStore::open(&db).await.unwrap();
        for (name, values) in series {
            let series = store.series(name).await.unwrap();
            for (second, value) in (1_i64..).zip(*values) {
                series.append(second * 1_000_000_000, *value).unwrap();
            }
        }
        store
    })
}

/// The answer to a query, or its error.
pub fn ask(store: &SeriesStore, json: &str) -> Result<String, String> {
    let text =
        block_on(async { store.query(&Query::parse(json.as_bytes())?).await?.collect().await });
    text.map(|text| String::from_utf8(text).unwrap()).map_err(|error| error.to_string())
}
