//! A queue as a layer on an ordered key-value database: items go in at one end, and each is handed
//! to one consumer.
//!
//! ## Data structure
//! ```text
//!   prefix "item" | versionstamp of the push     the item      oldest first
//! ```
//!
//! ## Invariants
//! 1. An item whose push was acknowledged is there once, until it is taken.
//! 2. An item is handed out at most once.
//!
//! Consumers would all get in each other's way at the oldest item. So each looks at the oldest few
//! without a conflict, and takes one of them; only that one must not have been taken by another
//! consumer meanwhile.
//!
//! The queue can be made with one of two mistakes that are easily made. `tests/simulation.rs` shows
//! that the simulation finds both.

use plinth::Database;
use plinth::{Bytes, KeyValue, RangeOptions, Result, Transaction, TransactionOption};

/// How many of the oldest items a consumer chooses from.
const WINDOW: usize = 8;

/// Mistakes that people make in such a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// Nothing notices that another consumer has taken the item meanwhile.
    TakesWithoutConflict,
    /// When the answer to a push is lost, the push is sent again as if it had not taken effect.
    PushesAgain,
}

/// A queue below a prefix.
#[derive(Clone, Debug)]
pub struct Queue {
    prefix: Vec<u8>,
    mistake: Option<Mistake>,
}

impl Queue {
    /// The queue below this prefix, which nothing else may use.
    pub fn new(prefix: impl Into<Vec<u8>>) -> Self {
        Self { prefix: prefix.into(), mistake: None }
    }

    /// The same with a mistake.
    #[must_use]
    pub fn with(mut self, mistake: Mistake) -> Self {
        self.mistake = Some(mistake);
        self
    }

    /// Puts an item at the end.
    ///
    /// # Errors
    /// Those of the database that no second attempt helps against.
    pub async fn push(&self, db: &Database, item: &[u8]) -> Result<()> {
        // Ten bytes of room for the stamp, and where they are.
        let place = (self.prefix.len() as u32).to_le_bytes();
        let key = [&self.prefix[..], &[0; 10], &place].concat();
        let remembers = self.mistake != Some(Mistake::PushesAgain);
        db.transact(|tr| {
            let (key, item) = (key.clone(), item.to_vec());
            async move {
                if remembers {
                    // A push whose answer was lost is sent again, and takes effect once all the
                    // same.
                    tr.set_option(TransactionOption::AutomaticIdempotency)?;
                }
                tr.set_versionstamped_key(&key, &item);
                Ok(())
            }
        })
        .await
    }

    /// Takes one of the oldest items, and none if there is none. It is the caller's when the
    /// transaction has committed. `choice` says which of them: a random number, best, so that
    /// consumers choose different ones.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn take(&self, tr: &Transaction, choice: u64) -> Result<Option<Bytes>> {
        let oldest = RangeOptions::prefix(&self.prefix).limit(WINDOW);
        let items = tr.snapshot().range(oldest).collect().await?;
        if items.is_empty() {
            return Ok(None);
        }
        let taken = &items[choice as usize % items.len()];
        if self.mistake != Some(Mistake::TakesWithoutConflict) {
            tr.add_read_conflict_key(&taken.key);
        }
        tr.clear(&taken.key);
        Ok(Some(taken.value.clone()))
    }
    /// All items, oldest first.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn items(&self, tr: &Transaction) -> Result<Vec<Bytes>> {
        let rows = tr.range(RangeOptions::prefix(&self.prefix)).collect().await?;
        Ok(rows.into_iter().map(|row: KeyValue| row.value).collect())
    }
}
