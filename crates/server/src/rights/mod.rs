//! Who may do what here: the rows of rights as this server knows them, and what they give somebody.
//!
//! ## Role
//! Every door asks [`Rights`] before it answers. The rows (`plinth_types::rights`) are read from
//! what this process has of the database, without asking anybody else, a few times a second; what
//! has changed holds for connections that are open too, which are woken for it.
//!
//! ```text
//!   \xff/plinth/rights/ ──read, every 200 ms──▶ Known ──▶ a connection: Coverage of who it is ──▶ Guarded endpoint
//!                                               │
//!                                               └── epoch: one load tells a request that nothing has changed
//! ```
//!
//! ## Invariants
//! 1. Where there is no row, everybody may everything, and it costs a request one load.
//! 2. Where there is one, nobody may anything that no grant gives; what isn't graded yet (HTTP,
//!    status, other people's connections) takes an operator, or the token of its door.
//! 3. A server reads the rows before it accepts. One that can't read them goes by the mark that it
//!    left beside them when it could. A member that has no rows yet, and no mark, sends clients
//!    elsewhere; its other doors are as open as without rights until it has them.
//! 4. A grant that was taken back gives nothing a second later.
//!
//! ## Not here
//! What a grant covers: `plinth_types::rights::coverage`. When rows are read: `renewal.rs`. Read
//! next: `guarded.rs`.

mod guarded;
mod known;

pub(crate) use guarded::Guarded;

use crate::config::RightsConfig;
use known::{Found, Known};
use plinth_client::Endpoint;
use plinth_env::Env;
use plinth_env::sync::{First, race};
use plinth_types::rights::{Coverage, Subject};
use plinth_types::{Error, Result, Version};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// For how long what was known holds while the rows can't be read.
const PATIENCE: Duration = Duration::from_millis(600);

/// The epoch in which everybody may everything: there is no row.
const OPEN: u64 = 0;
/// As far as anybody knows there is no row, and there are no other rows here either: this member
/// has yet to take them from others.
const BEHIND: u64 = u64::MAX - 1;
/// The one in which nobody knows.
const UNKNOWN: u64 = u64::MAX;

/// When the rows were read last, or would have been the same, and no older version than which.
pub(crate) struct Last {
    at: Duration,
    version: Option<Version>,
}

impl Last {
    /// They were read at this time.
    pub(crate) fn at(at: Duration) -> Self {
        Self { at, version: None }
    }
}

/// What a server knows of rights.
pub(crate) struct Rights {
    /// [`OPEN`], [`BEHIND`], [`UNKNOWN`], or the number of what is known.
    epoch: AtomicU64,
    known: RwLock<Arc<Known>>,
    /// Those who are operators whatever the rows say.
    operators: Vec<Subject>,
    /// Whether the database has such rows at all.
    is_kept: bool,
    /// The mark of a database that has rights.
    mark: Option<PathBuf>,
}

/// Who somebody at a door is, as far as it was shown.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) address: IpAddr,
    /// What was proven: DER.
    pub(crate) certificate: Option<Arc<[u8]>>,
}

impl Identity {
    /// Somebody of whom only the address is known.
    pub(crate) fn at(address: IpAddr) -> Self {
        Self { address, certificate: None }
    }
}

/// What somebody was found to be allowed, and in which epoch.
#[cfg(feature = "series")]
#[derive(Default)]
pub(crate) struct Judged(Option<(u64, Arc<Coverage>)>);

