//! Transactions: their life, conflicts, retries, timeouts, watches, options, errors.
//!
//! A transaction of this package is consumed by its commit and its cancelling, and comes back out
//! of the result; so what may be done after either is partly the compiler's to say, and only the
//! rest is tested.

use crate::Test;
use crate::support::{Chance, begin, code, get, kept, rows, seen, set, together, try_write, write};
use foundationdb::options::{ConflictRangeType, DatabaseOption, TransactionOption};
use foundationdb::{Database, FdbError, KeySelector, RangeOption, Transaction};
use futures::executor::block_on;

pub const TESTS: &[Test] = &[
    ("a_transaction_sees_its_writes_and_others_after_commit", life),
    ("conflicts_are_retried_until_nothing_is_lost", retries),
    ("what_conflicts", conflicts),
    ("a_cancelled_transaction_stays_so_until_reset", cancelling),
    ("timeouts_end_what_waits", timeouts),
    ("on_error_retries_what_may_be_retried", on_error),
    ("error_predicates", predicates),
    ("watches_tell_of_changes", watches),
    ("errors_are_deferred_to_the_next_operation", deferred),
    ("options_are_accepted_and_obeyed", options),
    ("a_name_says_how_a_directory_is_opened", places),
    ("the_retry_loop_of_the_package", run),
];

fn life(db: &Database, _: &mut Chance) {
    let tr = begin(db);
    tr.set(b"k", b"v");
    assert_eq!(seen(&tr, b"k"), Some(b"v".to_vec()));
    assert_eq!(kept(db, b"k"), None);
    let committed = block_on(tr.commit()).expect("a commit");
    assert!(committed.committed_version().expect("a version") > 0);
    let tr = committed.reset();
    let version = block_on(tr.get_read_version()).expect("a version");
    set(db, &[(b"k", b"newer")]);
    let past = begin(db);
    past.set_read_version(version);
    assert_eq!(seen(&past, b"k"), Some(b"v".to_vec()));
}

fn places(_: &Database, _: &mut Chance) {
    let around = std::env::temp_dir().join(format!("plinth-places-{}", std::process::id()));
    std::fs::create_dir(&around).expect("a directory");
    let name = around.join("db").display().to_string();
    let nearly = around.join("fdb.clustr").display().to_string();
    for (given, code, words) in [
        (format!("{name}?create=false&engine=ssd"), 1511, name.clone()),
        (nearly.clone(), 1511, format!("{nearly}: is a cluster file meant?")),
        (format!("{name}?engine=disk"), 2006, "\"disk\"".to_string()),
    ] {
        let error = Database::from_path(&given).err().expect("a refusal");
        assert_eq!(error.code(), code, "{given}");
        assert!(error.message().contains(&words), "{given}: {}", error.message());
    }
    assert_eq!(std::fs::read_dir(&around).expect("a list").count(), 0);
    let made = Database::from_path(&format!("{name}?engine=ssd&memory=64MiB")).expect("one is made");
    set(&made, &[(b"k", b"v")]);
    drop(made);
    assert!(around.join("db/gen-1/tables").exists());
    let again = Database::from_path(&format!("{name}?create=false&engine=ssd")).expect("it opens");
    assert_eq!(kept(&again, b"k"), Some(b"v".to_vec()));
    drop(again);
    std::fs::remove_dir_all(&around).expect("it goes");
}

fn retries(db: &Database, _: &mut Chance) {
    together(8, |_| {
        for _ in 0..40 {
            try_write(db, |tr| {
                let old = get(tr, b"n")?.map_or(0, |n| String::from_utf8_lossy(&n).parse().unwrap_or(0));
                tr.set(b"n", (old + 1).to_string().as_bytes());
                Ok(())
            });
        }
    });
    assert_eq!(kept(db, b"n"), Some(b"320".to_vec()));
}

type Step = Box<dyn Fn(&Transaction)>;

fn reading(key: &'static [u8]) -> Step {
    Box::new(move |tr| drop(get(tr, key).expect("a read")))
}

fn writing(key: &'static [u8]) -> Step {
    Box::new(move |tr| tr.set(key, b"new"))
}

