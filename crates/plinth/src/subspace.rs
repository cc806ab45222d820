//! Subspaces: a part of the key space under a prefix, with tuples as its keys.
//!
//! ```
//! use plinth::Subspace;
//!
//! let users = Subspace::new(&("app", "users"));
//! let key = users.pack(&(42, "name"));
//! let (id, field): (i64, String) = users.unpack(&key)?;
//! assert_eq!((id, field.as_str()), (42, "name"));
//! assert!(users.range().contains(&key));
//!
//! // What takes a range takes a subspace, or part of one.
//! # let db = plinth::Local::in_memory()?.into_database();
//! let (all, of_one) = db.transact_blocking(|tr| {
//!     tr.set(&key, "Ada");
//!     let all = tr.get_range(&users).wait()?;
//!     let of_one = tr.get_range(users.range_of(&(42,))).wait()?;
//!     Ok((all, of_one))
//! })?;
//! assert_eq!((all.rows.len(), of_one.rows.len()), (1, 1));
//! # Ok::<(), plinth::Error>(())
//! ```

use crate::tuple::{self, TuplePack, TupleUnpack};
use plinth_client::RangeOptions;
use plinth_types::{Bytes, Error, KeyRange, Result, printable, strinc, system};
use std::fmt;

/// The keys that begin with a prefix. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Subspace {
    prefix: Bytes,
}

impl Subspace {
    /// The subspace whose prefix is this tuple's bytes.
    pub fn new<T: TuplePack>(tuple: &T) -> Self {
        Self::from_bytes(tuple::pack(tuple))
    }

    /// The subspace with exactly this prefix.
    pub fn from_bytes(prefix: impl Into<Bytes>) -> Self {
        Self { prefix: prefix.into() }
    }

    /// The subspace of all keys: an empty prefix.
    pub const fn all() -> Self {
        Self { prefix: Bytes::new() }
    }

    /// The prefix.
    pub fn prefix(&self) -> &Bytes {
        &self.prefix
    }

    /// The subspace of the keys in this one whose tuples begin with `tuple`.
    #[must_use]
    pub fn subspace<T: TuplePack>(&self, tuple: &T) -> Self {
        Self::from_bytes(self.pack(tuple))
    }

    /// The key of a tuple in this subspace; `pack(&())` is the prefix.
    ///
    /// # Panics
    /// As [`tuple::pack`] does.
    pub fn pack<T: TuplePack>(&self, tuple: &T) -> Vec<u8> {
        let mut key = self.prefix.to_vec();
        tuple.pack_into_vec(&mut key);
        key
    }

    /// The key of a tuple with one incomplete versionstamp, as `set_versionstamped_key` takes it.
    ///
    /// # Errors
    /// As [`tuple::pack_with_versionstamp`].
    pub fn pack_with_versionstamp<T: TuplePack>(&self, tuple: &T) -> Result<Vec<u8>> {
        tuple::append_with_versionstamp(self.prefix.to_vec(), tuple)
    }

    /// The tuple of a key in this subspace.
    ///
    /// # Errors
    /// `key_not_in_subspace` if the key does not begin with the prefix; `invalid_tuple_data_type`
    /// if what follows is no tuple of these types.
    pub fn unpack<'de, T: TupleUnpack<'de>>(&self, key: &'de [u8]) -> Result<T> {
        let rest = key.strip_prefix(&self.prefix[..]).ok_or_else(|| {
            let detail = format!("{} is not in {self:?}", printable(key));
            Error::key_not_in_subspace().with_detail(detail)
        })?;
        tuple::unpack(rest)
    }

    /// Whether a key begins with the prefix.
    pub fn contains(&self, key: &[u8]) -> bool {
        key.starts_with(&self.prefix)
    }

    /// The range of all tuples in this subspace. The prefix itself is not in it.
    pub fn range(&self) -> KeyRange {
        tuple::range_below(self.prefix.to_vec())
    }

    /// The range of the tuples in this subspace that begin with `tuple` and are longer.
    pub fn range_of<T: TuplePack>(&self, tuple: &T) -> KeyRange {
        tuple::range_below(self.pack(tuple))
    }

    /// The range of all keys that begin with the prefix, the prefix itself and keys that are no
    /// tuples included. Of the subspace of all keys: those that an ordinary transaction may use.
    pub fn whole(&self) -> KeyRange {
        let end = strinc(&self.prefix).unwrap_or_else(|| {
            let end = if self.prefix.is_empty() { system::NORMAL_END } else { system::SPECIAL_END };
            Bytes::from_static(end)
        });
        KeyRange::new(self.prefix.clone(), end)
    }
}

/// The tuples in the subspace, as [`Subspace::range`] gives them.
impl From<&Subspace> for RangeOptions {
    fn from(subspace: &Subspace) -> Self {
        subspace.range().into()
    }
}

/// The prefix.
impl AsRef<[u8]> for Subspace {
    fn as_ref(&self) -> &[u8] {
        &self.prefix
    }
}

impl fmt::Debug for Subspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subspace({})", printable(&self.prefix))
    }
}
