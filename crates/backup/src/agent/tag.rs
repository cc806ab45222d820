//! One continuous backup: a stream of changes becomes files of the log, and now and then a snapshot
//! is taken.
//!
//! ```text
//!   stream ─▶ batches ─▶ file being made ─▶ put ─▶ progress noted ─▶ acknowledged     each second, or 8 MiB
//!                                                        └ a whole snapshot, when one is due, by a task beside
//! ```
//! A file is acknowledged when it is in the target: what was put and not acknowledged comes again
//! after a crash, in another file, which overlaps and has the same. The file begins behind what was
//! acknowledged, so files follow one another without a gap for as long as the stream has
//! everything. If the stream has lost something, the log has a gap: it is told, a new stream is
//! registered, and a snapshot is taken behind it.
//!
//! Where nothing is committed there is a file each ten seconds only, since requests cost money.
//! Meanwhile progress says up to where nothing is missing. Always: everything up to [`complete`] is
//! in a file, or was never committed, so that nothing makes it less.

use super::Shared;
use super::control::{ABORTED, State, Wish};
use super::rows::{TagRows, complete, fenced, set_progress, write_progress};
use crate::container::Backup;
use crate::lease::Lease;
use crate::log::{LogBuilder, Moment};
use crate::merge::Superseded;
use crate::snapshot::{SnapshotReport, SnapshotSettings, lock, read_version, take_snapshot};
use plinth_client::{ChangeConsumer, Database};
use plinth_env::sync::{First, race};
use plinth_env::{Signal, Task};
use plinth_types::{Error, KeyRange, Result, Version, planted, system};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A file of the log is put after this time at the latest, if anything was committed.
const LATEST: Duration = Duration::from_millis(500);
/// And after this time if nothing was.
const IDLE: Duration = Duration::from_secs(10);
/// And when it has so many bytes.
const FILE_BYTES: usize = 8 << 20;
/// How often the time is noted.
const MOMENT: Duration = Duration::from_secs(1);
/// How often it is noted that nothing was committed: each second, at which an idle stream answers,
/// be it a little early.
const NOTHING: Duration = Duration::from_millis(900);
/// How long an answer of the stream is waited for before orders are looked at: longer than an idle
/// stream takes for one.
const PATIENCE: Duration = Duration::from_secs(3);
/// The first pause before something is tried again, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];
/// How long an abort waits for what is under way: a target that doesn't answer may keep that.
const GRACE: Duration = Duration::from_secs(5);
/// How a backup ends that has what it was to have.
const COMPLETED: &str = "completed";
/// So often in a row, half a minute with the pauses between, nobody must have what comes next of
/// the stream before it counts as lost. What one node of a cluster lacks another has that is away
/// for a moment; and between two tries something was committed, so that the cluster is one.
const LOST: u32 = 7;
/// The longest pause before a snapshot that failed is tried again, in seconds.
const LATEST_SNAPSHOT: u64 = 600;
/// After so many files of the log small ones are made into larger ones.
const MERGE_FILES: u64 = 64;
/// So many files that can't be read are noted; whoever goes on finds the others by itself.
const MOST_UNREAD: usize = 64;

/// What is wanted of a task, which may change while it works.
pub(super) struct Orders {
    /// Give up, and note nothing.
    pub stop: Arc<AtomicBool>,
    wanted: Mutex<Value>,
    /// Given when `wanted` is another one, to the task of the tag.
    given: Signal,
}

impl Orders {
    pub fn new(wanted: &Value) -> Self {
        let wanted = Mutex::new(wanted.clone());
        Self { stop: Arc::default(), wanted, given: Signal::new() }
    }

    pub fn give(&self, wanted: &Value) {
        *lock(&self.wanted) = wanted.clone();
        self.given.notify();
    }

    /// Waits until the backup is to end at once.
    async fn until_aborting(&self) {
        while self.state() != State::Aborting {
            self.given.wait().await;
        }
    }

    fn state(&self) -> State {
        State::of(&lock(&self.wanted))
    }

