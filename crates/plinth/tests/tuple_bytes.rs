//! The encoding is a format that other programs write and read: its bytes are held here one by one.

use plinth::tuple::{self, Bytes, Element, Versionstamp};

fn string(text: &str) -> Element<'_> {
    Element::String(text.into())
}

fn bytes(bytes: &[u8]) -> Element<'_> {
    Element::Bytes(bytes.into())
}

#[test]
fn every_code_of_the_table_has_its_bytes() {
    let stamp = Versionstamp::complete([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 0x0b0c);
    let cases: Vec<(Element<'_>, &[u8])> = vec![
        (Element::Nil, b"\x00"),
        (bytes(b""), b"\x01\x00"),
        (bytes(b"foo\0bar\xff"), b"\x01foo\x00\xffbar\xff\x00"),
        (bytes(b"\0"), b"\x01\x00\xff\x00"),
        (string(""), b"\x02\x00"),
        (string("F\u{d4}O\0bar"), b"\x02F\xc3\x94O\x00\xffbar\x00"),
        (Element::Tuple(vec![]), b"\x05\x00"),
        (
            Element::Tuple(vec![bytes(b"foo\0bar"), Element::Nil, Element::Tuple(vec![])]),
            b"\x05\x01foo\x00\xffbar\x00\x00\xff\x05\x00\x00",
        ),
        (Element::Int(i64::MIN), b"\x0c\x7f\xff\xff\xff\xff\xff\xff\xff"),
        (Element::Int(-0x0100_0000_0000_0000), b"\x0c\xfe\xff\xff\xff\xff\xff\xff\xff"),
        (Element::Int(-0x00ff_ffff_ffff_ffff), b"\x0d\x00\x00\x00\x00\x00\x00\x00"),
        (Element::Int(-5_551_212), b"\x11\xab\x4b\x93"),
        (Element::Int(-256), b"\x12\xfe\xff"),
        (Element::Int(-255), b"\x13\x00"),
        (Element::Int(-1), b"\x13\xfe"),
        (Element::Int(0), b"\x14"),
        (Element::Int(1), b"\x15\x01"),
        (Element::Int(255), b"\x15\xff"),
        (Element::Int(256), b"\x16\x01\x00"),
        (Element::Int(0x0100_0000_0000_0000), b"\x1c\x01\x00\x00\x00\x00\x00\x00\x00"),
        (Element::Int(i64::MAX), b"\x1c\x7f\xff\xff\xff\xff\xff\xff\xff"),
        (Element::Float(-42.0), b"\x20\x3d\xd7\xff\xff"),
        (Element::Float(0.0), b"\x20\x80\x00\x00\x00"),
        (Element::Double(-42.0), b"\x21\x3f\xba\xff\xff\xff\xff\xff\xff"),
        (Element::Double(-0.0), b"\x21\x7f\xff\xff\xff\xff\xff\xff\xff"),
        (Element::Bool(false), b"\x26"),
        (Element::Bool(true), b"\x27"),
        (Element::Versionstamp(stamp), b"\x33\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c"),
    ];
    for (element, encoded) in cases {
        let tuple = vec![element];
        assert_eq!(tuple::pack(&tuple), encoded, "{tuple:?}");
        assert_eq!(tuple::unpack::<Vec<Element<'_>>>(encoded).unwrap(), tuple);
    }
}

#[test]
fn integers_beyond_eight_bytes_carry_their_length() {
    let cases: [(i128, &[u8]); 4] = [
        (u64::MAX.into(), b"\x1c\xff\xff\xff\xff\xff\xff\xff\xff"),
        (1 << 64, b"\x1d\x09\x01\x00\x00\x00\x00\x00\x00\x00\x00"),
        (-i128::from(u64::MAX), b"\x0c\x00\x00\x00\x00\x00\x00\x00\x00"),
        (-(1 << 64), b"\x0b\xf6\xfe\xff\xff\xff\xff\xff\xff\xff\xff"),
    ];
    for (number, encoded) in cases {
        assert_eq!(tuple::pack(&number), encoded, "{number}");
        assert_eq!(tuple::unpack::<i128>(encoded).unwrap(), number);
    }
    assert_eq!(tuple::unpack::<u64>(cases[0].1).unwrap(), u64::MAX);
    assert_eq!(tuple::unpack::<i64>(cases[0].1).unwrap_err().code(), 2250);
}

#[cfg(feature = "uuid")]
#[test]
fn a_uuid_is_its_sixteen_bytes() {
    let uuid = tuple::Uuid::from_bytes(*b"0123456789abcdef");
    assert_eq!(tuple::pack(&uuid), b"\x300123456789abcdef");
    assert_eq!(tuple::unpack::<tuple::Uuid>(b"\x300123456789abcdef").unwrap(), uuid);
}

#[test]
fn a_versionstamp_is_followed_by_its_place() {
    let incomplete = Versionstamp::incomplete(1);
    let packed = tuple::pack_with_versionstamp(&("a", (incomplete.clone(), 2))).unwrap();
    assert_eq!(
        packed,
        b"\x02a\x00\x05\x33\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x01\x15\x02\x00\x05\0\0\0"
    );
    let in_subspace =
        plinth::Subspace::from_bytes(&b"pre"[..]).pack_with_versionstamp(&incomplete).unwrap();
    assert_eq!(in_subspace, b"pre\x33\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x01\x04\0\0\0");
    for error in [
        tuple::pack_with_versionstamp(&("a", 1)).unwrap_err(),
        tuple::pack_with_versionstamp(&(incomplete.clone(), incomplete)).unwrap_err(),
    ] {
        assert_eq!(error.code(), 2000, "{error}");
    }
}

#[test]
fn text_says_what_a_key_is() {
    let stamp = tuple::versionstamp(plinth::Versionstamp::new(1, 2), 3);
    let key =
        tuple::pack(&(Bytes::from(&b"q\"\0"[..]), "n\n", None::<()>, 0.5_f32, (stamp, 1), false));
    let text =
        r#"(b"q\"\x00", "n\n", null, 0.5, (versionstamp(00000000000000010002, 3), 1), false)"#;
    assert_eq!(tuple::printable(&key), text);
    assert_eq!(tuple::printable(b""), "()");
    assert_eq!(tuple::printable(b"\x15\x07\xfe"), "\\x15\\x07\\xfe");
}
