//! Foreign parts: how series are read that somebody else owns.
//!
//! ```text
//!   names, index, leaves, nodes, late leaves, masks     rows, which anybody may read
//!   the inbox                                           whoever owns the part takes it in first, if anything waits
//!   points in no leaf yet                               are asked of whoever owns the part: many series in one question
//! ```
//!
//! What was answered to a sender as durable is in one of these places at any instant, and moves
//! down to up: memory is asked before the tree is read, as by a reader who owns the part
//! (`query.rs`). Whoever answers has looked, since he was asked, whether the part is his still; so
//! nobody is told what was true once. How a question gets to the owner, and who that is, is the
//! affair of whoever gave the store its [`Owner`]; questions and answers are bytes to it.
//!
//! ```text
//!   question   01 | first time | last time (8 bytes each) | how many | of each: number, length of the name, name
//!   answer     01 | how many | batches of the tail, each behind its length: points behind all leaves
//!                 | how many | the same for late points, of each series in the order in which they came
//! ```

use super::budget::Share;
use super::found::{Brought, Found};
use super::keys::Id;
use super::{Cell, Part, Role, Standing, State, inbox, lock, retry, rolls, tail};
use crate::codec::reader::{Reader, write_number};
use crate::error::{Error, Result};
use crate::name::{MAX_NAME_BYTES, Name};
use crate::tree::Span;
use crate::value::Point;
use plinth_client::Transaction;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

const FORMAT: u8 = 1;
/// Series of one question, at most, and bytes of names beyond which it gets no more of them.
pub(crate) const SERIES_AT_ONCE: usize = 512;
const NAME_BYTES: usize = 256 << 10;
/// An event's points lie in a microsecond, which has to be read whole.
const AROUND: i64 = 1000;

/// What an owner says, some time.
pub type Told<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>>> + Send + 'a>>;

/// The way to whoever owns a part of the series, who may be somebody else at any time.
pub trait Owner: Send + Sync {
    /// What the owner's store says to a question ([`SeriesStore::answer`](super::SeriesStore)).
    /// Whoever loses the part while he answers has not answered.
    fn ask(&self, question: Vec<u8>) -> Told<'_>;
}

/// The series of a question, and the span of time that it is about.
struct Question {
    span: Span,
    series: Vec<(Id, Name)>,
}

impl Question {
    fn encode(span: Span, series: &[&mut Found], local: impl Fn(&Found) -> Id) -> Vec<u8> {
        let mut out = vec![FORMAT];
        out.extend_from_slice(&span.first.saturating_sub(AROUND).to_le_bytes());
        out.extend_from_slice(&span.last.saturating_add(AROUND).to_le_bytes());
        write_number(series.len() as u64, &mut out);
        for found in series {
            let name = found.name.as_str();
            write_number(local(found), &mut out);
            write_number(name.len() as u64, &mut out);
            out.extend_from_slice(name.as_bytes());
        }
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        check_format(&mut reader)?;
        let (first, last) = (reader.fixed::<8>()?, reader.fixed::<8>()?);
        let span = Span { first: i64::from_le_bytes(first), last: i64::from_le_bytes(last) };
        let mut series = Vec::new();
        for _ in 0..reader.count(SERIES_AT_ONCE)? {
            let id = reader.number()?;
            let len = reader.count(MAX_NAME_BYTES)?;
            let name = std::str::from_utf8(reader.take(len)?).ok();
            let name = name.and_then(|name| Name::parse(name).ok());
            series.push((id, name.ok_or_else(|| reader.wrong("the name of a series"))?));
        }
        if !reader.is_empty() {
            return Err(reader.wrong("the end of the question"));
        }
        Ok(Self { span, series })
    }
}

fn check_format(reader: &mut Reader<'_>) -> Result<()> {
    match reader.byte()? {
        FORMAT => Ok(()),
        _ => Err(reader.wrong("a question or an answer of another part's owner, format 1")),
    }
}

fn put_batches(points: &[(Id, Point)], out: &mut Vec<u8>) {
    let batches = points.chunks(tail::BATCH_POINTS);
    write_number(batches.len() as u64, out);
    for batch in batches {
        let bytes = tail::encode(batch);
        write_number(bytes.len() as u64, out);
        out.extend_from_slice(&bytes);
    }
}

/// Takes batches off an answer; each point goes to its series.
fn take_batches(
    reader: &mut Reader<'_>,
    states: &mut HashMap<Id, State>,
    put: impl Fn(&mut State, Point),
) -> Result<()> {
    for _ in 0..reader.number()? {
        let len = reader.count(usize::MAX)?;
        for (id, point) in tail::decode(reader.take(len)?)? {
            match states.get_mut(&id) {
                Some(state) => put(state, point),
                None => return Err(reader.wrong("points of the series that were asked about")),
            }
        }
    }
    Ok(())
}

