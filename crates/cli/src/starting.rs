//! A start that may take long: somebody who asks the program to end meanwhile is heeded.

use crate::failure::tell;
use plinth_env::sync::{First, race};
use plinth_env::{Env, Signal, block_on};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How soon a request to end is noticed.
const TICK: Duration = Duration::from_millis(50);

/// Runs the start of a server. A request to end ends the process at once: opening a database reads
/// and repairs files on this thread, and whatever it is at, a crash at that instant loses nothing
/// either.
pub fn interruptible<T>(env: &Env, stop: &Arc<AtomicBool>, start: impl FnOnce() -> T) -> T {
    let started = Arc::new(Signal::new());
    let (until, stop, timer) = (started.clone(), stop.clone(), env.clone());
    let watch = env.spawn("starting", async move {
        while race(until.wait(), timer.sleep(TICK)).await != First::Left(()) {
            if stop.load(Ordering::Relaxed) {
                tell("ended during the start, as asked; nothing was served yet");
                std::process::exit(0);
            }
        }
    });
    let result = start();
    started.notify();
    // It ends by itself, and has nothing to tell.
    let _ = block_on(watch);
    result
}
