//! `plinth bench`: opens a database for each engine, has it measured, and shows or writes the
//! reports.
//!
//! With a cluster file it measures the server that the file names instead, and holds it against
//! what is asked of servers: client and server then share the machine, and what needs the
//! database's files or its process is skipped. It shows that server the token and the certificate
//! that the environment names, as all commands do, so that what rights cost can be measured.
//!
//! What is about data larger than memory, `budget` and `uncached`, has a database of its own where
//! no memory was said. `budget` looks at the memory of the whole process, so that comes before
//! anything else has taken some.

mod host;
mod serve;
pub mod writer;

use crate::encryption;
use crate::failure::{Failure, INTERRUPTED};
use crate::interrupt;
use crate::scratch::Scratch;
use crate::target::Target;
use crate::terminal::{self, Terminal};
use clap::ArgMatches;
use host::LocalHost;
use plinth::{Builder, Database, EngineKind, Local};
use plinth_bench::workloads::{self, Workload};
use plinth_bench::{Bench, Outcome, Place, Provenance, Report, SERVED, Settings, Style};
use plinth_env::sync::{First, race, until_set};
use plinth_env::{Env, Open, block_on};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest time for a workload: a day.
const SECONDS_MAX: f64 = 86_400.0;
/// How soon Ctrl-C is noticed while nothing is measured.
const NOTICED: Duration = Duration::from_millis(50);
/// The engine that keeps to a memory, the workloads about data larger than that, and where those
/// have their database.
const BOUNDED: &str = "ssd";
const LARGER_THAN_MEMORY: [&str; 2] = ["budget", "uncached"];
const LARGER_DIRECTORY: &str = "plinth-bench-budget";

/// What is shown to a server, by the names of the files: figures with it are others.
const SHOWN: [&str; 2] = [crate::token::VARIABLE, "FDB_TLS_CERTIFICATE_FILE"];

/// Runs the command with these options.
pub fn run(options: &ArgMatches) -> Result<u8, Failure> {
    let env = Env::real();
    let workloads = chosen_workloads(options)?;
    let engines: Vec<String> = options.get_many("engine").into_iter().flatten().cloned().collect();
    let settings = settings(options)?;
    let outputs = ["json", "markdown", "html"].map(|name| options.get_one::<PathBuf>(name));
    for output in outputs.into_iter().flatten() {
        // Better now than after ten minutes of measuring.
        block_on(env.files().open(output, Open::Create))
            .map_err(|error| Failure::of(format!("cannot write {}", output.display()), error))?;
    }
    let stop = interrupt::flag();
    let mut reports = Vec::new();
    if let Some(file) = options.get_one::<PathBuf>("cluster-file") {
        let target = Target::of_cluster_file(Some(file))
            .map_err(|error| Failure::usage(error.to_string()))?;
        let opened = target.open(true).map_err(|error| Failure::of("cannot connect", error))?;
        if !answers(&env, &opened.database, &stop) {
            return Ok(INTERRUPTED);
        }
        let place = Directory::new(&env, options.get_one("dir"), None)?;
        reports.push(measure_served(
            &opened.database,
            &place.path,
            settings.clone(),
            &workloads,
            &stop,
        )?);
    }
    if !options.contains_id("cluster-file") {
        reports.extend(measure_engines(
            &env,
            options.get_one("dir"),
            &engines,
            &settings,
            &workloads,
            &stop,
        )?);
    }
    let texts = [json(&reports), all(&reports, Style::Markdown), plinth_bench::page(&reports)];
    for (output, text) in outputs.into_iter().zip(texts) {
        if let Some(path) = output {
            block_on(env.files().replace(path, text.as_bytes()))
                .map_err(|error| Failure::of(format!("cannot write {}", path.display()), error))?;
        }
    }
    if let Some(dir) = options.get_one::<PathBuf>("pictures") {
        write_pictures(&env, dir, &reports)?;
    }
    terminal::print(&all(&reports, Terminal::stdout().style()))?;
    Ok(if stop.load(Ordering::Relaxed) { INTERRUPTED } else { 0 })
}

