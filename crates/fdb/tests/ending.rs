//! A process that has used the C library ends as it should: its network is stopped, and the thread
//! that ran it joined.

mod common;

use plinth_fdb::{Foundation, Target};
use std::process::Command;

/// Names the library to a test that runs in a process of its own.
const LIBRARY: &str = "PLINTH_TEST_STUB_LIBRARY";

/// What the process does that is looked at from outside. In a run of all tests it has nothing to
/// do.
#[test]
fn a_process_uses_the_library_and_ends() {
    let Ok(library) = std::env::var(LIBRARY) else { return };
    let target = Target { cluster_file: String::new(), library: Some(library) };
    // It refuses everything once it is asked: all that counts is that its network runs.
    drop(Foundation::open(&target));
}

/// With Apple's library a program ended with a segmentation fault (139) after it had done its work.
#[test]
fn its_end_waits_for_the_thread_of_the_network() {
    let outcome = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_uses_the_library_and_ends"])
        .env(LIBRARY, common::stub("libfdb_c_stub.so", &[]))
        .output()
        .unwrap();
    assert!(
        outcome.status.success(),
        "{:?}: {}",
        outcome.status,
        String::from_utf8_lossy(&outcome.stderr)
    );
}
