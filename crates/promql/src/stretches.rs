//! Stretches of a series' points by the column, for functions that ask one number of each: how many
//! points, and their sum, their least or their greatest.
//!
//! A source that knows such numbers has them in columns, thousands at a time, and a year of hours
//! is eight thousand of them for each series. So they go from column to column, and nobody makes a
//! thing of each stretch. Where the ends of points count, too, there are digests (`digest.rs`).

use crate::digest::Wanted;
use crate::sample::{STALE, Sample};
use crate::sum::Sum;

/// Stretches of time in their order, none of which touches another, and what each has. As many of
/// each column as of the others.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Stretches {
    /// The first nanosecond of each.
    pub firsts: Vec<i64>,
    /// The last.
    pub lasts: Vec<i64>,
    /// Points in it, without marks.
    pub counts: Vec<u64>,
    /// Their sum, which is NaN if one of them is no number; or their least or greatest number,
    /// which is NaN if there is none. Any number where only counts are wanted, or where there is no
    /// point.
    pub values: Vec<f64>,
}

impl Stretches {
    /// How many.
    pub fn len(&self) -> usize {
        self.lasts.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lasts.is_empty()
    }

    /// Makes room for so many more.
    pub fn reserve(&mut self, more: usize) {
        self.firsts.reserve(more);
        self.lasts.reserve(more);
        self.counts.reserve(more);
        self.values.reserve(more);
    }

    /// Appends one.
    pub fn push(&mut self, (first, last): (i64, i64), count: u64, value: f64) {
        self.firsts.push(first);
        self.lasts.push(last);
        self.counts.push(count);
        self.values.push(value);
    }

    /// Appends a point, or a mark.
    pub fn push_sample(&mut self, (time, value): Sample) {
        self.push((time, time), u64::from(value.to_bits() != STALE), value);
    }

    /// Forgets the first of them.
    pub(crate) fn forget(&mut self, count: usize) {
        self.firsts.drain(..count);
        self.lasts.drain(..count);
        self.counts.drain(..count);
        self.values.drain(..count);
    }

    /// How many points those have that end no later than a time, of these places on, and what is
    /// wanted of them; and the place behind. `None` if they have no point.
    #[inline]
    pub(crate) fn folded(
        &self,
        begin: usize,
        end: i64,
        wanted: Wanted,
    ) -> (usize, Option<(u64, f64)>) {
        let is_in = |place: usize| self.lasts.get(place).is_some_and(|last| *last <= end);
        if !is_in(begin) {
            return (begin, None);
        }
        if !is_in(begin + 1) {
            // As most windows are that are as long as what is known.
            let (count, value) = (self.counts[begin], self.values[begin]);
            let value = if wanted == Wanted::Sum { value + 0.0 } else { value };
            return (begin + 1, (count > 0).then_some((count, value)));
        }
        let (mut place, mut found) = (begin, None::<(u64, Sum)>);
        while is_in(place) {
            let (count, value) = (self.counts[place], self.values[place]);
            place += 1;
            match &mut found {
                _ if count == 0 => {}
                None => found = Some((count, Sum::new(value))),
                Some((all, sum)) => {
                    *all = all.saturating_add(count);
                    match wanted {
                        Wanted::Sum => sum.add(value),
                        _ => sum.sum = wanted.joined(sum.sum, value),
                    }
                }
            }
        }
        let total = |sum: Sum| if wanted == Wanted::Sum { sum.total() } else { sum.sum };
        (place, found.map(|(count, sum)| (count, total(sum))))
    }
}

impl Wanted {
    /// What is wanted of two stretches next to each other, of what it is of each; for all but the
    /// ends of points.
    #[inline]
    pub fn joined(self, one: f64, other: f64) -> f64 {
        let is_better = match self {
            Self::Sum => return one + other,
            Self::Least => other < one,
            Self::Greatest => other > one,
            Self::Count | Self::FirstAndLast | Self::Ends | Self::Last => return one,
        };
        if one.is_nan() || is_better { other } else { one }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_the_stretches_that_end_in_it() {
        let mut all = Stretches::default();
        all.push((1, 9), 3, 6.0);
        all.push_sample((10, f64::from_bits(STALE)));
        all.push((11, 19), 2, 1.5);
        all.push_sample((20, 4.0));
        all.push((21, 29), 1, -8.0);
        assert_eq!(all.folded(0, 20, Wanted::Sum), (4, Some((6, 11.5))));
        assert_eq!(all.folded(0, 28, Wanted::Least), (4, Some((6, 1.5))));
        assert_eq!(all.folded(2, 29, Wanted::Greatest), (5, Some((4, 4.0))));
        assert_eq!(all.folded(1, 10, Wanted::Count), (2, None));
        assert_eq!(all.folded(5, 99, Wanted::Sum), (5, None));
        all.forget(3);
        assert_eq!(all.folded(0, 99, Wanted::Sum), (2, Some((2, -4.0))));
    }

    #[test]
    fn a_zero_keeps_its_sign_where_nothing_is_added() {
        let mut all = Stretches::default();
        all.push((1, 9), 3, -0.0);
        all.push((10, 10), 1, -0.0);
        for upto in [9, 10] {
            let of = |wanted| all.folded(0, upto, wanted).1.unwrap().1.is_sign_negative();
            assert!(of(Wanted::Least) && of(Wanted::Greatest) && !of(Wanted::Sum));
        }
    }

    #[test]
    fn what_is_no_number_gives_way_to_numbers_but_in_sums() {
        let nan = f64::NAN;
        for (one, other) in [(nan, 2.0), (2.0, nan)] {
            assert_eq!(Wanted::Least.joined(one, other), 2.0);
            assert_eq!(Wanted::Greatest.joined(one, other), 2.0);
            assert!(Wanted::Sum.joined(one, other).is_nan());
        }
    }
}
