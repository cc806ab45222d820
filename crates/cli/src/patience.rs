//! How long an answer is waited for where that isn't for ever, and what is said when none came.
//!
//! What has no bound here waits for as long as it takes, and is told for what; see `silence.rs`.

use plinth_bench::words::duration;
use plinth_env::sync::{First, race};
use plinth_env::{Env, block_on};
use std::time::Duration;

/// How long a database that doesn't answer is waited for.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long it is waited for what is good to know before something else is done.
pub const SOON: Duration = Duration::from_secs(2);

/// An answer, if it comes within this time.
pub fn within<T>(env: &Env, most: Duration, answer: impl Future<Output = T>) -> Option<T> {
    match block_on(race(answer, env.sleep(most))) {
        First::Left(answer) => Some(answer),
        First::Right(()) => None,
    }
}

/// What is said if none came.
pub fn no_answer(after: Duration) -> String {
    format!("no answer in {}", duration(after))
}
