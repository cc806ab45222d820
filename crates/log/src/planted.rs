//! Bugs to have on purpose, so that it can be shown that the tests notice them.

/// A bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Planted {
    /// None.
    #[default]
    None,
    /// Records are believed although the checksum of their body says that it never arrived.
    ReplayTornTail,
    /// A sync says that it was done and did nothing.
    SkipSync,
}
