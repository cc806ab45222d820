//! Reading a series where it is rolled up: buckets as far as they are whole and what is asked
//! allows it, points for the rest, in one order.
//!
//! ```text
//!   asked        |-------------------------------------------------------------------|
//!   buckets   .......|===|===|===|===|===|   |===|===|===|===|===|===|===|
//!   pieces       |pts|      buckets      |pts|          buckets          |    points   |
//!                                          ^ changed since
//! ```
//!
//! What is in memory and late changes a bucket as well as what is noted, and is looked at first:
//! points move from there to here. Where points have gone a late one changes nothing, which is
//! counted when it is rolled up (`roll.rs`), and a bucket of which some were deleted isn't there
//! any more.
//!
//! What is planned is read later, and points may go meanwhile of which there were no buckets, or
//! others were to be read. So whoever begins to read points looks at whether some went, at the
//! version at which he reads; and again if he had to go on to another one. What went can't be had:
//! he is told to ask again.
//!
//! Of several rules the one with the longest buckets that fit is taken; where that has none yet, or
//! no more, the next one.

use super::keys::Keys;
use super::merged::Merged;
use super::nodes::Reader;
use super::origin::Origin;
use super::raw::aligned;
use super::rolls::{Change, State, spans};
use super::{Role, Series, Shared};
use crate::error::Result;
use crate::rollup::{Columns, Needed, begin_of, end_of};
use crate::tree::{Direction, Piece, Span, Summary};
use crate::value::Point;
use plinth_client::{KeySelector, KeyValue, RangeOptions, StreamingMode};
use std::collections::VecDeque;

/// What lies between no others.
const ALL: (i64, i64) = (i64::MIN, i64::MAX);
/// Rows of buckets that are read at a time, about fifteen kilobytes each.
const ROWS: usize = 16;
/// Stretches of points between buckets, at most: beyond, what lies between is read as points, too.
const STRETCHES: usize = 32;

/// A part of what is read.
pub(crate) enum Read {
    /// Points, or a summary of them.
    Piece(Piece),
    /// Whole buckets, one at least and a row at most: ascending, whatever the direction; and their
    /// length.
    Buckets(Box<Columns>, i64),
}

/// Whether buckets of some length answer what is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fit {
    Not,
    /// Those that lie within the span.
    Within,
    /// Those across its ends, too: whoever asks leaves out what he doesn't want of them.
    Around,
}

/// Buckets by one rule, and how far they are.
struct Buckets {
    rule: u64,
    every: i64,
    state: State,
}

/// What there is of a series besides its points.
struct Rolled {
    /// Those with the longest buckets first.
    rules: Vec<Buckets>,
    changes: Vec<Change>,
}

/// A stretch of time, and what of it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stretch {
    Points(Span),
    /// Buckets by the rule at this place: from the first that begins here, up to here.
    Buckets(usize, i64, i64),
}

/// The parts of a series, in order.
pub(crate) struct Parts {
    series: Series,
    direction: Direction,
    rolled: Rolled,
    needed: Needed,
    stretches: VecDeque<Stretch>,
    now: Now,
    /// What it was planned by, if there are buckets.
    planned: Option<Planned>,
    /// Whether points have gone that were asked for, and no buckets are in their place.
    pub(crate) are_missing: bool,
}

/// When it was planned what is read.
#[derive(Clone, Copy)]
struct Planned {
    /// While it says so, no points have gone since: see [`Rolls::none_go`](super::rolls::Rolls).
    none_went: Option<u64>,
    /// Before which time points had gone.
    gone: i64,
}

/// What a scan of points needs to find out whether some of them went while it read them.
pub(super) struct GoneCheck {
    series: Series,
    planned: Option<Planned>,
    span: Span,
    /// Whether some had gone before.
    pub(super) are_missing: bool,
}

impl GoneCheck {
    /// To be made when the scan has begun: what goes in between is then told to be missing.
    pub(super) async fn new(series: &Series, span: Span) -> Result<Self> {
        let none = (|_| Fit::Not, Needed::COUNTS);
        let parts = Parts::new(series, span, Direction::Forward, none).await?;
        let (planned, are_missing) = (parts.planned, parts.are_missing);
        Ok(Self { series: series.clone(), planned, span, are_missing })
    }

