//! When counters and histograms began, which remote write 2.0 says: where there is nothing as new
//! in a series, it was 0 then. So what was counted before the first sample is an increase like any
//! other, and so is what was counted since a restart that no sample shows.
//!
//! ```text
//!   in the series   -- 7 ------ 9                     9 is older than the start of 4: there is a 0 between
//!   in a message               start 11: 4, 6
//!   afterwards      -- 7 ------ 9 -- 0 -- 4 -- 6      the next message with that start changes nothing
//! ```
//!
//! Senders say it with each sample. A start that was looked at once is remembered by its series'
//! name, so it costs one look at the series for each session. Whoever looks needs no turn: two who
//! see nothing write the same 0 at the same time.
//!
//! Where points only go through, and nobody can be asked what is newest, the start itself goes
//! ahead of them, and whoever takes it in looks (`store/increments.rs`).

use super::Sample;
use super::intake::{Intake, IntakeRecord};
use super::runs::Runs;
use super::start::Start;
use crate::error::{Error, Result};
use crate::record::{Kind, Record};
use crate::store::Series;
use crate::value::Value;
use plinth_env::sync::pause;
use plinth_types::Bytes;

/// Zeros for the starts that were taken: of those that there is nothing newer than.
#[derive(Default)]
pub(super) struct Zeros {
    pub(super) samples: Vec<Sample>,
    pub(super) records: Vec<IntakeRecord>,
    /// What was looked at, to be remembered when the zeros are in their series.
    seen: Vec<(u32, i64)>,
}

impl Zeros {
    /// Looks at the series of the starts that were taken, which it forgets.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn of(intake: &mut Intake) -> Result<Self> {
        let (starts, mut zeros) = (std::mem::take(&mut intake.starts), Self::default());
        let (names, mut runs) = (&intake.names, Runs::default());
        runs.arrange(starts.iter().map(|start| names.first_of(start.target)));
        for run in 0..runs.len() {
            let (target, places) = runs.run(run);
            let Some(series) = names.series(target) else { continue };
            if !series.can_be_read() {
                let new = places.filter(|place| !names.has_begun(target, starts[*place].time));
                new.for_each(|place| zeros.pass_on(target, &starts[place]));
                continue;
            }
            let mut newest = None;
            let has_histograms = runs.run(run).1.any(|place| starts[place].histogram.is_some());
            for place in places {
                let start = &starts[place];
                if names.has_begun(target, start.time) {
                    continue;
                }
                if newest.is_none() {
                    pause().await;
                    newest = Some(newest_of(series, has_histograms).await?);
                }
                let newest = newest.get_or_insert(i64::MIN);
                if *newest < start.time {
                    zeros.put(target, start);
                    *newest = start.time;
                }
                zeros.seen.push((target, start.time));
            }
        }
        Ok(zeros)
    }

    /// Has whoever owns the series look.
    fn pass_on(&mut self, target: u32, start: &Start) {
        let (kind, bytes) = match &start.histogram {
            Some(bytes) => (Kind::HistogramStart, bytes.clone()),
            None => (Kind::Start, Bytes::new()),
        };
        let record = Record { kind, time: start.time, bytes };
        self.records.push(IntakeRecord { target, record });
        self.seen.push((target, start.time));
    }

    fn put(&mut self, target: u32, start: &Start) {
        let Start { time, histogram, .. } = start;
        match histogram {
            Some(bytes) => {
                let record = Record { kind: Kind::Histogram, time: *time, bytes: bytes.clone() };
                self.records.push(IntakeRecord { target, record });
            }
            None => self.samples.push(Sample { target, time: *time, value: Value::Float(0.0) }),
        }
    }

    /// Remembers what was looked at.
    pub(super) fn remember(self, intake: &mut Intake) {
        for (target, start) in self.seen {
            intake.names.begin(target, start);
        }
    }
}

/// The time of the newest point of a series, of its histograms too if it has some. A series that is
/// damaged gets no zero; whoever appends to it says why.
async fn newest_of(series: &Series, has_histograms: bool) -> Result<i64> {
    let none_of = |error| match error {
        Error::Deleted => Ok(None),
        Error::Damaged { .. } => Ok(Some(i64::MAX)),
        error => Err(error),
    };
    let newest = series.newest().await.map(|point| point.map(|point| point.time));
    let mut newest = newest.or_else(none_of)?;
    if has_histograms {
        let histogram = series.newest_histogram().await.map(|newest| newest.map(|(time, _)| time));
        newest = newest.max(histogram.or_else(none_of)?);
    }
    Ok(newest.unwrap_or(i64::MIN))
}
