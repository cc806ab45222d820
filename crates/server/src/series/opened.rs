//! A store that is open, with what whoever sends to it leaves there.

use super::waiting::Waiting;
use plinth_series::SeriesStore;
use std::sync::Arc;

/// A store that is open, and what belongs to it alone.
pub(crate) struct Opened {
    pub(crate) store: SeriesStore,
    /// Sessions between two requests that write: they remember series of this store.
    pub(super) waiting: Waiting,
    /// The same of OpenTSDB's, whose names could be taken for those of others.
    pub(super) puts: Waiting,
}

impl Opened {
    pub(super) fn new(store: SeriesStore) -> Arc<Self> {
        Arc::new(Self { store, waiting: Waiting::default(), puts: Waiting::default() })
    }
}
