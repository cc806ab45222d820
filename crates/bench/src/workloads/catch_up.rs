//! A new member of a cluster with rows: how fast it takes them, and what is left of the others'
//! commits meanwhile.
//!
//! ```text
//!   three servers    rows, then blind writes of eight clients all the time
//!   a fourth one     started empty ─▶ taken in ─▶ rows, chunk by chunk ─▶ entries behind them ─▶ has everything
//!                                                  <- bytes a second ->
//!   commits a second     before    |  meanwhile: from its start until then
//! ```
//! While the others have all of their log (the newest 256 MiB, and what no checkpoint has), it
//! takes entries alone, and no rows. The rows are ten times as many as the settings say: what takes
//! a second says little.

use super::{Group, Workload, load};
use crate::dataset::{Dataset, MAX_ROWS};
use crate::figures;
use crate::load::lock;
use crate::outcome::{Figure, Outcome};
use crate::place::Place;
use crate::random::Random;
use crate::unit::Unit;
use crate::{Bench, Error, Result, words};
use plinth_client::Database;
use plinth_env::sync::{First, race};
use plinth_env::{Env, Task, block_on};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How fast a new member comes to have all rows.
pub const CATCH_UP: Workload = Workload {
    name: "catch-up",
    about: "three servers with ten times the rows: a fourth, empty one takes them, while others commit",
    group: Group::Own,
    long: true,
    run: catch_up,
};

/// Below the database's own directory, so that it is on the same disk.
const DIRECTORY: &str = "plinth-bench-catch-up";
const SERVERS: usize = 3;
const TIMES: u64 = 10;
const CLIENTS: usize = 8;
/// How often it is looked how far the new one is, and how long an answer is waited for.
const LOOK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_millis(200);
/// How long it may take for everything behind the rows.
const LONG: Duration = Duration::from_secs(600);

fn catch_up(bench: &Bench) -> Result<Outcome> {
    let Some(host) = &bench.host else {
        return Err(Error::Skipped("it starts servers of its own".to_owned()));
    };
    let place = Place::new(&bench.env, bench.directory.join(DIRECTORY))?;
    let mut cluster = super::cluster_of(&**host, &place.path, (SERVERS, false))?;
    let rows = bench.settings.rows.saturating_mul(TIMES).min(MAX_ROWS);
    let dataset = Dataset::new(rows, bench.settings.seed);
    load(&bench.env, &cluster.database()?, &dataset, bench.progress, &bench.stop)?;
    let databases =
        (0..CLIENTS).map(|_| cluster.database()).collect::<plinth_types::Result<Vec<_>>>()?;
    let writers = Writers::begin(bench, &dataset, databases);
    let time = bench.settings.time / 2;
    let title = "catch-up, commits before";
    let task = bench.progress.timed(title, time);
    block_on(bench.env.sleep(time));
    drop(task);
    let before = writers.rate_since(&bench.env, Duration::ZERO, 0);
    let wanted = committed_index(&block_on(cluster.database()?.status_json())?);
    let (began, counted) = (bench.env.now(), writers.commits.load(Ordering::Relaxed));
    let at = cluster.add()?;
    let look = Look::begin(&bench.env, wanted, cluster.one(at)?);
    let task = bench.progress.unknown("catch-up, the new server");
    cluster.until_ready(at)?;
    look.until_all_is_there(bench)?;
    drop(task);
    let took = bench.env.now() - began;
    let meanwhile = writers.rate_since(&bench.env, began - writers.began, counted);
    let taken = look.end()?;
    writers.end()?;
    Ok(outcome(&dataset, took, &taken, (before, meanwhile)))
}

fn outcome(
    dataset: &Dataset,
    took: Duration,
    taken: &[(Duration, u64)],
    commits: (f64, f64),
) -> Outcome {
    let (before, meanwhile) = commits;
    let (bytes, time, how) = match taken {
        [(first, had), .., (last, has)] if has > had => (has - had, *last - *first, "as rows"),
        // The others have all of their log yet, or it was too quick to be seen at it.
        _ => (dataset.bytes(), took, "as entries of the log, or too quickly to be seen at it"),
    };
    let rate = bytes as f64 / time.as_secs_f64().max(1e-9);
    let title =
        format!("{} rows, {}", words::grouped(dataset.rows()), words::bytes(dataset.bytes()));
    let first = Figure::new("rows taken in", rate, Unit::BytesPerSecond, figures::CATCH_UP);
    let mut outcome = Outcome::new("catch-up", title, first, None);
    let left = Figure::new(
        "commits meanwhile, of before",
        meanwhile / before.max(1e-9),
        Unit::Times,
        figures::CATCH_UP_COST,
    );
    outcome.figures.push(left);
    outcome.figures.push(Figure::new(
        "until it has everything",
        took.as_secs_f64(),
        Unit::Seconds,
        figures::Target::NONE,
    ));
    outcome.notes.push(format!(
        "{} commits/s before, {} meanwhile; what there was came {how}, in {}",
        words::short(before),
        words::short(meanwhile),
        words::duration(time)
    ));
    outcome.details.push((
        "catch_up",
        json!({
            "bytes": bytes,
            "commits_per_second_before": before,
            "commits_per_second_meanwhile": meanwhile,
            "seconds_of_rows": time.as_secs_f64(),
            "seconds_until_it_has_everything": took.as_secs_f64(),
        }),
    ));
    outcome
}

