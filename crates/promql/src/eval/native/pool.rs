//! The sum and the mean of many histograms.

use crate::histogram::{Histogram, Merged, Mixed, ResetHint, Total};

/// A histogram made of many, and how.
pub(super) struct Pooled {
    pub(super) histogram: Histogram,
    pub(super) merged: Merged,
}

/// The sum of histograms, of which there is one at least.
pub(super) fn sum<'a>(all: impl Iterator<Item = &'a Histogram> + Clone) -> Result<Pooled, Mixed> {
    let (total, merged, _) = summed(all)?;
    Ok(Pooled { histogram: total.histogram(), merged })
}

/// The mean of histograms, of which there is one at least.
pub(super) fn mean<'a>(all: impl Iterator<Item = &'a Histogram> + Clone) -> Result<Pooled, Mixed> {
    let (total, merged, count) = summed(all.clone())?;
    if !total.overflows() {
        return Ok(Pooled { histogram: divided(total, count).histogram(), merged });
    }
    // As many as fit into floats are summed up; from there on the mean is carried along.
    let mut rest = all.clone();
    let mut so_far = Total::new(rest.next().unwrap_or(&Histogram::default()));
    let mut count = 1.0;
    let mut is_mean = false;
    for next in rest {
        if !is_mean {
            let mut total = so_far.clone();
            total.add(next)?;
            if !total.overflows() {
                so_far = total;
                count += 1.0;
                continue;
            }
            is_mean = true;
            so_far = divided(so_far, count);
        }
        count += 1.0;
        so_far.scale((count - 1.0) / count);
        so_far.add_divided(next, count)?;
    }
    let total = if is_mean { so_far } else { divided(so_far, count) };
    Ok(Pooled { histogram: total.histogram(), merged })
}

fn divided(mut total: Total, count: f64) -> Total {
    total.divide(count);
    total
}

fn summed<'a>(mut all: impl Iterator<Item = &'a Histogram>) -> Result<(Total, Merged, f64), Mixed> {
    let empty = Histogram::default();
    let first = all.next().unwrap_or(&empty);
    let (mut total, mut count) = (Total::new(first), 1.0);
    let mut merged = Merged::default();
    let (mut is_reset, mut is_not) = (false, false);
    let mut look = |hint: ResetHint| {
        is_reset |= hint == ResetHint::Reset;
        is_not |= hint == ResetHint::NotReset;
    };
    look(first.hint());
    for next in all {
        look(next.hint());
        merged.bounds_differ |= total.add(next)?.bounds_differ;
        count += 1.0;
    }
    merged.hints_collide = is_reset && is_not;
    Ok((total, merged, count))
}
