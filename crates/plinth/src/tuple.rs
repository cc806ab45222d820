//! Tuples as keys: FoundationDB's tuple layer.
//!
//! A tuple of strings, numbers and the like becomes bytes that sort as the tuple does, element by
//! element, and that every FoundationDB binding reads. The encoding is the crate
//! `foundationdb-tuple`'s; this module adds what is missing around it: errors that mix with a
//! transaction's, versionstamps that cannot be forgotten, ranges, text, and a limit on nesting,
//! without which a few bytes from a stranger could overflow the stack.
//!
//! ```
//! use plinth::tuple;
//!
//! let key = tuple::pack(&("users", 42, true));
//! assert_eq!(key, b"\x02users\x00\x15\x2a\x27");
//! let (kind, id, active): (String, i64, bool) = tuple::unpack(&key)?;
//! assert_eq!((kind.as_str(), id, active), ("users", 42, true));
//! assert_eq!(tuple::printable(&key), r#"("users", 42, true)"#);
//! # Ok::<(), plinth::Error>(())
//! ```
//!
//! Tuples of up to twelve elements pack and unpack by their types; [`Element`] stands for an
//! element whose type is not known beforehand, `Vec<Element>` for a whole tuple of them. Byte
//! strings are [`Bytes`], `&[u8]` (`&b"x"[..]`) or `Vec<u8>`.

use plinth_types::{Error, KeyRange, Result};
use std::fmt::Write;

pub use foundationdb_tuple::{
    Bytes, Element, PackError, PackResult, TupleDepth, TuplePack, TupleUnpack, Versionstamp,
    VersionstampOffset,
};

#[cfg(feature = "uuid")]
pub use foundationdb_tuple::Uuid;

/// How deep tuples may lie in tuples, when they are unpacked.
pub const MAX_NESTING: usize = 100;

/// The bytes of a tuple. One value alone is the tuple of that one value.
///
/// # Panics
/// If the bytes are 4 GiB or more, or if an integer (feature `num-bigint`) has more than 255 bytes.
pub fn pack<T: TuplePack>(tuple: &T) -> Vec<u8> {
    tuple.pack_to_vec()
}

/// The bytes of a tuple with one incomplete [`Versionstamp`], followed by the place of the stamp:
/// what `set_versionstamped_key` and `set_versionstamped_value` take.
///
/// ```
/// use plinth::tuple::{self, Versionstamp};
/// let key = tuple::pack_with_versionstamp(&("log", Versionstamp::incomplete(7)))?;
/// assert_eq!(key, b"\x02log\x00\x33\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\x07\x06\0\0\0");
/// assert!(tuple::pack_with_versionstamp(&("log", 7)).is_err());
/// # Ok::<(), plinth::Error>(())
/// ```
///
/// # Errors
/// `client_invalid_operation` unless exactly one versionstamp is incomplete.
pub fn pack_with_versionstamp<T: TuplePack>(tuple: &T) -> Result<Vec<u8>> {
    append_with_versionstamp(Vec::new(), tuple)
}

/// `prefix`, the tuple, and the place of its one incomplete versionstamp in both together.
pub(crate) fn append_with_versionstamp<T: TuplePack>(
    mut prefix: Vec<u8>,
    tuple: &T,
) -> Result<Vec<u8>> {
    let start = prefix.len() as u32;
    let problem = match tuple.pack_into_vec(&mut prefix) {
        VersionstampOffset::OneIncomplete { offset } => {
            prefix.extend_from_slice(&(start + offset).to_le_bytes());
            return Ok(prefix);
        }
        VersionstampOffset::None { .. } => "it has none",
        VersionstampOffset::MultipleIncomplete => "it has several",
    };
    let detail = format!("the tuple needs exactly one incomplete versionstamp, and {problem}");
    Err(Error::client_invalid_operation().with_detail(detail))
}

/// The tuple that these bytes encode.
///
/// # Errors
/// `invalid_tuple_data_type` if they are no tuple of these types, or nest deeper than
/// [`MAX_NESTING`].
pub fn unpack<'de, T: TupleUnpack<'de>>(bytes: &'de [u8]) -> Result<T> {
    let bad = |why: &dyn std::fmt::Display| {
        let detail = format!("{why}, in {}", plinth_types::printable(excerpt(bytes)));
        Error::invalid_tuple_data_type().with_detail(detail)
    };
    if nests_too_deep(bytes) {
        return Err(bad(&"tuples nested too deep"));
    }
    foundationdb_tuple::unpack(bytes).map_err(|error| bad(&error))
}

/// The range of all tuples that begin with this one and are longer.
///
/// ```
/// use plinth::tuple;
/// let range = tuple::range(&("users",));
/// assert!(range.contains(&tuple::pack(&("users", 1, "name"))));
/// assert!(!range.contains(&tuple::pack(&("users",))));
/// assert!(!range.contains(&tuple::pack(&("users2", 1))));
/// ```
pub fn range<T: TuplePack>(tuple: &T) -> KeyRange {
    range_below(pack(tuple))
}

/// The range of the tuples that go on after these bytes, which are a whole tuple, or a subspace's
/// prefix.
pub(crate) fn range_below(mut prefix: Vec<u8>) -> KeyRange {
    prefix.push(0x00);
    let begin = plinth_types::Bytes::copy_from_slice(&prefix);
    if let Some(last) = prefix.last_mut() {
        *last = 0xff;
    }
    KeyRange::new(begin, prefix)
}

