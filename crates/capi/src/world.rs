//! The world that the library runs in: the real one.

use plinth_env::Env;
use std::sync::OnceLock;

/// The world that the library runs in: the real one.
pub(crate) fn env() -> &'static Env {
    static ENV: OnceLock<Env> = OnceLock::new();
    ENV.get_or_init(Env::real)
}
