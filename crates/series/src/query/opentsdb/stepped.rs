//! Queries with a `downsample`: the points of each series in a step become one, then series are put
//! together step by step.
//!
//! The first is done by PromQL, and the second where its aggregations do the same; otherwise series
//! are put together here (`merge`).
//!
//! ```text
//!   zimsum:1m-avg:m{host=*}  sum by ("host") (avg_over_time({__name__="m","host"=~".+"}[60000ms]))
//!      sum:1m-avg:m{host=*}                   avg_over_time({__name__="m","host"=~".+"}[60000ms])
//! ```
//!
//! A step has its first nanosecond and not that of the next one, and its beginning for its time, as
//! OpenTSDB's have. Where a series has no point in a step, and where its whole group has none, the
//! fill says what there is:
//!
//! | fill          | of the series, in its group                              | of the group      |
//! |---------------|----------------------------------------------------------|-------------------|
//! | `none`        | the value on the line between its steps around, if any   | nothing           |
//! | `nan`, `null` | no part                                                  | `"NaN"`, `null`   |
//! | `zero`        | 0                                                        | of zeros          |
//!
//! Filled are steps that are over: not that of the end. A rate is one of each series, from each
//! step that has points to the next one that has; steps are filled behind that.

use super::asked::{Aggregate, Asked, Downsample, Fill, One, Operator, quoted};
use super::merge::Gaps;
use super::raw::alone;
use super::{Answering, Failure, rated};
use plinth_promql::{Answered, Error, Labels, Matcher, Row, Sample, Source};
use std::collections::BTreeMap;

const MILLISECOND: i64 = 1_000_000;

impl Answering<'_> {
    /// Appends the series that a query with a `downsample` comes to.
    pub(super) async fn one_stepped(
        &mut self,
        asked: &Asked,
        (one, downsample): (&One, &Downsample),
        matchers: &[Matcher],
    ) -> Result<(), Failure> {
        let groups = self.groups(one, matchers).await?;
        let steps = Steps::of(asked, downsample);
        let text = one.expression(asked);
        let answer = plinth_promql::range(&self.source, &text, steps.ends(), &self.options).await?;
        let Answered::Matrix(rows) = answer.value else {
            return Err(Failure::Execution("the query came to no series".to_owned()));
        };
        // Its expressions sum and count points, which come to numbers or nothing.
        let (mut members, mut held): (BTreeMap<Labels, Vec<Vec<Sample>>>, _) = Default::default();
        for Row { labels, mut samples, .. } in rows {
            samples.retain(|(_, value)| value.is_finite());
            samples.iter_mut().for_each(|(time, _)| *time = steps.beginning(*time));
            if let Some(rate) = &one.rate {
                samples = rated(rate, &samples);
            }
            held += 2 * samples.capacity();
            members.entry(one.group(&labels)).or_default().push(samples);
        }
        self.source.hold(held).map_err(Error::Source)?;
        let mut visits = 0;
        for (labels, samples) in members {
            let count = samples.len();
            let mut together = match one.put_together_here(downsample.fill) {
                Some(how) => self.put_together(samples, how, &mut visits).await?,
                None => alone(samples),
            };
            if let Some(value) = one.filling(downsample.fill, count) {
                together = steps.filled(&together, value);
            }
            let group = groups.get(&labels).cloned().unwrap_or_default();
            self.append(asked, one, (&group, &together)).await?;
        }
        self.source.hold(0).map_err(Error::Source)
    }
}

impl One {
    /// The expression for what it puts together, or all of that if PromQL can.
    pub(super) fn expression(&self, asked: &Asked) -> String {
        let selector = self.selector();
        let Some(downsample) = &self.downsample else { return selector };
        let milliseconds = Steps::of(asked, downsample).length / MILLISECOND;
        let sampled = downsample.sample.of(&format!("{selector}[{milliseconds}ms]"), "");
        match &self.aggregate {
            Some(aggregate) if self.put_together_here(downsample.fill).is_none() => {
                let by: Vec<String> = self.by.iter().map(|label| quoted(label)).collect();
                aggregate.operator.of(&sampled, &format!(" by ({}) ", by.join(",")))
            }
            _ => sampled,
        }
    }

    /// How its series are put together, if PromQL can't do the same.
    fn put_together_here(&self, fill: Fill) -> Option<(&Aggregate, Gaps)> {
        let aggregate = self.aggregate.as_ref()?;
        let gaps = match fill {
            Fill::None => Gaps::between_points(aggregate),
            Fill::Nan | Fill::Null => Gaps::Nothing,
            Fill::Zero => Gaps::Zero,
        };
        (self.rate.is_some() || gaps != Gaps::Nothing).then_some((aggregate, gaps))
    }

