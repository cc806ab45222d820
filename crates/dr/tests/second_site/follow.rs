//! Following: the first copy under writes, kills, lost answers; and the end of it.
//!
//! A history of the first says what it was at each version. Whenever an agent was killed, the
//! second is compared with it, at the version that it says. Mistakes that are planted show that the
//! comparison would notice.

use crate::world::*;
use plinth_dr::{
    Freed, Leftover, Phase, Sites, StartSettings, abort, abort_second, set_paused, start, status,
};
use plinth_env::sync::{First, race};
use plinth_env::{Env, block_on};
use plinth_types::changes::{STREAM_END, STREAM_PREFIX};
use plinth_types::system::SERIES_PREFIX;
use plinth_types::{Error, Result};
use std::time::Duration;

/// What a round was like.
#[derive(Default)]
struct Seen {
    checked_whole: usize,
    killed_copying: usize,
}

/// Follows a database under writes, kills agents at random, and compares each time with what the
/// first was. Gives the difference.
fn follow_with_kills(seed: u64, kills: usize) -> Result<Seen, String> {
    with_pair(seed, async |pair| {
        let mut random = Random::new(seed);
        let Pair { machine, first, second, .. } = pair;
        let mut history = History::default();
        for _ in 0..300 {
            history.write(&client(&first), &mut random).await;
        }
        // The first in pieces, the second with lost answers.
        let sites = Sites::new(lossy(&first, seed, usize::MAX), lossy(&second, seed + 1, 9));
        start(&sites, &StartSettings::default()).await.unwrap();
        let writer = Writer::start(&machine, &client(&first), history, seed + 2);
        let mut seen = Seen::default();
        for _ in 0..kills {
            let time = Duration::from_micros(random.index(1_000_000) as u64);
            writer.rest(&machine).await;
            assert!(run_for(&machine, &sites, time).await.is_none());
            assert!(is_locked(&sites.to).await);
            // What was sent late arrives.
            machine.sleep(Duration::from_millis(random.index(2) as u64 * 400)).await;
            let before = status(Some(&sites.from), &sites.to).await.unwrap().unwrap();
            let Some(version) = before.whole_at else {
                seen.killed_copying += usize::from(before.phase == Phase::Copying);
                continue;
            };
            let rows = rows_of(&sites.to).await;
            if status(Some(&sites.from), &sites.to).await.unwrap().unwrap().position
                != before.position
            {
                continue;
            }
            if rows != writer.model_at(&machine, version).await {
                return Err(format!("seed {seed}: not what the first was at {version}"));
            }
            seen.checked_whole += 1;
        }
        let history = writer.stop().await;
        run_until(&machine, &sites, async |status| status.whole_at >= Some(history.newest())).await;
        if rows_of(&sites.to).await != history.at(history.newest()) {
            return Err(format!("seed {seed}: the end is another one"));
        }
        Ok(seen)
    })
}

#[test]
fn the_second_is_what_the_first_was_at_the_version_it_says() {
    let mut seen = Seen::default();
    for seed in 0..6 {
        let round = follow_with_kills(seed, 7).unwrap();

        seen.checked_whole += round.checked_whole;
        seen.killed_copying += round.killed_copying;
    }
    println!("{} compared, {} killed while copying", seen.checked_whole, seen.killed_copying);
    assert!(seen.checked_whole > 8 && seen.killed_copying > 5);
}

#[test]
fn mistakes_in_following_are_noticed() {
    for bug in [
        "dr: the position comes behind what leads to it",
        "dr: clears are applied last",
        "dr: what follows a round begins late",
    ] {
        is_noticed(bug, 100, |seed| follow_with_kills(seed, 5));
    }
}

