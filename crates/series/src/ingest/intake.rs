//! What parsers leave behind for their session: samples, records, and what is to be said of what is
//! refused. It says when that is enough to be saved; what of a message turns out to be wrong is
//! taken back by a mark.

use super::Sample;
use super::metadata::Metadata;
use super::names::Names;
use super::start::Start;
use crate::exemplar::Exemplar;
use crate::histogram;
use crate::record::{Kind, Record};
use plinth_promql::Histogram;
use plinth_types::Bytes;
use std::borrow::Cow;
use std::fmt;

/// Samples that a feed gathers before it asks for them to be saved.
pub(super) const SAMPLES: usize = 16384;
/// Bytes of records, in the same way.
const RECORD_BYTES: usize = 1 << 20;
/// Bytes of names that nobody has counted yet, before they are to be looked up and counted.
const FRESH: usize = 4 << 20;
/// Bytes that are read before others have their turn on the thread: some tenths of a millisecond's.
pub(super) const TURN: usize = 128 << 10;
/// Metrics that are described in one message, at most; more wait for the next one.
const DESCRIBED: usize = 10_000;
/// Bytes of replies that wait to be taken; what is wrong beyond is counted.
const REPLIES: usize = 64 << 10;

/// What came besides samples.
#[derive(Default, Debug)]
pub(super) struct Besides {
    /// What was said of metrics.
    pub(super) metadata: Vec<Metadata>,
    /// Exemplars that came and are not kept, since they are too long.
    pub(super) exemplars: u64,
    /// What time it is, in nanoseconds since 1970, if that was said.
    pub(super) now: Option<i64>,
    /// Labels that all series get that come in text or as lines of an import.
    pub(super) extra: ExtraLabels,
}

/// Labels that series get besides their own, in place of which they are.
#[derive(Default, Debug)]
pub(super) struct ExtraLabels {
    labels: Vec<(String, String)>,
    /// What the key of a name begins with that has them.
    key: Vec<u8>,
}

impl ExtraLabels {
    /// Adds one; of one name the last one counts.
    pub(super) fn add(&mut self, name: String, value: String) {
        self.labels.retain(|(known, _)| *known != name);
        for part in [&name, &value] {
            self.key.extend_from_slice(&(part.len() as u32).to_le_bytes());
            self.key.extend_from_slice(part.as_bytes());
        }
        self.labels.push((name, value));
    }

    /// What the key of a name begins with, of a protocol whose names begin with `own` there.
    pub(super) fn key<'k>(&self, own: &'k [u8]) -> Cow<'k, [u8]> {
        match self.key.is_empty() {
            true => Cow::Borrowed(own),
            false => Cow::Owned([own, &self.key].concat()),
        }
    }

    /// Labels of a series, and these.
    pub(super) fn with(&self, mut labels: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
        for (name, value) in &self.labels {
            labels.retain(|(own, _)| own != name.as_bytes());
            labels.push((name.clone().into(), value.clone().into()));
        }
        labels
    }
}

/// A record of a series.
#[derive(Debug)]
pub(super) struct IntakeRecord {
    /// Whose it is, as of a sample.
    pub(super) target: u32,
    pub(super) record: Record,
}

/// How much was taken.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    pub(super) samples: usize,
    increments: usize,
    pub(super) records: usize,
    record_bytes: usize,
    histogram_increments: usize,
    pub(super) starts: usize,
}

/// What waits while zeros are saved that belong before it.
pub(super) struct Taken {
    samples: Vec<Sample>,
    records: Vec<IntakeRecord>,
    record_bytes: usize,
    increments: Vec<(u32, i64, Histogram)>,
}

/// What parsers leave behind.
#[derive(Debug)]
pub(super) struct Intake {
    pub(super) names: Names,
    pub(super) samples: Vec<Sample>,
    pub(super) records: Vec<IntakeRecord>,
    /// Bytes of those.
    pub(super) record_bytes: usize,
    /// What is to be added to the newest point of its series, and to the newest histogram: on its
    /// way to be records.
    pub(super) increments: Vec<Sample>,
    pub(super) histogram_increments: Vec<(u32, i64, Histogram)>,
    /// When what is counted began, of samples and histograms.
    pub(super) starts: Vec<Start>,
    pub(super) besides: Besides,
    pub(super) replies: Vec<u8>,
    /// Refusals that were not said for want of room, and all of them.
    pub(super) unsaid: u64,
    pub(super) refused: u64,
    /// Whether everything before is to be committed, and that to be said, before the session goes
    /// on.
    pub(super) wants_sync: bool,
}

impl Intake {
    /// How many samples wait to be saved.
    pub(super) fn gathered(&self) -> usize {
        self.samples.len()
            + self.increments.len()
            + self.records.len()
            + self.histogram_increments.len()
    }

