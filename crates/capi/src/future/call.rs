//! A future's callbacks, and the one network that runs them.
//!
//! A callback may never come back: an interpreter that ends lets its threads exit where they return
//! to it, and `pthread_exit` unwinds every frame down to the thread's first one. So a callback is
//! called by the exported function itself, outside of the wall that no panic passes (which would
//! end the process for what it takes for an exception of C++), and what lies between owns nothing.

use super::FutureCore;
use super::held::Held;
use crate::network::{Due, Network, Parameter};
use std::ffi::c_void;

/// `FDBCallback`.
pub(crate) type Callback = unsafe extern "C-unwind" fn(*mut FutureCore, *mut c_void);

/// A future that is ready, and what the program wants to be called then.
pub(crate) struct Call {
    pub(super) future: Held,
    pub(super) callback: Callback,
    pub(super) parameter: Parameter,
}

/// The network of this process.
pub(crate) static NETWORK: Network<Call> = Network::new();

impl Due for Call {
    fn run(self) {
        let Self { future, callback, parameter } = self;
        // The count is no value with a destructor during the call; a thread that ends there keeps
        // it.
        let future = future.into_raw();
        // SAFETY: the program gave the function to be called with this future and parameter, and
        // the future lives through the call, for there is this count, even if the callback destroys
        // the handle.
        unsafe { callback(future, parameter.0) };
        // SAFETY: the count of above, given back once.
        drop(unsafe { Held::from_raw(future) });
    }
}
