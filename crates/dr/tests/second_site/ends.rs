//! An end that somebody has begun comes to what was noted, whoever goes on with it; and one that is
//! refused leaves everything as it was, what an agent has told among it.
//!
//! Whoever begins it is killed at each of its steps: what it had sent waits on its way meanwhile,
//! and arrives when all is over.

use crate::unfinished::{begin, finish, is_ended, refused, restore, told_of};
use crate::world::*;
use plinth_dr::{
    Agent, Control, Ending, Freed, Leftover, Phase, Sites, StartSettings, abort, abort_second,
    start, status, switch,
};
use plinth_env::sync::{First, race};
use plinth_types::{Error, system};
use std::time::Duration;

/// What the second holds when it is ended.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Holds {
    /// What the first held at one version.
    Whole,
    /// A part of what is being restored into the first.
    Half,
    /// A part of the first copy.
    Part,
    /// Nothing: nobody has begun yet.
    Nothing,
}

async fn fill(pair: &Pair) {
    let tr = pair.sites.from.create_transaction();
    (0..1000).for_each(|number| tr.set(format!("key{number:04}"), [7; 40]));
    tr.commit().await.unwrap();
}

async fn prepare(pair: &Pair, holds: Holds) {
    fill(pair).await;
    let Pair { machine, first, sites, .. } = pair;
    match holds {
        Holds::Whole => pair.follow().await,
        Holds::Half => {
            pair.follow().await;
            let begun = begin(&sites.from).await;
            machine.sleep(Duration::from_secs(11)).await;
            run_until(machine, sites, async |status| status.position >= Some(begun)).await;
        }
        Holds::Part => {
            start(sites, &StartSettings::default()).await.unwrap();
            let small = Sites::new(lossy(first, 1, usize::MAX), sites.to.clone());
            run_until(machine, &small, async |status| status.copied.rows > 0).await;
            let shown = status(None, &sites.to).await.unwrap().unwrap();
            assert_eq!(shown.phase, Phase::Copying);
        }
        Holds::Nothing => drop(start(sites, &StartSettings::default()).await.unwrap()),
    }
}

/// Where whoever ends it is killed: what it has sent to the first, or to the second, stays on its
/// way.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    AtFirst,
    AtSecond,
}

/// Begins an end, and stands still at a step of it. Gives what is on its way.
async fn begin_to_end(pair: &Pair, step: Step, said: Option<Leftover>) -> Held {
    let Pair { machine, first, second, .. } = pair;
    let ((from, at_first), (to, at_second)) = (held(first), held(second));
    let held = match step {
        Step::AtFirst => at_first,
        Step::AtSecond => at_second,
    };
    held.hold(match step {
        Step::AtFirst => b"\xff\x02/plinth/dr/from/default",
        Step::AtSecond => b"\xff\x02/plinth/dr/to/",
    });
    let slow = Sites::new(from, to);
    let ended = race(abort(&slow, "default", said), held.until(machine, 1)).await;
    assert_eq!(ended, First::Right(()));
    let shown = status(Some(&pair.sites.from), &pair.sites.to).await.unwrap().unwrap();
    assert_eq!(shown.phase, Phase::Aborting);
    held
}

/// What was noted was looked at by no test: rows that were to be kept could be cleared, by an agent
/// as by the same command without words. And a second that nobody had begun with could be ended by
/// no agent once the first knew nothing of it any more.
#[test]
fn an_end_that_was_begun_comes_to_what_was_noted() {
    let (keep, clear) = (Some(Leftover::Keep), Some(Leftover::Clear));
    for (holds, said) in [
        (Holds::Whole, None),
        (Holds::Whole, clear),
        (Holds::Half, keep),
        (Holds::Half, clear),
        (Holds::Part, keep),
        (Holds::Part, clear),
        (Holds::Part, None),
        (Holds::Nothing, None),
    ] {
        for (step, by_agent) in [
            (Step::AtFirst, true),
            (Step::AtFirst, false),
            (Step::AtSecond, true),
            (Step::AtSecond, false),
        ] {
            with_pair(21, async |pair| {
                prepare(&pair, holds).await;
                let before = rows_of(&pair.sites.to).await;
                assert_eq!(before.is_empty(), holds == Holds::Nothing);
                let held = begin_to_end(&pair, step, said).await;
                let Pair { machine, sites, .. } = pair;
                if by_agent {
                    let ended = run_for(&machine, &sites, Duration::from_secs(60)).await;
                    assert_eq!(ended, Some(Ok(Ending::Ended)), "{holds:?} {said:?} {step:?}");
                } else {
                    let freed = abort(&sites, "default", None).await.unwrap();
                    match holds {
                        Holds::Whole => assert!(matches!(freed, Freed::Whole(_)), "{freed:?}"),
                        _ => assert_eq!(freed, told_of(said.unwrap_or(Leftover::Clear))),
                    }
                }
                held.let_go();
                machine.sleep(Duration::from_secs(1)).await;
                is_ended(&sites).await;
                let is_kept = holds == Holds::Whole || said == keep;
                let expected = if is_kept { before } else { Model::new() };
                let rows = rows_of(&sites.to).await;
                assert!(rows == expected, "{holds:?} {said:?} {step:?}: {} rows", rows.len());
            });
        }
    }
}

