//! Series in a database: who writes them, what of them is in memory, and how it becomes durable.
//!
//! ```text
//!   append(time, value)                            sync, or every few milliseconds: one commit for all series
//!      |                                               |
//!      +->  points of all series, as they came  -------+   points that came       -> a batch of the tail
//!      +->  open leaf of the series, in memory  -------+   a leaf that is full,   -> a node of the tree, in place of its part of the tail
//!      |                                               |   or whose series rests
//!      +->  late: older than what is sealed     -------+   late points            -> leaves beside the tree
//!                                                      |   batches of the tail that nothing needs any more go
//! ```
//!
//! Only the owner writes: opening the series draws a number, and each of its commits has the key of
//! that number among its read conflicts, so whoever owned them before can't commit any more. After
//! a crash the tail has what was in the open leaves. A point is looked for in three places: tree,
//! late points, memory; `merged.rs` makes one of them.
//!
//! All of this is about one part. A place may be divided into several, each with an owner of its
//! own (`division.rs`); a store puts parts together (`parts.rs`), also such that others own
//! (`foreign.rs`).

mod adding;
mod aside;
mod back;
mod beside;
mod budget;
mod by_time;
mod candidate;
mod clock;
mod damage;
mod division;
mod ended;
mod fault;
mod flush;
mod foreign;
mod found;
mod histograms;
mod inbox;
mod increments;
mod invariants;
mod kept;
mod keys;
mod label_values;
mod late;
mod layer;
mod lease;
mod letter;
mod limits;
mod mask;
mod members;
mod merged;
mod names;
mod neighbours;
mod nodes;
mod open;
mod origin;
mod parts;
mod pending;
mod place;
mod plot;
mod post;
mod query;
mod raw;
mod record_mail;
mod record_rows;
mod records;
mod recover;
mod remove;
mod rest;
mod retention;
mod retry;
mod roll;
mod roll_invariants;
mod rolled;
mod rolling;
mod rolls;
mod search;
mod side;
mod tail;
mod turn;
mod written;

pub(crate) use adding::Adding;
pub use beside::Beside;
pub(crate) use beside::too_many;
pub(crate) use budget::Share;
pub use candidate::{Candidate, Look};
pub use division::Division;
pub(crate) use foreign::SERIES_AT_ONCE;
pub use foreign::{Owner, Told};
pub(crate) use found::Found;
pub use histograms::HistogramStream;
pub use keys::Listing;
pub use layer::{Appended, SeriesLayer};
pub use lease::{Claim, Holder};
pub(crate) use limits::Admitted;
pub use limits::{Newcomers, SeriesLimits};
pub use members::{Live, Members};
pub(crate) use origin::Origin;
pub use place::MAX_PARTS;
pub(crate) use query::Known;
pub use query::{GroupStream, PointStream};
pub(crate) use records::Mail;
pub use retention::Retention;
pub(crate) use rolled::{Fit, Parts, Read};
pub use rolls::Progress;
pub use search::StoreStats;

use crate::codec::MAX_LEAF_POINTS;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::tree::Trunk;
use crate::value::{Point, Points, Value};
use flush::Flusher;
use keys::{Id, Keys};
use lease::Token;
use names::Index;
use pending::Pending;
use plinth_client::{Database, Transaction};
use plinth_env::prefetch_lines;
use plinth_types::MetricSet;
use plot::{Plot, Whole};
use rest::Seen;
use rolls::Rolls;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use turn::Turns;

