//! Messages from before there are frames: those by which two sides come to know each other.
//!
//! Each begins with a magic of eight bytes, which says what the speaker speaks, and carries a
//! checksum. Their form never changes; later versions may append to a content, and readers ignore
//! what they don't know.
//!
//! ```text
//!   | magic 8 | length 4 | checksum 4 | content: length bytes |       the checksum covers the content
//! ```

use crate::wire::{Put, Reader, malformed};
use plinth_types::{Error, Result};

/// Most bytes of the content.
pub const MAX_CONTENT: usize = 4096;
const HEAD: usize = 16;
/// What the magic of each of Plinth's protocols begins with.
const OURS: &[u8] = b"\x89PLN";

/// Appends a message to `out`; its content is what `content` appends.
pub fn put(out: &mut Vec<u8>, magic: [u8; 8], content: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = Vec::new();
    content(&mut bytes);
    out.extend_from_slice(&magic);
    out.put_count(bytes.len());
    out.put_u32(crc32c::crc32c(&bytes));
    out.extend_from_slice(&bytes);
}

/// The content of the message that `bytes` begin with, and the length of all of it; `None` while it
/// is not whole.
///
/// # Errors
/// `client_invalid_operation` if it begins with another magic, or its content is too long;
/// `checksum_failed`.
pub fn split(bytes: &[u8], magic: [u8; 8]) -> Result<Option<(&[u8], usize)>> {
    if bytes.iter().zip(&magic).any(|(byte, expected)| byte != expected) {
        return Err(malformed(match bytes.starts_with(OURS) {
            true => {
                "the other side speaks another of Plinth's protocols: one of the two is a server that \
                 belongs to a cluster, and takes the other for one"
            }
            false => "the other side doesn't speak Plinth's protocol",
        }));
    }
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
    let mut head = Reader::new(head);
    head.array::<8>()?;
    let (len, expected) = (head.size()?, head.u32()?);
    if len > MAX_CONTENT {
        return Err(malformed(format!("a hello of {len} bytes, at most {MAX_CONTENT} are taken")));
    }
    let Some(content) = rest.get(..len) else { return Ok(None) };
    let found = crc32c::crc32c(content);
    if found != expected {
        let detail = format!("a hello's checksum is {expected:08x}, its bytes have {found:08x}");
        return Err(Error::checksum_failed().with_detail(detail));
    }
    Ok(Some((content, HEAD + len)))
}
