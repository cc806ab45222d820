//! Copies of a database that is being written.
//!
//! Writers move money between accounts and count their transactions in two rows at the two ends of
//! the key space. So at every version the sum is the same and the two counters are equal; a copy
//! put together from different versions has neither. That a naive copy is caught by this is a test
//! of its own.

use plinth::{Builder, Database, Error, TransactionOption};
use plinth_env::simulated::Random;
use plinth_env::{Env, block_on};
use plinth_migrate::{Settings, migrate};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/provided/database.rs"));

const ACCOUNTS: u64 = 3000;
const BALANCE: u64 = 1000;
/// Accounts that are written at a time; which ones moves on.
const HOT: u64 = 30;
const FIRST: &str = "a/count";
const LAST: &str = "z/count";

fn account(number: u64) -> String {
    format!("account/{:05}", number % ACCOUNTS)
}

fn number(value: Option<&[u8]>) -> u64 {
    value.and_then(|value| value.first_chunk::<8>()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn balance(amount: u64) -> Vec<u8> {
    [&amount.to_le_bytes()[..], &[0x20; 80]].concat()
}

fn open_accounts() -> Database {
    let db = in_memory();
    db.transact_blocking(|tr| {
        (0..ACCOUNTS).for_each(|n| tr.set(account(n), balance(BALANCE)));
        Ok(())
    })
    .unwrap();
    db
}

struct Writers {
    stop: Arc<AtomicBool>,
    tasks: Vec<plinth_env::Task>,
    done: Arc<AtomicU64>,
}

impl Writers {
    fn start(db: &Database, count: u64, pause: Duration) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let tasks = (0..count).map(|seed| {
            let (db, stop, done) = (db.clone(), stop.clone(), done.clone());
            Env::real().spawn("writer", async move {
                let mut random = Random::new(seed);
                while !stop.load(Ordering::Relaxed) {
                    let base = done.fetch_add(1, Ordering::Relaxed) / 20 * HOT;
                    transfer_or_end(&db, base + random.below(HOT), base + random.below(HOT), &stop);
                    block_on(db.endpoint().env().sleep(pause));
                }
            })
        });
        let tasks = tasks.collect();
        Self { stop, tasks, done }
    }

    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.into_iter().for_each(|task| task.wait().unwrap());
        self.done.load(Ordering::Relaxed)
    }
}

/// A transfer, unless the database has been locked for good meanwhile.
fn transfer_or_end(db: &Database, from: u64, to: u64, stop: &AtomicBool) {
    let outcome = db.transact_blocking(|tr| {
        tr.set_option(TransactionOption::RetryLimit(Some(5)))?;
        step(tr, from, to)
    });
    match outcome {
        Ok(()) => {}
        Err(error) if error == Error::database_locked() => stop.store(true, Ordering::Relaxed),
        Err(error) => assert_eq!(error, Error::not_committed()),
    }
}

fn step(tr: &plinth::Transaction, from: u64, to: u64) -> plinth::Result<()> {
    let [a, b] = [from, to].map(|n| tr.get(account(n)).wait());
    let (a, b) = (number(a?.as_deref()), number(b?.as_deref()));
    if a == 0 || account(from) == account(to) {
        return Ok(());
    }
    let count = number(tr.get(FIRST).wait()?.as_deref()) + 1;
    tr.set(account(from), balance(a - 1));
    tr.set(account(to), balance(b + 1));
    [FIRST, LAST].iter().for_each(|key| tr.set(key, count.to_le_bytes()));
    Ok(())
}

/// The sum of all accounts, and the two counters, read at one version.
fn state(db: &Database) -> (u64, u64, u64) {
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::LockAware).unwrap();
    let rows = tr.range("account/".."account0").collect_blocking().unwrap();
    assert_eq!(rows.len() as u64, ACCOUNTS);
    let sum = rows.iter().map(|row| number(Some(&row.value))).sum();
    let count = |key: &str| number(tr.get(key).wait().unwrap().as_deref());
    (sum, count(FIRST), count(LAST))
}

fn settings() -> Settings {
    Settings {
        piece_bytes: 2000,
        cut_bytes: 40_000,
        workers: 2,
        beat: Duration::from_millis(3),
        rounds: 500,
        ..Settings::default()
    }
}

#[test]
fn a_copy_of_a_database_in_use_is_one_version_of_it() {
    for round in 0..5 {
        let (source, destination) = (open_accounts(), in_memory());
        let writers = Writers::start(&source, 3, Duration::from_millis(1));
        let report = migrate(&source, &destination, "source", &settings()).unwrap();
        let transfers = writers.end();
        let (sum, first, last) = state(&destination);
        println!("round {round}: {report:?}, {transfers} transfers, {first} of them copied");
        assert_eq!((sum, first), (ACCOUNTS * BALANCE, last));
        assert!(transfers > 0);
    }
}