    /// Fails if the reader has gone on to another version, and points have gone meanwhile.
    pub(super) async fn check(&self, reader: &Reader) -> Result<()> {
        match reader.is_renewed() {
            true => check_there(&self.series, self.planned, reader, self.span).await,
            false => Ok(()),
        }
    }
}

/// What is being read.
enum Now {
    Nothing,
    /// Points of a span.
    Points(Box<Merged>, Span),
    Rows(Rows),
}

impl Parts {
    /// A span's parts: buckets where `fits` says that their length does, with what is needed of
    /// them.
    pub(super) async fn new(
        series: &Series,
        span: Span,
        direction: Direction,
        (fits, needed): (impl Fn(i64) -> Fit, Needed),
    ) -> Result<Self> {
        let mut parts = Self {
            series: series.clone(),
            direction,
            rolled: Rolled { rules: Vec::new(), changes: Vec::new() },
            needed,
            stretches: VecDeque::from([Stretch::Points(span)]),
            now: Nothing,
            planned: None,
            are_missing: false,
        };
        let known = series.shared.rolls.known();
        if known.fault.is_some() {
            // There may be buckets, and nobody knows of which length.
            parts.are_missing = have_gone_by_any(series, span).await?;
            return Ok(parts);
        }
        if !known.keeping.has(series.cell.name.metric()) {
            return Ok(parts);
        }
        parts.series = Merged::look(series, span).await?;
        let none_went = series.shared.none_go();
        parts.rolled = Rolled::look(&parts.series).await?;
        parts.planned = Some(Planned { none_went, gone: parts.rolled.gone() });
        let mut stretches = parts.rolled.stretches(span, &fits);
        let is_missing = |stretch: &Stretch| match stretch {
            Stretch::Points(span) => parts.rolled.gone() > span.first,
            Stretch::Buckets(..) => false,
        };
        parts.are_missing = stretches.iter().any(is_missing);
        if direction == Direction::Backward {
            stretches.reverse();
        }
        parts.stretches = stretches.into();
        Ok(parts)
    }

    /// Where what it gives comes from, before anything was asked for.
    pub(crate) fn origin(&self) -> Origin {
        Origin { are_missing: self.are_missing, every: self.every() }
    }

    /// The length of the longest buckets among the parts, if there are any.
    pub(crate) fn every(&self) -> Option<i64> {
        let every = |stretch: &Stretch| match stretch {
            Stretch::Points(_) => None,
            Stretch::Buckets(place, ..) => Some(self.rolled.rules[*place].every),
        };
        self.stretches.iter().filter_map(every).max()
    }

    /// How many points it holds that have not been asked for.
    pub(super) fn points_held(&self) -> usize {
        match &self.now {
            Now::Points(merged, _) => merged.points_held(),
            Now::Rows(_) | Now::Nothing => 0,
        }
    }

    /// The next part; a node of the tree is whole where `whole` allows it.
    pub(crate) async fn next(&mut self, whole: impl Fn(&Summary) -> bool) -> Result<Option<Read>> {
        loop {
            let part = match &mut self.now {
                Now::Points(merged, span) => {
                    let piece = merged.next(&whole).await?;
                    if piece.is_none() && merged.reader.is_renewed() {
                        check_there(&self.series, self.planned, &merged.reader, *span).await?;
                    }
                    piece.map(Read::Piece)
                }
                Now::Rows(rows) => {
                    rows.next().await?.map(|row| Read::Buckets(Box::new(row), rows.every))
                }
                Now::Nothing => None,
            };
            if part.is_some() {
                return Ok(part);
            }
            self.now = match self.stretches.pop_front() {
                None => return Ok(None),
                Some(Stretch::Points(span)) => {
                    let merged = Merged::new(&self.series, span, self.direction).await?;
                    check_there(&self.series, self.planned, &merged.reader, span).await?;
                    Now::Points(Box::new(merged), span)
                }
                Some(Stretch::Buckets(place, begin, end)) => {
                    let rule = &self.rolled.rules[place];
                    let span = (begin, end);
                    Now::Rows(Rows::new(&self.series, (rule, self.needed), span, self.direction))
                }
            };
        }
    }
}

use Now::Nothing;

