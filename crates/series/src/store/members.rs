//! Members: the servers that would own parts of the series, as each of them sees the others.
//!
//! Each has a row that it changes every half a second, and whoever has seen one stand still for as
//! long as a lease lasts takes its server for dead. From who lives follows how many parts each
//! should have. What comes of an error here is an uneven share for a while, never a part with two
//! owners: that is the lease's affair (`lease.rs`).

use super::lease::{BEAT, LASTS};
use super::place::{Home, make, parts_of};
use super::{nodes, retry};
use crate::error::{Error, Result};
use plinth_client::{Database, Transaction};
use plinth_types::{Bytes, KeyValue};
use std::collections::BTreeMap;
use std::time::Duration;

/// Rows that have stood still for so long are cleared.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// For how long a member has to live before others hand parts over to it: one that dies again and
/// again would draw its share each time, and leave it to be taken over.
const SETTLED: Duration = Duration::from_secs(10);

/// One of those who would own parts, and what it knows of the others.
pub struct Members {
    database: Database,
    home: Home,
    parts: usize,
    name: String,
    beats: u64,
    /// It is no member itself.
    only_looks: bool,
    seen: BTreeMap<String, Seen>,
}

/// What was last seen of a row, for how long it had been so, and since when its member lives.
struct Seen {
    row: Bytes,
    at: Duration,
    still: Duration,
    since: Duration,
}

/// Who lives, ascending.
#[derive(Debug)]
pub struct Live {
    /// All members.
    pub members: Vec<String>,
    /// Those who have lived for some time, and the one that looks: whom parts are handed over to.
    pub settled: Vec<String>,
}

impl Members {
    pub(super) fn new(database: &Database, home: &Home, parts: usize, name: &str) -> Self {
        Self {
            database: home.reach(database),
            home: home.clone(),
            parts,
            name: name.to_owned(),
            beats: 0,
            only_looks: false,
            seen: BTreeMap::new(),
        }
    }

    /// Whether it looks who lives, and doesn't say that it does: others then leave it no parts.
    pub fn only_look(&mut self, only_looks: bool) {
        self.only_looks = only_looks;
    }

    /// Says that this one lives; gives the names of all who do. To be called every half a second.
    /// If the place was cleared it is made again.
    ///
    /// # Errors
    /// [`crate::Error::NotOwner`] if that is in another number of parts, for good;
    /// [`crate::Error::Locked`], [`crate::Error::Database`], [`crate::Error::Damaged`].
    pub async fn beat(&mut self) -> Result<Live> {
        self.beats += 1;
        let (home, name, beats) = (&self.home, &self.name, self.beats.to_le_bytes());
        let (keys, parts, only_looks) = (&home.keys, self.parts, self.only_looks);
        let forgotten: Vec<&String> = self
            .seen
            .iter()
            .filter(|(_, seen)| seen.still >= FORGOTTEN)
            .map(|(name, _)| name)
            .collect();
        let forgotten = &forgotten;
        let rows = retry::transact_all(&self.database, |tr: Transaction| async move {
            let known = match tr.get(keys.format()).await? {
                None if parts > 1 => make(&tr, home, parts).await?,
                format => parts_of(format.as_deref())?,
            };
            if known != parts {
                return Err(Error::NotOwner);
            }
            let rows = nodes::rows(&tr, &keys.members()).await?;
            if !only_looks {
                // With a conflict: what is under way when this one leaves comes to nothing.
                tr.get(keys.member(name)).await?;
                tr.set(keys.member(name), beats);
            }
            for name in forgotten {
                tr.clear(keys.member(name));
            }
            Ok(rows)
        })
        .await?;
        self.see(rows)?;
        Ok(self.live())
    }

    /// Takes in what rows there are now.
    fn see(&mut self, rows: Vec<KeyValue>) -> Result<()> {
        let now = self.database.endpoint().env().now();
        let mut seen = BTreeMap::new();
        for row in rows {
            let name = self.home.keys.name_of_member(&row.key)?;
            let before = self.seen.get(&name);
            // A look that was long in coming says nothing of how long it had been so.
            let still =
                before.filter(|before| before.row == row.value).map_or(Duration::ZERO, |before| {
                    before.still + now.saturating_sub(before.at).min(2 * BEAT)
                });
            let since = before.filter(|before| before.still < LASTS).map_or(now, |seen| seen.since);
            seen.insert(name, Seen { row: row.value, at: now, still, since });
        }
        self.seen = seen;
        Ok(())
    }

    fn live(&self) -> Live {
        let live =
            self.seen.iter().filter(|(name, seen)| **name != self.name && seen.still < LASTS);
        let (mut members, mut settled) = (Vec::new(), Vec::new());
        for (name, seen) in live {
            members.push(name.clone());
            if seen.at.saturating_sub(seen.since) >= SETTLED {
                settled.push(name.clone());
            }
        }
        if !self.only_looks {
            members.push(self.name.clone());
            settled.push(self.name.clone());
        }
        members.sort_unstable();
        settled.sort_unstable();
        Live { members, settled }
    }

    /// Says that this one has gone.
    ///
    /// # Errors
    /// [`crate::Error::Locked`], [`crate::Error::Database`].
    pub async fn leave(&self) -> Result<()> {
        let key = &self.home.keys.member(&self.name);
        retry::transact(&self.database, |tr: Transaction| async move {
            tr.clear(key);
            Ok(())
        })
        .await
    }

    /// How many of `parts` the member of this name should own, where these live: as many as each
    /// other one, or one more. Whoever is none of them should have none, or all if there are none.
    pub fn share(name: &str, live: &[String], parts: usize) -> usize {
        match live.iter().position(|other| other == name) {
            Some(rank) => parts / live.len() + usize::from(rank < parts % live.len()),
            None if live.is_empty() => parts,
            None => 0,
        }
    }
}

impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Members").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_even_and_together_they_are_all() {
        for count in 1..12 {
            let live: Vec<String> = (0..count).map(|at| format!("{at:02}")).collect();
            for parts in [1, 2, 8, 128] {
                let shares: Vec<usize> =
                    live.iter().map(|name| Members::share(name, &live, parts)).collect();
                assert_eq!(shares.iter().sum::<usize>(), parts);
                let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
                assert!(most - least <= 1, "{shares:?}");
                assert_eq!(Members::share("who only looks", &live, parts), 0);
            }
        }
        assert_eq!(Members::share("who only looks", &[], 8), 8);
    }
}
