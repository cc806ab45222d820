//! Texts in documents of JSON that are written piece by piece: the client's status, errors of
//! special keys, tenants.

use std::fmt::Write;

/// A text as JSON writes it, in quotation marks.
///
/// ```
/// assert_eq!(plinth_client::json::quoted("a\"b\\c\n\u{7f}é"), "\"a\\\"b\\\\c\\u000a\\u007fé\"");
/// ```
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                // Writing to a string can't fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
