//! How fast the log is on this machine, beside what the disk does by itself in the same minute.
//!
//! `cargo run --release -p plinth-log --example log_speed [DIR] [MEGABYTES]`: appends without syncs
//! (what an append costs the processor), commits of 1 KiB one after the other against the same
//! bytes written to a plain file, commits by several tasks with one and with two syncs in flight,
//! and reading back.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plinth_env::{Env, Open, block_on};
use plinth_log::{Identity, LocalLog, LogConfig, LogResult};

const IDENTITY: Identity = Identity { cluster_id: [1; 16], node_id: [2; 16] };
const COMMITS: usize = 2000;
const BATCH: usize = 16 << 10;
const COMMIT_BYTES: usize = 1024;

fn main() -> LogResult<()> {
    let mut args = std::env::args().skip(1);
    let env = Env::real();
    let given = args.next().map(PathBuf::from);
    let megabytes: u64 = args.next().and_then(|text| text.parse().ok()).unwrap_or(256);
    block_on(async {
        let scratch = env.files().temporary_dir("plinth-log-speed").await?;
        let dir = given.unwrap_or_else(|| scratch.path().to_path_buf());
        for body in [100, 1000, 4000, 16_000, 100_000] {
            appends(&env, &dir, body, megabytes << 20).await?;
        }
        for round in 1..=3 {
            println!("round {round}");
            plain_commits(&env, &dir, true).await?;
            plain_commits(&env, &dir, false).await?;
            commits(&env, &dir).await?;
        }
        sustained(&env, &dir).await?;
        for round in 0..6 {
            pipelined(&env, &dir, 1 + round % 2).await?;
        }
        Ok(())
    })
}

async fn new_log(env: &Env, dir: &Path, config: LogConfig) -> LogResult<(PathBuf, LocalLog)> {
    let dir = dir.join("log");
    env.files().remove_dir_all(&dir).await?;
    let (mut log, _) = LocalLog::create(env, &dir, IDENTITY, config).await?;
    let position = log.extend_lease(i64::MAX / 2).await?;
    log.syncer().sync(position).await?;
    Ok((dir, log))
}

fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / 1e6 / took.as_secs_f64()
}

async fn appends(env: &Env, dir: &Path, body_len: usize, total: u64) -> LogResult<()> {
    let (path, mut log) = new_log(env, dir, LogConfig::default()).await?;
    let body = vec![7; body_len];
    let count = total / body_len as u64;
    let (mut longest, began) = (Duration::ZERO, env.now());
    for version in 1..=count {
        let before = env.now();
        log.append(version as i64, &[&body]).await?;
        longest = longest.max(env.now().saturating_sub(before));
    }
    let took = env.now().saturating_sub(began);
    let each = took.as_nanos() as u64 / count;
    println!(
        "append, no sync   {body_len:>7} B   {each:>8} ns each   {:>7.0} MB/s   longest {longest:?}",
        rate(count * body_len as u64, took)
    );
    log.close().await?;

    let began = env.now();
    let (log, _) = LocalLog::open(env, &path, IDENTITY, LogConfig::default()).await?;
    let opened = env.now().saturating_sub(began);
    let (began, mut reader, mut bytes) = (env.now(), log.reader(1), 0);
    while let Some(entry) = reader.next().await? {
        bytes += entry.body.len() as u64;
    }
    let took = env.now().saturating_sub(began);
    println!(
        "  open {:>5.0} MB/s   read back {:>5.0} MB/s",
        rate(bytes, opened),
        rate(bytes, took)
    );
    drop(reader);
    log.close().await
}

