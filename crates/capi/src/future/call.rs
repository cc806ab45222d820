//! A future's callbacks, and the one network that runs them.

use super::FutureCore;
use super::held::Held;
use crate::guard::guard;
use crate::network::{Due, Network, Parameter};
use std::ffi::c_void;

/// `FDBCallback`.
pub(crate) type Callback = unsafe extern "C" fn(*mut FutureCore, *mut c_void);

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
        let future = self.future.as_raw();
        // SAFETY: the program gave the function to be called with this future and parameter, and
        // the future lives through the call, for `self` holds it, even if the callback destroys the
        // handle.
        guard((), || unsafe { (self.callback)(future, self.parameter.0) });
    }
}
