//! Checksums: CRC-32C, by the processor's own instruction where it has one.

use crate::corruption::Flaw;

/// The checksum of these bytes.
#[inline]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The same of these bytes behind others, whose checksum is `seed`. What begins with whose and
/// which file it is passes in no other file.
#[inline]
pub fn checksum_from(seed: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(seed, bytes)
}

/// Whether the checksum that is stored is the one that was computed.
///
/// # Errors
/// That it isn't; `what` names it.
#[inline]
pub fn compare(what: &'static str, stored: u32, computed: u32) -> Result<(), Flaw> {
    if stored == computed { Ok(()) } else { Err(Flaw::hex(what, stored, computed)) }
}