/// How series are kept.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What all keys begin with, in place of what is usual in the database: a place of their own
    /// among the system's keys, or, on a FoundationDB, the tuple `("plinth.series",)`.
    pub prefix: Option<Vec<u8>>,
    /// Into how many parts a place is divided that is made; a power of two, at most [`MAX_PARTS`].
    /// One that is there stays as it is. What is said here of tail, open points, inbox and unsaved
    /// points is divided among them.
    pub parts: usize,
    /// Points of a full leaf, at most 65536; fewer where those don't fit a value of the database.
    pub leaf_points: usize,
    /// Bytes of the tail beyond which the oldest open leaves are sealed although they are not full:
    /// some in each commit, so that it may be half as long again.
    pub tail_bytes: usize,
    /// Points in open leaves beyond which the oldest are sealed although they are not full, in the
    /// same way. Each takes 16 bytes.
    pub open_points: usize,
    /// Bytes of points that transactions may have waiting in the inbox, about: whoever writes more
    /// is told to try again until the owner has taken some in.
    pub inbox_bytes: usize,
    /// Bytes that all queries together may hold, about: one that would hold more is told that it is
    /// too much at a time.
    pub query_bytes: usize,
    /// Points that may wait to be saved: whoever appends more is told that the store is behind.
    /// Each takes 32 bytes meanwhile.
    pub unsaved_points: usize,
    /// How often what was appended is committed; `None` for only when `sync` asks for it.
    pub commit_every: Option<Duration>,
    /// How long a series has to be without new points for those in its open leaf to be sealed
    /// although it is not full, if they are an eighth of a full leaf or more: this long and, where
    /// its points are further apart, sixteen times as long as between two of them; up to half as
    /// long again, since it is looked for now and then. `None` for never, and never where nothing
    /// is committed unless `sync` asks for it; then a few points in open leaves keep the tail
    /// behind them too, up to its bytes.
    pub seal_after: Option<Duration>,
    /// How many series there may be, and how much they may take.
    pub limits: SeriesLimits,
}

/// How many series ahead the memory of one is asked for, and that of its last points: where they
/// are is known only when the first has come.
const PREFETCH_SERIES: usize = 12;
const PREFETCH_POINTS: usize = 4;

/// Cache lines that have what an append needs of a series, wherever in a line it begins: its lock,
/// the open leaf, what is sealed, what is noted.
const HOT_LINES: usize = (std::mem::offset_of!(State, trunk) + 16 + 63).div_ceil(64);

/// Points in the open leaf of one series: as many as a full leaf may have.
const MAX_OPEN: usize = MAX_LEAF_POINTS;

impl Default for Settings {
    fn default() -> Self {
        Self {
            prefix: None,
            parts: 1,
            leaf_points: 2048,
            tail_bytes: 256 << 20,
            open_points: 32 << 20,
            inbox_bytes: 64 << 20,
            query_bytes: 1 << 30,
            unsaved_points: 4 << 20,
            commit_every: Some(Duration::from_millis(5)),
            seal_after: Some(Duration::from_secs(60)),
            limits: SeriesLimits::default(),
        }
    }
}

/// The series of a database, owned for writing. Clones are the same. Dropping it saves nothing:
/// [`SeriesStore::sync`] does.
///
/// ```
/// # async fn example(db: plinth_client::Database) -> plinth_series::Result<()> {
/// use plinth_series::{Direction, SeriesStore};
/// let store = SeriesStore::open(&db).await?;
/// let load = store.series("cpu.load host=a").await?;
/// for (time, value) in [(1_000, 0.5), (2_000, 0.75), (3_000, 1.25)] {
///     load.append(time, value)?;
/// }
/// store.sync().await?; // now they survive a crash
/// let summary = load.aggregate(..).await?;
/// assert_eq!(summary.map(|summary| (summary.count, summary.sum)), Some((3, 2.5)));
/// let mut points = load.scan(1_500.., Direction::Forward).await?;
/// while let Some(points) = points.next().await? {
///     assert_eq!(points.times, [2_000, 3_000]);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct SeriesStore {
    /// By number: all into which the place is divided, or some.
    parts: Arc<[Part]>,
    /// Of which metrics there are series for whoever uses it; `None` for all.
    sight: Option<Arc<MetricSet>>,
}

/// A part of the series, or all of them where they are not divided.
struct Part {
    shared: Arc<Shared>,
}