/// Fails if points of a span have gone since it was planned to read them, as the reader sees it.
async fn check_there(
    series: &Series,
    planned: Option<Planned>,
    reader: &Reader,
    span: Span,
) -> Result<()> {
    let Some(Planned { none_went, gone }) = planned else { return Ok(()) };
    // What is known in this process holds for as long as the version that it was planned at: at a
    // later one somebody else may own the series.
    let is_known = none_went.is_some() && none_went == series.shared.none_go();
    // What had gone whole by then is told to be missing already.
    if is_known && !reader.is_renewed() || gone > span.last {
        return Ok(());
    }
    let (rules, _) = Rolled::rules(series, reader).await?;
    let goes_on = rules.iter().map(|rule| rule.state.gone).max().unwrap_or(gone);
    if goes_on <= gone.max(span.first) {
        return Ok(());
    }
    let why = format!("points of {} went while they were read: ask again", series.cell.name);
    Err(plinth_types::Error::transaction_too_old().with_detail(why).into())
}

impl Shared {
    /// As [`Rolls::none_go`](super::rolls::Rolls), of all who could have them go: that is the
    /// owner.
    fn none_go(&self) -> Option<u64> {
        matches!(self.role, Role::Owner { .. }).then(|| self.rolls.none_go()).flatten()
    }
}

/// Whether points of a span have gone by rules that nobody can read: how far they are is said of
/// each rule alike.
async fn have_gone_by_any(series: &Series, span: Span) -> Result<bool> {
    let shared = &series.shared;
    let reader = Reader::new(&shared.database, &shared.keys, series.cell.id);
    let (keys, mut rule) = (&reader.keys, 0);
    loop {
        let next = RangeOptions::from(keys.rolled_by(rule)..keys.behind_rolled()).limit(1);
        let Some(row) = reader.page(next).await?.pop() else { return Ok(false) };
        rule = keys.rule_of_rolled(&row.key)?;
        let state = vec![keys.rolled(rule, reader.id)];
        let (states, _) = reader.states(state, keys.changes(reader.id)).await?;
        let state = states.into_iter().flatten().next().map(|state| State::decode(&state));
        match state {
            Some(Ok(state)) if state.gone <= span.first => {}
            // Of what is in another form it isn't known either.
            Some(_) => return Ok(true),
            None => {}
        }
        let Some(next) = rule.checked_add(1) else { return Ok(false) };
        rule = next;
    }
}

impl Rolled {
    /// What there is; the series was looked at for what waits.
    async fn look(series: &Series) -> Result<Self> {
        let (shared, id) = (&series.shared, series.cell.id);
        let mut late: Vec<Point> = series.in_memory(Span::NONE).0;
        late.sort_unstable_by_key(|point| point.time);
        let late = spans(late.into_iter().map(|point| point.time));
        let late = late.into_iter().map(|span| Change { span, is_deletion: false });
        let reader = Reader::new(&shared.database, &shared.keys, id);
        let (rules, rows) = Self::rules(series, &reader).await?;
        let mut changes = late.collect::<Vec<_>>();
        for row in rows {
            changes.push(Change::of_key(&shared.keys, &row.key)?);
        }
        Ok(Self { rules, changes })
    }

