//! Streams of changes that a database serves by functions of its own, where they are no rows:
//! FoundationDB's change data capture.
//!
//! Unlike with a stream of Plinth's, where a consumer goes on is the database's business as much as
//! its own: one that was made anew begins behind what was acknowledged, and one that lives may be
//! set back there. So whoever reads looks at the versions of what it gets.

use plinth_env::reply::Reply;
use plinth_types::{Bytes, Changes, KeyRange, Version};
use std::sync::Arc;

/// The streams of a database that has them by functions of its own.
///
/// Every answer may fail with `unsupported_operation` where the database, or what reaches it, has
/// no such functions.
pub trait ChangeCapture: Send + Sync {
    /// Registers a stream of the changes to a range of the normal keys. One that is there already,
    /// with the same range, stays as it is.
    ///
    /// # Errors
    /// `client_invalid_operation` if the name has another range, or the database takes no new
    /// streams.
    fn register(&self, name: &[u8], range: &KeyRange) -> Reply<u64>;

    /// Removes a stream.
    ///
    /// # Errors
    /// `client_invalid_operation`, in some releases, if there is none.
    fn remove(&self, name: &[u8]) -> Reply<()>;

    /// All streams.
    fn list(&self) -> Reply<Vec<CapturedStream>>;

    /// A consumer that goes on behind what was acknowledged. One at a time may read a stream.
    ///
    /// # Errors
    /// `client_invalid_operation` if there is no such stream.
    fn consume(&self, name: &[u8]) -> Reply<Arc<dyn CaptureConsumer>>;
}

/// A stream that was registered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapturedStream {
    /// Its name.
    pub name: Bytes,
    /// What names it for ever.
    pub id: u64,
    /// The first version that its consumer may still need.
    pub needed: Version,
}

/// A consumer of such a stream. One operation of it may be under way at a time.
pub trait CaptureConsumer: Send + Sync {
    /// What comes next: whole versions, in order. It may take as long as nothing is committed in
    /// the stream's range.
    ///
    /// # Errors
    /// `transaction_too_old` for what the database has let go of; `client_invalid_operation` if the
    /// stream was removed, or somebody else reads it.
    fn next(&self) -> Reply<Changes>;

    /// Notes durably that nothing is needed any longer of what [`next`](Self::next) has given.
    ///
    /// # Errors
    /// `client_invalid_operation` if the stream was removed, or nothing was given yet.
    fn acknowledge(&self) -> Reply<()>;
}
