//! Walking through all segments of a log that nobody writes to: what opening, `verify` and salvage
//! share.
//!
//! A [`Walk`] goes from record to record, from segment to segment, as long as each follows from the
//! one before. Where one doesn't, it stops. The end of a log looks just like damage: what tells
//! them apart is whether any record further on says that the missing one had been durable. The walk
//! answers that ([`Walk::survey`]) and can go on behind the damage ([`Walk::resume`]).
#![deny(clippy::as_conversions, clippy::indexing_slicing)]

use std::path::Path;
use std::sync::Arc;

use plinth_env::{Env, Open};
use plinth_format::{Corruption, Flaw, Keys};

use crate::failure::LogResult;
use crate::findings::CutTail;
use crate::format::mark::{Mark, mark_seed};
use crate::format::{Body, Kind, RECORDS_START, RecordHeader};
use crate::link::{Link, Memory};
use crate::marks::{Marks, Noted};
use crate::scan::{Scanner, Search};
use crate::segment::{Directory, Found, Segment, find, segment_path};

/// A segment on the walk's way.
pub(crate) struct Station {
    pub(crate) segment: Arc<Segment>,
    /// Bytes in the file.
    pub(crate) len: u64,
    pub(crate) scanner: Scanner,
}

/// A record that follows from the one before.
pub(crate) struct Step {
    /// Which station it is in.
    pub(crate) station: usize,
    pub(crate) offset: u64,
    pub(crate) header: RecordHeader,
    pub(crate) body: Body,
}

/// What lies behind the place where a walk stopped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Survey {
    /// The highest number of a record that is known durable, be it from any record there; 0 if
    /// there is none.
    pub(crate) durable_sequence: u64,
    /// The latest opening of any record there.
    pub(crate) opening: u32,
    /// For the segment in which the walk stopped and each one after it: where what it holds ends.
    pub(crate) ends: Vec<End>,
}

/// Where what a segment holds ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// The end of the last record with a readable header; where the search began if there is none.
    records: u64,
    /// The end of the last byte behind that which is not zero; the same if there is none.
    bytes: u64,
}

impl End {
    /// Where the bytes of a torn tail end. In a recycled file only records count: the rest is old.
    pub(crate) fn of_tail(self, station: &Station) -> u64 {
        if station.segment.header.recycled { self.records } else { self.bytes }
    }
}

impl Survey {
    /// Where the torn tail ends in a station that is so many behind the one where the walk stopped.
    pub(crate) fn end_of_tail(&self, behind: usize, station: &Station) -> u64 {
        self.ends.get(behind).expect("a survey looks at every station").of_tail(station)
    }
}

const STANDS: &str = "a walk goes by its own stations";

pub(crate) struct Walk {
    pub(crate) stations: Vec<Station>,
    pub(crate) at: usize,
    pub(crate) offset: u64,
    /// After which record; none before the first.
    pub(crate) link: Option<Link>,
    /// The last record that is known durable whatever the records say.
    pub(crate) marked: u64,
}

/// Everything about a log's files that can be told without reading records.
pub(crate) struct Surroundings {
    pub(crate) directory: Directory,
    pub(crate) stations: Vec<Station>,
    pub(crate) problems: Vec<Corruption>,
    /// The last note of how far the log is durable.
    pub(crate) mark: Mark,
    /// The other place for one, if it can't be read.
    pub(crate) spoilt_note: Option<Corruption>,
}

