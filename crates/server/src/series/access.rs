//! Who may ask for series over HTTP, as it is with the console: whoever has the token, if there is
//! one; without one, on loopback, whoever is on the machine.
//!
//! What must be kept out on loopback is other people's pages in the user's browser, which can have
//! their own name point here: they are known by the Host that they name. Senders and readers are
//! programs that carry a header, so a token comes as a bearer, or as InfluxDB's clients have it.
//! While there are rights it may be one of those that grants are for, and who shows none may what a
//! grant gives his address.

use super::throttle::{Payer, Throttle};
use crate::audit::{Audit, Deletion, Who};
use crate::door::Doors;
use crate::rights::{Identity, Rights};
use crate::token::{self, PENANCE, is_local, is_same};
use hyper::{HeaderMap, StatusCode, header};
use plinth_env::{Env, Sleep};
use plinth_types::quotas::Of;
use plinth_types::{Error, MetricSet, Result};
use std::future::poll_fn;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// How often it is looked whether somebody may still what he is being answered.
const LOOK: Duration = Duration::from_millis(250);

/// Whether metrics, or all, are among others, or all.
fn is_covered(metrics: Option<&MetricSet>, by: Option<&MetricSet>) -> bool {
    by.is_none_or(|by| metrics.is_some_and(|metrics| by.covers(metrics)))
}

pub(super) struct Access {
    token: Option<String>,
    /// Whether only this machine can ask.
    is_local: bool,
    rights: Arc<Rights>,
    audit: Arc<Audit>,
    pub(super) throttle: Throttle,
}

impl Access {
    /// Reads the token from its file, which gets one if it doesn't exist.
    pub(super) async fn open(
        env: &Env,
        file: Option<&Path>,
        is_local: bool,
        doors: &Doors,
    ) -> Result<Self> {
        let token = match file {
            Some(file) => Some(token::read(env, file).await?),
            None => None,
        };
        let (rights, audit) = (doors.rights.clone(), doors.audit.clone());
        let throttle = Throttle::new(env, doors);
        Ok(Self { token, is_local, rights, audit, throttle })
    }

    /// Somebody begins to delete series.
    pub(super) fn begin_deletion(&self, from: &Identity, what: String) -> Deletion {
        let name = from.user().map(|user| format!("as user {user} of this machine"));
        let who = Who { address: from.address.to_string(), name: name.unwrap_or_default() };
        self.audit.begin_deletion(who, what)
    }

    /// Who pays for a request, if anybody has to.
    pub(super) fn payer(
        &self,
        headers: &HeaderMap,
        (from, writes): (&Identity, bool),
    ) -> Option<Payer> {
        let of = if writes { Of::Write } else { Of::Read };
        // A token that isn't believed may be the one of this door: that one's bearers are known by
        // their addresses.
        self.throttle.payer(of, || {
            self.rights.identity(from, given(headers)).unwrap_or_else(|_| from.clone())
        })
    }

    pub(super) fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Refuses who may not ask: with a status, and why. A wrong token has to wait for that. Whoever
    /// has the token of this door may all of it, for good; to others leave is given.
    pub(super) async fn check(
        &self,
        env: &Env,
        headers: &HeaderMap,
        (from, writes): (&Identity, bool),
    ) -> std::result::Result<Option<Leave>, (StatusCode, &'static str)> {
        let by_rights = || {
            let epoch = self.rights.epoch();
            let metrics = self.rights.check_series_of(from, given(headers), writes)?;
            let (rights, from, env) = (self.rights.clone(), from.clone(), env.clone());
            let token = given(headers).map(str::to_owned);
            Ok(Leave { env, rights, from, token, writes, metrics, epoch, timer: None })
        };
        let host = headers.get(header::HOST).filter(|_| self.is_local);
        let is_ours = host.is_none_or(|host| host.to_str().is_ok_and(is_local));
        let Some(token) = &self.token else {
            if !is_ours {
                let why =
                    "the Host of this request is not this machine; ask for localhost or 127.0.0.1";
                return Err((StatusCode::FORBIDDEN, why));
            }
            let judged = by_rights();
            if judged.is_err() && given(headers).is_some() {
                env.sleep(PENANCE).await;
            }
            return judged.map(Some).map_err(|why: Error| refused(&why));
        };
        match given(headers) {
            Some(given) if is_same(given, token) => return Ok(None),
            // An address is shown by a page of somebody else's in a browser here, too.
            _ if is_ours && self.rights.are_known() => {
                if let Ok(leave) = by_rights() {
                    return Ok(Some(leave));
                }
            }
            _ => {}
        }
        if given(headers).is_some() {
            env.sleep(PENANCE).await;
            return Err((StatusCode::UNAUTHORIZED, "the token is wrong"));
        }
        let why = "a token is needed: send it in the header Authorization, as a bearer";
        Err((StatusCode::UNAUTHORIZED, why))
    }
}

/// That somebody is answered, for as long as he may what he might when he asked.
pub(super) struct Leave {
    env: Env,
    rights: Arc<Rights>,
    from: Identity,
    token: Option<String>,
    pub(super) writes: bool,
    /// Of which metrics there are series for him; `None` for all.
    pub(super) metrics: Option<Arc<MetricSet>>,
    /// As of which epoch of rights that is so.
    epoch: u64,
    /// When it is looked at next, once somebody waits for that.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Leave {
    /// Whether it still holds.
    pub(super) fn holds(&mut self) -> bool {
        let epoch = self.rights.epoch();
        if epoch == self.epoch {
            return self.rights.check_fresh().is_ok();
        }
        match self.rights.check_series_of(&self.from, self.token.as_deref(), self.writes) {
            // More than he might doesn't end what he is being told of less.
            Ok(metrics) if is_covered(self.metrics.as_deref(), metrics.as_deref()) => {
                self.epoch = epoch;
                true
            }
            Ok(_) => false,
            // It is known soon, and looked at then.
            Err(why) => why == Error::tag_throttled(),
        }
    }

    /// Judges him anew, by what he may now: whether that is anything.
    pub(super) fn renew(&mut self) -> bool {
        let epoch = self.rights.epoch();
        if epoch == self.epoch {
            return self.rights.check_fresh().is_ok();
        }
        match self.rights.check_series_of(&self.from, self.token.as_deref(), self.writes) {
            Ok(metrics) => {
                (self.metrics, self.epoch) = (metrics, epoch);
                true
            }
            Err(why) => why == Error::tag_throttled(),
        }
    }

    /// Looks at that now and from time to time, until it holds no more.
    pub(super) fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.holds() {
            let env = &self.env;
            let timer = self.timer.get_or_insert_with(|| Box::pin(env.sleep(LOOK)));
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.timer = None;
        }
        Poll::Ready(())
    }

    /// Waits until it holds no more.
    pub(super) async fn ended(&mut self) {
        poll_fn(|context| self.poll_ended(context)).await;
    }
}

/// What those are told who have nothing to show where there are rights.
fn refused(why: &Error) -> (StatusCode, &'static str) {
    if *why == Error::permission_denied() {
        let text = "there are rights, and none of series for who sends this: it takes a grant, or the token (--series-token)";
        return (StatusCode::UNAUTHORIZED, text);
    }
    (StatusCode::SERVICE_UNAVAILABLE, "this server has yet to learn who may do what: try again")
}

/// The token that a request has.
fn given(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    ["bearer", "token"].iter().any(|known| scheme.eq_ignore_ascii_case(known)).then(|| token.trim())
}
