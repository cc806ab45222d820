//! What a server tells as it happens: events of the crate `tracing`, which cost a load while nobody
//! listens.
//!
//! One function for each event, so that names and fields stand in one place. Whoever embeds the
//! server decides where they go; the program `plinth` prints them when `PLINTH_LOG` says so.

use plinth_env::{Burst, Env, Over};
use plinth_types::Error;
use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

/// What others can make happen as often as they like: told at the beginning of a burst, and at its
/// end with a count.
pub(crate) struct Bursts {
    env: Env,
    of: [Burst; ALL.len()],
}

/// What comes in bursts.
#[derive(Clone, Copy)]
enum Often {
    TlsFailed,
    Refused,
    Closed,
    CutOff,
    NotAccepted,
    Throttled,
}

const ALL: [Often; 6] = [
    Often::TlsFailed,
    Often::Refused,
    Often::Closed,
    Often::CutOff,
    Often::NotAccepted,
    Often::Throttled,
];

/// A server at its end waits for clients.
pub(crate) fn waits_for_answers(connections: usize, most: Duration) {
    let seconds = most.as_secs();
    tracing::info!(
        connections,
        seconds,
        "requests are under way: their answers are waited for, but only so long"
    );
}

impl Bursts {
    pub(crate) fn new(env: &Env) -> Self {
        Self { env: env.clone(), of: Default::default() }
    }

    fn is_first(&self, of: Often) -> bool {
        self.of[of as usize].note(1, self.env.now())
    }

    /// No connection came about: of certificates, mostly. Those who just went away are no news.
    #[cfg(feature = "tls")]
    pub(crate) fn tls_failed(&self, error: &Error) {
        if *error == Error::tls_error() && self.is_first(Often::TlsFailed) {
            tracing::warn!(code = error.code(), error = %error, "TLS failed");
        } else {
            tracing::debug!(code = error.code(), error = %error, "TLS failed");
        }
    }

    /// A client was turned away before it could ask anything.
    pub(crate) fn refused(&self, peer: SocketAddr, error: &Error) {
        if self.is_first(Often::Refused) {
            tracing::warn!(%peer, code = error.code(), error = %error, "connection refused");
        } else {
            tracing::debug!(%peer, code = error.code(), error = %error, "connection refused");
        }
    }

    /// A connection is closed for another cause than its client: it was silent, an operator or a
    /// stop wanted it so.
    pub(crate) fn closed(&self, peer: SocketAddr, why: &Error) {
        if self.is_first(Often::Closed) {
            tracing::info!(%peer, code = why.code(), error = %why, "connection closed by the server");
        } else {
            tracing::debug!(%peer, code = why.code(), error = %why, "connection closed by the server");
        }
    }

    /// A connection was cut off because memory is short: bytes of its requests under way, bytes
    /// that this frees, bytes that all connections held.
    pub(crate) fn cut_off(&self, peer: SocketAddr, name: &str, [requests, frees, all]: [usize; 3]) {
        if self.is_first(Often::CutOff) {
            tracing::warn!(%peer, client = name, requests, frees, all, "connection cut off: memory is short");
        }
    }

    /// No connection could be accepted: no file descriptors, mostly.
    pub(crate) fn not_accepted(&self, at: SocketAddr, error: &Error) {
        if self.is_first(Often::NotAccepted) {
            tracing::error!(%at, code = error.code(), error = %error, "connections can't be accepted");
        }
    }

    /// Somebody is over his quota, and what he asks for begins to wait: reads, or commits.
    pub(crate) fn throttled(&self, peer: &dyn Display, quota: &str, what: &str) {
        if self.is_first(Often::Throttled) {
            tracing::warn!(%peer, quota, what, "requests wait for a quota");
        } else {
            tracing::debug!(%peer, quota, what, "requests wait for a quota");
        }
    }

    /// Tells the bursts that are over. To be called now and then.
    pub(crate) fn tick(&self) {
        let now = self.env.now();
        self.tell(|burst| burst.over(now));
    }

    /// Tells all that have begun: the server has stopped.
    pub(crate) fn end(&self) {
        self.tell(Burst::end);
    }

    fn tell(&self, over: impl Fn(&Burst) -> Option<Over>) {
        for often in ALL {
            // One alone has been told.
            let Some(Over { count, lasted }) =
                over(&self.of[often as usize]).filter(|over| over.count > 1)
            else {
                continue;
            };
            let seconds = lasted.as_secs_f64();
            match often {
                Often::TlsFailed => tracing::warn!(count, seconds, "TLS has failed so often"),
                Often::Refused => {
                    tracing::warn!(count, seconds, "so many connections were refused")
                }
                Often::Closed => {
                    tracing::info!(count, seconds, "so many connections were closed by the server");
                }
                Often::CutOff => tracing::warn!(count, seconds, "so many connections were cut off"),
                Often::NotAccepted => {
                    tracing::error!(count, seconds, "so often no connection could be accepted");
                }
                Often::Throttled => {
                    tracing::warn!(count, seconds, "so often requests began to wait for a quota");
                }
            }
        }
    }
}

/// There are fewer file descriptors than connections were allowed.
pub(crate) fn fewer_connections(wanted: usize, most: usize) {
    tracing::warn!(
        wanted,
        most,
        "fewer connections at a time than wanted: the process may open too few files (ulimit -n, LimitNOFILE)"
    );
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
