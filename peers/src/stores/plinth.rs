//! Plinth, with one thread for each client that blocks, as the other stores have it.

use super::CACHE_BYTES;
use crate::store::{Key, Result, Seen, Store};
use plinth::{Builder, Database, EngineKind, Local, RangeOptions, StreamingMode, Transaction};
use std::path::Path;
use std::sync::Arc;

/// A database, and what its column is called.
struct Plinth(Database, &'static str);

pub fn open(path: &Path) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(Plinth(Local::open(path)?.into_database(), "Plinth (threads)")))
}

/// The engine `ssd`, whose files are sorted tables like those of fjall and RocksDB.
pub fn open_ssd(path: &Path) -> Result<Arc<dyn Store>> {
    let local = Builder::new(path).engine(EngineKind::Ssd).memory_bytes(CACHE_BYTES).open()?;
    Ok(Arc::new(Plinth(local.into_database(), "Plinth ssd (threads)")))
}

fn read(transaction: &Transaction, keys: &[Key], seen: Seen<'_>) -> plinth::Result<()> {
    let values: Vec<_> = keys.iter().map(|key| transaction.get(key)).collect();
    for value in values {
        seen(&value.wait()?.unwrap_or_default());
    }
    Ok(())
}

impl Store for Plinth {
    fn name(&self) -> String {
        self.1.to_owned()
    }

    fn isolation(&self) -> &'static str {
        "strictly serializable, optimistic"
    }

    fn read(&self, keys: &[Key], seen: Seen<'_>) -> Result<()> {
        Ok(read(&self.0.create_transaction(), keys, seen)?)
    }

    fn range(&self, first: &Key, rows: usize, seen: Seen<'_>) -> Result<u64> {
        let transaction = self.0.create_transaction();
        let range = RangeOptions::from(first.as_slice()..b"\xff".as_slice());
        let mut options = range.limit(rows).mode(StreamingMode::Exact);
        let mut count = 0;
        loop {
            let batch = transaction.get_range(options.clone()).wait()?;
            for (key, value) in batch.rows.iter() {
                seen(key);
                seen(value);
            }
            count += batch.rows.len();
            let Some((last, _)) = batch.rows.last().filter(|_| batch.more && count < rows) else {
                return Ok(count as u64);
            };
            options = options.after(last, batch.rows.len());
        }
    }

    fn write(&self, rows: &[(Key, &[u8])]) -> Result<()> {
        Ok(self.0.transact_blocking(|transaction| {
            rows.iter().for_each(|(key, value)| transaction.set(key, value));
            Ok(())
        })?)
    }

    fn read_and_write(&self, keys: &[Key], rows: &[(Key, &[u8])], seen: Seen<'_>) -> Result<bool> {
        let transaction = self.0.create_transaction();
        read(&transaction, keys, seen)?;
        rows.iter().for_each(|(key, value)| transaction.set(key, value));
        match transaction.commit().wait() {
            Ok(()) => Ok(true),
            Err(error) if error.is_retryable() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
