//! Into a database that is running: by transactions, under a lock that keeps everybody else out
//! until it is whole: of the ranges that are restored, or of the database, if that is all of it.
//!
//! ```text
//!   \xff/plinth/rangeLocks                 the ranges, as the restore's
//!   \xff/dbLocked                          or the restore's id
//!   \xff\x02/plinth/restore/head           format, the restore's id, the run's id, what is restored as JSON
//!   \xff\x02/plinth/restore/file/NAME      how far a file of rows is: the key behind the last row
//!   \xff\x02/plinth/restore/log            how far the log is: version, mutations of it
//!   \xff\x02/plinth/restored               how the last one ended: its id, 1 if it is whole, 0 if it was given up
//! ```
//! Rows and how far they are come in one transaction, and so do changes of the log, of which
//! additions may not come twice: the record never lies, and a restore that was interrupted goes on
//! behind it. Each transaction has the head among its read conflicts: a run that another one has
//! taken over from ends. At the end the record and the lock go in one transaction; until then every
//! other client that needs what is locked is told `transaction_rejected_range_locked`, or
//! `database_locked`.

use super::apply::{Place, Sink, apply};
use super::locks::Locks;
use super::read::{count_left_out, read_pieces};
use super::{Choice, Goal, Mapping, Plan, RestoreControl, RestoreReport};
use crate::container::Backup;
use crate::manifest::RowsFile;
use crate::snapshot::lock;
use crate::target::Doing;
use bytes::Bytes;
use plinth_client::{Database, Filling, Retries};
use plinth_types::{
    CommitReply, CommitRequest, Conflicts, Error, KeyRange, KeySelector, KeySpace, MutationList,
    MutationType, RangeList, RangeRead, Result, Version, planted, printable, strinc, system,
};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HEAD: &[u8] = system::RESTORE_HEAD;
const FILES: &[u8] = b"\xff\x02/plinth/restore/file/";
const LOG: &[u8] = b"\xff\x02/plinth/restore/log";
/// All rows of a restore.
const ALL: (&[u8], &[u8]) = (b"\xff\x02/plinth/restore/", b"\xff\x02/plinth/restore0");
/// How the last one ended.
const LAST: &[u8] = b"\xff\x02/plinth/restored";
const FORMAT: u8 = 1;
/// Workers that bring rows in.
const WORKERS: usize = 4;
/// What is read before one begins: its head, the locks, and what else may be filling the database.
const BEGINNING: [&[u8]; 5] =
    [HEAD, Locks::KEYS[0], Locks::KEYS[1], system::MIGRATION_HEAD, system::SECOND_SITE_HEAD];
const PAUSE: Duration = Duration::from_millis(100);
const ATTEMPTS: usize = 300;

/// A restore into a database, for whoever asks how it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restoring {
    /// Its id, as hexadecimal digits.
    pub id: String,
    /// Where the backup is.
    pub url: String,
    /// The version that is restored.
    pub version: Version,
    /// Files of rows that it has, and how many of them are there.
    pub files: (u64, u64),
    /// How far the log is, once all rows are there.
    pub log: Option<Version>,
    /// The ranges, as they are called in the database, in words.
    pub ranges: String,
    /// Whether all of the database is locked for it, and not those ranges alone.
    pub locks_database: bool,
}

/// A restore into a database that is running, which has been begun.
pub struct ServedRestore;

type Id = [u8; 16];

struct Run {
    db: Database,
    id: Id,
    head: Bytes,
}

fn refuse<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::client_invalid_operation().with_detail(what))
}

/// The restore's id, and what it restores.
fn decode_head(head: &[u8]) -> Result<(Id, serde_json::Value)> {
    let id = head.get(1..17).and_then(|id| Id::try_from(id).ok());
    match (head.first(), id, head.get(33..)) {
        (Some(&FORMAT), Some(id), Some(json)) => {
            Ok((id, serde_json::from_slice(json).unwrap_or_default()))
        }
        _ => Err(Error::unsupported_operation().with_detail(
            "the database holds a restore that another version of this program began",
        )),
    }
}

