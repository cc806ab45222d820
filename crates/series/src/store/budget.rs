//! What all queries of a store hold together, so that many of them at once cost no more memory than
//! a few.
//!
//! Each query has a share, which says how much it holds and gives it back when the query ends,
//! however that ends. What is counted is what grows with the data: names, points, texts. It is
//! counted when it is there, so the bound is passed by what the last one of them has just read, and
//! no further.

use super::SeriesStore;
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What all shares hold, and the most that they may.
#[derive(Debug)]
pub(super) struct Budget {
    held: AtomicUsize,
    most: usize,
}

impl Budget {
    pub(super) fn new(most: usize) -> Self {
        Self { held: AtomicUsize::new(0), most }
    }

    /// Bytes that are held, about.
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

/// What one query holds.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    held: usize,
}

impl Share {
    /// The share of a query that holds nothing yet.
    pub(crate) fn new(store: &SeriesStore) -> Self {
        Self::of(&store.first().of.whole.queries)
    }

    /// The same where there is no store at hand.
    pub(super) fn of(budget: &Arc<Budget>) -> Self {
        Self { budget: budget.clone(), held: 0 }
    }

    /// Says that it holds so many bytes now.
    ///
    /// # Errors
    /// [`Error::TooMany`] if it is more than before and all together hold too much. It is counted
    /// nevertheless, until it is given back.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<()> {
        let before = std::mem::replace(&mut self.held, bytes);
        let Some(more) = bytes.checked_sub(before) else {
            self.budget.held.fetch_sub(before - bytes, Ordering::Relaxed);
            return Ok(());
        };
        let all = self.budget.held.fetch_add(more, Ordering::Relaxed) + more;
        if more == 0 || all <= self.budget.most {
            return Ok(());
        }
        let most = self.budget.most;
        Err(Error::TooMany {
            what: format!("bytes held by all queries together, {most} may be: ask again later"),
        })
    }

    /// Says that it holds so many bytes more.
    ///
    /// # Errors
    /// As [`Share::hold`].
    pub(crate) fn add(&mut self, bytes: usize) -> Result<()> {
        self.hold(self.held + bytes)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.held, Ordering::Relaxed);
    }
}
