//! The protocol between a client and a server: frames, the hello that begins a connection,
//! messages. Bytes only.
//!
//! ## Role
//! Turns requests and replies into bytes and back. It knows no sockets and keeps no state, so that
//! client and server use the same functions, and a test can put any bytes in.
//! `docs/format/protocol.md` is the page for those who write a client in another language.
//!
//! ## Data structure
//! ```text
//!   connection   | hello | frame | frame | ...           both ways; replies in any order, found by their id
//!
//!   frame        | checksum 4 | length 4 | id 4 | kind 1 | 0 0 0 | body ..........|
//!                             '----------- the checksum covers this ---------------'
//! ```
//!
//! ## Invariants
//! 1. No bytes make decoding panic, or allocate more than a few times their own number.
//! 2. A frame that claims more than [`frame::MAX_REQUEST`] (or [`frame::MAX_REPLY`]) is refused by
//!    its header alone.
//! 3. What a decoder gives is well-formed: lists are whole, ranges are not inverted, rows lie in
//!    their buffer. Whether it is allowed (keys too long, a locked database) is for the server to
//!    say.
//! 4. Both sides of every message are here, next to each other; golden bytes in the tests keep them
//!    from moving.
//!
//! ## Not here
//! Sockets, who may connect, what a request does: `server`. Reconnecting, resending: `client`.
//! Read next: [`frame`], [`hello`], then [`request`] and [`reply`].
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions, clippy::indexing_slicing))]

pub mod envelope;
pub mod frame;
pub mod hello;
pub mod reply;
pub mod request;
pub mod wire;

#[cfg(test)]
mod tests;

pub use frame::{Frame, Kind};
pub use hello::{Hello, Welcome};
pub use request::{MOST_TOGETHER, ReadVersion, Request, SnapshotId};
