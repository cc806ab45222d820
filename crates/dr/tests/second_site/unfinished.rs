//! What a restore is bringing into a first site is never taken for a whole: neither by a second
//! that takes its place, nor by one that is made free.
//!
//! A restore is rows here: its record, which says that it is unfinished, and what it brings in,
//! written by transactions that are aware of locks. Both sites used to look at locks of databases
//! alone.

use crate::world::*;
use plinth::client::TransactionOption;
use plinth_client::Filling;
use plinth_dr::{
    Agent, Control, Freed, Leftover, Phase, Sites, StartSettings, Watch, abort, abort_second,
    start, status, switch,
};
use plinth_env::Env;
use plinth_env::sync::{First, race};
use plinth_types::{Error, Version, system};
use std::time::Duration;

/// Writes as a restore does. Gives the version.
pub async fn restore(
    db: &plinth_client::Database,
    work: impl Fn(&plinth_client::Transaction),
) -> Version {
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::AccessSystemKeys).unwrap();
    tr.set_option(TransactionOption::LockAware).unwrap();
    work(&tr);
    tr.commit().await.unwrap();
    tr.committed_version().unwrap()
}

pub async fn begin(db: &plinth_client::Database) -> Version {
    restore(db, |tr| {
        tr.set(system::RESTORE_HEAD, "a restore");
        tr.set("restored/1", "half");
    })
    .await
}

pub async fn finish(db: &plinth_client::Database) -> Version {
    restore(db, |tr| {
        tr.set("restored/2", "the other half");
        tr.clear_range(b"\xff\x02/plinth/restore/", b"\xff\x02/plinth/restore0");
    })
    .await
}

pub fn refused<T: std::fmt::Debug>(result: plinth_types::Result<T>, words: &str) {
    let error = result.unwrap_err();
    assert!(error == Error::database_locked() && error.to_string().contains(words), "{error}");
}

/// Everything is as it was: the second follows, and is locked.
async fn follows_on(sites: &Sites) {
    let shown = status(Some(&sites.from), &sites.to).await.unwrap().unwrap();
    assert!(!shown.is_reversed && shown.phase == Phase::Following, "{shown:?}");
    assert!(is_locked(&sites.to).await && !is_locked(&sites.from).await);
    assert_eq!(sites.from.list_changes().await.unwrap().len(), 1);
    assert_eq!(sites.to.list_changes().await.unwrap(), []);
}

/// The second says that it has a part, and whoever waits for a whole waits for the end of that:
/// they said that it was whole, and what was to be done then was refused.
async fn waits_for_the_end(env: &Env, sites: &Sites) {
    let shown = status(Some(&sites.from), &sites.to).await.unwrap().unwrap();
    assert!(shown.has_half && shown.whole_at.is_none(), "{shown:?}");
    let watch = Watch::start(env, &sites.to);
    let (layers, metrics) = (watch.layers(), watch.metrics());
    let control = Control::default();
    let waited = plinth_dr::wait(Some(&sites.from), &sites.to, &control, |_| {});
    let waited = race(waited, env.sleep(Duration::from_secs(2))).await;
    assert!(matches!(waited, First::Right(())), "{waited:?}");
    let (layers, metrics) = (layers(), metrics());
    assert!(layers.contains("\"running_backup_is_restorable\":false"), "{layers}");
    assert!(metrics.contains("plinth_dr_second_whole{tag=\"default\"} 0\n"), "{metrics}");
    watch.stop().await.unwrap();
}

/// The restore went on on the first, which was a second by then, and the two were different for
/// ever; or a second became free with a half of it.
#[test]
fn neither_changes_sides_nor_ends_while_something_is_restored_into_the_first() {
    with_pair(11, async |pair| {
        pair.follow().await;
        let Pair { machine, sites, .. } = pair;
        let begun = begin(&sites.from).await;
        // Of what the second knows nothing yet.
        refused(abort(&sites, "default", None).await, "the first site has a part");
        follows_on(&sites).await;
        refused(switch(&sites, &Control::default()).await, "plinth restore wait");
        follows_on(&sites).await;
        // The second has come to know of it.
        let agent = Agent::new(sites.clone(), Control::default());
        let work = async {
            while status(None, &sites.to).await.unwrap().unwrap().position < Some(begun) {
                machine.sleep(Duration::from_millis(10)).await;
            }
            waits_for_the_end(&machine, &sites).await;
            refused(switch(&sites, &Control::default()).await, "plinth dr wait");
            refused(abort(&sites, "default", None).await, "plinth dr wait");
            finish(&sites.from).await
        };
        let finished = match race(agent.run(), work).await {
            First::Left(ended) => panic!("{ended:?}"),
            First::Right(finished) => finished,
        };
        // It is done there, and the second has yet to get the rest.
        run_until(&machine, &sites, async |status| status.whole_at >= Some(finished)).await;
        follows_on(&sites).await;
        assert_eq!(switch(&sites, &Control::default()).await, Ok(true));
        assert_eq!(rows_of(&sites.to).await, rows_of(&sites.from).await);
        assert_eq!(
            read_aware(&sites.to, "restored/2").await.as_deref(),
            Some(&b"the other half"[..])
        );
        let freed = abort(&sites, "default", None).await;
        assert!(matches!(freed, Ok(Freed::Whole(_))), "{freed:?}");
    });
}

