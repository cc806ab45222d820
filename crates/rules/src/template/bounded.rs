//! A text that ends where it would get too long: of one that is made of parts no more is made than
//! there may be.

use super::context::Stop;
use std::fmt;

/// Bytes of a text: of a value, and of all that a template writes.
const MAX_BYTES: usize = 64 << 10;

/// A text with a bound.
#[derive(Default)]
pub(super) struct Bounded(String);

impl Bounded {
    pub(super) fn into_text(self) -> String {
        self.0
    }

    /// What is written by `write`.
    ///
    /// # Errors
    /// If it is too long.
    pub(super) fn written(write: impl FnOnce(&mut Self) -> fmt::Result) -> Result<String, Stop> {
        let mut out = Self::default();
        write(&mut out).map_err(|_| too_long())?;
        Ok(out.0)
    }

    /// What is written by `add` behind what is there.
    ///
    /// # Errors
    /// If it is too long.
    pub(super) fn add(&mut self, add: impl FnOnce(&mut String)) -> Result<(), Stop> {
        add(&mut self.0);
        check(&self.0)
    }
}

/// That a text has more bytes than it may.
pub(super) fn too_long() -> Stop {
    Stop::Wrong(format!("a text of more than {MAX_BYTES} bytes"))
}

/// That a template writes more than it may.
pub(super) fn too_much() -> Stop {
    Stop::Wrong(format!("the template writes more than {MAX_BYTES} bytes"))
}

/// Refuses a text that is too long.
pub(super) fn check(text: &str) -> Result<(), Stop> {
    if text.len() > MAX_BYTES { Err(too_long()) } else { Ok(()) }
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.len() > MAX_BYTES.saturating_sub(self.0.len()) {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}