fn scanning(begin: &'static [u8], end: &'static [u8], limit: usize, reverse: bool) -> Step {
    Box::new(move |tr| {
        let limit = (limit > 0).then_some(limit);
        let range = RangeOption { limit, reverse, ..RangeOption::from((begin, end)) };
        rows(tr, range, false).expect("a read");
    })
}

fn adding(begin: &'static [u8], end: &'static [u8], kind: ConflictRangeType) -> Step {
    Box::new(move |tr| tr.add_conflict_range(begin, end, kind).expect("a range"))
}

fn conflicts(db: &Database, _: &mut Chance) {
    let after_a = || -> Step {
        Box::new(|tr| {
            drop(block_on(tr.get_key(&KeySelector::first_greater_than(&b"a"[..]), false)).expect("a key"))
        })
    };
    let snapshot: Step = Box::new(|tr| drop(block_on(tr.get(b"a", true)).expect("a read")));
    let silently: Step = Box::new(|tr| {
        tr.set_option(TransactionOption::NextWriteNoWriteConflictRange).expect("an option");
        tr.set(b"q", b"");
    });
    let cases: Vec<(Step, Step, bool)> = vec![
        (reading(b"a"), writing(b"a"), true),
        (reading(b"a"), writing(b"b"), false),
        (snapshot, writing(b"a"), false),
        (scanning(b"a", b"d", 0, false), writing(b"b"), true),
        (scanning(b"a", b"d", 0, false), writing(b"d"), false),
        (scanning(b"a", b"f", 1, false), writing(b"d"), false),
        (scanning(b"a", b"f", 1, true), writing(b"b"), false),
        (after_a(), writing(b"b"), true),
        (after_a(), writing(b"d"), false),
        (adding(b"x", b"z", ConflictRangeType::Read), writing(b"y"), true),
        (adding(b"x", b"x\0", ConflictRangeType::Read), writing(b"xx"), false),
        (reading(b"a"), Box::new(|tr| tr.clear_range(b"", b"b")), true),
        (reading(b"q"), adding(b"q", b"r", ConflictRangeType::Write), true),
        (reading(b"q"), silently, false),
    ];
    set(db, &[(b"a", b"1"), (b"c", b"3"), (b"e", b"5")]);
    for (at, (first, meanwhile, conflict)) in cases.iter().enumerate() {
        let tr = begin(db);
        block_on(tr.get_read_version()).expect("a version");
        first(&tr);
        let other = begin(db);
        meanwhile(&other);
        block_on(other.commit()).expect("a commit");
        tr.set(b"out", b"");
        assert_eq!(code(block_on(tr.commit())), if *conflict { 1020 } else { 0 }, "case {at}");
    }
}

fn cancelling(db: &Database, _: &mut Chance) {
    let tr = begin(db);
    let watch = tr.watch(b"w");
    let tr = tr.cancel();
    assert_eq!(code(block_on(watch)), 1025);
    let tr = tr.reset();
    assert_eq!(seen(&tr, b"k"), None);
}

fn timeouts(db: &Database, _: &mut Chance) {
    let tr = begin(db);
    tr.set_option(TransactionOption::Timeout(100)).expect("an option");
    tr.set_read_version(1 << 60);
    assert_eq!(code(get(&tr, b"k")), 1031);
    assert_eq!(code(block_on(tr.on_error(FdbError::from_code(1020)))), 1031);
}

fn on_error(db: &Database, _: &mut Chance) {
    for each in [1007, 1009, 1020, 1021, 1037, 1038, 1051, 1213] {
        let tr = begin(db);
        tr.set(b"k", b"v");
        let tr = block_on(tr.on_error(FdbError::from_code(each))).expect("a retry");
        assert_eq!(seen(&tr, b"k"), None, "a retry begins with nothing");
    }
    for each in [1025, 1031, 2000, 2017, 4100] {
        assert_eq!(code(block_on(begin(db).on_error(FdbError::from_code(each)))), each);
    }
    let tr = begin(db);
    tr.set_option(TransactionOption::RetryLimit(1)).expect("an option");
    let tr = block_on(tr.on_error(FdbError::from_code(1020))).expect("a retry");
    assert_eq!(code(block_on(tr.on_error(FdbError::from_code(1020)))), 1020);
}

