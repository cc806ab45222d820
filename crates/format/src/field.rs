//! Fields at fixed places.
//!
//! Reading never fails: what is not there reads as zeros. Whoever reads has compared the length of
//! the bytes, or a checksum over all of them, so such zeros are never believed.

use plinth_types::Version;

/// The bytes at `at`.
#[inline(always)]
pub fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or([0; N])
}

/// The number in the two bytes at `at`.
#[inline(always)]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

/// The number in the four bytes at `at`.
#[inline(always)]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

/// The number in the eight bytes at `at`.
#[inline(always)]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// The version in the eight bytes at `at`.
#[inline(always)]
pub fn version_at(bytes: &[u8], at: usize) -> Version {
    Version::from_le_bytes(array_at(bytes, at))
}

/// Writes a field.
///
/// # Panics
/// If there is no room for it: the places of fields are the program's own.
#[inline]
pub fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    let place = bytes.get_mut(at..).and_then(|bytes| bytes.first_chunk_mut());
    *place.expect("a field lies within what it is a field of") = field;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_where_they_were_written_and_zero_where_there_are_none() {
        let mut bytes = [0; 20];
        put(&mut bytes, 1, 0x0201_u16.to_le_bytes());
        put(&mut bytes, 3, 0x0605_0403_u32.to_le_bytes());
        put(&mut bytes, 7, (-2_i64).to_le_bytes());
        assert_eq!(bytes[..7], [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!((u16_at(&bytes, 1), u32_at(&bytes, 3)), (0x0201, 0x0605_0403));
        assert_eq!((version_at(&bytes, 7), u64_at(&bytes, 7)), (-2, u64::MAX - 1));
        assert_eq!(array_at(&bytes, 1), [1, 2, 3]);
        // No part of a field is one.
        let ends = [u64_at(&bytes, 13), u64_at(&bytes, 20), u64_at(&bytes, usize::MAX)];
        assert_eq!((ends, u32_at(&[1; 3], 0)), ([0; 3], 0));
    }
}