/// Writes each plot into a directory.
fn write_pictures(env: &Env, dir: &Path, reports: &[Report]) -> Result<(), Failure> {
    let written = block_on(async {
        env.files().create_dir_all(dir).await?;
        for (name, picture) in plinth_bench::pictures(reports) {
            env.files().replace(dir.join(format!("{name}.svg")), picture.as_bytes()).await?;
        }
        Ok::<(), plinth::Error>(())
    });
    written.map_err(|error| {
        Failure::of(format!("cannot write pictures into {}", dir.display()), error)
    })
}

/// All reports, one after the other.
fn all(reports: &[Report], style: Style) -> String {
    reports.iter().map(|report| report.text(style)).collect::<Vec<_>>().join("\n")
}

/// The report as JSON; of several engines, an array of them.
fn json(reports: &[Report]) -> String {
    match reports {
        [report] => report.json_text(),
        reports => {
            let texts: Vec<String> =
                reports.iter().map(|report| report.json_text().trim_end().to_owned()).collect();
            format!("[\n{}\n]\n", texts.join(",\n"))
        }
    }
}

/// Where a database goes: a directory that was given, or a scratch one.
struct Directory {
    path: PathBuf,
    _scratch: Option<Scratch>,
}

impl Directory {
    /// In `dir`, if that is given; in a directory `part` of it, if there are several.
    fn new(env: &Env, dir: Option<&PathBuf>, part: Option<&String>) -> Result<Self, Failure> {
        let scratch = if dir.is_none() { Some(Scratch::new(env, "plinth-bench")?) } else { None };
        if let Some(warning) = scratch.as_ref().and_then(Scratch::warning) {
            plinth_env::tell(format_args!("warning: {warning}"));
        }
        let path = dir.map_or_else(
            || scratch.as_ref().map_or(Path::new("."), Scratch::path),
            PathBuf::as_path,
        );
        let path = std::path::absolute(path)
            .map_err(|error| Failure::of("cannot tell the current directory", error))?;
        Ok(Self { path: part.map_or(path.clone(), |part| path.join(part)), _scratch: scratch })
    }
}

