//! What a benchmark runs on: a database, of which this makes sure that the rows are there.
//!
//! The rows are loaded once and used by all workloads, and by later runs on the same directory. A
//! mark, a row of its own, says whether they are complete, so a load that was cut short is made
//! again; and a database with data but no mark is somebody's, and refused before anything is
//! written.

use crate::dataset::{Dataset, MAX_ROWS};
use crate::host::Host;
use crate::load::{Load, load};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::random::Random;
use crate::served::{self, Spent};
use crate::{Error, Result, words};
use plinth_client::{Database, RangeOptions};
use plinth_env::Env;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Rows in the guide's tests, which is what figures are compared with.
pub(crate) const GUIDE_ROWS: u64 = 1_000_000;
/// So many times the rows are used to see whether a memory is kept to, so that what every process
/// takes matters little.
const BUDGET_ROWS: u64 = 20;
/// How many times as large as the memory the data are then.
const BUDGET_TIMES: u64 = 10;
/// Less memory than this nobody gives a database.
const BUDGET_LEAST: u64 = 16 << 20;
/// Says that the rows are all there, and how many. Sorts before them.
const MARK: &[u8] = b"bench:rows";
/// What it says until the load is through.
const LOADING: &str = "loading";

/// How to run.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Rows to load.
    pub rows: u64,
    /// Clients, instead of each workload's own number; workloads of one client keep theirs.
    pub clients: Option<usize>,
    /// Threads, instead of each workload's own number; workloads about threads keep theirs.
    pub threads: Option<usize>,
    /// How long each workload is measured.
    pub time: Duration,
    /// How long to wait before memory is at rest: longer than the window of old versions.
    pub rest: Duration,
    /// Where random numbers begin.
    pub seed: u64,
    /// Bytes of memory that the database was given for its data, if that was said.
    pub memory: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        let (time, rest) = (Duration::from_secs(10), Duration::from_secs(8));
        Self { rows: GUIDE_ROWS, clients: None, threads: None, time, rest, seed: 1, memory: None }
    }
}

impl Settings {
    /// The same for the workload `budget` where no memory was said: many more rows, and a memory
    /// for a tenth of their bytes.
    #[must_use]
    pub fn of_budget(&self) -> Self {
        let rows = self.rows.saturating_mul(BUDGET_ROWS).min(MAX_ROWS);
        let bytes = Dataset::new(rows, self.seed).bytes();
        Self { rows, memory: Some((bytes / BUDGET_TIMES).max(BUDGET_LEAST)), ..self.clone() }
    }
}

/// Whose process has the database that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// This one.
    Ours,
    /// A server's, whose process it is if that is on this machine.
    Server(Option<u32>),
}

impl Owner {
    /// Whoever has `database`.
    fn of(database: &Database) -> Self {
        if Spent::now(database).is_some() {
            Self::Server(served::process(database))
        } else {
            Self::Ours
        }
    }
}

/// A benchmark run on a database that holds the rows.
#[derive(Clone)]
pub struct Bench {
    /// The real world's clock, tasks and files.
    pub env: Env,
    /// The database measured.
    pub database: Database,
    /// Where calibrators write: on the database's disk.
    pub directory: PathBuf,
    /// Its storage engine, as far as it tells.
    pub engine: String,
    /// The rows.
    pub dataset: Dataset,
    /// How to run.
    pub settings: Settings,
    /// What people see meanwhile.
    pub progress: Progress,
    /// Set to make the run end early.
    pub stop: Arc<AtomicBool>,
    /// How the rows were loaded; `None` if they were there already.
    pub load: Option<Load>,
    /// Whose process has the database.
    pub owner: Owner,
    /// Whoever opened the database; without one, workloads that need it are skipped.
    pub host: Option<Arc<dyn Host>>,
    /// How often clients were set to work: each time with random numbers of their own.
    pub(crate) drives: Arc<AtomicU64>,
}

/// The seed of the clients that are set to work for the `drive`th time.
fn seed_of(seed: u64, drive: u64) -> u64 {
    Random::new(seed, !drive).bits()
}

impl Bench {
    /// The same run on another database, which holds the same rows.
    pub(crate) fn of(&self, database: Database) -> Self {
        Self { owner: Owner::of(&database), database, ..self.clone() }
    }

    /// Whether the database is another process's.
    pub fn is_served(&self) -> bool {
        matches!(self.owner, Owner::Server(_))
    }

    /// The process that has the database, if that is another one on this machine.
    pub(crate) fn process(&self) -> Option<u32> {
        match self.owner {
            Owner::Server(process) => process,
            Owner::Ours => None,
        }
    }