/// Opens all segments of a log. Those without a readable header are left out and told among the
/// problems.
pub(crate) async fn survey_files(
    env: &Env,
    dir: &Path,
    (open, keys): (Open, &Keys),
    gullible: bool,
) -> LogResult<Surroundings> {
    let directory = Directory::list(env, dir).await?;
    let (mut stations, mut problems) = (Vec::new(), Vec::new());
    let mut before = None;
    for serial in directory.segments.iter().copied() {
        let expected = before.replace(serial).map_or(serial, |before| before + 1);
        if expected != serial {
            let missing = segment_path(dir, expected).display().to_string();
            let flaw =
                Flaw::new("a segment file is missing", format_args!("segment {expected}"), "none");
            problems.push(flaw.at(&missing, 0));
        }
        match find(env, dir, serial, (open, keys)).await? {
            Ok(Found { segment, len, problems: theirs }) => {
                problems.extend(theirs);
                let scanner = Scanner::of(&segment, len, gullible);
                stations.push(Station { segment: Arc::new(segment), len, scanner });
            }
            Err(problem) => problems.push(problem),
        }
    }
    let (mut mark, mut spoilt_note) = (Mark::default(), None);
    if let Some(header) = stations.first().map(|station| station.segment.header) {
        match Marks::read(env, dir, mark_seed(&header.identity, header.log_id)).await? {
            Ok(Noted { last, spoilt }) => (mark, spoilt_note) = (last, spoilt),
            Err(problem) => problems.push(problem),
        }
    }
    Ok(Surroundings { directory, stations, problems, mark, spoilt_note })
}

impl Walk {
    /// Walks these segments, of which everything up to record `marked` is known to be durable.
    pub(crate) fn new(stations: Vec<Station>, marked: u64) -> Self {
        Self { stations, at: 0, offset: RECORDS_START, link: None, marked }
    }

    /// One of the segments on its way.
    pub(crate) fn station(&self, at: usize) -> &Station {
        self.stations.get(at).expect(STANDS)
    }

    fn scanner(&mut self, at: usize) -> &mut Scanner {
        &mut self.stations.get_mut(at).expect(STANDS).scanner
    }

    /// The number of the record that comes next.
    pub(crate) fn expected(&self) -> u64 {
        self.link.as_ref().map_or(1, |link| link.sequence.saturating_add(1))
    }

    /// The next record, or why there is none. Asked again after that it says the same.
    pub(crate) async fn next(&mut self) -> LogResult<Result<Step, Corruption>> {
        let flaw = match self.try_at(self.at, self.offset).await? {
            Ok(step) => return Ok(Ok(step)),
            Err(flaw) => flaw,
        };
        let (at, offset) = (self.at, self.offset);
        let next_begins_here = at + 1 < self.stations.len() && self.link.is_some();
        if next_begins_here && let Ok(step) = self.try_at(at + 1, RECORDS_START).await? {
            return Ok(Ok(step));
        }
        Ok(Err(flaw.at(&self.station(at).segment.name(), offset)))
    }

    /// Where the damage is, once it is known that the place where the walk stopped is damaged and
    /// not the end: there, or at the beginning of the next segment if the one before it ended
    /// regularly, or in a segment that is gone.
    pub(crate) async fn blame(&mut self, stopped: Corruption) -> LogResult<Corruption> {
        if let Some(missing) = self.missing_beginning().await? {
            return Ok(missing);
        }
        let (at, offset, next) = (self.at, self.offset, self.at + 1);
        if next >= self.stations.len()
            || self.scanner(at).find_header(offset).await?.header().is_some()
        {
            return Ok(stopped);
        }
        let first = self.scanner(next).find_header(RECORDS_START).await?.header();
        let begins_too_late = first.is_some_and(|(place, header)| {
            place == RECORDS_START
                && header.sequence != self.expected()
                && header.kind == Kind::State
        });
        if first.is_none() || begins_too_late {
            return Ok(stopped);
        }
        let name = self.station(next).segment.name();
        match self.try_at(next, RECORDS_START).await? {
            Err(flaw) => Ok(flaw.at(&name, RECORDS_START)),
            Ok(_) => Ok(stopped),
        }
    }

    /// The segment that must have been before the first one, if that has no record: it was made
    /// ahead, behind one with records.
    async fn missing_beginning(&mut self) -> LogResult<Option<Corruption>> {
        let (station, serial) = (self.station(0), self.station(0).segment.header.serial);
        let (path, is_recycled) = (station.segment.name(), station.segment.header.recycled);
        if self.link.is_some() || serial == 1 {
            return Ok(None);
        }
        match self.scanner(0).find_header(RECORDS_START).await? {
            Search::End(bytes) if is_recycled || bytes == RECORDS_START => {}
            _ => return Ok(None),
        }
        let dir = Path::new(&path).parent().unwrap_or(Path::new(""));
        let missing = segment_path(dir, serial - 1).display().to_string();
        let expected = format_args!("segment {}, with the records before", serial - 1).to_string();
        Ok(Some(Flaw::new("a segment file is missing", expected, "none").at(&missing, 0)))
    }

