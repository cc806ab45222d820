//! FuzzApiCorrectness: whatever a call is given, it fails with exactly the error that its contract
//! names, or succeeds.
//!
//! Each transaction makes one call with arguments at, around and beyond every limit, and then asks
//! for its outcome: reads answer themselves, writes keep their error for the commit. What the
//! arguments must lead to is worked out here, by FoundationDB's rules and in the order in which it
//! checks them.

use super::{Work, Workload};
use crate::client::{Client, Outcome};
use crate::draw::Draw;
use crate::fixed::wrong;
use plinth_client::{KeySelector, RangeOptions, StreamingMode, Transaction, TransactionOption};
use plinth_types::{Error, Result, limits, system};
use std::sync::Arc;
use std::time::Duration;

/// Errors that come from what goes on around, whatever the arguments: too old, future, conflict,
/// unknown, behind, closing, overloaded, gone, disk.
const CIRCUMSTANCES: [i32; 13] =
    [1007, 1009, 1020, 1021, 1022, 1026, 1037, 1042, 1043, 1078, 1100, 1510, 1513];

#[derive(Default)]
pub struct FuzzApiCorrectness;

/// What a call was, and what must come of it: `None` for success.
type Expected = (String, Option<Error>);

fn key(client: &Client) -> Vec<u8> {
    match client.below(8) {
        0 => b"\xff".to_vec(),
        1 => b"\xff/system".to_vec(),
        2 => vec![b'k'; limits::KEY_SIZE],
        3 => vec![b'k'; limits::KEY_SIZE + 1],
        4 => Vec::new(),
        _ => format!("fuzz/{}", client.below(20)).into_bytes(),
    }
}

/// A key that may be written without disturbing anybody.
fn own_key(client: &Client) -> Vec<u8> {
    format!("fuzz/{}", client.below(20)).into_bytes()
}

fn brief(key: &[u8]) -> String {
    format!("{} ({} bytes)", plinth_types::printable(&key[..key.len().min(12)]), key.len())
}

fn is_system(key: &[u8]) -> bool {
    key >= system::NORMAL_END
}

/// A bound may be the end of the key space, a key may not.
fn is_beyond(bound: &[u8]) -> bool {
    bound > system::NORMAL_END
}

fn write_error(key: &[u8], value: &[u8]) -> Option<Error> {
    if is_system(key) {
        return Some(Error::key_outside_legal_range());
    }
    if key.len() > limits::KEY_SIZE {
        return Some(Error::key_too_large());
    }
    (value.len() > limits::VALUE_SIZE).then(Error::value_too_large)
}

/// Sets keys that nobody else has, or fails at it.
async fn write(client: &Client, tr: &Transaction) -> (Expected, Result<()>) {
    let value = vec![7; limits::VALUE_SIZE + client.index(2) - usize::from(client.chance(0.3))];
    let value = if client.chance(0.15) { &value[..] } else { b"small" };
    let (key, expected) = loop {
        let key = key(client);
        let expected = write_error(&key, value);
        if expected.is_some() || key.starts_with(b"fuzz/") {
            break (key, expected);
        }
    };
    let what = format!("{} with {} bytes", brief(&key), value.len());
    let codes = [2, 6, 7, 8, 9, 12, 13, 16, 17, 20, 1, 3, 99, -1];
    if client.chance(0.5) {
        tr.set(&key, value);
        return ((format!("set {what}"), expected), tr.commit().await);
    }
    let code = codes[client.index(codes.len())];
    let is_known = codes[..10].contains(&code);
    let expected = match expected {
        Some(error) if error == Error::key_outside_legal_range() => Some(error),
        _ if !is_known => Some(Error::invalid_mutation_type()),
        other => other,
    };
    tr.atomic_op_raw(&key, value, code);
    ((format!("operation {code} on {what}"), expected), tr.commit().await)
}

