//! Atomic operations, byte by byte as FoundationDB defines them.
//!
//! Each function takes the value that exists (`None`: the key is absent) and the operand, and gives
//! what is stored afterwards (`None`: the key is absent afterwards). Source: the API reference of
//! FoundationDB, for API version 510 and later; the two operations whose result on an absent key
//! was different before have mutation types of their own.

use crate::limits;
use crate::mutation::MutationType;
use std::borrow::Cow;
use std::cmp::Ordering;

/// What is stored after `operation` with `operand` on `existing`.
///
/// Versionstamped operations have no result before commit; for them, and for plain mutations,
/// this gives the operand.
pub fn apply<'a>(
    operation: MutationType,
    existing: Option<&'a [u8]>,
    operand: &'a [u8],
) -> Option<Cow<'a, [u8]>> {
    use MutationType as M;
    match operation {
        M::Add => Some(fold(existing, operand, add)),
        M::BitOr => {
            Some(fold(existing, operand, |old, operand| bitwise(old, operand, |a, b| a | b)))
        }
        M::BitXor => {
            Some(fold(existing, operand, |old, operand| bitwise(old, operand, |a, b| a ^ b)))
        }
        M::BitAnd => Some(bitwise(existing.unwrap_or_default(), operand, |a, b| a & b)),
        M::BitAndV2 => Some(match existing {
            None => Cow::Borrowed(operand),
            Some(old) => bitwise(old, operand, |a, b| a & b),
        }),
        M::AppendIfFits => Some(append_if_fits(existing.unwrap_or_default(), operand)),
        M::Max => {
            Some(fold(existing, operand, |old, operand| extreme(old, operand, Ordering::Greater)))
        }
        M::Min => Some(extreme(existing.unwrap_or_default(), operand, Ordering::Less)),
        M::MinV2 => Some(match existing {
            None => Cow::Borrowed(operand),
            Some(old) => extreme(old, operand, Ordering::Less),
        }),
        M::ByteMin => Some(Cow::Borrowed(existing.map_or(operand, |old| old.min(operand)))),
        M::ByteMax => Some(Cow::Borrowed(existing.map_or(operand, |old| old.max(operand)))),
        M::CompareAndClear => existing.filter(|old| *old != operand).map(Cow::Borrowed),
        M::Set | M::ClearRange | M::SetVersionstampedKey | M::SetVersionstampedValue => {
            Some(Cow::Borrowed(operand))
        }
    }
}

/// The operand where nothing, or the empty value, exists; else `combine` of both.
fn fold<'a>(
    existing: Option<&'a [u8]>,
    operand: &'a [u8],
    combine: impl FnOnce(&'a [u8], &'a [u8]) -> Cow<'a, [u8]>,
) -> Cow<'a, [u8]> {
    match existing {
        Some(old) if !old.is_empty() => combine(old, operand),
        _ => Cow::Borrowed(operand),
    }
}

/// Little-endian sum over the operand's length; the carry out is dropped.
fn add<'a>(old: &'a [u8], operand: &'a [u8]) -> Cow<'a, [u8]> {
    let mut carry = 0u16;
    let sum = operand.iter().enumerate().map(|(i, &byte)| {
        carry += u16::from(byte) + u16::from(old.get(i).copied().unwrap_or(0));
        let digit = carry as u8;
        carry >>= 8;
        digit
    });
    Cow::Owned(sum.collect())
}

/// Byte by byte over the operand's length, the existing value zero-extended or cut to it.
fn bitwise<'a>(old: &[u8], operand: &[u8], combine: fn(u8, u8) -> u8) -> Cow<'a, [u8]> {
    let bytes = operand.iter().enumerate();
    Cow::Owned(bytes.map(|(i, &byte)| combine(old.get(i).copied().unwrap_or(0), byte)).collect())
}

/// The existing value followed by the operand, or the existing value alone if that would be too
/// long.
fn append_if_fits<'a>(old: &'a [u8], operand: &'a [u8]) -> Cow<'a, [u8]> {
    if old.is_empty() {
        return Cow::Borrowed(operand);
    }
    if operand.is_empty() || old.len() + operand.len() > limits::VALUE_SIZE {
        return Cow::Borrowed(old);
    }
    Cow::Owned([old, operand].concat())
}

