//! What can't be done is said, with what to do, and leaves everything as it was.
//!
//! Databases that make no pair, that are out of reach, that have lost a stream, that another
//! version of this program has written. And who waits for a second site to become whole is told of
//! all that may pass, and waits on.

use crate::world::*;
use plinth_dr::{
    Agent, Control, Freed, Leftover, Sites, StartSettings, Waits, abort, abort_second, set_paused,
    start, status, switch,
};
use plinth_env::simulated::Simulation;
use plinth_env::sync::{First, race};
use plinth_types::Error;
use std::time::Duration;

async fn put(db: &plinth_client::Database, key: &str) {
    let tr = db.create_transaction();
    tr.set(key, "1");
    tr.commit().await.unwrap();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let simulation = Simulation::new(1);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (first, second, third) = (
            open(&machine, "/first").await,
            open(&machine, "/second").await,
            open(&machine, "/third").await,
        );
        let pair =
            |from: &plinth::Database, to: &plinth::Database| Sites::new(client(from), client(to));
        let sites = pair(&first, &second);
        let usual = StartSettings::default();
        let refused = async |sites: &Sites, settings: &StartSettings, code: i32, words: &str| {
            let error = start(sites, settings).await.unwrap_err();
            assert!(error.code() == code && error.to_string().contains(words), "{error}");
        };
        refused(&pair(&first, &first), &usual, 2000, "the same database").await;
        let nothing = Agent::new(sites.clone(), Control::default()).run().await.unwrap_err();
        assert!(nothing.to_string().contains("plinth dr start"), "{nothing}");
        assert_eq!(
            switch(&sites, &Control::default()).await,
            Err(Error::client_invalid_operation())
        );
        assert_eq!(set_paused(&sites, true).await, Err(Error::client_invalid_operation()));
        assert_eq!(
            abort_second(&sites.to, Some(Leftover::Keep)).await,
            Err(Error::client_invalid_operation())
        );
        put(&sites.to, "mine").await;
        refused(
            &sites,
            &usual,
            Error::restore_destination_not_empty().code(),
            "it has the key mine",
        )
        .await;
        assert!(!is_locked(&sites.to).await);
        // Somebody else's lock stays.
        lock_as_another(&sites.to, true).await;
        let clear = StartSettings { clear: true, ..StartSettings::default() };
        refused(&sites, &clear, 1038, "locked by somebody else").await;
        assert_eq!(read_aware(&sites.to, "mine").await.as_deref(), Some(&b"1"[..]));
        lock_as_another(&sites.to, false).await;
        assert!(start(&sites, &clear).await.unwrap());
        assert_eq!(read_aware(&sites.to, "mine").await, None);
        let not_whole = switch(&sites, &Control::default()).await.unwrap_err();
        assert!(not_whole.to_string().contains("isn't whole"), "{not_whole}");
        // Neither a second first, nor a second second, nor a chain.
        refused(&pair(&third, &second), &usual, 2000, "follows the database").await;
        refused(&pair(&first, &third), &usual, 2000, "another tag").await;
        refused(&pair(&second, &third), &usual, 2000, "itself a second one").await;
        refused(&pair(&third, &first), &usual, 2000, "is followed by the database").await;
        assert!(!is_locked(&client(&third)).await && !is_locked(&client(&first)).await);
        let other = StartSettings { tag: "other".into(), ..StartSettings::default() };
        refused(&sites, &other, 2000, "under the tag default").await;
        assert!(start(&pair(&first, &third), &other).await.unwrap());
        for second in [&second, &third] {
            let sites = pair(&first, second);
            run_until(&machine, &sites, async |status| status.whole_at.is_some()).await;
        }
    });
}

/// A database that doesn't answer is named, and nobody waits for ever.
#[test]
fn a_database_out_of_reach_is_told() {
    with_pair(1, async |pair| {
        pair.follow().await;
        let Pair { first, second, .. } = pair;
        let silent = Sites::new(lossy(&first, 1, 0), client(&second));
        let failed = [
            start(&silent, &StartSettings::default()).await.map(drop),
            switch(&silent, &Control::default()).await.map(drop),
            set_paused(&silent, true).await,
            abort(&silent, "default", None).await.map(drop),
            abort_second(&silent.from, Some(Leftover::Keep)).await.map(drop),
        ];
        for error in failed.map(Result::unwrap_err) {
            assert!(
                error.code() == 1004 && error.to_string().contains("can't be reached"),
                "{error}"
            );
        }
        // What the second knows is told.
        let shown = status(Some(&silent.from), &silent.to).await.unwrap().unwrap();
        assert!(
            !shown.is_first_reached && shown.whole_at.is_some() && shown.newest.is_some(),
            "{shown:?}"
        );
        let freed = abort_second(&silent.to, None).await.unwrap();
        assert!(matches!(freed, Freed::Whole(_)), "{freed:?}");
    });
}

