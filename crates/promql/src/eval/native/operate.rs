//! Operators with a histogram on one side at least.
//!
//! Histograms are added to and subtracted from each other, multiplied and divided by numbers,
//! trimmed at them, and they are equal or not. Everything else has no value.
//!
//! One histogram may be there at many steps and be held once; what is made of it differs from step
//! to step. So what is made is counted while it is made.

use super::super::column::Cell;
use crate::annotations::Annotations;
use crate::ast::BinaryOp;
use crate::histogram::{Histogram, Merged, Mixed, ResetHint, Total, Trim};
use std::ops::Range;
use std::sync::Arc;

/// The histograms that come of something would take too much room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct TooMuch;

/// What is told of operators and aggregations, where these stand, and what they may make.
pub(in super::super) struct Notes<'a> {
    pub(in super::super) told: &'a mut Annotations,
    pub(in super::super) span: &'a Range<usize>,
    /// How many values more histograms may be counted as.
    pub(in super::super) room: usize,
}

impl Notes<'_> {
    /// Counts a histogram that was made.
    pub(in super::super) fn made(&mut self, histogram: &Histogram) -> Result<(), TooMuch> {
        self.room = self.room.checked_sub(histogram.size()).ok_or(TooMuch)?;
        Ok(())
    }

    fn of_kinds(&mut self, op: BinaryOp, left: &str, right: &str) {
        let op = op.text();
        let why = format!(
            "incompatible sample types encountered for binary operator {op:?}: {left} {op} {right}"
        );
        self.told.inform(why, self.span);
    }

    fn of_merge(&mut self, merged: Merged, doing: &str) {
        if merged.hints_collide {
            let why = format!("conflicting counter resets during histogram {doing}");
            self.told.warn(why, self.span);
        }
        if merged.bounds_differ {
            let why = format!("mismatched custom buckets were reconciled during {doing}");
            self.told.inform(why, self.span);
        }
    }
}

/// What comes of two values, one of them a histogram, and whether a comparison holds.
pub(in super::super) fn operate(
    op: BinaryOp,
    left: Cell<'_>,
    right: Cell<'_>,
    notes: &mut Notes<'_>,
) -> Option<(Arc<Histogram>, bool)> {
    let (left, right) = match (left, right) {
        (Cell::Histogram(left), Cell::Histogram(right)) => (left, right),
        (Cell::Histogram(left), Cell::Float(right)) => {
            return Some((
                Arc::new(match op {
                    BinaryOp::Mul => left.times(right),
                    BinaryOp::Div => left.divided(right),
                    BinaryOp::TrimAbove => left.trimmed(Trim::Above, right),
                    BinaryOp::TrimBelow => left.trimmed(Trim::Below, right),
                    op => {
                        notes.of_kinds(op, "histogram", "float");
                        return None;
                    }
                }),
                true,
            ));
        }
        (Cell::Float(left), Cell::Histogram(right)) => {
            if op != BinaryOp::Mul {
                notes.of_kinds(op, "float", "histogram");
                return None;
            }
            return Some((Arc::new(right.times(left)), true));
        }
        (Cell::Float(_), Cell::Float(_)) => {
            notes.of_kinds(op, "float", "float");
            return None;
        }
    };
    match op {
        BinaryOp::Eql => Some((Arc::clone(left), left.equals(right))),
        BinaryOp::Neq => Some((Arc::clone(left), !left.equals(right))),
        BinaryOp::Add | BinaryOp::Sub => {
            sum(op, left, right, notes).map(|sum| (Arc::new(sum), true))
        }
        op => {
            notes.of_kinds(op, "histogram", "histogram");
            None
        }
    }
}

fn sum(
    op: BinaryOp,
    left: &Histogram,
    right: &Histogram,
    notes: &mut Notes<'_>,
) -> Option<Histogram> {
    let mut total = Total::new(left);
    let (merged, doing) = match op {
        BinaryOp::Add => (total.add(right), "addition"),
        _ => (total.sub(right), "subtraction"),
    };
    match merged {
        Ok(merged) => {
            notes.of_merge(merged, doing);
            let sum = total.histogram();
            // A difference may fall.
            Some(if op == BinaryOp::Sub { sum.with_hint(ResetHint::Gauge) } else { sum })
        }
        Err(Mixed) => {
            let why =
                format!("incompatible bucket layout encountered for binary operator {}", op.text());
            notes.told.warn(why, notes.span);
            None
        }
    }
}
