//! Changing sides: under clients that count, with kills at any moment of it. Nothing that was
//! acknowledged is lost, nobody writes both, stamps go on rising, and clients stand still for less
//! than a second.
//!
//! Each client counts what was acknowledged to it, and puts a row with a stamp beside it. What is
//! there must be just that, in that order.

use crate::world::*;
use plinth::client::MutationType;
use plinth_dr::{
    Agent, Control, Phase, Sites, StartSettings, abort, abort_second, start, status, switch,
};
use plinth_env::Env;
use plinth_env::sync::{First, race};
use plinth_types::{Bytes, Error, changes, system};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What clients were told.
#[derive(Default)]
struct Told {
    counted: u64,
    /// Stamps in the order in which they were acknowledged to one client after the other.
    stamps: Vec<Vec<Bytes>>,
    longest: Duration,
}

impl Told {
    fn note(&mut self, client: usize, stamp: Bytes, took: Duration) {
        self.counted += 1;
        self.stamps[client].push(stamp);
        self.longest = self.longest.max(took);
    }
}

/// Clients that add to a counter wherever they may, and note it.
struct Counting {
    told: Arc<Mutex<Told>>,
    stop: Arc<AtomicBool>,
    tasks: Vec<plinth_env::Task>,
}

impl Counting {
    fn start(env: &Env, dbs: [plinth_client::Database; 2], clients: usize) -> Self {
        let (told, stop) =
            (Arc::new(Mutex::new(Told::default())), Arc::new(AtomicBool::new(false)));
        told.lock().unwrap().stamps = vec![Vec::new(); clients];
        let tasks = (0..clients).map(|client| {
            let (told, stop, env, dbs) = (told.clone(), stop.clone(), env.clone(), dbs.clone());
            env.clone().spawn("client", async move {
                let (mut random, mut side) = (Random::new(client as u64), 0);
                while !stop.load(Ordering::Relaxed) {
                    let begun = env.now();
                    let stamp = loop {
                        match count(&dbs[side], client).await {
                            Ok(stamp) => break stamp,
                            Err(error) => assert!(error.is_retryable(), "{error}"),
                        }
                        side = 1 - side;
                        env.sleep(Duration::from_millis(1)).await;
                    };
                    told.lock().unwrap().note(client, stamp, env.now() - begun);
                    env.sleep(Duration::from_micros(random.index(8000) as u64)).await;
                }
            })
        });
        Self { tasks: tasks.collect(), told, stop }
    }

    async fn stop(self) -> Told {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        std::mem::take(&mut *self.told.lock().unwrap())
    }
}

/// One more, and a row in a queue: its key has the stamp.
async fn count(db: &plinth_client::Database, client: usize) -> plinth_types::Result<Bytes> {
    let tr = db.create_transaction();
    tr.add(format!("counter{client}"), 1_u64.to_le_bytes());
    let key = [b"queue/", &[0; 10][..], &[client as u8], &[6, 0, 0, 0]].concat();
    tr.atomic_op(&key, b"", MutationType::SetVersionstampedKey);
    let stamp = tr.versionstamp();
    tr.commit().await?;
    Ok(Bytes::copy_from_slice(stamp.await?.as_bytes()))
}

fn counted(rows: &Model) -> u64 {
    let range = Bytes::from("counter")..Bytes::from("countes");
    rows.range(range).map(|(_, value)| u64::from_le_bytes(value[..].try_into().unwrap())).sum()
}

fn check(told: &Told, rows: &Model, seed: u64) -> Result<(), String> {
    if counted(rows) != told.counted {
        return Err(format!("seed {seed}: {} acknowledged, {} there", told.counted, counted(rows)));
    }
    let queued = rows.keys().filter(|key| key.starts_with(b"queue/")).count();
    if queued as u64 != told.counted || told.stamps.iter().any(|stamps| !stamps.is_sorted()) {
        return Err(format!("seed {seed}: stamps don't rise: {queued} of {}", told.counted));
    }
    Ok(())
}