async fn clear(client: &Client, tr: &Transaction) -> (Expected, Result<()>) {
    let (begin, end) = (key(client), key(client));
    let what = format!("from {} to {}", brief(&begin), brief(&end));
    // What is cleared is nobody's: only calls that fail, and ranges of nothing, are committed.
    if begin > end {
        tr.clear_range(&begin, &end);
        return ((format!("clear {what}"), Some(Error::inverted_range())), tr.commit().await);
    }
    if is_beyond(&begin) || is_beyond(&end) {
        tr.clear_range(&begin, &end);
        return (
            (format!("clear {what}"), Some(Error::key_outside_legal_range())),
            tr.commit().await,
        );
    }
    let key = key(client);
    let expected = is_system(&key).then(Error::key_outside_legal_range);
    if expected.is_some() || key.len() > limits::KEY_SIZE || key.starts_with(b"fuzz/") {
        tr.clear(&key);
        return ((format!("clear {}", brief(&key)), expected), tr.commit().await);
    }
    tr.clear_range(&begin, &begin);
    ((format!("clear nothing at {}", brief(&begin)), None), tr.commit().await)
}

async fn read(client: &Client, tr: &Transaction) -> (Expected, Result<()>) {
    let key = key(client);
    if client.chance(0.5) {
        let expected = is_system(&key).then(Error::key_outside_legal_range);
        return ((format!("get {}", brief(&key)), expected), tr.get(&key).await.map(drop));
    }
    let expected = is_beyond(&key).then(Error::key_outside_legal_range);
    let selector = KeySelector::new(key.clone(), client.chance(0.5), client.below(5) as i32 - 2);
    ((format!("get_key {selector:?}"), expected), tr.get_key(selector).await.map(drop))
}

async fn range(client: &Client, tr: &Transaction) -> (Expected, Result<()>) {
    let modes = [StreamingMode::Exact, StreamingMode::Iterator, StreamingMode::Small];
    let (begin, end) = (key(client), key(client));
    let pick = |list: [Option<usize>; 4]| list[client.index(list.len())];
    let mut options = RangeOptions::from(begin.clone()..end.clone());
    options.limit = pick([None, Some(1), Some(5), Some(0)]);
    options.target_bytes = pick([None, None, Some(100), Some(0)]);
    options.iteration = pick([Some(1), Some(1), None, None]).unwrap_or(0);
    options.mode = modes[client.index(modes.len())];
    options.reverse = client.chance(0.5);
    let (mode, limit, bytes) = (options.mode, options.limit, options.target_bytes);
    let expected = if mode == StreamingMode::Exact && limit.is_none() && bytes.is_none() {
        Some(Error::exact_mode_without_limits())
    } else if mode == StreamingMode::Iterator && options.iteration == 0 {
        Some(Error::client_invalid_operation())
    } else if is_beyond(&begin) || is_beyond(&end) {
        Some(Error::key_outside_legal_range())
    } else if limit == Some(0) || bytes == Some(0) {
        Some(Error::range_limits_invalid())
    } else {
        None
    };
    let what = format!("range {} to {} {mode:?} {limit:?} {bytes:?}", brief(&begin), brief(&end));
    ((what, expected), tr.get_range(options).await.map(drop))
}

async fn conflict_range(client: &Client, tr: &Transaction) -> (Expected, Result<()>) {
    let (begin, end) = (key(client), key(client));
    let what = format!("conflict range from {} to {}", brief(&begin), brief(&end));
    let added = if client.chance(0.5) {
        tr.add_read_conflict_range(&begin, &end)
    } else {
        tr.add_write_conflict_range(&begin, &end)
    };
    if begin > end {
        return ((what, Some(Error::inverted_range())), added);
    }
    let expected = (is_beyond(&begin) || is_beyond(&end)).then(Error::key_outside_legal_range);
    ((what, expected), tr.commit().await)
}

async fn option(client: &Client, tr: &Transaction) -> (Expected, Result<()>) {
    let invalid = Some(Error::invalid_option_value());
    let (option, expected) = match client.below(6) {
        0 => (TransactionOption::SizeLimit(31), invalid),
        1 => (TransactionOption::SizeLimit(10_000_001), invalid),
        2 => (TransactionOption::RetryLimit(Some(1 << 31)), invalid),
        3 => (TransactionOption::SizeLimit(32), None),
        4 => (TransactionOption::MaxRetryDelay(Duration::MAX), invalid),
        _ => {
            let unknown = tr.set_option_raw(12_345, None);
            return (("option 12345".into(), Some(Error::invalid_option())), unknown);
        }
    };
    let what = format!("{option:?}");
    ((what, expected), tr.set_option(option))
}

