//! Where rows come from, for each kind of query.
//!
//! Ordered by time all series are merged at once; ordered by series one line after the other, so
//! only the series of one line are open.

use super::Batch;
use super::cursor::{Extent, Item, Text, What, together};
use super::error::{QueryError, QueryResult};
use super::filter::ValueFilter;
use super::member::Member;
use super::merge::{Bounds, Merge, Rows};
use super::parse::{Func, Kind, Order, Query, RowFilter, Where};
use super::plan::{self, Plan};
use crate::name::Name;
use crate::store::{Known, Listing, Origin, SERIES_AT_ONCE, SeriesStore, Share};
use crate::tree::{Span, Summary};
use crate::value::Value;
use std::collections::VecDeque;
use std::sync::Arc;

/// Lines of a batch of aggregates, names of a batch of names.
const LINES: usize = 256;

/// Where rows come from.
pub(super) enum Source {
    Values(Sequence<Value>),
    /// Points of several metrics side by side; a filter lets a row through, and has left out the
    /// points that don't meet it.
    Points {
        rows: Sequence<Value>,
        filters: Vec<ValueFilter>,
    },
    Texts(Sequence<Text>),
    /// Buckets of which each gives one row of functions.
    Groups {
        rows: Sequence<Summary>,
        funcs: Vec<Func>,
        filter: RowFilter,
    },
    /// Rows of buckets, of each of which one function is asked.
    Joined {
        rows: Sequence<Summary>,
        func: Func,
        filters: Vec<ValueFilter>,
    },
    Aggregates {
        store: SeriesStore,
        extent: Extent,
        members: VecDeque<Member>,
        funcs: Vec<Func>,
        origin: Origin,
    },
    /// Names that were found.
    Found(std::vec::IntoIter<Name>),
    /// All names, from this number on, of which the tags let some through.
    All {
        store: SeriesStore,
        tags: Where,
        least: u64,
        is_end: bool,
    },
    List {
        store: SeriesStore,
        listing: Listing,
        prefix: String,
        after: Option<String>,
        is_end: bool,
    },
}

/// The rows of the series in the order of the query.
pub(super) struct Sequence<T: Item> {
    store: SeriesStore,
    extent: Extent,
    what: Vec<What>,
    order: Order,
    bounds: Bounds,
    waiting: VecDeque<Member>,
    merge: Option<Merge<T>>,
    /// Where what those merges gave comes from that are over.
    origin: Origin,
}

impl<T: Item> Sequence<T> {
    async fn next(&mut self) -> QueryResult<Option<Rows<T>>> {
        loop {
            if let Some(merge) = &mut self.merge {
                if let Some(rows) = merge.next().await? {
                    return Ok(Some(rows));
                }
                self.origin = self.origin.with(merge.origin);
                self.merge = None;
            }
            let Some(first) = self.waiting.front().map(|member| member.line) else {
                return Ok(None);
            };
            let end = match self.order {
                Order::Time => self.waiting.len(),
                Order::Series => self.waiting.partition_point(|member| member.line == first),
            };
            bring(&self.store, &self.extent, &mut self.waiting).await?;
            let members = self.waiting.drain(..end).collect();
            self.merge =
                Some(Merge::new(&self.store, self.extent, members, &self.what, self.bounds)?);
        }
    }

    fn origin(&self) -> Origin {
        self.merge.as_ref().map_or(self.origin, |merge| self.origin.with(merge.origin))
    }
}

