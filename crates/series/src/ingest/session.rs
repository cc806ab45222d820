//! A session: a stream of bytes in one of the protocols on lines, from whoever sends points.
//!
//! Feed it, save what it took, send its replies, and feed it the rest. Samples wait between a feed
//! and the save behind it, never longer, so what was acknowledged by a sync is what the store has
//! committed.

use super::csv;
use super::exposition;
use super::graphite;
use super::import::{self, ImportLines};
use super::increments::{self, AddedHistograms};
use super::influx::{self, Clock};
use super::intake::{Besides, Intake, IntakeRecord, SAMPLES, Shown};
use super::line_parser::LineParser;
use super::metadata::Metadata;
use super::names::Names;
use super::opentsdb::{self, PutPoints};
use super::otlp::{self, OtlpMetrics};
use super::remote_write::{self, RemoteWrite};
use super::resp;
use super::runs::Runs;
use super::start::Start;
use super::starts::Zeros;
use super::{MAX_LINE_BYTES, Sample};
use crate::cell::Cell;
use crate::error::{Error, Result};
use crate::event;
use crate::name::Name;
use crate::record::Kind;
use crate::store::{Admitted, Mail, Newcomers, Series, SeriesStore, prefetch_series};
use crate::value::Point;
use plinth_types::MetricSet;
use std::collections::BTreeSet;
use std::fmt;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What all sessions together may remember of names, and what each may in any case: ten thousand of
/// them have 320 MiB beside that.
const NAMES: usize = 512 << 20;
const NAMES_OF_ONE: usize = 32 << 10;

/// What a session speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Akumuli's, on lines that are marked as in RESP.
    Resp,
    /// OpenTSDB's `put`.
    OpenTsdb,
    /// Graphite's plain text, which is not answered.
    Graphite,
    /// InfluxDB's line protocol.
    Influx(Clock),
    /// Prometheus' text format; the unit of its times is a millisecond's.
    Exposition(Clock),
    /// `series,time,value`, as [`crate::dump`] writes it; and what `now` means, in nanoseconds
    /// since 1970.
    Csv(i64),
}

/// What all sessions of a process remember of names, together. By default that may be 512 MiB.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Remembered>);

#[derive(Debug)]
struct Remembered {
    bytes: AtomicUsize,
    /// What all may remember, and what each may in any case.
    all: usize,
    each: usize,
}

impl Memory {
    /// Sessions may remember so many bytes of names together, and `each` so many in any case. One
    /// that has more then forgets them, and looks them up again.
    pub fn bounded(all: usize, each: usize) -> Self {
        Self(Arc::new(Remembered { bytes: AtomicUsize::new(0), all, each }))
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::bounded(NAMES, NAMES_OF_ONE)
    }
}

#[derive(Debug)]
enum Parser {
    Resp(resp::Parser),
    OpenTsdb(opentsdb::Parser),
    Graphite(graphite::Parser),
    Influx(influx::Parser),
    Exposition(exposition::Parser),
    Csv(csv::Parser),
}

impl Parser {
    fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Resp => Self::Resp(resp::Parser::default()),
            Protocol::OpenTsdb => Self::OpenTsdb(opentsdb::Parser::default()),
            Protocol::Graphite => Self::Graphite(graphite::Parser::default()),
            Protocol::Influx(clock) => Self::Influx(influx::Parser::new(clock)),
            Protocol::Exposition(clock) => Self::Exposition(exposition::Parser::new(clock)),
            Protocol::Csv(now) => Self::Csv(csv::Parser::new(now)),
        }
    }
}

/// Memory for what is gathered, on its way to the store.
#[derive(Default, Debug)]
struct Room {
    samples: Vec<Sample>,
    runs: Runs,
    /// Those of one series.
    points: Vec<Point>,
}

thread_local! {
    /// What the last save on this thread left. It is warm, and sessions at rest need none.
    static ROOM: std::cell::Cell<Room> = std::cell::Cell::default();
}

/// What a sender may write.
#[derive(Default, Debug)]
struct Sight {
    /// The metrics; `None` for all.
    metrics: Option<Arc<MetricSet>>,
    /// Whether it has sent something else.
    is_exceeded: bool,
}

