//! Queries without a `downsample`: the points of series put together as they are.
//!
//! A rate is one of each series, which are put together then (`merge`).

use super::asked::{Asked, One};
use super::merge::Gaps;
use super::{Answering, Failure, Group, MAX_SAMPLES, MAX_SERIES, StoreSource, rated, too_many};
use crate::query::prometheus::Selected;
use plinth_promql::{Error, Labels, Matcher, Sample, Samples, Source};
use std::collections::BTreeMap;

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
                Some(aggregate) => {
                    let how = (aggregate, Gaps::between_points(aggregate));
                    self.put_together(points, how, &mut visits).await?
                }
                None => alone(points),
            };
            if !together.is_empty() {
                self.append(asked, one, (&group, &together)).await?;
            }
        }
        self.source.hold(0).map_err(Error::Source)
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
pub(super) fn alone(points: Vec<Vec<Sample>>) -> Vec<Sample> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_names_of_one_series_are_put_together() {
        let same = vec![vec![(1, 1.0), (3, 3.0)], vec![(2, 2.0), (3, 4.0)]];
        assert_eq!(alone(same), [(1, 1.0), (2, 2.0), (3, 4.0)]);
    }
}
