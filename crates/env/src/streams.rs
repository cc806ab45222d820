//! Standard output and standard error, as whoever started the program left them.
//!
//! The reader of either may be gone: a pager that was left, a `head` that has its lines, a
//! supervisor that ended first. The macros of the standard library panic then; these don't.

use std::fmt::Display;
use std::io::{self, Write as _};

/// Tells people something, in a line on standard error. Nobody may be listening, which is no reason
/// to end.
pub fn tell(text: impl Display) {
    // In one write, so that lines of several tasks or processes stay lines.
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Gives a line of a result, on standard output.
///
/// # Errors
/// Nobody reads it any more, or the system can't write it: the rest is of no use either.
pub fn say(text: impl Display) -> io::Result<()> {
    io::stdout().lock().write_all(format!("{text}\n").as_bytes())
}
