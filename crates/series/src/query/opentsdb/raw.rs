//! Queries without a `downsample`: the points of series put together as they are.
//!
//! A group has a point at each time at which one of its series has one. A series that has none
//! then has the value on the line from its point before to its next one, as in OpenTSDB, unless
//! the aggregator is one of points alone (`count`, `zimsum`, `mimmin`, `mimmax`). Before its first
//! point in the time that is asked for, and behind its last one there, a series has no part. A rate
//! is one of each series, which are put together then.
//!
//! ```text
//!            1 s   2 s   3 s
//!       a     1    (2)    3
//!       b           5     6     7
//!     sum     1     7     9     7        zimsum   1   5   9   7
//! ```

use super::asked::{Aggregate, Asked, One};
use super::{Answering, Failure, Group, MAX_SAMPLES, MAX_SERIES, StoreSource, rated, too_many};
use crate::query::prometheus::Selected;
use plinth_promql::{Error, Labels, Matcher, Sample, Samples, Source};
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};

/// Values that are put together without a pause for others.
const AT_ONCE: u64 = 1 << 16;

impl Answering<'_> {
    /// Appends the series that a query without a `downsample` comes to.
    pub(super) async fn one_raw(
        &mut self,
        asked: &Asked,
        one: &One,
        matchers: &[Matcher],
    ) -> Result<(), Failure> {
        let found = self.source.find(matchers).await?;
        self.series += found.len();
        if self.series > MAX_SERIES {
            return Err(Failure::Asked(format!(
                "a request's queries may have {MAX_SERIES} series together; name more tags"
            )));
        }
        let mut groups: BTreeMap<Labels, (Group, Vec<Selected>)> = BTreeMap::new();
        for (labels, selected) in found {
            let (group, members) = groups.entry(one.group(&labels)).or_default();
            group.add(&labels);
            members.push(selected);
        }
        let mut visits = 0;
        for (group, members) in groups.into_values() {
            let mut points = points_of(&self.source, &members, (asked.start, asked.end)).await?;
            if let Some(rate) = &one.rate {
                points.iter_mut().for_each(|points| *points = rated(rate, points));
            }
            let together = match &one.aggregate {
                Some(aggregate) => self.put_together(points, aggregate, &mut visits).await?,
                None => alone(points),
            };
            if !together.is_empty() {
                self.append(asked, one, (&group, &together)).await?;
            }
        }
        self.source.hold(0).map_err(Error::Source)
    }

    async fn put_together(
        &mut self,
        points: Vec<Vec<Sample>>,
        aggregate: &Aggregate,
        visits: &mut u64,
    ) -> Result<Vec<Sample>, Failure> {
        let (mut merge, mut together) = (Merge::new(points, aggregate.is_interpolated), Vec::new());
        let (mut values, mut paused_at) = (Vec::new(), *visits);
        while let Some(time) = merge.next(&mut values) {
            together.push((time, aggregate.operator.applied(&mut values)));
            let looked_at =
                if aggregate.is_interpolated { merge.series.len() } else { values.len() };
            *visits += looked_at as u64;
            if *visits - paused_at >= AT_ONCE {
                paused_at = *visits;
                self.source.pause().await?;
            }
            if *visits > self.options.max_visits {
                return Err(Failure::Asked(
                    "too many points at times of their own; give a downsample such as 1m-avg, a \
                     shorter time, or fewer series"
                        .to_owned(),
                ));
            }
        }
        Ok(together)
    }
}

/// The points of each series, both ends among them.
async fn points_of(
    source: &StoreSource<'_>,
    members: &[Selected],
    (start, end): (i64, i64),
) -> Result<Vec<Vec<Sample>>, Failure> {
    let (mut all, mut count) = (Vec::with_capacity(members.len()), 0);
    for member in members {
        let read = source.read(member, start.saturating_sub(1), end).await;
        let (mut read, mut points) = (read.map_err(Error::Source)?, Vec::new());
        let mut more = Vec::new();
        while read.more(&mut more).await.map_err(Error::Source)? {
            for sample in more.drain(..).filter(|sample: &Sample| sample.1.is_finite()) {
                // Of points of one time the last one counts.
                match points.last_mut() {
                    Some(last @ &mut (time, _)) if time == sample.0 => *last = sample,
                    _ => points.push(sample),
                }
            }
            if points.len() > MAX_SAMPLES {
                return Err(too_many());
            }
            // A point is two values, and becomes one of the answer's.
            source.hold(4 * (count + points.capacity())).map_err(Error::Source)?;
            source.pause().await?;
        }
        count += points.capacity();
        all.push(points);
    }
    Ok(all)
}

/// The points of a series that is put together with no other. Two whose names are written otherwise
/// and mean the same are one: of points of one time the last one counts.
fn alone(points: Vec<Vec<Sample>>) -> Vec<Sample> {
    let mut all = points.concat();
    if points.len() > 1 {
        all.sort_by_key(|(time, _)| *time);
        all.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                *kept = *later;
            }
            is_same
        });
    }
    all
}

/// Series, merged by the times of their points.
struct Merge {
    series: Vec<Vec<Sample>>,
    /// Of each the point that comes next.
    next: Vec<usize>,
    /// The times of those.
    queue: BinaryHeap<Reverse<(i64, usize)>>,
    is_interpolated: bool,
}

impl Merge {
    fn new(series: Vec<Vec<Sample>>, is_interpolated: bool) -> Self {
        let first =
            |(place, points): (usize, &Vec<Sample>)| Some(Reverse((points.first()?.0, place)));
        let queue = series.iter().enumerate().filter_map(first).collect();
        Self { next: vec![0; series.len()], queue, series, is_interpolated }
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
        if self.is_interpolated {
            let between = self.series.iter().zip(&self.next);
            values.extend(between.filter_map(|(points, next)| {
                let (before, behind) = (points.get(next.checked_sub(1)?)?, points.get(*next)?);
                (before.0 != time).then(|| on_line(*before, *behind, time))
            }));
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

    fn merged(aggregator: &str, series: &[&[Sample]]) -> Vec<Sample> {
        let one = One::of_text(&format!("{aggregator}:m")).unwrap();
        let aggregate = one.aggregate.unwrap();
        let series = series.iter().map(|points| points.to_vec()).collect();
        let (mut merge, mut values) = (Merge::new(series, aggregate.is_interpolated), Vec::new());
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
            let values: Vec<f64> = merged(aggregator, &series).iter().map(|one| one.1).collect();
            assert_eq!(values, expected, "{aggregator}");
        }
        assert!(merged("sum", &[]).is_empty());
        let same = vec![vec![(1, 1.0), (3, 3.0)], vec![(2, 2.0), (3, 4.0)]];
        assert_eq!(alone(same), [(1, 1.0), (2, 2.0), (3, 4.0)]);
        let far: [&[Sample]; 2] = [&[(i64::MIN, 0.0), (i64::MAX, 2.0)], &[(0, 1.0)]];
        assert_eq!(merged("sum", &far), [(i64::MIN, 0.0), (0, 2.0), (i64::MAX, 2.0)]);
    }
}
