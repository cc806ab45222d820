//! What can be salvaged of the engine `ssd`.

use plinth_env::Env;
use plinth_storage::checkpoint::Keys;
use plinth_storage::ssd::SsdSalvage;
use plinth_types::MutationType;
use std::collections::BTreeMap;
use std::path::Path;

/// The rows that are found in a directory, and how many problems there are.
pub async fn salvage(env: &Env, dir: &str, keys: &Keys) -> (BTreeMap<Vec<u8>, Vec<u8>>, usize) {
    let mut salvage = SsdSalvage::open(env, Path::new(dir), keys).await.unwrap();
    let mut rows = BTreeMap::<Vec<u8>, Vec<u8>>::new();
    while let Some(list) = salvage.next().await.unwrap() {
        for mutation in &list {
            let (key, operand) = (mutation.param1, mutation.param2);
            match mutation.kind {
                MutationType::Set => drop(rows.insert(key.to_vec(), operand.to_vec())),
                _ => rows.retain(|at, _| at[..] < *key || at[..] >= *operand),
            }
        }
    }
    (rows, salvage.problems().len())
}
