//! How much room a disk has: what files say of it, real and simulated ones.

/// How much room a disk has, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskRoom {
    /// What can still be written.
    pub free: u64,
    /// All of it, whoever has it.
    pub size: u64,
}
