//! Points that say what was added since the one before, added to the newest point of their series:
//! what is kept is the sum so far, as of a counter that is read.
//!
//! Where a sum is, is nowhere but in the series: so it goes on behind a restart, and behind any
//! failure with what is committed. A point as new as the newest is that one, sent again; an older
//! one is refused, since nobody can say whether it is in the sum. One session at a time looks and
//! appends, whatever number of them have points of a series.

use super::Sample;
use super::intake::{Intake, Shown};
use super::runs::Runs;
use crate::error::{Error, Result};
use crate::value::{Point, Value};
use plinth_env::sync::pause;
use plinth_promql::Histogram;

/// Why increments of a series are refused.
const ELSEWHERE: &str = "what was added (delta) can be summed up where the series are owned, and \
     that is another server: send to it, or send sums (cumulative)";

/// Turns what was added into points, behind the other ones.
///
/// # Errors
/// Those of the store.
pub(super) async fn add_up(intake: &mut Intake) -> Result<()> {
    let increments = std::mem::take(&mut intake.increments);
    let mut runs = Runs::default();
    runs.arrange(increments.iter().map(|sample| intake.names.first_of(sample.target)));
    for run in 0..runs.len() {
        let (target, places) = runs.run(run);
        let Some(series) = intake.names.series(target) else { continue };
        let name = series.name().clone();
        if !series.is_owned() {
            let name = Shown(name.as_str().as_bytes());
            intake.reply(format_args!("{ELSEWHERE}: {name}\n"));
            continue;
        }
        let mut newest = match series.newest().await {
            Err(Error::Deleted) => None,
            Err(why @ Error::Damaged { .. }) => {
                intake.reply(format_args!("{why}\n"));
                continue;
            }
            newest => newest?,
        };
        for place in places {
            let Sample { time, value, .. } = increments[place];
            match newest {
                Some(Point { time: last, .. }) if time < last => {
                    let name = Shown(name.as_str().as_bytes());
                    intake.reply(format_args!(
                        "an increment is older than the newest point: {name}\n"
                    ));
                    continue;
                }
                Some(Point { time: last, .. }) if time == last => continue,
                _ => {}
            }
            let value = newest.map_or(value, |newest| sum(newest.value, value));
            intake.samples.push(Sample { target, time, value });
            newest = Some(Point { time, value });
        }
    }
    Ok(())
}

/// Native histograms that were added, on their way to be records: each is added to the newest of
/// its series, or to the one before it here.
pub(super) struct AddedHistograms {
    /// By series.
    left: std::vec::IntoIter<(u32, i64, Histogram)>,
    /// The series that is added to, and its newest; `None` if it is refused.
    current: Option<(u32, Option<Newest>)>,
}

/// The newest histogram of a series, if there is one.
type Newest = Option<(i64, Histogram)>;

impl AddedHistograms {
    /// Those that were taken.
    pub(super) fn of(intake: &mut Intake) -> Self {
        let mut left = std::mem::take(&mut intake.histogram_increments);
        // They are counted as records from now on.
        intake.record_bytes = intake.records.iter().map(|one| one.record.bytes.len()).sum();
        left.iter_mut().for_each(|one| one.0 = intake.names.first_of(one.0));
        left.sort_by_key(|(target, ..)| *target);
        Self { left: left.into_iter(), current: None }
    }

    /// Turns some into records, behind the other ones, until these are to be saved. Whether there
    /// are more.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn add_some(&mut self, intake: &mut Intake) -> Result<bool> {
        while !intake.is_full_of_records() {
            let Some((target, time, added)) = self.left.next() else { return Ok(false) };
            pause().await;
            let newest = match &mut self.current {
                Some((current, newest)) if *current == target => newest,
                current => {
                    let newest = newest(intake, target).await?;
                    &mut current.insert((target, newest)).1
                }
            };
            let Some(newest) = newest else { continue };
            let sum = match &newest {
                Some((last, _)) if time < *last => {
                    refuse(intake, target, "an increment is older than the newest histogram");
                    continue;
                }
                Some((last, _)) if time == *last => continue,
                // One of other buckets begins again.
                Some((_, before)) => before.plus(&added).unwrap_or(added),
                None => added,
            };
            match intake.take_histogram(target, time, &sum) {
                Ok(()) => *newest = Some((time, sum)),
                Err(why) => refuse(intake, target, &why),
            }
        }
        Ok(true)
    }
}

/// The newest histogram of a series; `None` if nothing is added to it, which the sender is told.
async fn newest(intake: &mut Intake, target: u32) -> Result<Option<Newest>> {
    let Some(series) = intake.names.series(target).cloned() else { return Ok(None) };
    if !series.is_owned() {
        refuse(intake, target, ELSEWHERE);
        return Ok(None);
    }
    match series.newest_histogram().await {
        // It begins again.
        Err(Error::Deleted) => Ok(Some(None)),
        Err(why @ Error::Damaged { .. }) => {
            refuse(intake, target, &why.to_string());
            Ok(None)
        }
        newest => newest.map(Some),
    }
}

fn refuse(intake: &mut Intake, target: u32, why: &str) {
    let name = intake.names.targets[target as usize].name().clone();
    let name = Shown(name.as_str().as_bytes());
    intake.reply(format_args!("{why}: {name}\n"));
}

/// A sum and what is added to it. What is no number has ended, and it begins again.
fn sum(before: Value, added: Value) -> Value {
    match (before, added) {
        (Value::Integer(before), Value::Integer(added)) => before
            .checked_add(added)
            .map_or(Value::Float(before as f64 + added as f64), Value::Integer),
        (before, added) if before.as_f64().is_nan() => added,
        (before, added) => Value::Float(before.as_f64() + added.as_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_integers_as_long_as_they_fit() {
        use Value::{Float, Integer};
        for (before, added, expected) in [
            (Integer(5), Integer(-7), Integer(-2)),
            (Integer(i64::MAX), Integer(1), Float(i64::MAX as f64 + 1.0)),
            (Integer(5), Float(0.5), Float(5.5)),
            (Float(0.5), Integer(1), Float(1.5)),
            (Float(f64::NAN), Integer(3), Integer(3)),
        ] {
            assert_eq!(sum(before, added), expected);
        }
    }
}