impl Source {
    /// The source of a query's rows, the names of its lines, and what both hold from the beginning.
    pub(super) async fn new(
        store: &SeriesStore,
        query: &Query,
        limit: usize,
        bounds: Bounds,
    ) -> QueryResult<(Self, Vec<String>, Share)> {
        if let Kind::Names { metric } = &query.kind {
            let mut share = Share::new(store);
            let source =
                Self::names(store, metric.as_deref(), &query.tags, limit, &mut share).await?;
            return Ok((source, Vec::new(), share));
        }
        let plan = Plan::new(store, query, limit).await?;
        let (names, share) = (plan.names, plan.share);
        let parts = Parts { store, query, members: plan.members.into(), bounds };
        let source = match &query.kind {
            Kind::Select { filter, .. } => {
                Self::Values(parts.sequence(vec![What::Values(filter.clone())])?)
            }
            Kind::Events { pattern, .. } => {
                let pattern = pattern.clone().map(Arc::new);
                Self::Texts(parts.sequence(vec![What::Texts(pattern)])?)
            }
            Kind::Join { filters, .. } => Self::Points {
                rows: parts.sequence(filters.iter().cloned().map(What::Values).collect())?,
                filters: filters.clone(),
            },
            Kind::Group { funcs, step, filter, .. } => Self::Groups {
                rows: parts.sequence(vec![What::Buckets(*step)])?,
                funcs: funcs.clone(),
                filter: filter.clone(),
            },
            Kind::GroupJoin { metrics, func, step, filters } => Self::Joined {
                rows: parts.sequence(vec![What::Buckets(*step); metrics.len()])?,
                func: *func,
                filters: filters.clone(),
            },
            Kind::Aggregate { .. } | Kind::Names { .. } => Self::Aggregates {
                store: store.clone(),
                extent: Extent::new(query.range),
                members: parts.members,
                funcs: plan.funcs,
                origin: Origin::default(),
            },
        };
        Ok((source, names, share))
    }

    /// Names of series.
    async fn names(
        store: &SeriesStore,
        metric: Option<&str>,
        tags: &Where,
        limit: usize,
        share: &mut Share,
    ) -> QueryResult<Self> {
        let Some(metric) = metric else {
            return Ok(Self::All {
                store: store.clone(),
                tags: tags.clone(),
                least: 0,
                is_end: false,
            });
        };
        let found = plan::find(store, metric, tags, limit, share).await?;
        if found.len() > limit {
            let why = format!("more than {limit} series match; name more tags in `where`");
            return Err(QueryError::TooMany(why));
        }
        let names: Vec<Name> = found.into_iter().map(|found| found.name).collect();
        Ok(Self::Found(names.into_iter()))
    }

    /// Metrics, tags or values.
    pub(super) fn list(store: &SeriesStore, listing: Listing, prefix: String) -> Self {
        Self::List { store: store.clone(), listing, prefix, after: None, is_end: false }
    }

    /// Where what it gives comes from, as far as it has come.
    pub(super) fn origin(&self) -> Origin {
        match self {
            Self::Values(rows) | Self::Points { rows, .. } => rows.origin(),
            Self::Groups { rows, .. } | Self::Joined { rows, .. } => rows.origin(),
            Self::Aggregates { origin, .. } => *origin,
            Self::Texts(_) | Self::Found(_) | Self::All { .. } | Self::List { .. } => {
                Origin::default()
            }
        }
    }