    fn wish(&self) -> Result<Wish> {
        Wish::of_json(&lock(&self.wanted))
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// Works at a tag until it has ended or is stopped. What goes wrong is noted, and tried again.
pub(super) async fn run(shared: Shared, tag: String, rows: TagRows, orders: Arc<Orders>) {
    let (mut pause, mut lost, mut lacks) = (PAUSES[0], 0, false);
    let is_new = rows.done["uid"] != rows.wanted["uid"];
    let mut done = if is_new { json!({ "uid": rows.wanted["uid"] }) } else { rows.done };
    while !orders.is_over() {
        let saved = done["saved"].as_i64();
        // What this node lacks another one may have.
        let cluster = shared.cluster.as_ref().filter(|_| lost > 0 || lacks);
        let source = cluster.unwrap_or(&shared.db);
        let overdue = async {
            orders.until_aborting().await;
            shared.env.sleep(GRACE).await;
        };
        let worked = match race(work(&shared, source, &tag, &orders, &mut done), overdue).await {
            First::Left(worked) => worked,
            First::Right(()) => {
                let name = stream_name(&tag, &done);
                end(&shared, &tag, &name, &mut done, ABORTED).await
            }
        };
        let Err(error) = worked else { return };
        if error == Error::operation_cancelled() {
            return;
        }
        if done["saved"].as_i64() > saved {
            (pause, lost, lacks) = (PAUSES[0], 0, false);
        }
        // Where there are no others, what this node lacks is lost.
        let is_lack = error == Error::wrong_shard_server();
        lacks |= is_lack;
        lost +=
            u32::from(error == Error::version_invalid() || (is_lack && shared.cluster.is_none()));
        if lost == LOST {
            let name = stream_name(&tag, &done);
            if broken(&shared, &tag, &name, &mut done, &error).await.is_err() {
                return;
            }
            (pause, lost) = (PAUSES[0], 0);
            continue;
        }
        tracing::warn!(tag, error = %error, "a backup gets no further, and is tried again");
        done["error"] = error.to_string().into();
        if write_progress(&shared.db, shared.id, &tag, &done).await.is_err() {
            return;
        }
        let is_aborting = orders.state() == State::Aborting;
        let aborted = async {
            match is_aborting {
                true => std::future::pending().await,
                false => orders.until_aborting().await,
            }
        };
        pause = match race(shared.env.sleep(pause), aborted).await {
            First::Left(()) => (pause * 2).min(PAUSES[1]),
            // Ending is another thing than what has failed so often, and is tried soon.
            First::Right(()) => PAUSES[0],
        };
    }
}

/// Works at it, with the stream as `source` gives it.
async fn work(
    shared: &Shared,
    source: &Database,
    tag: &str,
    orders: &Arc<Orders>,
    done: &mut Value,
) -> Result<()> {
    let wish = orders.wish()?;
    let name = stream_name(tag, done);
    if orders.state() == State::Aborting {
        return end(shared, tag, &name, done, ABORTED).await;
    }
    let database = shared.db.endpoint().describe().cluster_id;
    let backup = open_place(shared, tag, &wish, &database, done).await?;
    let holder = format!("agent {} of the database {database}", crate::names::hex(&shared.id[..4]));
    let lease = Lease::take(&backup, &holder).await?;
    // The stream is there before anything is read, so that nothing lies between it and the first
    // snapshot.
    let stream = register(shared, &name, &wish).await?;
    let is_another = done["stream"].as_u64().is_some_and(|known| known != stream);
    if is_another && done["restorable_from"].is_i64() {
        // It was removed, by whoever did that, and what was committed before this one began is in
        // no stream.
        let lost =
            Error::version_invalid().with_detail("the stream that the backup follows was removed");
        broken(shared, tag, &name, done, &lost).await?;
        let _ = lease.give_back().await;
        return Err(lost);
    }
    let consumer = source.consume_changes(&name).await?.with_bytes(4 << 20);
    let now = shared.env.now();
    // Behind a stream that was lost, and at first, nothing comes before it.
    let begins = done["saved"].as_i64().is_none_or(|saved| consumer.position() > saved);
    let mut writer = Writer {
        shared,
        tag,
        orders,
        backup,
        lease,
        log: LogBuilder::new(consumer.position() + 1).that_begins(begins),
        reached: consumer.position(),
        consumer,
        times: Times::default(),
        puts: Puts { begun: now, noted: now, files: 0 },
        superseded: Superseded::after(unread(done)),
        snapshot: None,
    };
    done["stream"] = stream.into();
    let mut result = writer.go_on(done).await;
    if let Some(mut snapshot) = writer.snapshot.take() {
        snapshot.stop.store(true, Ordering::SeqCst);
        let _ = (&mut snapshot.task).await;
    }
    if let (Ok(COMPLETED), Some(saved)) = (&result, done["saved"].as_i64()) {
        result = writer.backup.put_end(saved).await.map(|()| COMPLETED);
    }
    // Somebody else may have it already.
    let _ = writer.lease.give_back().await;
    end(shared, tag, &name, done, result?).await
}

/// Registers the stream, if this agent is the one: one that comes late would leave it to nobody.
async fn register(shared: &Shared, name: &str, wish: &Wish) -> Result<u64> {
    let ranges = streamed(&wish.ranges);
    fenced(&shared.db, shared.id, |tr| {
        let ranges = ranges.clone();
        async move { tr.register_changes(name, ranges, wish.log_bytes).await }
    })
    .await
}

/// Files of the log that couldn't be read when they were to be merged, and why.
fn unread(done: &Value) -> BTreeMap<String, String> {
    let noted = done["unread"].as_object().into_iter().flatten();
    noted.map(|(name, why)| (name.clone(), why.as_str().unwrap_or_default().to_owned())).collect()
}

/// The backup in its place. It is begun once: a place that has it no longer, as a directory where
/// nothing is mounted, or has another one, gets nothing, and the stream keeps the log meanwhile.
async fn open_place(
    shared: &Shared,
    tag: &str,
    wish: &Wish,
    database: &str,
    done: &mut Value,
) -> Result<Backup> {
    let target = shared.target(&wish.url).await?;
    let key = shared.key(wish.key_file.as_deref()).await?;
    let (env, url) = (&shared.env, target.url());
    let Some(known) = done["backup"].as_str().map(str::to_owned) else {
        let backup = Backup::open_or_create(env, target, key, database, &wish.ranges).await?;
        done["backup"] = crate::names::hex(&backup.id).into();
        write_progress(&shared.db, shared.id, tag, done).await?;
        return Ok(backup);
    };
    let advice = "bring its place back, or abort it and start it again";
    match Backup::open_own(env, target, key, database, &wish.ranges).await {
        Ok(backup) if crate::names::hex(&backup.id) == known => Ok(backup),
        Ok(_) => {
            let detail =
                format!("{url} holds another backup than the backup {tag} began there; {advice}");
            Err(Error::client_invalid_operation().with_detail(detail))
        }
        Err(error) if error == Error::file_not_found() => {
            let detail =
                format!("the backup that {tag} began in {url} is no longer there; {advice}");
            Err(error.with_detail(detail))
        }
        Err(error) => Err(error),
    }
}

/// The stream of a tag; another one after each time that it was lost.
fn stream_name(tag: &str, done: &Value) -> String {
    let broken = done["broken"].as_u64().unwrap_or_default();
    format!("\u{0}backup/{tag}/{}/{broken}", done["uid"].as_str().unwrap_or_default())
}

/// What of the ranges a stream is registered for: one of Plinth's that has all normal keys has time
/// series and tenants by itself.
fn streamed(ranges: &[KeyRange]) -> Vec<KeyRange> {
    ranges.iter().filter(|range| range.end[..] <= *system::NORMAL_END).cloned().collect()
}

/// Notes what has become of the backup, and has its stream go, both or neither: whoever found the
/// one without the other would take a backup that ended well for one whose stream somebody removed.
async fn let_go(shared: &Shared, tag: &str, stream: &str, done: &Value) -> Result<()> {
    fenced(&shared.db, shared.id, |tr| async move {
        tr.remove_changes(stream).await?;
        set_progress(&tr, tag, done);
        Ok(())
    })
    .await
}

async fn end(shared: &Shared, tag: &str, stream: &str, done: &mut Value, how: &str) -> Result<()> {
    let mut ended = done.clone();
    ended["ended"] = how.into();
    ended["error"] = Value::Null;
    let_go(shared, tag, stream, &ended).await?;
    *done = ended;
    tracing::info!(tag, how, "a backup has ended");
    Ok(())
}

/// The database let go of what had not been saved: another stream, and another snapshot.
async fn broken(
    shared: &Shared,
    tag: &str,
    stream: &str,
    done: &mut Value,
    error: &Error,
) -> Result<()> {
    tracing::error!(
        tag,
        error = %error,
        "a backup is broken: the database let go of what had not been saved; a new snapshot begins"
    );
    let mut next = done.clone();
    next["broken"] = (done["broken"].as_u64().unwrap_or_default() + 1).into();
    (next["restorable_from"], next["snapshot_begun"], next["stream"]) =
        (Value::Null, Value::Null, Value::Null);
    next["error"] = error.to_string().into();
    let_go(shared, tag, stream, &next).await?;
    *done = next;
    Ok(())
}

/// A snapshot that is being taken.
struct Taking {
    /// When it was begun, in seconds since 1970.
    begun: u64,
    stop: Arc<AtomicBool>,
    task: Task,
    taken: Arc<Mutex<Option<Result<SnapshotReport>>>>,
}

impl Drop for Taking {
    /// Whoever took it may have been given up.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// The times that are noted with their versions.
#[derive(Default)]
struct Times {
    /// Those whose versions the stream has not come to yet.
    waiting: VecDeque<Moment>,
    sampled: Duration,
    last: u64,
}

/// How far it is with the files of the log.
struct Puts {
    /// When the one was begun that is being made.
    begun: Duration,
    /// When progress was noted.
    noted: Duration,
    /// Those that were put.
    files: u64,
}

struct Writer<'t> {
    shared: &'t Shared,
    tag: &'t str,
    orders: &'t Arc<Orders>,
    backup: Backup,
    lease: Lease,
    consumer: ChangeConsumer,
    log: LogBuilder,
    /// The stream was read up to here.
    reached: Version,
    times: Times,
    puts: Puts,
    superseded: Superseded,
    snapshot: Option<Taking>,
}

impl Writer<'_> {
    /// Goes on until the backup is to end, and says how it did.
    async fn go_on(&mut self, done: &mut Value) -> Result<&'static str> {
        loop {
            if self.orders.is_over() {
                return Err(Error::operation_cancelled());
            }
            self.lease.renew().await?;
            let wish = self.orders.wish()?;
            match self.orders.state() {
                State::Aborting => return Ok(ABORTED),
                State::Paused => {
                    self.shared.env.sleep(MOMENT).await;
                    continue;
                }
                // There is nothing to end before something can be restored.
                State::Discontinuing if done["restorable_from"].is_i64() => {
                    self.read_upto(read_version(&self.shared.db).await?, done).await?;
                    if !planted!("the last batch of a backup isn't put when it ends") {
                        self.put(done).await?;
                    }
                    return Ok(COMPLETED);
                }
                State::Running | State::Discontinuing => {}
            }
            self.mind_snapshot(&wish, done).await?;
            if wish.stop_when_done && self.snapshot.is_none() && done["restorable_from"].is_i64() {
                return Ok(COMPLETED);
            }
            self.sample().await?;
            self.read().await?;
            match self.is_due() {
                true => self.put(done).await?,
                false => self.note_nothing(done).await?,
            }
        }
    }