/// Changes sides, and back, under clients, with kills. Gives the longest pause of a client.
fn change_with_kills(seed: u64) -> Result<Duration, String> {
    with_pair(seed, async |pair| {
        let mut random = Random::new(seed);
        let Pair { machine, first, second, .. } = pair;
        // The first has been there for a while: its versions are ahead.
        machine.sleep(Duration::from_secs(30)).await;
        let (first, second) =
            (lossy(&first, seed, usize::MAX), lossy(&second, seed + 1, usize::MAX));
        let (mut sites, mut longest) = (Sites::new(first.clone(), second.clone()), Duration::ZERO);
        start(&sites, &StartSettings::default()).await.unwrap();
        run_until(&machine, &sites, async |status| status.whole_at.is_some()).await;
        let counting = Counting::start(&machine, [first, second], 4);
        for turn in 0..2 {
            machine.sleep(Duration::from_millis(20 + random.index(100) as u64)).await;
            let mut kills = 1 + random.index(4);
            let changed = loop {
                let time = if kills > 0 { random.index(120_000) as u64 } else { 60_000_000 };
                kills = kills.saturating_sub(1);
                let control = Control::default();
                match race(switch(&sites, &control), machine.sleep(Duration::from_micros(time)))
                    .await
                {
                    First::Left(changed) => break changed,
                    First::Right(()) if random.index(3) == 0 => {
                        // Instead of the command, an agent goes on.
                        machine.sleep(Duration::from_secs(11)).await;
                        drop(
                            run_for(
                                &machine,
                                &sites,
                                Duration::from_micros(random.index(200_000) as u64),
                            )
                            .await,
                        );
                    }
                    First::Right(()) => {}
                }
            };
            changed.map_err(|error| format!("seed {seed}: {error}"))?;
            let shown = status(Some(&sites.from), &sites.to).await.unwrap().unwrap();
            assert!(shown.is_reversed && shown.phase == Phase::Following, "{shown:?}");
            assert!(is_locked(&sites.from).await && !is_locked(&sites.to).await);
            assert_eq!(switch(&sites, &Control::default()).await, Ok(false), "it is so already");
            sites = Sites::new(sites.to.clone(), sites.from.clone());
            if turn == 0 {
                machine.sleep(Duration::from_millis(30)).await;
            }
        }
        let told = counting.stop().await;
        longest = longest.max(told.longest);
        check(&told, &rows_of(&sites.from).await, seed)?;
        // And the other one gets there, too.
        machine.sleep(Duration::from_secs(11)).await;
        let newest = sites.from.create_transaction().get_read_version().await.unwrap();
        run_until(&machine, &sites, async |status| status.whole_at >= Some(newest)).await;
        if rows_of(&sites.from).await != rows_of(&sites.to).await {
            return Err(format!("seed {seed}: the two differ"));
        }
        for (db, streams) in [(&sites.from, 1), (&sites.to, 0)] {
            assert_eq!(db.list_changes().await.unwrap().len(), streams, "seed {seed}");
        }
        Ok(longest)
    })
}

#[test]
fn nothing_acknowledged_is_lost_when_sides_are_changed() {
    for seed in 0..8 {
        change_with_kills(seed).unwrap();
    }
}

#[test]
fn unlocking_before_everything_is_there_is_noticed() {
    is_noticed("dr: the second is unlocked before it has everything", 100, change_with_kills);
}

/// Without kills clients stand still for a few round trips, by the simulated clock, whenever sides
/// are changed. In some phases they did for the second that an idle stream takes to say where it
/// is.
#[test]
fn clients_stand_still_for_some_round_trips() {
    for wait in (0..1200u64).step_by(100) {
        with_pair(7, async |pair| {
            let Pair { machine, first, second, .. } = pair;
            let sites = Sites::new(lossy(&first, 1, usize::MAX), lossy(&second, 2, usize::MAX));
            start(&sites, &StartSettings::default()).await.unwrap();
            let agent = Agent::new(sites.clone(), Control::default());
            let work = async {
                while status(Some(&sites.from), &sites.to)
                    .await
                    .unwrap()
                    .is_none_or(|it| it.whole_at.is_none())
                {
                    machine.sleep(Duration::from_millis(10)).await;
                }
                let counting = Counting::start(&machine, [sites.from.clone(), sites.to.clone()], 4);
                machine.sleep(Duration::from_millis(wait)).await;
                assert_eq!(switch(&sites, &Control::default()).await, Ok(true));
                machine.sleep(Duration::from_millis(300)).await;
                let told = counting.stop().await;
                check(&told, &rows_of(&sites.to).await, 7).unwrap();
                told.longest
            };
            match race(agent.run(), work).await {
                First::Left(ended) => panic!("{ended:?}"),
                First::Right(longest) => {
                    assert!(longest < Duration::from_millis(100), "{wait} ms: {longest:?}");
                }
            }
        });
    }
}