/// The existing value, cut or zero-extended to the operand's length, if as a little-endian number
/// it compares as `wanted` to the operand; else the operand.
fn extreme<'a>(old: &[u8], operand: &'a [u8], wanted: Ordering) -> Cow<'a, [u8]> {
    let digit = |i: usize| old.get(i).copied().unwrap_or(0);
    let order = (0..operand.len()).rev().map(|i| digit(i).cmp(&operand[i])).find(|o| o.is_ne());
    if order == Some(wanted) {
        Cow::Owned((0..operand.len()).map(digit).collect())
    } else {
        Cow::Borrowed(operand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MutationType as M;

    fn run(op: M, existing: Option<&[u8]>, operand: &[u8]) -> Option<Vec<u8>> {
        apply(op, existing, operand).map(Cow::into_owned)
    }

    #[test]
    fn every_operation_gives_the_documented_bytes() {
        type Bytes<'a> = Option<&'a [u8]>;
        let cases: &[(M, Bytes<'_>, &[u8], Bytes<'_>)] = &[
            (M::Add, None, b"\x01", Some(b"\x01")),
            (M::Add, Some(b""), b"\x05\x00", Some(b"\x05\x00")),
            (M::Add, Some(b"\xff\x01"), b"\x01\x00", Some(b"\x00\x02")),
            (M::Add, Some(b"\xff\xff\x07"), b"\x01\x00", Some(b"\x00\x00")),
            (M::Add, Some(b"\x02"), b"\x01\x00\x00", Some(b"\x03\x00\x00")),
            (M::Add, Some(b"\x02"), b"", Some(b"")),
            (M::BitAnd, None, b"\x0f\x0f", Some(b"\x00\x00")),
            (M::BitAndV2, None, b"\x0f\x0f", Some(b"\x0f\x0f")),
            (M::BitAndV2, Some(b""), b"\x0f", Some(b"\x00")),
            (M::BitAndV2, Some(b"\x3c\xff"), b"\x0f", Some(b"\x0c")),
            (M::BitOr, Some(b"\x30"), b"\x03\x01", Some(b"\x33\x01")),
            (M::BitOr, None, b"\x03", Some(b"\x03")),
            (M::BitXor, Some(b"\xff"), b"\x0f\x01", Some(b"\xf0\x01")),
            (M::BitXor, Some(b""), b"\x0f", Some(b"\x0f")),
            (M::AppendIfFits, Some(b"ab"), b"cd", Some(b"abcd")),
            (M::AppendIfFits, Some(b"ab"), b"", Some(b"ab")),
            (M::AppendIfFits, None, b"cd", Some(b"cd")),
            (M::Max, None, b"\x01", Some(b"\x01")),
            (M::Max, Some(b"\x00\x02"), b"\xff\x01", Some(b"\x00\x02")),
            (M::Max, Some(b"\x05\x09"), b"\x04", Some(b"\x05")),
            (M::Max, Some(b"\x05"), b"\x04\x00", Some(b"\x05\x00")),
            (M::Max, Some(b"\x05"), b"", Some(b"")),
            (M::Min, None, b"\x07\x01", Some(b"\x00\x00")),
            (M::MinV2, None, b"\x07\x01", Some(b"\x07\x01")),
            (M::MinV2, Some(b""), b"\x07\x01", Some(b"\x00\x00")),
            (M::MinV2, Some(b"\x09\x01"), b"\x07\x01", Some(b"\x07\x01")),
            (M::MinV2, Some(b"\x06\x01\x09"), b"\x07\x01", Some(b"\x06\x01")),
            (M::ByteMin, Some(b"b"), b"aa", Some(b"aa")),
            (M::ByteMin, None, b"aa", Some(b"aa")),
            (M::ByteMax, Some(b"b"), b"aa", Some(b"b")),
            (M::CompareAndClear, None, b"a", None),
            (M::CompareAndClear, Some(b"a"), b"a", None),
            (M::CompareAndClear, Some(b"b"), b"a", Some(b"b")),
        ];
        for (op, existing, operand, expected) in cases {
            let got = run(*op, *existing, operand);
            assert_eq!(got.as_deref(), *expected, "{op:?} of {operand:?} on {existing:?}");
        }
    }

    #[test]
    fn an_append_that_would_be_too_long_leaves_the_value() {
        let old = vec![7; limits::VALUE_SIZE - 1];
        assert_eq!(run(M::AppendIfFits, Some(&old), b"ab"), Some(old.clone()));
        assert_eq!(
            run(M::AppendIfFits, Some(&old), b"a").map(|v| v.len()),
            Some(limits::VALUE_SIZE)
        );
    }
}
