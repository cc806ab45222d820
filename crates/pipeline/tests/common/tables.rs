//! A small database on the engine `ssd`: little memory and a short window, so that the tables see
//! much of what happens.

use super::{Reach, get_at, version};
use plinth_pipeline::{EngineKind, NodeConfig, SsdSettings};
use std::collections::BTreeMap;

pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// How many keys there may be.
pub const KEYS: usize = 150;

pub fn config() -> NodeConfig {
    NodeConfig {
        engine: EngineKind::Ssd,
        ssd: SsdSettings::with_memory(2 << 20),
        window: 50_000,
        ..NodeConfig::default()
    }
}

pub fn key(n: usize) -> Vec<u8> {
    format!("key{n:04}").into_bytes()
}

/// All rows, at one version.
pub async fn all(endpoint: &impl Reach) -> Rows {
    let mut rows = Rows::new();
    let version = version(endpoint).await;
    for n in 0..KEYS {
        if let Some(value) = get_at(endpoint, version, &key(n)).await.unwrap() {
            rows.insert(key(n), value.to_vec());
        }
    }
    rows
}