/// While sides are changed either may go away for good: whoever is left can be made free, and has
/// everything.
#[test]
fn either_may_go_away_while_sides_are_changed() {
    let (mut firsts, mut seconds, mut both) = (0, 0, 0);
    for seed in 0..18 {
        with_pair(seed, async |pair| {
            let mut random = Random::new(seed);
            let Pair { machine, first, second, .. } = pair;
            let sites =
                Sites::new(lossy(&first, seed, usize::MAX), lossy(&second, seed + 1, usize::MAX));
            start(&sites, &StartSettings::default()).await.unwrap();
            run_until(&machine, &sites, async |status| status.whole_at.is_some()).await;
            let counting = Counting::start(&machine, [sites.from.clone(), sites.from.clone()], 2);
            machine.sleep(Duration::from_millis(50)).await;
            let told = counting.stop().await;
            let control = Control::default();
            let time = Duration::from_micros(random.index(60_000) as u64);
            if let First::Left(changed) = race(switch(&sites, &control), machine.sleep(time)).await
            {
                changed.unwrap();
            }
            match seed % 3 {
                0 => {
                    // The second is left.
                    match abort_second(&sites.to, None).await {
                        Ok(_) => seconds += 1,
                        // It is the first already.
                        Err(error) => {
                            assert!(error.to_string().contains("follows no other one"), "{error}")
                        }
                    }
                    assert!(!is_locked(&sites.to).await, "seed {seed}");
                }
                1 => {
                    // The first is left: locked or not, it has everything.
                    match abort_second(&sites.from, None).await {
                        Ok(_) => firsts += 1,
                        Err(error) => {
                            assert!(error.to_string().contains("follows no other one"), "{error}")
                        }
                    }
                    assert!(!is_locked(&sites.from).await, "seed {seed}");
                    check(&told, &rows_of(&sites.from).await, seed).unwrap();
                }
                _ => {
                    both += 1;
                    abort(&sites, "default", None).await.unwrap();
                    for db in [&sites.from, &sites.to] {
                        assert!(!is_locked(db).await, "seed {seed}");
                        assert_eq!(db.list_changes().await.unwrap(), [], "seed {seed}");
                    }
                    check(&told, &rows_of(&sites.from).await, seed).unwrap();
                    assert_eq!(
                        abort(&sites, "default", None).await,
                        Err(Error::client_invalid_operation())
                    );
                }
            }
        });
    }
    println!("{firsts} first, {seconds} second, {both} both");
    assert!(firsts > 1 && seconds > 1);
}

/// Somebody else's lock on the first keeps sides from being changed, and everything goes on as
/// before.
#[test]
fn a_first_that_somebody_has_locked_stays_the_first() {
    with_pair(1, async |pair| {
        pair.follow().await;
        let Pair { sites, .. } = pair;
        let tr = sites.from.create_transaction();
        tr.set_option(plinth::client::TransactionOption::AccessSystemKeys).unwrap();
        tr.set(system::DATABASE_LOCKED, b"0123456789abcdefghijklmnop");
        tr.commit().await.unwrap();
        assert_eq!(switch(&sites, &Control::default()).await, Err(Error::database_locked()));
        let shown = status(Some(&sites.from), &sites.to).await.unwrap().unwrap();
        assert!(!shown.is_reversed && shown.phase == Phase::Following, "{shown:?}");
        assert_eq!(sites.to.list_changes().await.unwrap(), []);
    });
}

/// An abort that stood still while another one made the second free used to find it without a
/// place, and clear it.
#[test]
fn an_abort_that_stood_still_harms_nothing_that_is_free() {
    with_pair(3, async |pair| {
        pair.follow().await;
        let Pair { machine, first, second, sites } = pair;
        let (to, held) = held(&second);
        let late = Sites::new(client(&first), to);
        held.hold(b"\xff\x02/plinth/dr/to/agent");
        let agent = Agent::new(late.clone(), Control::default());
        let tasks = [
            machine.spawn("late abort", async move { drop(abort(&late, "default", None).await) }),
            machine.spawn("late agent", async move { drop(agent.run().await) }),
        ];
        held.until(&machine, 2).await;
        abort_second(&sites.to, None).await.unwrap();
        let tr = sites.to.create_transaction();
        tr.set("mine", "kept");
        tr.commit().await.unwrap();
        held.let_go();
        for task in tasks {
            task.await.unwrap();
        }
        machine.sleep(Duration::from_secs(1)).await;
        assert_eq!(read_aware(&sites.to, "mine").await.as_deref(), Some(&b"kept"[..]));
        assert!(!is_locked(&sites.to).await && !is_locked(&sites.from).await);
        assert_eq!(status(Some(&sites.from), &sites.to).await.unwrap(), None);
        let tr = sites.to.create_transaction();
        tr.set_option(plinth::client::TransactionOption::AccessSystemKeys).unwrap();
        let agent = tr.get(b"\xff\x02/plinth/dr/to/agent").await.unwrap();
        assert_eq!(agent, None, "nobody has begun to work at it");
    });
}

