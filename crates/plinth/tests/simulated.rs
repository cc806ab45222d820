//! The facade in a simulated world: tasks that run at the same time, chosen by the seed, over disks
//! that are slow. What directories give out is different whatever the order, and a crash keeps what
//! was acknowledged.

mod place {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/provided/place.rs"));
}

use place::Place;
use plinth::directory::Directory;
use plinth::{Builder, Bytes, Database, EngineKind, Env, Error, Result, tuple};
use plinth_env::simulated::Simulation;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

async fn create(db: &Database, name: String) -> Result<Bytes> {
    db.transact(|tr| {
        let name = name.clone();
        async move {
            let directory = Directory::root().create(&tr, ["app", &name]).await?;
            let subspace = directory.subspace()?;
            tr.set(subspace.pack(&"name"), &name);
            Ok(subspace.prefix().clone())
        }
    })
    .await
}

/// What has been acknowledged so far: names and prefixes.
type Acknowledged = Arc<Mutex<Vec<(String, Bytes)>>>;

fn spawn_creators(env: &Env, db: &Database, acknowledged: &Acknowledged) -> Vec<plinth_env::Task> {
    (0..6)
        .map(|task| {
            let (db, acknowledged) = (db.clone(), acknowledged.clone());
            env.spawn(&format!("creator {task}"), async move {
                for n in 0..8 {
                    let name = format!("{task}-{n}");
                    let prefix = create(&db, name.clone()).await.unwrap();
                    acknowledged.lock().unwrap().push((name, prefix));
                }
            })
        })
        .collect()
}

async fn check(db: &Database, acknowledged: &Acknowledged) {
    let acknowledged = acknowledged.lock().unwrap().clone();
    let prefixes: BTreeSet<_> = acknowledged.iter().map(|(_, prefix)| prefix).collect();
    assert_eq!(prefixes.len(), acknowledged.len(), "a prefix was given twice");
    let tr = db.create_transaction();
    for (name, prefix) in &acknowledged {
        let directory = Directory::root().open(&tr, ["app", name]).await.unwrap();
        assert_eq!(directory.subspace().unwrap().prefix(), prefix);
        let stored = tr.get(directory.subspace().unwrap().pack(&"name")).await.unwrap();
        assert_eq!(stored.as_deref(), Some(name.as_bytes()));
    }
    let listed = Directory::root().list(&tr, "app").await.unwrap();
    assert!(listed.len() >= acknowledged.len());
    for name in &listed {
        let directory = Directory::root().open(&tr, ["app", name]).await.unwrap();
        let number: i64 = tuple::unpack(directory.subspace().unwrap().prefix()).unwrap();
        assert!(number >= 0);
    }
}

/// A transaction reads as long as its builder's window says, to a second or so, and no longer.
#[test]
fn a_window_is_as_long_as_it_was_said() {
    for engine in [EngineKind::Memory, EngineKind::Ssd] {
        for (window, in_time, too_late) in [(2, 1, 4), (60, 50, 70)] {
            let simulation = Simulation::new(window);
            let place = Place::new(&simulation);
            simulation.run_until(async {
                let window = Duration::from_secs(window);
                let db = place.open(Builder::new("/db").engine(engine).window(window)).await;
                for (seconds, expected) in
                    [(in_time, None), (too_late, Some(Error::transaction_too_old()))]
                {
                    set(&db, "old").await;
                    let tr = db.create_transaction();
                    tr.get_read_version().await.unwrap();
                    // Versions go on only with commits.
                    for _ in 0..seconds {
                        place.env().sleep(Duration::from_secs(1)).await;
                        set(&db, "new").await;
                    }
                    let read = tr.get("k").await.map(|value| value.unwrap());
                    let told = format!("{engine:?}, {window:?}, after {seconds} s: {read:?}");
                    assert_eq!(read.as_ref().err(), expected.as_ref(), "{told}");
                    assert!(read.is_err() || read.unwrap() == "old", "{told}");
                }
            });
        }
    }
}

async fn set(db: &Database, value: &str) {
    db.transact(async |tr| {
        tr.set("k", value);
        Ok(())
    })
    .await
    .unwrap();
}

#[test]
fn tasks_that_create_directories_at_the_same_time_get_different_ones() {
    for seed in 0..10 {
        eprintln!("seed {seed}");
        let simulation = Simulation::new(seed);
        let place = Place::new(&simulation);
        let acknowledged = Acknowledged::default();
        simulation.run_until(async {
            let db = place.open(Builder::new("/db")).await;
            for task in spawn_creators(place.env(), &db, &acknowledged) {
                task.await.unwrap();
            }
            assert_eq!(acknowledged.lock().unwrap().len(), 48);
            check(&db, &acknowledged).await;
        });
    }
}

#[test]
fn a_crash_keeps_what_was_acknowledged() {
    let mut interrupted = 0;
    for seed in 0..10 {
        eprintln!("seed {seed}");
        let simulation = Simulation::new(seed);
        let mut place = Place::new(&simulation);
        let acknowledged = Acknowledged::default();
        let half = async {
            let db = place.open(Builder::new("/db")).await;
            let _tasks = spawn_creators(place.env(), &db, &acknowledged);
            while acknowledged.lock().unwrap().len() < 20 {
                place.env().sleep(std::time::Duration::from_micros(50)).await;
            }
        };
        simulation.run_until(half);
        place.crash(&simulation);
        interrupted += usize::from(acknowledged.lock().unwrap().len() < 48);
        simulation.run_until(async {
            let db = place.open(Builder::new("/db").must_exist()).await;
            check(&db, &acknowledged).await;
        });
    }
    assert!(interrupted > 0);
}