    /// What a group of so many series has in a step in which none has a point.
    fn filling(&self, fill: Fill, count: usize) -> Option<f64> {
        match (fill, &self.aggregate) {
            (Fill::None, _) => None,
            (Fill::Nan | Fill::Null, _) => Some(f64::NAN),
            (Fill::Zero, None) => Some(0.0),
            (Fill::Zero, Some(how)) => Some(how.operator.applied(&mut vec![0.0; count.max(1)])),
        }
    }
}

impl Operator {
    fn of(&self, what: &str, by: &str) -> String {
        match self.number {
            Some(number) => format!("{}{by}({number}, {what})", self.name),
            None => format!("{}{by}({what})", self.name),
        }
    }
}

/// The steps of a query, in nanoseconds.
struct Steps {
    /// When the first one begins, and the one in which the end is.
    first: i64,
    last: i64,
    length: i64,
}

impl Steps {
    fn of(asked: &Asked, downsample: &Downsample) -> Self {
        let Some(length) = downsample.step else {
            let milliseconds = (asked.end.abs_diff(asked.start) / MILLISECOND as u64) as i64 + 1;
            let length = milliseconds.saturating_mul(MILLISECOND);
            return Self { first: asked.start, last: asked.start, length };
        };
        let step_of = |time: i64| time.div_euclid(length).saturating_mul(length);
        Self { first: step_of(asked.start), last: step_of(asked.end), length }
    }

    /// When an expression is evaluated: at the last nanosecond of each.
    fn ends(&self) -> (i64, i64, i64) {
        let end = |first: i64| first.saturating_add(self.length - 1);
        (end(self.first), end(self.last), self.length)
    }

    /// When a step begins, by its end.
    fn beginning(&self, end: i64) -> i64 {
        end.saturating_sub(self.length - 1)
    }

    /// The same samples, and a value in each step without one before that of the end.
    fn filled(&self, samples: &[Sample], value: f64) -> Vec<Sample> {
        let (mut filled, mut left) = (Vec::new(), samples.iter().copied().peekable());
        let mut step = self.first;
        while step < self.last {
            filled.push(left.next_if(|(time, _)| *time == step).unwrap_or((step, value)));
            step = step.saturating_add(self.length);
        }
        filled.extend(left);
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1000 * MILLISECOND;

    fn asked(query: &str, start: i64, end: i64) -> Asked {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let pairs =
            [pair("start", &format!("{start}")), pair("end", &format!("{end}")), pair("m", query)];
        Asked::of_parameters(&pairs, 0).unwrap()
    }

    #[test]
    fn what_promql_does_not_do_is_done_here() {
        let text = |query: &str| {
            let asked = asked(query, 100, 220);
            asked.queries[0].expression(&asked)
        };
        let sampled = r#"avg_over_time({__name__="m","host"=~".+"}[60000ms])"#;
        for query in ["sum:1m-avg", "sum:1m-avg-zero", "zimsum:1m-avg:rate", "none:1m-avg-nan"] {
            assert_eq!(text(&format!("{query}:m{{host=*}}")), sampled, "{query}");
        }
        for query in ["zimsum:1m-avg", "sum:1m-avg-nan", "sum:1m-avg-null"] {
            let expected = format!(r#"sum by ("host") ({sampled})"#);
            assert_eq!(text(&format!("{query}:m{{host=*}}")), expected, "{query}");
        }
        assert_eq!(text("sum:0all-max:m"), r#"max_over_time({__name__="m"}[120001ms])"#);
    }

    #[test]
    fn steps_are_filled_but_for_that_of_the_end() {
        let steps = |query: &str, end: i64| {
            let asked = asked(query, 100, end);
            Steps::of(&asked, asked.queries[0].downsample.as_ref().unwrap())
        };
        let times = |steps: &Steps, samples: &[Sample]| {
            let filled = steps.filled(samples, 0.0);
            filled.iter().map(|(time, value)| (time / SECOND, *value)).collect::<Vec<_>>()
        };
        let four = steps("sum:1m-avg-zero:m", 290);
        assert_eq!(times(&four, &[(120 * SECOND, 5.0)]), [(60, 0.0), (120, 5.0), (180, 0.0)]);
        let last = [(60, 0.0), (120, 0.0), (180, 0.0), (240, 5.0)];
        assert_eq!(times(&four, &[(240 * SECOND, 5.0)]), last);
        assert_eq!(times(&steps("sum:0all-sum-zero:m", 290), &[(100 * SECOND, 1.0)]), [(100, 1.0)]);
        assert_eq!(steps("sum:0all-sum:m", 290).ends().0, 290 * SECOND + MILLISECOND - 1);
    }
}
