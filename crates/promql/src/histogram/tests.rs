//! Histograms against a model, and what comes in from outside.
//!
//! The model has the observations themselves: a sum of histograms has to be the histogram of all of
//! them. What is odd, infinite or no number at all has to do no harm.

use super::*;
use crate::random::Random;
use std::collections::BTreeMap;

/// Observations, from which histograms are made.
fn observed(random: &mut Random) -> Vec<f64> {
    let one = |random: &mut Random| {
        let value = (random.below(2_000_000) as f64 / 1e6 * 12.0 - 12.0).exp2();
        if random.below(4) == 0 { -value } else { value }
    };
    (0..random.below(60)).map(|_| one(random)).collect()
}

/// The index of the bucket that has a number.
fn index_of(value: f64, schema: i32) -> i32 {
    let (mut below, mut index) = (-1100 << schema.max(0), 1100 << schema.max(0));
    while index - below > 1 {
        let middle = i32::midpoint(below, index);
        match value.abs() <= bounds::exponential(middle, schema) {
            true => index = middle,
            false => below = middle,
        }
    }
    index
}

/// The histogram of observations.
fn histogram(values: &[f64], schema: i32, zero_threshold: f64) -> Histogram {
    let mut sides = [BTreeMap::<i32, f64>::new(), BTreeMap::new()];
    let mut zero_count = 0.0;
    for value in values {
        match value.abs() <= zero_threshold {
            true => zero_count += 1.0,
            false => {
                let side = &mut sides[usize::from(*value < 0.0)];
                *side.entry(index_of(*value, schema)).or_default() += 1.0;
            }
        }
    }
    let [positive, negative] = sides.map(|side| spans(&side.into_iter().collect::<Side>()));
    Histogram::new(Parts {
        schema,
        zero_threshold,
        zero_count,
        count: values.len() as f64,
        sum: values.iter().sum(),
        positive_spans: positive.0,
        positive: positive.1,
        negative_spans: negative.0,
        negative: negative.1,
        ..Parts::default()
    })
    .unwrap()
}

/// Where two have the same buckets, a sum has what each of them has; with other buckets, too, it
/// counts what the histogram of all observations counts.
#[test]
fn sums_are_histograms_of_all_observations() {
    let mut random = Random(7);
    for round in 0..300 {
        let schema = |random: &mut Random| random.below(7) as i32 - 3;
        // Ends of buckets of all schemas, so that none is divided by the zero bucket.
        let zero = |random: &mut Random| [0.0, 0.00390625, 1.0][random.below(3) as usize];
        let (a, b) = (observed(&mut random), observed(&mut random));
        let (of_a, of_b) =
            ((schema(&mut random), zero(&mut random)), (schema(&mut random), zero(&mut random)));
        let sum = histogram(&a, of_a.0, of_a.1).plus(&histogram(&b, of_b.0, of_b.1)).unwrap();
        let all = [a.clone(), b.clone()].concat();
        let wanted = histogram(&all, of_a.0.min(of_b.0), of_a.1.max(of_b.1));
        let told = format!("round {round}: {of_a:?} {of_b:?}\n{sum}\n{wanted}");
        assert_eq!((sum.schema, sum.count), (wanted.schema, wanted.count), "{told}");
        // A threshold within a bucket of the other widens to its end.
        if sum.zero_threshold == wanted.zero_threshold {
            assert_eq!(
                (&sum.positive, &sum.negative),
                (&wanted.positive, &wanted.negative),
                "{told}"
            );
            assert_eq!(sum.zero_count, wanted.zero_count, "{told}");
        }
        let counted: f64 = sum.buckets().map(|bucket| bucket.count).sum();
        assert_eq!(counted, all.len() as f64, "{told}");
        // What was added is subtracted again.
        let less = sum.minus(&histogram(&b, of_b.0, of_b.1)).unwrap();
        let once = histogram(&a, sum.schema, sum.zero_threshold);
        assert_eq!((&less.positive, &less.negative), (&once.positive, &once.negative), "{told}");
        assert!(!sum.is_reset_after(&histogram(&a, of_a.0, of_a.1)), "{told}");
        assert!(
            all.len() == a.len() || histogram(&a, of_a.0, of_a.1).is_reset_after(&sum),
            "{told}"
        );
        // It is read as it was written.
        assert!(Histogram::new(sum.parts()).unwrap().equals(&sum), "{told}");
    }
}

/// A fraction up to a quantile is what was asked for, in each bucket; and buckets don't overlap.
#[test]
fn quantiles_and_fractions_are_each_others_inverse() {
    let mut random = Random(11);
    for round in 0..200 {
        let values = observed(&mut random);
        let one = histogram(&values, random.below(9) as i32 - 3, 0.00390625);
        let ends: Vec<Bucket> = one.buckets().collect();
        assert!(ends.windows(2).all(|pair| pair[0].upper <= pair[1].lower), "{round}: {one}");
        for part in 1..20 {
            let q = f64::from(part) / 20.0;
            let (value, _) = one.quantile(q);
            let (found, _) = one.fraction(f64::NEG_INFINITY, value);
            let is_near = (found - q).abs() < 1e-9;
            assert!(values.is_empty() || is_near, "round {round}: {q} {value} {found}: {one}");
            let trimmed = one.trimmed(Trim::Above, value).count / one.count;
            assert!(
                values.is_empty() || (trimmed - q).abs() < 1e-9,
                "{round}: {q} {trimmed} {one}"
            );
        }
    }
}

