//! Ctrl-C: the first one asks the work to end, so that temporary directories are removed; the
//! second one ends it. And SIGHUP, by which a server is asked to read its certificates again.

use plinth_env::Env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

/// Signals within so short a time are one: `timeout` sends its own to the process, and to the group
/// that the process is in.
const ONE: Duration = Duration::from_millis(500);

/// Whether the process was asked to end.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// The number of the first signal by which it was.
#[cfg(unix)]
static FIRST: AtomicI32 = AtomicI32::new(0);

/// Whether Ctrl-C, or a request to terminate, has come for [`flag`].
pub fn is_asked() -> bool {
    IS_ASKED.load(Ordering::Relaxed)
}

/// The signal by which the process was asked to end first; empty if none has come.
pub fn name() -> &'static str {
    #[cfg(unix)]
    match FIRST.load(Ordering::Relaxed) {
        signal_hook::consts::SIGINT => return "SIGINT",
        signal_hook::consts::SIGTERM => return "SIGTERM",
        _ => {}
    }
    ""
}

/// Ends the process, which was asked to and can't: what it waits for doesn't come.
pub fn end() -> ! {
    std::process::exit(crate::failure::INTERRUPTED.into())
}

/// A flag that Ctrl-C, or a request to terminate, sets. A second one ends the process at once.
pub fn flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    #[cfg(unix)]
    {
        use signal_hook::consts::{SIGINT, SIGTERM};
        // Without a handler Ctrl-C ends the process, which is what it is for.
        if let Ok(signals) = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]) {
            let (env, stop) = (Env::real(), stop.clone());
            drop(env.clone().spawn("signals", async move { heed(&env, signals, &stop) }));
        }
    }
    stop
}

/// Waits for signals on its thread, for as long as the process lives.
#[cfg(unix)]
fn heed(env: &Env, mut signals: signal_hook::iterator::Signals, stop: &AtomicBool) {
    let mut first = None;
    for signal in signals.forever() {
        let now = env.now();
        let _ = FIRST.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
        stop.store(true, Ordering::SeqCst);
        IS_ASKED.store(true, Ordering::Relaxed);
        if now.saturating_sub(*first.get_or_insert(now)) > ONE {
            end();
        }
    }
}

/// Has Ctrl-C set a flag that somebody takes down again. Ctrl-C while it is up ends the process.
pub fn on_ctrl_c(flag: &Arc<AtomicBool>) {
    #[cfg(unix)]
    {
        let (signal, code) = (signal_hook::consts::SIGINT, i32::from(crate::failure::INTERRUPTED));
        let second = signal_hook::flag::register_conditional_shutdown(signal, code, flag.clone());
        // Without a handler Ctrl-C ends the process, as it does elsewhere.
        let _ = second.and_then(|_| signal_hook::flag::register(signal, flag.clone()));
    }
}

/// A flag that SIGHUP sets, each time.
pub fn hangup() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    // Without a handler the signal ends the process, as it does elsewhere.
    #[cfg(unix)]
    let _ = signal_hook::flag::register(signal_hook::consts::SIGHUP, flag.clone());
    flag
}
