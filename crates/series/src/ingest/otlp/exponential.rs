//! Exponential histograms of OpenTelemetry as native ones of Prometheus.
//!
//! A bucket there is counted by its lower bound, here by its upper one, so each index is one more.
//! A scale beyond the finest schema is made coarser, two buckets at a time into one.

use super::super::protobuf::{Fields, Payload, numbers};
use crate::codec::reader::unzigzag;
use plinth_promql::{EXPONENTIAL, Histogram, Parts, Span};
use std::collections::BTreeMap;

/// Buckets of one side, at most: senders have 160 unless they are told otherwise.
const MAX_BUCKETS: usize = 4096;
/// How far from 0 the zero bucket reaches of which nothing else is said.
const ZERO_THRESHOLD: f64 = 1e-128;

/// What was read of a point.
#[derive(Default)]
pub(super) struct Exponential {
    count: u64,
    sum: f64,
    scale: i64,
    zero_count: u64,
    zero_threshold: f64,
    positive: Side,
    negative: Side,
}

/// Counts of buckets, from an index on.
#[derive(Default)]
struct Side {
    offset: i64,
    counts: Vec<u64>,
}

impl Side {
    fn of(message: &[u8]) -> Result<Self, String> {
        let mut side = Self::default();
        for field in Fields::of(message) {
            match field? {
                (1, Payload::Number(number)) => side.offset = unzigzag(number),
                (2, payload) => numbers(payload, |count| side.counts.push(count))?,
                _ => {}
            }
            if side.counts.len() > MAX_BUCKETS {
                return Err(format!("a histogram has more than {MAX_BUCKETS} buckets"));
            }
        }
        Ok(side)
    }

    /// As buckets of a schema that is coarser by so many steps.
    fn buckets(&self, coarser: u32) -> Result<(Vec<Span>, Vec<f64>), String> {
        if i32::try_from(self.offset).is_err() {
            return Err("the offset of its buckets is beyond 32 bits".to_owned());
        }
        let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
        for (index, count) in (self.offset..).zip(&self.counts).filter(|(_, count)| **count > 0) {
            let sum = counts.entry((index >> coarser) + 1).or_default();
            *sum = sum.saturating_add(*count);
        }
        let (mut spans, mut next): (Vec<Span>, i64) = (Vec::new(), 0);
        for index in counts.keys() {
            match spans.last_mut() {
                Some(span) if *index == next => span.length += 1,
                _ => spans.push(Span { offset: (index - next) as i32, length: 1 }),
            }
            next = index + 1;
        }
        Ok((spans, counts.into_values().map(|count| count as f64).collect()))
    }
}

impl Exponential {
    /// Takes a field of a point.
    pub(super) fn take(&mut self, number: u64, payload: Payload<'_>) -> Result<(), String> {
        match (number, payload) {
            (4, Payload::Eight(count)) => self.count = count,
            (5, Payload::Eight(bits)) => self.sum = f64::from_bits(bits),
            (6, Payload::Number(number)) => self.scale = unzigzag(number),
            (7, Payload::Eight(count)) => self.zero_count = count,
            (8, Payload::Bytes(side)) => self.positive = Side::of(side)?,
            (9, Payload::Bytes(side)) => self.negative = Side::of(side)?,
            (14, Payload::Eight(bits)) => self.zero_threshold = f64::from_bits(bits),
            _ => {}
        }
        Ok(())
    }

    /// The native histogram.
    pub(super) fn histogram(&self) -> Result<Histogram, String> {
        let (coarsest, finest) = (i64::from(*EXPONENTIAL.start()), i64::from(*EXPONENTIAL.end()));
        if self.scale < coarsest {
            return Err(format!("its scale is {}, and {coarsest} is the least", self.scale));
        }
        let schema = self.scale.min(finest);
        // Beyond this all are one bucket on either side of 1.
        let coarser = (self.scale - schema).min(63) as u32;
        let (positive_spans, positive) = self.positive.buckets(coarser)?;
        let (negative_spans, negative) = self.negative.buckets(coarser)?;
        let zero_threshold = match self.zero_threshold {
            0.0 => ZERO_THRESHOLD,
            threshold => threshold,
        };
        Histogram::new(Parts {
            schema: schema as i32,
            zero_threshold,
            zero_count: self.zero_count as f64,
            count: self.count as f64,
            sum: self.sum,
            positive_spans,
            positive,
            negative_spans,
            negative,
            ..Parts::default()
        })
    }
}
