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
//!    elsewhere; until it has heard from the others of its cluster whether there are rights it says
//!    how it is itself and takes points, and nothing else.
//! 4. A grant that was taken back gives nothing a second later.
//!
//! ## Not here
//! What a grant covers: `plinth_types::rights::coverage`. When rows are read: `renewal.rs`. Read
//! next: `guarded.rs`, `token.rs`, `tokens.rs`, `locals.rs`.

mod guarded;
mod known;
mod locals;
mod remembered;
mod token;
mod tokens;

pub(crate) use guarded::{Guarded, refuses_range, refuses_selector};
pub(crate) use known::{Meant, tenant_prefix};
pub(crate) use locals::{Local, Locals};
pub(crate) use token::{Claims, fulfils as token_fulfils};
pub(crate) use tokens::Allowance;

use crate::config::RightsConfig;
use known::{Found, Known};
use plinth_client::Endpoint;
use plinth_env::sync::{First, race};
use plinth_env::{Env, Stream};
#[cfg(feature = "series")]
use plinth_types::MetricSet;
use plinth_types::rights::{Coverage, Subject};
use plinth_types::{Bytes, Error, Result, Version};
use remembered::Remembered;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use tokens::Tokens;

/// For how long what was known holds while the rows can't be read.
pub(crate) const PATIENCE: Duration = Duration::from_millis(600);

/// After which nobody is judged by what was known: the rows are read several times in it, unless
/// nothing is done at all.
const STALE: Duration = Duration::from_secs(3);
/// Tenants that tokens name, and that are looked for, at most.
const MOST_WANTED: usize = 10_000;

/// The epoch in which everybody may everything: there is no row.
const OPEN: u64 = 0;
/// There are no rows here, of whatever kind: this member has yet to take them from others, and to
/// hear from them whether there are rights.
const ALONE: u64 = u64::MAX - 2;
/// The same, and as far as the others know there are none.
const BEHIND: u64 = u64::MAX - 1;
/// The one in which nobody knows.
const UNKNOWN: u64 = u64::MAX;

/// What the rows were read as of last.
#[derive(Default)]
pub(crate) struct Last {
    /// No older version than this.
    version: Option<Version>,
    /// Whether it was told that they can't be read.
    is_told: bool,
}

/// What a server knows of rights.
pub(crate) struct Rights {
    env: Env,
    /// [`OPEN`], [`ALONE`], [`BEHIND`], [`UNKNOWN`], or the number of what is known.
    epoch: AtomicU64,
    known: RwLock<Arc<Known>>,
    /// Those who are operators whatever the rows say.
    operators: Vec<Subject>,
    /// Whether the database has such rows at all.
    is_kept: bool,
    /// Whether there are others of its cluster who can be asked.
    has_others: bool,
    /// The mark of a database that has rights.
    mark: Option<PathBuf>,
    /// Whether it is not as it should be.
    is_unmarked: AtomicBool,
    /// When the rows were read last, or would have been the same, in milliseconds of the clock.
    heard_at: AtomicU64,
    locals: Arc<Locals>,
    /// Without them nobody looks at tokens.
    tokens: Option<Tokens>,
    wanted: Wanted,
}

/// Names of tenants that tokens have, and whether some have yet to be looked for.
struct Wanted {
    names: Mutex<Remembered<Bytes, ()>>,
    is_any: AtomicBool,
}

/// Who somebody at a door is, as far as it was shown.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) address: IpAddr,
    /// What was proven: DER.
    pub(crate) certificate: Option<Arc<[u8]>>,
    /// Those of a token that was believed.
    pub(crate) claims: Option<Arc<Claims>>,
    /// Over loopback.
    pub(crate) local: Option<Arc<Local>>,
}

impl Identity {
    /// Somebody of whom only the address is known.
    pub(crate) fn at(address: IpAddr) -> Self {
        Self { address, certificate: None, claims: None, local: None }
    }

