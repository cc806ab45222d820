//! redb: a copy-on-write B+tree, one writer at a time.

use super::CACHE_BYTES;
use crate::store::{Key, Result, Seen, Store};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use std::path::Path;
use std::sync::Arc;

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");

struct Redb(Database);

pub fn open(path: &Path) -> Result<Arc<dyn Store>> {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES as usize);
    let database = builder.create(path.join("rows.redb"))?;
    let transaction = database.begin_write()?;
    transaction.open_table(ROWS)?;
    transaction.commit()?;
    Ok(Arc::new(Redb(database)))
}

fn read(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    keys: &[Key],
    seen: Seen<'_>,
) -> Result<()> {
    for key in keys {
        if let Some(value) = table.get(key.as_slice())? {
            seen(value.value());
        }
    }
    Ok(())
}

impl Store for Redb {
    fn name(&self) -> String {
        "redb".to_owned()
    }

    fn isolation(&self) -> &'static str {
        "serializable, one writer at a time"
    }

    fn read(&self, keys: &[Key], seen: Seen<'_>) -> Result<()> {
        let table = self.0.begin_read()?.open_table(ROWS)?;
        read(&table, keys, seen)
    }

    fn range(&self, first: &Key, rows: usize, seen: Seen<'_>) -> Result<u64> {
        let table = self.0.begin_read()?.open_table(ROWS)?;
        let mut count = 0;
        for row in table.range(first.as_slice()..)?.take(rows) {
            let (key, value) = row?;
            seen(key.value());
            seen(value.value());
            count += 1;
        }
        Ok(count)
    }

    fn write(&self, rows: &[(Key, &[u8])]) -> Result<()> {
        self.read_and_write(&[], rows, &mut |_| {}).map(drop)
    }

    fn read_and_write(&self, keys: &[Key], rows: &[(Key, &[u8])], seen: Seen<'_>) -> Result<bool> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut table = transaction.open_table(ROWS)?;
            read(&table, keys, seen)?;
            for (key, value) in rows {
                table.insert(key.as_slice(), *value)?;
            }
        }
        transaction.commit()?;
        Ok(true)
    }
}
