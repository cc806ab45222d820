//! What a store must be able to do here: the workloads' transactions, each as one call that blocks.
//!
//! One call is one transaction, so that each store can do it in the way that its users would. What
//! is read is shown to a function rather than returned: a store that lends its bytes need not copy
//! them.

/// A row's key.
pub type Key = [u8; 16];

/// What a store's calls give.
pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Shown each value, or key and value, that is read.
pub type Seen<'a> = &'a mut dyn FnMut(&[u8]);

/// An embedded store. Every write is on the disk when its call returns, and reads of one call are
/// of one version.
pub trait Store: Send + Sync {
    /// What it is called, with its version.
    fn name(&self) -> String;

    /// How its read-and-write transactions are isolated, for the table's notes.
    fn isolation(&self) -> &'static str;

    /// Reads these keys.
    fn read(&self, keys: &[Key], seen: Seen<'_>) -> Result<()>;

    /// Reads `rows` rows from `first` on; gives how many there were.
    fn range(&self, first: &Key, rows: usize, seen: Seen<'_>) -> Result<u64>;

    /// Writes these rows.
    fn write(&self, rows: &[(Key, &[u8])]) -> Result<()>;

    /// Reads these keys, then writes these rows, in one transaction; `false` if it conflicted, and
    /// nothing was written.
    fn read_and_write(&self, keys: &[Key], rows: &[(Key, &[u8])], seen: Seen<'_>) -> Result<bool>;
}