/// Nothing is left of a relation, on neither side.
pub async fn is_ended(sites: &Sites) {
    assert_eq!(status(Some(&sites.from), &sites.to).await.unwrap(), None);
    for db in [&sites.from, &sites.to] {
        assert!(!is_locked(db).await);
        assert_eq!(db.list_changes().await.unwrap(), []);
    }
    let again = abort(sites, "default", None).await;
    assert_eq!(again, Err(Error::client_invalid_operation()));
}

/// What is told of a part that was kept or cleared.
pub fn told_of(leftover: Leftover) -> Freed {
    if leftover == Leftover::Keep { Freed::Part } else { Freed::Empty }
}

/// Whoever changes sides is killed when the first is locked, while the second has yet to get the
/// end of a restore: an abort left the first locked, under an id that nobody knew any more.
#[test]
fn an_abort_in_the_middle_of_a_change_of_sides_leaves_no_lock_that_nobody_knows_of() {
    for leftover in [None, Some(Leftover::Keep), Some(Leftover::Clear)] {
        with_pair(15, async |pair| {
            pair.follow().await;
            let Pair { machine, first, second, sites } = pair;
            let ((from, at_first), (to, at_second)) = (held(&first), held(&second));
            at_first.hold(system::DATABASE_LOCKED);
            let slow = Sites::new(from, to);
            let locked = async {
                at_first.until(&machine, 1).await;
                // It has followed the beginning of a restore, and has yet to follow its end.
                restore(&sites.to, |tr| {
                    tr.set(system::SECOND_SITE_HALF, "a restore");
                    tr.set("restored/1", "half");
                })
                .await;
                restore(&sites.from, |tr| tr.set("restored/1", "half")).await;
                finish(&sites.from).await;
                at_second.hold(system::SECOND_SITE_PLACE);
                at_first.let_go();
                while !is_locked(&sites.from).await {
                    machine.sleep(Duration::from_micros(50)).await;
                }
            };
            let control = Control::default();
            assert_eq!(race(switch(&slow, &control), locked).await, First::Right(()));
            refused(abort(&sites, "default", None).await, "plinth dr switch");
            if let Some(leftover) = leftover {
                assert_eq!(abort(&sites, "default", Some(leftover)).await, Ok(told_of(leftover)));
                is_ended(&sites).await;
                let kept = read_aware(&sites.to, "restored/1").await;
                return assert_eq!(kept.is_some(), leftover == Leftover::Keep);
            }
            // It can still be gone on with.
            let shown = status(Some(&sites.from), &sites.to).await.unwrap().unwrap();
            assert_eq!(shown.phase, Phase::Switching);
            assert!(is_locked(&sites.from).await && is_locked(&sites.to).await);
            assert_eq!(switch(&sites, &Control::default()).await, Ok(true));
            assert!(is_locked(&sites.from).await && !is_locked(&sites.to).await);
            assert_eq!(rows_of(&sites.to).await, rows_of(&sites.from).await);
        });
    }
}

/// What a large restore writes is more than the first keeps for the second: the stream goes in the
/// middle, and the rest never comes. Only without the first could that be ended.
#[test]
fn a_second_whose_stream_was_lost_in_the_middle_of_a_restore_can_be_ended() {
    for leftover in [Leftover::Keep, Leftover::Clear] {
        with_pair(16, async |pair| {
            pair.follow().await;
            let Pair { machine, sites, .. } = pair;
            let begun = begin(&sites.from).await;
            run_until(&machine, &sites, async |status| status.position >= Some(begun)).await;
            let stream = sites.from.list_changes().await.unwrap().remove(0);
            sites.from.remove_changes(stream.name).await.unwrap();
            finish(&sites.from).await;
            machine.sleep(Duration::from_secs(11)).await;
            let lost = Agent::new(sites.clone(), Control::default()).run().await;
            assert_eq!(lost, Err(Error::client_invalid_operation()));
            let why = abort(&sites, "default", None).await;
            refused(why.clone(), "--keep-partial or --clear");
            refused(why, "plinth restore wait");
            assert_eq!(abort(&sites, "default", Some(leftover)).await, Ok(told_of(leftover)));
            is_ended(&sites).await;
            let kept = read_aware(&sites.to, "restored/1").await;
            assert_eq!(kept.is_some(), leftover == Leftover::Keep);
        });
    }
}

