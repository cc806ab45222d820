//! What the tests of checkpoints share: a small store, and what is in it.

use plinth_env::simulated::Random;
use plinth_storage::checkpoint::Identity;
use plinth_storage::{MemoryStorage, Storage};
use plinth_types::{KeySelector, KeySpace, MutationList, MutationType, RangeRead, Version};
use std::collections::BTreeMap;

pub const IDENTITY: Identity = Identity { cluster_id: [1; 16], node_id: [2; 16] };
pub const DIR: &str = "/data/checkpoint";

pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Writes random rows over those that are there, as one batch, and publishes it.
pub fn churn(store: &MemoryStorage, version: Version, random: &mut Random, rows: usize, rows_now: &mut Rows) {
    let mut list = MutationList::new();
    for _ in 0..rows {
        let key = format!("key{:05}", random.index(3 * rows)).into_bytes();
        if random.index(5) == 0 {
            list.push(MutationType::ClearRange, &key, &plinth_types::key_after(&key));
            rows_now.remove(&key);
        } else {
            let mut value = vec![0; random.index(100)];
            random.fill(&mut value);
            list.push(MutationType::Set, &key, &value);
            rows_now.insert(key, value);
        }
    }
    store.apply(version, &mut list.iter(), None);
    store.publish(version);
}

/// All rows of a store at its newest version.
pub fn rows_of(store: &MemoryStorage) -> Rows {
    let read = RangeRead {
        begin: KeySelector::first_greater_or_equal(&b""[..]),
        end: KeySelector::first_greater_or_equal(KeySpace::System.end()),
        limit: usize::MAX,
        target_bytes: usize::MAX,
        reverse: false,
    };
    let result = store.get_range(store.newest(), KeySpace::System, &read).wait().expect("the newest version");
    result.rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}
