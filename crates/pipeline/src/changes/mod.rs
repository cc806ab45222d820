//! Streams of changes: the log, filtered by ranges, for whoever wants to know what is committed.
//!
//! ```text
//!   rows in \xff/changes/ ──fold──▶ streams ──▶ consumers of this node's log: registered, popped, unregistered
//!   an entry is applied ──▶ waiting readers look
//!   reader ──▶ requests ──▶ one task ──▶ the log's entries from a version on, cut to the ranges
//! ```
//!
//! A stream is a row that a client wrote, so every replica knows it from the same version on,
//! wherever it got its rows from, and each holds back its own log for it. Whoever reads may ask any
//! node. A node may lack entries that others have: those before it was made of rows, those that it
//! let go of because the stream held back more than its bound. It says so, and others are asked.
//!
//! Always: a stream is known before its version can be read, so nothing committed after a
//! registration is missed; what a reader is given has been applied here, so it is never newer than
//! what it can read; versions come in order, each once and whole.
//! Read next: `rows.rs`, `keeper.rs`, then the task that reads: `../deliver.rs`.

mod keeper;
mod rows;

pub(crate) use rows::StreamRows;

use crate::batch_lock::lock;
use crate::failure::{NodeError, NodeResult};
use keeper::{Bound, Keeper};
use plinth_env::Signal;
use plinth_env::reply::{Promise, Reply, promise};
use plinth_log::{LogReader, LogView};
use plinth_types::changes::{PREFIX, PREFIX_END};
use plinth_types::{
    Bytes, Changes, ChangesRequest, KeyRange, KeySelector, KeySpace, LogPosition, MutationList,
    RangeRead, Version, printable, probe,
};
use rows::{Registered, Touched};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex};

/// What a stream may hold back at least, where it has no bound of its own.
const LEAST_BOUND: u64 = 64 << 20;
/// And what it may at most.
const MOST_BOUND: u64 = 16 << 30;
/// What it may where nobody knows how much is free.
const USUAL_BOUND: u64 = 1 << 30;
/// It may take this share of what is free.
const FREE_SHARE: u64 = 4;

/// A stream as this node has it.
struct Stream {
    name: Bytes,
    ranges: Arc<[KeyRange]>,
    registered: Version,
    acknowledged: Version,
    bound: Bound,
    /// The first version that this node can give, if it lacks earlier ones.
    kept_from: Version,
    /// Why this node can give nothing, if so.
    lost: Option<NodeError>,
}

/// What is shown of a stream.
pub(crate) struct ShownStream {
    pub name: Bytes,
    pub id: u64,
    pub registered: Version,
    pub acknowledged: Version,
    pub bound: u64,
    /// Bytes of the log that it holds back here.
    pub held: u64,
    pub lost: Option<NodeError>,
}

impl ShownStream {
    /// Versions that its consumer hasn't acknowledged, up to the newest one.
    pub fn lag(&self, newest: Version) -> Version {
        newest.saturating_sub(self.acknowledged).max(0)
    }
}

/// What somebody wants of a stream.
pub(crate) struct Request {
    pub request: ChangesRequest,
    pub promise: Promise<Changes>,
}

#[derive(Default)]
struct State {
    rows: StreamRows,
    streams: BTreeMap<u64, Stream>,
    requests: Vec<Request>,
    is_over: bool,
    /// Whether others may have what this node lacks.
    has_others: bool,
}

/// The streams of a node.
pub(crate) struct Streams {
    state: Mutex<State>,
    keeper: Keeper,
    /// Whether there is any stream.
    is_used: AtomicBool,
    /// Whether somebody waits for the next entry.
    is_awaited: AtomicBool,
    due: Signal,
}

impl Streams {
    /// Those of a node with these rows. Its log knows nothing of them before [`Streams::begin`].
    pub fn new(rows: StreamRows, log: Option<Arc<dyn LogView>>) -> Self {
        Self {
            state: Mutex::new(State { rows, ..State::default() }),
            keeper: Keeper::new(log),
            is_used: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
            due: Signal::new(),
        }
    }