fn percentiles(what: &str, mut times: Vec<Duration>) {
    let total: Duration = times.iter().sum();
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    let mean = total / times.len() as u32;
    println!(
        "{what:<44} mean {mean:>9.1?}  median {:>9.1?}  p99 {:>9.1?}  p99.9 {:>9.1?}  longest {:>9.1?}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}

/// Write and fdatasync of the same bytes, without a log.
async fn plain_commits(env: &Env, dir: &Path, allocated: bool) -> LogResult<()> {
    let path = dir.join("plain");
    let file = env.files().open(&path, Open::Truncate).await?;
    if allocated {
        file.allocate((COMMITS * COMMIT_BYTES * 2) as u64).await?;
        file.sync_all().await?;
    }
    let (body, mut times) = (vec![7; COMMIT_BYTES], Vec::with_capacity(COMMITS));
    for number in 0..COMMITS {
        let began = env.now();
        file.write_all_at((number * COMMIT_BYTES) as u64, &body).await?;
        file.sync_data().await?;
        times.push(env.now().saturating_sub(began));
    }
    percentiles(
        if allocated {
            "write + fdatasync, plain file, allocated"
        } else {
            "write + fdatasync, plain file, growing"
        },
        times,
    );
    Ok(env.files().remove(&path).await?)
}

async fn commits(env: &Env, dir: &Path) -> LogResult<()> {
    let (_, mut log) = new_log(env, dir, LogConfig::default()).await?;
    let (syncer, body) = (log.syncer(), vec![7; COMMIT_BYTES]);
    let mut times = Vec::with_capacity(COMMITS);
    for version in 1..=COMMITS {
        let began = env.now();
        let position = log.append(version as i64, &[&body]).await?;
        syncer.sync(position).await?;
        times.push(env.now().saturating_sub(began));
    }
    percentiles("append + sync, log", times);
    log.close().await
}

/// Commits of 16 KiB through segments that grow, and then through recycled ones.
async fn sustained(env: &Env, dir: &Path) -> LogResult<()> {
    let (_, mut log) =
        new_log(env, dir, LogConfig { max_segment_bytes: 16 << 20, ..LogConfig::default() })
            .await?;
    log.register("nobody", 1, None)?;
    let (syncer, body) = (log.syncer(), vec![7; BATCH]);
    for part in ["first 64 MB, new segments", "next 64 MB", "next 64 MB", "next 64 MB"] {
        let mut times = Vec::with_capacity(4096);
        for _ in 0..4096 {
            let began = env.now();
            let version = log.written().sequence() as i64 + 1;
            let position = log.append(version, &[&body]).await?;
            syncer.sync(position).await?;
            times.push(env.now().saturating_sub(began));
            log.pop("nobody", version - 256)?;
        }
        percentiles(&format!("16 KiB commits, {part}"), times);
    }
    println!("  {} MiB of files", log.disk_bytes() >> 20);
    log.close().await
}

/// Batches of 16 KiB, each synced by the next free of a number of tasks.
async fn pipelined(env: &Env, dir: &Path, syncs: usize) -> LogResult<()> {
    let config = LogConfig { syncs_in_flight: syncs, ..LogConfig::default() };
    let (_, log) = new_log(env, dir, config).await?;
    let log = std::sync::Arc::new(std::sync::Mutex::new((log, 0)));
    let began = env.now();
    let tasks: Vec<_> = (0..syncs)
        .map(|_| {
            let (log, body) = (log.clone(), vec![7; BATCH]);
            env.spawn("commits", async move {
                for _ in 0..COMMITS / 2 {
                    let (position, syncer) = {
                        let mut log = log.lock().expect("no panics");
                        log.1 += 1;
                        let version = log.1;
                        let appended = block_on(log.0.append(version, &[&body]));
                        (appended.expect("an append"), log.0.syncer())
                    };
                    syncer.sync(position).await.expect("a sync");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a task that ends");
    }
    let took = env.now().saturating_sub(began);
    let batches = (COMMITS / 2 * syncs) as u64;
    let each = took / u32::try_from(batches).unwrap_or(1);
    println!(
        "{syncs} syncs in flight: 16 KiB every {each:?}, {:.0} MB/s",
        rate(batches * BATCH as u64, took)
    );
    Ok(())
}
