//! The rows in which continuous backups are kept: what is to be done, what has been done, and who
//! does it.
//!
//! ```text
//!   \xff\x02/plinth/backup/agent            who does it: id of the agent, a beat that it counts
//!   \xff\x02/plinth/backup/tag/TAG          what is to be done: JSON, written by people
//!   \xff\x02/plinth/backup/progress/TAG     what has been done: JSON, written by the agent alone
//! ```
//! Always: what an agent writes is committed only while it is the agent that the first row names.

use plinth_client::{Database, RangeOptions, Transaction, TransactionOption};
use plinth_types::{Bytes, Error, Result, Version};
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) const AGENT: &[u8] = b"\xff\x02/plinth/backup/agent";
const TAGS: &[u8] = b"\xff\x02/plinth/backup/tag/";
const PROGRESS: &[u8] = b"\xff\x02/plinth/backup/progress/";

/// A tag's rows: what is to be done, and what has been done.
#[derive(Clone, Debug, Default)]
pub(super) struct TagRows {
    pub wanted: Value,
    pub done: Value,
}

pub(super) fn for_system(tr: &Transaction) -> Result<()> {
    tr.set_option(TransactionOption::AccessSystemKeys)?;
    tr.set_option(TransactionOption::LockAware)
}

pub(super) fn tag_key(tag: &str) -> Vec<u8> {
    [TAGS, tag.as_bytes()].concat()
}

fn progress_key(tag: &str) -> Vec<u8> {
    [PROGRESS, tag.as_bytes()].concat()
}

pub(super) fn parse(value: &[u8]) -> Value {
    serde_json::from_slice(value).unwrap_or_default()
}

/// The version up to which nothing is missing: what was committed is saved, and from there on
/// nothing was. `None`: nothing is saved yet.
pub(super) fn complete(done: &Value) -> Option<Version> {
    let saved = done["saved"].as_i64()?;
    Some(done["nothing_until"].as_i64().map_or(saved, |nothing| nothing.max(saved)))
}

/// All tags.
pub(super) async fn read_all(tr: &Transaction) -> Result<BTreeMap<String, TagRows>> {
    for_system(tr)?;
    let mut all = BTreeMap::<String, TagRows>::new();
    for (prefix, is_wanted) in [(TAGS, true), (PROGRESS, false)] {
        for row in tr.snapshot().range(RangeOptions::prefix(prefix)).collect().await? {
            let tag = String::from_utf8_lossy(&row.key[prefix.len()..]).into_owned();
            let value = parse(&row.value);
            let rows = all.entry(tag).or_default();
            if is_wanted { rows.wanted = value } else { rows.done = value }
        }
    }
    all.retain(|_, rows| rows.wanted.is_object());
    Ok(all)
}

/// An agent's name, and the beat that it counted last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Beat {
    pub agent: [u8; 16],
    pub count: u64,
}

impl Beat {
    pub fn decode(value: &[u8]) -> Option<Self> {
        let (agent, count) = value.split_first_chunk::<16>()?;
        Some(Self { agent: *agent, count: u64::from_le_bytes(count.try_into().ok()?) })
    }

    pub fn encode(&self) -> Vec<u8> {
        [&self.agent[..], &self.count.to_le_bytes()].concat()
    }
}

/// Runs a transaction that commits only while this agent is the one.
///
/// # Errors
/// `operation_cancelled` if another one is.
pub(super) async fn fenced<T, F>(
    db: &Database,
    agent: [u8; 16],
    body: impl Fn(Transaction) -> F + Send + Sync,
) -> Result<T>
where
    F: Future<Output = Result<T>> + Send,
    T: Send,
{
    let tr = db.create_transaction();
    loop {
        let done = async {
            for_system(&tr)?;
            let value: Option<Bytes> = tr.get(AGENT).await?;
            if value.and_then(|value| Beat::decode(&value)).map(|beat| beat.agent) != Some(agent) {
                let detail = "another node has taken the backups over";
                return Err(Error::operation_cancelled().with_detail(detail));
            }
            let done = body(tr.clone()).await?;
            tr.commit().await?;
            Ok(done)
        };
        match done.await {
            Ok(done) => return Ok(done),
            Err(error) => tr.on_error(error).await?,
        }
    }
}

/// Writes what has been done of a tag.
pub(super) async fn write_progress(
    db: &Database,
    agent: [u8; 16],
    tag: &str,
    done: &Value,
) -> Result<()> {
    fenced(db, agent, |tr| async move {
        set_progress(&tr, tag, done);
        Ok(())
    })
    .await
}

/// The same as a part of a transaction.
pub(super) fn set_progress(tr: &Transaction, tag: &str, done: &Value) {
    tr.set(progress_key(tag), done.to_string());
}

/// Removes what has been done of a tag, where it begins anew.
pub(super) fn clear_progress(tr: &Transaction, tag: &str) {
    tr.clear(progress_key(tag));
}