/// What all series of a part share.
struct Shared {
    database: Database,
    keys: Keys,
    /// Which part it is, and what it shares with the others.
    of: PartOf,
    settings: Settings,
    role: Role,
    index: Index,
    pending: Pending,
    open_points: AtomicUsize,
    /// Held by whoever saves.
    turn: Turns,
    flusher: Mutex<Flusher>,
    rolls: Rolls,
    /// Why nothing can be written any more.
    failure: OnceLock<Error>,
}

/// Which part of what.
struct PartOf {
    number: usize,
    whole: Arc<Whole>,
}

/// What a store may do with the series.
enum Role {
    /// They are its own, as long as this is what the owner's key has; with a lease, whose secret is
    /// known to whoever reads the database.
    Owner { token: Token, lease: Option<[u8; 16]> },
    /// It reads them.
    Reader,
    /// It takes points, and passes them on to whoever owns the series; and reads them, if there is
    /// a way to ask him.
    Poster(Option<Arc<dyn Owner>>),
}

/// One series. What each append needs comes first: see [`HOT_LINES`].
#[repr(C)]
struct Cell {
    id: Id,
    state: Mutex<State>,
    name: Name,
}

/// What of a series is in memory, in the order in which it is needed.
#[derive(Default)]
#[repr(C)]
struct State {
    /// The points behind those that are sealed.
    open: Points,
    /// The time of the newest point that is sealed, or on its way to be.
    sealed: Option<i64>,
    /// The oldest batch of the tail that has points of `open`, of those that a flush has made.
    since: Option<u64>,
    /// Whether it is among the series that the next flush has to look at.
    is_noted: bool,
    /// Whether no leaf lies behind the tree: nobody has looked for one who only opened the series.
    is_end_known: bool,
    standing: Standing,
    /// The tree, as far as it is committed.
    trunk: Trunk,
    /// Leaves that are being written.
    sealing: Vec<Arc<Points>>,
    /// Points before `sealed`, in the order in which they came; and those of them that are being
    /// written.
    late: Vec<Point>,
    merging: Vec<Point>,
    seen: Seen,
}

/// What may be done with a series.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Standing {
    /// Its tree is known: points may be appended.
    #[default]
    Known,
    /// It was found by a search, and what there is of it in the database is all that is known.
    Found,
    /// It was deleted.
    Gone,
    /// A row of it is not what was written: nothing is put behind it.
    Damaged,
}

/// Where a point went.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Into the open leaf, which has one more.
    More,
    /// Into the open leaf, in place of one of the same time.
    Instead,
    /// To those that are older than what is sealed.
    Late,
}

/// A series, to write to and to read. Clones are the same; it may be used from any thread.
#[derive(Clone)]
pub struct Series {
    shared: Arc<Shared>,
    cell: Arc<Cell>,
    /// Whether the inbox was looked into for whatever reads it: a query, which does so once for all
    /// of its series.
    is_looked_up: bool,
}