    /// The next rows, which may be none; `None` at the end.
    pub(super) async fn next(&mut self) -> QueryResult<Option<Batch>> {
        match self {
            Self::Values(rows) => Ok(rows.next().await?.map(Batch::Values)),
            Self::Points { rows, filters } => {
                let rows = rows.next().await?;
                Ok(rows.map(|mut rows| {
                    keep_what_meets(&mut rows, filters);
                    Batch::Values(rows)
                }))
            }
            Self::Texts(rows) => Ok(rows.next().await?.map(Batch::Texts)),
            Self::Groups { rows, funcs, filter } => {
                let is_backward = rows.extent.is_backward();
                let rows = rows.next().await?;
                Ok(rows.map(|rows| Batch::Values(functions_of(&rows, funcs, filter, is_backward))))
            }
            Self::Joined { rows, func, filters } => {
                let is_backward = rows.extent.is_backward();
                let rows = rows.next().await?;
                Ok(rows
                    .map(|rows| Batch::Values(function_of_each(rows, *func, filters, is_backward))))
            }
            Self::Aggregates { store, extent, members, funcs, origin } => {
                if members.is_empty() {
                    return Ok(None);
                }
                let aggregates = aggregates(store, extent, members, funcs).await?;
                let Known { found, origin: more } = aggregates;
                *origin = origin.with(more);
                Ok(Some(Batch::Values(found)))
            }
            Self::Found(names) => {
                let names: Vec<String> = names.take(LINES).map(|name| name.to_string()).collect();
                Ok((!names.is_empty()).then_some(Batch::Names(names)))
            }
            Self::All { store, tags, least, is_end } => {
                if *is_end {
                    return Ok(None);
                }
                let (found, end) = store.page_of_all(*least).await?;
                *is_end = end;
                *least = found.last().map_or(*least, |last| last.id + 1);
                let names = found.into_iter().filter(|found| are_of(&found.name, tags));
                Ok(Some(Batch::Names(names.map(|found| found.name.to_string()).collect())))
            }
            Self::List { store, listing, prefix, after, is_end } => {
                if *is_end {
                    return Ok(None);
                }
                let found = store.list(listing, prefix, after.as_deref(), LINES).await?;
                *is_end = found.len() < LINES;
                *after = found.last().cloned();
                Ok(Some(Batch::Names(found)))
            }
        }
    }
}

/// What all kinds of rows of points need.
struct Parts<'a> {
    store: &'a SeriesStore,
    query: &'a Query,
    members: VecDeque<Member>,
    bounds: Bounds,
}

impl Parts<'_> {
    fn sequence<T: Item>(self, what: Vec<What>) -> QueryResult<Sequence<T>> {
        let mut sequence = Sequence {
            store: self.store.clone(),
            extent: Extent::new(self.query.range),
            what,
            order: self.query.order,
            bounds: self.bounds,
            waiting: self.members,
            merge: None,
            origin: Origin::default(),
        };
        if sequence.order == Order::Time {
            let members = std::mem::take(&mut sequence.waiting).into();
            let (extent, what) = (sequence.extent, &sequence.what);
            sequence.merge = Some(Merge::new(self.store, extent, members, what, self.bounds)?);
        }
        Ok(sequence)
    }
}

/// Whether a name has tags that the query wants, whose values and sets ascend.
fn are_of(name: &Name, tags: &Where) -> bool {
    match tags {
        Where::Tags(tags) => tags.iter().all(|(tag, values)| {
            name.tags().any(|(key, value)| {
                key == tag && values.binary_search_by(|v| (**v).cmp(value)).is_ok()
            })
        }),
        Where::Exact(sets) => {
            let order = |set: &Vec<(String, String)>| {
                set.iter().map(|(tag, value)| (tag.as_str(), value.as_str())).cmp(name.tags())
            };
            sets.binary_search_by(order).is_ok()
        }
    }
}

/// What a function says of a summary; first and last are as the query goes.
fn value_of(summary: &Summary, func: Func, is_backward: bool) -> Value {
    let (first, last) = match is_backward {
        false => (summary.first, summary.last),
        true => (summary.last, summary.first),
    };
    let none = Value::Float(f64::NAN);
    match func {
        Func::Min => summary.min.map_or(none, |point| point.value),
        Func::Max => summary.max.map_or(none, |point| point.value),
        Func::Sum => Value::Float(summary.sum),
        Func::Count => Value::Integer(summary.count as i64),
        Func::Mean => Value::Float(summary.mean()),
        Func::First => first.value,
        Func::Last => last.value,
        Func::MinTime => summary.min.map_or(none, |point| Value::Integer(point.time)),
        Func::MaxTime => summary.max.map_or(none, |point| Value::Integer(point.time)),
        Func::FirstTime => Value::Integer(first.time),
        Func::LastTime => Value::Integer(last.time),
    }
}

/// The time of the row in which a function's value stands.
fn time_of(summary: &Summary, func: Func, is_backward: bool) -> i64 {
    let (first, last) = match is_backward {
        false => (summary.first, summary.last),
        true => (summary.last, summary.first),
    };
    let point = match func {
        Func::Min | Func::MinTime => summary.min,
        Func::Max | Func::MaxTime => summary.max,
        Func::First | Func::FirstTime => Some(first),
        Func::Last | Func::LastTime => Some(last),
        _ => None,
    };
    point.map_or(summary.last.time, |point| point.time)
}