/// Restores into a database that is running. The ranges have to be empty there, and are locked
/// until it is done; of a whole database that is the database.
///
/// A restore of the same version of the same backup that was interrupted goes on.
///
/// # Errors
/// `restore_destination_not_empty`; `database_locked` if somebody else has locked it, or one of the
/// ranges, or a migration into it is unfinished; `client_invalid_operation` if another restore is
/// unfinished, or it is a second site; `operation_cancelled` if it was stopped, or another run took
/// over; `file_corrupt`, `restore_missing_data` and those of target and database. What is locked
/// stays so then.
pub async fn restore_served(
    backup: &Backup,
    plan: &Plan,
    control: &RestoreControl,
    db: &Database,
) -> Result<RestoreReport> {
    let run = Arc::new(Run::begin(backup, plan, db).await?);
    let (rows, bytes) = run.rows(backup, plan, control).await?;
    let from = run.log_place().await?;
    let mut sink = Fenced { run: run.clone() };
    let mutations = apply(backup, plan, control, from, &mut sink).await?;
    run.finish(&renamed(plan), plan.version).await?;
    Ok(RestoreReport { version: plan.version, rows, bytes, mutations })
}

/// Looks whether [`restore_served`] would begin, and changes nothing.
///
/// # Errors
/// As those of [`restore_served`] before it brings anything in.
pub async fn check_served(backup: &Backup, plan: &Plan, db: &Database) -> Result<()> {
    let (version, values) = read_many(db, &BEGINNING).await?;
    let id = taken(&values, version, &record(backup, plan), &renamed(plan), db).await?;
    let mut unused = MutationList::new();
    Locks::of(&values[1..]).take(id.unwrap_or_default(), &renamed(plan), &mut unused)
}

/// The id of the restore that goes on, by the head's value; `None` where one begins in empty
/// ranges. Values are those of [`BEGINNING`].
///
/// A second site gets what its first one has: what is restored into it besides would be there for
/// ever, and nobody would see it. A migration takes what it finds for its own.
async fn taken(
    values: &[Option<Bytes>],
    version: Version,
    fields: &serde_json::Value,
    ranges: &[KeyRange],
    db: &Database,
) -> Result<Option<Id>> {
    let [head, _, _, migration, second] = values else {
        return Err(Error::internal_error().with_detail("what a restore begins by wasn't read"));
    };
    if second.is_some() {
        return refuse(
            "the database is a second site, which has what its first one has: restore into that one, or make this one free \
             (plinth dr abort)",
        );
    }
    if migration.is_some() {
        return Err(Filling::Migration.refusal("the database"));
    }
    let Some(head) = head else {
        return check_empty(db, version, ranges).await.map(|()| None);
    };
    let (before, other) = decode_head(head)?;
    if !is_same(&other, fields) {
        return refuse(another(&other));
    }
    Ok(Some(before))
}

/// What a database has noted of a restore that isn't done.
pub struct Unfinished(serde_json::Value);

/// The restore that a database holds unfinished, if there is one.
///
/// # Errors
/// Those of the database.
pub async fn unfinished(db: &Database) -> Result<Option<Unfinished>> {
    let Some(head) = read_one(db, HEAD).await?.1 else { return Ok(None) };
    Ok(Some(Unfinished(decode_head(&head)?.1)))
}