#[test]
fn bounds_are_powers() {
    for (index, schema, bound) in [
        (0, 0, 1.0),
        (1, 0, 2.0),
        (-3, 0, 0.125),
        (3, 1, 2.82842712474619),
        (2, 1, 2.0),
        (-1, 1, 0.7071067811865475),
        (3, 2, 1.6817928305074288),
        (1, -1, 4.0),
        (-1, -4, 1.0 / 65536.0),
        (255, 8, 1.9945921121709396),
        (1023, 0, 8.98846567431158e307),
        (1024, 0, f64::MAX),
        (1024 << 8, 8, f64::MAX),
        (1025, 0, f64::INFINITY),
        (-1074, 0, 5e-324),
        (-1 << 30, 8, 0.0),
        (1 << 30, -4, f64::INFINITY),
    ] {
        assert_eq!(bounds::exponential(index, schema), bound, "{index} {schema}");
    }
    for schema in EXPONENTIAL {
        let all = (-3000..3000).map(|index| bounds::exponential(index, schema));
        assert!(all.clone().zip(all.skip(1)).all(|(a, b)| a <= b), "{schema}");
    }
}

fn parts() -> Parts {
    Parts { count: 1.0, ..Parts::default() }
}

#[test]
fn what_is_no_histogram_is_refused() {
    let span = |offset, length| vec![Span { offset, length }];
    let custom = |bounds: &[f64]| Parts { schema: CUSTOM, bounds: bounds.to_vec(), ..parts() };
    for (parts, why) in [
        (Parts { schema: 9, ..parts() }, "not 9"),
        (Parts { schema: -5, ..parts() }, "not -5"),
        (Parts { schema: i32::MIN, ..parts() }, "not -2147483648"),
        (Parts { zero_threshold: f64::NAN, ..parts() }, "the zero bucket can't reach to NaN"),
        (Parts { zero_threshold: -1.0, ..parts() }, "the zero bucket can't reach to -1"),
        (Parts { bounds: vec![1.0], ..parts() }, "has no bounds of its own"),
        (Parts { positive_spans: span(0, u32::MAX), ..parts() }, "4294967295 positive buckets"),
        (Parts { negative: vec![1.0], ..parts() }, "0 negative buckets in spans, 1 counts"),
        (
            Parts { positive_spans: span(i32::MAX, 1), positive: vec![1.0], ..parts() },
            "farther away than any float",
        ),
        (
            Parts { positive_spans: span(i32::MIN, 1), positive: vec![1.0], ..parts() },
            "farther away than any float",
        ),
        (
            Parts {
                positive_spans: [span(0, 1), span(-1, 1)].concat(),
                positive: vec![1.0, 1.0],
                ..parts()
            },
            "positive spans overlap: offset -1",
        ),
        (custom(&[1.0, 1.0]), "bounds of buckets ascend: 1 is behind 1"),
        (custom(&[f64::NAN]), "NaN is no bound"),
        (custom(&[f64::INFINITY]), "inf is no bound"),
        (Parts { zero_count: 1.0, ..custom(&[1.0]) }, "custom buckets have neither"),
        (
            Parts { positive_spans: span(1, 2), positive: vec![1.0, 1.0], ..custom(&[1.0]) },
            "more buckets than the 1 bounds",
        ),
        (
            Parts { positive_spans: span(-1, 1), positive: vec![1.0], ..custom(&[1.0]) },
            "more buckets than the 1 bounds",
        ),
    ] {
        let found = Histogram::new(parts.clone());
        assert!(found.as_ref().is_err_and(|found| found.contains(why)), "{why}: {found:?}");
    }
}

/// Counts, bounds and thresholds at the ends of what a float is: everything has an answer.
#[test]
fn odd_numbers_do_no_harm() {
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 5e-324, f64::MAX];
    let mut all = vec![Histogram::default()];
    for number in odd {
        for offset in [-(1 << 30), -300_000, -1074, 0, 1023, 300_000, (1 << 30) - 2] {
            let spans = vec![Span { offset, length: 2 }];
            let zero_threshold = if number.is_finite() { number.abs() } else { 0.0 };
            let counts = vec![number, 1.0];
            let one = Parts {
                schema: offset % 5,
                count: number,
                sum: number,
                zero_count: number,
                zero_threshold,
                positive_spans: spans.clone(),
                positive: counts.clone(),
                negative_spans: spans,
                negative: counts.clone(),
                ..Parts::default()
            };
            all.push(Histogram::new(one).unwrap());
        }
        let bounds = vec![f64::NEG_INFINITY, -1.0, 5e-324, f64::MAX];
        let spans = vec![Span { offset: 0, length: 5 }];
        let positive = vec![number, 1.0, number, 0.0, number];
        let one = Parts {
            schema: CUSTOM,
            sum: number,
            positive_spans: spans,
            positive,
            bounds,
            ..parts()
        };
        all.push(Histogram::new(one).unwrap());
    }
    for a in &all {
        for number in odd {
            a.quantile(number);
            a.fraction(number, 1.0);
            a.fraction(f64::NEG_INFINITY, number);
            let made = [
                a.times(number),
                a.divided(number),
                a.trimmed(Trim::Above, number),
                a.trimmed(Trim::Below, number),
            ];
            assert!(made.iter().all(|one| one.size() <= a.size()), "{a} {number}");
        }
        a.variance();
        assert!(!a.to_string().is_empty() && a.equals(a));
        for b in &all {
            b.is_reset_after(a);
            for made in [a.plus(b), a.minus(b)] {
                assert_eq!(made.is_err(), a.is_custom() != b.is_custom());
                let is_bounded = |one: &Histogram| one.size() <= a.size() + b.size();
                assert!(made.as_ref().is_ok_and(is_bounded) || made.is_err(), "{a} {b}");
            }
        }
    }
}

