//! Increments and starts: what is said of a series by somebody who need not know what is newest in
//! it. They are in the inbox, as records; whoever takes them in knows.
//!
//! ```text
//!   any server:  record "5 were added at 30"  --commit--> the inbox
//!   the owner:   the newest point is 7, of 20 ----------> a point 12, of 30
//! ```
//!
//! So a sum is nowhere but in its series, and goes on behind a restart, a failure, or a change of
//! owner with what is committed; and those who add need neither an owner that answers nor a turn:
//! mail is taken in by one at a time, in the order of commits.
//!
//! An increment that is no newer than the newest point was taken in already, or was overtaken and
//! belongs to a sum that nobody can mend: it changes nothing. So taking in the same mail twice ends
//! as doing so once. (Where a crash, or the loss of the lease, comes between two transactions of a
//! large flush the sum is right, but points before its newest may be missing: their increments are
//! in it, and older.) A start is a 0 where there is nothing as new, as a histogram without counts
//! is.
//!
//! What is newest in series is read before anything of the mail is put into memory ([`Bases`]), of
//! all of them at once: whoever takes in keeps others from saving. A series of which that can't be
//! read is damaged, and its mail goes aside.

use super::keys::Id;
use super::letter::Letters;
use super::merged::Merged;
use super::record_mail::Mailed;
use super::{Part, Role, Series, SeriesStore, Standing, lock};
use crate::error::{Error, Result};
use crate::histogram;
use crate::increment;
use crate::record::{Kind, Record};
use crate::tree::{Direction, Piece, Span};
use crate::value::{Point, Value};
use plinth_env::sync::all;
use plinth_types::Bytes;
use std::collections::BTreeMap;

/// Series that are read beside each other.
pub(super) const AT_ONCE: usize = 64;
/// Series whose newest histograms are held at once, about: each may have 64 KiB.
const HISTOGRAMS: usize = 256;

/// What a record comes to when it is taken in.
pub(super) enum Came {
    Point(Point),
    Record(Record),
    /// Its series has it already, or what is newer.
    Nothing,
}

/// What is newest in series outside of memory, as far as records need it.
#[derive(Default)]
pub(super) struct Bases(BTreeMap<Id, Base>);

/// What is newest in one series.
#[derive(Default)]
struct Base {
    point: Option<Point>,
    histogram: Option<(i64, Bytes)>,
}

impl Bases {
    /// Reads what the records of letters need; and which series can't be read, and why; and how
    /// many of the letters that is for, one at least.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub(super) async fn read(letters: &Letters) -> Result<(Self, Vec<(Series, Error)>, usize)> {
        let mut needed: BTreeMap<Id, (Series, bool)> = BTreeMap::new();
        let (mut covered, mut of_histograms) = (0, 0);
        for letter in letters {
            if of_histograms > HISTOGRAMS {
                break;
            }
            covered += 1;
            let Ok((opened, series)) = letter else { continue };
            for (which, record) in &opened.records {
                let Ok(series) = &series[*which] else { continue };
                let is_needed = !Kind::KEPT.contains(&record.kind);
                if is_needed && lock(&series.cell.state).standing != Standing::Damaged {
                    let needed = needed.entry(series.cell.id);
                    let (_, histograms) = needed.or_insert_with(|| (series.clone(), false));
                    if record.kind.is_of_histograms() && !*histograms {
                        *histograms = true;
                        of_histograms += 1;
                    }
                }
            }
        }
        let (mut bases, mut damaged) = (Self::default(), Vec::new());
        let needed: Vec<(Series, bool)> = needed.into_values().collect();
        for some in needed.chunks(AT_ONCE) {
            let read = some.iter().map(|(series, histograms)| Base::read(series, *histograms));
            for ((series, _), base) in some.iter().zip(all(read).await) {
                match base {
                    Ok(base) => drop(bases.0.insert(series.cell.id, base)),
                    Err(why @ Error::Damaged { .. }) => damaged.push((series.clone(), why)),
                    Err(why) => return Err(why),
                }
            }
        }
        Ok((bases, damaged, covered))
    }

    /// What a record of a series comes to, behind those of `mailed`. What makes no sense was
    /// refused when its letter was opened, and comes to nothing.
    pub(super) fn come(&self, series: &Series, record: Record, mailed: &Mailed) -> Came {
        let Record { kind, time, ref bytes } = record;
        let is_newer = |newest: Option<i64>| newest.is_none_or(|newest| newest < time);
        let histogram = |bytes| Came::Record(Record { kind: Kind::Histogram, time, bytes });
        match kind {
            Kind::Histogram | Kind::Exemplar => Came::Record(record),
            Kind::Increment => {
                let (added, newest) = (increment::decode(bytes), self.point(series));
                let Some(added) = added.filter(|_| is_newer(newest.map(|newest| newest.time)))
                else {
                    return Came::Nothing;
                };
                let value = newest.map_or(added, |newest| increment::sum(newest.value, added));
                Came::Point(Point { time, value })
            }
            Kind::HistogramIncrement => {
                let newest = self.histogram(series, mailed);
                if !is_newer(newest.as_ref().map(|newest| newest.0)) {
                    return Came::Nothing;
                }
                // One of other buckets begins again, and one that would be too large.
                let sum = newest.and_then(|(_, before)| summed(&before, bytes));
                histogram(sum.unwrap_or_else(|| bytes.clone()))
            }
            Kind::Start => match is_newer(self.point(series).map(|newest| newest.time)) {
                true => Came::Point(Point { time, value: Value::Float(0.0) }),
                false => Came::Nothing,
            },
            Kind::HistogramStart => {
                let newest = self.histogram(series, mailed).map(|newest| newest.0);
                let newest = newest.max(self.point(series).map(|newest| newest.time));
                if is_newer(newest) { histogram(bytes.clone()) } else { Came::Nothing }
            }
        }
    }

    /// Notes that a point was put into the memory of a series, which may be among its late ones:
    /// what is newest can be older than what leaves end with, some of which was deleted.
    pub(super) fn placed(&mut self, series: &Series, point: Point) {
        if let Some(base) = self.0.get_mut(&series.cell.id)
            && base.point.is_none_or(|newest| newest.time <= point.time)
        {
            base.point = Some(point);
        }
    }

    /// The newest point of a series.
    fn point(&self, series: &Series) -> Option<Point> {
        let saved = self.0.get(&series.cell.id).and_then(|base| base.point);
        let open = lock(&series.cell.state).open.iter().next_back();
        match (saved, open) {
            (Some(saved), Some(open)) if open.time < saved.time => Some(saved),
            (saved, open) => open.or(saved),
        }
    }

    /// The newest native histogram of a series, saved or on its way.
    fn histogram(&self, series: &Series, mailed: &Mailed) -> Option<(i64, Bytes)> {
        let saved = self.0.get(&series.cell.id).and_then(|base| base.histogram.clone());
        match (saved, mailed.newest_histogram(series.cell.id)) {
            (Some(saved), Some(mailed)) if mailed.0 < saved.0 => Some(saved),
            (saved, mailed) => mailed.or(saved),
        }
    }
}

