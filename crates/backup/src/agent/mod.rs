//! The agent: what does continuous backups, wherever the database runs.
//!
//! ```text
//!   rows of tags ──read each second──▶ agent ──▶ a task for each tag: stream ─▶ files of the log, snapshots now and then
//!   row of the agent: its id, its beat ── whoever sees it not move for ten seconds takes it ──▶ the agent of another node
//! ```
//! Every node may run one; at most one of them is at work. Which one is a row: it is read by every
//! transaction in which progress is noted, so an agent that was taken for dead can't note anything
//! any more. What it may still put into a target does no harm: files of the log have everything of
//! the versions in their names, whoever put them, and snapshots count when whole.
//!
//! Read next: `rows.rs`, `tag.rs`, then `control.rs`.

mod control;
mod metrics;
mod rows;
mod tag;

pub use control::{ABORTED, DEFAULT_TAG, State, TagStatus, Wish, change, modify, start, tags};

use crate::format::{Key, key_of_file};
use crate::snapshot::lock;
use crate::target::{Target, named};
use plinth_client::Database;
use plinth_env::sync::{First, race};
use plinth_env::{Env, Signal, Task};
use plinth_types::{Error, Result};
use rows::{AGENT, Beat, TagRows, for_system, read_all};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zeroize::Zeroizing;

/// How often rows are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long an agent that ends tries to say so.
const RETIRING: Duration = Duration::from_secs(1);
/// How long another agent's beat must not move before it is taken for dead.
const DEAD: Duration = Duration::from_secs(10);

/// Does the continuous backups of a database for as long as it lives, or waits for its turn.
pub struct Agent {
    env: Env,
    stop: Arc<Signal>,
    task: Task,
    seen: Seen,
}

/// How the backups were when they were looked at last.
type Seen = Arc<Mutex<Vec<TagStatus>>>;

impl Agent {
    /// Begins to look for backups to be done. Targets are those that URLs name to this process.
    pub fn start(env: &Env, db: &Database) -> Self {
        Self::begin(env, db, None)
    }

    /// The same for a node of a cluster whose database is `own`, as this node gives it. What it
    /// lacks of the log, others may have: that is read from `cluster`, which is any of them.
    pub fn start_in_cluster(env: &Env, own: &Database, cluster: &Database) -> Self {
        Self::begin(env, own, Some(cluster.clone()))
    }

    fn begin(env: &Env, db: &Database, cluster: Option<Database>) -> Self {
        let stop = Arc::<Signal>::default();
        let (inner, db, flag, seen) = (env.clone(), db.clone(), stop.clone(), Seen::default());
        let told = seen.clone();
        let task =
            env.spawn("backup-agent", async move { run(inner, db, cluster, flag, told).await });
        Self { env: env.clone(), stop, task, seen }
    }

    /// What measures the backups, in Prometheus' text format; calls of what is given, at any time,
    /// have the latest.
    pub fn metrics(&self) -> impl Fn() -> String + Send + Sync + 'static {
        let seen = self.seen.clone();
        move || metrics::text(&lock(&seen))
    }

    /// What FoundationDB's status document has below `cluster.layers.backup`, as JSON, in the same
    /// way.
    pub fn layer(&self) -> impl Fn() -> String + Send + Sync + 'static {
        let (seen, env) = (self.seen.clone(), self.env.clone());
        move || metrics::layer(&lock(&seen), env.wall_clock().as_secs_f64()).to_string()
    }

    /// Ends it: what is under way is given up, and goes on where another agent begins.
    ///
    /// # Errors
    /// If it panicked.
    pub async fn stop(self) -> Result<()> {
        self.stop.notify();
        Ok(self.task.await?)
    }
}

/// What an agent and the tasks of its tags share.
#[derive(Clone)]
struct Shared {
    env: Env,
    db: Database,
    /// The same database, as any node of its cluster gives it.
    cluster: Option<Database>,
    id: [u8; 16],
}

impl Shared {
    async fn target(&self, url: &str) -> Result<Arc<dyn Target>> {
        named(&self.env, url, &[]).await
    }

    async fn key(&self, file: Option<&str>) -> Result<Option<Key>> {
        let Some(file) = file else { return Ok(None) };
        key_of_file(&Zeroizing::new(self.env.files().read(file).await?)).map(Some)
    }
}

/// A tag that is worked at.
struct Working {
    uid: serde_json::Value,
    orders: Arc<tag::Orders>,
    task: Task,
}