/// The note of an older program doesn't say what becomes of a part, since it looked first: an agent
/// took the first's half away, and then couldn't end the second's. It follows until that is whole.
#[test]
fn an_end_that_an_older_program_has_noted_waits_for_the_rest_of_a_half() {
    with_pair(22, async |pair| {
        prepare(&pair, Holds::Half).await;
        let Pair { machine, sites, .. } = pair;
        machine.sleep(Duration::from_secs(11)).await;
        let head = read_aware(&sites.to, system::SECOND_SITE_HEAD).await.unwrap();
        let noted = std::str::from_utf8(&head).unwrap().replace("\"following\"", "\"aborting\"");
        restore(&sites.to, |tr| tr.set(system::SECOND_SITE_HEAD, noted.as_bytes())).await;
        let agent = Agent::new(sites.clone(), Control::default());
        let work = async {
            machine.sleep(Duration::from_secs(3)).await;
            let shown = status(Some(&sites.from), &sites.to).await.unwrap().unwrap();
            assert!(shown.phase == Phase::Aborting && shown.problem.is_none(), "{shown:?}");
            assert!(is_locked(&sites.to).await);
            assert_eq!(sites.from.list_changes().await.unwrap().len(), 1);
            finish(&sites.from).await;
            machine.sleep(Duration::from_secs(60)).await;
        };
        assert_eq!(race(agent.run(), work).await, First::Left(Ok(Ending::Ended)));
        is_ended(&sites).await;
        assert!(rows_of(&sites.to).await == rows_of(&sites.from).await);
    });
}

/// An agent that no patience helps has ended for good. Gives why.
async fn give_up(pair: &Pair) -> String {
    let Pair { machine, sites, .. } = pair;
    let stream = sites.from.list_changes().await.unwrap().remove(0);
    sites.from.remove_changes(stream.name).await.unwrap();
    machine.sleep(Duration::from_secs(11)).await;
    let lost = Agent::new(sites.clone(), Control::default()).run().await;
    assert_eq!(lost, Err(Error::client_invalid_operation()));
    let shown = status(None, &sites.to).await.unwrap().unwrap();
    assert!(shown.is_given_up, "{shown:?}");
    shown.problem.unwrap()
}

/// Whoever asks, or waits, is still told why it has ended.
async fn says_why(pair: &Pair, why: &str) {
    let Pair { machine, sites, .. } = pair;
    let shown = status(None, &sites.to).await.unwrap().unwrap();
    assert!(shown.is_given_up && shown.problem.as_deref() == Some(why), "{shown:?}");
    let control = Control::default();
    let waited = plinth_dr::wait(Some(&sites.from), &sites.to, &control, |_| {});
    match race(waited, machine.sleep(Duration::from_secs(30))).await {
        First::Left(Err(error)) => assert!(error.to_string().contains(why), "{error}"),
        other => panic!("{other:?}"),
    }
}

/// Who was refused had taken over: `status` said nothing any more of why the agent had ended, and
/// `dr wait`, which the refusal recommends, waited for ever.
#[test]
fn who_is_refused_leaves_what_an_agent_has_told() {
    with_pair(23, async |pair| {
        prepare(&pair, Holds::Half).await;
        let why = give_up(&pair).await;
        let sites = &pair.sites;
        refused(abort(sites, "default", None).await, "--keep-partial or --clear");
        says_why(&pair, &why).await;
        refused(switch(sites, &Control::default()).await, "isn't whole");
        says_why(&pair, &why).await;
        let alone = abort_second(&sites.to, None).await.unwrap_err();
        assert!(alone.to_string().contains("was being restored"), "{alone}");
        says_why(&pair, &why).await;
    });
}

/// The same where that comes up between the look and the run.
#[test]
fn who_is_refused_late_gives_back_what_an_agent_has_told() {
    for by_switch in [false, true] {
        with_pair(24, async |pair| {
            prepare(&pair, Holds::Whole).await;
            let why = give_up(&pair).await;
            let (to, at_second) = held(&pair.second);
            at_second.hold(b"\xff\x02/plinth/dr/to/agent");
            let slow = Sites::new(pair.sites.from.clone(), to);
            let control = Control::default();
            let asked = async {
                match by_switch {
                    false => refused(abort(&slow, "default", None).await, "--keep-partial"),
                    true => refused(switch(&slow, &control).await, "isn't whole"),
                }
            };
            let between = async {
                at_second.until(&pair.machine, 1).await;
                restore(&pair.sites.to, |tr| tr.set(system::SECOND_SITE_HALF, "a restore")).await;
                at_second.let_go();
                pair.machine.sleep(Duration::from_secs(60)).await;
            };
            assert_eq!(race(asked, between).await, First::Left(()));
            says_why(&pair, &why).await;
        });
    }
}

/// A change of sides that found out about the stream by itself told nobody but its caller.
#[test]
fn a_change_of_sides_that_comes_to_nothing_is_told() {
    with_pair(25, async |pair| {
        prepare(&pair, Holds::Whole).await;
        let sites = &pair.sites;
        let stream = sites.from.list_changes().await.unwrap().remove(0);
        sites.from.remove_changes(stream.name).await.unwrap();
        let lost = switch(sites, &Control::default()).await.unwrap_err();
        assert_eq!(lost, Error::client_invalid_operation());
        says_why(&pair, &lost.to_string()).await;
    });
}