impl Part {
    /// Whether what is in memory of its series is somebody else's to tell.
    pub(super) fn is_foreign(&self) -> bool {
        self.shared.is_poster()
    }

    fn owner(&self) -> Result<&Arc<dyn Owner>> {
        match &self.shared.role {
            Role::Poster(Some(owner)) => Ok(owner),
            _ => Err(Error::NotOwner),
        }
    }

    /// Has the owner take in what waits in the inbox, if anything does.
    pub(super) async fn have_taken_in(&self) -> Result<()> {
        let owner = self.owner()?;
        rolls::learn(&self.shared).await?;
        let keys = &self.shared.keys;
        let any = |tr: Transaction| async move { inbox::has_any(&tr, keys).await };
        if retry::transact(&self.shared.database, any).await? {
            owner.ask(Question::encode(Span::NONE, &[], |found| found.id)).await?;
        }
        Ok(())
    }

    /// Asks the owner for what of these series is in no leaf yet and in `span`, some at a time.
    pub(super) async fn bring(&self, mut series: Vec<&mut Found>, span: Span) -> Result<()> {
        let mut rest = &mut series[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take(SERIES_AT_ONCE).take_while(|found| {
                bytes += found.name.as_str().len();
                bytes <= NAME_BYTES
            });
            let some = fits.count().max(1);
            let (now, later) = rest.split_at_mut(some);
            self.bring_some(now, span).await?;
            rest = later;
        }
        Ok(())
    }

    async fn bring_some(&self, series: &mut [&mut Found], span: Span) -> Result<()> {
        let local = |found: &Found| self.shared.of.whole.within(found.id).1;
        let answer = self.owner()?.ask(Question::encode(span, series, local)).await?;
        let fresh = || State { standing: Standing::Found, ..State::default() };
        let mut states: HashMap<Id, State> =
            series.iter().map(|found| (local(found), fresh())).collect();
        let mut reader = Reader::new(&answer);
        check_format(&mut reader)?;
        take_batches(&mut reader, &mut states, |state, point| {
            state.open.insert(point);
        })?;
        take_batches(&mut reader, &mut states, |state, point| state.late.push(point))?;
        for found in series {
            let id = local(found);
            let state = states.remove(&id).unwrap_or_else(fresh);
            let mut share = Share::of(&self.shared.of.whole.queries);
            share.hold((state.open.len() + state.late.len()) * size_of::<Point>())?;
            let (name, state) = (found.name.clone(), Mutex::new(state));
            found.brought = Brought::new(Cell { id, name, state }, share);
        }
        Ok(())
    }

    /// What the owner of the part says to a question: everything that was committed before it came
    /// is in what it has in memory, or in rows.
    pub(super) async fn answer(&self, question: &[u8]) -> Result<Vec<u8>> {
        let question = Question::decode(question)?;
        if !matches!(self.shared.role, Role::Owner { .. }) {
            return Err(Error::NotOwner);
        }
        self.shared.take_in().await?;
        let (mut open, mut late) = (Vec::new(), Vec::new());
        let mut share = Share::of(&self.shared.of.whole.queries);
        for (id, name) in question.series {
            let Some(cell) = self.shared.in_memory(id, &name) else { continue };
            let state = lock(&cell.state);
            let leaves = state.sealing.iter().map(|leaf| &**leaf).chain([&state.open]);
            for leaf in leaves {
                let places = question.span.places(&leaf.times);
                open.extend(places.map(|place| (id, leaf.get(place))));
            }
            let merged = state.merging.iter().chain(&state.late);
            let within =
                |point: &&Point| (question.span.first..=question.span.last).contains(&point.time);
            late.extend(merged.filter(within).map(|point| (id, *point)));
            drop(state);
            share.hold((open.len() + late.len()) * size_of::<(Id, Point)>())?;
        }
        self.shared.check()?;
        let mut out = vec![FORMAT];
        put_batches(&open, &mut out);
        put_batches(&late, &mut out);
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_comes_back_and_one_that_is_none_is_refused() {
        let found = |id, name: &str| Found::new(id, Name::parse(name).unwrap());
        let (mut one, mut other) = (found(7, "cpu host=a"), found(300, "cpu host=b"));
        let span = Span { first: 5, last: 9000 };
        let bytes = Question::encode(span, &[&mut one, &mut other], |found| found.id);
        let question = Question::decode(&bytes).unwrap();
        assert_eq!((question.span.first, question.span.last), (5 - AROUND, 9000 + AROUND));
        let names: Vec<(Id, &str)> =
            question.series.iter().map(|(id, name)| (*id, name.as_str())).collect();
        assert_eq!(names, [(7, "cpu host=a"), (300, "cpu host=b")]);
        for len in 0..bytes.len() {
            assert!(Question::decode(&bytes[..len]).is_err(), "{len}");
        }
        assert!(Question::decode(&[&bytes[..], &[0]].concat()).is_err());
        assert!(Question::decode(&[&[2], &bytes[1..]].concat()).is_err());
    }
}