async fn run(env: Env, db: Database, cluster: Option<Database>, stop: Arc<Signal>, seen: Seen) {
    let mut id = [0; 16];
    env.fill_random(&mut id);
    let shared = Shared { env: env.clone(), db, cluster, id };
    let mut working = BTreeMap::<String, Working>::new();
    let mut other: Option<(Beat, Duration)> = None;
    loop {
        let looking = shared.look(&mut other, !working.is_empty(), &seen);
        // Without a majority, as where all servers of a cluster end at once, nobody answers.
        let First::Left(looked) = race(looking, stop.wait()).await else { break };
        match looked {
            Ok(Some(tags)) => shared.keep_working(tags, &mut working),
            // Another one does it, or nobody has anything to do.
            Ok(None) => end(&mut working).await,
            // The database can't be reached, or another node leads: nothing can be noted, so
            // nothing need be done.
            Err(_) => {}
        }
        if let First::Right(()) = race(env.sleep(LOOK), stop.wait()).await {
            break;
        }
    }
    let was_at_work = !working.is_empty();
    end(&mut working).await;
    if was_at_work {
        // So that another needn't wait; if it can't be written, it waits.
        race(shared.retire(), env.sleep(RETIRING)).await;
    }
}

async fn end(working: &mut BTreeMap<String, Working>) {
    for tag in working.values() {
        tag.orders.stop.store(true, Ordering::SeqCst);
    }
    for (_, tag) in std::mem::take(working) {
        if let Err(failure) = tag.task.await {
            tracing::error!(error = %Error::from(failure), "a backup's task ended early");
        }
    }
}

impl Shared {
    /// The tags, if this agent is the one that does them; it becomes that if nobody is.
    async fn look(
        &self,
        other: &mut Option<(Beat, Duration)>,
        is_at_work: bool,
        seen: &Seen,
    ) -> Result<Option<BTreeMap<String, TagRows>>> {
        let tr = self.db.create_transaction();
        let tags = read_all(&tr).await?;
        let newest = tr.get_read_version().await?;
        let status =
            |(tag, rows): (&String, &TagRows)| TagStatus::of(tag.clone(), rows, newest).ok();
        *lock(seen) = tags.iter().filter_map(status).collect();
        let has_work = |rows: &TagRows| {
            rows.done["uid"] != rows.wanted["uid"] || !rows.done["ended"].is_string()
        };
        if !is_at_work && !tags.values().any(has_work) {
            *other = None;
            return Ok(None);
        }
        let beat = tr.get(AGENT).await?.and_then(|value| Beat::decode(&value));
        let now = self.env.now();
        match beat {
            Some(beat) if beat.agent != self.id => {
                let since = match other {
                    Some((seen, since)) if *seen == beat => *since,
                    _ => {
                        *other = Some((beat, now));
                        now
                    }
                };
                if now.saturating_sub(since) < DEAD {
                    return Ok(None);
                }
                tracing::info!("takes the backups over from another node");
            }
            _ => {}
        }
        let count = beat.map_or(0, |beat| beat.count) + 1;
        for_system(&tr)?;
        tr.set(AGENT, Beat { agent: self.id, count }.encode());
        tr.commit().await?;
        *other = None;
        Ok(Some(tags))
    }

    /// Says that this agent is none any more, if it was.
    async fn retire(&self) -> Result<()> {
        let tr = self.db.create_transaction();
        for_system(&tr)?;
        let beat = tr.get(AGENT).await?.and_then(|value| Beat::decode(&value));
        if beat.is_some_and(|beat| beat.agent == self.id) {
            tr.clear(AGENT);
            tr.commit().await?;
        }
        Ok(())
    }

    /// Has a task for each tag that is to be worked at.
    fn keep_working(
        &self,
        tags: BTreeMap<String, TagRows>,
        working: &mut BTreeMap<String, Working>,
    ) {
        let mut ended = BTreeSet::new();
        working.retain(|name, tag| {
            let is_wanted = tags.get(name).is_some_and(|rows| rows.wanted["uid"] == tag.uid);
            if !is_wanted {
                tag.orders.stop.store(true, Ordering::SeqCst);
            }
            let is_at_work = !tag.task.is_finished();
            if !is_at_work {
                ended.insert(name.clone());
            }
            is_at_work
        });
        for (name, rows) in tags {
            // These rows may have been read before its task wrote its last: begun anew by them, an
            // end would be taken for a stream that somebody removed.
            if ended.contains(&name) {
                continue;
            }
            let is_current = rows.done["uid"] == rows.wanted["uid"];
            if is_current && rows.done["ended"].is_string() {
                continue;
            }
            if let Some(tag) = working.get(&name) {
                tag.orders.give(&rows.wanted);
                continue;
            }
            let (shared, orders) = (self.clone(), Arc::new(tag::Orders::new(&rows.wanted)));
            let uid = rows.wanted["uid"].clone();
            let (given, tag) = (orders.clone(), name.clone());
            let task = self.env.spawn("backup-tag", async move {
                tag::run(shared, tag, rows, given).await;
            });
            working.insert(name, Working { uid, orders, task });
        }
    }
}