    /// How much was taken, to go back to.
    pub(super) fn mark(&self) -> Mark {
        Mark {
            samples: self.samples.len(),
            increments: self.increments.len(),
            records: self.records.len(),
            record_bytes: self.record_bytes,
            histogram_increments: self.histogram_increments.len(),
            starts: self.starts.len(),
        }
    }

    /// Forgets what was taken behind a mark.
    pub(super) fn go_back(&mut self, mark: Mark) {
        self.samples.truncate(mark.samples);
        self.increments.truncate(mark.increments);
        self.records.truncate(mark.records);
        self.record_bytes = mark.record_bytes;
        self.histogram_increments.truncate(mark.histogram_increments);
        self.starts.truncate(mark.starts);
    }

    /// Takes a native histogram that is to be added to the newest of its series.
    pub(super) fn take_increment(&mut self, target: u32, time: i64, histogram: Histogram) {
        self.record_bytes += histogram.size() * size_of::<f64>();
        self.histogram_increments.push((target, time, histogram));
    }

    pub(super) fn is_full_of_records(&self) -> bool {
        self.record_bytes >= RECORD_BYTES
    }

    /// Takes a native histogram, as a record of a series of this kind.
    ///
    /// # Errors
    /// If it is too large.
    pub(super) fn take_histogram(
        &mut self,
        (target, kind): (u32, Kind),
        time: i64,
        histogram: &Histogram,
    ) -> Result<(), String> {
        self.take_record(target, kind, time, histogram::encode(histogram)?.into());
        Ok(())
    }

    pub(super) fn take_record(&mut self, target: u32, kind: Kind, time: i64, bytes: Bytes) {
        self.record_bytes += bytes.len();
        self.records.push(IntakeRecord { target, record: Record { kind, time, bytes } });
    }

    /// The time of the last histogram among the records from `begin` on.
    pub(super) fn last_histogram(&self, begin: usize) -> Option<i64> {
        let mut records = self.records[begin..].iter().rev().map(|one| &one.record);
        records.find(|record| record.kind == Kind::Histogram).map(|record| record.time)
    }

    /// The starts from `begin` on are a target's: those that it is known to have begun at are left
    /// out.
    pub(super) fn own_starts(&mut self, begin: usize, target: u32) {
        let own = self.starts.split_off(begin);
        let new = own.into_iter().filter(|start| !self.names.has_begun(target, start.time));
        self.starts.extend(new.map(|start| Start { target, ..start }));
    }

    /// Whether that is enough, or what they are called takes as much memory as it may.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.gathered() >= SAMPLES || self.names.fresh() >= FRESH || self.is_full_of_records()
    }

    /// Takes an exemplar of a series, as a record. One that is too long to be kept is counted.
    pub(super) fn take_exemplar(&mut self, target: u32, time: i64, exemplar: &Exemplar) {
        match exemplar.encode() {
            Some(bytes) => self.take_record(target, Kind::Exemplar, time, bytes.into()),
            None => self.besides.exemplars += 1,
        }
    }

    /// Takes zeros in the place of what was taken, which is given.
    pub(super) fn replace(&mut self, samples: Vec<Sample>, records: Vec<IntakeRecord>) -> Taken {
        let samples = std::mem::replace(&mut self.samples, samples);
        let records = std::mem::replace(&mut self.records, records);
        let increments = std::mem::take(&mut self.histogram_increments);
        Taken { samples, records, record_bytes: self.record_bytes, increments }
    }

    /// Takes back what was replaced.
    pub(super) fn put_back(&mut self, taken: Taken) {
        let Taken { samples, records, record_bytes, increments } = taken;
        self.samples = samples;
        self.records = records;
        self.record_bytes = record_bytes;
        self.histogram_increments = increments;
    }

    pub(super) fn forget_records(&mut self) {
        self.records = Vec::new();
        self.record_bytes = 0;
        self.histogram_increments = Vec::new();
    }

    /// Takes what is said of a metric.
    pub(super) fn describe(&mut self, metric: &[u8], kind: &'static str, help: &[u8], unit: &[u8]) {
        if !metric.is_empty() && self.besides.metadata.len() < DESCRIBED {
            self.besides.metadata.push(Metadata::new(metric, kind, help, unit));
        }
    }

    /// Says that something was refused; counts it if there is much that is not taken.
    #[cold]
    pub(super) fn reply(&mut self, text: fmt::Arguments<'_>) {
        self.refused += 1;
        if self.replies.len() >= REPLIES {
            self.unsaid += 1;
        } else {
            self.say(text);
        }
    }

    pub(super) fn say(&mut self, text: fmt::Arguments<'_>) {
        self.replies.extend_from_slice(text.to_string().as_bytes());
    }
}

/// The beginning of a line that was refused, as it can be shown.
pub(super) struct Shown<'a>(pub(super) &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 120;
        write!(f, "{}", self.0[..self.0.len().min(SHOWN)].escape_ascii())?;
        if self.0.len() > SHOWN { f.write_str("...") } else { Ok(()) }
    }
}