impl Rights {
    /// Reads the rows of the database behind an endpoint, if it has any in this process.
    ///
    /// # Errors
    /// `invalid_option_value` if an operator is named that can't be.
    pub(crate) async fn open(
        env: &Env,
        endpoint: &dyn Endpoint,
        config: &RightsConfig,
    ) -> Result<Arc<Self>> {
        let operators = config.operators.iter().map(|text| subject(text));
        let is_kept = endpoint.newest_here() != Err(Error::unsupported_operation());
        let rights = Self {
            epoch: AtomicU64::new(OPEN),
            known: RwLock::default(),
            operators: operators.collect::<Result<_>>()?,
            is_kept,
            mark: config.mark.clone(),
        };
        if is_kept {
            match Found::read(endpoint).await {
                Ok(found) => {
                    rights.leave_mark(env, !found.is_empty()).await;
                    rights.learn(env, found).await;
                }
                Err(why) => {
                    let epoch = rights.without_rows(env, &why).await;
                    rights.epoch.store(epoch, Ordering::Release);
                }
            }
        }
        Ok(Arc::new(rights))
    }

    /// Whether the database has such rows at all: one elsewhere has its own.
    pub(crate) fn are_kept(&self) -> bool {
        self.is_kept
    }

    /// What tells that nothing has changed; also whether everybody may everything.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Whether in an epoch everybody may everything that is here.
    #[inline]
    pub(crate) fn are_open(epoch: u64) -> bool {
        epoch == OPEN
    }

    /// Whether whoever shows nothing may use a door that isn't graded.
    ///
    /// # Errors
    /// `permission_denied`; `process_behind` if that isn't known yet.
    pub(crate) fn check_anonymous(&self) -> Result<()> {
        match self.epoch() {
            OPEN | BEHIND => Ok(()),
            UNKNOWN => Err(unknown()),
            _ => Err(Error::permission_denied()
                .with_detail("there are rights, and this door has no way to show whose they are")),
        }
    }

    /// Whether somebody may send points of time series, or ask for them. It is found out once for
    /// each change of rights, and then known.
    ///
    /// # Errors
    /// `permission_denied`; `process_behind` if that isn't known yet.
    #[cfg(feature = "series")]
    pub(crate) fn check_series(
        &self,
        known: &mut Judged,
        writes: bool,
        who: impl FnOnce() -> Identity,
    ) -> Result<()> {
        let epoch = self.epoch();
        match epoch {
            OPEN | BEHIND => return Ok(()),
            UNKNOWN => return Err(unknown()),
            _ => {}
        }
        let coverage = match &known.0 {
            Some((as_of, coverage)) if *as_of == epoch => coverage.clone(),
            _ => {
                let (as_of, coverage) = self.coverage(&who())?;
                known.0 = Some((as_of, coverage.clone()));
                coverage
            }
        };
        coverage.check_series(writes)
    }

    /// Whether there are rights, and they let whoever is at an address send points, or ask.
    #[cfg(feature = "series")]
    pub(crate) fn gives_series(&self, from: IpAddr, writes: bool) -> bool {
        let is_configured = !matches!(self.epoch(), OPEN | BEHIND | UNKNOWN);
        let who = || Identity::at(from);
        is_configured && self.check_series(&mut Judged::default(), writes, who).is_ok()
    }

    /// What somebody may, as of an epoch.
    ///
    /// # Errors
    /// `process_behind` if it isn't known.
    pub(crate) fn coverage(&self, who: &Identity) -> Result<(u64, Arc<Coverage>)> {
        match self.epoch() {
            OPEN => Ok((OPEN, Arc::new(Coverage::everything()))),
            epoch if epoch >= BEHIND && known::is_any(&self.operators, who) => {
                Ok((epoch, Arc::new(Coverage::everything())))
            }
            UNKNOWN | BEHIND => Err(unknown()),
            // The epoch is looked at first: what is known may be newer than that by now, and is
            // judged by again then. The other way round it could be older for good.
            epoch => Ok((epoch, Arc::new(self.known().coverage(who, &self.operators)))),
        }
    }

    /// How many rows there are, as far as is known.
    pub(crate) fn count(&self) -> usize {
        match self.epoch() {
            OPEN | BEHIND | UNKNOWN => 0,
            _ => self.known().found().len(),
        }
    }

