//! Points and native histograms that say what was added since the one before. Where a series is
//! owned its points are added up at once (`store/adding.rs`). All else becomes records that whoever
//! owns the series adds up when it takes them in (`store/increments.rs`), whichever server they are
//! sent to.
//!
//! One as new as the newest is that one, sent again; an older one is refused, since nobody can say
//! whether it is in the sum. What is newest is known where the series are owned. Of what others
//! send, or several at the same time, the owner lets such go without a word.

use super::Sample;
use super::intake::{Intake, Shown};
use super::runs::Runs;
use crate::error::{Error, Result};
use crate::increment;
use crate::record::Kind;
use crate::store::{Adding, SeriesStore};
use crate::value::Point;
use plinth_env::sync::pause;
use plinth_promql::Histogram;

/// Adds numbers to their series where these are owned, and turns the others into records, behind
/// the other ones: how many were added.
///
/// # Errors
/// Those of the store.
pub(super) async fn add(intake: &mut Intake, store: &SeriesStore) -> Result<u64> {
    let increments = std::mem::take(&mut intake.increments);
    let mut runs = Runs::default();
    runs.arrange(increments.iter().map(|sample| intake.names.first_of(sample.target)));
    let (mut targets, mut adding) = (Vec::new(), Vec::new());
    for run in 0..runs.len() {
        let (target, places) = runs.run(run);
        let Some(series) = intake.names.series(target).cloned() else { continue };
        let point = |place: usize| {
            let Sample { time, value, .. } = increments[place];
            Point { time, value }
        };
        let points = places.map(point).collect();
        if series.is_owned() {
            targets.push(target);
            adding.push(Adding { series, points });
        } else {
            into_records(intake, target, &points);
        }
    }
    if adding.is_empty() {
        return Ok(0);
    }
    let mut taken = 0;
    // Boxed, since what it awaits is deep.
    let came = Box::pin(store.add_up(&adding)).await?;
    for ((target, adding), added) in targets.into_iter().zip(adding).zip(came) {
        match added {
            Ok(added) => {
                taken += added.taken;
                (0..added.older).for_each(|_| refuse(intake, target, OLDER));
            }
            // It begins again, or somebody else owns it.
            Err(Error::Deleted | Error::NotOwner | Error::ReadOnly) => {
                into_records(intake, target, &adding.points);
            }
            Err(why) => tell_damaged(intake, &why),
        }
    }
    Ok(taken)
}

/// What is said of an increment that is in no sum.
const OLDER: &str = "an increment is older than the newest point";

fn into_records(intake: &mut Intake, target: u32, points: &[Point]) {
    let mut newest = None;
    for Point { time, value } in points {
        match newest {
            Some(last) if time < last => refuse(intake, target, OLDER),
            Some(last) if time == last => {}
            _ => {
                intake.take_record(target, Kind::Increment, *time, increment::encode(*value));
                newest = Some(time);
            }
        }
    }
}

/// Native histograms that were added, on their way to be records.
pub(super) struct AddedHistograms {
    /// By series.
    left: std::vec::IntoIter<(u32, i64, Histogram)>,
    /// The series whose turn it is, and when its newest is of; `None` if it is refused.
    current: Option<(u32, Option<Newest>)>,
}

/// The time of what is newest in a series, if it is known and there is any.
type Newest = Option<i64>;

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
                    let newest = newest_histogram(intake, target).await?;
                    &mut current.insert((target, newest)).1
                }
            };
            let Some(newest) = newest else { continue };
            match newest {
                Some(last) if time < *last => {
                    refuse(intake, target, "an increment is older than the newest histogram");
                    continue;
                }
                Some(last) if time == *last => continue,
                _ => {}
            }
            match intake.take_histogram((target, Kind::HistogramIncrement), time, &added) {
                Ok(()) => *newest = Some(time),
                Err(why) => refuse(intake, target, &why),
            }
        }
        Ok(true)
    }
}

/// When the newest of a series is of: `None` if nothing is added to it, which the sender is told.
async fn newest_histogram(intake: &mut Intake, target: u32) -> Result<Option<Newest>> {
    let Some(series) = intake.names.series(target).cloned() else { return Ok(None) };
    let newest = match series.is_owned() {
        true => series.newest_histogram_known().await,
        false => Ok(None),
    };
    match newest {
        // It begins again.
        Err(Error::Deleted) => Ok(Some(None)),
        Err(why @ Error::Damaged { .. }) => {
            tell_damaged(intake, &why);
            Ok(None)
        }
        newest => newest.map(Some),
    }
}

fn tell_damaged(intake: &mut Intake, why: &Error) {
    intake.reply(format_args!("{why}\n"));
}

fn refuse(intake: &mut Intake, target: u32, why: &str) {
    let name = intake.names.targets[target as usize].name().clone();
    let name = Shown(name.as_str().as_bytes());
    intake.reply(format_args!("{why}: {name}\n"));
}
