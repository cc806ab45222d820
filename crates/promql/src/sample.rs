//! Points, and the marks that are none.

use crate::histogram::Histogram;
use std::sync::Arc;

/// The value that says that a series has ended: Prometheus writes it when what it measured is gone.
pub const STALE: u64 = 0x7ff0_0000_0000_0002;

/// The value of a point that is a histogram: the histogram itself stands beside it.
pub const HISTOGRAM: u64 = 0x7ff0_0000_0000_0003;

/// A point: nanoseconds since 1970, and the value, which may be [`STALE`] or [`HISTOGRAM`].
pub type Sample = (i64, f64);

/// A histogram with its time.
pub type HistogramSample = (i64, Arc<Histogram>);

/// The value of a series at one time.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A number.
    Float(f64),
    /// A native histogram.
    Histogram(Arc<Histogram>),
}

impl Value {
    /// The number, where it is one.
    pub fn float(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            Self::Histogram(_) => None,
        }
    }
}