    fn is_due(&self) -> bool {
        let age = self.shared.env.now().saturating_sub(self.puts.begun);
        let latest = if self.log.is_empty() { IDLE } else { LATEST };
        age >= latest || self.log.bytes() >= FILE_BYTES
    }

    /// Notes the time, and the newest version then.
    async fn sample(&mut self) -> Result<()> {
        let now = self.shared.env.now();
        if now.saturating_sub(self.times.sampled) < MOMENT {
            return Ok(());
        }
        self.times.sampled = now;
        // A clock that was set back must not have versions and times disagree.
        let time = (self.shared.env.wall_clock().as_millis() as u64).max(self.times.last);
        self.times.last = time;
        let version = read_version(&self.shared.db).await?;
        self.times.waiting.push_back(Moment { time, version });
        Ok(())
    }

    async fn read(&mut self) -> Result<()> {
        let next = race(self.consumer.next(), self.shared.env.sleep(PATIENCE)).await;
        let changes = match next {
            First::Left(changes) => changes?,
            First::Right(()) => return Ok(()),
        };
        for batch in &changes.batches {
            self.log.push(batch.version, batch.mutations.iter());
        }
        self.reached = self.reached.max(changes.upto);
        while let Some(moment) =
            self.times.waiting.pop_front_if(|moment| moment.version <= self.reached)
        {
            if moment.version >= self.log.from() {
                self.log.moment(moment);
            }
        }
        Ok(())
    }