/// Locks what nobody panics under.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SeriesStore {
    /// Takes the series of a database over, with the default settings. Whoever had them before can
    /// neither write nor read any more.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the tail is; [`Error::Database`].
    pub async fn open(database: &Database) -> Result<Self> {
        Self::open_with(database, Settings::default()).await
    }

    /// [`SeriesStore::open`] with settings of one's own.
    ///
    /// # Errors
    /// As [`SeriesStore::open`].
    pub async fn open_with(database: &Database, settings: Settings) -> Result<Self> {
        Division::of(database, settings).await?.open().await
    }

    /// Points go through this store to whoever owns the series, who may be somebody else at any
    /// time: they are committed to the inbox, as those of transactions are ([`SeriesLayer`]), many
    /// in one commit, and names within [`Settings::limits`]. What [`SeriesStore::sync`] covered is
    /// there, whatever becomes of the owner. Nothing can be read here. While more waits for the
    /// owner than [`Settings::inbox_bytes`] `sync` waits for him.
    ///
    /// # Errors
    /// As [`Division::of`], which finds out what there is to post to.
    pub async fn post(database: &Database, settings: Settings) -> Result<Self> {
        Ok(Division::of(database, settings).await?.post())
    }

    /// [`SeriesStore::post`] where it is known that the series are not divided: it reads nothing
    /// now. If somebody divides a place that wasn't there yet, or was cleared, nothing is
    /// committed: `sync` gives [`Error::NotOwner`].
    pub fn post_undivided(database: &Database, settings: Settings) -> Self {
        Self::of_one(open::post(&Plot::only(database, settings), None))
    }

    /// The series of this name, which is made if there is none.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::NotOwner`], [`Error::Database`]; [`Error::TooMany`] if there may
    /// be no more ([`SeriesLimits`]); [`Error::Damaged`] if this series is.
    pub async fn series(&self, name: &str) -> Result<Series> {
        let mut series = self.all_series(&[name]).await?;
        series
            .pop()
            .ok_or_else(|| Error::damaged("the index of series", "a series is missing in it"))
    }

    /// The series of these names, in their order; those that there aren't are made. Many at a time
    /// cost less each.
    ///
    /// # Errors
    /// As [`SeriesStore::series`]: of the first that can't be had. The others are made.
    pub async fn all_series(&self, names: &[&str]) -> Result<Vec<Series>> {
        self.each_series(names).await?.into_iter().collect()
    }

    /// The same, with what is wrong with some of them beside the others: [`Error::Name`],
    /// [`Error::TooMany`], [`Error::Damaged`].
    ///
    /// # Errors
    /// What is wrong with all of them: [`Error::NotOwner`], [`Error::Database`].
    pub async fn each_series(&self, names: &[&str]) -> Result<Vec<Result<Series>>> {
        Ok(self.admit(names, None).await?.series)
    }

    /// Opens the series of a database to be read, whoever owns them: as they are now, what waits in
    /// the inbox included. What is written later is seen in part, so a view is for one use.
    /// Whatever writes gives [`Error::ReadOnly`]. A series that is in the inbox alone is found by
    /// its whole name, and not by its tags. While the owner takes in what waits there, and that is
    /// much, this waits: what is left of it is in memory.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Database`]; [`Error::TooMany`] if more waits in the inbox than
    /// there may be in memory.
    pub async fn view(database: &Database, settings: Settings) -> Result<Self> {
        Division::as_it_is(database, settings).await?.view().await
    }

    /// The names of all series of a metric that have, for each of `tags`, one of its values.
    ///
    /// # Errors
    /// [`Error::Database`], [`Error::Damaged`].
    pub async fn find(&self, metric: &str, tags: &[(&str, &[&str])]) -> Result<Vec<Name>> {
        let list = |values: &[&str]| values.iter().map(ToString::to_string).collect();
        let tags: Vec<(String, Vec<String>)> =
            tags.iter().map(|(tag, values)| ((*tag).to_string(), list(values))).collect();
        let (found, _) = self.search(metric, &tags, 0, usize::MAX).await?;
        let mut names: Vec<Name> = found.into_iter().map(|found| found.name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Whether the series of a database belong to a store, in this process or another one. Nobody
    /// has them before they are opened first, and after their rows were cleared.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::Damaged`], [`Error::Database`].
    pub async fn has_owner(database: &Database, settings: &Settings) -> Result<bool> {
        Ok(Self::holder(database, settings).await?.is_some())
    }

    /// Who owns the series of a database, in this process or another one; the first part, where
    /// they are divided ([`Division::holders`]).
    ///
    /// # Errors
    /// As [`SeriesStore::has_owner`].
    pub async fn holder(database: &Database, settings: &Settings) -> Result<Option<Holder>> {
        let division = Division::as_it_is(database, settings.clone()).await?;
        let plot = division.plot(0);
        place::holder(&plot.database, &plot.home).await
    }
}

impl Part {
    /// Lets others have the part, if there is a lease.
    async fn release(&self) -> Result<()> {
        if let Role::Owner { token, lease: Some(_) } = &self.shared.role
            && self.shared.failure.get().is_none()
        {
            lease::give_up(&self.shared.database, &self.shared.keys, token).await?;
            let _ = self.shared.failure.set(Error::NotOwner);
        }
        Ok(())
    }

    fn lease_secret(&self) -> Option<[u8; 16]> {
        match &self.shared.role {
            Role::Owner { lease, .. } if self.shared.failure.get().is_none() => *lease,
            _ => None,
        }
    }

    async fn existing(&self, name: Name) -> Result<Option<Series>> {
        if self.is_foreign() {
            self.have_taken_in().await?;
        } else {
            let cell = lock(&self.shared.index.names).get(&name).cloned();
            if let Some(cell) = cell {
                return Ok(Some(Series { shared: self.shared.clone(), cell, is_looked_up: false }));
            }
        }
        let Some(found) = self.named(&[name]).await?.pop() else { return Ok(None) };
        if self.is_foreign() || self.shared.failure.get().is_some() {
            // Nothing is written here any more, so nothing has to be known for that.
            return Ok(Some(self.found(&found)));
        }
        match names::existing(&self.shared, found.id).await {
            // It can be looked at as far as it can be read, and deleted.
            Err(Error::Damaged { .. }) => Ok(Some(self.found(&found))),
            existing => existing,
        }
    }

    async fn take_in(&self) -> Result<()> {
        self.shared.take_in().await
    }

    fn failure(&self) -> Option<Error> {
        self.shared.failure.get().cloned()
    }

    async fn sync(&self) -> Result<()> {
        if self.is_handed_over() {
            // With all that there was.
            return Ok(());
        }
        flush::flush(&self.shared).await
    }
}

impl Shared {
    fn check(&self) -> Result<()> {
        self.failure.get().cloned().map_or(Ok(()), Err)
    }

    /// Whether points only go through here.
    fn is_poster(&self) -> bool {
        matches!(self.role, Role::Poster(_))
    }

    /// Fails unless the series are ours; puts the owner's key among the transaction's read
    /// conflicts. Who posts owns nothing, and needs no more than that the place is what it was.
    async fn check_owner(&self, tr: &Transaction) -> Result<()> {
        let token = match &self.role {
            Role::Poster(_) => return self.of.whole.check(tr).await,
            Role::Reader => None,
            Role::Owner { token, .. } => Some(&token[..]),
        };
        let owner = tr.get(self.keys.owner()).await?;
        if token.is_some() && owner.as_deref() == token {
            return Ok(());
        }
        Err(self.failure.get_or_init(|| Error::NotOwner).clone())
    }

    /// Whether transactions have written what waits to be taken in, as `tr` sees it. Whoever has
    /// taken the series over may have more than is known here: then that is the error, before a
    /// reader is told what was true once. An owner at rest commits nothing by which he would learn.
    async fn sees_inbox(&self, tr: &Transaction) -> Result<bool> {
        match &self.role {
            Role::Poster(_) => Err(Error::NotOwner),
            // What a view has read of it has to do.
            Role::Reader => Ok(false),
            Role::Owner { token, .. } => {
                self.check()?;
                let owner = tr.snapshot().get(self.keys.owner());
                let any = inbox::has_any(tr, &self.keys).await?;
                if owner.await?.as_deref() != Some(&token[..]) {
                    return Err(self.failure.get_or_init(|| Error::NotOwner).clone());
                }
                Ok(any)
            }
        }
    }

    /// Takes in what waits in the inbox.
    async fn take_in(self: &Arc<Self>) -> Result<()> {
        let tr = self.database.create_transaction();
        let waits = loop {
            match self.sees_inbox(&tr).await {
                Err(error) => retry::again(&tr, error).await?,
                Ok(waits) => break waits,
            }
        };
        if waits { flush::take_in(self).await } else { Ok(()) }
    }

    /// Fails if there is more in memory than may be.
    fn check_room(&self) -> Result<()> {
        let most = self.settings.open_points.saturating_mul(2);
        let most_bytes = self.settings.inbox_bytes.saturating_mul(2);
        let what = if self.open_points.load(Ordering::Relaxed) > most {
            format!("points in no leaf yet, {most} may be: their owner has to take them in")
        } else if lock(&self.index.posted).bytes() > most_bytes {
            format!(
                "bytes of records in the inbox, {most_bytes} may be: their owner has to take them in"
            )
        } else {
            return Ok(());
        };
        Err(Error::TooMany { what })
    }

    /// Notes what the next flush has to save: points that went into the open leaf of a series, and
    /// how many to its late ones.
    fn note(&self, cell: &Arc<Cell>, state: &mut State, points: &[Point], late: usize) {
        let has_work =
            late > 0 || state.since.is_none() || state.open.len() >= self.settings.leaf_points;
        let noted = (has_work && !state.is_noted).then_some(cell);
        state.is_noted |= has_work;
        self.pending.add((cell.id, points), late, noted, || self.now());
    }

    /// Notes that everything is durable that came since `since`.
    fn note_saved(&self, since: Option<u64>) {
        if let Some(since) = since {
            self.pending
                .longest_unsaved
                .fetch_max(self.now().saturating_sub(since), Ordering::Relaxed);
        }
    }

    /// For how many nanoseconds the oldest point has waited that is not durable.
    fn unsaved_for(&self) -> u64 {
        let saving = lock(&self.flusher).since;
        saving.or(self.pending.since()).map_or(0, |since| self.now().saturating_sub(since))
    }

    /// Nanoseconds of the environment's clock; never 0.
    fn now(&self) -> u64 {
        u64::try_from(self.database.endpoint().env().now().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// A series that is in memory, if it is the one with this number.
    fn in_memory(&self, id: Id, name: &Name) -> Option<Arc<Cell>> {
        lock(&self.index.names).get(name).filter(|cell| cell.id == id).cloned()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.pending.work.notify();
        let known = self.index.used.known_bytes.load(Ordering::Relaxed);
        self.known_bytes_of_all().fetch_sub(known, Ordering::Relaxed);
    }
}

impl State {
    /// Takes a point in, wherever it belongs.
    fn take(&mut self, point: Point) -> Place {
        match self.open.times.last().copied() {
            Some(last) if last < point.time => {
                self.open.push(point);
                Place::More
            }
            _ if self.sealed.is_some_and(|sealed| point.time <= sealed) => {
                self.late.push(point);
                Place::Late
            }
            _ if self.open.insert(point) => Place::More,
            _ => Place::Instead,
        }
    }

    /// Takes points in that are later than all before, as most are. Whether they were.
    fn take_later(&mut self, points: &[Point]) -> bool {
        let last = self.open.times.last().copied().max(self.sealed);
        let is_later =
            points.first().is_some_and(|first| last.is_none_or(|last| last < first.time));
        let ascends = points.windows(2).all(|pair| pair[0].time < pair[1].time);
        if is_later && ascends {
            self.open.extend(points);
        }
        is_later && ascends
    }
}

impl Cell {
    /// Asks for the memory of the series, as far as an append needs it.
    fn prefetch(&self) {
        prefetch_lines(std::ptr::from_ref(self).cast(), HOT_LINES);
    }

    /// Asks for the memory of its last points.
    fn prefetch_points(&self) {
        if let Ok(state) = self.state.try_lock() {
            state.open.prefetch_end();
        }
    }
}

/// For a loop over series that is at `place`: asks for the memory of those that come soon. Where
/// many series take turns, each is far from the processor.
fn prefetch_cells<'a>(place: usize, cell: impl Fn(usize) -> Option<&'a Cell>) {
    cell(place + PREFETCH_SERIES).inspect(|cell| cell.prefetch());
    cell(place + PREFETCH_POINTS).inspect(|cell| cell.prefetch_points());
}

/// For a loop over series that is at `place`, and appends to each: asks for the memory of those
/// that come soon.
pub(crate) fn prefetch_series<'a>(place: usize, series: impl Fn(usize) -> Option<&'a Series>) {
    prefetch_cells(place, |place| series(place).map(|series| &*series.cell));
}

impl Series {
    /// The canonical name.
    pub fn name(&self) -> &Name {
        &self.cell.name
    }

    /// Appends a point; the time is nanoseconds since 1970. Points may come late, and the last one
    /// of a time counts. It is seen by reads at once, and survives a crash after the next
    /// [`SeriesStore::sync`], or the next commit that is due by [`Settings::commit_every`].
    ///
    /// # Errors
    /// [`Error::Behind`], [`Error::Deleted`], [`Error::NotOwner`], [`Error::ReadOnly`] (a series
    /// that [`SeriesStore::browse`] gave), [`Error::Damaged`] (this series is; what was taken of it
    /// before is [set aside](SeriesStore::damaged)): the point was not taken.
    pub fn append(&self, time: i64, value: impl Into<Value>) -> Result<()> {
        self.append_all(&[Point { time, value: value.into() }]).1
    }

    /// Appends points in their order, as if each were appended alone: how many were taken, and why
    /// not the next one.
    pub fn append_all(&self, points: &[Point]) -> (usize, Result<()>) {
        let shared = &self.shared;
        if let Err(error) = shared.check() {
            return (0, Err(error));
        }
        if shared.is_poster() {
            return shared.post(&self.cell, points);
        }
        let mut state = lock(&self.cell.state);
        if let Err(error) = self.may_take(&state) {
            return (0, Err(error));
        }
        let open = shared.open_points.load(Ordering::Relaxed);
        let room = shared.settings.open_points.saturating_mul(2).saturating_sub(open);
        let room = room.min(shared.settings.unsaved_points.saturating_sub(shared.pending.points()));
        let room = room.min(MAX_OPEN.saturating_sub(state.open.len()));
        let (now, later) = points.split_at(room.min(points.len()));
        self.put(&mut state, now);
        (now.len(), if later.is_empty() { Ok(()) } else { Err(Error::Behind) })
    }

    /// Fails if nobody may append to it, whose state this is, locked.
    fn may_take(&self, state: &State) -> Result<()> {
        if self.shared.pending.is_closed.load(Ordering::Relaxed) {
            return Err(Error::NotOwner);
        }
        match state.standing {
            Standing::Known => Ok(()),
            Standing::Found => Err(Error::ReadOnly),
            Standing::Gone => Err(Error::Deleted),
            Standing::Damaged => Err(self.shared.why_damaged(&self.cell.name)),
        }
    }

    /// Puts points into memory, whose room was judged.
    fn put(&self, state: &mut State, points: &[Point]) {
        if state.take_later(points) {
            self.shared.open_points.fetch_add(points.len(), Ordering::Relaxed);
            self.shared.note(&self.cell, state, points, 0);
        } else if !points.is_empty() {
            self.take_each(state, points);
        }
    }

    /// Takes points in as they come, wherever each belongs.
    fn take_each(&self, state: &mut State, points: &[Point]) {
        let mut grown = 0;
        let mut fresh = Vec::new();
        for point in points {
            let place = state.take(*point);
            grown += usize::from(place == Place::More);
            fresh.extend((place != Place::Late).then_some(*point));
        }
        self.shared.open_points.fetch_add(grown, Ordering::Relaxed);
        self.shared.note(&self.cell, state, &fresh, points.len() - fresh.len());
    }

    /// Whether it was deleted: there may be another one of its name.
    pub(crate) fn is_deleted(&self) -> bool {
        lock(&self.cell.state).standing == Standing::Gone
    }

    /// The number that the series has in its store.
    pub(crate) fn id(&self) -> Id {
        self.shared.of.whole.id(self.cell.id, self.shared.of.number)
    }
}

impl std::fmt::Debug for SeriesStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeriesStore")
            .field("parts", &self.parts.len())
            .field("settings", &self.first().settings)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Series {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Series").field("name", &self.cell.name.as_str()).finish_non_exhaustive()
    }
}