fn functions_of(
    rows: &Rows<Summary>,
    funcs: &[Func],
    filter: &RowFilter,
    is_backward: bool,
) -> Rows<Value> {
    let cells = rows.cells.iter().flatten();
    let cells = cells
        .flat_map(|summary| funcs.iter().map(|func| Some(value_of(summary, *func, is_backward))));
    let cells = cells.collect();
    let mut rows =
        Rows { lines: rows.lines.clone(), times: rows.times.clone(), width: funcs.len(), cells };
    if !filter.columns.is_empty() {
        rows.retain(|rows, row| {
            let cells = rows.row(row);
            let holds = |(column, filter): &(usize, ValueFilter)| {
                cells[*column].is_some_and(|value| filter.matches(value))
            };
            match filter.any {
                true => filter.columns.iter().any(holds),
                false => filter.columns.iter().all(holds),
            }
        });
    }
    rows
}

fn function_of_each(
    rows: Rows<Summary>,
    func: Func,
    filters: &[ValueFilter],
    is_backward: bool,
) -> Rows<Value> {
    let cell = |(place, cell): (usize, Option<Summary>)| {
        let value = value_of(&cell?, func, is_backward);
        let filter = &filters[place % rows.width];
        (filter.is_any() || filter.matches(value)).then_some(value)
    };
    let cells = rows.cells.into_iter().enumerate().map(cell).collect();
    let mut rows = Rows { lines: rows.lines, times: rows.times, width: rows.width, cells };
    keep_what_meets(&mut rows, filters);
    rows
}

/// Leaves out rows in which a column with a filter has no value: none was there, or none that meets
/// it. Those without any value, too.
fn keep_what_meets(rows: &mut Rows<Value>, filters: &[ValueFilter]) {
    rows.retain(|rows, row| {
        let cells = rows.row(row);
        let meets =
            cells.iter().zip(filters).all(|(cell, filter)| filter.is_any() || cell.is_some());
        meets && cells.iter().any(Option::is_some)
    });
}

/// Has owners elsewhere say what they know of the next series, if the first of them is to be asked
/// about: those of many lines at once.
async fn bring(
    store: &SeriesStore,
    extent: &Extent,
    members: &mut VecDeque<Member>,
) -> QueryResult<()> {
    if members.front().is_some_and(|first| store.is_to_be_brought(&first.found)) {
        let next = members.iter_mut().take(SERIES_AT_ONCE).map(|member| &mut member.found);
        store.bring(next, Span::new(extent.bounds)).await?;
    }
    Ok(())
}

/// The aggregates of some lines.
async fn aggregates(
    store: &SeriesStore,
    extent: &Extent,
    members: &mut VecDeque<Member>,
    funcs: &[Func],
) -> QueryResult<Known<Rows<Value>>> {
    let (mut rows, mut origin) = (Rows::new(1), Origin::default());
    for _ in 0..LINES {
        let Some(line) = members.front().map(|member| member.line) else { break };
        let mut sum: Option<Summary> = None;
        loop {
            bring(store, extent, members).await?;
            let Some(member) = members.pop_front_if(|member| member.line == line) else { break };
            let series = store.reading(&member.found);
            let summary = series.known_aggregate(Span::new(extent.bounds)).await?;
            origin = origin.with(summary.origin);
            sum = match (sum, summary.found) {
                (Some(sum), Some(summary)) => Some(together(&sum, &summary)),
                (sum, summary) => sum.or(summary),
            };
        }
        if let Some(summary) = sum {
            let func = funcs[line as usize];
            rows.lines.push(line);
            rows.times.push(time_of(&summary, func, extent.is_backward()));
            rows.cells.push(Some(value_of(&summary, func, extent.is_backward())));
        }
    }
    Ok(Known { found: rows, origin })
}