#[test]
fn the_whole_state_is_that_of_the_reported_version() {
    let source = provided(Builder::in_memory().window(Duration::from_secs(600)));
    source
        .transact_blocking(|tr| {
            (0..ACCOUNTS).for_each(|n| tr.set(account(n), balance(BALANCE)));
            Ok(())
        })
        .unwrap();
    let destination = in_memory();
    let writers = Writers::start(&source, 3, Duration::from_millis(1));
    let report = migrate(&source, &destination, "source", &settings()).unwrap();
    writers.end();
    let tr = source.create_transaction();
    tr.set_read_version(report.version);
    let then = tr.range(plinth::RangeOptions::from(""..)).collect_blocking().unwrap();
    let copied = destination
        .create_transaction()
        .range(plinth::RangeOptions::from(""..))
        .collect_blocking()
        .unwrap();
    assert_eq!(copied, then);
}

#[test]
fn a_moved_application_loses_nothing() {
    let (source, destination) = (open_accounts(), in_memory());
    let writers = Writers::start(&source, 3, Duration::from_millis(1));
    let settings = Settings { lock_source: true, ..settings() };
    let report = migrate(&source, &destination, "source", &settings).unwrap();
    writers.end();
    assert!(report.source_is_locked);
    assert_eq!(state(&destination), state(&source));
    assert_eq!(state(&source).0, ACCOUNTS * BALANCE);
}

#[test]
fn under_the_lock_even_writes_without_conflict_ranges_are_copied() {
    let (source, destination) = (open_accounts(), in_memory());
    let stop = Arc::new(AtomicBool::new(false));
    let quiet = {
        let (source, stop) = (source.clone(), stop.clone());
        Env::real().spawn("quiet", async move {
            for n in 0.. {
                let locked = source.create_transaction().get_read_version().wait().is_err();
                if stop.load(Ordering::Relaxed) || locked {
                    return;
                }
                let outcome = source.transact_blocking(|tr| {
                    tr.set_option(TransactionOption::RetryLimit(Some(0)))?;
                    tr.set_option(TransactionOption::NextWriteNoWriteConflictRange)?;
                    tr.set(account(n * 7), balance(n));
                    Ok(())
                });
                assert!(outcome.is_ok() || outcome == Err(Error::database_locked()), "{outcome:?}");
            }
        })
    };
    let settings = Settings { lock_source: true, ..settings() };
    migrate(&source, &destination, "source", &settings).unwrap();
    stop.store(true, Ordering::Relaxed);
    quiet.wait().unwrap();
    assert_eq!(state(&destination), state(&source));
}

#[test]
fn a_source_that_changes_everywhere_all_the_time_is_given_up_with_advice() {
    let source = open_accounts();
    let stop = Arc::new(AtomicBool::new(false));
    let storm = {
        let (source, stop) = (source.clone(), stop.clone());
        Env::real().spawn("storm", async move {
            for round in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                source
                    .transact_blocking(|tr| {
                        (0..ACCOUNTS).for_each(|n| tr.set(account(n), balance(round + n)));
                        Ok(())
                    })
                    .unwrap();
            }
        })
    };
    let settings = Settings { cut_bytes: 10_000, rounds: 3, ..settings() };
    // On a busy machine the storm may stand still for as long as a copy takes.
    let given_up = || migrate(&source, &in_memory(), "source", &settings).err();
    let error = (0..100).find_map(|_| given_up()).expect("it is never given up");
    stop.store(true, Ordering::Relaxed);
    storm.wait().unwrap();
    assert_eq!(error, Error::timed_out());
    assert!(error.to_string().contains("lock the source"), "{error}");
}

/// The tests above can fail: the same writers break a copy that reads each part at a version of its
/// own.
#[test]
fn a_naive_copy_is_caught() {
    let source = open_accounts();
    let writers = Writers::start(&source, 3, Duration::ZERO);
    let mut attempts = 0;
    loop {
        attempts += 1;
        assert!(attempts < 1000, "the writers never disturb a naive copy");
        let count =
            |key: &str| number(source.create_transaction().get(key).wait().unwrap().as_deref());
        let first = count(FIRST);
        let mut sum = 0;
        for n in (0..ACCOUNTS).step_by(100) {
            let tr = source.create_transaction();
            let rows =
                tr.range(account(n)..format!("account/{:05}", n + 100)).collect_blocking().unwrap();
            sum += rows.iter().map(|row| number(Some(&row.value))).sum::<u64>();
        }
        if first != count(LAST) || sum != ACCOUNTS * BALANCE {
            break;
        }
    }
    writers.end();
}