    /// Reads, and puts what is due, until everything up to this version has been read.
    ///
    /// # Errors
    /// `operation_cancelled` if the agent stops before.
    async fn read_upto(&mut self, version: Version, done: &mut Value) -> Result<()> {
        // A version that was given out need not have an entry: one that is committed behind it has.
        fenced(&self.shared.db, self.shared.id, |tr| async move {
            tr.set(b"\xff\x02/plinth/backup/beat", []);
            Ok(())
        })
        .await?;
        while self.reached < version {
            if self.orders.is_over() {
                return Err(Error::operation_cancelled());
            }
            self.lease.renew().await?;
            self.read().await?;
            if self.is_due() && self.reached < version {
                self.put(done).await?;
            }
        }
        Ok(())
    }

    /// Puts the file that is being made, notes it, and acknowledges what is in it.
    async fn put(&mut self, done: &mut Value) -> Result<()> {
        self.puts.begun = self.shared.env.now();
        let upto = self.reached;
        if upto < self.log.from() {
            return self.note(done).await;
        }
        let begin = upto + 1 + Version::from(planted!("a file of the log begins one version late"));
        let log = std::mem::replace(&mut self.log, LogBuilder::new(begin));
        // If that fails, what was in it comes again, from what was acknowledged on.
        let len = self.backup.put_log(log, upto + 1).await?;
        // Where the place has become another one it went to nowhere, and must not be acknowledged.
        self.backup.check_is_there().await?;
        self.puts.files += 1;
        done["saved"] = upto.into();
        done["log_bytes"] = (done["log_bytes"].as_u64().unwrap_or_default() + len).into();
        done["error"] = Value::Null;
        self.note(done).await?;
        self.consumer.acknowledge_upto(upto).await?;
        if self.puts.files.is_multiple_of(MERGE_FILES) {
            self.lease.renew().await?;
            self.merge(upto, done).await;
        }
        Ok(())
    }

