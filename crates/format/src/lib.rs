//! What the formats of Plinth's files share.
//!
//! ## Role
//! Bytes of files are written and read here: headers that say what a file is, in which format and
//! whose; checksums; numbers, fixed and variable; and what is told of bytes that are not what they
//! should be. So are the keys by which files are encrypted. What a file says behind its header is
//! the business of the crate that the file belongs to.
//!
//! ## Data structure
//! ```text
//!   header   | magic, 8 | format, 4 | length, 4 |   the file's own   | checksum of all before, 4 |
//!   number   | 7 bits, more | 7 bits, more | 7 bits |               the lowest first
//!   bytes    | number: how many | bytes |
//!
//!   envelope | id of a given key | nonce | the key of the file, sealed by it |            encryption, if any
//!
//!   Flaw: what, expected, found   ──at(file, offset)──▶   Corruption   ──▶   Error `file_corrupt`
//! ```
//! All integers are little-endian.
//!
//! ## Invariants
//! 1. No bytes from outside make it panic. What is not there reads as zeros, so whoever reads
//!    fields has compared the length, or the checksum of all of them, before.
//! 2. A header is believed once its checksum was compared, and its format once it is known to be
//!    one that the program reads.
//! 3. What a key is shows in no print, and is written nowhere but sealed by another.
//!
//! ## Not here
//! Files (`env`); what files hold (`log`, `storage`, `pipeline`, `backup`; `docs/format` draws it);
//! frames on sockets (`proto`, `peers`).
//! Read next: `header.rs`, `corruption.rs`, `number.rs`, `crypt.rs`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions, clippy::indexing_slicing))]

mod checksum;
mod corruption;
pub mod crypt;
mod field;
mod header;
mod identity;
mod number;
mod owner;

pub use checksum::{checksum, checksum_from, compare};
pub use corruption::{Corruption, Flaw};
pub use crypt::{Cipher, Keys};
pub use field::{array_at, put, u16_at, u32_at, u64_at, version_at};
pub use header::{FIELDS, Form, HeaderFlaw, check_magic, format_of, length_of};
pub use identity::{IDENTITY_LEN, Identity, hex};
pub use number::{number_len, push_bytes, push_number, take, take_bytes, take_number};
pub use owner::Owner;
