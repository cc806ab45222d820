//! Three servers: the leader is killed in the middle of eight writers, another one goes on, and
//! nothing acknowledged is missing.
//!
//! Each transaction looks whether its row is there, and adds the row and one to a counter: so a
//! commit whose answer was lost is not made twice, and half of one would show.

use super::story::Story;
use super::writer::{COUNT, WRITERS};
use crate::failure::Failure;
use crate::nodes::Nodes;
use plinth::{Database, RangeOptions, Result, StreamingMode};
use plinth_bench::words;
use plinth_env::Task;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long the writers write before the leader is killed, and after it.
const BEFORE: Duration = Duration::from_millis(1500);
const AFTER: Duration = Duration::from_millis(2500);

/// What the writers were told.
#[derive(Default)]
struct Told {
    stop: AtomicBool,
    acknowledged: AtomicU64,
    /// When the last commit was acknowledged, and the longest time between two.
    last: Mutex<(Duration, Duration)>,
}

/// The chapter.
pub fn chapter(story: &Story, path: &Path, short: bool) -> Result<(), Failure> {
    story.chapter("Three servers, and one is killed")?;
    story.say("Three processes with one cluster file form a cluster: a commit is acknowledged when two have it on disk.")?;
    story.say(
        "Eight writers write; then the server that leads is killed, in mid-sentence, and they write on.",
    )?;
    let mut nodes = Nodes::start(&story.env, path, 3, true)?;
    story.code("plinth server --cluster-file ...   three times", "ready")?;
    let told = Arc::new(Told::default());
    let tasks = write(story, &nodes, &told)?;
    let factor = if short { 0.4 } else { 1.0 };
    story.pause(BEFORE.mul_f64(factor));
    let leader = nodes.leader()?;
    *told.last.lock().unwrap_or_else(PoisonError::into_inner) = (story.env.now(), Duration::ZERO);
    nodes.kill(leader);
    let acknowledged = told.acknowledged.load(Ordering::Relaxed);
    story.code(
        &format!("kill -9    server {}, which leads", leader + 1),
        format!("after {} acknowledged commits", words::grouped(acknowledged)),
    )?;
    story.pause(AFTER.mul_f64(factor));
    story.code(&format!("server {} leads now", nodes.leader()? + 1), pause(&told))?;
    nodes.spawn(leader)?;
    nodes.until_ready(leader)?;
    told.stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.wait().map_err(|error| Failure::new(format!("a writer failed: {error}")))?;
    }
    judge(story, &nodes, told.acknowledged.load(Ordering::Relaxed))?;
    nodes.end();
    Ok(())
}

fn pause(told: &Told) -> String {
    let (_, longest) = *told.last.lock().unwrap_or_else(PoisonError::into_inner);
    format!("longest pause of all writers {}", words::duration(longest))
}

/// Starts the writers.
fn write(story: &Story, nodes: &Nodes, told: &Arc<Told>) -> Result<Vec<Task>, Failure> {
    let database = Database::connect(nodes.cluster_file())
        .map_err(|error| Failure::of("cannot connect to the three servers", error))?;
    let spawn = |writer: u64| {
        let (database, told, env) = (database.clone(), told.clone(), story.env.clone());
        story.env.spawn("demo-writer", async move {
            for number in 0.. {
                if told.stop.load(Ordering::Relaxed) {
                    return;
                }
                let row = format!("row/{writer}/{number:08}");
                let write = database.transact(|transaction| {
                    let row = row.clone();
                    async move {
                        if transaction.get(&row).await?.is_none() {
                            transaction.set(&row, "written");
                            transaction.add(COUNT, 1_u64.to_le_bytes());
                        }
                        Ok(())
                    }
                });
                write
                    .await
                    .expect("a transaction of the tour is tried again until it is committed");
                told.acknowledged.fetch_add(1, Ordering::Relaxed);
                let mut last = told.last.lock().unwrap_or_else(PoisonError::into_inner);
                let now = env.now();
                *last = (now, last.1.max(now.saturating_sub(last.0)));
            }
        })
    };
    Ok((0..WRITERS).map(spawn).collect())
}

/// Holds what is there against what was acknowledged.
fn judge(story: &Story, nodes: &Nodes, acknowledged: u64) -> Result<(), Failure> {
    let read = || -> Result<(u64, u64)> {
        let database = Database::connect(nodes.cluster_file())?;
        let (mut rows, mut range) = (0, RangeOptions::prefix("row/").mode(StreamingMode::WantAll));
        loop {
            let batch = database.transact_blocking(|tr| tr.get_range(range.clone()).wait())?;
            rows += batch.rows.len() as u64;
            let Some((last, _)) = batch.rows.last().filter(|_| batch.more) else { break };
            range = range.after(last, batch.rows.len());
        }
        let count = database.transact_blocking(|tr| tr.get(COUNT).wait())?;
        Ok((rows, count.and_then(|bytes| bytes[..].try_into().ok()).map_or(0, u64::from_le_bytes)))
    };
    let (rows, count) =
        read().map_err(|error| Failure::of("cannot read from the three servers", error))?;
    let missing = acknowledged.saturating_sub(rows);
    story.claim(
        &format!(
            "nothing acknowledged is lost: {missing} of {} rows are missing",
            words::grouped(acknowledged)
        ),
        rows == acknowledged,
    )?;
    story.claim(
        &format!("nothing is there twice: the counter says {}", words::grouped(count)),
        count == acknowledged,
    )
}