/// Clients that write random rows all the time.
struct Writers {
    began: Duration,
    stop: Arc<AtomicBool>,
    commits: Arc<AtomicU64>,
    tasks: Vec<Task>,
}

impl Writers {
    fn begin(bench: &Bench, dataset: &Dataset, databases: Vec<Database>) -> Self {
        let (stop, commits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut tasks = Vec::new();
        for (number, database) in databases.into_iter().enumerate() {
            let (stop, commits, dataset) = (stop.clone(), commits.clone(), dataset.clone());
            let mut random = Random::new(bench.next_seed(), number as u64);
            tasks.push(bench.env.spawn("bench-catch-up", async move {
                while !stop.load(Ordering::Relaxed) {
                    let tr = database.create_transaction();
                    let key = dataset.random_key(&mut random);
                    loop {
                        tr.set(key, dataset.random_value(&mut random));
                        match tr.commit().await {
                            Ok(()) => break,
                            Err(error) => {
                                if tr.on_error(error).await.is_err() {
                                    return;
                                }
                            }
                        }
                    }
                    commits.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        Self { began: bench.env.now(), stop, commits, tasks }
    }

    /// Commits a second since then, when there had been so many.
    fn rate_since(&self, env: &Env, since: Duration, counted: u64) -> f64 {
        let time = (env.now() - self.began - since).as_secs_f64();
        (self.commits.load(Ordering::Relaxed) - counted) as f64 / time.max(1e-9)
    }

    fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            block_on(task).map_err(plinth_types::Error::from)?;
        }
        Ok(())
    }
}

/// Up to which entry of the log a server has what is committed.
fn committed_index(status: &str) -> u64 {
    let status: Value = status.parse().unwrap_or_default();
    status
        .pointer("/cluster/plinth/member/committed_index")
        .and_then(Value::as_u64)
        .unwrap_or_default()
}

/// How many bytes of rows the new server had taken, and when.
type Seen = Arc<Mutex<Vec<(Duration, u64)>>>;

/// Whoever looks how far the new server is.
struct Look {
    stop: Arc<AtomicBool>,
    /// It has everything that there was when it was started.
    has_all: Arc<AtomicBool>,
    seen: Seen,
    task: Task,
}

impl Look {
    /// `wanted`: the entry up to which the others have what is committed.
    fn begin(env: &Env, wanted: u64, connect: Box<dyn Fn() -> Database + Send>) -> Self {
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Seen::default());
        let (told, found, clock) = (stop.clone(), seen.clone(), env.clone());
        let has_all = Arc::new(AtomicBool::new(false));
        let reached = has_all.clone();
        let task = env.spawn("bench-look", async move {
            let mut server = connect();
            while !told.load(Ordering::Relaxed) {
                let asked = race(server.endpoint().status_json(), clock.sleep(PATIENCE)).await;
                let First::Left(Ok(status)) = asked else {
                    // It doesn't listen yet; a client that tries again does so later and later.
                    server = connect();
                    continue;
                };
                let has = committed_index(&status) >= wanted;
                let status: Value = status.parse().unwrap_or_default();
                match status.pointer("/cluster/plinth/member/catching_up") {
                    Some(Value::Null) => reached.store(has, Ordering::Release),
                    Some(now) => {
                        let bytes = now["taken_bytes"].as_u64().unwrap_or_default();
                        lock(&found).push((clock.now(), bytes));
                    }
                    // It can't be reached.
                    None => server = connect(),
                }
                clock.sleep(LOOK).await;
            }
        });
        Self { stop, has_all, seen, task }
    }

    /// A server whose cluster has all its log yet serves at once, and takes everything as entries.
    fn until_all_is_there(&self, bench: &Bench) -> Result<()> {
        let since = bench.env.now();
        while !self.has_all.load(Ordering::Acquire) {
            if bench.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if bench.env.now() - since > LONG {
                let detail =
                    format!("the new server lacks entries after {}", words::duration(LONG));
                return Err(plinth_types::Error::timed_out().with_detail(detail).into());
            }
            block_on(bench.env.sleep(LOOK / 10));
        }
        Ok(())
    }

    /// What was seen while it took rows: from the last look before there were any to the first at
    /// which there were no more.
    fn end(self) -> Result<Vec<(Duration, u64)>> {
        self.stop.store(true, Ordering::Relaxed);
        block_on(self.task).map_err(plinth_types::Error::from)?;
        let mut seen = std::mem::take(&mut *lock(&self.seen));
        let most = seen.iter().map(|(_, bytes)| *bytes).max().unwrap_or_default();
        seen.truncate(seen.partition_point(|(_, bytes)| *bytes < most) + 1);
        Ok(seen)
    }
}
