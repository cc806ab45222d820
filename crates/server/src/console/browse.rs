//! The key browser: a page of a range, a whole value, and, where it was allowed, one key set or
//! cleared.
//!
//! Each is one ordinary transaction of the endpoint that is served, with a time limit, so a browser
//! sees what a client sees and waits where a client waits. A page has at most so many rows and is
//! read in one batch of at most so many bytes; values are cut short in it, whole ones are asked for
//! one at a time.

use crate::answers::Answer;
use crate::answers::query::{self, Query};
use crate::shared::Shared;
use plinth_client::{
    Database, DatabaseOption, RangeOptions, StreamingMode, Transaction, TransactionOption,
};
use plinth_types::{Bytes, KeySelector, key_after, printable, strinc, system};
use serde_json::{Value, json};
use std::time::Duration;

/// Rows of a page, unless it is said how many, and at most.
const ROWS: u64 = 100;
const MOST_ROWS: u64 = 1000;
/// Bytes after which a page ends, whatever its rows.
const PAGE_BYTES: usize = 512 << 10;
/// What a page shows of a value.
const SHOWN: usize = 256;
/// How long a transaction may take, and how often it is tried.
const TIMEOUT: Duration = Duration::from_secs(5);
const RETRIES: usize = 5;
/// Bytes of a change's body: a value of the greatest size with every byte escaped.
pub(super) const CHANGE_BYTES: usize = 1 << 20;

/// A page of a range. `prefix`, or `begin` and `end`; `after` for the next page; `limit`,
/// `reverse`.
pub(super) async fn range(shared: &Shared, query: &Query) -> Result<Answer, Answer> {
    let Bounds { begin, end } = bounds(query)?;
    let reverse = query.flag("reverse")?;
    let limit = query.number("limit")?.unwrap_or(ROWS).clamp(1, MOST_ROWS);
    let (mut from, mut to) = (begin.clone(), end.clone());
    if let Some(after) = query.key("after")? {
        if reverse { to = to.min(after.into()) } else { from = from.max(key_after(&after)) }
    }
    let mut range = RangeOptions::new(
        KeySelector::first_greater_or_equal(from.clone()),
        KeySelector::first_greater_or_equal(to.clone()),
    );
    (range.mode, range.target_bytes, range.reverse) =
        (StreamingMode::WantAll, Some(PAGE_BYTES), reverse);
    range.limit = usize::try_from(limit).ok();
    let read = |tr: Transaction| {
        let range = (from < to).then(|| range.clone());
        async move {
            may_look(&tr)?;
            let version = tr.get_read_version().await?;
            let Some(range) = range else { return Ok((version, None)) };
            let found = tr.snapshot().get_range(range);
            Ok((version, Some(found.await?)))
        }
    };
    let (version, found) =
        database(shared)?.transact(read).await.map_err(|error| Answer::database(&error))?;
    let (mut rows, mut more) = (Vec::new(), false);
    if let Some(found) = &found {
        more = found.more;
        rows.extend(found.rows.iter().map(|(key, value)| shown(key, value)));
    }
    let last = rows.last().map(|row: &Value| row["key"].clone());
    Ok(Answer::value(&json!({
        "version": version,
        "begin": printable(&begin),
        "end": printable(&end),
        "rows": rows,
        "more": more,
        "after": if more { last } else { None },
    })))
}

/// A key, and as much of its value as a page shows.
fn shown(key: &[u8], value: &[u8]) -> Value {
    let cut = &value[..value.len().min(SHOWN)];
    json!({ "key": printable(key), "value": printable(cut), "bytes": value.len() })
}

/// One key and its whole value.
pub(super) async fn key(shared: &Shared, query: &Query) -> Result<Answer, Answer> {
    let Some(key) = query.key("key")? else { return Err(Answer::bad_request("which key?")) };
    let read = |tr: Transaction| {
        let key = key.clone();
        async move {
            may_look(&tr)?;
            let version = tr.get_read_version().await?;
            let value = tr.snapshot().get(&key);
            Ok((version, value.await?))
        }
    };
    let (version, value) =
        database(shared)?.transact(read).await.map_err(|error| Answer::database(&error))?;
    Ok(Answer::value(&json!({
        "version": version,
        "key": printable(&key),
        "exists": value.is_some(),
        "value": value.as_ref().map(|value| printable(value)),
        "bytes": value.as_ref().map(Bytes::len),
    })))
}

/// Sets or clears one key of the user's.
pub(super) async fn change(shared: &Shared, what: &str, body: &Value) -> Result<Answer, Answer> {
    let text = |name: &str| match body.get(name).and_then(Value::as_str) {
        Some(text) => query::key(name, text),
        None => Err(Answer::bad_request(&format!("the body has no text {name:?}"))),
    };
    let key = text("key")?;
    if key.as_slice() >= system::NORMAL_END {
        return Err(Answer::forbidden("the console changes keys below \\xff only"));
    }
    let value = if what == "set" { Some(text("value")?) } else { None };
    let write = |tr: Transaction| {
        match &value {
            Some(value) => tr.set(&key, value),
            None => tr.clear(&key),
        }
        async { Ok(()) }
    };
    database(shared)?.transact(write).await.map_err(|error| Answer::database(&error))?;
    Ok(Answer::value(&json!({ "key": printable(&key), "exists": value.is_some() })))
}

/// The database as the console sees it: patient for a few seconds, then it says why.
fn database(shared: &Shared) -> Result<Database, Answer> {
    let database = Database::new(shared.endpoint.clone());
    let options = [
        DatabaseOption::TransactionTimeout(Some(TIMEOUT)),
        DatabaseOption::TransactionRetryLimit(Some(RETRIES)),
    ];
    for option in options {
        database.set_option(option).map_err(|error| Answer::database(&error))?;
    }
    Ok(database)
}

/// Lets a transaction see the system's keys, and those of a database that is locked.
fn may_look(tr: &Transaction) -> plinth_types::Result<()> {
    tr.set_option(TransactionOption::ReadSystemKeys)?;
    tr.set_option(TransactionOption::ReadLockAware)
}

struct Bounds {
    begin: Bytes,
    end: Bytes,
}

/// The range that is asked for. Where no end is given, it is that of the user's keys, or of the
/// system's behind them.
fn bounds(query: &Query) -> Result<Bounds, Answer> {
    let end_of = |begin: &[u8]| -> Bytes {
        let end: &'static [u8] =
            if begin < system::NORMAL_END { system::NORMAL_END } else { system::SYSTEM_END };
        Bytes::from_static(end)
    };
    if let Some(prefix) = query.key("prefix")? {
        if query.text("begin").is_some() || query.text("end").is_some() {
            return Err(Answer::bad_request("a prefix, or begin and end, but not both"));
        }
        let end = if prefix.is_empty() { None } else { strinc(&prefix) };
        let end = end.unwrap_or_else(|| end_of(&prefix));
        return Ok(Bounds { begin: prefix.into(), end });
    }
    let begin = query.key("begin")?.unwrap_or_default();
    let end = match query.key("end")? {
        Some(end) if !end.is_empty() => end.into(),
        _ => end_of(&begin),
    };
    if begin.as_slice() > &end[..] {
        return Err(Answer::bad_request("the range ends before it begins"));
    }
    Ok(Bounds { begin: begin.into(), end })
}
