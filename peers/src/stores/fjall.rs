//! fjall: a log-structured merge tree with a journal.

use super::CACHE_BYTES;
use crate::store::{Key, Result, Seen, Store};
use fjall::{
    KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, PersistMode, Readable,
};
use std::path::Path;
use std::sync::Arc;

struct Fjall {
    database: OptimisticTxDatabase,
    rows: OptimisticTxKeyspace,
}

pub fn open(path: &Path) -> Result<Arc<dyn Store>> {
    let database = OptimisticTxDatabase::builder(path).cache_size(CACHE_BYTES).open()?;
    let rows = database.keyspace("rows", KeyspaceCreateOptions::default)?;
    Ok(Arc::new(Fjall { database, rows }))
}

impl Store for Fjall {
    fn name(&self) -> String {
        "fjall".to_owned()
    }

    fn isolation(&self) -> &'static str {
        "serializable, optimistic"
    }

    fn read(&self, keys: &[Key], seen: Seen<'_>) -> Result<()> {
        let snapshot = self.database.read_tx();
        for key in keys {
            if let Some(value) = snapshot.get(&self.rows, key)? {
                seen(&value);
            }
        }
        Ok(())
    }

    fn range(&self, first: &Key, rows: usize, seen: Seen<'_>) -> Result<u64> {
        let snapshot = self.database.read_tx();
        let mut count = 0;
        for row in snapshot.range(&self.rows, first.as_slice()..).take(rows) {
            let (key, value) = row.into_inner()?;
            seen(&key);
            seen(&value);
            count += 1;
        }
        Ok(count)
    }

    fn write(&self, rows: &[(Key, &[u8])]) -> Result<()> {
        while !self.read_and_write(&[], rows, &mut |_| {})? {}
        Ok(())
    }

    fn read_and_write(&self, keys: &[Key], rows: &[(Key, &[u8])], seen: Seen<'_>) -> Result<bool> {
        let mut transaction = self.database.write_tx()?.durability(Some(PersistMode::SyncData));
        for key in keys {
            if let Some(value) = transaction.get(&self.rows, key)? {
                seen(&value);
            }
        }
        for (key, value) in rows {
            transaction.insert(&self.rows, key.as_slice(), *value);
        }
        Ok(transaction.commit()?.is_ok())
    }
}
