//! Numbers of variable length, and bytes behind their length.

/// Adds a number: seven bits a byte, the lowest first; the highest bit says that more follow.
#[inline]
pub fn push_number(out: &mut Vec<u8>, number: u64) {
    let mut rest = number;
    while rest >= 0x80 {
        out.push(lowest(rest) | 0x80);
        rest >>= 7;
    }
    out.push(lowest(rest));
}

#[inline(always)]
fn lowest(number: u64) -> u8 {
    let [lowest, ..] = number.to_le_bytes();
    lowest
}

/// Bytes that a number takes.
#[inline]
pub fn number_len(number: usize) -> usize {
    let bits = usize::BITS - (number | 1).leading_zeros();
    usize::try_from(bits.div_ceil(7)).expect("ten at most")
}

/// Takes a number from the front; `None` if there is no whole one, or one of more than 64 bits.
#[inline]
pub fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        // The tenth byte has room for the highest bit alone.
        if shift == u64::BITS - 1 && *byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Adds bytes behind their number.
#[inline]
pub fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_number(out, u64::try_from(bytes.len()).expect("no memory holds more"));
    out.extend_from_slice(bytes);
}

/// Takes so many bytes from the front; `None` if there are fewer.
#[inline]
pub fn take<'b>(rest: &mut &'b [u8], len: usize) -> Option<&'b [u8]> {
    let (taken, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(taken)
}

/// Takes bytes that stand behind their number.
#[inline]
pub fn take_bytes<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let len = usize::try_from(take_number(rest)?).ok()?;
    take(rest, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_a_byte_for_each_seven_bits() {
        for bits in 0..=u64::BITS {
            for number in [(1_u128 << bits) - 1, 1_u128 << bits.min(63)] {
                let number = u64::try_from(number).expect("at most 64 bits");
                let mut bytes = Vec::new();
                push_number(&mut bytes, number);
                let expected = (u64::BITS - (number | 1).leading_zeros()).div_ceil(7);
                assert_eq!(
                    (bytes.len(), number_len(number as usize)),
                    (expected as usize, expected as usize)
                );
                let mut rest = &bytes[..];
                assert_eq!((take_number(&mut rest), rest.len()), (Some(number), 0));
                bytes.pop();
                assert_eq!(take_number(&mut &bytes[..]), None, "cut off");
            }
        }
        let mut bytes = Vec::new();
        push_number(&mut bytes, 300);
        assert_eq!(bytes, [0xac, 0x02]);
        assert_eq!(take_number(&mut &[0x80; 20][..]), None, "it never ends");
        let mut most = Vec::new();
        push_number(&mut most, u64::MAX);
        most[9] = 2;
        assert_eq!(take_number(&mut &most[..]), None, "it has 65 bits");
    }

    #[test]
    fn bytes_stand_behind_their_number() {
        let mut bytes = Vec::new();
        push_bytes(&mut bytes, b"one");
        push_bytes(&mut bytes, b"");
        assert_eq!(bytes, b"\x03one\x00");
        let mut rest = &bytes[..];
        assert_eq!(take_bytes(&mut rest), Some(&b"one"[..]));
        assert_eq!(take_bytes(&mut rest), Some(&b""[..]));
        assert_eq!(take_bytes(&mut rest), None);
        assert_eq!(take_bytes(&mut &b"\x04one"[..]), None);
        assert_eq!(take_bytes(&mut &b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01one"[..]), None);
    }
}
