//! What is read of one series, block by block in the order of the query: values, summaries of
//! buckets, or texts.
//!
//! A cursor reads nothing before its first block is wanted, and holds one block. Backward blocks
//! are turned around here, so that all above has one order, that of the query.

use super::error::QueryResult;
use super::filter::ValueFilter;
use super::range::Range;
use crate::event::Events;
use crate::store::{Found, GroupStream, Origin, PointStream, SeriesStore};
use crate::tree::{Direction, Summary};
use crate::value::{Points, Value};
use std::ops::Bound;
use std::sync::Arc;

/// Buckets of a block at most.
const BUCKETS: usize = 512;

/// Times and what belongs to them, in the order of the query.
#[derive(Clone, Debug)]
pub(crate) struct Block<T> {
    pub(crate) times: Vec<i64>,
    pub(crate) items: Vec<T>,
}

impl<T> Default for Block<T> {
    fn default() -> Self {
        Self { times: Vec::new(), items: Vec::new() }
    }
}

/// The span of a query, and which way it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) bounds: (Bound<i64>, Bound<i64>),
    pub(crate) direction: Direction,
}

impl Extent {
    pub(crate) fn new(range: Option<Range>) -> Self {
        let Some(Range { from, to }) = range else {
            return Self {
                bounds: (Bound::Unbounded, Bound::Unbounded),
                direction: Direction::Forward,
            };
        };
        if from > to {
            let bounds = (Bound::Excluded(to), Bound::Included(from));
            return Self { bounds, direction: Direction::Backward };
        }
        Self { bounds: (Bound::Included(from), Bound::Excluded(to)), direction: Direction::Forward }
    }

    pub(crate) fn is_backward(&self) -> bool {
        self.direction == Direction::Backward
    }

    /// A time as a number that ascends in the order of the query.
    pub(crate) fn rank(&self, time: i64) -> i64 {
        if self.is_backward() { !time } else { time }
    }

    /// The same for a line: of rows of one time the last line comes first, if the newest rows do.
    pub(crate) fn rank_of_line(&self, line: u32) -> u32 {
        if self.is_backward() { !line } else { line }
    }
}

/// What a cursor reads of its series.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Values(ValueFilter),
    Buckets(u64),
    Texts(Option<Arc<regex_lite::Regex>>),
}

/// Something that can be read of a series.
pub(crate) trait Item: Sized + Clone + Send {
    type Stream: Send;

    async fn open(
        store: &SeriesStore,
        found: &Found,
        what: &What,
        extent: &Extent,
    ) -> QueryResult<Self::Stream>;

    /// The next block, which is not empty.
    async fn next(stream: &mut Self::Stream, extent: &Extent) -> QueryResult<Option<Block<Self>>>;

    /// How many points the stream itself holds.
    fn points_held(stream: &Self::Stream) -> usize;

    /// Where they come from, before any was asked for.
    fn origin(_: &Self::Stream) -> Origin {
        Origin::default()
    }

    /// Bytes that the items of a block take besides themselves.
    fn bytes_beside(_: &Block<Self>) -> usize {
        0
    }

    /// Both, of the same time; `None` if they stay apart.
    fn fold(&mut self, other: &Self) -> bool;
}

/// The points of a series that a filter lets through.
pub(crate) struct ValueStream {
    points: PointStream,
    filter: ValueFilter,
}

impl Item for Value {
    type Stream = ValueStream;

    async fn open(
        store: &SeriesStore,
        found: &Found,
        what: &What,
        extent: &Extent,
    ) -> QueryResult<ValueStream> {
        let filter = match what {
            What::Values(filter) => filter.clone(),
            _ => ValueFilter::default(),
        };
        let points = store.reading(found).scan(extent.bounds, extent.direction).await?;
        Ok(ValueStream { points, filter })
    }

    async fn next(stream: &mut ValueStream, extent: &Extent) -> QueryResult<Option<Block<Self>>> {
        let filter = &stream.filter;
        loop {
            let points = match filter.is_any() {
                true => stream.points.next().await?,
                false => stream.points.next_needed(|summary| filter.may_match(summary)).await?,
            };
            let Some(points) = points else { return Ok(None) };
            let block = in_order(points, extent, filter);
            if !block.times.is_empty() {
                return Ok(Some(block));
            }
        }
    }

    fn points_held(stream: &ValueStream) -> usize {
        stream.points.points_held()
    }

    fn origin(stream: &ValueStream) -> Origin {
        stream.points.origin()
    }

    fn fold(&mut self, _: &Self) -> bool {
        false
    }
}

fn in_order(points: Points, extent: &Extent, filter: &ValueFilter) -> Block<Value> {
    let mut block = Block { items: points.values.into_values(), times: points.times };
    if extent.is_backward() {
        block.times.reverse();
        block.items.reverse();
    }
    if filter.is_any() {
        return block;
    }
    let mut kept = 0;
    for place in 0..block.items.len() {
        if filter.matches(block.items[place]) {
            block.items[kept] = block.items[place];
            block.times[kept] = block.times[place];
            kept += 1;
        }
    }
    block.items.truncate(kept);
    block.times.truncate(kept);
    block
}

impl Item for Summary {
    type Stream = GroupStream;

    async fn open(
        store: &SeriesStore,
        found: &Found,
        what: &What,
        extent: &Extent,
    ) -> QueryResult<GroupStream> {
        let step = match what {
            What::Buckets(step) => *step,
            _ => 1,
        };
        let series = store.reading(found);
        Ok(match extent.direction {
            Direction::Forward => series.group_aggregate(extent.bounds, step).await?,
            Direction::Backward => series.group_aggregate_backward(extent.bounds, step).await?,
        })
    }

