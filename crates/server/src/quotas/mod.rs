//! How much everybody may of what this server gives to all, as the rows of quotas say.
//!
//! ## Role
//! A door asks [`Quotas`] what somebody has to keep to, his [`Dues`], and says what he moved and
//! what he holds. The rows (`plinth_types::quotas`) are read as those of rights are, but less
//! often, from what this process has of the database.
//!
//! ```text
//!   \xff/plinth/quotas/ ──read, every 600 ms──▶ Known ──▶ a connection: Dues of who it is ──▶ wait, charge, enter
//!                                              │               │
//!                                              │               └── Budgets: buckets, counts; shared by all whom a quota means
//!                                              └── epoch: one load tells a request that there is no quota
//! ```
//!
//! ## Invariants
//! 1. Where there is no quota a request costs one load.
//! 2. Whoever is over a rate waits, and nothing of his fails for that; others don't wait for him.
//! 3. What is remembered of people is bounded: beyond [`MOST_USERS`] they share a budget.
//! 4. Each server holds people to what the rows say by itself, whatever they do at others.
//!
//! ## Not here
//! Where requests wait: `connection/dues.rs`. Who somebody is: `rights`. Read next: `budget.rs`,
//! `known.rs`, `met.rs`, `bucket.rs`.

mod bucket;
mod budget;
mod known;
mod met;

pub(crate) use budget::{Bill, Budget, Counted, Dues};
pub(crate) use met::Met;

use crate::crowd::home;
use crate::exposition::write_all;
use crate::rights::{Identity, Locals, PATIENCE, Rights};
use known::{Found, Known, MOST_ROWS};
use plinth_client::Endpoint;
use plinth_env::Env;
use plinth_env::sync::{First, race};
use plinth_types::quotas::Of;
use plinth_types::{Error, Version};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// People who have a budget each by the quota for everybody; more of them share one.
const MOST_USERS: usize = 10_000;
/// Of those how many the status lists, and how many quotas.
const LISTED: [usize; 2] = [20, 100];
/// The epoch in which there is no quota.
const NONE: u64 = 0;

/// What the rows were read as of last.
#[derive(Default)]
pub(crate) struct Last {
    /// No older version than this.
    version: Option<Version>,
    /// Whether it was told that they can't be read.
    is_told: bool,
}

/// Somebody who has no quota of his own.
#[derive(Clone, PartialEq, Eq, Hash)]
enum User {
    /// Whose token it is.
    Token(String),
    Certificate(Arc<[u8]>),
    Address(IpAddr),
    /// All who came when there were too many.
    Others,
}

impl User {
    /// By the best that he shows.
    fn of(who: &Identity) -> Self {
        if let Some(subject) = who.claims.as_ref().and_then(|claims| claims.subject()) {
            return Self::Token(subject.to_owned());
        }
        match &who.certificate {
            Some(certificate) => Self::Certificate(certificate.clone()),
            None => Self::Address(home(who.address)),
        }
    }

    fn told(&self, who: &Identity) -> String {
        match self {
            Self::Token(subject) => format!("* (token sub={subject})"),
            Self::Certificate(_) => format!("* (a certificate, first from {})", who.address),
            Self::Address(address) => format!("* (address {address})"),
            Self::Others => "* (others)".to_owned(),
        }
    }
}

/// What quotas have come to since the start. Relaxed: the numbers order nothing.
#[derive(Default)]
struct Totals {
    /// Requests that waited, reads and commits.
    delayed: [AtomicU64; 2],
    /// Connections, watches and snapshots that were refused.
    refused: [AtomicU64; 3],
}

/// What a server knows of quotas.
pub(crate) struct Quotas {
    env: Env,
    /// [`NONE`], or the number of what is known.
    epoch: AtomicU64,
    known: RwLock<Arc<Known>>,
    /// Budgets of those who have no quota of their own.
    users: Mutex<HashMap<User, Arc<Budget>>>,
    /// Whether the database has such rows at all.
    is_kept: bool,
    totals: Totals,
    /// Bytes of all requests that wait.
    held: Arc<AtomicUsize>,
}

impl Quotas {
    /// Reads the rows of the database behind an endpoint, if it has any in this process.
    pub(crate) async fn open(env: &Env, endpoint: &dyn Endpoint, users: &Arc<Locals>) -> Arc<Self> {
        let quotas = Self {
            env: env.clone(),
            epoch: AtomicU64::new(NONE),
            known: RwLock::default(),
            users: Mutex::default(),
            is_kept: endpoint.newest_here() != Err(Error::unsupported_operation()),
            totals: Totals::default(),
            held: Arc::default(),
        };
        quotas.renew(endpoint, &mut Last::default(), users).await;
        Arc::new(quotas)
    }