    /// Makes small files larger, and notes which of them can't be read: nothing else waits for it.
    async fn merge(&mut self, upto: Version, done: &mut Value) {
        // Of a target that fails for a while more is told by whatever else needs it.
        if let Err(error) = self.superseded.merge_logs(&self.backup, upto).await {
            tracing::warn!(tag = self.tag, error = %error, "files of a backup's log can't be merged, and stay as they are");
        }
        let unread = self.superseded.unread().iter().take(MOST_UNREAD);
        done["unread"] = unread.map(|(name, why)| (name.as_str(), why.as_str())).collect();
    }

    /// Writes progress, which is a commit: an idle database's stream goes on behind it.
    async fn note(&mut self, done: &Value) -> Result<()> {
        self.puts.noted = self.shared.env.now();
        write_progress(&self.shared.db, self.shared.id, self.tag, done).await
    }

    /// Notes each second that nothing was committed behind what is saved, if that is so.
    async fn note_nothing(&mut self, done: &mut Value) -> Result<()> {
        // A stream that was registered anew begins behind a gap, of which nobody knows that it is
        // empty.
        let follows = complete(done).is_some_and(|complete| self.log.from() <= complete + 1);
        let is_more = complete(done) < Some(self.reached);
        let age = self.shared.env.now().saturating_sub(self.puts.noted);
        if !follows || !is_more || !self.log.is_empty() || age < NOTHING {
            return Ok(());
        }
        done["nothing_until"] = self.reached.into();
        self.note(done).await
    }