/// A stream of points from one sender.
///
/// ```
/// use plinth_series::ingest::{Memory, Protocol, Session};
/// let mut session = Session::new(Protocol::Resp, 1, &Memory::default());
/// let bytes = b"+cpu.user|cpu.sys host=a\r\n+20200101T000000\r\n*2\r\n+0.5\r\n:7\r\n:oops\r\n";
/// assert_eq!(session.feed(bytes), bytes.len());
/// let points: Vec<_> = session.points().map(|(name, point)| format!("{name} {:?}", point.value)).collect();
/// assert_eq!(points, ["cpu.user host=a Float(0.5)", "cpu.sys host=a Integer(7)"]);
/// assert!(session.replies().starts_with(b"-PARSER ") && session.replies().ends_with(b"(line 6) - :oops\r\n"));
/// ```
#[derive(Debug)]
pub struct Session {
    parser: Parser,
    intake: Intake,
    saved: u64,
    /// Histograms and exemplars.
    saved_records: (u64, u64),
    memory: Memory,
    /// Who makes the series that it makes.
    newcomers: Option<Arc<Newcomers>>,
    sight: Sight,
    /// What of the memory is this session's.
    accounted: usize,
    runs: Runs,
    /// Those of one series, on their way to it.
    points: Vec<Point>,
}

impl Session {
    /// A session that has sent nothing. The seed is for its table of names, best a random number.
    pub fn new(protocol: Protocol, seed: u64, memory: &Memory) -> Self {
        let parser = Parser::new(protocol);
        let intake = Intake {
            names: Names::new(seed),
            samples: Vec::new(),
            records: Vec::new(),
            record_bytes: 0,
            increments: Vec::new(),
            histogram_increments: Vec::new(),
            starts: Vec::new(),
            besides: Besides::default(),
            replies: Vec::new(),
            unsaid: 0,
            refused: 0,
            wants_sync: false,
        };
        let memory = memory.clone();
        let (runs, points) = (Runs::default(), Vec::new());
        let (saved, saved_records) = (0, (0, 0));
        let newcomers = None;
        Self {
            parser,
            intake,
            saved,
            saved_records,
            memory,
            newcomers,
            sight: Sight::default(),
            accounted: 0,
            runs,
            points,
        }
    }