fn custom(bounds: &[f64], counts: &[f64]) -> Histogram {
    Histogram::new(Parts {
        schema: CUSTOM,
        count: counts.iter().sum(),
        positive_spans: vec![Span { offset: 0, length: counts.len() as u32 }],
        positive: counts.to_vec(),
        bounds: bounds.to_vec(),
        ..Parts::default()
    })
    .unwrap()
}

#[test]
fn custom_bounds_that_both_have_are_kept() {
    let (a, b) =
        (custom(&[1.0, 2.0, 5.0], &[1.0, 2.0, 3.0, 4.0]), custom(&[2.0, 3.0], &[5.0, 6.0, 7.0]));
    let sum = a.plus(&b).unwrap();
    assert_eq!(sum.to_string(), "{count:28, sum:0, [-Inf,2]:8, (2,+Inf]:20}");
    assert!(a.plus(&custom(&[9.0], &[1.0])).unwrap().bounds.is_empty());
    assert!(!sum.is_reset_after(&a) && a.is_reset_after(&sum));
    assert!(a.is_reset_after(&Histogram::default()) && a.plus(&Histogram::default()).is_err());
}

/// Two say that a counter began again, and that it did not: nobody knows of the sum.
#[test]
fn hints_are_joined() {
    use ResetHint::{Gauge, NotReset, Reset, Unknown};
    for (a, b, hint, collide) in [
        (Reset, NotReset, Unknown, true),
        (Reset, Reset, Reset, false),
        (NotReset, Unknown, Unknown, false),
        (NotReset, Gauge, Gauge, false),
        (Gauge, Unknown, Gauge, false),
    ] {
        for (a, b) in [(a, b), (b, a)] {
            let mut total = Total::new(&Histogram::default().with_hint(a));
            let merged = total.add(&Histogram::default().with_hint(b)).unwrap();
            assert_eq!(
                (total.histogram().hint, merged.hints_collide),
                (hint, collide),
                "{a:?} {b:?}"
            );
        }
    }
}

/// With observations on one side alone the zero bucket has none on the other.
#[test]
fn quantiles_around_zero_are_even() {
    let one = histogram(&[0.0005, 0.0007, 0.9, 0.9], 0, 0.001);
    assert_eq!((one.quantile(0.25).0, one.fraction(0.0, 0.0005).0), (0.0005, 0.25));
    let other = histogram(&[-0.0005, -0.0007, -0.9, -0.9], 0, 0.001);
    assert_eq!((other.quantile(0.75).0, other.fraction(-0.0005, 0.0).0), (-0.0005, 0.25));
    let both = histogram(&[-0.0005, 0.0007, -0.9, 0.9], 0, 0.001);
    assert_eq!(both.quantile(0.5).0, 0.0);
}

/// A bucket into which the zero bucket reaches begins where that ends; numbers are Go's.
#[test]
fn histograms_are_printed() {
    let one = Histogram {
        zero_threshold: 0.375,
        zero_count: 1e6,
        count: 1_000_002.5,
        sum: -2e-5,
        positive: vec![(-1, 1.0)],
        negative: vec![(-1, 1.5)],
        ..Histogram::default()
    };
    let wanted =
        "{count:1.0000025e+06, sum:-2e-05, [-0.5,-0.375):1.5, [-0.375,0.375]:1e+06, (0.375,0.5]:1}";
    assert_eq!(one.to_string(), wanted);
}

/// The zero bucket reaches into a bucket of the other one, and so to its end.
#[test]
fn a_zero_bucket_ends_where_a_bucket_does() {
    let wide =
        Histogram { zero_threshold: 1.5, zero_count: 2.0, count: 2.0, ..Histogram::default() };
    let fine = histogram(&[0.3, 0.7, 1.2, 1.9, 3.0, -1.1], 0, 0.001);
    let sum = wide.plus(&fine).unwrap();
    assert_eq!(sum.to_string(), format!("{{count:8, sum:{}, [-2,2]:7, (2,4]:1}}", fine.sum));
    assert!(fine.plus(&wide).unwrap().equals(&sum));
}
