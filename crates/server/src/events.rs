//! What a server tells as it happens: events of the crate `tracing`, which cost a load while nobody listens.
//!
//! One function for each event, so that names and fields stand in one place. Whoever embeds the server decides where they
//! go; the program `plinth` prints them when `PLINTH_LOG` says so.

use plinth_types::Error;
use std::net::SocketAddr;

/// No connection came about: of certificates, mostly. Those who just went away are no news.
#[cfg(feature = "tls")]
pub(crate) fn tls_failed(error: &Error) {
    if *error == Error::tls_error() {
        tracing::warn!(code = error.code(), error = %error, "TLS failed");
    } else {
        tracing::debug!(code = error.code(), error = %error, "TLS failed");
    }
}

/// A client was turned away before it could ask anything.
pub(crate) fn refused(peer: SocketAddr, error: &Error) {
    tracing::warn!(%peer, code = error.code(), error = %error, "connection refused");
}

/// A connection is closed for another cause than its client: it was silent, an operator or a stop wanted it so.
pub(crate) fn closed(peer: SocketAddr, why: &Error) {
    tracing::info!(%peer, code = why.code(), error = %why, "connection closed by the server");
}

/// A connection was cut off because memory is short: bytes of its requests under way, bytes that this frees, bytes that all
/// connections held.
pub(crate) fn cut_off(peer: SocketAddr, name: &str, [requests, frees, all]: [usize; 3]) {
    tracing::warn!(%peer, client = name, requests, frees, all, "connection cut off: memory is short");
}

/// Time series are taken in and asked for from now on.
pub(crate) fn series_open() {
    tracing::info!("series are open");
}

/// Time series can be neither written nor asked for, and why. Opening them is tried again every second.
pub(crate) fn series_unavailable(why: &plinth_series::Error) {
    tracing::warn!(error = %why, "series can't be opened; keys are served meanwhile");
}

/// A connection to a port of lines was closed because HTTP was spoken there.
pub(crate) fn http_on_lines(peer: SocketAddr) {
    tracing::debug!(%peer, "a request of HTTP on a port that takes points on lines: closed");
}

/// Points in datagrams made no sense: how many messages since this was told last, and what was wrong with the first of this sender's.
pub(crate) fn datagram_refused(from: SocketAddr, messages: u64, why: &str) {
    tracing::warn!(%from, messages, why, "points in datagrams refused");
}

/// Certificates were exchanged for newer ones, or could not be.
pub(crate) fn reloaded(result: &Result<bool, Error>) {
    match result {
        Ok(true) => tracing::info!("new certificates are in use"),
        Ok(false) => {}
        Err(error) => {
            tracing::error!(code = error.code(), error = %error, "certificates can't be read: the old ones stay in use");
        }
    }
}
