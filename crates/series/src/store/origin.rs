//! Where what is said of series comes from: an answer says so beside its rows.

/// Where values come from.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    /// Whether points have gone that were asked for, and nothing is in their place.
    pub(crate) are_missing: bool,
    /// The length of the longest buckets of rollups among them, in nanoseconds.
    pub(crate) every: Option<i64>,
}

impl Origin {
    /// The same with what comes from elsewhere.
    #[must_use]
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            are_missing: self.are_missing || other.are_missing,
            every: self.every.max(other.every),
        }
    }
}