/// Calls at the wrong time.
async fn order(client: &Client, tr: &Transaction) -> (Expected, Result<()>) {
    match client.below(6) {
        0 => {
            tr.set_read_version(0);
            (
                ("read version 0".into(), Some(Error::version_invalid())),
                tr.get("fuzz/1").await.map(drop),
            )
        }
        1 => {
            tr.set_read_version(1);
            tr.set_read_version(2);
            let read = tr.get("fuzz/1").await.map(drop);
            (("a second read version".into(), Some(Error::read_version_already_set())), read)
        }
        2 => {
            let (stamp, committed) = (tr.versionstamp(), tr.commit().await);
            let stamp = committed.and(stamp.await.map(drop));
            (("stamp of nothing".into(), Some(Error::no_commit_version())), stamp)
        }
        3 => {
            let committed = tr.commit().await;
            let read = committed.and(tr.get("fuzz/1").await.map(drop));
            (("read after commit".into(), Some(Error::used_during_commit())), read)
        }
        4 => {
            tr.cancel();
            (
                ("read after cancel".into(), Some(Error::transaction_cancelled())),
                tr.get("fuzz/1").await.map(drop),
            )
        }
        _ => {
            let limited = tr.set_option(TransactionOption::SizeLimit(100));
            tr.set(own_key(client), [7; 200]);
            let committed = limited.and(tr.commit().await);
            (("more than the size limit".into(), Some(Error::transaction_too_large())), committed)
        }
    }
}

async fn watch(client: &Client, tr: &Transaction) -> (Expected, Result<()>) {
    if client.chance(0.2) {
        let disabled = tr.set_option(TransactionOption::ReadYourWritesDisable);
        let watch = disabled.and(tr.watch(own_key(client)).await);
        return (("watch without read-your-writes".into(), Some(Error::watches_disabled())), watch);
    }
    let key =
        if client.chance(0.5) { b"\xff/system".to_vec() } else { vec![b'k'; limits::KEY_SIZE + 1] };
    let error =
        if is_system(&key) { Error::key_outside_legal_range() } else { Error::key_too_large() };
    ((format!("watch {}", brief(&key)), Some(error)), tr.watch(&key).await)
}

impl FuzzApiCorrectness {
    pub fn new(_draw: &mut Draw<'_>) -> Self {
        Self
    }
}

async fn one(client: &Client, tr: &Transaction) -> Result<()> {
    let ((what, expected), result) = match client.below(8) {
        0 | 1 => write(client, tr).await,
        2 => clear(client, tr).await,
        3 => read(client, tr).await,
        4 => range(client, tr).await,
        5 => conflict_range(client, tr).await,
        6 => option(client, tr).await,
        _ if client.chance(0.7) => order(client, tr).await,
        _ => watch(client, tr).await,
    };
    match (&result, &expected) {
        (Err(error), Some(expected)) if error == expected => Ok(()),
        (Ok(()), None) => Ok(()),
        (Err(error), _)
            if CIRCUMSTANCES.contains(&error.code()) || *error == Error::file_not_writable() =>
        {
            Ok(())
        }
        _ => Err(wrong(client, format!("{what}: expected {expected:?}, and it was {result:?}"))),
    }
}

impl Workload for FuzzApiCorrectness {
    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            while !client.is_stopping() {
                client.look(async |tr| one(&client, &tr).await).await;
                client.pause(5_000).await;
            }
        })
    }

    fn check(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move {
            // The database takes what is within the limits after all that.
            let longest = [b"fuzz/", &vec![b'x'; limits::KEY_SIZE - 5][..]].concat();
            let committed = client.attempt(async |tr| {
                tr.set(&longest, vec![9; limits::VALUE_SIZE]);
                Ok(())
            });
            if let Outcome::Refused(error) = committed.await {
                client.fail(format!("a row of the largest size is refused: {error}"));
            }
        })
    }
}
