//! How far behind a backup says that it is: no more than it is, so that nobody is alarmed by an
//! idle database, and no less, so that nobody trusts in what was never saved.
//!
//! Places go away meanwhile, clocks jump and agents end; what is said is held against what was
//! committed and what is saved.

use super::*;

/// Takes the place away, or brings it back; says whether it is away.
async fn toggle_place(machine: &Env, is_away: bool) -> bool {
    match is_away {
        true => mount_again(machine).await,
        false => machine.files().rename("/backup", "/mounted").await.unwrap(),
    }
    !is_away
}

/// A database whose backup gets no further: there is no such key file.
async fn hindered(machine: &Env) -> (Database, Agent) {
    let db = open(machine, "/db", "memory").await;
    let runs = Agent::start(machine, &db);
    let wish = Wish { key_file: Some("/no-key".into()), ..wish() };
    agent::start(&db, "default", &wish).await.unwrap();
    (db, runs)
}

/// It said that it was behind by nothing until it had saved something for the first time.
#[test]
fn a_backup_that_never_saved_anything_is_behind_since_it_was_begun() {
    let simulation = Simulation::new(14);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, runs) = hindered(&machine).await;
        machine.sleep(Duration::from_secs(600)).await;
        let told = status(&db).await;
        assert!(
            told.error.is_some() && told.saved.is_none() && told.complete.is_none(),
            "{told:?}"
        );
        assert!((599.0..602.0).contains(&told.behind_seconds), "{told:?}");
        runs.stop().await.unwrap();
    });
}

/// It said that it was ending until the next try, half a minute later.
#[test]
fn one_that_gets_no_further_is_aborted_at_once() {
    let simulation = Simulation::new(15);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, runs) = hindered(&machine).await;
        // The pause between two tries is at its longest, and has just begun.
        let mut told = status(&db).await.error;
        for _ in 0..4 {
            until(&db, "failing", |tag| tag.error.is_some()).await;
            machine.sleep(Duration::from_secs(31)).await;
            told = status(&db).await.error;
        }
        assert!(told.is_some_and(|told| told.contains("no-key")));
        agent::change(&db, "default", State::Aborting).await.unwrap();
        let (aborted, begun) = (|tag: &agent::TagStatus| tag.ended.is_some(), machine.now());
        until(&db, "aborted", aborted).await;
        let took = machine.now() - begun;
        assert!(took < Duration::from_secs(5), "of the simulation's clock: {took:?}");
        runs.stop().await.unwrap();
    });
}

/// A store takes connections and says nothing, so that the try that is under way can't look at its
/// orders: it has five seconds, and is given up.
#[cfg(feature = "object-store")]
#[test]
fn one_whose_store_never_answers_is_aborted_after_a_grace_period() {
    let simulation = Simulation::new(16);
    let (machine, store) = (simulation.process("node"), simulation.process("store"));
    simulation.run_until(async {
        let place = std::net::SocketAddr::new(simulation.ip(&store), 9000);
        let _silent = store.sockets().listen(place).await.unwrap();
        let db = open(&machine, "/db", "memory").await;
        let runs = Agent::start(&machine, &db);
        let url = format!("blobstore://key:secret@{place}/shop?bucket=b&sc=0&region=r");
        agent::start(&db, "default", &Wish { url, ..wish() }).await.unwrap();
        machine.sleep(Duration::from_secs(3)).await;
        assert_eq!(status(&db).await.error, None, "the first try is under way");
        let begun = machine.now();
        agent::change(&db, "default", State::Aborting).await.unwrap();
        until(&db, "aborted", |tag| tag.ended.as_deref() == Some("aborted")).await;
        let took = (machine.now() - begun).as_secs();
        assert!((4..=7).contains(&took), "of the simulation's clock: {took} s");
        runs.stop().await.unwrap();
    });
}

/// Its place is away for hours, in which the wall clock jumps: it says how far behind it is, and
/// catches up without a gap.
#[test]
fn a_backup_that_falls_behind_for_hours_catches_up() {
    for by in [-3600_i64, 7200] {
        let simulation = Simulation::new(11);
        let machine = simulation.process("node");
        let history = simulation.run_until(async {
            let (db, runs) = begun(&machine).await;
            let (mut random, mut history) = (Random::new(11), History::new());
            write_for(&db, &mut history, &mut random, 20).await;
            until(&db, "restorable", |tag| tag.is_restorable && tag.saved.is_some()).await;
            machine.files().rename("/backup", "/mounted").await.unwrap();
            for minute in 0..180 {
                write_for(&db, &mut history, &mut random, 2).await;
                machine.sleep(Duration::from_secs(60)).await;
                if minute == 90 {
                    simulation.move_wall_clock(&machine, by);
                }
            }
            let told = status(&db).await;
            assert!(
                told.behind_seconds > 10_000.0 && told.error.is_some() && told.broken == 0,
                "{told:?}"
            );
            mount_again(&machine).await;
            let newest = history.last().unwrap().0;
            until(&db, "caught up", |tag| tag.saved >= Some(newest) && tag.error.is_none()).await;
            assert!(status(&db).await.behind_seconds < 12.0, "{:?}", status(&db).await);
            compare(&machine, &history, &mut random, "after", 6).await;
            runs.stop().await.unwrap();
            history
        });
        assert!(history.len() > 300, "{}", history.len());
    }
}

