//! Division: a place of series in parts, each with an owner of its own, so that several servers
//! take in what one can't.
//!
//! ```text
//!   (0)            01: not divided, the rows are those of the one part     02 n: in n parts
//!   (17, part) ... everything of a part, as if it were a place: its format, owner, lease, names, trees, tail, inbox
//!   (18, name)     who would own parts (`members.rs`)
//! ```
//!
//! Which part a series is in is said by its canonical name and the number of parts, which is fixed
//! when a place is made; so nobody has to ask. What is proven of a store is true of each part: its
//! fence, its lease, its numbers of series and its inbox are nobody else's. A place that has rows
//! is never divided: whoever may have written them looks for them where they are.

use super::candidate::Candidate;
use super::foreign::Owner;
use super::lease::{Claim, Holder};
use super::members::Members;
use super::place::{self, Home, MAX_PARTS, make, parts_of};
use super::plot::{Plot, Whole, divided};
use super::{SeriesStore, Settings, open, retry};
use crate::error::Result;
use plinth_client::{Database, Transaction};
use plinth_env::sync::all;
use std::sync::Arc;

/// The parts into which the series of a database are divided.
///
/// Each part has an owner of its own ([`Division::candidate`]). A store of all parts
/// ([`Division::together`]) takes and reads the series as one that is not divided does, whoever
/// owns them: points for other owners' parts are posted to them, and what of their series is in no
/// leaf yet is asked of them.
#[derive(Clone)]
pub struct Division {
    database: Database,
    home: Home,
    whole: Arc<Whole>,
    /// Those of a part.
    settings: Settings,
}

impl Division {
    /// How the series of a database are divided. A place without any is made, in
    /// [`Settings::parts`].
    ///
    /// # Errors
    /// [`crate::Error::Locked`], [`crate::Error::Damaged`], [`crate::Error::Database`].
    pub async fn of(database: &Database, settings: Settings) -> Result<Self> {
        Self::find(database, settings, true).await
    }

    /// The same, and nothing is made.
    ///
    /// # Errors
    /// As [`Division::of`].
    pub(super) async fn as_it_is(database: &Database, settings: Settings) -> Result<Self> {
        Self::find(database, settings, false).await
    }

    async fn find(database: &Database, settings: Settings, makes: bool) -> Result<Self> {
        let home = Home::of(database, &settings);
        let wanted = settings.parts.clamp(1, MAX_PARTS).next_power_of_two();
        let seen = |tr: Transaction| {
            let home = &home;
            async move {
                let known = tr.get(home.keys.format()).await?;
                if known.is_some() || wanted == 1 || !makes {
                    return parts_of(known.as_deref());
                }
                make(&tr, home, wanted).await
            }
        };
        let parts = retry::transact_all(&home.reach(database), seen).await?;
        let whole = Whole::new(home.keys.clone(), parts, settings.query_bytes);
        let settings = divided(settings, parts);
        Ok(Self { database: database.clone(), home, whole, settings })
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.whole.parts()
    }

    pub(super) fn plot(&self, number: usize) -> Plot {
        let home = match self.parts() {
            1 => self.home.clone(),
            parts => Home::part(&self.whole.root, number, parts),
        };
        Plot {
            database: self.database.clone(),
            home,
            number,
            whole: self.whole.clone(),
            settings: self.settings.clone(),
        }
    }

    fn plots(&self) -> impl Iterator<Item = Plot> {
        (0..self.parts()).map(|number| self.plot(number))
    }

    /// One of those who would own this part if nobody else did.
    pub fn candidate(&self, part: usize, claim: Claim) -> Candidate {
        Candidate::of(self.plot(part), claim)
    }

    /// A part that somebody else owns: points are posted to him, and he is asked for what is in no
    /// leaf yet.
    pub fn elsewhere(&self, part: usize, owner: Arc<dyn Owner>) -> SeriesStore {
        SeriesStore::of_one(open::post(&self.plot(part), Some(owner)))
    }

    /// One of those who would own parts, under this name, as the others see him.
    pub fn member(&self, name: &str) -> Members {
        Members::new(&self.database, &self.home, self.parts(), name)
    }

    /// A store of several parts; of all of them, if it is to know every series.
    pub fn together(&self, parts: impl IntoIterator<Item = SeriesStore>) -> SeriesStore {
        SeriesStore::of(parts.into_iter().flat_map(|store| store.shareds()).collect())
    }

    /// Takes all parts over.
    pub(super) async fn open(&self) -> Result<SeriesStore> {
        let plots: Vec<_> = self.plots().collect();
        let opened = all(plots.iter().map(open::open)).await;
        Ok(SeriesStore::of(opened.into_iter().collect::<Result<_>>()?))
    }

    /// All parts, to be read.
    pub(super) async fn view(&self) -> Result<SeriesStore> {
        let plots: Vec<_> = self.plots().collect();
        let opened = all(plots.iter().map(open::view)).await;
        Ok(SeriesStore::of(opened.into_iter().collect::<Result<_>>()?))
    }

    /// All parts, to post to.
    pub(super) fn post(&self) -> SeriesStore {
        SeriesStore::of(self.plots().map(|plot| open::post(&plot, None)).collect())
    }

    /// Who owns each part.
    ///
    /// # Errors
    /// [`crate::Error::Locked`], [`crate::Error::Damaged`], [`crate::Error::Database`].
    pub async fn holders(&self) -> Result<Vec<Option<Holder>>> {
        let plots: Vec<_> = self.plots().collect();
        let holders = all(plots.iter().map(|plot| place::holder(&plot.database, &plot.home))).await;
        holders.into_iter().collect()
    }
}

impl std::fmt::Debug for Division {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Division").field("parts", &self.parts()).finish_non_exhaustive()
    }
}