/// The versionstamp of a committed transaction as a tuple's element; `user_version` orders what one
/// transaction wrote.
///
/// ```
/// let stamp = plinth::Versionstamp::new(1_000_000, 3);
/// let element = plinth::tuple::versionstamp(stamp, 0);
/// assert!(element.is_complete());
/// assert_eq!(element.transaction_version(), stamp.as_bytes());
/// ```
pub fn versionstamp(stamp: plinth_types::Versionstamp, user_version: u16) -> Versionstamp {
    Versionstamp::complete(*stamp.as_bytes(), user_version)
}

/// The bytes as text: the tuple that they encode, or, where they encode none, the bytes themselves.
///
/// ```
/// use plinth::tuple;
/// assert_eq!(tuple::printable(&tuple::pack(&("a", -1, ((),), Some(2.5)))), r#"("a", -1, (()), 2.5)"#);
/// assert_eq!(tuple::printable(b"\x02torn"), r"\x02torn");
/// ```
pub fn printable(bytes: &[u8]) -> String {
    match unpack::<Vec<Element<'_>>>(bytes) {
        Ok(elements) => {
            let mut text = String::new();
            print_tuple(&mut text, &elements);
            text
        }
        Err(_) => plinth_types::printable(bytes),
    }
}

fn print_tuple(text: &mut String, elements: &[Element<'_>]) {
    text.push('(');
    for (at, element) in elements.iter().enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        print_element(text, element);
    }
    text.push(')');
}

fn print_element(text: &mut String, element: &Element<'_>) {
    // Writing to a String cannot fail.
    let _ = match element {
        Element::Nil => write!(text, "null"),
        Element::Bytes(bytes) => {
            write!(text, "b\"{}\"", plinth_types::printable(bytes).replace('"', "\\\""))
        }
        Element::String(string) => write!(text, "{string:?}"),
        Element::Tuple(elements) => {
            print_tuple(text, elements);
            Ok(())
        }
        Element::Int(number) => write!(text, "{number}"),
        Element::Float(number) => write!(text, "{number:?}"),
        Element::Double(number) => write!(text, "{number:?}"),
        Element::Bool(value) => write!(text, "{value}"),
        Element::Versionstamp(stamp) => print_versionstamp(text, stamp),
        #[cfg(feature = "uuid")]
        Element::Uuid(uuid) => write!(text, "{uuid}"),
        #[cfg(feature = "num-bigint")]
        Element::BigInt(number) => write!(text, "{number}"),
    };
}

fn print_versionstamp(text: &mut String, stamp: &Versionstamp) -> std::fmt::Result {
    if !stamp.is_complete() {
        return write!(text, "versionstamp(incomplete, {})", stamp.user_version());
    }
    text.push_str("versionstamp(");
    for byte in stamp.transaction_version() {
        write!(text, "{byte:02x}")?;
    }
    write!(text, ", {})", stamp.user_version())
}

/// Enough of the bytes to recognise them by.
fn excerpt(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(100)]
}

/// Whether unpacking these bytes as tuples in tuples could go deeper than [`MAX_NESTING`].
fn nests_too_deep(bytes: &[u8]) -> bool {
    let is_nesting = |byte: &&u8| **byte == code::NESTED;
    // Every level needs its byte: hardly any key has so many, and those that have are walked
    // element by element.
    bytes.iter().filter(is_nesting).take(MAX_NESTING + 1).count() > MAX_NESTING
        && depth(bytes) > MAX_NESTING
}

/// The codes at which elements begin that have no fixed length.
mod code {
    pub const NIL: u8 = 0x00;
    pub const BYTES: u8 = 0x01;
    pub const STRING: u8 = 0x02;
    pub const NESTED: u8 = 0x05;
    pub const NEGATIVE_BIG: u8 = 0x0b;
    pub const ZERO: u8 = 0x14;
    pub const POSITIVE_BIG: u8 = 0x1d;
    pub const ESCAPE: u8 = 0xff;
}

/// How deep the tuples in these bytes nest, up to where they stop being tuples.
fn depth(bytes: &[u8]) -> usize {
    let (mut rest, mut depth, mut deepest) = (bytes, 0_usize, 0);
    while let Some((&first, after)) = rest.split_first() {
        rest = match first {
            code::NIL if depth > 0 && after.first() == Some(&code::ESCAPE) => &after[1..],
            code::NIL => {
                depth = depth.saturating_sub(1);
                after
            }
            code::NESTED => {
                depth += 1;
                deepest = deepest.max(depth);
                after
            }
            code::BYTES | code::STRING => after_terminator(after),
            _ => match length(first, after) {
                Some(length) => after.get(length..).unwrap_or_default(),
                None => break,
            },
        };
    }
    deepest
}

/// What follows a byte string: its end is a zero that is not escaped.
fn after_terminator(bytes: &[u8]) -> &[u8] {
    let mut at = 0;
    while let Some(zero) = bytes[at..].iter().position(|&byte| byte == code::NIL) {
        at += zero + 1;
        if bytes.get(at) != Some(&code::ESCAPE) {
            return &bytes[at..];
        }
    }
    &[]
}

/// How many bytes an element has after its code; `None` if there is no such element.
fn length(first: u8, after: &[u8]) -> Option<usize> {
    match first {
        0x0c..=0x1c => Some(first.abs_diff(code::ZERO).into()),
        code::NEGATIVE_BIG => Some(1 + usize::from(!after.first()?)),
        code::POSITIVE_BIG => Some(1 + usize::from(*after.first()?)),
        0x20 => Some(4),
        0x21 => Some(8),
        0x26 | 0x27 => Some(0),
        0x30 => Some(16),
        0x33 => Some(12),
        _ => None,
    }
}
