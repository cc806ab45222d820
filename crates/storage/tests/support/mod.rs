//! What the tests of checkpoints share: a small store, and what is in it.

mod keys;
mod rows;

#[allow(unused_imports, reason = "not every test has keys")]
pub use keys::keys;
use plinth_env::block_on;
use plinth_env::simulated::Random;
use plinth_storage::checkpoint::Identity;
use plinth_storage::{MemoryReader, MemoryStorage, Reader, Writer};
use plinth_types::{LogPosition, MutationList, MutationType, Version};
pub use rows::Rows;

pub const IDENTITY: Identity = Identity { cluster_id: [1; 16], node_id: [2; 16] };
pub const DIR: &str = "/data/checkpoint";

/// Writes random rows over those that are there, as one batch, and publishes it.
pub fn churn(
    store: &mut MemoryStorage,
    version: Version,
    random: &mut Random,
    rows: usize,
    rows_now: &mut Rows,
) {
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
    let prepared = store.prepare(&mut list.iter()).wait().unwrap();
    store.apply(prepared, LogPosition::without_log(version), &mut list.iter(), None);
    store.publish(version);
}

/// All rows of a store at its newest version.
pub fn rows_of(store: &MemoryReader) -> Rows {
    block_on(rows::rows_of(store)).expect("the newest version")
}