/// An agent that stood still before it locked the first used to lock it for a change of sides that
/// somebody had ended meanwhile.
#[test]
fn a_lock_that_comes_late_locks_nothing() {
    with_pair(4, async |pair| {
        pair.follow().await;
        let Pair { machine, first, second, sites } = pair;
        let (from, held) = held(&first);
        let late = Sites::new(from, client(&second));
        held.hold(system::DATABASE_LOCKED);
        let task =
            machine.spawn("late", async move { drop(switch(&late, &Control::default()).await) });
        held.until(&machine, 1).await;
        abort(&sites, "default", None).await.unwrap();
        held.let_go();
        task.await.unwrap();
        machine.sleep(Duration::from_secs(1)).await;
        assert!(!is_locked(&sites.from).await && !is_locked(&sites.to).await);
        for db in [&sites.from, &sites.to] {
            assert_eq!(db.list_changes().await.unwrap(), [], "nothing holds a log");
        }
    });
}

/// A stream that an agent asked for before somebody ended it used to come afterwards: nobody knew
/// of it, and it held a log up to its bound.
#[test]
fn a_stream_that_comes_late_is_registered_for_nobody() {
    // The stream of the first copy, and that of the other direction while sides are changed.
    for is_switching in [false, true] {
        with_pair(5, async |pair| {
            match is_switching {
                true => pair.follow().await,
                false => drop(start(&pair.sites, &StartSettings::default()).await.unwrap()),
            }
            let Pair { machine, first, second, sites } = pair;
            let (slow, held) = held(if is_switching { &second } else { &first });
            held.hold(changes::LAST_ID);
            let late = match is_switching {
                true => Sites::new(client(&first), slow),
                false => Sites::new(slow, client(&second)),
            };
            let task = machine.spawn("late", async move {
                match is_switching {
                    true => drop(switch(&late, &Control::default()).await),
                    false => drop(Agent::new(late, Control::default()).run().await),
                }
            });
            held.until(&machine, 1).await;
            abort(&sites, "default", None).await.unwrap();
            held.let_go();
            task.await.unwrap();
            machine.sleep(Duration::from_secs(1)).await;
            for db in [&sites.from, &sites.to] {
                assert_eq!(db.list_changes().await.unwrap(), [], "switching: {is_switching}");
                assert!(!is_locked(db).await);
            }
            assert_eq!(
                abort(&sites, "default", None).await,
                Err(Error::client_invalid_operation())
            );
        });
    }
}

/// An agent that gives a change of sides up and stands still used to take away the stream by which
/// somebody else has changed them since.
#[test]
fn a_stream_that_is_removed_late_stays_where_it_is_needed() {
    with_pair(6, async |pair| {
        pair.follow().await;
        let Pair { machine, first, second, sites } = pair;
        lock_as_another(&sites.from, true).await;
        let ((from, at_first), (to, at_second)) = (held(&first), held(&second));
        // It has registered the stream, and looks how far the first is.
        at_first.hold(b"\xff\x02/plinth/dr/nudge");
        let late = Sites::new(from, to);
        let task =
            machine.spawn("late", async move { drop(switch(&late, &Control::default()).await) });
        at_first.until(&machine, 1).await;
        at_second.hold(changes::acknowledged_key(1).leak());
        at_first.let_go();
        at_second.until(&machine, 1).await;
        lock_as_another(&sites.from, false).await;
        assert_eq!(switch(&sites, &Control::default()).await, Ok(true));
        at_second.let_go();
        task.await.unwrap();
        machine.sleep(Duration::from_secs(11)).await;
        let newest = sites.to.create_transaction().get_read_version().await.unwrap();
        run_until(&machine, &sites, async |status| status.whole_at >= Some(newest)).await;
        assert_eq!(sites.to.list_changes().await.unwrap().len(), 1);
    });
}

/// What was begun and interrupted before the second knew of it is gone on with.
#[test]
fn a_start_that_was_interrupted_is_gone_on_with() {
    with_pair(7, async |pair| {
        let Pair { machine, first, second, sites } = pair;
        let (to, held) = held(&second);
        held.hold(b"\xff\x02/plinth/dr/to/head");
        let slow = Sites::new(client(&first), to);
        let (usual, pause) = (StartSettings::default(), machine.sleep(Duration::from_secs(1)));
        assert_eq!(race(start(&slow, &usual), pause).await, First::Right(()));
        assert_eq!(held.count.load(Ordering::Relaxed), 1);
        assert_eq!(start(&sites, &usual).await, Ok(true));
        held.let_go();
        run_until(&machine, &sites, async |status| status.whole_at.is_some()).await;
        assert_eq!(start(&sites, &usual).await, Ok(false));
        // A row of a first whose second was made free is no start.
        abort_second(&sites.to, None).await.unwrap();
        let refused = start(&sites, &StartSettings { clear: true, ..usual }).await.unwrap_err();
        assert!(refused.to_string().contains("followed already"), "{refused}");
    });
}
