//! What a server tells as it happens: events of the crate `tracing`, which cost a load while nobody
//! listens.
//!
//! One function for each event, so that names and fields stand in one place. Whoever embeds the
//! server decides where they go; the program `plinth` prints them when `PLINTH_LOG` says so.

use plinth_env::{Burst, Env, Over};
use plinth_types::Error;
use std::net::SocketAddr;

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
}

const ALL: [Often; 5] =
    [Often::TlsFailed, Often::Refused, Often::Closed, Often::CutOff, Often::NotAccepted];

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

/// Time series are taken in and asked for from now on.
pub(crate) fn series_open() {
    tracing::info!("series are open");
}

/// This server owns the series of a database that several share: it has the lease.
pub(crate) fn series_ours() {
    tracing::info!("series are open: this server has the lease");
}

/// It doesn't any more.
pub(crate) fn series_lost() {
    tracing::warn!("the lease of the series was lost: points are posted to whoever has it");
}

/// Another one owns them.
pub(crate) fn series_elsewhere(name: &str, address: &str) {
    tracing::info!(
        name,
        address,
        "another server has the lease of the series: points are posted to it"
    );
}

/// Time series can be neither written nor asked for, and why. Opening them is tried again every
/// second.
pub(crate) fn series_unavailable(why: &plinth_series::Error) {
    tracing::warn!(error = %why, "series can't be opened; keys are served meanwhile");
}

/// What was kept of rules can't be read: nothing is evaluated before it can.
pub(crate) fn rules_unknown(why: &plinth_series::Error) {
    tracing::warn!(error = %why, "what was kept of rules can't be read: tried again every second");
}

/// What was kept of a group makes no sense: its alerts begin anew.
pub(crate) fn rules_not_restored(group: &str, why: &str) {
    tracing::warn!(group, why, "what was kept of a group of rules makes no sense");
}

/// How far a group is can't be kept, and why; told at the beginning of a time in which it can't.
pub(crate) fn rules_not_kept(group: &str, why: &str) {
    tracing::warn!(group, why, "how far a group of rules is can't be kept: a restart forgets it");
}

/// What evaluates rules has failed, which is a fault of ours: it begins again.
pub(crate) fn rules_failed(why: &plinth_env::TaskFailed) {
    tracing::error!(error = %why, "the evaluation of rules has failed: it begins again soon");
}

/// Files of rules have changed.
pub(crate) fn rules_changed() {
    tracing::info!("files of rules have changed: they hold from now on");
}

/// Files of rules have changed and can't be read.
pub(crate) fn rules_not_read(why: &str) {
    tracing::error!(why, "files of rules make no sense: the rules before hold");
}

/// An Alertmanager can't be told, and why; told at the beginning of a time in which it can't.
pub(crate) fn alertmanager_away(url: &str, why: &str) {
    tracing::warn!(url, why, "an Alertmanager can't be told of alerts: they wait");
}

/// An Alertmanager refuses alerts, and would refuse them again.
pub(crate) fn alerts_refused(url: &str, why: &str) {
    tracing::warn!(url, why, "an Alertmanager refuses alerts: it won't be told of them");
}

/// It can again.
pub(crate) fn alertmanager_back(url: &str) {
    tracing::info!(url, "the Alertmanager is told of alerts again");
}

/// A connection to a port of lines was closed because HTTP was spoken there.
pub(crate) fn http_on_lines(peer: SocketAddr) {
    tracing::debug!(%peer, "a request of HTTP on a port that takes points on lines: closed");
}

/// Points in datagrams made no sense: how many messages since this was told last, and what was
/// wrong with the first of this sender's.
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