#[test]
fn a_second_without_its_first_says_that_it_has_half_of_a_restore() {
    for leftover in [Leftover::Keep, Leftover::Clear] {
        with_pair(12, async |pair| {
            pair.follow().await;
            let Pair { machine, sites, .. } = pair;
            let begun = begin(&sites.from).await;
            run_until(&machine, &sites, async |status| status.position >= Some(begun)).await;
            let error = abort_second(&sites.to, None).await.unwrap_err();
            assert!(error.to_string().contains("was being restored"), "{error}");
            assert!(is_locked(&sites.to).await);
            assert_eq!(abort_second(&sites.to, Some(leftover)).await, Ok(told_of(leftover)));
            assert!(!is_locked(&sites.to).await);
            let is_there = read_aware(&sites.to, "restored/1").await.is_some();
            assert_eq!(is_there, leftover == Leftover::Keep);
            // Nothing is left that says so of another one.
            let clear = StartSettings { clear: true, ..StartSettings::default() };
            finish(&sites.from).await;
            abort(&sites, "default", None).await.unwrap();
            start(&sites, &clear).await.unwrap();
        });
    }
}

/// A restore that is begun between the start and the first copy, when there is no stream yet to
/// tell of it.
#[test]
fn a_restore_that_was_there_before_the_stream_is_known_to_the_second() {
    with_pair(13, async |pair| {
        let Pair { machine, sites, .. } = pair;
        start(&sites, &StartSettings::default()).await.unwrap();
        begin(&sites.from).await;
        run_until(&machine, &sites, async |status| status.phase == Phase::Following).await;
        let error = abort_second(&sites.to, None).await.unwrap_err();
        assert!(error.to_string().contains("was being restored"), "{error}");
        let finished = finish(&sites.from).await;
        machine.sleep(Duration::from_secs(11)).await;
        run_until(&machine, &sites, async |status| status.whole_at >= Some(finished)).await;
        let freed = abort_second(&sites.to, None).await.unwrap();
        assert!(matches!(freed, Freed::Whole(_)), "{freed:?}");
    });
}

/// The place of a second site moves all the time: whoever looked whether it is being filled
/// conflicted with that, and never got to say that it is.
#[test]
fn who_looks_conflicts_with_whoever_begins_and_not_with_what_moves_on() {
    with_pair(17, async |pair| {
        pair.follow().await;
        let Pair { sites, .. } = pair;
        let to = &sites.to;
        for (key, conflicts) in
            [(system::SECOND_SITE_PLACE, false), (system::SECOND_SITE_HEAD, true)]
        {
            let tr = to.create_transaction();
            tr.set_option(TransactionOption::AccessSystemKeys).unwrap();
            tr.set_option(TransactionOption::LockAware).unwrap();
            assert_eq!(Filling::find(&tr).await, Ok(None));
            let value = tr.snapshot().get(key).await.unwrap().unwrap();
            restore(to, |other| other.set(key, &value)).await;
            tr.set("key", "value");
            let expected = if conflicts { Err(Error::not_committed()) } else { Ok(()) };
            assert_eq!(tr.commit().await, expected, "{key:?}");
        }
    });
}

#[test]
fn a_second_site_is_begun_on_neither_side_of_what_is_unfinished() {
    with_pair(14, async |pair| {
        let Pair { sites, .. } = pair;
        let clear = StartSettings { clear: true, ..StartSettings::default() };
        for (side, words) in
            [(&sites.from, "the first site has a part"), (&sites.to, "the second site has a part")]
        {
            begin(side).await;
            refused(start(&sites, &clear).await, words);
            assert_eq!(read_aware(side, "restored/1").await.as_deref(), Some(&b"half"[..]));
            assert_eq!(status(Some(&sites.from), &sites.to).await.unwrap(), None);
            finish(side).await;
        }
        assert_eq!(start(&sites, &clear).await, Ok(true));
    });
}