/// Both free, at any moment: a second site that was whole is a state that the first was in.
#[test]
fn an_end_at_any_moment_leaves_a_state_of_the_first() {
    let (mut alone, mut empty) = (0, 0);
    for seed in 0..8 {
        with_pair(seed, async |pair| {
            let mut random = Random::new(seed);
            let Pair { machine, first, second, .. } = pair;
            let mut history = History::default();
            for _ in 0..40 {
                history.write(&client(&first), &mut random).await;
            }
            let sites = Sites::new(lossy(&first, seed, usize::MAX), lossy(&second, seed + 1, 9));
            start(&sites, &StartSettings::default()).await.unwrap();
            let writer = Writer::start(&machine, &client(&first), history, seed + 2);
            let time = Duration::from_micros(random.index(1_000_000) as u64);
            assert!(run_for(&machine, &sites, time).await.is_none());
            let freed = if seed % 2 == 0 {
                alone += 1;
                match abort_second(&sites.to, None).await {
                    Err(error) => {
                        assert_eq!(error, Error::client_invalid_operation());
                        assert!(error.to_string().contains("never whole"), "{error}");
                        abort_second(&sites.to, Some(Leftover::Clear)).await.unwrap()
                    }
                    freed => freed.unwrap(),
                }
            } else {
                abort(&sites, "default", None).await.unwrap()
            };
            assert!(!is_locked(&sites.to).await);
            machine.sleep(Duration::from_millis(500)).await;
            let expected = match freed {
                Freed::Whole(version) => writer.model_at(&machine, version).await,
                Freed::Empty | Freed::AsItWas => {
                    empty += 1;
                    Model::new()
                }
                Freed::Part => panic!("seed {seed}: a part was kept"),
            };
            assert!(rows_of(&sites.to).await == expected, "seed {seed}, {freed:?}");
            // And neither keeps anything of it.
            if seed % 2 == 0 {
                assert_eq!(
                    client(&first).list_changes().await.unwrap().len(),
                    usize::from(time > Duration::ZERO)
                );
                abort(&sites, "default", None).await.unwrap();
            }
            assert_eq!(client(&first).list_changes().await.unwrap(), []);
            assert_eq!(
                abort(&sites, "default", None).await,
                Err(Error::client_invalid_operation())
            );
            assert!(status(Some(&sites.from), &sites.to).await.unwrap().is_none());
            writer.stop().await;
            // A second beginning finds a place that is free, if it may clear it.
            start(&sites, &StartSettings { clear: true, ..StartSettings::default() })
                .await
                .unwrap();
            run_until(&machine, &sites, async |status| status.whole_at.is_some()).await;
        });
    }
    println!("{alone} without the first, {empty} before they were whole");
}

#[test]
fn a_paused_one_stands_still_and_goes_on() {
    with_pair(1, async |pair| {
        let Pair { machine, sites, .. } = pair;
        start(&sites, &StartSettings::default()).await.unwrap();
        assert!(!start(&sites, &StartSettings::default()).await.unwrap(), "it goes on");
        run_until(&machine, &sites, async |status| status.whole_at.is_some()).await;
        set_paused(&sites, true).await.unwrap();
        let tr = sites.from.create_transaction();
        tr.set("news", "1");
        tr.commit().await.unwrap();
        machine.sleep(Duration::from_secs(11)).await;
        assert!(run_for(&machine, &sites, Duration::from_secs(3)).await.is_none());
        assert_eq!(read_aware(&sites.to, "news").await, None);
        assert_eq!(
            status(Some(&sites.from), &sites.to).await.unwrap().unwrap().phase,
            Phase::Paused
        );
        set_paused(&sites, false).await.unwrap();
        machine.sleep(Duration::from_secs(11)).await;
        run_until(&machine, &sites, async |status| status.whole_at >= tr.committed_version()).await;
        assert_eq!(read_aware(&sites.to, "news").await.as_deref(), Some(&b"1"[..]));
    });
}

/// Series lie beside users' keys: they are copied with those, and follow change by change, also on
/// a stream whose row is from before they had a place.
#[test]
fn series_follow_in_their_place() {
    for is_old in [false, true] {
        with_pair(3, async |pair| {
            let Pair { machine, first, sites, .. } = pair;
            let db = client(&first).with_system_keys();
            let write = async |round: u8| {
                let tr = db.create_transaction();
                for number in 0..200_u8 {
                    let key = [SERIES_PREFIX, &[0x15, number, round]].concat();
                    tr.set(key, [round; 900]);
                }
                tr.add([SERIES_PREFIX, b"sum"].concat(), 3_u64.to_le_bytes());
                tr.clear_range(
                    [SERIES_PREFIX, &[0x15, 10 * round]].concat(),
                    [SERIES_PREFIX, &[0x15, 10 * round + 5]].concat(),
                );
                tr.set([b'u', round], "beside");
                tr.commit().await.unwrap();
                tr.committed_version().unwrap()
            };
            write(1).await;
            start(&sites, &StartSettings::default()).await.unwrap();
            if is_old {
                assert!(run_for(&machine, &sites, Duration::from_millis(30)).await.is_none());
                forget_place(&db).await;
            }
            write(2).await;
            run_until(&machine, &sites, async |status| status.whole_at.is_some()).await;
            write(3).await;
            let last = write(4).await;
            run_until(&machine, &sites, async |status| status.whole_at >= Some(last)).await;
            let found = rows_of(&sites.to).await;
            assert_eq!(found, rows_of(&sites.from).await);
            assert!(found.keys().filter(|key| key.starts_with(SERIES_PREFIX)).count() > 700);
            // An end that isn't whole leaves nothing of them either.
            abort(&sites, "default", None).await.unwrap();
        });
    }
}

