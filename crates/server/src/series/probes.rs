//! Probes of the series' HTTP: what whoever looks after a server asks to know whether it is there.
//!
//! A question may take long, and so may points that can't be saved at once: while all connections
//! have such, nobody can make room, and a probe that got no answer would have a healthy server
//! killed. So there are a few more places, where nothing is answered but these.

use super::reply::IDLE;
use crate::http::{Bounds, Patience};
use hyper::StatusCode;

/// What the connections cost.
pub(super) const BOUNDS: Bounds = Bounds {
    connections: 256,
    probes: 16,
    buffer: 128 << 10,
    idle: IDLE,
    half_close: false,
    asked_first: &PATHS,
};

/// What probes ask for.
const PATHS: [&str; 7] =
    ["/", "/-/healthy", "/-/ready", "/api/version", "/health", "/ping", "/ready"];

/// Refuses what isn't one, where there is room for nothing else.
pub(super) fn check(path: &str, patience: &Patience) -> Result<(), (StatusCode, &'static str)> {
    if !patience.is_for_probes() || PATHS.contains(&path) {
        return Ok(());
    }
    let why = "all connections are being answered, and there is room for probes alone: ask again in some seconds";
    Err((StatusCode::SERVICE_UNAVAILABLE, why))
}