    /// Has the log keep what the streams need that the rows speak of, from before anything of it
    /// may go. `newest` is up to where the rows are, `free` how much of the disk is.
    pub fn begin(&self, newest: Version, free: Option<u64>, has_others: bool) {
        let mut state = lock(&self.state);
        state.has_others = has_others;
        let registered = state.rows.registered();
        self.keeper.forget_others(&registered);
        for stream in registered {
            self.learn(&mut state, stream, newest, free);
        }
        self.is_used.store(!state.streams.is_empty(), Ordering::SeqCst);
    }

    /// An entry has been applied, and its version isn't shown to readers yet. `is_of_system`: it
    /// may change rows about streams; `free`: how much of the disk is.
    pub fn applied(
        &self,
        at: LogPosition,
        lists: &[&MutationList],
        is_of_system: bool,
        free: impl Fn() -> Option<u64>,
    ) {
        if self.is_used.load(Ordering::Relaxed) {
            self.keeper.keep(at, lists);
        }
        if !is_of_system {
            return;
        }
        let mut state = lock(&self.state);
        for touched in state.rows.fold_all(lists.iter().flat_map(|list| list.iter())) {
            match touched {
                Touched::Acknowledged(id, version) => self.acknowledge(&mut state, id, version),
                Touched::Streams => self.compare(&mut state, at.version, free()),
            }
        }
        self.is_used.store(!state.streams.is_empty(), Ordering::SeqCst);
    }

    /// Its version is shown to readers.
    pub fn reached(&self) {
        if !self.is_used.load(Ordering::Relaxed) {
            return;
        }
        // Either a reader that is about to wait sees the version, or this sees that it waits.
        fence(Ordering::SeqCst);
        if self.is_awaited.load(Ordering::Relaxed) {
            self.due.notify();
        }
    }

    /// Leaves a request with the task.
    pub fn ask(&self, request: ChangesRequest) -> Reply<Changes> {
        let (promise, reply) = promise();
        let mut state = lock(&self.state);
        if state.is_over {
            return Reply::ready(Err(over().into()));
        }
        state.requests.push(Request { request, promise });
        drop(state);
        self.due.notify();
        reply
    }

    /// Has the task look: at a node that closes, say.
    pub fn look(&self) {
        self.due.notify();
    }

    /// All of them, in the order of their ids.
    pub fn shown(&self) -> Vec<ShownStream> {
        let state = lock(&self.state);
        let shown = |(id, stream): (&u64, &Stream)| {
            let Stream { name, registered, acknowledged, bound, lost, .. } = stream;
            // Its reader may not have come since it was lost.
            let (held, lost) = match (lost, self.keeper.held_bytes(*id)) {
                (Some(lost), _) => (0, Some(lost.clone())),
                (None, Ok(held)) => (held, None),
                (None, Err(error)) => (0, Some(error.into()).filter(NodeError::is_gone)),
            };
            let name = name.clone();
            ShownStream {
                name,
                id: *id,
                registered: *registered,
                acknowledged: *acknowledged,
                bound: bound.bytes(),
                held,
                lost,
            }
        };
        state.streams.iter().map(shown).collect()
    }

    /// The disk is full: the stream that holds back most of what nobody else needs loses it. Says
    /// whether there was one: what it held back takes a while to go.
    pub fn give_way(&self) -> bool {
        let mut state = lock(&self.state);
        let held = |(id, stream): (&u64, &Stream)| {
            let held = if stream.lost.is_none() { self.keeper.holds_back(*id) } else { 0 };
            (held > 0).then_some((held, *id))
        };
        let Some((_, id)) = state.streams.iter().filter_map(held).max() else { return false };
        let Some(stream) = state.streams.get_mut(&id) else { return false };
        probe!("pipeline: a stream gives way on a full disk");
        self.keeper.unregister(id);
        tell_lost(&stream.name, "the disk is full");
        let why = "the disk was full, and the stream held back more of the log than anybody else";
        stream.lost = Some(NodeError::Gone(why.into()));
        true
    }

