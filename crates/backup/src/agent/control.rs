//! What people ask of continuous backups: begin, change, pause, end; and what is answered about
//! them.
//!
//! Nothing is done here: a row says what is wanted, and the agent, wherever it runs, sees it within
//! a second.

use super::rows::{TagRows, clear_progress, complete, for_system, parse, read_all, tag_key};
use crate::ranges::{everything, json_of_ranges, meant, ranges_of_json};
use crate::target::redacted;
use plinth_client::{Database, Filling, Transaction};
use plinth_types::{Error, KeyRange, Result, Version};
use serde_json::{Value, json};
use std::time::Duration;

/// The tag of those who name none.
pub const DEFAULT_TAG: &str = "default";
/// How a backup has ended that was to end at once.
pub const ABORTED: &str = "aborted";

/// What is wanted of a continuous backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wish {
    /// Where it goes, as the node that does it understands that. May have secrets in it: see
    /// [`redacted`].
    pub url: String,
    /// What is backed up.
    pub ranges: Vec<KeyRange>,
    /// How often a snapshot is begun.
    pub snapshot_interval: Duration,
    /// Bytes of the log that the database may keep while the target can't be reached; `None`: a
    /// share of the free disk.
    pub log_bytes: Option<u64>,
    /// A file with the key, on the node that does it.
    pub key_file: Option<String>,
    /// End when the first snapshot is there.
    pub stop_when_done: bool,
}

impl Wish {
    /// Everything, to this URL, with a snapshot each ten days.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ranges: everything(),
            snapshot_interval: Duration::from_secs(864_000),
            log_bytes: None,
            key_file: None,
            stop_when_done: false,
        }
    }

    fn to_json(&self, uid: u64) -> Value {
        json!({
            "format": 1,
            "uid": format!("{uid:016x}"),
            "state": State::Running.name(),
            "url": self.url,
            "ranges": json_of_ranges(&self.ranges),
            "snapshot_interval_seconds": self.snapshot_interval.as_secs(),
            "log_bytes": self.log_bytes,
            "key_file": self.key_file,
            "stop_when_done": self.stop_when_done,
        })
    }

    pub(super) fn of_json(value: &Value) -> Result<Self> {
        let wrong = || {
            Error::unsupported_operation()
                .with_detail("the backup was begun by another version of this program")
        };
        if value["format"] != 1 {
            return Err(wrong());
        }
        let ranges = ranges_of_json(&value["ranges"]).ok_or_else(wrong)?;
        Ok(Self {
            url: value["url"].as_str().ok_or_else(wrong)?.to_owned(),
            ranges: meant(&ranges),
            snapshot_interval: Duration::from_secs(
                value["snapshot_interval_seconds"].as_u64().unwrap_or(864_000),
            ),
            log_bytes: value["log_bytes"].as_u64(),
            key_file: value["key_file"].as_str().map(str::to_owned),
            stop_when_done: value["stop_when_done"] == true,
        })
    }
}

/// What is to become of a backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It runs on.
    Running,
    /// It stands still, and the database keeps the log for it.
    Paused,
    /// It ends when it can be restored and everything up to now is saved.
    Discontinuing,
    /// It ends at once.
    Aborting,
}

impl State {
    const ALL: [Self; 4] = [Self::Running, Self::Paused, Self::Discontinuing, Self::Aborting];

    fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Discontinuing => "discontinuing",
            Self::Aborting => "aborting",
        }
    }

    pub(super) fn of(value: &Value) -> Self {
        let name = value["state"].as_str().unwrap_or_default();
        Self::ALL.into_iter().find(|state| state.name() == name).unwrap_or(Self::Paused)
    }
}

/// How a continuous backup is.
#[derive(Clone, PartialEq, Debug)]
pub struct TagStatus {
    /// Its tag.
    pub tag: String,
    /// What it was asked for.
    pub wish: Wish,
    /// What is to become of it.
    pub state: State,
    /// How it ended, if it has.
    pub ended: Option<String>,
    /// Everything up to this version is saved; `None`: nothing is yet.
    pub saved: Option<Version>,
    /// Up to this version nothing is missing: between `saved` and here nothing was committed.
    pub complete: Option<Version>,
    /// From a snapshot on it can be restored.
    pub is_restorable: bool,
    /// By how many seconds it is behind the database, counted from `complete`, and before that from
    /// when it was begun.
    pub behind_seconds: f64,
    /// By how many versions.
    pub behind_versions: Version,
    /// When the last whole snapshot was begun, in seconds since 1970.
    pub last_snapshot: Option<u64>,
    /// Bytes of log files that were put.
    pub log_bytes: u64,
    /// Bytes of snapshot files that were put.
    pub snapshot_bytes: u64,
    /// Whole snapshots that were put.
    pub snapshots: u64,
    /// How often the database let go of what had not been saved, so that a stretch is missing.
    pub broken: u64,
    /// Why it gets no further at the moment, or with its snapshots, or with making small files
    /// larger, if so.
    pub error: Option<String>,
}