/// Nothing was missing of an idle database's backup, and status said that it was up to ten seconds
/// behind.
#[test]
fn an_idle_database_is_not_behind() {
    let simulation = Simulation::new(15);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, runs) = begun(&machine).await;
        let mut history = History::new();
        write_for(&db, &mut history, &mut Random::new(15), 5).await;
        let newest = history.last().unwrap().0;
        until(&db, "saved", |tag| tag.is_restorable && tag.saved >= Some(newest)).await;
        let backup = Backup::open(&machine, backup_target(&machine), None).await.unwrap();
        let files = async || backup.contents().await.unwrap().logs.len();
        machine.sleep(Duration::from_secs(2)).await;
        let (before, mut notes, mut last) = (files().await, 0, None);
        for _ in 0..600 {
            machine.sleep(Duration::from_millis(100)).await;
            let told = status(&db).await;
            assert!(told.behind_seconds < 1.5 && told.behind_versions < 1_500_000, "{told:?}");
            assert!(
                told.saved >= Some(newest) && told.complete >= told.saved && told.error.is_none()
            );
            let shown: serde_json::Value = serde_json::from_str(&runs.layer()()).unwrap();
            let shown = &shown["tags"]["default"];
            assert!(shown["last_restorable_seconds_behind"].as_f64() < Some(2.5), "{shown:#}");
            // What can be restored is in files alone.
            assert!(shown["last_restorable_version"].as_i64() <= told.saved, "{shown:#}");
            notes += u32::from(told.complete != std::mem::replace(&mut last, told.complete));
        }
        assert!((55..=65).contains(&notes), "{notes} notes");
        // An object store is asked for nothing.
        let files = files().await - before;
        assert!((5..=7).contains(&files), "{files} files");
        // A second that no file speaks of yet is restored to what there was.
        let last = backup.contents().await.unwrap().logs.last().unwrap().to;
        machine.sleep(Duration::from_secs(3)).await;
        assert!(status(&db).await.complete > Some(last));
        let now = machine.wall_clock().as_millis() as u64;
        let moment =
            plan(&backup, Goal::Time(now), Mapping::default()).await.unwrap().moment.unwrap();
        assert!(
            moment.version < last && (now - 15_000..now).contains(&moment.time),
            "{moment:?}, {now}"
        );
        restore_dir(&machine, &backup, Goal::Time(now), Mapping::default(), "/idle", "memory")
            .await
            .unwrap();
        let rows = rows_of(&open(&machine, "/idle", "memory").await).await;
        assert!(rows == history.last().unwrap().1);
        // What is committed then does not wait.
        let version = set(&db, b"first", b"").await;
        assert!(status(&db).await.complete < Some(version));
        machine.sleep(Duration::from_secs(1)).await;
        assert!(status(&db).await.saved >= Some(version), "{:?}", status(&db).await);
        runs.stop().await.unwrap();
    });
}

/// Whatever becomes of agent, stream and place: what a backup is said to be complete up to it has,
/// but for what was lost, which is told.
#[test]
fn a_backup_is_not_said_to_have_what_it_lacks() {
    for seed in 0..2 {
        let simulation = Simulation::new(seed);
        let machine = simulation.process("node");
        simulation.run_until(async {
            let (db, runs) = begun(&machine).await;
            let (mut random, mut runs, mut commits) = (Random::new(seed), Some(runs), Vec::new());
            until(&db, "restorable", |tag| tag.is_restorable && tag.saved.is_some()).await;
            let (mut is_away, mut is_paused) = (false, false);
            for step in 0..60 {
                match random.index(6) {
                    0 | 1 => is_away = toggle_place(&machine, is_away).await,
                    2 => {
                        is_paused = !is_paused;
                        let state = if is_paused { State::Paused } else { State::Running };
                        agent::change(&db, "default", state).await.unwrap();
                    }
                    3 => {
                        runs.take().unwrap().stop().await.unwrap();
                        runs = Some(Agent::start(&machine, &db));
                    }
                    _ => {}
                }
                for _ in 0..random.index(3) {
                    machine.sleep(Duration::from_millis(random.below(1500))).await;
                    commits.push(set(&db, b"key", &[step]).await);
                }
                for _ in 0..random.index(30) {
                    machine.sleep(Duration::from_millis(200)).await;
                    let told = status(&db).await;
                    let lacks = |version: &&Version| Some(**version) > told.saved;
                    let first = commits.iter().find(lacks);
                    assert!(
                        first.is_none_or(|first| told.complete < Some(*first)),
                        "{first:?} {told:?}"
                    );
                }
            }
            if is_paused {
                agent::change(&db, "default", State::Running).await.unwrap();
            }
            if is_away {
                toggle_place(&machine, is_away).await;
            }
            until(&db, "caught up", |tag| tag.saved.as_ref() >= commits.last()).await;
            until(&db, "complete", |tag| tag.behind_seconds < 1.5).await;
            assert_eq!(status(&db).await.broken, 0);
        });
    }
}

/// With its place away a backup falls behind, whether anything is committed or not: nobody knows
/// that there is room for it.
#[test]
fn an_idle_database_whose_place_is_away_falls_behind() {
    let simulation = Simulation::new(16);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, runs) = begun(&machine).await;
        until(&db, "restorable", |tag| tag.is_restorable && tag.saved.is_some()).await;
        machine.files().rename("/backup", "/mounted").await.unwrap();
        machine.sleep(Duration::from_secs(60)).await;
        let told = status(&db).await;
        assert!(told.behind_seconds > 40.0 && told.error.is_some(), "{told:?}");
        let version = set(&db, b"first", b"").await;
        machine.sleep(Duration::from_secs(60)).await;
        let told = status(&db).await;
        assert!(told.behind_seconds > 100.0 && told.complete < Some(version), "{told:?}");
        mount_again(&machine).await;
        until(&db, "caught up", |tag| tag.saved >= Some(version) && tag.behind_seconds < 1.5).await;
        runs.stop().await.unwrap();
    });
}
