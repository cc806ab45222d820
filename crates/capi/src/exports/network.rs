//! Functions on the process: versions, errors, and the network thread.

use crate::argument::{Code, code, guard, guard_code, option_value};
use crate::future::call::NETWORK;
use crate::network::{Hook, Parameter};
use crate::{fork, network_options, version, words};
use plinth_types::Error;
use plinth_types::error::ErrorPredicate;
use std::ffi::{c_char, c_int, c_void};

/// `release,source,protocol`: the protocol is that of FoundationDB 7.3, whose behaviour this is.
const CLIENT_VERSION: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
    concat!(
        env!("CARGO_PKG_VERSION"),
        "-plinth,0000000000000000000000000000000000000000,fdb00b073000000\0"
    )
    .as_bytes(),
) {
    Ok(version) => version,
    Err(_) => panic!("one zero byte, at the end"),
};

#[unsafe(no_mangle)]
extern "C" fn fdb_select_api_version_impl(runtime_version: c_int, header_version: c_int) -> Code {
    guard_code(|| version::select(runtime_version, header_version))
}

#[unsafe(no_mangle)]
extern "C" fn fdb_get_max_api_version() -> c_int {
    version::NEWEST
}

#[unsafe(no_mangle)]
extern "C" fn fdb_get_client_version() -> *const c_char {
    CLIENT_VERSION.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn fdb_get_error(code: Code) -> *const c_char {
    guard(c"UNKNOWN_ERROR", || words::of(code)).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn fdb_error_predicate(predicate: c_int, code: Code) -> c_int {
    let predicate = match predicate {
        50_000 => ErrorPredicate::Retryable,
        50_001 => ErrorPredicate::MaybeCommitted,
        50_002 => ErrorPredicate::RetryableNotCommitted,
        _ => return 0,
    };
    guard(0, || c_int::from(code > 0 && Error::from_code(code).is(predicate)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_network_set_option(
    option: c_int,
    value: *const u8,
    length: c_int,
) -> Code {
    guard_code(|| {
        network_options::of_environment()?;
        // SAFETY: C gives readable bytes.
        network_options::set(option, unsafe { option_value(value, length) }?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn fdb_setup_network() -> Code {
    guard_code(|| {
        version::selected()?;
        network_options::of_environment()?;
        network_options::check_clients()?;
        fork::watch();
        NETWORK.set_up()
    })
}

#[unsafe(no_mangle)]
extern "C-unwind" fn fdb_run_network() -> Code {
    code(NETWORK.run())
}

#[unsafe(no_mangle)]
extern "C" fn fdb_stop_network() -> Code {
    guard_code(|| if fork::is_child() { Ok(()) } else { NETWORK.stop() })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdb_add_network_thread_completion_hook(
    hook: Option<Hook>,
    parameter: *mut c_void,
) -> Code {
    guard_code(|| {
        let hook = hook.ok_or_else(Error::client_invalid_operation)?;
        NETWORK.add_hook(hook, Parameter(parameter))
    })
}
