//! The Rust suite: every test on the database that PLINTH_TARGET names, which each finds empty.
//!
//! Tests wait for futures on their own threads: the package's futures are woken by the library's
//! callbacks, so that is what is tested here. What is printed has the form of cargo's tests, so
//! that the same program adds both up.

mod data;
mod layers;
mod model;
mod support;
mod transactions;

use foundationdb::Database;
use std::panic::{AssertUnwindSafe, catch_unwind};
use support::{Chance, write};

/// A test: a name, and what it does with a database and a source of chance that is the same for the
/// same seed.
type Test = (&'static str, fn(&Database, &mut Chance));

fn main() {
    // SAFETY: the guard is dropped below, before the process ends.
    let network = unsafe { foundationdb::boot() };
    let target = std::env::var("PLINTH_TARGET").unwrap_or_else(|_| ":memory:".to_string());
    let db = Database::from_path(&target).expect("the database opens");
    let given = std::env::var("PLINTH_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_nanos() as u64)
    });
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in [transactions::TESTS, data::TESTS, layers::TESTS, model::TESTS].concat() {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        write(&db, |tr| tr.clear_range(b"", b"\xff"));
        match catch_unwind(AssertUnwindSafe(|| test(&db, &mut Chance::new(seed)))) {
            Ok(()) => {
                passed += 1;
                println!("test {name} ... ok");
            }
            Err(_) => {
                failed += 1;
                println!("test {name} ... FAILED, PLINTH_SEED={seed}");
            }
        }
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {passed} passed; {failed} failed; 0 ignored");
    drop(db);
    drop(network);
    std::process::exit(i32::from(failed > 0));
}
