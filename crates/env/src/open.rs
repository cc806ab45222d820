//! How a file is opened, in either world.

/// How to open a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Open {
    /// For reading; it must exist.
    Read,
    /// For reading and writing; it must exist.
    Write,
    /// For reading and writing; made if it doesn't exist.
    Create,
    /// For reading and writing; it must not exist.
    CreateNew,
    /// The same, and nobody but its owner may read it: for secrets.
    CreatePrivate,
    /// For reading and writing; emptied if it exists, made if it doesn't.
    Truncate,
}

impl Open {
    /// Whether the file can be written to.
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }
}
