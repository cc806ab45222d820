//! Targets: where a backup lies. Whole objects by name, nothing else, so that a directory and an
//! object store are the same.
//!
//! What every target does stands in the suite of [`conformance`], which all of them run. Nobody
//! appends, nobody renames: an object is there whole or not at all, and what was put is there for
//! whoever asks afterwards.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod directory;
mod named;
mod redacted;
#[cfg(feature = "object-store")]
mod store;

pub use directory::Directory;
pub use named::named;
pub use redacted::redacted;
#[cfg(feature = "object-store")]
pub use store::Store;

use bytes::Bytes;
use plinth_types::Result;
use std::pin::Pin;

/// What methods give that take their time.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// An object of a listing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Object {
    /// Its name.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
}

/// A place for objects. Names are made of parts between slashes; the last part has a dot in it, the
/// others have none.
pub trait Target: Send + Sync {
    /// Puts an object, durably, in one step; one of that name that is there already is replaced.
    ///
    /// # Errors
    /// Those of the place; then the object is there whole, or as it was before.
    fn put<'a>(&'a self, name: &'a str, contents: Bytes) -> Doing<'a, ()>;

    /// Puts an object where none is of this name. Gives false if there is one: of several who try
    /// at once, one puts. An object whose maker died in the middle may be there with less than its
    /// contents.
    ///
    /// # Errors
    /// Those of the place; then nothing is known.
    fn create<'a>(&'a self, name: &'a str, contents: Bytes) -> Doing<'a, bool>;

    /// The whole of an object.
    ///
    /// # Errors
    /// `file_not_found`, and those of the place.
    fn get<'a>(&'a self, name: &'a str) -> Doing<'a, Bytes>;

    /// The first `len` bytes of an object, or all of a shorter one.
    ///
    /// # Errors
    /// As [`Target::get`].
    fn get_begin<'a>(&'a self, name: &'a str, len: usize) -> Doing<'a, Bytes>;

    /// All objects whose names begin with `prefix`, which is empty or ends with a slash, by name.
    ///
    /// # Errors
    /// Those of the place.
    fn list<'a>(&'a self, prefix: &'a str) -> Doing<'a, Vec<Object>>;

    /// Deletes an object; no error if there is none.
    ///
    /// # Errors
    /// Those of the place.
    fn delete<'a>(&'a self, name: &'a str) -> Doing<'a, ()>;

    /// Makes sure that all objects right below `prefix`, which is empty or ends with a slash, stay
    /// whatever happens to the place. Those whose `put` was acknowledged do anyway; one whose maker
    /// died, or was told of an error, may be seen before it is durable. To be called before
    /// something is deleted because of what was seen.
    ///
    /// # Errors
    /// Those of the place.
    fn settle<'a>(&'a self, prefix: &'a str) -> Doing<'a, ()>;

    /// Takes away what is there of a prefix, which ends with a slash, without objects: directories
    /// that are empty, its own among them. What has something in it stays.
    ///
    /// # Errors
    /// Those of the place.
    fn tidy<'a>(&'a self, _prefix: &'a str) -> Doing<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// What it is called: a URL, without secrets.
    fn url(&self) -> String;

    /// Why what is asked of it at this moment was not answered the first time, if that is known:
    /// it is asked again and again.
    fn trouble(&self) -> Option<String> {
        None
    }
}
