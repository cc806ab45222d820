//! Taking encoded tuples apart, element by element, without decoding them.

use bytes::Bytes;

/// The encoded elements of a tuple; `None` if the bytes are none.
pub(crate) fn elements(tuple: &[u8]) -> Option<Vec<&[u8]>> {
    let mut rest = tuple;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (element, tail) = rest.split_at_checked(length(rest)?)?;
        found.push(element);
        rest = tail;
    }
    Some(found)
}

/// How many bytes the first element has.
fn length(tuple: &[u8]) -> Option<usize> {
    let (&code, rest) = tuple.split_first()?;
    let body = match code {
        0x00 | 0x14 | 0x26 | 0x27 => 0,
        0x01 | 0x02 => string_length(rest)?,
        0x05 => nested_length(rest)?,
        0x0b => 1 + usize::from(!*rest.first()?),
        0x0c..=0x13 => usize::from(0x14 - code),
        0x15..=0x1c => usize::from(code - 0x14),
        0x1d => 1 + usize::from(*rest.first()?),
        0x20 => 4,
        0x21 => 8,
        0x30 => 16,
        0x32 => 10,
        0x33 => 12,
        _ => return None,
    };
    (body <= rest.len()).then_some(1 + body)
}

/// The bytes of an escaped string with its end.
fn string_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| *byte == 0)?;
        if bytes.get(at + 1) != Some(&0xff) {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// The bytes of a nested tuple with its end.
fn nested_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match bytes.get(at..)? {
            [0, 0xff, ..] => at += 2,
            [0, ..] => return Some(at + 1),
            rest => at += length(rest)?,
        }
    }
}

/// The contents of an escaped string.
pub(crate) fn unescape(bytes: &[u8]) -> Option<Bytes> {
    let end = string_length(bytes)?;
    let mut out = Vec::with_capacity(end);
    let mut rest = &bytes[..end - 1];
    while let Some((&byte, tail)) = rest.split_first() {
        out.push(byte);
        rest = if byte == 0 { tail.strip_prefix(&[0xff])? } else { tail };
    }
    Some(out.into())
}

/// The bytes as an encoded element.
pub(crate) fn bytes(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![1];
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.push(0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuples_come_apart_into_their_elements() {
        let parts: [&[u8]; 10] = [
            b"\x00",
            b"\x01a\x00\xffb\x00",
            b"\x02text\x00",
            b"\x05\x00\xff\x15\x01\x02x\x00\x00",
            b"\x0b\xfe\x01",
            b"\x13\x05",
            b"\x16\x01\x02",
            b"\x21\x80\0\0\0\0\0\0\0",
            b"\x33\0\0\0\0\0\0\0\0\0\0\0\x01",
            b"\x27",
        ];
        let tuple = parts.concat();
        assert_eq!(elements(&tuple).unwrap(), parts);
        for cut in [3, 5, tuple.len() - 2] {
            let end = elements(&tuple[..cut]);
            assert!(end.is_none() || end.unwrap().concat().len() == cut);
        }
        assert_eq!(elements(b"\xfe"), None);
        assert_eq!(unescape(b"a\x00\xffb\x00rest").unwrap(), &b"a\0b"[..]);
        assert_eq!(bytes(b"a\0b"), b"\x01a\x00\xffb\x00");
    }
}
