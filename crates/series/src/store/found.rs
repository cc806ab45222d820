//! Series that were found, by whoever reads: a number and a name, and what owners elsewhere said.

use super::budget::Share;
use super::keys::Id;
use super::{Cell, Standing, State};
use crate::name::Name;
use std::sync::{Arc, Mutex};

/// A series that was found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// In the whole, unless a part speaks of its own.
    pub(crate) id: Id,
    pub(crate) name: Name,
    /// What its owner has said of it, if that is somebody else.
    pub(crate) brought: Brought,
}

/// What of a series its owner has said, for the time that a query is about; and what that takes of
/// what all queries may hold.
#[derive(Clone, Default)]
pub(crate) struct Brought(Option<Arc<(Arc<Cell>, Share)>>);

impl Brought {
    pub(super) fn new(cell: Cell, share: Share) -> Self {
        Self(Some(Arc::new((Arc::new(cell), share))))
    }

    pub(super) fn cell(&self) -> Option<Arc<Cell>> {
        self.0.as_ref().map(|brought| brought.0.clone())
    }

    pub(super) fn is_some(&self) -> bool {
        self.0.is_some()
    }
}

impl std::fmt::Debug for Brought {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Brought").field(&self.0.is_some()).finish()
    }
}

impl Found {
    /// A series with this number and name, of which nothing else is known.
    pub(super) fn new(id: Id, name: Name) -> Self {
        Self { id, name, brought: Brought::default() }
    }

    /// The series with nothing in memory.
    pub(super) fn cell(&self) -> Arc<Cell> {
        let state = Mutex::new(State { standing: Standing::Found, ..State::default() });
        Arc::new(Cell { id: self.id, name: self.name.clone(), state })
    }
}