    /// Whether there are any.
    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        self.epoch() != NONE
    }

    /// What tells that nothing has changed.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    fn known(&self) -> Arc<Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn users(&self) -> MutexGuard<'_, HashMap<User, Arc<Budget>>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the rows once more, unless nothing has been written since: whether they are others.
    pub(crate) async fn renew(
        &self,
        endpoint: &dyn Endpoint,
        last: &mut Last,
        users: &Arc<Locals>,
    ) -> bool {
        if !self.is_kept {
            return false;
        }
        self.forget_rested();
        let newest = endpoint.newest_here().ok();
        if newest.is_some() && newest == last.version {
            return false;
        }
        let why = match race(Found::read(endpoint), self.env.sleep(PATIENCE)).await {
            First::Left(Ok(found)) => {
                *last = Last { version: newest, is_told: false };
                if found.names_users() {
                    users.need().await;
                }
                return self.learn(found);
            }
            First::Left(Err(why)) => why,
            First::Right(()) => Error::timed_out(),
        };
        // What is known holds on: nobody is let in by it.
        if why != Error::process_behind() && !std::mem::replace(&mut last.is_told, true) {
            tracing::error!(code = why.code(), error = %why, "the rows of quotas can't be read");
        }
        false
    }

    /// Takes in what was found; whether it is another than before.
    fn learn(&self, found: Found) -> bool {
        let known = self.known();
        if known.found == found {
            return false;
        }
        if found.unreadable > known.found.unreadable || (found.has_more && !known.found.has_more) {
            let (unreadable, has_more) = (found.unreadable, found.has_more);
            tracing::warn!(
                unreadable,
                has_more,
                "quotas bound nobody whose rows can't be read, or stand behind the first thousand"
            );
        }
        let is_empty = found.is_empty();
        let now = self.env.now();
        let next = Arc::new(known.next(found, now));
        let epoch = if is_empty { NONE } else { next.number };
        // First: whoever comes meanwhile is among those whose bounds are set then.
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = next.clone();
        match &next.each {
            Some(bounds) => self.users().values().for_each(|budget| budget.set(bounds, now)),
            None => self.users().clear(),
        }
        self.epoch.store(epoch, Ordering::Release);
        true
    }

    /// Lets go of what nobody has, and nobody would miss.
    fn forget_rested(&self) {
        let now = self.env.now();
        self.users().retain(|_, budget| Arc::strong_count(budget) > 1 || !budget.is_rested(now));
    }

    /// What somebody has to keep to.
    pub(crate) fn dues(&self, rights: &Rights, who: &Identity) -> Dues {
        let known = self.known();
        let mut own = known.of(who);
        // A backup, say, reads all of a tenant's keys, and nobody of that tenant's waits for it.
        if rights.is_operator(who) {
            return Dues::new(own, Arc::default(), &self.held);
        }
        if own.is_empty() && known.each.is_some() {
            own.extend(self.budget_of(who));
        }
        Dues::new(own, known.tenants.clone(), &self.held)
    }

    /// The budget that somebody has by the quota for everybody.
    fn budget_of(&self, who: &Identity) -> Option<Arc<Budget>> {
        let mut users = self.users();
        let bounds = self.known().each?;
        let is_full = users.len() >= MOST_USERS;
        let mut user = User::of(who);
        if is_full && !users.contains_key(&user) {
            user = User::Others;
        }
        Some(match users.entry(user) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(none) => {
                let told = none.key().told(who);
                none.insert(Budget::new(told, &bounds, self.env.now())).clone()
            }
        })
    }

    /// A request waits.
    pub(crate) fn note_delayed(&self, of: Of) {
        self.totals.delayed[of as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Something that is counted was refused.
    pub(crate) fn note_refused(&self, of: Of) {
        let refused = &self.totals.refused[of as usize - self.totals.delayed.len()];
        refused.fetch_add(1, Ordering::Relaxed);
    }

    fn numbers(&self) -> ([u64; 2], [u64; 3]) {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        (self.totals.delayed.each_ref().map(load), self.totals.refused.each_ref().map(load))
    }

    /// What the status document says of them.
    pub(crate) fn status(&self) -> Value {
        let (known, now) = (self.known(), self.env.now());
        let ([reads, commits], [connections, watches, snapshots]) = self.numbers();
        let [most_users, most] = LISTED;
        let mut budgets: Vec<_> = known.budgets().take(most).cloned().collect();
        let users = self.users().values().cloned().collect::<Vec<_>>();
        let (waited_for, others): (Vec<_>, Vec<_>) =
            users.iter().partition(|user| user.is_waited_for());
        let listed = waited_for.iter().chain(&others).take(most_users);
        budgets.extend(listed.map(|budget| (*budget).clone()));
        json!({
            "kept": self.is_kept,
            "count": known.found.len(),
            "count_max": MOST_ROWS,
            "has_more": known.found.has_more,
            "unreadable": known.found.unreadable,
            "each": known.each.map(|bounds| bounds.to_string()),
            "users": users.len(),
            "reads_delayed": reads,
            "commits_delayed": commits,
            "connections_refused": connections,
            "watches_refused": watches,
            "snapshots_refused": snapshots,
            "budgets": budgets.iter().map(|budget| budget.status(now)).collect::<Vec<_>>(),
        })
    }

    /// What `/metrics` says of them.
    pub(crate) fn metrics(&self, text: &mut String) {
        let ([reads, commits], [connections, watches, snapshots]) = self.numbers();
        let known = self.known();
        let waited_for = known.budgets().filter(|budget| budget.is_waited_for()).count()
            + self.users().values().filter(|budget| budget.is_waited_for()).count();
        let counter = "counter";
        let numbers = [
            ("quotas", "gauge", "Quotas that are set.", known.found.len() as u64),
            ("quotas_waited_for", "gauge", "Those whose requests wait.", waited_for as u64),
            ("quota_reads_delayed_total", counter, "Reads that waited for a quota.", reads),
            ("quota_commits_delayed_total", counter, "Commits that waited for one.", commits),
            (
                "quota_connections_refused_total",
                counter,
                "Connections beyond a quota.",
                connections,
            ),
            ("quota_watches_refused_total", counter, "Watches beyond a quota.", watches),
            ("quota_snapshots_refused_total", counter, "Snapshots beyond a quota.", snapshots),
        ];
        write_all(text, "server", &numbers);
    }
}
