//! What was added to a number: as it is written, and what becomes of the number; and whether
//! records that have to be taken in make sense.

use crate::histogram;
use crate::record::Kind;
use crate::value::Value;
use plinth_types::Bytes;

/// A number that was added, as the bytes of a record.
pub(crate) fn encode(added: Value) -> Bytes {
    let (kind, bits) = match added {
        Value::Integer(integer) => (0, integer.to_le_bytes()),
        Value::Float(float) => (1, float.to_bits().to_le_bytes()),
    };
    Bytes::copy_from_slice(&[&[kind][..], &bits].concat())
}

/// What was added; `None` of bytes that make no sense.
pub(crate) fn decode(bytes: &[u8]) -> Option<Value> {
    let (kind, bits) = bytes.split_first()?;
    let bits = u64::from_le_bytes(bits.try_into().ok()?);
    match kind {
        0 => Some(Value::Integer(bits as i64)),
        1 => Some(Value::Float(f64::from_bits(bits))),
        _ => None,
    }
}

/// Whether the bytes of a record make sense, if it is of a kind that has to be taken in.
pub(crate) fn is_whole(kind: Kind, bytes: &[u8]) -> bool {
    match kind {
        Kind::Histogram | Kind::Exemplar => true,
        Kind::Increment => decode(bytes).is_some(),
        Kind::Start => bytes.is_empty(),
        Kind::HistogramIncrement | Kind::HistogramStart => histogram::decode(bytes).is_ok(),
    }
}

/// A sum and what is added to it. What is no number has ended, and it begins again.
pub(crate) fn sum(before: Value, added: Value) -> Value {
    match (before, added) {
        (Value::Integer(before), Value::Integer(added)) => before
            .checked_add(added)
            .map_or(Value::Float(before as f64 + added as f64), Value::Integer),
        (before, added) if before.as_f64().is_nan() => added,
        (before, added) => Value::Float(before.as_f64() + added.as_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Value::{Float, Integer};

    #[test]
    fn sums_are_integers_as_long_as_they_fit() {
        for (before, added, expected) in [
            (Integer(5), Integer(-7), Integer(-2)),
            (Integer(i64::MAX), Integer(1), Float(i64::MAX as f64 + 1.0)),
            (Integer(5), Float(0.5), Float(5.5)),
            (Float(0.5), Integer(1), Float(1.5)),
            (Float(f64::NAN), Integer(3), Integer(3)),
        ] {
            assert_eq!(sum(before, added), expected);
        }
    }

    #[test]
    fn what_was_added_comes_back() {
        for value in [Integer(i64::MIN), Integer(7), Float(-0.5), Float(f64::MAX)] {
            assert_eq!(decode(&encode(value)).unwrap(), value);
        }
        for bytes in [&b""[..], &[0; 8], &[2; 9], &[1; 10]] {
            assert_eq!(decode(bytes), None, "{bytes:?}");
        }
    }
}
