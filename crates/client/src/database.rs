//! A handle on a database: which endpoint, how transactions are to behave, how many watches.
//!
//! It knows of transactions only what they begin with: defaults reach those that are made after
//! they were set. Making and running transactions stands above them, in `transact`.

use crate::endpoint::Endpoint;
use crate::options::{DatabaseOption, Settings, TransactionOption, parameter};
use plinth_env::reply::Reply;
use plinth_types::{Error, Result, limits};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The newest API version whose behaviour this client has, and that handles have unless told
/// otherwise.
pub const API_VERSION: i32 = 730;
/// The oldest API version whose behaviour this client has.
pub const API_VERSION_OLDEST: i32 = 200;

/// A handle on a database, wherever that is: in this process (`plinth::Local` opens one), behind
/// servers (`Database::connect`), behind FoundationDB's C library (`plinth::fdb::open`). Cheap to
/// clone; clones share options and watches.
///
/// ```
/// use plinth_client::{Database, Result};
///
/// /// How often a page was seen, and once more now.
/// fn visit(db: &Database, page: &str) -> Result<u64> {
///     db.transact_blocking(|tr| {
///         let seen = tr.get(page).wait()?.map_or(0, |seen| seen.len() as u64);
///         tr.append_if_fits(page, "|");
///         Ok(seen + 1)
///     })
/// }
/// ```
#[derive(Clone)]
pub struct Database {
    shared: Arc<Shared>,
    api_version: i32,
    /// Whether transactions begin with access to the system's keys.
    is_system: bool,
}

pub(crate) struct Shared {
    endpoint: Arc<dyn Endpoint>,
    may_lose_answers: bool,
    defaults: Mutex<Defaults>,
    /// Whether `defaults` has any, so that a new transaction needn't lock to find none.
    default_count: AtomicUsize,
    snapshot_ryw: AtomicI64,
    max_watches: AtomicUsize,
    watches: AtomicUsize,
}

/// Transaction options that each transaction begins with, in the order in which they were set.
pub(crate) type Defaults = Vec<(i32, Option<Box<[u8]>>)>;

impl Database {
    /// The database behind `endpoint`, with the newest API version's behaviour.
    pub fn new(endpoint: Arc<dyn Endpoint>) -> Self {
        let may_lose_answers = endpoint.may_lose_answers();
        let shared = Shared {
            endpoint,
            may_lose_answers,
            defaults: Mutex::new(Vec::new()),
            default_count: AtomicUsize::new(0),
            snapshot_ryw: AtomicI64::new(0),
            max_watches: AtomicUsize::new(limits::DEFAULT_MAX_WATCHES),
            watches: AtomicUsize::new(0),
        };
        Self { shared: Arc::new(shared), api_version: API_VERSION, is_system: false }
    }

    /// The same database, of which everything is asked with this token
    /// ([`AuthorizationToken`](TransactionOption::AuthorizationToken)): also what no transaction's
    /// option reaches, as its status, streams of changes, tenants that are opened, other clients.
    /// Options of the handle are not taken along. Where nobody looks at tokens nothing changes.
    #[must_use]
    pub fn showing(&self, token: &[u8]) -> Self {
        let endpoint = self.shared.endpoint.showing(token);
        let shown = Self::new(endpoint.unwrap_or_else(|| self.shared.endpoint.clone()));
        Self { shared: shown.shared, ..*self }
    }

    /// The same database (and options) with the behaviour of another API version, as the C
    /// library's users select. Versions outside of what this client knows behave as the nearest
    /// one.
    #[must_use]
    pub fn with_api_version(mut self, version: i32) -> Self {
        self.api_version = version;
        self
    }

    /// The API version whose behaviour transactions of this handle have.
    pub fn api_version(&self) -> i32 {
        self.api_version
    }

    /// What this handle reaches the database through.
    pub fn endpoint(&self) -> &Arc<dyn Endpoint> {
        &self.shared.endpoint
    }

    /// The same database (and options) for whoever keeps rows among the system's keys: transactions
    /// of this handle begin with access to those, at each try.
    #[must_use]
    pub fn with_system_keys(mut self) -> Self {
        self.is_system = true;
        self
    }

