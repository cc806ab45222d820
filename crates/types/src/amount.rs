//! Amounts of bytes as people write them: `67108864`, `512MiB`, `4GiB`.

/// The least memory that a database is given: fewer bytes are a slip.
pub const LEAST_MEMORY: u64 = 16 << 20;

/// The number of bytes that a text says, with or without a unit; `None` if it says none.
///
/// ```
/// use plinth_types::amount::bytes_in;
/// assert_eq!(bytes_in("512MiB"), Some(512 << 20));
/// assert_eq!(bytes_in("4GB"), None);
/// ```
pub fn bytes_in(text: &str) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let found = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (digits, shift) = found.unwrap_or((text, 0));
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}
