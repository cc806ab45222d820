//! Candidates: those who would own series if nobody else did. They look at who does, and take over
//! once that is nobody.
//!
//! How long a lease has stood still is the candidate's own measure, by its own clock and in looks
//! that were answered; that the takeover is right is the database's (`lease.rs`).

use super::keys::Keys;
use super::lease::{BEAT, Claim, Holder, Rows, Tenure};
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
}

/// One of those who would own the series if nobody else did.
pub struct Candidate {
    database: Database,
    keys: Keys,
    settings: Settings,
    claim: Claim,
    seen: Option<Seen>,
    /// Nothing was looked at before.
    is_new: bool,
}

/// What the last look saw, and for how long there had been nothing else.
struct Seen {
    rows: Rows,
    at: Duration,
    still: Duration,
}

impl Candidate {
    /// A candidate that has not looked yet.
    pub fn new(database: &Database, settings: Settings, claim: Claim) -> Self {
        let keys = Keys::new(&settings.prefix);
        Self { database: database.clone(), keys, settings, claim, seen: None, is_new: true }
    }

    fn env(&self) -> &Env {
        self.database.endpoint().env()
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
            let rows = self.rows().await?;
            let row = rows.leased()?;
            let still = self.note(&rows);
            let is_free = match &row {
                None => rows.owner.is_none() || self.is_new,
                Some(row) => row.holder.name == self.claim.name || still >= row.lasts,
            };
            self.is_new = false;
            if !is_free {
                return Ok(Look::Held(row.map_or_else(Holder::unleased, |row| row.holder)));
            }
            let (settings, tenure) = (self.settings.clone(), Tenure::draw(self.env(), &self.claim));
            // If somebody was faster, or it was renewed after all, the next look says who it is.
            if let Some(shared) = open::open_leased(&self.database, settings, tenure, &rows).await?
            {
                self.seen = None;
                return Ok(Look::Ours(SeriesStore { shared }));
            }
        }
    }

    async fn rows(&self) -> Result<Rows> {
        retry::transact(&self.database, |tr| async move { Rows::read(&tr, &self.keys).await }).await
    }

    /// Notes what was seen; gives for how long that has been all there was to be seen.
    fn note(&mut self, rows: &Rows) -> Duration {
        let now = self.env().now();
        let still = match &self.seen {
            // A look that was long in coming says nothing of how long it had been so.
            Some(seen) if seen.rows == *rows => {
                seen.still + now.saturating_sub(seen.at).min(2 * BEAT)
            }
            _ => Duration::ZERO,
        };
        self.seen = Some(Seen { rows: rows.clone(), at: now, still });
        still
    }

    /// Waits until it is time for another look: for half a second, or until the owner's row
    /// changes.
    pub async fn wait(&self) {
        let tr = self.database.create_transaction();
        let changed = async {
            let Some(seen) = &self.seen else { return std::future::pending().await };
            let watch = tr.watch(self.keys.owner());
            match tr.get(self.keys.owner()).await {
                Ok(owner) if owner == seen.rows.owner => {}
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
        }
    }
}