    /// How far the series is by each rule, those with the longest buckets first, and the rows of
    /// its changes.
    async fn rules(series: &Series, reader: &Reader) -> Result<(Vec<Buckets>, Vec<KeyValue>)> {
        let (shared, id) = (&series.shared, series.cell.id);
        let known = shared.rolls.known();
        let of = known.keeping.of(series.cell.name.metric());
        let of: Vec<(u64, i64)> = of.map(|rollup| (rollup.id, rollup.every())).collect();
        let keys = of.iter().map(|(rule, _)| shared.keys.rolled(*rule, id)).collect();
        let (states, rows) = reader.states(keys, shared.keys.changes(id)).await?;
        let mut rules = Vec::new();
        for ((rule, every), state) in of.into_iter().zip(states) {
            let Some(state) = state else { continue };
            rules.push(Buckets { rule, every, state: State::decode(&state)? });
        }
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.every));
        Ok((rules, rows))
    }

    /// Before which time points have gone.
    fn gone(&self) -> i64 {
        self.rules.iter().map(|rule| rule.state.gone).max().unwrap_or(i64::MIN)
    }

    /// What is read of a span.
    fn stretches(&self, span: Span, fits: impl Fn(i64) -> Fit) -> Vec<Stretch> {
        let fit = |place: usize| (place, fits(self.rules[place].every));
        let places = (0..self.rules.len()).map(fit).filter(|(_, fit)| *fit != Fit::Not);
        let places: Vec<(usize, Fit)> = places.collect();
        let mut stretches = Vec::new();
        self.fill(span, ALL, &places, &mut stretches);
        let points = |stretch: &&Stretch| matches!(stretch, Stretch::Points(_));
        if stretches.iter().filter(points).count() > STRETCHES {
            return self.coarse(span, &places);
        }
        stretches
    }

    /// Adds what is read of a span by these rules, those with the longest buckets first. No bucket
    /// lies across the `bounds`, where other rules' are.
    fn fill(
        &self,
        span: Span,
        bounds: (i64, i64),
        places: &[(usize, Fit)],
        stretches: &mut Vec<Stretch>,
    ) {
        let Some(((place, fit), others)) = places.split_first() else {
            if !span.is_empty() {
                stretches.push(Stretch::Points(span));
            }
            return;
        };
        let Buckets { every, state, .. } = &self.rules[*place];
        if span.is_empty() {
            return;
        }
        let begin = match begin_of(span.first, *every) {
            begin if begin == span.first => begin,
            begin if *fit == Fit::Around && begin >= bounds.0 => begin,
            begin => end_of(begin, *every),
        };
        let around = end_of(begin_of(span.last, *every), *every);
        let end = match (*fit, span.last.checked_add(1)) {
            (Fit::Around, _) if around <= bounds.1 => around,
            (_, Some(end)) => begin_of(end, *every),
            // All of time has no moment behind it.
            (_, None) => i64::MAX,
        };
        let (begin, end) = self.seams(
            (begin, end),
            (begin.max(state.from), end.min(state.upto)),
            (*place, others),
        );
        if begin >= end {
            return self.fill(span, bounds, others, stretches);
        }
        let before = Span { last: begin.saturating_sub(1), ..span };
        let before = if begin == i64::MIN { Span::NONE } else { before };
        self.fill(before, (bounds.0, begin), others, stretches);
        let mut next = begin;
        for hole in self.holes(*place, (begin, end)) {
            if next < hole.0 {
                stretches.push(Stretch::Buckets(*place, next, hole.0));
            }
            stretches.push(Stretch::Points(Span::new(hole.0..hole.1)));
            next = hole.1;
        }
        if next < end {
            stretches.push(Stretch::Buckets(*place, next, end));
        }
        self.fill(Span { first: end, ..span }, (end, bounds.1), others, stretches);
    }

    /// From where, and up to where, buckets of a rule are taken of those that are wanted and those
    /// that there are. Where other rules' follow, and points have gone, they meet where a bucket of
    /// each begins: no part of one can be had.
    fn seams(
        &self,
        wanted: (i64, i64),
        (mut begin, mut end): (i64, i64),
        (place, others): (usize, &[(usize, Fit)]),
    ) -> (i64, i64) {
        let all = others.iter().map(|(place, _)| *place).chain([place]);
        let everies: Vec<i64> = all.map(|place| self.rules[place].every).collect();
        if begin > wanted.0 && begin > i64::MIN {
            // Days begin buckets of all lengths, so that comes to an end.
            while let Some(every) = everies.iter().find(|every| begin_of(begin, **every) < begin) {
                begin = end_of(begin_of(begin, *every), *every);
            }
        }
        if end < wanted.1 && end < self.gone() {
            end = aligned(end, &everies);
        }
        (begin, end)
    }

    /// Where buckets of a rule are not what the points say: from the beginning of one to that of
    /// another.
    fn holes(&self, place: usize, (begin, end): (i64, i64)) -> Vec<(i64, i64)> {
        let Buckets { every, state, .. } = &self.rules[place];
        let hole = |change: &Change| {
            let least = if change.is_deletion { begin } else { begin.max(state.gone) };
            let first = begin_of(change.span.first, *every).max(least);
            let last = end_of(begin_of(change.span.last, *every), *every).min(end);
            (first < last).then_some((first, last))
        };
        let mut holes: Vec<(i64, i64)> = self.changes.iter().filter_map(hole).collect();
        holes.sort_unstable();
        holes.dedup_by(|next, last| {
            let touches = next.0 <= last.1;
            if touches {
                last.1 = last.1.max(next.1);
            }
            touches
        });
        holes
    }

    /// The same where there are very many changes: all behind the first of them, as far as there
    /// are points, is read as points.
    fn coarse(&self, span: Span, places: &[(usize, Fit)]) -> Vec<Stretch> {
        let gone = self.gone();
        let first = self.changes.iter().map(|change| change.span.first.max(gone)).min();
        let last = self.changes.iter().map(|change| change.span.last).max();
        let (Some(first), Some(last)) = (first, last) else { return vec![Stretch::Points(span)] };
        let deletions = self.changes.iter().filter(|change| change.is_deletion);
        let mut changes: Vec<Change> =
            deletions.filter(|change| change.span.first < gone).copied().collect();
        let all = Span { first, last: last.max(first) };
        changes.push(Change { span: all, is_deletion: false });
        let rules = self.rules.iter();
        let rules = rules.map(|it| Buckets { rule: it.rule, every: it.every, state: it.state });
        let coarse = Self { rules: rules.collect(), changes };
        let mut stretches = Vec::new();
        coarse.fill(span, ALL, places, &mut stretches);
        stretches
    }
}