    /// Takes the step to the record at this place if it is the next one.
    async fn try_at(&mut self, station: usize, offset: u64) -> LogResult<Result<Step, Flaw>> {
        let (header, body) = match self.scanner(station).record(offset).await? {
            Ok(record) => record,
            Err(flaw) => return Ok(Err(flaw)),
        };
        let mut link =
            self.link.clone().unwrap_or_else(|| Link::before(&header, Memory::default()));
        if offset == RECORDS_START && header.kind != Kind::State {
            return Ok(Err(Flaw::new("first record of a segment", "a state record", "an entry")));
        }
        if let Err(flaw) = link.follow(&header, &body) {
            return Ok(Err(flaw));
        }
        self.link = Some(link);
        (self.at, self.offset) = (station, offset + header.span());
        Ok(Ok(Step { station, offset, header, body }))
    }

    /// Looks at every readable record header behind the place where the walk stopped.
    pub(crate) async fn survey(&mut self) -> LogResult<Survey> {
        let mut survey = Survey { durable_sequence: self.marked, ..Survey::default() };
        if self.stations.iter().any(|station| station.scanner.is_forged()) {
            // It was whole once: the end is no torn tail.
            survey.durable_sequence = survey.durable_sequence.max(self.expected());
        }
        let mut offset = self.offset;
        for station in self.stations.iter_mut().skip(self.at) {
            let bytes = loop {
                let (place, header) = match station.scanner.find_header(offset).await? {
                    Search::Header(place, header) => (place, header),
                    Search::End(bytes) => break bytes,
                };
                survey.durable_sequence = survey.durable_sequence.max(header.durable_sequence());
                survey.opening = survey.opening.max(header.opening);
                offset = (place + header.span()).min(station.len);
            };
            survey.ends.push(End { records: offset, bytes });
            offset = RECORDS_START;
        }
        Ok(survey)
    }

    /// The torn tail behind the place where the walk stopped, if anything is there. It begins where
    /// its first bytes are, which may be in a segment behind, made ahead and not begun.
    pub(crate) fn tail(&self, survey: &Survey, stopped: &Corruption) -> Option<CutTail> {
        let Corruption { what, expected, found, .. } = stopped;
        let mut reason = format!("{what}: expected {expected}, found {found}");
        let (mut tail, mut offset) = (None::<CutTail>, self.offset);
        for (behind, station) in self.stations.iter().skip(self.at).enumerate() {
            let end = survey.end_of_tail(behind, station);
            let bytes = end - offset;
            match &mut tail {
                Some(tail) => tail.bytes += bytes,
                None if bytes > 0 => {
                    let file = station.segment.name();
                    tail = Some(CutTail { file, offset, bytes, reason: reason.clone() });
                }
                None => {}
            }
            offset = RECORDS_START;
            reason = "a segment behind the end: expected zeros, found other bytes".to_owned();
        }
        tail
    }

    /// Goes on at the first whole record behind the place where the walk stopped, if there is one.
    /// Tells what is wrong with readable headers on the way.
    pub(crate) async fn resume(
        &mut self,
        problems: &mut Vec<Corruption>,
    ) -> LogResult<Option<Step>> {
        let expected = self.expected();
        let stopped = (self.at, self.offset);
        let (mut at, mut offset) = stopped;
        while at < self.stations.len() {
            let Some((place, header)) = self.scanner(at).find_header(offset).await?.header() else {
                (at, offset) = (at + 1, RECORDS_START);
                continue;
            };
            offset = place + header.span();
            let memory = self.link.as_ref().map(|link| link.memory.clone()).unwrap_or_default();
            if header.sequence < expected {
                continue;
            }
            let kept = self.link.replace(Link::before(&header, memory));
            match self.try_at(at, place).await? {
                Ok(step) => return Ok(Some(step)),
                Err(flaw) if (at, place) != stopped => {
                    problems.push(flaw.at(&self.station(at).segment.name(), place));
                }
                Err(_) => {}
            }
            self.link = kept;
        }
        Ok(None)
    }
}
