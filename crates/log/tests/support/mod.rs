//! What the log's tests share: small configurations, bodies that can be told apart, shorthands.
#![expect(dead_code, reason = "each test uses a part of it")]

pub mod model;

use plinth_env::Env;
use plinth_format::Keys;
use plinth_format::crypt::Key;
use plinth_log::{Entry, Identity, LocalLog, LocalView, LogConfig, LogResult, Recovery};
use plinth_types::Version;

pub const DIR: &str = "/data/log";
pub const IDENTITY: Identity = Identity { cluster_id: [0xC1; 16], node_id: [0x0D; 16] };

/// Segments so small that a test goes through many.
pub fn small(first: u64, max: u64) -> LogConfig {
    LogConfig {
        first_segment_bytes: first,
        max_segment_bytes: max,
        spare_bytes: 4 * max,
        ..LogConfig::default()
    }
}

/// Keys whose newest is number `newest`, with all before it.
pub fn keys(newest: u8) -> Keys {
    let key = |number| Key::of_file(&[number; Key::LEN]).expect("a key");
    Keys::new(&(0..=newest).rev().map(key).collect::<Vec<_>>())
}

/// What a life of a log has for keys, one or none: nothing is sealed in the first one, and then
/// there is another key every other life.
pub fn keys_of_life(life: usize) -> Keys {
    if life == 0 { Keys::none() } else { keys(life as u8 / 2) }
}

/// A body that says which version it belongs to, in every byte.
pub fn body(version: Version, len: usize) -> Vec<u8> {
    let mut state = (version as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ len as u64;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| step()).collect()
}

pub async fn create(env: &Env, config: LogConfig) -> LocalLog {
    LocalLog::create(env, DIR, IDENTITY, config).await.expect("a new log").0
}

pub async fn open(env: &Env, config: LogConfig) -> LogResult<(LocalLog, Recovery)> {
    LocalLog::open(env, DIR, IDENTITY, config).await
}

/// A new log whose lease is as long as any test needs.
pub async fn create_leased(env: &Env, config: LogConfig) -> LocalLog {
    let mut log = create(env, config).await;
    let position = log.extend_lease(1_000_000).await.expect("a lease");
    log.syncer().sync(position).await.expect("a sync");
    log
}

/// Appends an entry and makes it durable.
pub async fn commit(log: &mut LocalLog, version: Version, body: &[u8]) {
    let position = log.append(version, &[body]).await.expect("an append");
    log.syncer().sync(position).await.expect("a sync");
    log.check_invariants();
}

/// All durable entries from a version on.
pub async fn read(view: &LocalView, from: Version) -> LogResult<Vec<Entry>> {
    let (mut reader, mut entries) = (view.reader(from), Vec::new());
    while let Some(entry) = reader.next().await? {
        entries.push(entry);
    }
    Ok(entries)
}

pub fn versions(entries: &[Entry]) -> Vec<Version> {
    entries.iter().map(|entry| entry.version).collect()
}

/// Whether these are entries as [`body`] made them, each behind the one before. Leases stand
/// between them.
pub fn check(entries: &[Entry]) -> Result<(), String> {
    for pair in entries.windows(2) {
        if pair[1].index <= pair[0].index || pair[1].previous != pair[0].version {
            return Err(format!("entry {} is followed by {}", pair[0].index, pair[1].index));
        }
    }
    match entries.iter().find(|entry| entry.body != body(entry.version, entry.body.len())) {
        Some(entry) => {
            Err(format!("the body of entry {} at version {} is wrong", entry.index, entry.version))
        }
        None => Ok(()),
    }
}
