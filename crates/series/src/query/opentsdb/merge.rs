//! Series of a group, put together.
//!
//! A group has a value at each time at which one of its series has one. What a series has then that
//! has none itself is said by [`Gaps`]: mostly the value on the line from its point before to its
//! next one, as in OpenTSDB. Before its first point in the time that is asked for, and behind its
//! last one there, a series then has no part.
//!
//! ```text
//!            1 s   2 s   3 s   4 s
//!       a     1    (2)    3
//!       b           5     6     7
//!     sum     1     7     9     7        zimsum   1   5   9   7
//! ```

use super::asked::Aggregate;
use super::{Answering, Failure};
use plinth_promql::{Sample, Source};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// Values that are put together without a pause for others.
const AT_ONCE: u64 = 1 << 16;

/// What a series has at a time at which others have a point and it has none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Gaps {
    /// No part.
    Nothing,
    /// The value on the line between its points around.
    OnLine,
    Zero,
}

impl Gaps {
    /// What an aggregator has where nobody said what gaps are filled with.
    pub(super) fn between_points(aggregate: &Aggregate) -> Self {
        if aggregate.is_interpolated { Self::OnLine } else { Self::Nothing }
    }
}

impl Answering<'_> {
    /// Puts the points of series together; `visits` adds up what was looked at.
    pub(super) async fn put_together(
        &mut self,
        points: Vec<Vec<Sample>>,
        (aggregate, gaps): (&Aggregate, Gaps),
        visits: &mut u64,
    ) -> Result<Vec<Sample>, Failure> {
        let (mut merge, mut together) = (Merge::new(points, gaps), Vec::new());
        let (mut values, mut paused_at) = (Vec::new(), *visits);
        while let Some(time) = merge.next(&mut values) {
            let looked_at = if gaps == Gaps::OnLine { merge.series.len() } else { values.len() };
            *visits += looked_at as u64;
            together.push((time, aggregate.operator.applied(&mut values)));
            if *visits - paused_at >= AT_ONCE {
                paused_at = *visits;
                self.source.pause().await?;
            }
            if *visits > self.options.max_visits {
                return Err(Failure::Asked(
                    "too many values to put together; give a downsample of longer steps such as \
                     1m-avg, a shorter time, or fewer series"
                        .to_owned(),
                ));
            }
        }
        Ok(together)
    }
}

/// Series, merged by the times of their points.
struct Merge {
    series: Vec<Vec<Sample>>,
    /// Of each the point that comes next.
    next: Vec<usize>,
    /// The times of those.
    queue: BinaryHeap<Reverse<(i64, usize)>>,
    gaps: Gaps,
}

impl Merge {
    fn new(series: Vec<Vec<Sample>>, gaps: Gaps) -> Self {
        let first =
            |(place, points): (usize, &Vec<Sample>)| Some(Reverse((points.first()?.0, place)));
        let queue = series.iter().enumerate().filter_map(first).collect();
        Self { next: vec![0; series.len()], queue, series, gaps }
    }

    /// The next time at which there is a point, and the values that series have then.
    fn next(&mut self, values: &mut Vec<f64>) -> Option<i64> {
        let Reverse((time, _)) = *self.queue.peek()?;
        values.clear();
        while let Some(mut head) = self.queue.peek_mut().filter(|head| head.0.0 == time) {
            let place = head.0.1;
            let (points, next) = (&self.series[place], &mut self.next[place]);
            values.push(points[*next].1);
            *next += 1;
            match points.get(*next) {
                Some((time, _)) => *head = Reverse((*time, place)),
                None => drop(PeekMut::pop(head)),
            }
        }
        match self.gaps {
            Gaps::Nothing => {}
            Gaps::Zero => values.resize(self.series.len(), 0.0),
            Gaps::OnLine => {
                let between = self.series.iter().zip(&self.next);
                values.extend(between.filter_map(|(points, next)| {
                    let (before, behind) = (points.get(next.checked_sub(1)?)?, points.get(*next)?);
                    (before.0 != time).then(|| on_line(*before, *behind, time))
                }));
            }
        }
        Some(time)
    }
}

/// The value on the line from one point to another.
fn on_line((from, first): Sample, (to, last): Sample, time: i64) -> f64 {
    first + (last - first) * (time.abs_diff(from) as f64 / to.abs_diff(from) as f64)
}

#[cfg(test)]
mod tests {
    use super::super::asked::One;
    use super::*;

    fn merged(aggregator: &str, series: &[&[Sample]], gaps: Option<Gaps>) -> Vec<Sample> {
        let one = One::of_text(&format!("{aggregator}:m")).unwrap();
        let aggregate = one.aggregate.unwrap();
        let series = series.iter().map(|points| points.to_vec()).collect();
        let gaps = gaps.unwrap_or(Gaps::between_points(&aggregate));
        let (mut merge, mut values) = (Merge::new(series, gaps), Vec::new());
        let mut all = Vec::new();
        while let Some(time) = merge.next(&mut values) {
            all.push((time, aggregate.operator.applied(&mut values)));
        }
        all
    }

    #[test]
    fn series_have_the_values_between_their_points_for_some_aggregators() {
        let series: [&[Sample]; 3] = [&[(1, 1.0), (3, 3.0)], &[(2, 5.0), (3, 6.0), (4, 7.0)], &[]];
        for (aggregator, expected) in [
            ("sum", [1.0, 7.0, 9.0, 7.0]),
            ("zimsum", [1.0, 5.0, 9.0, 7.0]),
            ("count", [1.0, 1.0, 2.0, 1.0]),
            ("min", [1.0, 2.0, 3.0, 7.0]),
            ("mimmin", [1.0, 5.0, 3.0, 7.0]),
            ("max", [1.0, 5.0, 6.0, 7.0]),
            ("mimmax", [1.0, 5.0, 6.0, 7.0]),
            ("avg", [1.0, 3.5, 4.5, 7.0]),
            ("dev", [0.0, 1.5, 1.5, 0.0]),
            ("p50", [1.0, 3.5, 4.5, 7.0]),
        ] {
            let merged = merged(aggregator, &series, None);
            let values: Vec<f64> = merged.iter().map(|one| one.1).collect();
            assert_eq!(values, expected, "{aggregator}");
        }
        assert!(merged("sum", &[], None).is_empty());
        let far: [&[Sample]; 2] = [&[(i64::MIN, 0.0), (i64::MAX, 2.0)], &[(0, 1.0)]];
        assert_eq!(merged("sum", &far, None), [(i64::MIN, 0.0), (0, 2.0), (i64::MAX, 2.0)]);
    }

    #[test]
    fn gaps_are_filled_with_what_was_said() {
        let series: [&[Sample]; 2] = [&[(1, 1.0), (3, 3.0)], &[(2, 5.0), (3, 6.0), (4, 7.0)]];
        for (aggregator, gaps, expected) in [
            ("avg", Gaps::Nothing, [1.0, 5.0, 4.5, 7.0]),
            ("avg", Gaps::Zero, [0.5, 2.5, 4.5, 3.5]),
            ("min", Gaps::Zero, [0.0, 0.0, 3.0, 0.0]),
            ("count", Gaps::Zero, [2.0, 2.0, 2.0, 2.0]),
        ] {
            let merged = merged(aggregator, &series, Some(gaps));
            let values: Vec<f64> = merged.iter().map(|one| one.1).collect();
            assert_eq!(values, expected, "{aggregator}");
        }
    }
}