/// Measures one engine after the other.
fn measure_engines(
    env: &Env,
    dir: Option<&PathBuf>,
    engines: &[String],
    settings: &Settings,
    workloads: &[&Workload],
    stop: &Arc<AtomicBool>,
) -> Result<Vec<Report>, Failure> {
    let has_bounded = engines.iter().any(|engine| engine == BOUNDED);
    if settings.memory.is_some() && !has_bounded {
        let text =
            format!("--memory bounds the engine {BOUNDED}; others take what their data need");
        return Err(Failure::usage(text));
    }
    let has_own = has_bounded && settings.memory.is_none();
    let is_apart = |workload: &&Workload| has_own && LARGER_THAN_MEMORY.contains(&workload.name);
    let (apart, together): (Vec<&Workload>, Vec<&Workload>) =
        workloads.iter().copied().partition(is_apart);
    let mut outcomes = Vec::new();
    if !apart.is_empty() {
        let place = Directory::new(env, dir, None)?;
        outcomes = measure_larger(env, &place.path, settings, &apart, stop)?;
    }
    let mut reports = Vec::new();
    for engine in engines {
        let place = Directory::new(env, dir, (engines.len() > 1).then_some(engine))?;
        let is_bounded = engine == BOUNDED;
        let settings =
            Settings { memory: settings.memory.filter(|_| is_bounded), ..settings.clone() };
        let mut report = measure(env, &place.path, settings, &together, provenance(engine), stop)?;
        for (name, outcome) in outcomes.extract_if(.., |_| is_bounded) {
            report.add(name, outcome)?;
        }
        reports.push(report);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(reports)
}

/// What became of a workload, by its name.
type Ended = (&'static str, plinth_bench::Result<Outcome>);

/// Runs workloads on a database of their own, which has more rows than the others', and memory for
/// a part of them.
fn measure_larger(
    env: &Env,
    directory: &Path,
    settings: &Settings,
    workloads: &[&Workload],
    stop: &Arc<AtomicBool>,
) -> Result<Vec<Ended>, Failure> {
    block_on(env.files().create_dir_all(directory))
        .map_err(|error| Failure::of(format!("cannot make {}", directory.display()), error))?;
    let place = Place::new(env, directory.join(LARGER_DIRECTORY))?;
    let settings = settings.of_budget();
    let local = open(&place.path, BOUNDED, settings.memory)?;
    let database = local.into_database();
    let progress = terminal::progress();
    let bench = Bench::prepare(database, place.path.clone(), settings, progress, stop.clone())?;
    Ok(workloads.iter().map(|workload| (workload.name, bench.run_one(workload))).collect())
}

/// Opens the database and runs the workloads.
fn measure(
    env: &Env,
    path: &Path,
    settings: Settings,
    workloads: &[&Workload],
    provenance: Provenance,
    stop: &Arc<AtomicBool>,
) -> Result<Report, Failure> {
    let local = open(path, &provenance.engine, settings.memory)?;
    let database = local.database().clone();
    let progress = terminal::progress();
    let mut bench = Bench::prepare(database, path.to_owned(), settings, progress, stop.clone())?;
    let (env, engine) = (env.clone(), engine_of(&provenance.engine)?);
    bench.host = Some(Arc::new(LocalHost { env, local, engine }));
    Ok(bench.run(workloads, provenance)?)
}

/// Waits until a database answers, or the benchmark is to end: whether it did. An error is for
/// whatever is done with it first.
fn answers(env: &Env, database: &Database, stop: &AtomicBool) -> bool {
    let asked = database.create_transaction();
    let answer = block_on(race(asked.get_read_version(), until_set(stop, env, NOTICED)));
    matches!(answer, First::Left(_))
}

/// Runs the workloads on a database that a server serves.
fn measure_served(
    database: &Database,
    path: &Path,
    settings: Settings,
    workloads: &[&Workload],
    stop: &Arc<AtomicBool>,
) -> Result<Report, Failure> {
    let progress = terminal::progress();
    let bench =
        Bench::prepare(database.clone(), path.to_owned(), settings, progress, stop.clone())?;
    // Whoever is no operator isn't told.
    let engine = if bench.engine.is_empty() { "unknown" } else { &bench.engine };
    let mut provenance = provenance(&format!("{engine}{SERVED}"));
    let shown: Vec<String> = SHOWN.iter().filter_map(|name| named(name)).collect();
    provenance.command = [&shown[..], &[provenance.command]].concat().join(" ");
    Ok(bench.run(workloads, provenance)?)
}

fn open(path: &Path, engine: &str, memory: Option<u64>) -> Result<Local, Failure> {
    let mut builder =
        encryption::of_environment(Builder::new(path).engine(engine_of(engine)?), path)
            .map_err(|error| Failure::opening(path.display(), &error))?;
    if let Some(bytes) = memory {
        builder = builder.memory_bytes(bytes);
    }
    builder.open().map_err(|error| Failure::opening(path.display(), &error))
}

/// The engine of this name.
fn engine_of(name: &str) -> Result<EngineKind, Failure> {
    EngineKind::from_name(name).map_err(|error| Failure::usage(error.summary()))
}

/// A variable of the environment, as it is set before a command.
fn named(name: &str) -> Option<String> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
    Some(format!("{name}={value}"))
}

/// What ran: this program, with this command line.
pub fn provenance(engine: &str) -> Provenance {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut() {
        "plinth".clone_into(program);
    }
    Provenance {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: env!("PLINTH_COMMIT").to_owned(),
        command: words.join(" "),
        engine: engine.to_owned(),
    }
}

fn chosen_workloads(options: &ArgMatches) -> Result<Vec<&'static Workload>, Failure> {
    let names: Vec<&String> = options.get_many("workload").into_iter().flatten().collect();
    Ok(workloads::select(&names)?)
}

fn settings(options: &ArgMatches) -> Result<Settings, Failure> {
    let number = |name| options.get_one::<u64>(name).copied();
    let seconds = |name: &str| {
        let seconds = options.get_one::<f64>(name).copied().unwrap_or_default();
        if seconds > 0.0 && seconds <= SECONDS_MAX {
            return Ok(Duration::from_secs_f64(seconds));
        }
        Err(Failure::usage(format!(
            "--{name} must be more than 0 and at most {SECONDS_MAX}, not {seconds}"
        )))
    };
    Ok(Settings {
        rows: number("rows").unwrap_or_default(),
        clients: number("clients").map(|clients| clients as usize),
        threads: number("threads").map(|threads| threads as usize),
        memory: number("memory"),
        time: seconds("seconds")?,
        rest: seconds("rest")?,
        ..Settings::default()
    })
}
