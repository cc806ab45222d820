//! Ctrl-C: the first one asks the work to end, so that temporary directories are removed; the second one ends it. And
//! SIGHUP, by which a server is asked to read its certificates again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A flag that Ctrl-C, or a request to terminate, sets. A second one ends the process at once.
pub fn flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    #[cfg(unix)]
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let code = i32::from(crate::failure::INTERRUPTED);
        // The order matters: on the first signal the flag is still down when the condition is looked at.
        let second = signal_hook::flag::register_conditional_shutdown(signal, code, stop.clone());
        // Without a handler Ctrl-C ends the process, which is what it is for.
        let _ = second.and_then(|_| signal_hook::flag::register(signal, stop.clone()));
    }
    stop
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
