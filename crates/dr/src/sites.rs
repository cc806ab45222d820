//! The two databases, and which of them follows the other one.

use crate::capture;
use crate::rows::{FIRST, First, HEAD, Head, Wanted};
use crate::system;
use plinth_client::{Database, RangeOptions};
use plinth_types::{Error, Result};
use std::time::Duration;

/// How often both are looked at before it is said that neither follows the other.
const LOOKS: u32 = 4;

/// Two databases of which one follows, or is to follow, the other.
#[derive(Clone, Debug)]
pub struct Sites {
    /// The first, by the names that the caller gives.
    pub from: Database,
    /// The second.
    pub to: Database,
}

/// A direction that was found in the databases.
#[derive(Clone, Debug)]
pub(crate) struct Direction {
    pub from: Database,
    pub to: Database,
    pub head: Head,
    /// The second is the one that was called the first.
    pub is_reversed: bool,
}

/// How long a database may take for its first answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What every database in memory calls its cluster file.
const MEMORY: &str = ":memory:";

impl Sites {
    /// Two databases.
    pub fn new(from: Database, to: Database) -> Self {
        Self { from, to }
    }

    /// Whether both answer, for commands that somebody waits for.
    ///
    /// # Errors
    /// `timed_out`, naming the one that doesn't.
    pub(crate) async fn reach(&self) -> Result<()> {
        for db in [&self.from, &self.to] {
            system::within(db, PATIENCE, system::read_version(db)).await?;
        }
        Ok(())
    }

    /// # Errors
    /// `client_invalid_operation` if the two are one.
    pub(crate) async fn check_different(&self) -> Result<()> {
        // A server says its identity with the first answer.
        self.reach().await?;
        let ids = [&self.from, &self.to].map(|db| db.endpoint().describe());
        let is_known = !ids[0].cluster_id.is_empty() && ids[0].cluster_file_path != MEMORY;
        let is_same = is_known && ids[0].cluster_id == ids[1].cluster_id;
        if is_same || std::sync::Arc::ptr_eq(self.from.endpoint(), self.to.endpoint()) {
            let detail = "first and second site are the same database, or the one is a copy of the other's files";
            return Err(Error::client_invalid_operation().with_detail(detail));
        }
        Ok(())
    }

    /// Which of the two follows the other one, if one does.
    ///
    /// # Errors
    /// `client_invalid_operation` if one follows a third.
    pub(crate) async fn direction(&self) -> Result<Option<Direction>> {
        // One of them has a head at every moment, but each is asked at a moment of its own: where
        // sides are changed between the two, neither may have had one.
        for _ in 0..LOOKS {
            let found = self.look().await?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    async fn look(&self) -> Result<Option<Direction>> {
        let mut found: Option<Direction> = None;
        for (from, to, is_reversed) in [(&self.from, &self.to, false), (&self.to, &self.from, true)]
        {
            let Some(head) = head(to).await? else { continue };
            // Its identity is known once it has answered.
            system::read_version(from).await?;
            if head.from != identity(from) && !is_known_by(from, &head).await? {
                if is_reversed {
                    // The first may itself follow somebody, which is not this pair's business here.
                    continue;
                }
                let detail = format!(
                    "the second site follows the database {}, not this one, which is {}",
                    head.from,
                    identity(from)
                );
                return Err(Error::client_invalid_operation().with_detail(detail));
            }
            // While sides are changed both have a head: the one that isn't waiting says what is to
            // be done.
            if found.is_none() || head.wanted != Wanted::Waiting {
                found = Some(Direction { from: from.clone(), to: to.clone(), head, is_reversed });
            }
        }
        Ok(found)
    }
}

/// Whether a FoundationDB that calls itself something else by now, as it does when its coordinators
/// change, is the one.
async fn is_known_by(from: &Database, head: &Head) -> Result<bool> {
    if capture::of(from).is_none() {
        return Ok(false);
    }
    Ok(firsts(from).await?.iter().any(|(tag, first)| *tag == head.tag && first.id == head.id))
}

/// What a database calls itself.
pub(crate) fn identity(db: &Database) -> String {
    db.endpoint().describe().cluster_id
}

/// What a database follows, if it is a second site.
pub(crate) async fn head(db: &Database) -> Result<Option<Head>> {
    system::read_one(db, HEAD).await?.map(|value| Head::decode(&value)).transpose()
}

/// To whom a database's changes go, by tag.
pub(crate) async fn firsts(db: &Database) -> Result<Vec<(String, First)>> {
    system::transact(db, |tr| async move {
        let mut all = Vec::new();
        for row in tr.snapshot().range(RangeOptions::from(FIRST.0..FIRST.1)).collect().await? {
            let tag = String::from_utf8_lossy(&row.key[FIRST.0.len()..]).into_owned();
            all.push((tag, First::decode(&row.value)?));
        }
        Ok(all)
    })
    .await
}

pub(crate) fn nothing() -> Error {
    let detail = "neither of the two databases follows the other one: plinth dr start";
    Error::client_invalid_operation().with_detail(detail)
}
