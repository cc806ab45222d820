//! Loading a C library, agreeing on an API version, and running its network.
//!
//! The C API allows one network in a process for each library, started once and stopped for good.
//! So a library is loaded at its first use, stays, and when the process ends its network is stopped
//! and the thread that ran it joined. Apple's library crashes otherwise: what belongs to that
//! thread is torn down after its network has returned, and needs static objects that the end of the
//! process tears down at the same time.

use super::functions::{CaptureFunctions, Functions};
use plinth_env::Env;
use plinth_types::{Error, Result};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// API versions to ask for, the one whose behaviour the endpoint is written for first. All of them
/// agree in what it uses.
const API_VERSIONS: [c_int; 4] = [730, 720, 710, 700];

/// How long the end of the process waits for a network thread to end.
const STOP_WAIT: Duration = Duration::from_millis(5);
const STOP_WAITS: usize = 2_000;

/// A loaded library with its network running. Lives until the process ends.
pub(crate) struct Library {
    pub(super) functions: Functions,
    /// Those of change data capture, or why there are none.
    capture: Result<CaptureFunctions>,
    api_version: i32,
    network_ended: AtomicBool,
    /// The network's thread, if it is ours to stop: another part of the program may have set the
    /// network up before.
    network: Mutex<Option<JoinHandle<()>>>,
    env: Env,
}

impl Library {
    /// The API version that was selected; 0 if another part of the program had selected one before.
    pub(crate) fn api_version(&self) -> i32 {
        self.api_version
    }

    /// What the library says of itself: release, source, protocol.
    pub(crate) fn version(&self) -> String {
        // SAFETY: callable at any time; gives a static string that ends in a zero byte.
        let version = unsafe { CStr::from_ptr((self.functions.client_version)()) };
        version.to_string_lossy().into_owned()
    }

    /// Its functions of change data capture.
    ///
    /// # Errors
    /// `unsupported_operation` if it has none.
    pub(super) fn capture(&self) -> Result<&CaptureFunctions> {
        self.capture.as_ref().map_err(Error::clone)
    }

    /// The world that the library runs in: the real one.
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }
}

/// The libraries of this process, by the name they were asked for.
static LOADED: Mutex<BTreeMap<String, &'static Library>> = Mutex::new(BTreeMap::new());

/// The library of this path, or the system's `libfdb_c` if none is given; loaded and started at the
/// first call.
///
/// # Errors
/// `file_not_found` if it can't be loaded; `api_function_missing`; `api_version_not_supported` if
/// it is too old or too new.
pub(crate) fn load(path: Option<&str>) -> Result<&'static Library> {
    let name = path.map_or_else(default_name, str::to_owned);
    // Held while it is loaded, so that two threads don't start it twice.
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = loaded.get(&name) {
        return Ok(library);
    }
    let library = start(&name)?;
    loaded.insert(name, library);
    // For each library, once it is loaded: its static objects are torn down when the process ends
    // before what was registered earlier.
    stop_at_exit();
    Ok(library)
}

fn default_name() -> String {
    libloading::library_filename("fdb_c").to_string_lossy().into_owned()
}

fn start(name: &str) -> Result<&'static Library> {
    // SAFETY: loading runs the library's initialisers, as for every program that links to it; it is
    // never unloaded.
    let opened = unsafe { libloading::Library::new(name) };
    let opened = opened.map_err(|error| {
        let advice =
            "install FoundationDB's client, or name the library: fdb:CLUSTER_FILE?lib=PATH";
        Error::file_not_found().with_detail(format!("cannot load {name}: {error}; {advice}"))
    })?;
    // Never dropped, so never unloaded.
    let opened: &'static libloading::Library = Box::leak(Box::new(opened));
    // SAFETY: it goes by the name of FoundationDB's library, which is all that can be known; it
    // stays loaded.
    let functions = unsafe { Functions::find(opened) }?;
    // SAFETY: as above.
    let capture = unsafe { CaptureFunctions::find(opened) }.map_err(|missing| {
        let detail = format!(
            "{name} has no change data capture, by which a database is followed: that comes with FoundationDB 8, its client as well as its \
             servers; name such a library: fdb:CLUSTER_FILE?lib=PATH ({missing})"
        );
        Error::unsupported_operation().with_detail(detail)
    });
    let api_version = select_api_version(&functions, name)?;
    // SAFETY: an API version has been selected.
    let owns_network = match unsafe { (functions.setup_network)() } {
        0 => true,
        // Somebody else in this process uses the same library, and runs its network.
        2009 => false,
        code => {
            return Err(
                Error::from_code(code).with_detail(format!("setting up the network of {name}"))
            );
        }
    };
    let env = Env::real();
    let library: &'static Library = Box::leak(Box::new(Library {
        functions,
        capture,
        api_version,
        network_ended: AtomicBool::new(!owns_network),
        network: Mutex::new(None),
        env,
    }));
    if owns_network {
        let thread = run_network(library)?;
        *library.network.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    }
    Ok(library)
}

/// Runs the network on a thread that can be joined when the process ends.
fn run_network(library: &'static Library) -> Result<JoinHandle<()>> {
    let run = move || {
        // SAFETY: the network is set up, and nobody else runs it.
        let _ = unsafe { (library.functions.run_network)() };
        library.network_ended.store(true, Ordering::SeqCst);
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "the C library is of the real world alone, and its thread has to be joined at the end of the process"
    )]
    let thread = std::thread::Builder::new().name("fdb-network".to_owned()).spawn(run);
    Ok(thread?)
}

fn select_api_version(functions: &Functions, name: &str) -> Result<i32> {
    // SAFETY: callable at any time.
    let newest = unsafe { (functions.max_api_version)() };
    let Some(version) = API_VERSIONS.into_iter().find(|version| *version <= newest) else {
        let oldest = API_VERSIONS[API_VERSIONS.len() - 1];
        let detail =
            format!("{name} knows API versions up to {newest}; {oldest} or later is needed");
        return Err(Error::api_version_not_supported().with_detail(detail));
    };
    // SAFETY: callable at any time; a second selection is refused by its number.
    match unsafe { (functions.select_api_version)(version, version) } {
        0 => Ok(version),
        2201 => Ok(0),
        code => Err(Error::from_code(code)
            .with_detail(format!("selecting API version {version} of {name}"))),
    }
}

fn stop_at_exit() {
    unsafe extern "C" {
        safe fn atexit(call: extern "C" fn()) -> c_int;
    }
    // If there is no room for one more, the process ends as it would have without us.
    let _ = atexit(stop_all);
}

/// Stops the networks and joins their threads. Runs after `main`, when thread-locals are gone.
extern "C" fn stop_all() {
    let Ok(loaded) = LOADED.try_lock() else { return };
    for library in loaded.values() {
        let thread = library.network.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // SAFETY: the network is set up; any thread may stop it.
            let _ = unsafe { (library.functions.stop_network)() };
            join(library, thread);
        }
    }
}

/// Joins a network's thread, but not one whose network doesn't end: a process that hangs at its end
/// is worse than one that crashes there.
fn join(library: &Library, thread: JoinHandle<()>) {
    for _ in 0..STOP_WAITS {
        if library.network_ended.load(Ordering::SeqCst) {
            // A panic of it was told when it happened.
            let _ = thread.join();
            return;
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the process ends: there is no environment left to wait in"
        )]
        std::thread::sleep(STOP_WAIT);
    }
}
