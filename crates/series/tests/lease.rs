//! What a lease promises, whatever database it lies in: nobody steals from a holder that renews it,
//! a holder that is gone is followed within five seconds, one that gives up at once; and who was
//! deposed neither commits nor answers, although he knows nothing of it yet.

use plinth::{Builder, Database};
use plinth_env::Env;
use plinth_env::simulated::Simulation;
use plinth_series::{Candidate, Claim, Error, Look, SeriesLimits, SeriesStore, Settings};
use std::time::Duration;

const NAME: &str = "load host=a";

/// A database, and what holds in it.
fn run<F: Future<Output = ()>>(test: impl FnOnce(Env, Database) -> F) {
    let sim = Simulation::new(7);
    let env = sim.process("machine");
    let database = sim.run_until(Builder::new("/db").env(env.clone()).open_async());
    let database = database.unwrap().into_database();
    sim.run_until(test(env, database));
}

fn candidate(database: &Database, name: &str) -> Candidate {
    Candidate::new(database, Settings::default(), Claim::new(name, format!("at {name}")))
}

/// The store, once the candidate has it; how long it took.
async fn until_ours(env: &Env, candidate: &mut Candidate) -> (SeriesStore, Duration) {
    let since = env.now();
    loop {
        if let Look::Ours(store) = candidate.look().await.unwrap() {
            return (store, env.now().saturating_sub(since));
        }
        candidate.wait().await;
    }
}

async fn count(store: &SeriesStore) -> u64 {
    let series = store.existing(NAME).await.unwrap().expect("it was written");
    series.aggregate(..).await.unwrap().map_or(0, |summary| summary.count)
}

#[test]
fn nobody_steals_and_whoever_is_gone_or_gives_up_is_followed() {
    run(|env, database| async move {
        let (mut one, mut other) = (candidate(&database, "one"), candidate(&database, "other"));
        let (store, _) = until_ours(&env, &mut one).await;
        store.series(NAME).await.unwrap().append(1, 1.0).unwrap();
        store.sync().await.unwrap();
        let until = env.now() + Duration::from_secs(20);
        while env.now() < until {
            match other.look().await.unwrap() {
                Look::Held(holder) => {
                    assert_eq!((&*holder.name, &*holder.address), ("one", "at one"))
                }
                Look::Ours(_) | Look::Free => panic!("it was stolen"),
            }
            other.wait().await;
        }
        // It is gone without a word.
        drop(store);
        let (store, took) = until_ours(&env, &mut other).await;
        assert!(took > Duration::from_secs(1) && took < Duration::from_secs(5), "{took:?}");
        assert_eq!(count(&store).await, 1);
        assert!(matches!(one.look().await.unwrap(), Look::Held(_)));
        // It says goodbye, while the other one waits.
        store.give_up().await.unwrap();
        assert!(matches!(store.failure(), Some(Error::NotOwner)));
        let (store, took) = until_ours(&env, &mut one).await;
        assert!(took < Duration::from_secs(1), "{took:?}");
        // A former life is no rival.
        let (again, took) = until_ours(&env, &mut candidate(&database, "one")).await;
        assert!(took < Duration::from_secs(1), "{took:?}");
        assert!(matches!(store.sync().await, Ok(()) | Err(Error::NotOwner)));
        assert_eq!(count(&again).await, 1);
    });
}

#[test]
fn who_was_deposed_neither_commits_nor_answers_before_he_knows() {
    run(|env, database| async move {
        let (old, _) = until_ours(&env, &mut candidate(&database, "old")).await;
        let series = old.series(NAME).await.unwrap();
        series.append(1, 1.0).unwrap();
        old.sync().await.unwrap();
        // Between two beats of his lease.
        let new = SeriesStore::open(&database).await.unwrap();
        new.series(NAME).await.unwrap().append(2, 2.0).unwrap();
        new.sync().await.unwrap();
        assert!(old.failure().is_none(), "he knows nothing of it");
        assert!(matches!(series.aggregate(..).await, Err(Error::NotOwner)));

        let (old, _) = until_ours(&env, &mut candidate(&database, "old")).await;
        let series = old.series(NAME).await.unwrap();
        let new = SeriesStore::open(&database).await.unwrap();
        new.series(NAME).await.unwrap().append(3, 3.0).unwrap();
        new.sync().await.unwrap();
        series.append(4, 4.0).unwrap();
        assert!(old.failure().is_none(), "he knows nothing of it");
        assert!(matches!(old.sync().await, Err(Error::NotOwner)));
        assert_eq!(
            count(&SeriesStore::view(&database, Settings::default()).await.unwrap()).await,
            3
        );
    });
}

#[test]
fn what_is_posted_is_there_whoever_owns_the_series_and_names_are_counted() {
    run(|env, database| async move {
        let limits = SeriesLimits { series: 2, ..SeriesLimits::default() };
        let poster = SeriesStore::post(&database, Settings { limits, ..Settings::default() });
        let poster = poster.await.unwrap();
        let series = poster.series(NAME).await.unwrap();
        for time in 0..5000 {
            series.append(time, time).unwrap();
        }
        series.append(7, 70).unwrap();
        poster.sync().await.unwrap();
        poster.series("load host=b").await.unwrap();
        assert!(matches!(poster.series("load host=c").await, Err(Error::TooMany { .. })));
        assert!(
            matches!(series.aggregate(..).await, Err(Error::NotOwner)),
            "nothing can be read there"
        );
        // Nobody owned them so far.
        let (owner, _) = until_ours(&env, &mut candidate(&database, "owner")).await;
        assert_eq!(count(&owner).await, 5000);
        series.append(5000, 1.5).unwrap();
        poster.sync().await.unwrap();
        assert_eq!(count(&owner).await, 5001, "whoever was told so may ask for it");
        let sum = owner.existing(NAME).await.unwrap().unwrap().aggregate(7..=7).await.unwrap();
        assert_eq!(sum.map(|sum| sum.sum), Some(70.0), "the last one of a time counts");
        owner.check_invariants().await.unwrap();
    });
}

/// A poster that deleted used to take the owner's mail out of the inbox, into memory that nobody
/// reads.
#[test]
fn who_posts_takes_nothing_away_from_the_owner() {
    run(|env, database| async move {
        let settings = Settings { commit_every: None, ..Settings::default() };
        let mut candidate =
            Candidate::new(&database, settings.clone(), Claim::new("owner", "at owner"));
        let (owner, _) = until_ours(&env, &mut candidate).await;
        let (one, other) = (
            SeriesStore::post(&database, settings.clone()).await.unwrap(),
            SeriesStore::post(&database, settings).await.unwrap(),
        );
        let series = one.series(NAME).await.unwrap();
        for time in 0..10 {
            series.append(time, time).unwrap();
        }
        one.sync().await.unwrap();
        let deleted = other.series(NAME).await.unwrap();
        assert!(matches!(deleted.delete_range(..5).await, Err(Error::NotOwner)));
        assert!(matches!(other.delete(&deleted).await, Err(Error::NotOwner)));
        assert_eq!(count(&owner).await, 10);
    });
}