    /// Which user of this machine it is, if that was looked up.
    pub(crate) fn user(&self) -> Option<String> {
        self.local.as_ref()?.user().map(ToString::to_string)
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
    /// `invalid_option_value` if an operator is named that can't be, or there is no set of keys
    /// where one is to be; those of reading it.
    pub(crate) async fn open(
        env: &Env,
        endpoint: &dyn Endpoint,
        config: &RightsConfig,
        has_others: bool,
    ) -> Result<Arc<Self>> {
        let operators = config.operators.iter().map(|text| subject(text));
        let operators = operators.collect::<Result<Vec<_>>>()?;
        let locals = Arc::new(Locals::open(env).await);
        if operators.iter().any(is_user) {
            locals.need().await;
        }
        let tokens = match &config.token_keys {
            Some(file) => Some(Tokens::open(env, file).await?),
            None => None,
        };
        let is_kept = endpoint.newest_here() != Err(Error::unsupported_operation());
        let rights = Self {
            env: env.clone(),
            epoch: AtomicU64::new(OPEN),
            known: RwLock::default(),
            operators,
            is_kept,
            has_others,
            mark: config.mark.clone(),
            is_unmarked: AtomicBool::new(false),
            heard_at: AtomicU64::new(0),
            locals,
            tokens,
            wanted: Wanted {
                names: Mutex::new(Remembered::new(MOST_WANTED)),
                is_any: AtomicBool::new(false),
            },
        };
        rights.heard();
        if is_kept {
            match Found::read(endpoint, []).await {
                Ok(found) => {
                    rights.leave_mark(!found.is_empty()).await;
                    rights.learn(found).await;
                }
                Err(why) => {
                    let epoch = rights.without_rows(&why).await;
                    rights.epoch.store(epoch, Ordering::Release);
                }
            }
        }
        Ok(Arc::new(rights))
    }

    /// Who has just connected, by what a connection shows from its first moment.
    pub(crate) fn meet(&self, stream: &Stream) -> Identity {
        let local = self.locals.meet(stream);
        Identity { local, ..Identity::at(stream.peer_address().ip()) }
    }

    /// Whether it has to be looked up which user of this machine somebody is.
    pub(crate) fn misses(&self, who: &Identity) -> bool {
        self.locals.is_missing(who.local.as_ref())
    }

    /// Looks that up, if it has to be.
    pub(crate) async fn settle(&self, who: &Identity) {
        if self.misses(who) {
            self.locals.look().await;
        }
    }

    /// Who are the users of this machine.
    pub(crate) fn locals(&self) -> &Arc<Locals> {
        &self.locals
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

    /// Whether everybody may everything that is here, as far as is known.
    pub(crate) fn give_everything(&self) -> bool {
        matches!(self.epoch(), OPEN | BEHIND)
    }

    /// Whether there are rights, and it is known which.
    pub(crate) fn are_known(&self) -> bool {
        !matches!(self.epoch(), OPEN | ALONE | BEHIND | UNKNOWN)
    }

    /// Whether this member has no rows yet, and hasn't heard from others whether there are rights.
    pub(crate) fn is_alone(&self) -> bool {
        self.epoch() == ALONE
    }

    /// Whether this member has no rows yet, as far as is known.
    #[cfg(feature = "series")]
    pub(crate) fn has_no_rows(&self) -> bool {
        matches!(self.epoch(), ALONE | BEHIND)
    }

    /// What the others of its cluster say while this member has no rows: whether there are rights.
    /// Nobody is let in then before it knows which. Gives whether that changes anything.
    #[cfg(feature = "series")]
    pub(crate) fn hear(&self, are_there: bool) -> bool {
        let next = if are_there { UNKNOWN } else { BEHIND };
        let before = self.epoch.load(Ordering::Acquire);
        let is_meant = matches!(before, ALONE | BEHIND) && before != next;
        let swap =
            |from| self.epoch.compare_exchange(from, next, Ordering::AcqRel, Ordering::Acquire);
        is_meant && swap(before).is_ok()
    }

    /// Whether in an epoch everybody may everything that is here.
    #[inline]
    pub(crate) fn are_open(epoch: u64) -> bool {
        epoch == OPEN
    }

    /// Whether somebody may use a door that is for operators, where there are rights: by where he
    /// is, or by a token.
    ///
    /// # Errors
    /// `permission_denied`; `process_behind` if that isn't known yet.
    pub(crate) fn check_operator(&self, from: &Identity, token: Option<&str>) -> Result<()> {
        if self.give_everything() {
            return Ok(());
        }
        self.check_fresh()?;
        self.coverage(&self.identity(from, token)?)?.1.check_operator("this")
    }

    /// Who somebody is, by where he comes from and a token.
    ///
    /// # Errors
    /// `permission_denied` for a token that isn't believed.
    pub(crate) fn identity(&self, from: &Identity, token: Option<&str>) -> Result<Identity> {
        let token = token.unwrap_or_default().as_bytes();
        Ok(Identity { claims: self.claims(token, &mut Allowance::default())?, ..from.clone() })
    }

    /// What a token says, if there is one and anybody looks at it.
    ///
    /// # Errors
    /// `permission_denied`, with why it isn't believed; `tag_throttled`.
    pub(crate) fn claims(
        &self,
        token: &[u8],
        allowance: &mut Allowance,
    ) -> Result<Option<Arc<Claims>>> {
        let tokens = self.tokens.as_ref().filter(|_| !token.is_empty());
        tokens.map(|tokens| tokens.believe(&self.env, token, allowance)).transpose()
    }

    /// Whether somebody may send points of time series, or ask for them, and of which metrics;
    /// `None` for all. It is found out once for each change of rights, and then known.
    ///
    /// # Errors
    /// `permission_denied`; `process_behind` if that isn't known yet; those of `who`.
    #[cfg(feature = "series")]
    pub(crate) fn check_series(
        &self,
        known: &mut Judged,
        writes: bool,
        who: impl FnOnce() -> Result<Identity>,
    ) -> Result<Option<Arc<MetricSet>>> {
        let epoch = self.epoch();
        match epoch {
            OPEN | BEHIND => return Ok(None),
            // Points are taken before there is a majority, and others would be asked in no time
            // where there is one.
            ALONE if writes => return Ok(None),
            _ => self.check_fresh()?,
        }
        let coverage = match &known.0 {
            Some((as_of, coverage)) if *as_of == epoch => coverage.clone(),
            _ => {
                let (as_of, coverage) = self.coverage(&who()?)?;
                known.0 = Some((as_of, coverage.clone()));
                coverage
            }
        };
        coverage.check_series(writes)
    }

    /// The same of somebody who may show a token.
    ///
    /// # Errors
    /// Also `permission_denied` for a token that isn't believed.
    #[cfg(feature = "series")]
    pub(crate) fn check_series_of(
        &self,
        from: &Identity,
        token: Option<&str>,
        writes: bool,
    ) -> Result<Option<Arc<MetricSet>>> {
        self.check_series(&mut Judged::default(), writes, || self.identity(from, token))
    }

    /// What somebody may, as of an epoch.
    ///
    /// # Errors
    /// `process_behind` if it isn't known; `tag_throttled` until tenants have been looked for.
    pub(crate) fn coverage(&self, who: &Identity) -> Result<(u64, Arc<Coverage>)> {
        if self.misses(who) && self.epoch() != OPEN {
            self.locals.note_missed();
            return Err(later("it is looked up which user of this machine asks"));
        }
        match self.epoch() {
            OPEN => Ok((OPEN, Arc::new(Coverage::everything()))),
            epoch if epoch >= ALONE && known::is_any(&self.operators, who) => {
                Ok((epoch, Arc::new(Coverage::everything())))
            }
            ALONE | BEHIND | UNKNOWN => Err(unknown()),
            // The epoch is looked at first: what is known may be newer than that by now, and is
            // judged by again then. The other way round it could be older for good.
            epoch => match self.known().coverage(who, &self.operators) {
                Ok(coverage) => Ok((epoch, Arc::new(coverage))),
                Err(tenants) => {
                    let mut wanted = lock(&self.wanted.names);
                    tenants.into_iter().for_each(|tenant| wanted.insert(tenant, ()));
                    self.wanted.is_any.store(true, Ordering::Release);
                    Err(later("the tenants that the token names are looked for"))
                }
            },
        }
    }

    /// Whether a row, or this server's own settings, make somebody an operator, be there rights or
    /// not.
    pub(crate) fn is_operator(&self, who: &Identity) -> bool {
        let by_row = || self.coverage(who).is_ok_and(|(_, coverage)| coverage.is_operator());
        known::is_any(&self.operators, who) || self.are_known() && by_row()
    }

    /// How many rows there are, as far as is known.
    pub(crate) fn count(&self) -> usize {
        match self.epoch() {
            OPEN | ALONE | BEHIND | UNKNOWN => 0,
            _ => self.known().found().len(),
        }
    }

    /// What the status document says of them, where clients are asked for certificates or aren't.
    pub(crate) fn status(&self, asks_clients: bool) -> Value {
        let grants = self.known().found().grants().len();
        json!({
            "kept": self.is_kept,
            "configured": !matches!(self.epoch(), OPEN | ALONE | BEHIND),
            "grants": grants,
            "certificates": asks_clients,
            "tokens": self.reads_tokens(),
            "users": self.locals.are_told(),
        })
    }

    /// Whether tokens are looked at.
    pub(crate) fn reads_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Looks for other keys of tokens, and which have expired. Gives whether somebody may something
    /// else by that: then everybody is judged anew, by the same rows.
    pub(crate) async fn renew_tokens(&self) -> bool {
        let Some(tokens) = &self.tokens else { return false };
        if !tokens.renew(&self.env).await || !self.are_known() {
            return false;
        }
        let known = self.known();
        let number = known.number() + 1;
        self.take_in(Arc::new(Known::new(number, known.found().clone())));
        self.epoch.store(number, Ordering::Release);
        true
    }

    fn take_in(&self, known: Arc<Known>) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
    }

    fn known(&self) -> Arc<Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes in what was found; whether it is another than before.
    async fn learn(&self, found: Found) -> bool {
        let (known, before) = (self.known(), self.epoch());
        if *known.found() == found && before < ALONE {
            return false;
        }
        let is_configured = !found.is_empty();
        if is_configured == known.found().is_empty() || before >= ALONE {
            self.leave_mark(is_configured).await;
        }
        if found.grants().iter().any(|grant| is_user(&grant.subject)) {
            self.locals.need().await;
        }
        let number = known.number() + 1;
        let next = Arc::new(Known::new(number, found));
        if !is_configured {
            // First: nobody is to be judged by rows that are gone.
            self.epoch.store(OPEN, Ordering::Release);
        }
        self.take_in(next);
        let epoch = if is_configured { number } else { OPEN };
        self.epoch.store(epoch, Ordering::Release);
        before != epoch
    }

    /// Reads the rows once more, unless nothing has been written since: whether they have changed
    /// what somebody may.
    pub(crate) async fn renew(&self, endpoint: &dyn Endpoint, last: &mut Last) -> bool {
        if self.is_unmarked.load(Ordering::Relaxed) && self.epoch() < ALONE {
            self.leave_mark(self.are_known()).await;
        }
        if self.locals.are_missed() {
            self.locals.need().await;
        }
        let newest = endpoint.newest_here().ok();
        let is_wanted = self.wanted.is_any.swap(false, Ordering::AcqRel);
        if newest.is_some() && newest == last.version && self.epoch() < ALONE && !is_wanted {
            self.heard();
            return false;
        }
        let names: Vec<_> = lock(&self.wanted.names).keys().cloned().collect();
        // A disk that hangs is one that can't be read.
        let why = match race(Found::read(endpoint, names), self.env.sleep(PATIENCE)).await {
            First::Left(Ok(found)) => {
                *last = Last { version: newest, is_told: false };
                self.heard();
                return self.learn(found).await;
            }
            First::Left(Err(why)) => why,
            First::Right(()) => Error::timed_out(),
        };
        self.wanted.is_any.fetch_or(is_wanted, Ordering::AcqRel);
        // What is known holds for a while, and no longer than a grant may outlive its end.
        if self.silence() < PATIENCE {
            return false;
        }
        if why != Error::process_behind() && !std::mem::replace(&mut last.is_told, true) {
            tracing::error!(code = why.code(), error = %why, is_open = self.epoch() == OPEN, "the rows of rights can't be read");
        }
        let before = self.epoch();
        let epoch = match before {
            OPEN if why != Error::process_behind() => OPEN,
            OPEN => self.without_any(),
            ALONE | BEHIND => before,
            _ => UNKNOWN,
        };
        self.epoch.store(epoch, Ordering::Release);
        before != epoch
    }

    fn heard(&self) {
        self.heard_at.store(milliseconds(self.env.now()), Ordering::Release);
    }

    /// For how long the rows haven't been read.
    fn silence(&self) -> Duration {
        let heard = self.heard_at.load(Ordering::Acquire);
        Duration::from_millis(milliseconds(self.env.now()).saturating_sub(heard))
    }

    /// Whether what is known, if it is, is new enough to judge by. If this process stood still it
    /// may have data that are newer.
    ///
    /// # Errors
    /// `process_behind` if it isn't.
    #[inline]
    pub(crate) fn check_fresh(&self) -> Result<()> {
        if self.are_known() && self.silence() > STALE { Err(unknown()) } else { Ok(()) }
    }

    /// The epoch of a member that has no rows yet, and no mark.
    fn without_any(&self) -> u64 {
        if self.has_others { ALONE } else { BEHIND }
    }

    /// The epoch while the rows can't be read, for this reason.
    async fn without_rows(&self, why: &Error) -> u64 {
        let is_marked = match &self.mark {
            Some(mark) => self.env.files().exists(mark).await.unwrap_or(true),
            None => false,
        };
        if *why == Error::process_behind() {
            return if is_marked { UNKNOWN } else { self.without_any() };
        }
        tracing::error!(code = why.code(), error = %why, is_marked, "the rows of rights can't be read");
        if is_marked { UNKNOWN } else { OPEN }
    }

    /// Notes beside the rows whether there are rights, for a start at which they can't be read.
    async fn leave_mark(&self, is_configured: bool) {
        let Some(mark) = &self.mark else { return };
        let files = self.env.files();
        let done = match (is_configured, files.exists(mark).await.unwrap_or(is_configured)) {
            (true, false) => files.replace(mark, MARK.as_bytes()).await,
            (false, true) => files.remove(mark).await,
            _ => Ok(()),
        };
        let was_unmarked = self.is_unmarked.swap(done.is_err(), Ordering::Relaxed);
        if let Some(error) = done.err().filter(|_| !was_unmarked) {
            tracing::error!(file = %mark.display(), %error, "the mark of rights can't be written: it is tried again");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What the mark says to people.
const MARK: &str = "This database has rights: see plinth shell, roles.\n";

/// It is known soon, here as elsewhere.
fn later(why: &str) -> Error {
    Error::tag_throttled().with_detail(why)
}

fn unknown() -> Error {
    Error::process_behind()
        .with_detail("this server has yet to learn who may do what; others may know")
}

fn is_user(subject: &Subject) -> bool {
    matches!(subject, Subject::User(_))
}

/// Somebody as a start option names him: `cert RULE`, `address IP[/BITS]`, `user NAME`.
fn subject(text: &str) -> Result<Subject> {
    let (kind, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let wrong = |why: String| Error::invalid_option_value().with_detail(format!("operator: {why}"));
    let subject = Subject::parse(kind, rest.trim()).map_err(wrong)?;
    known::check(&subject).map_err(wrong)?;
    Ok(subject)
}
