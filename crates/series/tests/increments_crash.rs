//! The machine stops in the middle of posting increments, of taking them in and of saving what they
//! come to: after each restart every increment that was acknowledged is in its sum, and in it once.

use super::lives::{Life, lives};
use plinth::Builder;
use plinth_env::Env;
use plinth_series::ingest::{Clock, Memory, OtlpMetrics, Protocol, Session};
use plinth_series::{Direction, Result, SeriesStore, Settings, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The times of increments of each series, all of which add one, and whether they were
/// acknowledged.
type Sent = BTreeMap<(usize, i64), bool>;
const SERIES: usize = 3;

/// Sends increments; when it returns they were acknowledged.
async fn send(store: &SeriesStore, all: &[(usize, i64)], seed: u64) -> Result<()> {
    let point = |(which, time): &(usize, i64)| {
        format!(
            r#"{{"timeUnixNano": {time}, "asInt": 1, "attributes":
                [{{"key": "n", "value": {{"stringValue": "{which}"}}}}]}}"#
        )
    };
    let points: Vec<String> = all.iter().map(point).collect();
    let text = format!(
        r#"{{"resourceMetrics": [{{"scopeMetrics": [{{"metrics": [{{"name": "m", "sum":
            {{"aggregationTemporality": 1, "isMonotonic": true, "dataPoints": [{}]}}}}]}}]}}]}}"#,
        points.join(",")
    );
    let mut message = OtlpMetrics::of_json(text.as_bytes(), &mut |_| true).unwrap();
    let protocol = Protocol::Influx(Clock { unit: 1, now: 0 });
    let mut session = Session::new(protocol, 1, &Memory::default());
    while !session.take_otlp(&mut message) {
        session.save(store).await?;
    }
    session.end(b"", store).await?;
    assert_eq!(session.replies(), b"", "seed {seed}");
    Ok(())
}

async fn write(life: Life<Sent>) -> Result<()> {
    let Life { env, settings, mut random, seed, number, history: sent } = life;
    let mut now = number * 1_000_000;
    let db = Builder::new("/db").env(env.clone()).open_async().await?.into_database();
    let owner = SeriesStore::open_with(&db, settings.clone()).await?;
    let poster = SeriesStore::post(&db, settings).await?;
    loop {
        let mut all = Vec::new();
        for _ in 0..1 + random.below(30) {
            now += 1;
            all.push((random.below(SERIES as u64) as usize, now));
        }
        sent.lock().unwrap().extend(all.iter().map(|one| (*one, false)));
        let store = if random.below(4) == 0 { &owner } else { &poster };
        send(store, &all, seed).await?;
        sent.lock().unwrap().extend(all.iter().map(|one| (*one, true)));
        match random.below(6) {
            0 => owner.take_in().await?,
            1 => owner.sync().await?,
            // Those who don't know send it again.
            2 => send(&poster, &all, seed).await?,
            3 => env.sleep(Duration::from_micros(random.below(300_000))).await,
            _ => {}
        }
    }
}

/// Gives how many increments were there, of which some may not have been acknowledged.
async fn check(
    env: Env,
    settings: Settings,
    (mut sent, seed): (Sent, u64),
) -> Result<(Sent, usize)> {
    let db = Builder::new("/db").env(env.clone()).open_async().await?.into_database();
    let store = SeriesStore::open_with(&db, settings).await?;
    store.check_invariants().await?;
    let mut there = BTreeSet::new();
    for which in 0..SERIES {
        let name = format!("m_total n={which}");
        let Some(series) = store.existing(&name).await? else { continue };
        let points = series.scan(.., Direction::Forward).await?.collect().await?;
        for (at, point) in points.iter().enumerate() {
            let expected = Value::Integer(at as i64 + 1);
            assert_eq!(point.value, expected, "seed {seed}: {name} at {}", point.time);
            there.insert((which, point.time));
        }
    }
    for (one, is_acknowledged) in &sent {
        assert!(!is_acknowledged || there.contains(one), "seed {seed}: {one:?} has gone");
    }
    assert!(there.iter().all(|one| sent.contains_key(one)), "seed {seed}: what nobody sent");
    sent.retain(|one, _| there.contains(one));
    Ok((sent, there.len()))
}

#[test]
fn what_was_acknowledged_is_in_its_sum_once() {
    let found: usize = lives(0..40, write, check).into_iter().sum();
    assert!(found > 1000, "{found} increments are too few to say anything");
}
