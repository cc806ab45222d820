//! Keys and values as people read them, with FoundationDB's escapes.

use std::fmt::Write;

/// The bytes as text: printable ASCII as it is, `\\` for a backslash, `\xhh` for the rest.
///
/// ```
/// assert_eq!(plinth_types::printable(b"a\\b\x00\xff"), "a\\\\b\\x00\\xff");
/// ```
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(byte as char),
            _ => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text
}

/// The bytes that `text` spells, or what is wrong with it and where.
///
/// ```
/// assert_eq!(plinth_types::printable::parse("a\\\\b\\x00\\xff").unwrap(), b"a\\b\x00\xff");
/// assert!(plinth_types::printable::parse("\\q").is_err() && plinth_types::printable::parse("\\x+1").is_err());
/// ```
pub fn parse(text: &str) -> std::result::Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        match bytes.get(at + 1) {
            Some(b'x') => {
                let digits = text
                    .get(at + 2..at + 4)
                    .filter(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()));
                let hex = digits.and_then(|hex| u8::from_str_radix(hex, 16).ok());
                out.push(
                    hex.ok_or_else(|| format!("at byte {at}: \\x needs two hexadecimal digits"))?,
                );
                at += 4;
            }
            Some(&quoted @ (b'\\' | b'"' | b' ' | b';')) => {
                out.push(quoted);
                at += 2;
            }
            _ => {
                return Err(format!(
                    "at byte {at}: unknown escape; write \\xhh, \\\\, \\\", \\; or '\\ '"
                ));
            }
        }
    }
    Ok(out)
}
