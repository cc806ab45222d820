//! What is in a store.

use plinth_storage::{Reader, StorageResult};
use plinth_types::{KeySelector, KeySpace, RangeRead};
use std::collections::BTreeMap;

pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// All rows of a store at its newest version.
pub async fn rows_of(store: &impl Reader) -> StorageResult<Rows> {
    let read = RangeRead {
        begin: KeySelector::first_greater_or_equal(&b""[..]),
        end: KeySelector::first_greater_or_equal(KeySpace::System.end()),
        limit: usize::MAX,
        target_bytes: usize::MAX,
        reverse: false,
    };
    let result = store.get_range(store.newest(), KeySpace::System, &read).await?;
    Ok(result.rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect())
}
