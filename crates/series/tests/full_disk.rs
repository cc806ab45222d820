//! The disk gets full in the middle of ingest: whoever sends is told, nothing that was acknowledged
//! is lost, memory stays bounded, and when there is room again it goes on.
//!
//! A simulated world, from a seed: the machine's disk has so much room left, and a session sends
//! until the store refuses.

use plinth::{Builder, Database};
use plinth_env::simulated::Simulation;
use plinth_env::{Env, is_disk_full};
use plinth_series::ingest::{Memory, Protocol, Session};
use plinth_series::workload::Random;
use plinth_series::{Direction, Error, Result, Series, SeriesStore, Settings};
use std::time::Duration;

const NAME: &str = "m a=1";

async fn open(env: &Env) -> Result<(Database, SeriesStore)> {
    let db = Builder::new("/db").env(env.clone()).open_async().await?.into_database();
    // What asks for commits is the test alone.
    let settings = Settings { leaf_points: 50, commit_every: None, ..Settings::default() };
    let store = SeriesStore::open_with(&db, settings).await?;
    Ok((db, store))
}

/// Sends until the store refuses: how many points were acknowledged, and the error.
async fn send(store: &SeriesStore, random: &mut Random) -> (u64, Error) {
    let mut session = Session::new(Protocol::Resp, 1, &Memory::default());
    let (mut time, mut acknowledged) = (0_i64, 0);
    loop {
        let mut text = String::new();
        for _ in 0..1 + random.below(400) {
            time += 1;
            // Values that don't compress.
            text += &format!("+{NAME}\n:{time}\n+{}\n", f64::from_bits(random.next() >> 2));
        }
        text += "+SYNC\n";
        assert_eq!(session.feed(text.as_bytes()), text.len());
        if let Err(error) = session.save(store).await {
            let told = String::from_utf8_lossy(session.replies()).into_owned();
            assert!(told.starts_with("-DB ") && told.lines().count() == 1, "{told}");
            return (acknowledged, error);
        }
        acknowledged = time as u64;
        assert_eq!(session.replies(), format!("+OK {acknowledged}\r\n").as_bytes());
        session.sent(session.replies().len());
    }
}

async fn times(series: &Series) -> Result<Vec<i64>> {
    let points = series.scan(.., Direction::Forward).await?.collect().await?;
    Ok(points.iter().map(|point| point.time).collect())
}

#[test]
fn a_full_disk_is_told_loses_nothing_acknowledged_and_is_recovered_from() {
    for seed in 0..12 {
        let simulation = Simulation::new(seed);
        let mut random = Random::new(seed);
        let machine = simulation.process("node");
        let (db, store) = simulation.run_until(open(&machine)).unwrap();
        let used: u64 = simulation.files(&machine).iter().map(|(_, len)| len).sum();
        let room = used + random.below(100_000);
        simulation.update_faults(&machine, |plan| plan.capacity = Some(room));
        let (acknowledged, error) = simulation.run_until(send(&store, &mut random));
        let Error::Database(error) = &error else { panic!("seed {seed}: {error}") };
        assert!(is_disk_full(error), "seed {seed}: {error}");
        let all = simulation.run_until(async {
            let series = store.series(NAME).await.unwrap();
            // What is in memory can be read, and there is an end to it.
            let read = times(&series).await.unwrap();
            assert!(
                read.len() as u64 >= acknowledged,
                "seed {seed}: {} of {acknowledged}",
                read.len()
            );
            let mut refused = 0;
            for time in 1_000_000..1_200_000 {
                match series.append(time, time) {
                    Ok(()) => {}
                    Err(Error::Behind) => refused += 1,
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            }
            assert!(refused > 100_000, "seed {seed}: only {refused} points were refused");
            let error = store.sync().await.unwrap_err();
            assert!(
                matches!(&error, Error::Database(error) if is_disk_full(error)),
                "seed {seed}: {error}"
            );
            times(&series).await.unwrap()
        });
        if seed % 2 == 0 {
            simulation.update_faults(&machine, |plan| plan.capacity = None);
            simulation.run_until(store.sync()).unwrap();
        }
        simulation.crash(&machine);
        drop((store, db));
        let machine = simulation.restart(&machine);
        simulation.update_faults(&machine, |plan| plan.capacity = None);
        let found = simulation.run_until(async {
            let (_db, store) = open(&machine).await.unwrap();
            let found = times(&store.series(NAME).await.unwrap()).await.unwrap();
            machine.sleep(Duration::from_secs(1)).await;
            store.check_invariants().await.unwrap();
            found
        });
        match seed % 2 {
            0 => assert!(found == all, "seed {seed}: {} points of {}", found.len(), all.len()),
            _ => {
                assert!(
                    found.len() as u64 >= acknowledged,
                    "seed {seed}: {} of {acknowledged}",
                    found.len()
                );
                assert!(all.starts_with(&found), "seed {seed}: something else is there");
            }
        }
    }
}