impl Unfinished {
    /// The plan by which it goes on, if it is what is asked for: what is the newest now may be
    /// another version, and begin with another snapshot.
    ///
    /// # Errors
    /// Those of [`Plan::make_from`]: it is this backup's, and can't go on.
    pub async fn plan(
        &self,
        backup: &Backup,
        goal: Goal,
        mapping: &Mapping,
    ) -> Result<Option<Plan>> {
        let Self(noted) = self;
        if noted["backup"] != crate::names::hex(&backup.id) {
            return Ok(None);
        }
        let version = noted["version"].as_i64().unwrap_or_default();
        let is_asked_for = match goal {
            Goal::Newest => true,
            Goal::Version(asked) => asked == version,
            Goal::Time(_) => {
                let asked = Plan::make_from(backup, goal, mapping.clone(), &Choice::Latest).await?;
                asked.version == version
            }
        };
        if !is_asked_for {
            return Ok(None);
        }
        let choice = Choice::Directory(noted["snapshot"].as_str().unwrap_or_default().to_owned());
        let plan =
            Plan::make_from(backup, Goal::Version(version), mapping.clone(), &choice).await?;
        Ok(Some(plan).filter(|plan| is_same(&record(backup, plan), noted)))
    }
}

/// The ranges as they are called in the database.
fn renamed(plan: &Plan) -> Vec<KeyRange> {
    let rename = |range: &KeyRange| KeyRange {
        begin: plan.mapping.key(&range.begin),
        end: plan.mapping.end(&range.end),
    };
    plan.ranges.iter().map(rename).collect()
}

/// The restore that a database is being filled by, if any.
///
/// # Errors
/// Those of the database.
pub async fn status(db: &Database) -> Result<Option<Restoring>> {
    let (version, values) = read_many(db, &[HEAD, Locks::KEYS[0]]).await?;
    let Some(head) = &values[0] else { return Ok(None) };
    let (id, fields) = decode_head(head)?;
    let lock = values[1].as_ref().and_then(|lock| lock.last_chunk::<16>());
    let done = rows(db, version, FILES, &strinc(FILES).unwrap_or_default()).await?;
    let finished = done.iter().filter(|(_, value)| value.first() == Some(&1)).count() as u64;
    let log = read_one(db, LOG).await?.1.and_then(|value| decode_place(&value));
    Ok(Some(Restoring {
        id: crate::names::hex(&id),
        url: fields["url"].as_str().unwrap_or_default().to_owned(),
        version: fields["version"].as_i64().unwrap_or_default(),
        ranges: crate::ranges::show_ranges(&ranges_in(&fields)),
        files: (fields["files"].as_u64().unwrap_or_default(), finished),
        log: log.map(|place| place.version),
        locks_database: lock == Some(&id),
    }))
}

/// Whether a restore that was under way has come to its end, by its id: `None` if that isn't known,
/// since others have come behind it.
///
/// # Errors
/// Those of the database.
pub async fn is_whole(db: &Database, id: &str) -> Result<Option<bool>> {
    let last = read_one(db, LAST).await?.1;
    let last =
        last.and_then(|last| last.split_last().map(|(how, of)| (*how == 1, crate::names::hex(of))));
    Ok(last.filter(|(_, of)| of == id).map(|(is_whole, _)| is_whole))
}

/// Gives a restore up: clears what it has brought in, and unlocks it. Gives false if there is none.
///
/// # Errors
/// `database_locked` if somebody else has locked it; those of the database.
pub async fn abort(db: &Database) -> Result<bool> {
    let (_, head) = read_one(db, HEAD).await?;
    let Some(head) = head else { return Ok(false) };
    let (id, fields) = decode_head(&head)?;
    let mut new = vec![FORMAT];
    let mut run = [0; 16];
    db.endpoint().env().fill_random(&mut run);
    new.extend_from_slice(&id);
    new.extend_from_slice(&run);
    new.extend_from_slice(fields.to_string().as_bytes());
    let taken = Run { db: db.clone(), id, head: head.clone() };
    let mut mutations = MutationList::new();
    mutations.push(MutationType::Set, HEAD, &new);
    taken.commit(mutations, None, &[]).await?;
    let taken = Run { db: db.clone(), id, head: new.into() };
    let ranges = ranges_in(&fields);
    let mut clears = MutationList::new();
    for range in &ranges {
        clears.push(MutationType::ClearRange, &range.begin, &range.end);
    }
    taken.finish_with(clears, &ranges, None).await?;
    Ok(true)
}

