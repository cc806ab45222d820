//! What a figure counts.

/// What a figure counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Reads, writes, keys or operations a second.
    PerSecond(&'static str),
    /// So many times something.
    Times,
    /// A part of something, shown in percent.
    Part,
    /// Bytes for each key.
    BytesPerKey,
    /// Bytes a second.
    BytesPerSecond,
    /// A duration, in seconds.
    Seconds,
    /// Things, of whatever kind the words say.
    Count,
}
