//! Children of a fork: they have this library's memory, but none of the threads that keep a store
//! going.
//!
//! A child may end as it likes without hanging: what it destroys is left where it is (the parent's
//! store is not the child's to close), waiting fails, and stopping the network does nothing. It
//! can't use databases that its parent opened.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked off one that had the library in use.
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// Has the children of this process know that they are.
pub(crate) fn watch() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(register);
}

#[cfg(unix)]
fn register() {
    unsafe extern "C" {
        fn pthread_atfork(
            prepare: Option<unsafe extern "C" fn()>,
            parent: Option<unsafe extern "C" fn()>,
            child: Option<unsafe extern "C" fn()>,
        ) -> std::ffi::c_int;
    }
    unsafe extern "C" fn child() {
        IS_CHILD.store(true, Ordering::Relaxed);
    }
    // SAFETY: the function is one of POSIX with this signature; the handler only stores to an
    // atomic, which is allowed there. If the system has no memory for it, children behave as they
    // do without it.
    unsafe { pthread_atfork(None, None, Some(child)) };
}

#[cfg(not(unix))]
fn register() {}