/// A stream that was lost is told: in the agent's end, and in the status.
#[test]
fn a_lost_stream_is_told() {
    with_pair(1, async |pair| {
        pair.follow().await;
        let Pair { machine, sites, .. } = pair;
        let stream = sites.from.list_changes().await.unwrap().remove(0);
        sites.from.remove_changes(&stream.name).await.unwrap();
        put(&sites.from, "unseen").await;
        machine.sleep(Duration::from_secs(11)).await;
        let ended = run_for(&machine, &sites, Duration::from_secs(20)).await.unwrap().unwrap_err();
        assert!(ended.to_string().contains("no stream has the id"), "{ended}");
        let shown = status(Some(&sites.from), &sites.to).await.unwrap().unwrap();
        assert!(shown.problem.unwrap().contains("no stream has the id") && shown.is_given_up);
        // What it has is whole, and can be used.
        let freed = abort_second(&sites.to, None).await.unwrap();
        assert!(matches!(freed, Freed::Whole(_)), "{freed:?}");
    });
}

/// A row of another version of this program is refused with words, and nothing is done by guesses.
#[test]
fn rows_of_another_version_are_refused() {
    with_pair(1, async |pair| {
        let Pair { machine, sites, .. } = pair;
        start(&sites, &StartSettings::default()).await.unwrap();
        let tr = sites.to.create_transaction();
        tr.set_option(plinth::client::TransactionOption::AccessSystemKeys).unwrap();
        tr.set_option(plinth::client::TransactionOption::LockAware).unwrap();
        tr.set(b"\xff\x02/plinth/dr/to/head", b"\x02{}");
        tr.commit().await.unwrap();
        let ended = run_for(&machine, &sites, Duration::from_secs(5)).await.unwrap().unwrap_err();
        assert!(ended.to_string().contains("another version of this program"), "{ended}");
        assert_eq!(status(None, &sites.to).await, Err(Error::unsupported_operation()));
    });
}

/// Who waits used to be told that it was over by an agent that got no further for a moment, and by
/// a first that was out of reach.
#[test]
fn who_waits_waits_for_what_may_pass() {
    with_pair(1, async |pair| {
        let Pair { machine, first, sites, .. } = pair;
        start(&sites, &StartSettings::default()).await.unwrap();
        // The agent's first can be read, and gives no changes: it says so, again and again.
        let deaf = Sites::new(lossy(&first, 1, 0), sites.to.clone());
        let told = std::cell::RefCell::new(Vec::new());
        let note = |waits: Waits<'_>| {
            let text = match waits {
                Waits::Status(status) => format!("{:?} {:?}", status.phase, status.problem),
                Waits::Answer(error) => error.to_string(),
            };
            if told.borrow().last() != Some(&text) {
                told.borrow_mut().push(text);
            }
        };
        let control = Control::default();
        let waiting = plinth_dr::wait(Some(&sites.from), &sites.to, &control, note);
        let work = async {
            machine.sleep(Duration::from_secs(1)).await;
            drop(run_for(&machine, &deaf, Duration::from_secs(30)).await);
            let tr = sites.to.create_transaction();
            tr.set_option(plinth::client::TransactionOption::AccessSystemKeys).unwrap();
            tr.set_option(plinth::client::TransactionOption::LockAware).unwrap();
            let passing = [&[9; 16][..], &[0; 24], b"\0the network is slow"].concat();
            tr.set(b"\xff\x02/plinth/dr/to/beat", passing);
            tr.commit().await.unwrap();
            machine.sleep(Duration::from_secs(20)).await;
            run_for(&machine, &sites, Duration::from_secs(60)).await
        };
        let found = match race(waiting, work).await {
            First::Left(found) => found.unwrap(),
            First::Right(ended) => panic!("{ended:?}"),
        };
        assert!(found.whole_at.is_some(), "{found:?}");
        assert!(told.borrow().iter().any(|text| text.contains("the network is slow")), "{told:?}");
        // A second that can't be read for a while is waited for, too; one that follows nobody is
        // not.
        let silent = lossy(&first, 1, 0);
        let waiting = plinth_dr::wait(None, &silent, &control, note);
        assert!(matches!(
            race(waiting, machine.sleep(Duration::from_secs(30))).await,
            First::Right(())
        ));
        assert!(
            told.borrow().last().is_some_and(|text| text.contains("can't be reached")),
            "{told:?}"
        );
        let nobody = plinth_dr::wait(None, &sites.from, &control, |_| {}).await.unwrap_err();
        assert!(nobody.to_string().contains("plinth dr start"), "{nobody}");
    });
}
