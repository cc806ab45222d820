//! The stores, each behind the same trait.

mod fjall;
mod plinth;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use crate::store::{Result, Store};
use std::path::Path;
use std::sync::Arc;

/// Bytes of cache for stores that have one: more than the data.
const CACHE_BYTES: u64 = 1 << 30;

/// Opens a new store in a directory of its own.
pub type Open = fn(&Path) -> Result<Arc<dyn Store>>;

/// The stores there are, by their names on the command line.
pub const ALL: &[(&str, Open)] = &[
    ("plinth", plinth::open),
    ("plinth-ssd", plinth::open_ssd),
    ("redb", redb::open),
    ("fjall", fjall::open),
    #[cfg(feature = "rocksdb")]
    ("rocksdb", rocksdb::open),
];
