//! Encoded tuples sort as their elements do, come back as they went in, and bytes that are no tuple
//! do no harm.
//!
//! The order is defined here once more, apart from the encoding, and random tuples are compared by
//! both. Elements are drawn from the values at which encodings break: zero bytes, `0xff`, negative
//! zero, numbers at the edge of a length.

use plinth::tuple::{self, Element};
use plinth_env::simulated::Random;
use std::cmp::Ordering;

/// An element with an order defined here, apart from the encoding's.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Nil,
    Bytes(Vec<u8>),
    String(String),
    Tuple(Vec<Value>),
    Int(i64),
    Double(f64),
    Bool(bool),
}

impl Value {
    fn rank(&self) -> usize {
        match self {
            Self::Nil => 0,
            Self::Bytes(_) => 1,
            Self::String(_) => 2,
            Self::Tuple(_) => 3,
            Self::Int(_) => 4,
            Self::Double(_) => 5,
            Self::Bool(_) => 6,
        }
    }

    fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            (Self::String(a), Self::String(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Self::Tuple(a), Self::Tuple(b)) => order(a, b),
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Double(a), Self::Double(b)) => a.total_cmp(b),
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    fn element(&self) -> Element<'_> {
        match self {
            Self::Nil => Element::Nil,
            Self::Bytes(bytes) => Element::Bytes(bytes.as_slice().into()),
            Self::String(text) => Element::String(text.as_str().into()),
            Self::Tuple(values) => Element::Tuple(elements(values)),
            Self::Int(number) => Element::Int(*number),
            Self::Double(number) => Element::Double(*number),
            Self::Bool(value) => Element::Bool(*value),
        }
    }

    fn random(random: &mut Random, depth: usize) -> Self {
        match random.index(if depth < 3 { 7 } else { 6 }) {
            0 => Self::Nil,
            1 => Self::Bytes(
                (0..random.index(4)).map(|_| *pick(random, &[0, 1, 0x7f, 0xfe, 0xff])).collect(),
            ),
            2 => Self::String(
                (0..random.index(4)).map(|_| *pick(random, &['\0', 'a', 'b', '\u{ff}'])).collect(),
            ),
            3 => {
                let number = random.next_u64() as i64 >> random.index(64);
                Self::Int(*pick(random, &[number, number & -256, number | 255]))
            }
            4 => Self::Double(*pick(
                random,
                &[0.0, -0.0, 1.5, -1.5, f64::INFINITY, f64::MIN, f64::MIN_POSITIVE],
            )),
            5 => Self::Bool(random.index(2) == 0),
            _ => Self::Tuple(tuple_of(random, depth + 1)),
        }
    }
}

fn pick<'a, T>(random: &mut Random, choices: &'a [T]) -> &'a T {
    &choices[random.index(choices.len())]
}

fn tuple_of(random: &mut Random, depth: usize) -> Vec<Value> {
    (0..random.index(4)).map(|_| Value::random(random, depth)).collect()
}

fn order(a: &[Value], b: &[Value]) -> Ordering {
    let unequal = a.iter().zip(b).map(|(a, b)| a.order(b)).find(|order| order.is_ne());
    unequal.unwrap_or(a.len().cmp(&b.len()))
}

fn elements(values: &[Value]) -> Vec<Element<'_>> {
    values.iter().map(Value::element).collect()
}

#[test]
fn bytes_sort_as_tuples_do() {
    let mut random = Random::new(20_251);
    for _ in 0..30_000 {
        let a = tuple_of(&mut random, 0);
        // Mostly a near relative of the first, so that the difference lies deep.
        let mut b = a.clone();
        if let Some(last) = b.last_mut().filter(|_| random.index(3) > 0) {
            *last = Value::random(&mut random, 0);
        } else {
            b.push(Value::random(&mut random, 0));
        }
        let (packed_a, packed_b) = (tuple::pack(&elements(&a)), tuple::pack(&elements(&b)));
        assert_eq!(packed_a.cmp(&packed_b), order(&a, &b), "{a:?} and {b:?}");
        assert_eq!(tuple::unpack::<Vec<Element<'_>>>(&packed_a).unwrap(), elements(&a));
        let longer = b.len() > a.len() && b[..a.len()] == a[..];
        assert_eq!(tuple::range(&elements(&a)).contains(&packed_b), longer, "{a:?} and {b:?}");
    }
}

#[test]
fn foreign_bytes_are_a_tuple_or_an_error() {
    let mut random = Random::new(20_252);
    let codes = [
        0, 1, 2, 5, 0x0b, 0x0c, 0x13, 0x14, 0x15, 0x1c, 0x1d, 0x20, 0x21, 0x26, 0x30, 0x33, 0xff,
        b'a',
    ];
    let mut good = 0;
    for _ in 0..100_000 {
        let bytes: Vec<u8> = (0..random.index(24)).map(|_| *pick(&mut random, &codes)).collect();
        match tuple::unpack::<Vec<Element<'_>>>(&bytes) {
            Ok(_) => good += 1,
            Err(error) => assert_eq!(error.code(), 2250),
        }
        let _ = tuple::printable(&bytes);
        let _ = tuple::unpack::<(i64, String)>(&bytes);
    }
    assert!(good > 1000, "only {good} were tuples");
}

#[test]
fn nesting_has_a_limit_and_bytes_that_look_like_it_have_none() {
    let nested = |depth: usize| [vec![5; depth], vec![0; depth]].concat();
    let unpack =
        |bytes: &[u8]| tuple::unpack::<Vec<Element<'_>>>(bytes).map(|elements| elements.len());
    assert_eq!(unpack(&nested(tuple::MAX_NESTING)), Ok(1));
    assert_eq!(unpack(&nested(tuple::MAX_NESTING + 1)).unwrap_err().code(), 2250);
    assert_eq!(unpack(&nested(50_000)).unwrap_err().code(), 2250);
    assert_eq!(unpack(&vec![5; 100_000]).unwrap_err().code(), 2250);
    let fives = vec![5_u8; 10_000];
    let numbers = vec![
        Element::Int(0x0505_0505_0505),
        Element::Double(f64::from_bits(0x0505_0505_0505_0505)),
    ];
    let wide = Element::Tuple([vec![Element::Tuple(numbers)], vec![Element::Nil; 3]].concat());
    let many = [vec![Element::Bytes(fives.into())], vec![wide; 200]].concat();
    assert_eq!(tuple::unpack::<Vec<Element<'_>>>(&tuple::pack(&many)).unwrap(), many);
}