fn predicates(_: &Database, _: &mut Chance) {
    for (number, retryable, maybe, not) in [
        (1020, true, false, true),
        (1021, true, true, false),
        (1039, true, true, false),
        (1007, true, false, true),
        (1025, false, false, false),
        (2101, false, false, false),
    ] {
        let error = FdbError::from_code(number);
        assert_eq!(error.is_retryable(), retryable, "{number}");
        assert_eq!(error.is_maybe_committed(), maybe, "{number}");
        assert_eq!(error.is_retryable_not_committed(), not, "{number}");
        assert!(!error.message().is_empty());
    }
}

fn watch(db: &Database, key: &[u8]) -> impl Future<Output = Result<(), FdbError>> + use<> {
    let tr = begin(db);
    let watch = tr.watch(key);
    block_on(tr.commit()).expect("a commit");
    watch
}

fn watches(db: &Database, _: &mut Chance) {
    set(db, &[(b"w", b"0")]);
    for value in [b"1", b"2", b"3"] {
        let changed = watch(db, b"w");
        set(db, &[(b"other", value), (b"w", value)]);
        block_on(changed).expect("a change");
    }
    let many: Vec<_> = (0..300).map(|i| watch(db, format!("many{i}").as_bytes())).collect();
    write(db, |tr| (0..300).for_each(|i| tr.set(format!("many{i}").as_bytes(), b"x")));
    many.into_iter().for_each(|each| block_on(each).expect("a change"));
    drop(watch(db, b"never"));
}

fn deferred(db: &Database, _: &mut Chance) {
    let misuses: Vec<(i32, Step)> = vec![
        (2004, Box::new(|tr| tr.set(b"\xff", b""))),
        (2102, Box::new(|tr| tr.set(&[1; 10_001], b""))),
        (2103, Box::new(|tr| tr.set(b"k", &[1; 100_001]))),
        (2005, Box::new(|tr| tr.clear_range(b"b", b"a"))),
        (2006, Box::new(|tr| tr.set_option(TransactionOption::SizeLimit(1)).expect("told later"))),
    ];
    for (number, misuse) in misuses {
        let tr = begin(db);
        misuse(&tr);
        assert_eq!(code(get(&tr, b"a")), number);
        assert_eq!(code(block_on(tr.commit())), number);
    }
    assert_eq!(code(begin(db).add_conflict_range(b"b", b"a", ConflictRangeType::Read)), 2005);
}

fn options(db: &Database, _: &mut Chance) {
    use TransactionOption as T;
    let tr = begin(db);
    for option in [
        T::CausalWriteRisky,
        T::CausalReadRisky,
        T::PriorityBatch,
        T::ReadSystemKeys,
        T::AccessSystemKeys,
        T::LockAware,
        T::DebugTransactionIdentifier("name".into()),
        T::LogTransaction,
        T::Timeout(60_000),
        T::RetryLimit(10),
        T::Tag("tag".into()),
        T::AutoThrottleTag("other".into()),
        T::SpecialKeySpaceRelaxed,
        T::BypassUnreadable,
        T::ReportConflictingKeys,
        T::AutomaticIdempotency,
    ] {
        tr.set_option(option).expect("an option");
    }
    tr.set(b"k", b"v");
    block_on(tr.commit()).expect("a commit");
    let tr = begin(db);
    tr.set_option(T::SizeLimit(100)).expect("an option");
    tr.set(b"k", &[1; 200]);
    assert_eq!(code(block_on(tr.commit())), 2101);
    let tr = begin(db);
    tr.set_option(T::ReadYourWritesDisable).expect("an option");
    tr.set(b"own", b"v");
    assert_eq!(seen(&tr, b"own"), None);
    assert_eq!(code(block_on(tr.watch(b"k"))), 1034);
    assert_eq!(code(db.set_option(DatabaseOption::MaxWatches(1_000_001))), 2006);
    db.set_option(DatabaseOption::LocationCacheSize(100_000)).expect("an option");
}

fn run(db: &Database, _: &mut Chance) {
    together(4, |_| {
        for _ in 0..25 {
            let done = db.run(|tr, _| async move {
                let old = tr.get(b"runs", false).await?.map_or(0, |n| n[0]);
                tr.set(b"runs", &[old + 1]);
                Ok::<_, foundationdb::FdbBindingError>(old)
            });
            block_on(done).expect("a commit");
        }
    });
    assert_eq!(kept(db, b"runs"), Some(vec![100]));
}