/// Writes the row of the stream as it was before series had a place.
async fn forget_place(db: &plinth_client::Database) {
    db.transact(|tr| async move {
        let rows = tr.range(STREAM_PREFIX..STREAM_END).collect().await?;
        assert_eq!(rows.len(), 1, "the stream is registered");
        let place = [&17_u32.to_le_bytes()[..], &17_u32.to_le_bytes(), SERIES_PREFIX].concat();
        let at = rows[0].value.windows(place.len()).position(|bytes| bytes == place).unwrap();
        let (before, behind) = rows[0].value.split_at(at);
        tr.set(&rows[0].key, [before, &behind[place.len() + SERIES_PREFIX.len()..]].concat());
        Ok(())
    })
    .await
    .unwrap();
}

/// Tenants are keys of users' behind a number that a row of the system's has: both go along.
/// Metadata versions rise on both sides.
#[test]
fn tenants_and_the_metadata_version_go_along() {
    with_pair(1, async |pair| {
        let Pair { machine, sites, .. } = pair;
        let make = async |name: &str| {
            let tr = sites.from.create_transaction();
            tr.set_option(plinth::client::TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
            tr.set(format!("\u{0}\u{0}{name}"), "");
            tr.reset();
            tr.set_option(plinth::client::TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
            tr.set([&b"\xff\xff/management/tenant/map/"[..], name.as_bytes()].concat(), "");
            tr.commit().await.unwrap();
        };
        make("before").await;
        start(&sites, &StartSettings::default()).await.unwrap();
        run_until(&machine, &sites, async |status| status.whole_at.is_some()).await;
        make("after").await;
        let version = |db: plinth_client::Database| async move {
            let tr = db.create_transaction();
            tr.set_option(plinth::client::TransactionOption::LockAware).unwrap();
            tr.get(plinth_types::system::METADATA_VERSION).await.unwrap()
        };
        let before = version(sites.to.clone()).await;
        let tr = sites.from.create_transaction();
        tr.atomic_op(
            plinth_types::system::METADATA_VERSION,
            [0; 14],
            plinth::client::MutationType::SetVersionstampedValue,
        );
        tr.commit().await.unwrap();
        machine.sleep(Duration::from_secs(11)).await;
        run_until(&machine, &sites, async |status| status.whole_at >= tr.committed_version()).await;
        let rows = rows_of(&sites.to).await;
        assert!(rows == rows_of(&sites.from).await);
        let tenants = rows.keys().filter(|key| key.starts_with(b"\xff/tenant/nameIndex/")).count();
        assert_eq!(tenants, 2);
        assert!(version(sites.to.clone()).await > before, "{before:?}");
    });
}

/// Two agents: one works, the other one takes over when it is dead, and neither harms the other.
#[test]
fn two_agents_take_turns() {
    with_pair(3, async |pair| {
        let Pair { machine, first, second, .. } = pair;
        let sites = Sites::new(client(&first), lossy(&second, 3, 5));
        let mut history = History::default();
        history.write(&sites.from, &mut Random::new(1)).await;
        start(&sites, &StartSettings::default()).await.unwrap();
        let writer = Writer::start(&machine, &sites.from, history, 4);
        let mut killed = 0;
        for _ in 0..4 {
            let pair = plinth_env::sync::race(
                run_for(&machine, &sites, Duration::from_secs(3)),
                run_for(&machine, &sites, Duration::from_secs(60)),
            );
            drop(pair.await);
            killed += 1;
        }
        let history = writer.stop().await;
        run_until(&machine, &sites, async |status| status.whole_at >= Some(history.newest())).await;
        assert!(rows_of(&sites.to).await == history.at(history.newest()) && killed == 4);
    });
}

/// The look at a database in this process was over before the watch heard of its end, so it looked
/// again and again without a pause, and a server took five seconds to end.
#[test]
fn a_watch_of_a_database_in_this_process_ends_when_it_is_told_to() {
    let (env, db) = (Env::real(), plinth::Local::in_memory().unwrap().into_database());
    let watch = plinth_dr::Watch::start(&env, &db);
    let ended = block_on(race(watch.stop(), env.sleep(Duration::from_secs(30))));
    assert!(matches!(ended, First::Left(Ok(()))), "it goes on");
}
