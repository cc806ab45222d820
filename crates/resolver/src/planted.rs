//! Mistakes that can be planted, so that the tests which should notice them can be tested.

/// A mistake in conflict detection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// No read ever conflicts.
    IgnoreReads,
    /// Writes of transactions of the same batch conflict with nothing.
    IgnoreSameBatch,
    /// What was written exactly at a transaction's read version conflicts.
    IncludeReadVersion,
    /// What a rejected transaction would have written conflicts with later reads.
    RecordRejected,
    /// No transaction is too old: its reads are checked against what is left of the history.
    NeverTooOld,
    /// A transaction without reads can be too old.
    BlindTooOld,
}

#[cfg(any(test, feature = "planted-bugs"))]
impl Planted {
    /// Every mistake there is.
    pub const ALL: [Planted; 6] = [
        Self::IgnoreReads,
        Self::IgnoreSameBatch,
        Self::IncludeReadVersion,
        Self::RecordRejected,
        Self::NeverTooOld,
        Self::BlindTooOld,
    ];
}

/// Which mistake is planted. Without the feature it has no size, and its question is answered by
/// the compiler.
#[derive(Default)]
pub(crate) struct Plot {
    #[cfg(any(test, feature = "planted-bugs"))]
    bug: Option<Planted>,
}

impl Plot {
    #[cfg(any(test, feature = "planted-bugs"))]
    pub(crate) fn plant(&mut self, bug: Planted) {
        self.bug = Some(bug);
    }

    #[inline]
    pub(crate) fn has(&self, bug: Planted) -> bool {
        #[cfg(any(test, feature = "planted-bugs"))]
        return self.bug == Some(bug);
        #[cfg(not(any(test, feature = "planted-bugs")))]
        return {
            let _ = bug;
            false
        };
    }
}