    /// What the task needs: the requests that were left.
    pub fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut lock(&self.state).requests)
    }

    /// Whether the task is to be woken by the next entry that is applied.
    pub fn await_entries(&self, is_awaited: bool) {
        self.is_awaited.store(is_awaited, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Waits until there is something to look at.
    pub async fn until_due(&self) {
        self.due.wait().await;
    }

    /// Panics if what must hold between two entries doesn't.
    pub fn check_invariants(&self) {
        let state = lock(&self.state);
        let is_used = self.is_used.load(Ordering::SeqCst);
        assert_eq!(is_used, !state.streams.is_empty(), "streams are kept for if there are any");
        assert!(
            !state.is_over || state.requests.is_empty(),
            "somebody waits for a task that ended"
        );
        if is_used {
            let registered = state.rows.registered();
            assert_eq!(registered.len(), state.streams.len(), "streams are those of the rows");
            for Registered { row, acknowledged, .. } in registered {
                let known = state.streams.get(&row.id).map(|known| known.acknowledged);
                assert!(known >= Some(acknowledged), "what was acknowledged of {}", row.id);
            }
        }
        for (id, stream) in &state.streams {
            let Stream { registered, acknowledged, .. } = stream;
            assert!(registered <= acknowledged, "stream {id} goes back to before its beginning");
            assert!(stream.bound.bytes() > 0, "stream {id} may hold nothing back");
        }
    }

    /// Whether there is any stream.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// The task ends: nobody is answered any longer. Gives the requests that were left.
    pub fn end(&self) -> Vec<Request> {
        let mut state = lock(&self.state);
        state.is_over = true;
        std::mem::take(&mut state.requests)
    }

    /// Reads the log for a stream.
    ///
    /// # Errors
    /// `Log` if it has lost what it held back.
    pub fn reader(&self, id: u64, from: Version) -> NodeResult<Box<dyn LogReader>> {
        Ok(self.keeper.reader(id, from)?)
    }

    /// The ranges of a stream, if this node can give what is asked for.
    ///
    /// # Errors
    /// `Misused` if there is no such stream; `Gone` or `Lacking`, saying why, if it can't.
    pub fn ranges_of(&self, request: &ChangesRequest) -> NodeResult<Arc<[KeyRange]>> {
        let state = lock(&self.state);
        let Some(stream) = state.streams.get(&request.stream) else {
            let detail = format!(
                "no stream has the id {}: it was removed, or never registered",
                request.stream
            );
            return Err(NodeError::Misused(detail.into()));
        };
        let (name, from) = (printable(&stream.name), request.from);
        if from <= stream.acknowledged {
            let detail = format!(
                "stream {name}: changes from version {from} on were asked for, those up to {} have been acknowledged",
                stream.acknowledged
            );
            return Err(NodeError::Gone(detail.into()));
        }
        if let Some(lost) = &stream.lost {
            return Err(lost_changes(&stream.name, lost));
        }
        if from < stream.kept_from {
            let detail = format!(
                "stream {name}: this node has changes from version {} on, those from {from} on were asked for",
                stream.kept_from
            );
            return Err(NodeError::Lacking(detail.into()));
        }
        Ok(stream.ranges.clone())
    }

    /// Reading for a stream has failed. If it has lost what it held back, that is noted, and said.
    pub fn failed(&self, id: u64, error: NodeError) -> NodeError {
        if !error.is_gone() {
            return error;
        }
        let mut state = lock(&self.state);
        let Some(stream) = state.streams.get_mut(&id) else { return error };
        // An acknowledgement may have brought it back meanwhile.
        if stream.lost.is_none() && self.keeper.pop(id, stream.acknowledged).is_err() {
            probe!("pipeline: a stream has lost what it held back");
            tell_lost(&stream.name, &error.to_string());
            stream.lost = Some(error.clone());
        }
        lost_changes(&stream.name, &error)
    }

    /// Rows of streams have changed at this version: compares those that are with those that are
    /// known.
    fn compare(&self, state: &mut State, version: Version, free: Option<u64>) {
        let registered = state.rows.registered();
        let gone: Vec<_> = state
            .streams
            .keys()
            .filter(|id| !registered.iter().any(|stream| stream.row.id == **id))
            .copied()
            .collect();
        for id in gone {
            state.streams.remove(&id);
            self.keeper.unregister(id);
        }
        for stream in registered {
            if !state.streams.contains_key(&stream.row.id) {
                self.learn(state, stream, version, free);
            } else {
                self.acknowledge(state, stream.row.id, stream.acknowledged);
            }
        }
        // Whoever waits for one that is gone is to be told.
        self.due.notify();
    }

    /// A stream that wasn't known. Everything up to `newest` has been applied.
    fn learn(&self, state: &mut State, stream: Registered, newest: Version, free: Option<u64>) {
        let Registered { name, row, acknowledged } = stream;
        let bound =
            if row.bound == 0 { Bound::Usual(usual_bound(free)) } else { Bound::Own(row.bound) };
        let mut learned = Stream {
            name,
            ranges: row.ranges.into(),
            registered: row.registered,
            acknowledged,
            bound,
            kept_from: acknowledged + 1,
            lost: None,
        };
        let kept = self.keeper.register(row.id, acknowledged + 1, bound).or_else(|error| {
            // What comes from now on it has, which others may lack one day.
            let from_now_on = newest.max(acknowledged) + 1;
            let others = if state.has_others { Ok(()) } else { Err(error) };
            others.and_then(|()| self.keeper.register(row.id, from_now_on, bound))
        });
        match kept {
            Ok((first, bound)) if first == acknowledged + 1 || state.has_others => {
                (learned.kept_from, learned.bound) = (first, bound);
            }
            Ok((first, _)) => {
                learned.lost =
                    Some(NodeError::Gone(format!("changes before version {first} are gone").into()))
            }
            Err(error) => learned.lost = Some(error.into()),
        }
        if let Some(error) = &learned.lost {
            self.keeper.unregister(row.id);
            tell_lost(&learned.name, &error.to_string());
        }
        state.streams.insert(row.id, learned);
    }

    fn acknowledge(&self, state: &mut State, id: u64, version: Version) {
        let Some(stream) = state.streams.get_mut(&id) else { return };
        if version <= stream.acknowledged {
            return;
        }
        stream.acknowledged = version;
        if stream.lost.is_none() && self.keeper.pop(id, version).is_ok() {
            return;
        }
        // It has lost entries that nobody needs any longer, or some that come later too.
        self.keeper.unregister(id);
        match self.keeper.register(id, version + 1, stream.bound) {
            Ok((first, _)) => (stream.lost, stream.kept_from) = (None, first),
            Err(error) => stream.lost = Some(error.into()),
        }
    }
}

/// What a stream without a bound of its own may hold back where so much of the disk is free.
fn usual_bound(free: Option<u64>) -> u64 {
    free.map_or(USUAL_BOUND, |free| (free / FREE_SHARE).clamp(LEAST_BOUND, MOST_BOUND))
}

/// Tells those who run the database.
fn tell_lost(name: &[u8], why: &str) {
    tracing::warn!(stream = %printable(name), why, "a stream of changes has lost what its consumer did not take in time");
}

/// What somebody is told who asks a node that closes.
pub(crate) fn over() -> NodeError {
    NodeError::Closed(Some("the database is being closed".into()))
}

/// The rows about streams, as storage has them.
pub(crate) async fn read_rows(
    storage: &dyn plinth_storage::Reader,
    version: Version,
) -> NodeResult<StreamRows> {
    let mut rows = StreamRows::default();
    let mut begin = Bytes::from_static(PREFIX);
    loop {
        let read = RangeRead {
            begin: KeySelector::first_greater_or_equal(begin),
            end: KeySelector::first_greater_or_equal(Bytes::from_static(PREFIX_END)),
            limit: usize::MAX,
            target_bytes: 1 << 20,
            reverse: false,
        };
        let result = storage.get_range(version, KeySpace::System, &read).await?;
        result.rows.iter().for_each(|(key, value)| rows.set(key, value));
        let last = result.rows.iter().last().map(|(key, _)| plinth_types::key_after(key));
        match last.filter(|_| result.more) {
            Some(next) => begin = next,
            None => return Ok(rows),
        }
    }
}

fn lost_changes(name: &[u8], why: &NodeError) -> NodeError {
    let why = why.summary();
    let name = printable(name);
    let what = format!(
        "stream {name} has lost changes that its consumer has not acknowledged: {why}; remove it, copy what it \
         covers anew, and register it again"
    );
    NodeError::Gone(what.into())
}
