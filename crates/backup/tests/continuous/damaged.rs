//! A file of the log that is damaged where it lies costs its own versions, and keeps nothing else
//! of the backup from going on.

use super::*;

/// Each time that small files were to be merged the backup began again, and took the snapshot away
/// that was under way; none of them became larger any more.
#[test]
fn a_damaged_file_is_told_and_everything_else_goes_on() {
    let simulation = Simulation::new(22);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, runs) = begun(&machine).await;
        let (mut history, mut random) = (History::new(), Random::new(22));
        until(&db, "restorable", |tag| tag.is_restorable).await;
        write_for(&db, &mut history, &mut random, 60).await;
        let target = backup_target(&machine);
        let backup = Backup::open(&machine, target.clone(), None).await.unwrap();
        let damaged = backup.contents().await.unwrap().logs[2].clone();
        let whole = target.get(&damaged.name).await.unwrap();
        let mut bytes = whole.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        target.put(&damaged.name, bytes.into()).await.unwrap();
        // An idle database's backup puts a file each ten seconds.
        machine.sleep(Duration::from_secs(700)).await;
        until(&db, "told", |tag| tag.error.is_some()).await;
        let told = status(&db).await.error.unwrap();
        assert!(told.contains(&damaged.name), "{told}");
        machine.sleep(Duration::from_secs(700)).await;
        write_for(&db, &mut history, &mut random, 10).await;
        let last = history.last().unwrap().0;
        until(&db, "saved", |tag| tag.saved >= Some(last)).await;
        let logs = backup.contents().await.unwrap().logs;
        assert!(logs.contains(&damaged));
        let is_merged = |log: &&plinth::backup::LogFile| log.to - log.from > 60_000_000;
        assert!(logs.iter().filter(is_merged).count() > 1, "{logs:?}");
        assert!(logs.iter().any(|log| log.from == damaged.to && is_merged(&log)), "{logs:?}");
        // Whoever goes on tells it, too, until somebody has put it right.
        runs.stop().await.unwrap();
        let runs = Agent::start(&machine, &db);
        machine.sleep(Duration::from_secs(700)).await;
        assert!(status(&db).await.error.unwrap().contains(&damaged.name));
        runs.stop().await.unwrap();
        target.put(&damaged.name, whole).await.unwrap();
        let runs = Agent::start(&machine, &db);
        machine.sleep(Duration::from_secs(700)).await;
        assert_eq!(status(&db).await.error, None);
        runs.stop().await.unwrap();
    });
}