    async fn next(stream: &mut GroupStream, _: &Extent) -> QueryResult<Option<Block<Self>>> {
        let mut block = Block::default();
        while block.times.len() < BUCKETS {
            let Some((time, summary)) = stream.next().await? else { break };
            block.times.push(time);
            block.items.push(summary);
        }
        Ok((!block.times.is_empty()).then_some(block))
    }

    fn points_held(stream: &GroupStream) -> usize {
        stream.points_held()
    }

    fn origin(stream: &GroupStream) -> Origin {
        stream.origin()
    }

    fn fold(&mut self, other: &Self) -> bool {
        *self = together(self, other);
        true
    }
}

/// The summary of the points of both, whichever came first. Of points at one time those of `a`
/// count as earlier.
pub(crate) fn together(a: &Summary, b: &Summary) -> Summary {
    use std::cmp::Ordering;
    let better = |a: Option<crate::Point>, b: Option<crate::Point>, worse: Ordering| match (a, b) {
        (Some(x), Some(y)) => match x.value.compare(y.value) {
            Some(Ordering::Equal) if y.time < x.time => b,
            Some(ordering) if ordering == worse => b,
            _ => a,
        },
        (a, b) => a.or(b),
    };
    Summary {
        count: a.count + b.count,
        numbers: a.numbers + b.numbers,
        sum: a.sum + b.sum,
        first: if b.first.time < a.first.time { b.first } else { a.first },
        last: if b.last.time >= a.last.time { b.last } else { a.last },
        min: better(a.min, b.min, Ordering::Greater),
        max: better(a.max, b.max, Ordering::Less),
    }
}

/// The texts of a series of events.
pub(crate) struct TextStream {
    points: PointStream,
    pattern: Option<Arc<regex_lite::Regex>>,
    events: Events,
    /// Points of a text whose beginning lies in the next block, backward.
    carried: Points,
    ended: bool,
}

/// The text of an event.
pub(crate) type Text = Arc<[u8]>;

/// Below it lies the time of an event's points.
const MICROSECOND: i64 = 1000;

impl Item for Text {
    type Stream = TextStream;

    async fn open(
        store: &SeriesStore,
        found: &Found,
        what: &What,
        extent: &Extent,
    ) -> QueryResult<TextStream> {
        let pattern = match what {
            What::Texts(pattern) => pattern.clone(),
            _ => None,
        };
        // An event's points lie in the microsecond of its time, from its beginning on.
        let whole = |time: i64| time.saturating_sub(time.rem_euclid(MICROSECOND));
        let first = match extent.bounds.0 {
            Bound::Included(time) => Bound::Included(whole(time)),
            Bound::Excluded(time) => Bound::Included(whole(time.saturating_add(1))),
            Bound::Unbounded => Bound::Unbounded,
        };
        let last = match extent.bounds.1 {
            Bound::Included(time) | Bound::Excluded(time) => {
                Bound::Excluded(whole(time).saturating_add(MICROSECOND))
            }
            Bound::Unbounded => Bound::Unbounded,
        };
        let points = store.reading(found).scan((first, last), extent.direction).await?;
        Ok(TextStream {
            points,
            pattern,
            events: Events::default(),
            carried: Points::default(),
            ended: false,
        })
    }

    async fn next(stream: &mut TextStream, extent: &Extent) -> QueryResult<Option<Block<Self>>> {
        use std::ops::RangeBounds;
        while !stream.ended {
            let mut points = match stream.points.next().await? {
                Some(points) => points,
                None => {
                    stream.ended = true;
                    Points::default()
                }
            };
            if extent.is_backward() {
                stream.carried.iter().for_each(|point| points.push(point));
                stream.carried = Points::default();
                let head = points.times.first().map_or(0, |first| {
                    let next = first
                        .saturating_sub(first.rem_euclid(MICROSECOND))
                        .saturating_add(MICROSECOND);
                    points.times.partition_point(|time| *time < next)
                });
                if !stream.ended {
                    let rest = points.split_off(head);
                    stream.carried = std::mem::replace(&mut points, rest);
                }
                stream.events = Events::default();
            }
            let found = points.iter().filter_map(|point| stream.events.push(point));
            let mut found: Vec<(i64, Vec<u8>)> = found.collect();
            if extent.is_backward() {
                found.reverse();
            }
            let pattern = stream.pattern.as_deref();
            let keeps =
                |text: &[u8]| pattern.is_none_or(|p| p.is_match(&String::from_utf8_lossy(text)));
            found.retain(|(time, text)| extent.bounds.contains(time) && keeps(text));
            if pattern.is_some() {
                // A pattern may take long for each text; others of the thread go first, and whoever
                // has gone away is noticed.
                super::pause().await;
            }
            if !found.is_empty() {
                let (times, texts): (Vec<i64>, Vec<Vec<u8>>) = found.into_iter().unzip();
                return Ok(Some(Block {
                    times,
                    items: texts.into_iter().map(Arc::from).collect(),
                }));
            }
        }
        Ok(None)
    }

    fn points_held(stream: &TextStream) -> usize {
        stream.points.points_held() + stream.carried.len()
    }

    fn bytes_beside(block: &Block<Self>) -> usize {
        block.items.iter().map(|text| text.len()).sum()
    }

    fn fold(&mut self, _: &Self) -> bool {
        false
    }
}
