//! Which batches there are, as far as that matters: the last one that was published, and those
//! behind it.

use plinth_types::{LogPosition, Version};
use std::collections::VecDeque;

/// Ascending, never empty: at most one of them was known to be published when the last one came.
pub(super) struct Positions(VecDeque<LogPosition>);

impl Positions {
    /// Of a store that has everything up to `at`.
    pub fn new(at: LogPosition) -> Self {
        Self(VecDeque::from([at]))
    }

    /// A batch, or a part of one, is applied while everything up to `published` may be read.
    pub fn note(&mut self, at: LogPosition, published: Version) {
        while self.0.get(1).is_some_and(|next| next.version <= published) {
            self.0.pop_front();
        }
        match self.0.back_mut() {
            Some(last) if last.version == at.version => *last = at,
            _ => self.0.push_back(at),
        }
    }

    /// The last batch not above `version`, which is published.
    pub fn at(&self, version: Version) -> LogPosition {
        let visible = self.0.iter().take_while(|at| at.version <= version);
        visible.last().copied().expect("the last batch that was published is kept")
    }
}
