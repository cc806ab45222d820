//! The endpoint that a transaction asks while it shows a token.
//!
//! The option `authorization_token` sets it, for this try and, as FoundationDB has it, for those
//! that follow; a reset takes it away, so that a transaction that is used again shows nothing of
//! whoever had it before.

use super::{Inner, Transaction};
use crate::endpoint::Endpoint;
use crate::prefix::TenantPrefix;
use plinth_env::reply::{Reply, promise};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An endpoint that shows a token, if there is one.
#[derive(Default)]
pub(super) struct Shown {
    /// Whether there is one: mostly there is none, and then nothing else is looked at.
    is_there: AtomicBool,
    endpoint: Mutex<Option<Arc<dyn Endpoint>>>,
}

/// What a transaction asks.
pub(crate) enum Asked<'a> {
    /// The database's endpoint.
    Plain(&'a (dyn Endpoint + 'static)),
    /// One that shows a token.
    Showing(Arc<dyn Endpoint>),
}

impl Deref for Asked<'_> {
    type Target = dyn Endpoint;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Plain(endpoint) => *endpoint,
            Self::Showing(endpoint) => &**endpoint,
        }
    }
}

impl Transaction {
    /// Asks this endpoint in place of the database's, in this try.
    pub(crate) fn ask_of(&self, endpoint: Option<Arc<dyn Endpoint>>) {
        self.inner.shown.set(endpoint);
    }
}

impl Inner {
    /// Ready once the tenant is known, or fails because there is none; `None` if nothing needs to
    /// be waited for. Who may not know it without a token looks it up again with one.
    #[inline]
    pub(super) fn tenant_known(&self) -> Option<Reply<()>> {
        let tenant = self.tenant.as_ref().filter(|tenant| !tenant.is_known())?;
        match self.shown.get() {
            None => Some(tenant.looked_up()),
            Some(endpoint) => Some(self.tenant_told(tenant, endpoint)),
        }
    }

    #[cold]
    fn tenant_told(&self, tenant: &Arc<TenantPrefix>, endpoint: Arc<dyn Endpoint>) -> Reply<()> {
        let (done, reply) = promise();
        let (database, theirs) = (self.database.clone(), tenant.clone());
        tenant.looked_up().on_complete(move |known| {
            let Some(name) = theirs.denied_name().cloned() else {
                // Somebody else's token may have told it meanwhile.
                return match theirs.is_known() {
                    true => theirs.looked_up().on_complete(|known| done.send(known)),
                    false => done.send(known),
                };
            };
            database.look_up_tenant(&name, Some(endpoint)).on_complete(move |found| {
                theirs.tell(&found);
                done.send(found.map(drop));
            });
        });
        reply
    }
}

impl Shown {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<dyn Endpoint>>> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the place of what was shown before.
    pub(super) fn set(&self, endpoint: Option<Arc<dyn Endpoint>>) {
        self.is_there.store(endpoint.is_some(), Ordering::Release);
        let before = std::mem::replace(&mut *self.lock(), endpoint);
        drop(before);
    }

    #[inline]
    pub(super) fn get(&self) -> Option<Arc<dyn Endpoint>> {
        if self.is_there.load(Ordering::Acquire) { self.lock().clone() } else { None }
    }
}
