//! What whoever is at the other side of a connection may, as of the rights that hold now.
//!
//! It is found out once for each change of them: a request compares two numbers, and where there
//! are no rights only looks at one. What waits at the server is judged anew with each change.

use super::Connection;
use super::dues::Keeping;
use crate::rights::{
    Allowance, Claims, Guarded, Identity, Rights, refuses_range, refuses_selector,
};
use plinth_client::Endpoint;
use plinth_env::Env;
use plinth_proto::Request;
use plinth_types::rights::Coverage;
use plinth_types::{Bytes, Error, KeyList, Result, system};
use std::collections::VecDeque;
use std::sync::Arc;

/// Tokens for which it is remembered what came of them: clients work for several people in turns.
const REMEMBERED: usize = 4;

/// Who it is, how that one speaks, and what he may.
pub(super) struct Access {
    /// The version of the protocol that was agreed on.
    pub(super) version: u16,
    identity: Identity,
    /// The token that was shown last; empty if none was.
    token: Bytes,
    /// What came of the judgement for a token, the last one first.
    judged: VecDeque<Judged>,
    allowance: Allowance,
    /// The epoch as of which what waits was judged.
    heeded: u64,
    /// What it has to keep to.
    pub(super) dues: Keeping,
}

struct Judged {
    token: Bytes,
    /// As of which epoch of rights.
    epoch: u64,
    /// Seconds since 1970 at which the token ends.
    until: u64,
    claims: Option<Arc<Claims>>,
    coverage: Arc<Coverage>,
    endpoint: Arc<dyn Endpoint>,
}

impl Judged {
    fn holds(&self, epoch: u64, env: &Env) -> bool {
        self.epoch == epoch && (self.until == u64::MAX || env.wall_clock().as_secs() < self.until)
    }
}

impl Access {
    pub(super) fn of(identity: Identity) -> Self {
        let (token, judged) = (Bytes::new(), VecDeque::new());
        let allowance = Allowance::default();
        let dues = Keeping::default();
        Self { version: 0, identity, token, judged, allowance, heeded: 0, dues }
    }

    /// It has shown this certificate, and proven that it is its own.
    pub(super) fn note_certificate(&mut self, certificate: Option<Vec<u8>>) {
        self.identity.certificate = certificate.map(Arc::from);
        self.judged.clear();
    }

    /// It shows a token, for what it asks from now on; an empty one for none.
    pub(super) fn show(&mut self, token: Bytes) {
        self.token = token;
    }

    /// Whoever shows this token, if that is believed; and whether that could be judged.
    pub(super) fn identity_of(&mut self, rights: &Rights, token: &Bytes) -> (Identity, bool) {
        let claims = rights.claims(token, &mut self.allowance);
        let is_judged = claims.is_ok();
        (Identity { claims: claims.ok().flatten(), ..self.identity.clone() }, is_judged)
    }

    /// The token that was shown.
    pub(super) fn shown(&self) -> &Bytes {
        &self.token
    }

    /// Which user of this machine it is, if that was looked up.
    pub(super) fn user(&self) -> Option<String> {
        self.identity.user()
    }

    /// Whose token it was that was shown, if it says so and was judged.
    pub(super) fn subject(&self) -> Option<&str> {
        let judged = self.judged.front().filter(|judged| judged.token == self.token)?;
        judged.claims.as_ref()?.subject()
    }
}

/// Whether somebody who may this much is refused what `Guarded` refuses at once.
fn refuses(coverage: &Coverage, request: &Request) -> bool {
    let may_not_read = |keys: &KeyList| keys.iter().any(|key| coverage.check_key(key).is_err());
    match request {
        // Some of those may be told all the same.
        Request::GetMany { keys, .. } => {
            may_not_read(keys) && !keys.iter().all(|key| key.starts_with(system::TENANT_NAMES))
        }
        Request::GetNewest { keys, .. } => may_not_read(keys),
        Request::GetKey { space, selector, .. } => refuses_selector(coverage, *space, selector),
        Request::GetRange { space, read, .. } => refuses_range(coverage, *space, read),
        Request::InSnapshot { read, .. } => refuses(coverage, read),
        Request::SplitPoints { range, .. } => {
            coverage.check_range(&range.begin, &range.end).is_err()
        }
        Request::Commit(commit) => coverage.check_commit(commit).is_err(),
        Request::Changes(_) => !coverage.is_operator(),
        _ => false,
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
        if self.shared.doors.rights.give_everything() {
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

    /// Whether a request would be refused, whatever the database has.
    pub(super) fn is_refused(&mut self, request: &Request) -> bool {
        match self.coverage() {
            Ok(None) => false,
            Ok(Some(coverage)) => refuses(&coverage, request),
            Err(_) => true,
        }
    }

    fn judged(&mut self, epoch: u64) -> Result<&Judged> {
        self.shared.doors.rights.check_fresh()?;
        let (access, env) = (&mut self.access, &self.shared.env);
        let known = access.judged.iter().position(|known| known.token == access.token);
        let is_known = known.is_some_and(|at| access.judged[at].holds(epoch, env));
        match known {
            Some(0) if is_known => {}
            Some(at) => {
                let judged = access.judged.remove(at);
                if let Some(judged) = judged.filter(|_| is_known) {
                    access.judged.push_front(judged);
                }
            }
            None => {}
        }
        if !is_known {
            let judged = self.judge()?;
            self.access.judged.truncate(REMEMBERED - 1);
            self.access.judged.push_front(judged);
        }
        self.access.judged.front().ok_or_else(Error::internal_error)
    }

    /// Finds out what whoever asks may.
    fn judge(&mut self) -> Result<Judged> {
        let Self { access, shared, .. } = self;
        let (rights, token) = (&shared.doors.rights, access.token.clone());
        let claims = rights.claims(&token, &mut access.allowance)?;
        let identity = Identity { claims: claims.clone(), ..access.identity.clone() };
        let until = claims.as_ref().map_or(u64::MAX, |claims| claims.until());
        let (epoch, coverage) = rights.coverage(&identity)?;
        let below = shared.endpoint.clone();
        let endpoint: Arc<dyn Endpoint> = match coverage.is_operator() {
            true => below,
            false => Arc::new(Guarded::new(below, coverage.clone())),
        };
        Ok(Judged { token, epoch, until, claims, coverage, endpoint })
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
        let shown = self.access.token.clone();
        for token in self.watches.tokens() {
            self.access.token = token.clone();
            let (ended, why) = match self.coverage() {
                Ok(None) => continue,
                Ok(Some(coverage)) => {
                    let is_ended = |key: &[u8]| coverage.check_key(key).is_err();
                    (self.watches.of_keys(&token, is_ended), denied())
                }
                // It is known soon, and heeded then.
                Err(why) if why == Error::tag_throttled() => continue,
                Err(why) => (self.watches.of_keys(&token, |_| true), why),
            };
            for id in ended {
                self.watches.remove(id);
                self.fail(id, &why);
            }
        }
        self.access.token = shown;
    }
}