/// What is written of a restore.
fn record(backup: &Backup, plan: &Plan) -> serde_json::Value {
    let shown = |ranges: &[KeyRange]| -> Vec<_> {
        ranges.iter().map(|range| [printable(&range.begin), printable(&range.end)]).collect()
    };
    serde_json::json!({
        "url": backup.url(),
        "backup": crate::names::hex(&backup.id),
        "version": plan.version,
        "snapshot": plan.snapshot.directory,
        "files": plan.files.len(),
        "ranges": shown(&renamed(plan)),
        // Two parts of a backup may be restored under the same names.
        "of": shown(&plan.ranges),
    })
}

/// Whether a record is of this very restore, from wherever the backup is reached.
fn is_same(one: &serde_json::Value, other: &serde_json::Value) -> bool {
    let names = ["backup", "version", "snapshot", "files", "ranges", "of"];
    names.iter().all(|name| one[*name] == other[*name])
}

/// What is said to whoever would begin another one.
fn another(fields: &serde_json::Value) -> String {
    format!(
        "the database holds an unfinished restore of version {} of {} from {}; finish it by the same command, with the same -k and \
         prefixes, or give it up: plinth restore abort",
        fields["version"],
        crate::ranges::show_ranges(&ranges_in(fields)),
        fields["url"].as_str().unwrap_or_default()
    )
}

/// The ranges of a record, as they are called in the database.
fn ranges_in(fields: &serde_json::Value) -> Vec<KeyRange> {
    let bound = |bound: &serde_json::Value| {
        printable::parse(bound.as_str().unwrap_or_default()).unwrap_or_default()
    };
    let ranges = fields["ranges"].as_array().into_iter().flatten();
    ranges.map(|range| KeyRange::new(bound(&range[0]), bound(&range[1]))).collect()
}

fn encode_place(place: Place) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&place.version.to_le_bytes());
    bytes[8..].copy_from_slice(&place.mutations.to_le_bytes());
    bytes
}

fn decode_place(value: &[u8]) -> Option<Place> {
    let (version, mutations) = value.split_first_chunk::<8>()?;
    let mutations = u64::from_le_bytes(mutations.try_into().ok()?);
    Some(Place { version: Version::from_le_bytes(*version), mutations })
}

/// Reads a key, whether the database is locked or not, and says at which version.
async fn read_one(db: &Database, key: &[u8]) -> Result<(Version, Option<Bytes>)> {
    let (version, mut values) = read_many(db, &[key]).await?;
    Ok((version, values.pop().flatten()))
}

async fn read_many(db: &Database, keys: &[&[u8]]) -> Result<(Version, Vec<Option<Bytes>>)> {
    Retries { attempts: ATTEMPTS, pause: PAUSE }.read(db, keys).await
}

/// All rows of a small range.
async fn rows(
    db: &Database,
    version: Version,
    begin: &[u8],
    end: &[u8],
) -> Result<Vec<(Bytes, Bytes)>> {
    let (mut found, mut reached) = (Vec::new(), Bytes::copy_from_slice(begin));
    loop {
        let read = RangeRead {
            begin: KeySelector::first_greater_or_equal(reached.clone()),
            end: KeySelector::first_greater_or_equal(Bytes::copy_from_slice(end)),
            limit: usize::MAX,
            target_bytes: 1 << 20,
            reverse: false,
        };
        let result = db.endpoint().get_range(version, KeySpace::System, &read).await?;
        found.extend(result.rows.key_values().map(|row| (row.key, row.value)));
        match result.rows.last().filter(|_| result.more) {
            Some((key, _)) => reached = plinth_types::key_after(key),
            None => return Ok(found),
        }
    }
}