    /// What the status document says of them.
    pub(crate) fn status(&self) -> Value {
        let grants = self.known().found().grants().len();
        json!({
            "kept": self.is_kept,
            "configured": !matches!(self.epoch(), OPEN | BEHIND),
            "grants": grants,
        })
    }

    fn known(&self) -> Arc<Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes in what was found; whether it is another than before.
    async fn learn(&self, env: &Env, found: Found) -> bool {
        let (known, before) = (self.known(), self.epoch());
        if *known.found() == found && before < BEHIND {
            return false;
        }
        let is_configured = !found.is_empty();
        if is_configured == known.found().is_empty() || before >= BEHIND {
            self.leave_mark(env, is_configured).await;
        }
        let number = known.number() + 1;
        let next = Arc::new(Known::new(number, found));
        if !is_configured {
            // First: nobody is to be judged by rows that are gone.
            self.epoch.store(OPEN, Ordering::Release);
        }
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = next;
        let epoch = if is_configured { number } else { OPEN };
        self.epoch.store(epoch, Ordering::Release);
        before != epoch
    }

    /// Reads the rows once more, unless nothing has been written since: whether they have changed
    /// what somebody may.
    pub(crate) async fn renew(&self, env: &Env, endpoint: &dyn Endpoint, last: &mut Last) -> bool {
        let newest = endpoint.newest_here().ok();
        if newest.is_some() && newest == last.version && self.epoch() < BEHIND {
            last.at = env.now();
            return false;
        }
        // A disk that hangs is one that can't be read.
        let why = match race(Found::read(endpoint), env.sleep(PATIENCE)).await {
            First::Left(Ok(found)) => {
                *last = Last { at: env.now(), version: newest };
                return self.learn(env, found).await;
            }
            First::Left(Err(why)) => why,
            First::Right(()) => Error::timed_out(),
        };
        // What is known holds for a while, and no longer than a grant may outlive its end.
        if env.now().saturating_sub(last.at) < PATIENCE {
            return false;
        }
        let before = self.epoch();
        let epoch = match before {
            OPEN if why != Error::process_behind() => OPEN,
            OPEN | BEHIND => BEHIND,
            _ => UNKNOWN,
        };
        self.epoch.store(epoch, Ordering::Release);
        before != epoch
    }

    /// The epoch while the rows can't be read, for this reason.
    async fn without_rows(&self, env: &Env, why: &Error) -> u64 {
        let is_marked = match &self.mark {
            Some(mark) => env.files().exists(mark).await.unwrap_or(true),
            None => false,
        };
        if *why == Error::process_behind() {
            return if is_marked { UNKNOWN } else { BEHIND };
        }
        tracing::error!(code = why.code(), error = %why, is_marked, "the rows of rights can't be read");
        if is_marked { UNKNOWN } else { OPEN }
    }

    /// Notes beside the rows whether there are rights, for a start at which they can't be read.
    async fn leave_mark(&self, env: &Env, is_configured: bool) {
        let Some(mark) = &self.mark else { return };
        let files = env.files();
        let done = match (is_configured, files.exists(mark).await.unwrap_or(is_configured)) {
            (true, false) => files.replace(mark, MARK.as_bytes()).await,
            (false, true) => files.remove(mark).await,
            _ => Ok(()),
        };
        if let Err(error) = done {
            tracing::error!(file = %mark.display(), %error, "the mark of rights can't be written");
        }
    }
}

/// What the mark says to people.
const MARK: &str = "This database has rights: see plinth shell, roles.\n";

fn unknown() -> Error {
    Error::process_behind()
        .with_detail("this server has yet to learn who may do what; others may know")
}

/// Somebody as a start option names him: `cert RULE`, `address IP[/BITS]`.
fn subject(text: &str) -> Result<Subject> {
    let (kind, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let wrong = |why: String| Error::invalid_option_value().with_detail(format!("operator: {why}"));
    let subject = Subject::parse(kind, rest.trim()).map_err(wrong)?;
    known::check(&subject).map_err(wrong)?;
    Ok(subject)
}