/// The sum of two histograms, if they have one.
fn summed(before: &[u8], added: &[u8]) -> Option<Bytes> {
    let (before, added) = (histogram::decode(before).ok()?, histogram::decode(added).ok()?);
    let sum = before.plus(&added).and_then(|sum| histogram::encode(&sum));
    Some(sum.ok()?.into())
}

impl Base {
    async fn read(series: &Series, histograms: bool) -> Result<Self> {
        let point = series.newest_known().await?;
        let histogram = match histograms {
            true => series.newest_record(Kind::Histogram).await?,
            false => None,
        };
        if let Some((_, bytes)) = &histogram {
            histogram::decode(bytes)?;
        }
        Ok(Self { point, histogram })
    }
}

impl SeriesStore {
    /// Has what waits in the inboxes of its own parts taken in, so that what is newest in their
    /// series is known here.
    ///
    /// # Errors
    /// As [`SeriesStore::sync`].
    pub(crate) async fn take_in_own(&self) -> Result<()> {
        let is_own = |part: &&Part| !part.shared.is_poster() && !part.is_handed_over();
        let parts = self.parts.iter().filter(is_own);
        all(parts.map(|part| part.shared.take_in())).await.into_iter().collect()
    }
}

impl Series {
    /// Whether what is newest in it is known here, and nobody has to be asked.
    pub(crate) fn is_owned(&self) -> bool {
        !self.shared.is_poster()
    }

    /// Whether what is newest in it can be found out, here or by asking its owner.
    pub(crate) fn can_be_read(&self) -> bool {
        !matches!(self.shared.role, Role::Poster(None))
    }

    /// Its newest point; of a series that is owned, of what was taken in.
    ///
    /// # Errors
    /// As [`Series::scan`].
    pub(crate) async fn newest(&self) -> Result<Option<Point>> {
        if self.is_owned() {
            return self.newest_known().await;
        }
        let points = self.scan_unchecked(.., Direction::Backward).await?.next().await?;
        // They ascend, whatever the direction.
        Ok(points.and_then(|points| points.iter().next_back()))
    }

    /// The time of its newest native histogram, which is owned, of those that were taken in.
    ///
    /// # Errors
    /// [`Error::Deleted`]; as [`Series::scan`].
    pub(crate) async fn newest_histogram_known(&self) -> Result<Option<i64>> {
        if self.is_deleted() {
            return Err(Error::Deleted);
        }
        Ok(self.newest_record(Kind::Histogram).await?.map(|(time, _)| time))
    }

    /// The newest point of a series that is owned, if it is in no leaf yet.
    pub(super) fn newest_open(&self) -> Option<Point> {
        let state = lock(&self.cell.state);
        // Of whoever only reads, memory may be older than the tree.
        let is_owner = matches!(self.shared.role, Role::Owner { .. });
        let is_there = is_owner && state.standing != Standing::Gone;
        state.open.iter().next_back().filter(|_| is_there)
    }

    /// The newest point of a series that is owned, or only read, but for what waits in the inbox.
    pub(super) async fn newest_known(&self) -> Result<Option<Point>> {
        if lock(&self.cell.state).standing == Standing::Gone {
            return Ok(None);
        }
        if let Some(point) = self.newest_open() {
            return Ok(Some(point));
        }
        let mut all = Merged::known(self, Span::ALL, Direction::Backward).await?;
        while let Some(piece) = all.next(|_| false).await? {
            match piece {
                Piece::Points(points) if points.is_empty() => {}
                Piece::Points(points) => return Ok(points.iter().next_back()),
                Piece::Whole(summary) => return Ok(Some(summary.last)),
            }
        }
        Ok(None)
    }
}
