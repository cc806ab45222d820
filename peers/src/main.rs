//! Plinth's workloads on other embedded stores, with the same durability, the same rows and the
//! same clients.
//!
//! ## Role
//! Opens each store in a directory of its own, loads the benchmark's rows, and runs the workloads
//! that all of them have, the stores one after the other at each workload, so that each workload
//! meets all of them within the same minute. Afterwards Plinth runs all workloads once more with
//! the benchmark's own clients. Prints a Markdown table.
//!
//! ## Data structure
//! ```text
//!   stores/*.rs ── trait Store (a transaction is one call that blocks) ──▶ workloads.rs: a thread for each client ─▶ table
//!   Plinth, besides a column for each engine, also with the benchmark's own clients, which are tasks on one thread or two
//! ```
//!
//! ## Invariants
//! 1. A write is on the disk (`fdatasync` or more) when its call returns, in every store.
//! 2. Reads of one transaction are of one version; what reads and writes in one is serializable.
//! 3. Keys, values and random numbers are the benchmark's own.
//!
//! ## Not here
//! The workloads that only Plinth has, and FoundationDB's figures: `plinth bench`. Read next:
//! `store.rs`, `workloads.rs`.
//!
//! ```text
//! cargo run --release --manifest-path peers/Cargo.toml [--features rocksdb] -- [--rows N] [--seconds S] [--dir DIR] [--store NAME,...]
//! ```

mod store;
mod stores;
mod workloads;

use plinth_bench::{Bench, Dataset, Progress, Provenance, Settings, machine::Machine, words};
use plinth_env::{Env, block_on};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use store::{Result, Store};

/// What the command line says.
struct Options {
    rows: u64,
    time: Duration,
    dir: Option<PathBuf>,
    stores: Vec<String>,
}

/// One column of the table.
struct Column {
    name: String,
    /// The rate and the 99th percentile of each workload, where it has it.
    cells: Vec<String>,
}

fn main() -> ExitCode {
    match options(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plinth-other-stores: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let known: Vec<&str> = stores::ALL.iter().map(|(name, _)| *name).collect();
    let stores = known.iter().map(|name| (*name).to_owned()).collect();
    let mut options = Options { rows: 1_000_000, time: Duration::from_secs(10), dir: None, stores };
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--rows" => options.rows = value.parse()?,
            "--seconds" => options.time = Duration::try_from_secs_f64(value.parse()?)?,
            "--dir" => options.dir = Some(PathBuf::from(value)),
            "--store" => options.stores = value.split(',').map(str::to_owned).collect(),
            _ => {
                return Err(format!(
                    "no option {name}; there are --rows, --seconds, --dir, --store"
                )
                .into());
            }
        }
    }
    if let Some(unknown) = options.stores.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("no store {unknown}; there are {}", known.join(", ")).into());
    }
    Ok(options)
}

fn run(options: &Options) -> Result<()> {
    let env = Env::real();
    let temporary = match &options.dir {
        Some(_) => None,
        None => Some(block_on(env.files().temporary_dir("plinth-other-stores"))?),
    };
    let dir = options.dir.clone().or_else(|| temporary.as_ref().map(|dir| dir.path().to_owned()));
    let dir = dir.unwrap_or_default();
    let dataset = Dataset::new(options.rows, 1);
    let mut open: Vec<(Arc<dyn Store>, Column)> = Vec::new();
    for (name, opener) in
        stores::ALL.iter().filter(|(name, _)| options.stores.iter().any(|wanted| wanted == name))
    {
        let path = dir.join(name);
        block_on(env.files().create_dir_all(&path))?;
        let store = opener(&path)?;
        let time = workloads::load(&env, &store, &dataset)?;
        let rate = options.rows as f64 / time.as_secs_f64();
        eprintln!("{name}: loaded {} rows/s", words::short(rate));
        let column = Column { name: store.name(), cells: vec![words::short(rate)] };
        open.push((store, column));
    }
    for workload in workloads::ALL {
        for (store, column) in &mut open {
            let tally = workloads::run(&env, store, &dataset, workload, options.time)?;
            let cell =
                cell(tally.operations as f64 / options.time.as_secs_f64(), tally.latency().p99);
            eprintln!("{} on {}: {cell}", workload.name, column.name);
            column.cells.push(cell);
        }
    }
    let isolation: Vec<String> = open
        .iter()
        .map(|(store, column)| format!("{}: {}", column.name, store.isolation()))
        .collect();
    let mut columns: Vec<Column> = open.into_iter().map(|(_, column)| column).collect();
    columns.insert(0, tasks(&dir.join("plinth-tasks"), options)?);
    print!("{}", table(&env, &dir, options, &columns, &isolation));
    Ok(())
}

/// Plinth as the benchmark runs it: clients are tasks.
fn tasks(path: &Path, options: &Options) -> Result<Column> {
    let database = plinth::Local::open(path)?.into_database();
    let settings = Settings { rows: options.rows, time: options.time, ..Settings::default() };
    let bench =
        Bench::prepare(database, path.to_owned(), settings, Progress::Lines, Arc::default())?;
    let load = bench.load.as_ref().map(plinth_bench::workloads::Load::rate);
    let mut cells = vec![load.map_or_else(String::new, words::short)];
    for workload in workloads::ALL {
        let selected = plinth_bench::workloads::select(&[workload.name])?;
        let report = bench.run(&selected, Provenance::default())?;
        let measured = report.outcomes.first().and_then(|outcome| outcome.measurement.as_ref());
        cells.push(measured.map_or_else(String::new, |m| cell(m.rate(), m.tally.latency().p99)));
    }
    Ok(Column { name: "Plinth (tasks)".to_owned(), cells })
}

fn cell(rate: f64, p99: Duration) -> String {
    format!("{} ({})", words::short(rate), words::duration(p99))
}

fn table(
    env: &Env,
    dir: &Path,
    options: &Options,
    columns: &[Column],
    isolation: &[String],
) -> String {
    let machine = Machine::this(env, dir);
    let mut text = format!(
        "{} rows of 16-byte keys and values of 8 to 100 bytes, {} a workload; {}, {} processors, {}, {}\n\n",
        words::grouped(options.rows),
        words::duration(options.time),
        machine.processor,
        machine.cores,
        machine.system,
        machine.filesystem,
    );
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    text.push_str(&format!(
        "| workload | {} |\n|---|{}\n",
        names.join(" | "),
        "---:|".repeat(names.len())
    ));
    let load = ("load, rows/s".to_owned(), 0);
    let rest = workloads::ALL.iter().enumerate();
    let rest = rest.map(|(number, workload)| {
        (format!("{}: {}, {}", workload.name, workload.what, workload.counted), number + 1)
    });
    for (what, at) in std::iter::once(load).chain(rest) {
        let cells: Vec<&str> = columns.iter().map(|column| column.cells[at].as_str()).collect();
        text.push_str(&format!("| {what} | {} |\n", cells.join(" | ")));
    }
    text.push_str("\nIn parentheses the time within which 99 of 100 transactions ended.\n");
    text.push_str(&format!("Isolation of what reads and writes: {}.\n", isolation.join("; ")));
    text
}
