//! Heads of messages: what stands in a resource's, a scope's or a metric's message besides what is
//! walked through later.
//!
//! Fields of a message may come in any order, so a head is known when the whole message was looked
//! through. That is done some fields at a time: a message of millions of them holds nobody up.

use super::super::protobuf::Payload;
use super::next;
use crate::MAX_TAGS;
use std::ops::Range;

/// Fields that are read in one step.
const FIELDS: usize = 1000;

/// What points mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Gauge,
    Sum,
    Histogram,
    Exponential,
    Summary,
}

/// A head that is being read.
#[derive(Debug)]
pub(super) struct Head {
    /// What is left of the message.
    outer: Range<usize>,
    /// What is left of the message in it that belongs to the head, too.
    inner: Range<usize>,
    pub(super) part: Part,
}

/// What was found, as places in the request.
#[derive(Debug)]
pub(super) enum Part {
    Resource(Places),
    Scope(ScopeHead),
    Metric(MetricHead),
}

/// Attributes, one more at most than there may be.
#[derive(Debug, Default)]
pub(super) struct Places(pub(super) Vec<Range<usize>>);

impl Places {
    fn push(&mut self, place: Range<usize>) {
        if self.0.len() <= MAX_TAGS {
            self.0.push(place);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct ScopeHead {
    pub(super) name: Range<usize>,
    pub(super) version: Range<usize>,
    pub(super) schema_url: Range<usize>,
    pub(super) attributes: Places,
}

#[derive(Debug, Default)]
pub(super) struct MetricHead {
    pub(super) name: Range<usize>,
    pub(super) description: Range<usize>,
    pub(super) unit: Range<usize>,
    /// What its points are, and the message that they stand in.
    pub(super) data: Option<(Kind, Range<usize>)>,
    pub(super) temporality: u64,
    pub(super) is_monotonic: bool,
}

impl Head {
    pub(super) fn of_resource(message: Range<usize>) -> Self {
        Self { outer: message, inner: 0..0, part: Part::Resource(Places::default()) }
    }

    pub(super) fn of_scope(message: Range<usize>) -> Self {
        Self { outer: message, inner: 0..0, part: Part::Scope(ScopeHead::default()) }
    }

    pub(super) fn of_metric(message: Range<usize>) -> Self {
        Self { outer: message, inner: 0..0, part: Part::Metric(MetricHead::default()) }
    }

    /// Reads on: how many fields that were, and whether it is known now.
    ///
    /// # Errors
    /// If it is no message.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<(usize, bool), String> {
        for fields in 0..FIELDS {
            if let Some((number, payload, place)) = next(bytes, &mut self.inner)? {
                self.part.inner(number, payload, place);
            } else if let Some((number, payload, place)) = next(bytes, &mut self.outer)? {
                if matches!(payload, Payload::Bytes(_)) && self.part.outer(number, place.clone()) {
                    self.inner = place;
                }
            } else {
                return Ok((fields, true));
            }
        }
        Ok((FIELDS, false))
    }
}

impl Part {
    /// Takes a field of the message; whether it is a message that belongs to the head.
    fn outer(&mut self, number: u64, place: Range<usize>) -> bool {
        match self {
            Self::Resource(_) => number == 1,
            Self::Scope(scope) => {
                if number == 3 {
                    scope.schema_url = place;
                }
                number == 1
            }
            Self::Metric(metric) => metric.outer(number, place),
        }
    }

    /// Takes a field of the message in it.
    fn inner(&mut self, number: u64, payload: Payload<'_>, place: Range<usize>) {
        match (self, number, payload) {
            (Self::Resource(attributes), 1, Payload::Bytes(_)) => attributes.push(place),
            (Self::Scope(scope), 1, Payload::Bytes(_)) => scope.name = place,
            (Self::Scope(scope), 2, Payload::Bytes(_)) => scope.version = place,
            (Self::Scope(scope), 3, Payload::Bytes(_)) => scope.attributes.push(place),
            (Self::Metric(metric), 2, Payload::Number(number)) => metric.temporality = number,
            (Self::Metric(metric), 3, Payload::Number(number)) => metric.is_monotonic = number != 0,
            _ => {}
        }
    }
}

impl MetricHead {
    fn outer(&mut self, number: u64, place: Range<usize>) -> bool {
        let kind = match number {
            1 => {
                self.name = place;
                return false;
            }
            2 => {
                self.description = place;
                return false;
            }
            3 => {
                self.unit = place;
                return false;
            }
            5 => Kind::Gauge,
            7 => Kind::Sum,
            9 => Kind::Histogram,
            10 => Kind::Exponential,
            11 => Kind::Summary,
            _ => return false,
        };
        self.data = Some((kind, place));
        (self.temporality, self.is_monotonic) = (0, false);
        true
    }
}
