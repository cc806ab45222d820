//! The text of an answer, which counts among what queries hold until whoever asked has it: somebody
//! who reads slowly, or not at all, holds it as long.

use crate::error::Result;
use crate::store::{SeriesStore, Share};
use plinth_types::Bytes;
use std::fmt;
use std::ops::Deref;

/// JSON that a request is answered.
pub struct HeldText {
    text: String,
    _share: Share,
}

impl HeldText {
    /// Counts this text.
    ///
    /// # Errors
    /// [`Error::TooMany`](crate::Error::TooMany) if all queries together hold too much then.
    pub(super) fn count(store: &SeriesStore, text: String) -> Result<Self> {
        let mut share = Share::new(store);
        share.hold(text.len())?;
        Ok(Self { text, _share: share })
    }

    /// The same for what is short, whatever others hold: why there is no answer.
    pub(super) fn short(store: &SeriesStore, text: String) -> Self {
        Self { text, _share: Share::new(store) }
    }
}

impl Deref for HeldText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl AsRef<[u8]> for HeldText {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl From<HeldText> for Bytes {
    /// It counts until the last of these bytes has gone.
    fn from(held: HeldText) -> Self {
        Self::from_owner(held)
    }
}

impl PartialEq for HeldText {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Display for HeldText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl fmt::Debug for HeldText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}
