//! What whoever is at the other side of a connection may, as of the rights that hold now.
//!
//! It is found out once for each change of them: a request compares two numbers, and where there
//! are no rights only looks at one. What waits at the server is judged anew with each change.

use super::Connection;
use crate::rights::{Guarded, Identity, Rights};
use plinth_client::Endpoint;
use plinth_types::rights::Coverage;
use plinth_types::{Error, Result};
use std::sync::Arc;

/// Who it is, how that one speaks, and what he may.
pub(super) struct Access {
    /// The version of the protocol that was agreed on.
    pub(super) version: u16,
    identity: Identity,
    /// The epoch of rights in which it was judged, and what came of it.
    judged: Option<(u64, Judged)>,
    /// The epoch as of which what waits was judged.
    heeded: u64,
}

struct Judged {
    coverage: Arc<Coverage>,
    endpoint: Arc<dyn Endpoint>,
}

impl Access {
    pub(super) fn of(identity: Identity) -> Self {
        Self { version: 0, identity, judged: None, heeded: 0 }
    }

    /// It has shown this certificate, and proven that it is its own.
    pub(super) fn note_certificate(&mut self, certificate: Option<Vec<u8>>) {
        self.identity.certificate = certificate.map(Arc::from);
        self.judged = None;
    }
}

impl Connection {
    /// The database, as far as whoever asks may use it.
    ///
    /// # Errors
    /// `permission_denied` if that is nothing; `process_behind` while it isn't known.
    #[inline]
    pub(super) fn endpoint(&mut self) -> Result<Arc<dyn Endpoint>> {
        let epoch = self.shared.doors.rights.epoch();
        if Rights::are_open(epoch) {
            return Ok(self.shared.endpoint.clone());
        }
        let judged = self.judged(epoch)?;
        judged.coverage.check_anything()?;
        Ok(judged.endpoint.clone())
    }

    /// What whoever asks may; `None` for everything.
    pub(super) fn coverage(&mut self) -> Result<Option<Arc<Coverage>>> {
        let epoch = self.shared.doors.rights.epoch();
        if Rights::are_open(epoch) {
            return Ok(None);
        }
        let coverage = self.judged(epoch)?.coverage.clone();
        coverage.check_anything()?;
        Ok(Some(coverage).filter(|coverage| !coverage.is_operator()))
    }

    /// Another endpoint than the database, as far as whoever asks may use it.
    pub(super) fn guard(&mut self, endpoint: Arc<dyn Endpoint>) -> Result<Arc<dyn Endpoint>> {
        Ok(match self.coverage()? {
            Some(coverage) => Arc::new(Guarded::new(endpoint, coverage)),
            None => endpoint,
        })
    }

    /// # Errors
    /// `permission_denied` unless an operator asks.
    pub(super) fn check_operator(&mut self) -> Result<()> {
        // As HTTP does, a member that has no rows yet says how far it is.
        if self.shared.doors.rights.check_anonymous().is_ok() {
            return Ok(());
        }
        match self.coverage()? {
            Some(coverage) => coverage.check_operator("what is asked for"),
            None => Ok(()),
        }
    }

    /// # Errors
    /// `permission_denied` if whoever asks may not read a key.
    pub(super) fn check_key(&mut self, key: &[u8]) -> Result<()> {
        self.coverage()?.map_or(Ok(()), |coverage| coverage.check_key(key))
    }

    fn judged(&mut self, epoch: u64) -> Result<&Judged> {
        let is_known = self.access.judged.as_ref().is_some_and(|(known, _)| *known == epoch);
        if !is_known {
            self.access.judged = None;
            let (epoch, coverage) = self.shared.doors.rights.coverage(&self.access.identity)?;
            let below = self.shared.endpoint.clone();
            let endpoint: Arc<dyn Endpoint> = match coverage.is_operator() {
                true => below,
                false => Arc::new(Guarded::new(below, coverage.clone())),
            };
            self.access.judged = Some((epoch, Judged { coverage, endpoint }));
        }
        let judged = self.access.judged.as_ref().map(|(_, judged)| judged);
        judged.ok_or_else(Error::internal_error)
    }

    /// Ends the watches of keys that may not be read any more, if rights have changed.
    pub(super) fn heed_rights(&mut self) {
        let epoch = self.shared.doors.rights.epoch();
        if self.access.heeded == epoch {
            return;
        }
        self.access.heeded = epoch;
        if self.watches.len() == 0 {
            return;
        }
        let denied = || {
            Error::permission_denied().with_detail("the key of this watch may not be read any more")
        };
        let (ended, why) = match self.coverage() {
            Ok(None) => return,
            Ok(Some(coverage)) => {
                (self.watches.of_keys(|key| coverage.check_key(key).is_err()), denied())
            }
            Err(why) => (self.watches.of_keys(|_| true), why),
        };
        for id in ended {
            self.watches.remove(id);
            self.fail(id, &why);
        }
    }
}