    /// Takes bytes in, and says how many of them; the rest comes again, with what arrives behind
    /// it. All that is whole is taken, unless [`Session::wants_save`] then. The rest is never
    /// longer than [`MAX_LINE_BYTES`] + 1 otherwise.
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        if self.wants_save() {
            return 0;
        }
        self.take_room();
        match &mut self.parser {
            Parser::Resp(parser) => parser.feed(&mut self.intake, bytes),
            Parser::OpenTsdb(parser) => parser.feed(&mut self.intake, bytes),
            Parser::Graphite(parser) => parser.feed(&mut self.intake, bytes),
            Parser::Influx(parser) => parser.feed(&mut self.intake, bytes),
            Parser::Exposition(parser) => parser.feed(&mut self.intake, bytes),
            Parser::Csv(parser) => parser.feed(&mut self.intake, bytes),
        }
    }

    /// Begins again, as a session that has sent nothing but remembers names; for the next of
    /// several requests, or datagrams. Its dictionary is forgotten.
    pub fn restart(&mut self, protocol: Protocol) {
        self.parser = Parser::new(protocol);
        self.intake.names.unfix();
        self.intake.samples.clear();
        self.intake.forget_records();
        self.intake.increments.clear();
        self.intake.starts.clear();
        self.intake.besides = Besides::default();
        self.intake.replies.clear();
        (self.intake.unsaid, self.intake.refused, self.intake.wants_sync, self.saved) =
            (0, 0, false, 0);
        self.saved_records = (0, 0);
        self.sight.is_exceeded = false;
    }

    /// Says what time it is, in nanoseconds since 1970: without that no point can be of now.
    pub fn tell_time(&mut self, now: i64) {
        self.intake.besides.now = Some(now);
    }

    /// Has series get these labels that come as text or as lines of an import, in place of their
    /// own of these names.
    pub fn add_labels(&mut self, labels: impl IntoIterator<Item = (String, String)>) {
        labels.into_iter().for_each(|(name, value)| self.intake.besides.extra.add(name, value));
    }

    /// Whoever sends now may write series of these metrics, or of all: what isn't saved yet is
    /// judged by that, too. Others are refused, one by one.
    pub fn restrict(&mut self, metrics: Option<Arc<MetricSet>>) {
        if self.is_restricted_to(metrics.as_ref()) {
            return;
        }
        // What was looked up for whoever might write it is nothing of this one's: neither is he
        // told of it, nor are series made that he hasn't named.
        if self.intake.gathered() == 0 {
            self.forget_names();
            self.account();
        }
        // What is left are names of his own, which are waited for or a dictionary's.
        self.intake.names.close();
        self.sight.metrics = metrics;
    }

    /// Whether it is these metrics, or all, that whoever sends may write.
    pub fn is_restricted_to(&self, metrics: Option<&Arc<MetricSet>>) -> bool {
        self.sight.metrics.as_ref() == metrics
    }

    /// Whether something was refused because its sender may not write it.
    pub fn was_denied(&self) -> bool {
        self.sight.is_exceeded
    }

    /// What comes goes to another store from now on; what was saved is the old one's to keep. The
    /// sender notices nothing.
    pub fn move_on(&mut self) {
        self.intake.names.close();
    }

    /// Takes in a message of Prometheus' remote write, as much of it as is saved at a time, or as
    /// others can wait for: whether that was all that was left of it. If not, it goes on behind
    /// [`Session::save`] if the session [`wants_save`](Session::wants_save), or else whenever it
    /// is its turn. What is wrong with one of its series is told among the replies, and the others
    /// are taken.
    pub fn take_remote_write(&mut self, message: &mut RemoteWrite) -> bool {
        self.take_room();
        remote_write::take(&mut self.intake, message)
    }

    /// Takes in a request with OpenTelemetry's metrics, as [`Session::take_remote_write`] does a
    /// message.
    pub fn take_otlp(&mut self, message: &mut OtlpMetrics<'_>) -> bool {
        self.take_room();
        otlp::take(&mut self.intake, message)
    }

    /// Takes in lines of an import, as [`Session::take_remote_write`] does a message.
    pub fn take_import(&mut self, lines: &mut ImportLines<'_>) -> bool {
        self.take_room();
        import::take(&mut self.intake, lines)
    }

    /// Takes in points of OpenTSDB's, as [`Session::take_remote_write`] does a message. Of those
    /// that are refused they know why.
    pub fn take_put(&mut self, points: &mut PutPoints) -> bool {
        self.take_room();
        opentsdb::take(&mut self.intake, points)
    }

    /// Takes in a row of a table that is no text, such as one of Parquet's: the name of a series, a
    /// time, and what was there.
    ///
    /// # Errors
    /// Why it is refused, which is counted; nothing of it was taken then.
    pub fn take_row(&mut self, name: &[u8], time: i64, cell: &Cell) -> Result<(), String> {
        self.take_room();
        csv::take_row(&mut self.intake, name, time, cell).map_err(|why| {
            self.intake.refused += 1;
            why.into_owned()
        })
    }

    /// Whether nothing more is taken before [`Session::save`].
    pub fn wants_save(&self) -> bool {
        self.intake.wants_sync || self.intake.is_full()
    }

    /// Whether there is anything to save.
    pub fn has_points(&self) -> bool {
        self.intake.gathered() > 0 || self.wants_save()
    }

    /// Bytes of memory for what was taken and not saved, and for replies that were not sent.
    pub fn in_hand(&self) -> usize {
        let Intake { names, samples, records, record_bytes, increments, starts, replies, .. } =
            &self.intake;
        (samples.capacity() + increments.capacity()) * size_of::<Sample>()
            + self.points.capacity() * size_of::<Point>()
            + starts.capacity() * size_of::<Start>()
            + names.fresh()
            + records.capacity() * size_of::<IntakeRecord>()
            + record_bytes
            + replies.capacity()
    }

    /// Says that `rest` is followed by nothing. An unfinished message is refused.
    pub fn finish(&mut self, rest: &[u8]) {
        let rest = &rest[..rest.len().min(MAX_LINE_BYTES)];
        match &mut self.parser {
            Parser::Resp(parser) => parser.finish(&mut self.intake, rest),
            Parser::OpenTsdb(parser) => parser.finish(&mut self.intake, rest),
            Parser::Graphite(parser) => parser.finish(&mut self.intake, rest),
            Parser::Influx(parser) => parser.finish(&mut self.intake, rest),
            Parser::Exposition(parser) => parser.finish(&mut self.intake, rest),
            Parser::Csv(parser) => parser.finish(&mut self.intake, rest),
        }
    }

    /// Appends what was taken to the store's series, and commits it if the session asked for that.
    /// A store that is behind is waited for.
    ///
    /// # Errors
    /// Those of the store; the sender is told among the replies, and the session should end. What
    /// is not in the store by then is lost to it.
    pub async fn save(&mut self, store: &SeriesStore) -> Result<()> {
        let result = self.try_save(store).await;
        self.leave_room();
        self.bound_names();
        self.tell(&result);
        result
    }

    /// Takes the memory that the last save on this thread left, unless it has some.
    #[inline]
    fn take_room(&mut self) {
        if self.intake.samples.capacity() == 0 {
            Room { samples: self.intake.samples, runs: self.runs, points: self.points } =
                ROOM.take();
        }
    }

    /// Forgets what was gathered, and leaves its memory, if it has some, to whoever gathers next on
    /// this thread.
    fn leave_room(&mut self) {
        if self.intake.samples.capacity() == 0 {
            return;
        }
        let mut samples = std::mem::take(&mut self.intake.samples);
        let (runs, mut points) = (std::mem::take(&mut self.runs), std::mem::take(&mut self.points));
        samples.clear();
        points.clear();
        samples.shrink_to(2 * SAMPLES);
        points.shrink_to(2 * SAMPLES);
        ROOM.set(Room { samples, runs, points });
    }

    /// Ends the session: `rest` is followed by nothing, and all that it saved is committed.
    ///
    /// # Errors
    /// As [`Session::save`].
    pub async fn end(&mut self, rest: &[u8], store: &SeriesStore) -> Result<()> {
        self.finish(rest);
        self.save(store).await?;
        let result = store.sync().await;
        self.tell(&result);
        result
    }

    /// Tells the sender that nothing it sends is taken, for want of a store, and why.
    pub fn refuse(&mut self, why: &Error) {
        self.tell(&Err(why.clone()));
    }

    /// Tells the sender that not all that it sends is taken, and why, however many replies wait.
    /// Nobody is at fault, so nothing counts as refused.
    pub fn break_off(&mut self, why: &str) {
        let line = self.line_of_database(&why);
        self.intake.say(format_args!("{line}"));
    }

    /// How this protocol says what the store said.
    fn line_of_database(&self, why: &dyn fmt::Display) -> String {
        match matches!(self.parser, Parser::Resp(_)) {
            true => format!("-DB {why}\r\n"),
            false => format!("database: {why}\n"),
        }
    }

    /// Forgets what was taken and not saved, and tells the sender why; the session should end.
    pub fn give_up(&mut self, why: &Error) {
        self.intake.increments.clear();
        self.intake.starts.clear();
        self.intake.forget_records();
        self.leave_room();
        self.refuse(why);
    }

    /// Tells the sender of an error of the store.
    fn tell(&mut self, result: &Result<()>) {
        if let Err(error) = result {
            self.intake.wants_sync = false;
            let line = self.line_of_database(error);
            self.intake.reply(format_args!("{line}"));
        }
    }

    async fn try_save(&mut self, store: &SeriesStore) -> Result<()> {
        let within = self.sight.metrics.clone().map(|metrics| store.within(metrics));
        let store = within.as_ref().unwrap_or(store);
        let (first, names) = self.intake.names.unopened();
        if self.has_points() {
            store.check_stored().await?;
        }
        let mut wait = Duration::ZERO;
        if !names.is_empty() {
            let now = store.env().now();
            let newcomers = self.newcomers.as_deref();
            let grant = newcomers.map(|newcomers| newcomers.grant(now, names.len()));
            let Admitted { series, made } = store.admit(&names, grant.as_ref()).await?;
            drop(grant);
            let refused = self.intake.names.open(first, series);
            let is_denied = |(_, why): &(Name, Error)| matches!(why, Error::Denied { .. });
            self.sight.is_exceeded |= refused.iter().any(is_denied);
            self.tell_refused(&refused);
            let now = store.env().now();
            wait = self.newcomers.as_ref().map_or(wait, |newcomers| newcomers.made(now, made));
        }
        if !self.intake.starts.is_empty() {
            self.append_starts(store).await?;
        }
        let result = self.append_all(store).await;
        if self.intake.names.has_refused() {
            // They may be taken the next time.
            self.forget_names();
        }
        if !wait.is_zero() {
            store.env().sleep(wait).await;
        }
        result
    }

    /// Appends the records that were taken, which commits them.
    async fn append_records(&mut self, store: &SeriesStore) -> Result<()> {
        while !self.intake.records.is_empty() {
            let names = &self.intake.names;
            let series = |one: &IntakeRecord| {
                let target = names.first_of(one.target);
                let series = names.series(target).filter(|_| !names.is_refused(target))?;
                Some((series.clone(), one.record.clone()))
            };
            let records = self.intake.records.iter().filter_map(series).collect();
            let Mail { by_kind, refused } = store.append_records(records).await?;
            let of = |kind| by_kind.get(&kind).copied().unwrap_or(0);
            let histograms = of(Kind::Histogram) + of(Kind::HistogramIncrement);
            self.saved += histograms + of(Kind::Increment);
            self.saved_records.0 += histograms;
            self.saved_records.1 += of(Kind::Exemplar);
            let is_gone = |(_, why): &(Name, Error)| matches!(why, Error::Deleted);
            let (gone, refused): (Vec<_>, Vec<_>) = refused.into_iter().partition(is_gone);
            self.tell_refused(&refused);
            // Those of series that were deleted meanwhile are left.
            let gone: BTreeSet<Name> = gone.into_iter().map(|(name, _)| name).collect();
            let names = &self.intake.names;
            let is_of_gone = |one: &IntakeRecord| {
                gone.contains(names.targets[names.first_of(one.target) as usize].name())
            };
            self.intake.records.retain(is_of_gone);
            self.reopen_deleted(store).await?;
        }
        self.intake.forget_records();
        Ok(())
    }

    /// Has series that were deleted made again, of which records were taken.
    async fn reopen_deleted(&mut self, store: &SeriesStore) -> Result<()> {
        let Intake { names, records, .. } = &self.intake;
        let targets = records.iter().map(|one| names.first_of(one.target));
        let is_gone = |target: &u32| names.series(*target).is_some_and(Series::is_deleted);
        let gone: BTreeSet<u32> = targets.filter(is_gone).collect();
        for target in gone {
            let name = self.intake.names.targets[target as usize].name().as_str().to_string();
            let series = store.all_series(&[&name]).await?;
            self.intake.names.reopen(target as usize, series);
        }
        Ok(())
    }

    /// Appends zeros where what is counted began, which the sender hasn't sent as points.
    async fn append_starts(&mut self, store: &SeriesStore) -> Result<()> {
        store.take_in_own().await?;
        let mut zeros = Zeros::of(&mut self.intake).await?;
        let counted = (self.saved, self.saved_records);
        let sent = self.intake.replace(take(&mut zeros.samples), take(&mut zeros.records));
        let mut appended = self.append_records(store).await;
        if appended.is_ok() {
            appended = self.append_each_run(store).await;
        }
        self.intake.put_back(sent);
        (self.saved, self.saved_records) = counted;
        appended?;
        zeros.remember(&mut self.intake);
        Ok(())
    }

    async fn append_all(&mut self, store: &SeriesStore) -> Result<()> {
        if !self.intake.increments.is_empty() {
            self.saved += increments::add(&mut self.intake, store).await?;
        }
        if !self.intake.histogram_increments.is_empty() {
            store.take_in_own().await?;
            let mut added = AddedHistograms::of(&mut self.intake);
            while added.add_some(&mut self.intake).await? {
                self.append_records(store).await?;
            }
        }
        self.append_records(store).await?;
        self.append_runs(store).await
    }

    /// Appends what was taken, and commits it if that was asked for.
    async fn append_runs(&mut self, store: &SeriesStore) -> Result<()> {
        self.append_each_run(store).await?;
        if self.intake.wants_sync {
            store.sync().await?;
            self.intake.wants_sync = false;
            let saved = self.saved;
            match self.parser {
                Parser::Resp(_) => self.intake.say(format_args!("+OK {saved}\r\n")),
                Parser::OpenTsdb(_)
                | Parser::Graphite(_)
                | Parser::Influx(_)
                | Parser::Exposition(_)
                | Parser::Csv(_) => self.intake.say(format_args!("ok {saved}\n")),
            }
        }
        Ok(())
    }

    async fn append_each_run(&mut self, store: &SeriesStore) -> Result<()> {
        let (intake, runs) = (&self.intake, &mut self.runs);
        runs.arrange(intake.samples.iter().map(|sample| intake.names.first_of(sample.target)));
        for run in 0..self.runs.len() {
            prefetch_series(run, |run| self.intake.names.series(self.runs.series(run)?));
            self.append_run(store, run).await?;
        }
        Ok(())
    }

    /// Appends the samples of one series.
    async fn append_run(&mut self, store: &SeriesStore, run: usize) -> Result<()> {
        let samples = &self.intake.samples;
        let (target, places) = self.runs.run(run);
        if self.intake.names.is_refused(target) {
            return Ok(());
        }
        let point = |place: usize| Point { time: samples[place].time, value: samples[place].value };
        self.points.clear();
        self.points.extend(places.map(point));
        let mut at = 0;
        while at < self.points.len() {
            let (taken, appended) = match self.intake.names.series(target) {
                Some(series) => series.append_all(&self.points[at..]),
                None => (0, Err(Error::damaged("a session", "a sample belongs to no series"))),
            };
            at += taken;
            match appended {
                Ok(()) => {}
                Err(Error::Behind) => store.sync().await?,
                Err(Error::Deleted) => {
                    let target = target as usize;
                    let name = self.intake.names.targets[target].name().as_str().to_string();
                    let series = store.all_series(&[&name]).await?;
                    self.intake.names.reopen(target, series);
                }
                Err(why @ Error::Damaged { .. }) => {
                    let name = self.intake.names.targets[target as usize].name().clone();
                    self.tell_refused(&[(name, why)]);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.saved += self.sent_as(target);
        Ok(())
    }

    /// How many points the sender sent for those that were appended: an event is one, however long.
    fn sent_as(&self, target: u32) -> u64 {
        if !self.intake.names.has_events(target) {
            return self.points.len() as u64;
        }
        self.points.iter().filter(|point| event::is_first(point)).count() as u64
    }

    /// Tells the sender which of its series there may not be, and why.
    fn tell_refused(&mut self, refused: &[(Name, Error)]) {
        for (name, why) in refused {
            let name = Shown(name.as_str().as_bytes());
            match self.parser {
                Parser::Resp(_) => self.intake.reply(format_args!("-DB {why}: {name}\r\n")),
                Parser::Graphite(_) => self.intake.refused += 1,
                Parser::OpenTsdb(_)
                | Parser::Influx(_)
                | Parser::Exposition(_)
                | Parser::Csv(_) => self.intake.reply(format_args!("{why}: {name}\n")),
            }
        }
    }

    /// What this session makes of series counts as this sender's from now on.
    pub fn count_for(&mut self, sender: Arc<Newcomers>) {
        self.newcomers = Some(sender);
    }

    /// Gives back what is remembered of names when all sessions have too much.
    fn bound_names(&mut self) {
        if self.intake.names.bytes() != self.accounted {
            self.account();
            let Remembered { bytes, all, each } = &*self.memory.0;
            if self.accounted > *each && bytes.load(Ordering::Relaxed) > *all {
                self.forget_names();
                self.account();
            }
        }
    }

    /// Forgets names, but for what the message that is being read needs.
    fn forget_names(&mut self) {
        let names = &mut self.intake.names;
        match &mut self.parser {
            Parser::Resp(parser) => {
                if let Some(row) = names.forget(parser.in_hand()) {
                    parser.moved(row);
                }
            }
            _ => drop(names.forget(None)),
        }
    }

    fn account(&mut self) {
        let (bytes, all) = (self.intake.names.bytes(), &self.memory.0.bytes);
        all.fetch_add(bytes, Ordering::Relaxed);
        all.fetch_sub(std::mem::replace(&mut self.accounted, bytes), Ordering::Relaxed);
    }

    /// What was taken and not saved.
    pub fn points(&self) -> impl Iterator<Item = (&Name, Point)> {
        let intake = &self.intake;
        intake.samples.iter().chain(&intake.increments).map(|sample| {
            let name = intake.names.targets[sample.target as usize].name();
            (name, Point { time: sample.time, value: sample.value })
        })
    }

    /// Forgets what was taken and not saved, as a save would that succeeded: [`saved`](Self::saved)
    /// counts it.
    pub fn discard(&mut self) {
        let is_sent = |(name, point): &(&Name, Point)| {
            !name.as_str().starts_with('!') || event::is_first(point)
        };
        self.saved += self.points().filter(is_sent).count() as u64;
        let is_point = |one: &&IntakeRecord| one.record.kind == Kind::Histogram;
        self.saved += self.intake.records.iter().filter(is_point).count() as u64;
        self.intake.forget_records();
        self.intake.samples.clear();
        self.intake.increments.clear();
        self.intake.starts.clear();
        self.intake.names.settle();
        self.intake.wants_sync = false;
    }

    /// Forgets that the sender wants an acknowledgement, for there is nobody who would hear it: the
    /// next save commits nothing because of it.
    pub fn forgo_sync(&mut self) {
        self.intake.wants_sync = false;
    }

    /// Whether the sender waits for an acknowledgement, which the next save gives.
    pub fn wants_sync(&self) -> bool {
        self.intake.wants_sync
    }

    /// Series that it remembers the names of.
    pub fn names_remembered(&self) -> usize {
        self.intake.names.targets.len()
    }

    /// Points that were saved so far; an event is one.
    pub fn saved(&self) -> u64 {
        self.saved
    }

    /// What was said of metrics that may be written, which is forgotten here.
    pub fn take_metadata(&mut self) -> Vec<Metadata> {
        let mut all = std::mem::take(&mut self.intake.besides.metadata);
        let sight = &self.sight.metrics;
        all.retain(|one| sight.as_ref().is_none_or(|sight| sight.has(&one.metric)));
        all
    }

    /// Native histograms and exemplars that were saved so far. Those are among the points
    /// ([`saved`](Self::saved)), these are not.
    pub fn saved_records(&self) -> (u64, u64) {
        self.saved_records
    }

    /// Exemplars that came and are not kept, since their labels are too many or too long.
    pub fn exemplars_not_kept(&self) -> u64 {
        self.intake.besides.exemplars
    }

    /// Messages that were refused so far.
    pub fn refused(&self) -> u64 {
        self.intake.refused
    }

    /// What is to be sent back.
    pub fn replies(&self) -> &[u8] {
        &self.intake.replies
    }

    /// Forgets what there is to be sent back: there is nobody who hears it.
    pub fn forget_replies(&mut self) {
        self.intake.replies.clear();
        self.intake.unsaid = 0;
    }

    /// Notes that the first `count` bytes of the replies were sent.
    pub fn sent(&mut self, count: usize) {
        self.intake.replies.drain(..count);
        if self.intake.replies.is_empty() && self.intake.unsaid > 0 {
            let unsaid = std::mem::take(&mut self.intake.unsaid);
            match self.parser {
                Parser::Resp(_) => {
                    self.intake.say(format_args!("-ERR {unsaid} more errors were not sent\r\n"))
                }
                Parser::OpenTsdb(_)
                | Parser::Graphite(_)
                | Parser::Influx(_)
                | Parser::Exposition(_)
                | Parser::Csv(_) => {
                    self.intake.say(format_args!("{unsaid} more errors were not sent\n"));
                }
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.memory.0.bytes.fetch_sub(self.accounted, Ordering::Relaxed);
    }
}
