//! Quotas at the doors of time series: bytes of what is sent count as written, those of answers as
//! read.
//!
//! Whoever is over waits before his next request is looked at, or before more of his lines are
//! received. Of HTTP there are few connections, and others need them: so few requests wait, fewer
//! of them for one quota, and not for long, and what would wait for longer is told to come again.
//! Datagrams can't wait, and are nobody's in particular.

use crate::door::Doors;
use crate::events::Bursts;
use crate::quotas::{Dues, Quotas};
use crate::rights::{Identity, Rights};
use plinth_env::Env;
use plinth_types::quotas::Of;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Requests of HTTP that wait at a time, those for one quota, and for how long one does.
const WAITING: usize = 64;
const WAITING_FOR_ONE: u64 = 16;
const LONGEST: Duration = Duration::from_secs(5);

/// What the doors of series know of quotas.
pub(super) struct Throttle {
    env: Env,
    quotas: Arc<Quotas>,
    rights: Arc<Rights>,
    bursts: Arc<Bursts>,
    waiting: AtomicUsize,
}

/// Who pays for what is sent, or answered.
#[derive(Clone)]
pub(super) struct Payer {
    env: Env,
    dues: Arc<Dues>,
    of: Of,
    from: IpAddr,
}

impl Payer {
    /// So many bytes were sent, or answered.
    pub(super) fn pay(&self, bytes: usize) {
        self.dues.charge(self.of, self.env.now(), std::iter::once((&b""[..], bytes)));
    }

    /// For how long he has to wait.
    pub(super) fn owes(&self) -> Option<Duration> {
        self.dues.wait(self.of, self.env.now())
    }
}

/// Somebody's request waits.
struct Waiting<'a>(&'a Payer);

impl<'a> Waiting<'a> {
    fn begin(payer: &'a Payer, throttle: &Throttle) -> Self {
        throttle.quotas.note_delayed(payer.of);
        if let Some(whose) = payer.dues.begin_waiting(payer.of, 0, payer.env.now()) {
            throttle.bursts.throttled(&payer.from, whose, payer.of.name());
        }
        Self(payer)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.dues.end_waiting(self.0.of, 0);
    }
}

/// A place among those of HTTP who wait, and among those who wait for the same.
struct Place<'a> {
    taken: &'a AtomicUsize,
    dues: &'a Dues,
}

impl<'a> Place<'a> {
    /// One, if there are any left.
    fn take(payer: &'a Payer, throttle: &'a Throttle) -> Option<Self> {
        if !payer.dues.take_place(WAITING_FOR_ONE) {
            return None;
        }
        let before = throttle.waiting.fetch_add(1, Ordering::Relaxed);
        let place = Self { taken: &throttle.waiting, dues: &payer.dues };
        (before < WAITING).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.dues.leave_place();
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What was found out of a sender on lines, and as of which epochs of quotas and rights.
#[derive(Default)]
pub(super) struct Known(Option<((u64, u64), Option<Payer>)>);

impl Throttle {
    pub(super) fn new(env: &Env, doors: &Doors) -> Self {
        let (quotas, rights) = (doors.quotas.clone(), doors.rights.clone());
        let (bursts, waiting) = (doors.bursts.clone(), AtomicUsize::new(0));
        Self { env: env.clone(), quotas, rights, bursts, waiting }
    }

    /// Who pays, if anybody has to.
    pub(super) fn payer(&self, of: Of, who: impl FnOnce() -> Identity) -> Option<Payer> {
        if !self.quotas.are_there() {
            return None;
        }
        let who = who();
        let dues = self.quotas.dues(&self.rights, &who);
        let (env, dues) = (self.env.clone(), Arc::new(dues));
        Some(Payer { env, dues, of, from: who.address }).filter(|payer| payer.dues.has_own())
    }

    /// The same of somebody who stays, of whom it may be known.
    pub(super) fn sender(
        &self,
        known: &mut Known,
        who: impl FnOnce() -> Identity,
    ) -> Option<Payer> {
        let as_of = (self.quotas.epoch(), self.rights.epoch());
        match &known.0 {
            Some((then, payer)) if *then == as_of => payer.clone(),
            _ => {
                let payer = self.payer(Of::Write, who);
                known.0 = Some((as_of, payer.clone()));
                payer
            }
        }
    }

    /// Has a request of HTTP wait until what it costs may begin; whether it may.
    pub(super) async fn admits(&self, payer: &Payer) -> bool {
        if payer.owes().is_none() {
            return true;
        }
        let _waiting = Waiting::begin(payer, self);
        let Some(_place) = Place::take(payer, self) else { return false };
        let until = self.env.now().saturating_add(LONGEST);
        while let Some(owes) = payer.owes() {
            let now = self.env.now();
            if now.saturating_add(owes) > until {
                return false;
            }
            self.env.sleep(owes).await;
        }
        true
    }

    /// Waits for a moment, if somebody who sends lines is over: whether he was.
    pub(super) async fn delays(&self, payer: &Payer) -> bool {
        let Some(owes) = payer.owes() else { return false };
        let _waiting = Waiting::begin(payer, self);
        self.env.sleep(owes.min(LONGEST)).await;
        true
    }
}