/// Rows of buckets: some are read at a time, and decoded one by one.
struct Rows {
    reader: Reader,
    rule: u64,
    every: i64,
    needed: Needed,
    direction: Direction,
    /// What is left: from the first bucket that begins here, up to here.
    begin: i64,
    end: i64,
    read: VecDeque<KeyValue>,
    is_end: bool,
}

impl Rows {
    fn new(
        series: &Series,
        (of, needed): (&Buckets, Needed),
        (begin, end): (i64, i64),
        direction: Direction,
    ) -> Self {
        let shared = &series.shared;
        let reader = Reader::new(&shared.database, &shared.keys, series.cell.id);
        let (rule, every, read) = (of.rule, of.every, VecDeque::new());
        Self { reader, rule, every, needed, direction, begin, end, read, is_end: false }
    }

    /// The buckets of the next row that has any. What was given is told by time, since rows are
    /// divided meanwhile.
    async fn next(&mut self) -> Result<Option<Columns>> {
        while self.begin < self.end {
            let is_backward = self.direction == Direction::Backward;
            let row = if is_backward { self.read.pop_back() } else { self.read.pop_front() };
            let Some(row) = row else {
                if self.is_end {
                    break;
                }
                self.read().await?;
                continue;
            };
            let mut columns = Columns::decode(&row.value, self.needed)?;
            let Some((first, last)) = columns.ends() else { continue };
            columns.keep(self.begin, self.end);
            match is_backward {
                true => self.end = self.end.min(first),
                false => self.begin = self.begin.max(last.saturating_add(1)),
            }
            if columns.ends().is_some() {
                return Ok(Some(columns));
            }
        }
        Ok(None)
    }

    /// Reads the next rows.
    async fn read(&mut self) -> Result<()> {
        let keys: &Keys = &self.reader.keys;
        let (of_series, id) = (keys.rolled(self.rule, self.reader.id), self.reader.id);
        let row = |begin: i64| keys.rolled_row(self.rule, id, begin);
        let is_backward = self.direction == Direction::Backward;
        let range = RangeOptions::new(
            // The row in which the first bucket is has a key before it, if there is one.
            KeySelector::last_less_or_equal(row(self.begin)),
            KeySelector::first_greater_or_equal(row(self.end)),
        );
        let range = range.limit(ROWS).reverse(is_backward).mode(StreamingMode::WantAll);
        let mut rows = self.reader.page(range).await?;
        self.is_end = rows.len() < ROWS;
        if is_backward {
            rows.reverse();
        }
        let is_row =
            |row: &KeyValue| row.key.starts_with(&of_series) && row.key.len() > of_series.len();
        self.read.extend(rows.into_iter().filter(is_row));
        self.is_end |= self.read.is_empty();
        Ok(())
    }
}