    /// Takes a snapshot when one is due, and notes one that has been taken.
    async fn mind_snapshot(&mut self, wish: &Wish, done: &mut Value) -> Result<()> {
        if let Some(snapshot) = &self.snapshot {
            let (Some(taken), begun) = (lock(&snapshot.taken).take(), snapshot.begun) else {
                return Ok(());
            };
            self.snapshot = None;
            let stored = match taken {
                Ok(report) => report,
                Err(error) => return self.note_failed_snapshot(&error, done).await,
            };
            done["snapshot_begun"] = begun.into();
            (done["snapshot_failures"], done["snapshot_error"]) = (Value::Null, Value::Null);
            // It can be restored from once the log reaches from before it to behind it, or is not
            // needed.
            done["restorable_from"] = stored.version.into();
            done["snapshots"] = (done["snapshots"].as_u64().unwrap_or_default() + 1).into();
            let bytes = done["snapshot_bytes"].as_u64().unwrap_or_default() + stored.stored;
            done["snapshot_bytes"] = bytes.into();
            tracing::info!(
                tag = self.tag,
                version = stored.version,
                rows = stored.rows,
                "a snapshot is whole"
            );
            return self.note(done).await;
        }
        let now = self.shared.env.wall_clock().as_secs();
        if !is_snapshot_due(done, wish.snapshot_interval.as_secs(), now) {
            return Ok(());
        }
        let (stop, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        // Two workers leave clients their processors.
        let settings = SnapshotSettings {
            ranges: wish.ranges.clone(),
            workers: 2,
            stop: stop.clone(),
            ..SnapshotSettings::default()
        };
        let (backup, db, told) = (self.backup.clone(), self.shared.db.clone(), taken.clone());
        let task = self.shared.env.spawn("backup-snapshot", async move {
            let report = take_snapshot(&backup, &db, &settings).await;
            *lock(&told) = Some(report);
        });
        self.snapshot = Some(Taking { begun: now, stop, task, taken });
        Ok(())
    }

    /// A snapshot that failed is tried again, later each time; the log goes on meanwhile.
    async fn note_failed_snapshot(&mut self, error: &Error, done: &mut Value) -> Result<()> {
        tracing::warn!(tag = self.tag, error = %error, "a snapshot failed, and is tried again");
        done["snapshot_failures"] =
            (done["snapshot_failures"].as_u64().unwrap_or_default() + 1).into();
        done["snapshot_failed"] = self.shared.env.wall_clock().as_secs().into();
        done["snapshot_error"] = error.to_string().into();
        self.note(done).await
    }
}

/// Whether a snapshot is to be begun at a second: there is none yet, or the last whole one was
/// begun long enough ago; not too soon behind one that failed.
fn is_snapshot_due(done: &Value, interval: u64, now: u64) -> bool {
    let failures = done["snapshot_failures"].as_u64().unwrap_or_default();
    let pause = 1_u64
        .checked_shl(failures.min(32) as u32)
        .unwrap_or(u64::MAX)
        .min(LATEST_SNAPSHOT)
        .min(interval);
    let is_too_soon = done["snapshot_failed"]
        .as_u64()
        .is_some_and(|failed| failures > 0 && (failed..failed + pause).contains(&now));
    let begun = done["snapshot_begun"].as_u64().filter(|_| done["restorable_from"].is_i64());
    !is_too_soon && begun.is_none_or(|begun| now.saturating_sub(begun) >= interval)
}