impl Run {
    /// Takes the database: an empty one, or one that an earlier run of the same restore has left.
    async fn begin(backup: &Backup, plan: &Plan, db: &Database) -> Result<Self> {
        let ranges = renamed(plan);
        let fields = record(backup, plan);
        let env = db.endpoint().env();
        let (mut id, mut run) = ([0; 16], [0; 16]);
        env.fill_random(&mut id);
        env.fill_random(&mut run);
        let mut attempts = ATTEMPTS;
        loop {
            let (version, values) = read_many(db, &BEGINNING).await?;
            let mut mutations = MutationList::new();
            id = taken(&values, version, &fields, &ranges, db).await?.unwrap_or(id);
            Locks::of(&values[1..]).take(id, &ranges, &mut mutations)?;
            let new: Bytes =
                [&[FORMAT][..], &id, &run, fields.to_string().as_bytes()].concat().into();
            mutations.push(MutationType::Set, HEAD, &new);
            let mut reads = RangeList::new();
            BEGINNING.iter().for_each(|key| reads.push_single(key));
            ranges.iter().for_each(|range| reads.push(&range.begin, &range.end));
            let mut writes = RangeList::new();
            Locks::KEYS.iter().for_each(|key| writes.push_single(key));
            writes.push_single(HEAD);
            let conflicts = Conflicts { read_version: version, reads, writes };
            let request = CommitRequest {
                conflicts,
                mutations,
                lock_aware: true,
                ..CommitRequest::default()
            };
            match db.endpoint().commit(request).await {
                Ok(CommitReply::Committed { .. }) => {
                    return Ok(Self { db: db.clone(), id, head: new });
                }
                Ok(CommitReply::Conflict { .. }) => {}
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error),
            }
            attempts = attempts.checked_sub(1).ok_or_else(Error::timed_out)?;
            env.sleep(PAUSE).await;
        }
    }

    /// Commits, if this run still is the one that restores. With `record`, a key and its value,
    /// what an earlier attempt committed is not committed again.
    async fn commit(
        &self,
        mut mutations: MutationList,
        record: Option<(&[u8], &[u8])>,
        written: &[KeyRange],
    ) -> Result<()> {
        if let Some((key, value)) = record {
            mutations.push(MutationType::Set, key, value);
        }
        let env = self.db.endpoint().env();
        let mut attempts = ATTEMPTS;
        loop {
            let keys = [HEAD, record.map_or(HEAD, |(key, _)| key)];
            let (version, values) = read_many(&self.db, &keys).await?;
            if record.is_some_and(|(_, value)| values[1].as_deref() == Some(value)) {
                return Ok(());
            }
            if values[0].as_ref() != Some(&self.head) {
                let detail = match values[0] {
                    Some(_) => "another run of this restore has taken over",
                    None => "the restore was given up, or another run has brought it to its end",
                };
                return Err(Error::operation_cancelled().with_detail(detail));
            }
            let (mut reads, mut writes) = (RangeList::new(), RangeList::new());
            reads.push_single(HEAD);
            if let Some((key, _)) = record {
                reads.push_single(key);
                writes.push_single(key);
            } else {
                writes.push_single(HEAD);
            }
            written.iter().for_each(|range| writes.push(&range.begin, &range.end));
            let conflicts = Conflicts { read_version: version, reads, writes };
            let request = CommitRequest {
                conflicts,
                mutations: mutations.clone(),
                lock_aware: true,
                ..CommitRequest::default()
            };
            match self.db.endpoint().commit(request).await {
                Ok(CommitReply::Committed { .. }) => return Ok(()),
                Ok(CommitReply::Conflict { .. }) => {}
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error),
            }
            attempts = attempts.checked_sub(1).ok_or_else(Error::timed_out)?;
            env.sleep(PAUSE).await;
        }
    }

    /// Brings all rows in, several files at a time. Gives how many there are then, and their bytes.
    async fn rows(
        self: &Arc<Self>,
        backup: &Backup,
        plan: &Plan,
        control: &RestoreControl,
    ) -> Result<(u64, u64)> {
        let waiting: Vec<RowsFile> = plan.files.iter().rev().cloned().collect();
        let shared = Arc::new((Mutex::new(waiting), Mutex::new(Ok((0, 0)))));
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                let (run, shared) = (self.clone(), shared.clone());
                let (backup, plan, control) = (backup.clone(), plan.clone(), control.clone());
                backup.env.clone().spawn("restore", async move {
                    loop {
                        let Some(file) = lock(&shared.0).pop() else { return };
                        let brought = run.file(&backup, &plan, &control, &file).await;
                        let mut sum = lock(&shared.1);
                        match (&mut *sum, brought) {
                            (Ok((rows, bytes)), Ok((more, their))) => {
                                (*rows, *bytes) = (*rows + more, *bytes + their)
                            }
                            (Ok(_), Err(error)) => {
                                *sum = Err(error);
                                lock(&shared.0).clear();
                            }
                            (Err(_), _) => {}
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.await?;
        }
        lock(&shared.1).clone()
    }

    /// Brings the rows of a file in. Gives how many there are then, those that were there before
    /// among them, and their bytes.
    async fn file(
        &self,
        backup: &Backup,
        plan: &Plan,
        control: &RestoreControl,
        file: &RowsFile,
    ) -> Result<(u64, u64)> {
        let key = [FILES, file.name.as_bytes()].concat();
        let before = read_one(&self.db, &key).await?.1;
        // One that the ranges cut, of which there are two for each range at most, is read to count
        // its rows.
        if before.as_ref().is_some_and(|value| value.first() == Some(&1)) && plan.has_whole(file) {
            control.restored.fetch_add(file.bytes, Ordering::Relaxed);
            return Ok((file.rows, file.bytes));
        }
        let pieces = read_pieces(backup, file, &plan.ranges).await?;
        count_left_out(control, file, &pieces);
        let (count, mut rows, mut bytes) = (pieces.len(), 0, 0);
        for (n, piece) in pieces.into_iter().enumerate() {
            if control.stop.load(Ordering::Relaxed) {
                return Err(Error::operation_cancelled());
            }
            (rows, bytes) = (rows + piece.rows.len() as u64, bytes + piece.rows.data_len() as u64);
            control.restored.fetch_add(piece.rows.data_len() as u64, Ordering::Relaxed);
            // The first byte says whether that is all of the file.
            let record = [&[u8::from(n + 1 == count)][..], &piece.range.end].concat();
            if before.as_ref().is_some_and(|before| before[1..] >= record[1..]) {
                continue;
            }
            let mut mutations = MutationList::new();
            for (row, value) in piece.rows.iter() {
                mutations.push(MutationType::Set, &plan.mapping.key(row), value);
            }
            self.commit(mutations, Some((&key, &record)), &[]).await?;
        }
        Ok((rows, bytes))
    }

    async fn log_place(&self) -> Result<Place> {
        if planted!("a restore that goes on applies its log from the start") {
            return Ok(Place::default());
        }
        let value = read_one(&self.db, LOG).await?.1;
        Ok(value.and_then(|value| decode_place(&value)).unwrap_or_default())
    }

    /// Removes the record and the lock of what has the rows of this version. Whoever read before
    /// the restore began conflicts, and whoever caches a layer's metadata reads it again.
    async fn finish(&self, ranges: &[KeyRange], version: Version) -> Result<()> {
        let mut mutations = MutationList::new();
        mutations.push(MutationType::SetVersionstampedValue, system::METADATA_VERSION, &[0; 14]);
        self.finish_with(mutations, ranges, Some(version)).await
    }

    async fn finish_with(
        &self,
        mut mutations: MutationList,
        ranges: &[KeyRange],
        whole: Option<Version>,
    ) -> Result<()> {
        mutations.push(MutationType::ClearRange, ALL.0, ALL.1);
        let last = [&self.id[..], &[u8::from(whole.is_some())]].concat();
        mutations.push(MutationType::Set, LAST, &last);
        let (now, values) = read_many(&self.db, &Locks::KEYS).await?;
        Locks::of(&values).give_back(self.id, &mut mutations);
        // Versionstamps of what was restored come before all that the database gives from now on.
        if let Some(version) = whole.filter(|version| *version >= now) {
            let beyond = version.saturating_add(1).to_le_bytes();
            mutations.push(MutationType::Set, system::MIN_REQUIRED_COMMIT_VERSION, &beyond);
        }
        let written = [ranges, &[KeyRange::single(system::METADATA_VERSION)]].concat();
        match self.commit(mutations, None, &written).await {
            // The answer to the commit that did it may have been lost. Somebody else may have given
            // the restore up meanwhile: then there is nothing where all of it was to be.
            Err(error) if error == Error::operation_cancelled() => {
                let (_, values) = read_many(&self.db, &[HEAD, LAST]).await?;
                match values[0].is_none() && values[1].as_deref() == Some(&last[..]) {
                    true => Ok(()),
                    false => Err(error),
                }
            }
            result => result,
        }
    }
}

/// # Errors
/// `restore_destination_not_empty`, naming a key.
async fn check_empty(db: &Database, version: Version, ranges: &[KeyRange]) -> Result<()> {
    for range in ranges {
        let read = RangeRead {
            begin: KeySelector::first_greater_or_equal(range.begin.clone()),
            end: KeySelector::first_greater_or_equal(range.end.clone()),
            limit: 2,
            target_bytes: 1 << 10,
            reverse: false,
        };
        let found = db.endpoint().get_range(version, KeySpace::System, &read).await?;
        // The number of the last tenant stays when the last one was deleted.
        let is_left = |key: &[u8]| key == system::TENANT_LAST_ID && !found.more;
        if let Some((key, _)) = found.rows.iter().find(|(key, _)| !is_left(key)) {
            let help = match (system::SERIES_PREFIX..system::SERIES_END).contains(&key) {
                true => {
                    "it is of the time series: start the server without its listeners of series (--series-*) until the restore has ended"
                }
                false => "clear the ranges first, or take an empty database",
            };
            let detail = format!(
                "the database has the key {} where rows are to be restored; {help}",
                printable(key)
            );
            return Err(Error::restore_destination_not_empty().with_detail(detail));
        }
    }
    Ok(())
}

/// Commits the log, under the fence of the run.
struct Fenced {
    run: Arc<Run>,
}

impl Sink for Fenced {
    fn commit(&mut self, mutations: MutationList, reached: Place) -> Doing<'_, ()> {
        Box::pin(async move {
            let value = encode_place(reached);
            self.run.commit(mutations, Some((LOG, &value)), &[]).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_client::TransactionOption;
    use plinth_env::block_on;

    /// A run that has brought everything in.
    async fn begun(db: &Database) -> Run {
        let head = [&[FORMAT][..], &[1; 16], &[2; 16], br#"{"ranges":[]}"#].concat();
        db.transact(|tr| {
            let head = head.clone();
            async move {
                tr.set_option(TransactionOption::AccessSystemKeys)?;
                tr.set(HEAD, head);
                Ok(())
            }
        })
        .await
        .unwrap();
        Run { db: db.clone(), id: [1; 16], head: head.into() }
    }

    /// It said that everything was restored, and there was nothing.
    #[test]
    fn a_restore_that_was_given_up_before_its_last_step_is_not_done() {
        let db = plinth::Local::in_memory().unwrap().into_database();
        block_on(async {
            let run = begun(&db).await;
            assert_eq!(abort(&db).await, Ok(true));
            let error = run.finish(&[], 1).await.unwrap_err();
            assert!(error.to_string().contains("given up"), "{error}");
            assert_eq!(is_whole(&db, &crate::names::hex(&run.id)).await, Ok(Some(false)));
            // One whose last answer was lost is, and tries again.
            let run = begun(&db).await;
            assert_eq!(run.finish(&[], 1).await, Ok(()));
            assert_eq!(run.finish(&[], 1).await, Ok(()));
            assert_eq!(is_whole(&db, &crate::names::hex(&run.id)).await, Ok(Some(true)));
        });
    }
}