impl TagStatus {
    pub(super) fn of(tag: String, rows: &TagRows, newest: Version) -> Result<Self> {
        let done = match rows.done["uid"] == rows.wanted["uid"] {
            true => rows.done.clone(),
            false => Value::Null,
        };
        let saved = done["saved"].as_i64();
        let number = |name: &str| done[name].as_u64().unwrap_or_default();
        let complete = complete(&done);
        // Before the first file it is behind from where it was asked for.
        let from = complete.or_else(|| rows.wanted["asked_at"].as_i64());
        let behind = from.map_or(0, |from| (newest - from).max(0));
        Ok(Self {
            tag,
            wish: Wish::of_json(&rows.wanted)?,
            state: State::of(&rows.wanted),
            ended: done["ended"].as_str().map(str::to_owned),
            saved,
            complete,
            is_restorable: done["restorable_from"].is_i64(),
            behind_seconds: behind as f64 / 1e6,
            behind_versions: behind,
            last_snapshot: done["snapshot_begun"].as_u64(),
            log_bytes: number("log_bytes"),
            snapshot_bytes: number("snapshot_bytes"),
            snapshots: number("snapshots"),
            broken: number("broken"),
            error: done["error"]
                .as_str()
                .or_else(|| done["snapshot_error"].as_str())
                .or_else(|| done["unread"].as_object()?.values().next()?.as_str())
                .map(str::to_owned),
        })
    }

    /// The same as FoundationDB's status document has it, below `layers.backup.tags`.
    pub fn to_json(&self) -> Value {
        json!({
            "current_container": redacted(&self.wish.url),
            "current_status": match (&self.ended, self.state, self.is_restorable) {
                (Some(ended), ..) => ended.as_str(),
                (None, State::Running, true) => "has been started and is restorable",
                (None, State::Running, false) => "has been started",
                (None, state, _) => state.name(),
            },
            "running_backup": self.ended.is_none(),
            "running_backup_is_restorable": self.ended.is_none() && self.is_restorable,
            "last_restorable_version": self.saved.filter(|_| self.is_restorable),
            "last_restorable_seconds_behind": self.behind_seconds,
            "last_restorable_versions_behind": self.behind_versions,
            "last_snapshot_begun": self.last_snapshot,
            "mutation_log_bytes_written": self.log_bytes,
            "range_bytes_written": self.snapshot_bytes,
            "snapshots": self.snapshots,
            "broken": self.broken,
            "error": self.error,
        })
    }
}

fn check_tag(tag: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if tag.is_empty() || tag.len() > 100 || !tag.bytes().all(is_plain) {
        let detail = format!("{tag:?} is no tag: 1 to 100 letters, digits, and - _ .");
        return Err(Error::client_invalid_operation().with_detail(detail));
    }
    Ok(())
}

/// Begins a continuous backup under a tag.
///
/// # Errors
/// `backup_duplicate` if one runs under this tag; `client_invalid_operation` for a tag that is
/// none; `database_locked` if the database has a part of what is being restored or migrated into
/// it; those of the database.
pub async fn start(db: &Database, tag: &str, wish: &Wish) -> Result<()> {
    check_tag(tag)?;
    let uid = db.endpoint().env().random_u64();
    let value = wish.to_json(uid);
    let refused = db
        .transact(|tr| {
            let mut value = value.clone();
            async move {
                value["asked_at"] = tr.get_read_version().await?.into();
                let all = read_all(&tr).await?;
                let before = tr.get(tag_key(tag)).await?.map(|value| parse(&value));
                if before.as_ref().is_some_and(|before| before["uid"] == value["uid"]) {
                    return Ok(None);
                }
                // Not an error of the transaction: that would be tried again.
                if let Some(filling) = Filling::find(&tr).await? {
                    return Ok(Some(filling.refusal("the database")));
                }
                let ended = all.get(tag).is_some_and(|rows| {
                    rows.done["uid"] == rows.wanted["uid"] && rows.done["ended"].is_string()
                });
                if before.is_some() && !ended {
                    let detail = format!("a backup runs under the tag {tag} already");
                    return Err(Error::backup_duplicate().with_detail(detail));
                }
                tr.set(tag_key(tag), value.to_string());
                clear_progress(&tr, tag);
                Ok(None)
            }
        })
        .await?;
    refused.map_or(Ok(()), Err)
}

/// Says what is to become of a backup.
///
/// # Errors
/// `backup_error` if none runs under this tag; those of the database.
pub async fn change(db: &Database, tag: &str, state: State) -> Result<()> {
    edit(db, tag, |wanted| wanted["state"] = state.name().into()).await
}

/// Changes how often a backup takes snapshots.
///
/// # Errors
/// As [`change`].
pub async fn modify(db: &Database, tag: &str, snapshot_interval: Duration) -> Result<()> {
    let seconds = snapshot_interval.as_secs();
    edit(db, tag, |wanted| wanted["snapshot_interval_seconds"] = seconds.into()).await
}

async fn edit(db: &Database, tag: &str, change: impl Fn(&mut Value)) -> Result<()> {
    let change = &change;
    db.transact(|tr| async move {
        let all = read_all(&tr).await?;
        let missing =
            || Error::backup_error().with_detail(format!("no backup runs under the tag {tag}"));
        let mut wanted = parse(&tr.get(tag_key(tag)).await?.ok_or_else(missing)?);
        let done = all.get(tag).map(|rows| rows.done.clone()).unwrap_or_default();
        if done["uid"] == wanted["uid"] && done["ended"].is_string() {
            return Err(missing());
        }
        change(&mut wanted);
        tr.set(tag_key(tag), wanted.to_string());
        Ok(())
    })
    .await
}

/// All backups, by tag.
///
/// # Errors
/// Those of the database.
pub async fn tags(db: &Database) -> Result<Vec<TagStatus>> {
    let read = async |tr: Transaction| {
        for_system(&tr)?;
        let newest = tr.get_read_version().await?;
        Ok((read_all(&tr).await?, newest))
    };
    let (all, newest) = db.transact(read).await?;
    all.iter().map(|(tag, rows)| TagStatus::of(tag.clone(), rows, newest)).collect()
}