    /// The same handle with the newest API version's behaviour, whatever the user has chosen; its
    /// options are the user's.
    pub(crate) fn newest(&self) -> Self {
        Self { shared: self.shared.clone(), api_version: API_VERSION, is_system: false }
    }

    /// Sets an option of this handle, or a default for its transactions.
    ///
    /// # Errors
    /// `invalid_option_value` if the option doesn't take the value.
    pub fn set_option(&self, option: DatabaseOption) -> Result<()> {
        self.set_option_raw(option.code(), option.value().as_bytes())
    }

    /// Sets an option by FoundationDB's code, the value as bytes.
    ///
    /// # Errors
    /// `invalid_option` for an unknown code; `invalid_option_value` if the option doesn't take the
    /// value.
    pub fn set_option_raw(&self, code: i32, value: Option<&[u8]>) -> Result<()> {
        if !DatabaseOption::exists(code) {
            return Err(Error::invalid_option()
                .with_detail(format!("no database option has the code {code}")));
        }
        if let Some(option) = DatabaseOption::default_for(code) {
            if code >= 500 && self.api_version < 610 {
                return Err(Error::invalid_option().with_detail("needs API version 610"));
            }
            Settings::check(option, value, self.endpoint().env())?;
            self.set_default(option, value);
            return Ok(());
        }
        match code {
            10 => parameter::int(value, 0, i32::MAX.into()).map(drop),
            20 => parameter::int(value, 0, 1_000_000)
                .map(|most| self.shared.max_watches.store(most as usize, Ordering::Relaxed)),
            26 | 27 => {
                parameter::none(value)?;
                self.shared
                    .snapshot_ryw
                    .fetch_add(if code == 26 { 1 } else { -1 }, Ordering::Relaxed);
                Ok(())
            }
            800 => parameter::none(value),
            900 => parameter::int(value, 0, 100).map(drop),
            _ => Ok(()),
        }
    }

    fn set_default(&self, option: i32, value: Option<&[u8]>) {
        let mut defaults = self.shared.defaults.lock().unwrap_or_else(PoisonError::into_inner);
        defaults.retain(|(code, _)| *code != option);
        defaults.push((option, value.map(Into::into)));
        self.shared.default_count.store(defaults.len(), Ordering::Release);
    }

    /// The options that a transaction begins with.
    pub(crate) fn defaults(&self) -> Defaults {
        let mut defaults = match self.shared.default_count.load(Ordering::Acquire) {
            0 => Vec::new(),
            _ => self.shared.defaults.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        if self.is_system {
            defaults.push((TransactionOption::AccessSystemKeys.code(), None));
        }
        defaults
    }

    /// The snapshot read-your-writes counter that transactions begin with: 1 since API version 300,
    /// moved by options.
    pub(crate) fn snapshot_ryw(&self) -> i64 {
        self.shared.snapshot_ryw.load(Ordering::Relaxed) + i64::from(self.api_version >= 300)
    }

    pub(crate) fn may_lose_answers(&self) -> bool {
        self.shared.may_lose_answers
    }

    /// Counts a watch in.
    ///
    /// # Errors
    /// `too_many_watches` if there are as many as may be.
    pub(crate) fn begin_watch(&self) -> Result<WatchPermit> {
        let most = self.shared.max_watches.load(Ordering::Relaxed);
        let counted =
            self.shared.watches.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |watches| {
                (watches < most).then_some(watches + 1)
            });
        match counted {
            Ok(_) => Ok(WatchPermit { shared: self.shared.clone() }),
            Err(_) => {
                Err(Error::too_many_watches()
                    .with_detail(format!("{most} watches are outstanding")))
            }
        }
    }

    /// The status document of the database, as JSON.
    pub fn status_json(&self) -> Reply<String> {
        self.shared.endpoint.status_json()
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("api_version", &self.api_version).finish_non_exhaustive()
    }
}

/// A place among a database handle's watches; given back when dropped.
pub(crate) struct WatchPermit {
    shared: Arc<Shared>,
}

impl Drop for WatchPermit {
    fn drop(&mut self) {
        self.shared.watches.fetch_sub(1, Ordering::Relaxed);
    }
}
