//! What a checkpoint is written from comes back, whatever is committed meanwhile.

mod support;

use plinth_env::simulated::{Random, Simulation};
use plinth_env::{Env, block_on};
use plinth_storage::checkpoint::{self, Keys, Pace, Totals};
use plinth_storage::{MemoryStorage, Reader, Writer};
use plinth_types::{LogPosition, MutationList, MutationType};
use std::path::Path;
use std::time::Duration;
use support::{DIR, IDENTITY, Rows, churn, rows_of};

#[test]
fn a_checkpoint_holds_its_version_though_commits_go_on() {
    for seed in 0..5 {
        let sim = Simulation::new(seed);
        let env = sim.process("node");
        sim.run_until(async move {
            env.files().create_dir_all(DIR).await.unwrap();
            let mut store = MemoryStorage::new(LogPosition::without_log(0));
            let (mut random, mut rows) = (Random::new(seed), Rows::new());
            for version in 1..=20 {
                churn(&mut store, version * 10, &mut random, 1500, &mut rows);
            }
            let expected = rows.clone();
            let writing = {
                let (env, snapshot) = (env.clone(), store.snapshot());
                async move {
                    checkpoint::write(&env, Path::new(DIR), IDENTITY, &snapshot, Pace::default())
                        .await
                }
            };
            let churning = async {
                for version in 21..=60 {
                    churn(&mut store, version * 10, &mut random, 300, &mut rows);
                    store.forget_before(version * 10 - 5, 100_000);
                    env.sleep(Duration::from_micros(200)).await;
                }
            };
            let written = join(&env, writing, churning).await.unwrap();
            assert_eq!((written.at.version, written.totals.rows), (200, expected.len() as u64));
            let mut loaded =
                MemoryStorage::load(&env, Path::new(DIR), IDENTITY).await.unwrap().unwrap();
            assert_eq!(
                (loaded.at.version, loaded.store.newest(), loaded.store.oldest()),
                (200, 200, 200)
            );
            assert!(rows_of(&loaded.store) == expected, "seed {seed}");
            assert_eq!(loaded.store.count(), loaded.totals.rows);
            // The loaded store goes on.
            let mut expected = expected;
            churn(&mut loaded.store, 210, &mut random, 300, &mut expected);
            assert!(rows_of(&loaded.store) == expected, "seed {seed}");
            // The hold has ended: old rows go.
            let newest = store.newest();
            while store.forget_before(newest, 1000) {}
            assert!(store.memory().window < 1000, "{:?}", store.memory());
        });
    }
}

/// Runs `other` as a task beside `main`; ends when both have.
async fn join<T>(env: &Env, main: impl Future<Output = T>, other: impl Future<Output = ()>) -> T {
    let mut main = std::pin::pin!(main);
    let mut other = std::pin::pin!(other);
    let mut other_done = false;
    let mut result = None;
    while result.is_none() || !other_done {
        std::future::poll_fn(|context| {
            if result.is_none()
                && let std::task::Poll::Ready(value) = main.as_mut().poll(context)
            {
                result = Some(value);
            }
            other_done = other_done || other.as_mut().poll(context).is_ready();
            std::task::Poll::Ready(())
        })
        .await;
        env.sleep(Duration::from_micros(10)).await;
    }
    result.unwrap()
}

#[test]
fn the_newest_one_is_loaded_and_the_others_go() {
    let env = Env::real();
    block_on(async {
        let dir = env.files().temporary_dir("checkpoint").await.unwrap();
        assert!(MemoryStorage::load(&env, dir.path(), IDENTITY).await.unwrap().is_none());
        let mut store = MemoryStorage::new(LogPosition::without_log(0));
        let (mut random, mut rows) = (Random::new(1), Rows::new());
        for version in [9, 16, 300] {
            churn(&mut store, version, &mut random, 50, &mut rows);
            let pace = Pace { bytes_per_second: Some(1 << 30), sync_every: 1 };
            checkpoint::write(&env, dir.path(), IDENTITY, &store.snapshot(), pace).await.unwrap();
        }
        let unfinished = dir.path().join("new-checkpoint-0000000000000999");
        env.files().replace(&unfinished, b"half").await.unwrap();
        let half_removed = dir.path().join("old-checkpoint-0000000000000005.data");
        env.files().replace(&half_removed, &vec![1; 9 << 20]).await.unwrap();
        let loaded = MemoryStorage::load(&env, dir.path(), IDENTITY).await.unwrap().unwrap();
        assert_eq!(loaded.at.version, 300);
        assert!(rows_of(&loaded.store) == rows);
        assert!(checkpoint::remove_others(&env, dir.path(), 300).await.unwrap().bytes > 9 << 20);
        assert_eq!(
            env.files().list(dir.path()).await.unwrap(),
            ["checkpoint-000000000000012c.data"]
        );
        let report = checkpoint::verify(&env, dir.path(), None, &Keys::none()).await.unwrap();
        assert_eq!((report.checkpoints, report.rows), (1, rows.len() as u64));
        assert_eq!(report.problems, []);
    });
}

#[test]
fn an_empty_store_and_the_longest_rows_have_checkpoints_too() {
    let env = Env::real();
    block_on(async {
        let dir = env.files().temporary_dir("checkpoint").await.unwrap();
        let mut store = MemoryStorage::new(LogPosition::without_log(5));
        let written =
            checkpoint::write(&env, dir.path(), IDENTITY, &store.snapshot(), Pace::default())
                .await
                .unwrap();
        assert_eq!(written.totals, Totals::default());
        let loaded = MemoryStorage::load(&env, dir.path(), IDENTITY).await.unwrap().unwrap();
        assert_eq!((loaded.at.version, loaded.store.count()), (5, 0));
        let mut list = MutationList::new();
        for letter in b'a'..b'm' {
            list.push(MutationType::Set, &vec![letter; 10_000], &vec![letter; 100_000]);
        }
        list.push(MutationType::Set, &vec![0xff; 30_000], b"");
        list.push(MutationType::Set, b"", b"");
        let prepared = store.prepare(&mut list.iter()).wait().unwrap();
        store.apply(prepared, LogPosition::without_log(6), &mut list.iter(), None);
        store.publish(6);
        checkpoint::write(&env, dir.path(), IDENTITY, &store.snapshot(), Pace::default())
            .await
            .unwrap();
        let loaded = MemoryStorage::load(&env, dir.path(), IDENTITY).await.unwrap().unwrap();
        assert!(rows_of(&loaded.store) == rows_of(&store));
    });
}
