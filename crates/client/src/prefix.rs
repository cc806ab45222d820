//! What stands before all keys of a tenant, known or still looked up.

use plinth_env::reply::{Promise, Reply, promise};
use plinth_types::{Bytes, Error, Result};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Stands before keys where no tenant is known, and where no key lies: no operation should come so
/// far.
const NOWHERE: [u8; 8] = [0xff; 8];

/// The prefix of all keys of a tenant, as far as it is known.
#[derive(Default)]
pub(crate) struct TenantPrefix {
    /// The tenant's name, if it may have to be looked up again: with a token that lets it.
    name: Option<Bytes>,
    /// Why whoever looked it up may not know it.
    denied: OnceLock<Error>,
    found: OnceLock<Result<[u8; 8]>>,
    /// Who waits until it has been looked up.
    waiting: Mutex<Vec<Promise<()>>>,
}

impl TenantPrefix {
    /// One that is known.
    pub(crate) fn known(prefix: [u8; 8]) -> Arc<Self> {
        Arc::new(Self { found: OnceLock::from(Ok(prefix)), ..Self::default() })
    }

    /// One of a tenant of this name that is being looked up.
    pub(crate) fn of(name: Bytes) -> Arc<Self> {
        Arc::new(Self { name: Some(name), ..Self::default() })
    }

    /// The name, if it is to be looked up again by whoever has another token.
    pub(crate) fn denied_name(&self) -> Option<&Bytes> {
        self.name.as_ref().filter(|_| self.found.get().is_none() && self.denied.get().is_some())
    }

    pub(crate) fn is_known(&self) -> bool {
        matches!(self.found.get(), Some(Ok(_)))
    }

    /// The prefix; where no key lies, if it isn't known.
    pub(crate) fn prefix(&self) -> &[u8; 8] {
        match self.found.get() {
            Some(Ok(prefix)) => prefix,
            _ => &NOWHERE,
        }
    }

    /// Ready once the prefix is known; fails as looking it up has failed.
    pub(crate) fn looked_up(&self) -> Reply<()> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = self.found.get() {
            return Reply::ready(found.clone().map(drop));
        }
        if let Some(denied) = self.denied.get() {
            return Reply::ready(Err(denied.clone()));
        }
        let (promise, reply) = promise();
        waiting.push(promise);
        reply
    }

    /// Tells those who wait what was found.
    pub(crate) fn tell(&self, found: &Result<[u8; 8]>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Err(why) if *why == Error::permission_denied() && self.name.is_some() => {
                let _ = self.denied.set(why.clone());
            }
            _ => _ = self.found.get_or_init(|| found.clone()),
        }
        let promises = std::mem::take(&mut *waiting);
        drop(waiting);
        for promise in promises {
            promise.send(found.clone().map(drop));
        }
    }
}
