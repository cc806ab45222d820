//! Candidates: those who would own series if nobody else did. They look at who does, and take over
//! once that is nobody.
//!
//! How long a lease has stood still is the candidate's own measure, by its own clock and in looks
//! that were answered; that the takeover is right is the database's (`lease.rs`).

use super::lease::{BEAT, Claim, Holder, Rows, Tenure};
use super::place::{Former, Sight};
use super::plot::Plot;
use super::{SeriesStore, Settings, open, retry};
use crate::error::Result;
use plinth_client::Database;
use plinth_env::Env;
use plinth_env::sync::race;
use std::time::Duration;

/// What a look finds.
pub enum Look {
    /// Nobody had the series: they are ours now.
    Ours(SeriesStore),
    /// Somebody has them.
    Held(Holder),
    /// Nobody has them, and the candidate was told to look only.
    Free,
}

/// One of those who would own the series if nobody else did.
pub struct Candidate {
    plot: Plot,
    claim: Claim,
    seen: Option<Seen>,
    /// Nothing was looked at before.
    is_new: bool,
    /// Nothing is moved to the place of the series, so they are not taken over either.
    is_held_back: bool,
    /// It looks, and takes nothing over.
    only_looks: bool,
}

/// What the last look saw, and for how long there had been nothing else.
struct Seen {
    sight: Sight,
    at: Duration,
    still: Duration,
}

impl Candidate {
    /// A candidate that has not looked yet.
    pub fn new(database: &Database, settings: Settings, claim: Claim) -> Self {
        Self::of(Plot::only(database, settings), claim)
    }

    /// A candidate for a part of the series.
    pub(super) fn of(plot: Plot, claim: Claim) -> Self {
        let (is_new, is_held_back, only_looks) = (true, false, false);
        Self { plot, claim, seen: None, is_new, is_held_back, only_looks }
    }

    /// Whether it takes nothing over for now: what it could have is [`Look::Free`].
    pub fn only_look(&mut self, only_looks: bool) {
        self.only_looks = only_looks;
    }

    /// Whether series that are not in their place yet stay where they are, and so with whoever has
    /// them: others may look for them there who know of no other place.
    pub fn hold_back(&mut self, is_held_back: bool) {
        self.is_held_back = is_held_back;
    }

    fn env(&self) -> &Env {
        self.plot.database.endpoint().env()
    }

    /// Looks at who owns the series, and takes them over if they are free, if the lease has run
    /// out, or if it is this candidate's own of a former life. Whoever owns them without a lease is
    /// relieved by a candidate that looks for the first time, as by anybody who opens series.
    ///
    /// # Errors
    /// [`Error::Locked`](crate::Error::Locked), [`Error::Damaged`](crate::Error::Damaged),
    /// [`Error::Database`](crate::Error::Database).
    pub async fn look(&mut self) -> Result<Look> {
        loop {
            let sight = self.sight().await?;
            let still = self.note(&sight);
            let before = match &sight.former {
                Former::Full(before) => Some(before),
                _ => None,
            };
            let held = match (self.held_by(&sight.rows, still)?, before) {
                (None, Some(before)) => match self.held_by(before, still)? {
                    None if self.is_held_back => Some(before.holder()?),
                    held => held,
                },
                (held, _) => held,
            };
            if held.is_none() && self.only_looks {
                // Who is relieved at the first sight is so yet.
                return Ok(Look::Free);
            }
            self.is_new = false;
            if let Some(holder) = held {
                return Ok(Look::Held(holder));
            }
            let tenure = Tenure::draw(self.env(), &self.claim);
            // If somebody was faster, or it was renewed after all, the next look says who it is.
            if let Some(shared) = open::open_leased(&self.plot, tenure, &sight).await? {
                self.seen = None;
                return Ok(Look::Ours(SeriesStore::of_one(shared)));
            }
        }
    }

    /// Who holds the series by these rows, unless they are free to be taken over.
    fn held_by(&self, rows: &Rows, still: Duration) -> Result<Option<Holder>> {
        let row = rows.leased()?;
        let is_free = match &row {
            None => rows.owner.is_none() || self.is_new,
            Some(row) => row.holder.name == self.claim.name || still >= row.lasts,
        };
        Ok((!is_free).then(|| row.map_or_else(Holder::unleased, |row| row.holder)))
    }

    async fn sight(&self) -> Result<Sight> {
        let home = &self.plot.home;
        let database = home.reach(&self.plot.database);
        retry::transact_all(&database, |tr| async move { home.sight(&tr).await }).await
    }

    /// Notes what was seen; gives for how long that has been all there was to be seen.
    fn note(&mut self, sight: &Sight) -> Duration {
        let now = self.env().now();
        let still = match &self.seen {
            // A look that was long in coming says nothing of how long it had been so.
            Some(seen) if seen.sight == *sight => {
                seen.still + now.saturating_sub(seen.at).min(2 * BEAT)
            }
            _ => Duration::ZERO,
        };
        self.seen = Some(Seen { sight: sight.clone(), at: now, still });
        still
    }

    /// Waits until it is time for another look: for half a second, or until the owner's row
    /// changes.
    pub async fn wait(&self) {
        let home = &self.plot.home;
        let tr = home.reach(&self.plot.database).create_transaction();
        let changed = async {
            let Some(seen) = &self.seen else { return std::future::pending().await };
            let watch = tr.watch(home.keys.owner());
            match tr.get(home.keys.owner()).await {
                Ok(owner) if owner == seen.sight.rows.owner => {}
                // It has changed already; or nothing is heard, and looking will say why.
                Ok(_) => return,
                Err(_) => std::future::pending().await,
            }
            if tr.commit().await.is_err() || watch.await.is_err() {
                std::future::pending().await
            }
        };
        race(changed, self.env().sleep(BEAT)).await;
    }
}

impl std::fmt::Debug for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidate").field("claim", &self.claim).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Look {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ours(store) => f.debug_tuple("Ours").field(store).finish(),
            Self::Held(holder) => f.debug_tuple("Held").field(holder).finish(),
            Self::Free => f.write_str("Free"),
        }
    }
}
