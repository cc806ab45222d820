//! What a restore of ranges tells: the rows that it brought in, cut to the ranges, wherever they went and however often it was cut short;
//! and how far it is, which comes to the whole.

mod common;

use common::*;
use plinth::backup::restore::{Goal, Mapping, Plan, RestoreControl, RestoreReport, restore_into};
use plinth::backup::{Backup, LogBuilder, SnapshotSettings, take_snapshot};
use plinth::{Database, Env, KeyRange, MutationType};
use plinth_env::simulated::Simulation;
use plinth_env::sync::{First, race};
use plinth_types::MutationList;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A backup with a snapshot in files of some rows each and 40 changes behind it, and what there was.
async fn backed_up(machine: &Env) -> (Backup, Model) {
    let db = open(machine, "/db", "memory").await;
    for n in 0..300 {
        set(&db, format!("row/{n:03}").as_bytes(), &[n as u8; 20]).await;
    }
    let saved = rows_of(&db).await;
    let backup = new_backup(machine, &db).await;
    let settings = SnapshotSettings { file_bytes: 500, workers: 2, ..SnapshotSettings::default() };
    let taken = take_snapshot(&backup, &db, &settings).await.unwrap();
    assert!(taken.files > 10, "{taken:?}");
    let (mut log, mut end) = (LogBuilder::new(1), 0);
    for n in 0..40 {
        // Half of them are in no range that is restored.
        let key = format!("{}/{n:03}", if n % 2 == 0 { "row" } else { "other" });
        end = set(&db, key.as_bytes(), b"later").await + 1;
        let mut list = MutationList::new();
        list.push(MutationType::Set, key.as_bytes(), b"later");
        log.push(end - 1, list.iter());
    }
    backup.put_log(log, end).await.unwrap();
    (backup, saved)
}

/// Ranges that begin and end in the middle of files, two of them in the same one.
fn mapping() -> Mapping {
    let range = |begin: &'static str, end: &'static str| KeyRange::new(begin, end);
    let ranges = vec![range("row/003", "row/005"), range("row/007", "row/120"), range("row/200", "row/203")];
    Mapping { ranges, ..Mapping::default() }
}

/// What a restore of these ranges has to tell, all of whose changes lie below `row/040`.
fn expected(plan: &Plan, saved: &Model, mutations: u64) -> RestoreReport {
    let inside = |key: &[u8]| plan.ranges.iter().any(|range| range.contains(key));
    let rows: Vec<_> = saved.iter().filter(|(key, _)| inside(key)).collect();
    let bytes = rows.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum();
    RestoreReport { version: plan.version, rows: rows.len() as u64, bytes, mutations }
}

fn done(control: &RestoreControl) -> u64 {
    control.restored.load(Ordering::SeqCst)
}

/// It told the rows of whole files, of which ranges took a part.
#[test]
fn a_restore_tells_the_rows_that_it_brought_in() {
    let simulation = Simulation::new(1);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (backup, saved) = backed_up(&machine).await;
        for (n, (mapping, mutations)) in [(mapping(), 17), (Mapping::default(), 40)].into_iter().enumerate() {
            let is_cut = !mapping.ranges.is_empty();
            let plan = plan(&backup, Goal::Newest, mapping).await.unwrap();
            let expected = expected(&plan, &saved, mutations);
            assert_eq!((plan.cuts_files(), plan.rows() > expected.rows), (is_cut, is_cut));
            let whole = plan.row_bytes() + plan.log_bytes();
            let control = RestoreControl::default();
            let builder = Database::builder(format!("/new{n}")).env(machine.clone());
            let mut loader = builder.loader(plan.version).await.unwrap();
            let told = restore_into(&backup, &plan, &control, &mut loader).await.unwrap();
            assert_eq!((told, done(&control)), (expected.clone(), whole));
            let control = RestoreControl::default();
            let to = open(&machine, &format!("/to{n}"), "memory").await;
            let told = serve(&backup, &plan, &control, &to).await.unwrap();
            assert_eq!((told, done(&control)), (expected, whole));
        }
    });
}

#[test]
fn a_restore_that_goes_on_tells_what_earlier_runs_brought_in() {
    let simulation = Simulation::new(2);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (backup, saved) = backed_up(&machine).await;
        let plan = plan(&backup, Goal::Newest, mapping()).await.unwrap();
        let whole = plan.row_bytes() + plan.log_bytes();
        for part in [1, 3, 5, 8, 10] {
            let to = open(&machine, &format!("/to{part}"), "memory").await;
            let control = RestoreControl::default();
            let is_enough = async {
                while done(&control) < plan.row_bytes() * part / 10 {
                    machine.sleep(Duration::from_micros(50)).await;
                }
            };
            let First::Right(()) = race(serve(&backup, &plan, &control, &to), is_enough).await else {
                panic!("{part}: it came to its end");
            };
            let control = RestoreControl::default();
            let told = serve(&backup, &plan, &control, &to).await.unwrap();
            assert_eq!((told, done(&control)), (expected(&plan, &saved, 17), whole), "{part}");
        }
    });
}