    /// The seed of what clients are set to do now. With the one of the time before they would ask
    /// for the same rows again, and find them in caches.
    pub(crate) fn next_seed(&self) -> u64 {
        seed_of(self.settings.seed, self.drives.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes sure that `database`, whose files lie in `directory`, holds the rows: loads them if it
    /// is empty, takes them if it holds just them, and refuses it if it holds anything else.
    /// Setting `stop` ends the load, and later the run, early.
    pub fn prepare(
        database: Database,
        directory: PathBuf,
        settings: Settings,
        progress: Progress,
        stop: Arc<AtomicBool>,
    ) -> Result<Self> {
        if settings.rows == 0 || settings.rows > MAX_ROWS {
            let most = words::grouped(MAX_ROWS);
            return Err(Error::OtherData(format!(
                "the number of rows must lie between 1 and {most}"
            )));
        }
        let env = Env::real();
        let dataset = Dataset::new(settings.rows, settings.seed);
        let load = if holds_rows(&database, settings.rows)? {
            None
        } else {
            set_mark(&database, LOADING)?;
            let loaded = load(&env, &database, &dataset, progress, &stop)?;
            set_mark(&database, &settings.rows.to_string())?;
            Some(loaded)
        };
        let engine = engine_of(&database);
        let owner = Owner::of(&database);
        Ok(Self {
            env,
            database,
            engine,
            directory,
            dataset,
            settings,
            progress,
            stop,
            load,
            owner,
            host: None,
            drives: Arc::default(),
        })
    }

    /// The plan of a workload that has so many clients on so many threads, unless the settings say
    /// otherwise. With a server they are on all threads that serve connections.
    pub(crate) fn plan(&self, title: &str, clients: usize, threads: usize) -> Plan {
        let threads = if self.is_served() { self.env.network_threads() } else { threads };
        Plan {
            title: title.to_owned(),
            clients: self.settings.clients.unwrap_or(clients).max(1),
            threads: self.settings.threads.unwrap_or(threads).max(1),
            time: self.settings.time,
            slices: 0,
        }
    }
}

/// The engine as the status document names it; empty if it doesn't.
fn engine_of(database: &Database) -> String {
    let document: Option<serde_json::Value> =
        database.status_json().wait().ok().and_then(|text| text.parse().ok());
    let name = |document: serde_json::Value| {
        Some(document.pointer("/cluster/configuration/storage_engine")?.as_str()?.to_owned())
    };
    document.and_then(name).unwrap_or_default()
}

fn set_mark(database: &Database, mark: &str) -> Result<()> {
    Ok(database.transact_blocking(|transaction| {
        transaction.set(MARK, mark);
        Ok(())
    })?)
}

/// Whether `database` holds the benchmark's rows, so many; an error if it holds anything else.
fn holds_rows(database: &Database, rows: u64) -> Result<bool> {
    let (loaded, is_empty) = database.transact_blocking(|transaction| {
        let loaded = transaction.get(MARK).wait()?;
        let first =
            transaction.get_range(RangeOptions::from(&b""[..]..&b"\xff"[..]).limit(3)).wait()?;
        // A server that takes in series has written what they are kept as, and who has them, before
        // there is any: on a FoundationDB among users' keys.
        let series = database.endpoint().series_prefix();
        let is_of_series = first.rows.iter().all(|(key, _)| key.starts_with(series));
        let is_empty = first.rows.is_empty() || (first.rows.len() < 3 && is_of_series);
        Ok((loaded, is_empty))
    })?;
    let loaded = loaded.map(|count| String::from_utf8_lossy(&count).into_owned());
    match (loaded, is_empty) {
        (Some(mark), _) if mark == rows.to_string() => Ok(true),
        (Some(mark), _) if mark == LOADING => Ok(false),
        (Some(count), _) => Err(Error::OtherData(format!(
            "the database holds {count} rows of an earlier benchmark, not {rows}; give --rows {count}, or another directory"
        ))),
        (None, true) => Ok(false),
        (None, false) => Err(Error::OtherData(
            "the database holds data that is not the benchmark's, which would write among it; give another directory"
                .to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_drives_ask_for_the_same_rows() {
        let first_rows = |seed: u64, drive: u64| {
            let mut random = Random::new(seed_of(seed, drive), 0);
            [(); 3].map(|()| random.below(1_000_000))
        };
        let all: BTreeSet<_> = (0..1000).map(|drive| first_rows(1, drive)).collect();
        assert_eq!(all.len(), 1000);
        assert_eq!(first_rows(1, 7), first_rows(1, 7), "the same run asks for the same rows again");
        assert_ne!(first_rows(1, 7), first_rows(2, 7));
    }

    #[test]
    fn a_budget_is_a_tenth_of_many_rows_and_never_less_than_anybody_would_give() {
        let of = |rows| Settings { rows, ..Settings::default() }.of_budget();
        let settings = of(GUIDE_ROWS);
        assert_eq!((settings.rows, settings.memory), (20_000_000, Some(140_000_000)));
        assert_eq!(of(500).memory, Some(16 << 20));
        assert_eq!(of(MAX_ROWS).rows, MAX_ROWS);
    }
}
