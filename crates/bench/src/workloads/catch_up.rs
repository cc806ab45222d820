//! A new member of a cluster with rows: how fast it takes them, and what is left of the others'
//! commits meanwhile.
//!
//! ```text
//!   three servers    rows, then blind writes of eight clients all the time
//!   a fourth one     started empty ─▶ taken in ─▶ rows, chunk by chunk ─▶ entries behind them ─▶ has everything
//!                                                  <- bytes a second ->
//!   commits a second     before         | meanwhile: while it takes rows, or entries if it takes no rows
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
use std::sync::atomic::{AtomicBool, Ordering};
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
    let begun = bench.env.wall_clock();
    let before = writers.rate(writers.began, begun);
    let wanted = committed_index(&block_on(cluster.database()?.status_json())?);
    let at = cluster.add()?;
    let look = Look::begin(&bench.env, wanted, cluster.one(at)?);
    let task = bench.progress.unknown("catch-up, the new server");
    cluster.until_ready(at)?;
    look.until_all_is_there(bench)?;
    drop(task);
    let ended = bench.env.wall_clock();
    let taken = look.end()?;
    let (from, to) = taken.map_or((begun, ended), |rows| (rows.began, rows.began + rows.took));
    let meanwhile = writers.rate(from, to);
    writers.end()?;
    Ok(outcome(&dataset, ended.saturating_sub(begun), taken, (before, meanwhile)))
}

fn outcome(
    dataset: &Dataset,
    took: Duration,
    taken: Option<RowsTaken>,
    (before, meanwhile): (f64, f64),
) -> Outcome {
    let (bytes, time, how) = match taken {
        Some(rows) => (rows.bytes, rows.took, "as rows"),
        // The others have all of their log yet.
        None => (dataset.bytes(), took, "as entries of the log"),
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
    /// When each commit was answered. All times are the wall clock's, as the servers' are.
    commits: Arc<Mutex<Vec<Duration>>>,
    tasks: Vec<Task>,
}

impl Writers {
    fn begin(bench: &Bench, dataset: &Dataset, databases: Vec<Database>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let commits = Arc::<Mutex<Vec<Duration>>>::default();
        let began = bench.env.wall_clock();
        let mut tasks = Vec::new();
        for (number, database) in databases.into_iter().enumerate() {
            let (stop, commits) = (stop.clone(), Arc::clone(&commits));
            let (dataset, clock) = (dataset.clone(), bench.env.clone());
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
                    lock(&commits).push(clock.wall_clock());
                }
            }));
        }
        Self { began, stop, commits, tasks }
    }

    /// Commits a second between two moments.
    fn rate(&self, from: Duration, to: Duration) -> f64 {
        let commits = lock(&self.commits);
        let counted = commits.iter().filter(|at| (from..to).contains(*at)).count();
        counted as f64 / to.saturating_sub(from).as_secs_f64().max(1e-9)
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

/// How the new server took rows, as it says itself.
#[derive(Clone, Copy)]
struct RowsTaken {
    bytes: u64,
    began: Duration,
    took: Duration,
}

impl RowsTaken {
    /// `None` if it has taken none.
    fn read(status: &Value) -> Option<Self> {
        let rows = status.pointer("/cluster/plinth/member/rows_taken")?;
        let seconds = |name: &str| Duration::try_from_secs_f64(rows[name].as_f64()?).ok();
        Some(Self {
            bytes: rows["bytes"].as_u64()?,
            began: seconds("began")?,
            took: seconds("seconds")?,
        })
    }
}

/// Whoever looks how far the new server is.
struct Look {
    stop: Arc<AtomicBool>,
    /// It has everything that there was when it was started.
    has_all: Arc<AtomicBool>,
    rows: Arc<Mutex<Option<RowsTaken>>>,
    task: Task,
}

impl Look {
    /// `wanted`: the entry up to which the others have what is committed.
    fn begin(env: &Env, wanted: u64, connect: Box<dyn Fn() -> Database + Send>) -> Self {
        let (stop, rows) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (told, taken, clock) = (stop.clone(), Arc::clone(&rows), env.clone());
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
                    Some(Value::Null) => {
                        *lock(&taken) = RowsTaken::read(&status);
                        reached.store(has, Ordering::Release);
                    }
                    // It takes rows yet.
                    Some(_) => {}
                    // It can't be reached.
                    None => server = connect(),
                }
                clock.sleep(LOOK).await;
            }
        });
        Self { stop, has_all, rows, task }
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

    /// How it took rows, if it did.
    fn end(self) -> Result<Option<RowsTaken>> {
        self.stop.store(true, Ordering::Relaxed);
        block_on(self.task).map_err(plinth_types::Error::from)?;
        Ok(*lock(&self.rows))
    }
}
