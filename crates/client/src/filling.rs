//! Whether a database has a part of something, because it is being filled.
//!
//! Restores, migrations and second sites bring rows in by many transactions, under a lock and a
//! record among the system's rows. Whoever copies a database, takes its lock away, or lets it take
//! another one's place looks at those records, since the rows don't tell: a part looks like a
//! whole.
//!
//! Always: whoever begins to fill a database reads these records in the transaction that writes its
//! own, so that there is one at a time.

use crate::transaction::Transaction;
use crate::{Database, Retries};
use plinth_types::{Bytes, Error, Result, system};
use std::fmt;
use std::time::Duration;

/// How often somebody who only looks tries.
const RETRIES: Retries = Retries { attempts: 100, pause: Duration::from_millis(50) };

/// What a database is being filled by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filling {
    /// A restore, of the whole or of some ranges.
    Restore,
    /// A migration.
    Migration,
    /// It is a second site, and has a part of its first one, or what that has a part of.
    SecondSite,
}

impl Filling {
    /// The rows that tell.
    pub const KEYS: [&'static [u8]; 5] = [
        system::RESTORE_HEAD,
        system::MIGRATION_HEAD,
        system::SECOND_SITE_HEAD,
        system::SECOND_SITE_PLACE,
        system::SECOND_SITE_HALF,
    ];

    /// By the values of those rows.
    pub fn of(values: &[Option<Bytes>]) -> Option<Self> {
        let value = |at: usize| values.get(at).and_then(Option::as_ref);
        if value(0).is_some() {
            return Some(Self::Restore);
        }
        if value(1).is_some() {
            return Some(Self::Migration);
        }
        let is_whole = value(3)
            .and_then(|place| place.get(1))
            .is_some_and(|flags| flags & system::SECOND_SITE_IS_COPYING == 0);
        let is_second = value(2).is_some();
        (is_second && (!is_whole || value(4).is_some())).then_some(Self::SecondSite)
    }

    /// By what a transaction reads, which has access to system keys: it conflicts with whoever
    /// begins. A second site's place moves all the time, and goes back to a part only with another
    /// head.
    ///
    /// # Errors
    /// Those of reading.
    pub async fn find(tr: &Transaction) -> Result<Option<Self>> {
        let mut values = Vec::with_capacity(Self::KEYS.len());
        let snapshot = tr.snapshot();
        for reply in Self::KEYS.map(|key| match key == system::SECOND_SITE_PLACE {
            true => snapshot.get(key),
            false => tr.get(key),
        }) {
            values.push(reply.await?);
        }
        Ok(Self::of(&values))
    }

    /// What it is now, for whoever only wants to tell.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn now(db: &Database) -> Result<Option<Self>> {
        Ok(Self::of(&RETRIES.read(db, &Self::KEYS).await?.1))
    }

    /// That something can't be done with `what` ("the first site") because of it.
    pub fn refusal(self, what: &str) -> Error {
        Error::database_locked().with_detail(format!("{what} {self}"))
    }
}

impl fmt::Display for Filling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Restore => {
                "has a part of what is being restored into it: wait for that (plinth restore wait), finish it by the same \
                 command, or give it up (plinth restore abort)"
            }
            Self::Migration => {
                "has a part of what is being migrated into it: finish that by the same command, or give it up (plinth migrate \
                 --abort)"
            }
            Self::SecondSite => {
                "is a second site that isn't whole, since its first copy isn't, or something is being restored into the first \
                 one: wait for that (plinth dr wait, plinth restore wait)"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_told_from_none() {
        let row = |value: &'static [u8]| Some(Bytes::from_static(value));
        let (whole, copying) = (row(b"\x01\x00rest"), row(b"\x01\x03rest"));
        let (none, some) = (None, row(b"\x01"));
        for (values, expected) in [
            ([&none, &none, &none, &none, &none], None),
            ([&some, &none, &none, &none, &none], Some(Filling::Restore)),
            ([&none, &some, &none, &none, &none], Some(Filling::Migration)),
            ([&none, &none, &some, &none, &none], Some(Filling::SecondSite)),
            ([&none, &none, &some, &copying, &none], Some(Filling::SecondSite)),
            ([&none, &none, &some, &whole, &none], None),
            ([&none, &none, &some, &whole, &some], Some(Filling::SecondSite)),
            // What is left of a second that is none any more says nothing.
            ([&none, &none, &none, &copying, &some], None),
        ] {
            assert_eq!(Filling::of(&values.map(Clone::clone)), expected, "{values:?}");
        }
    }
}
