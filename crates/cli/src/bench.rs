//! `plinth bench`: opens a database, has it measured, and shows or writes the report.

use crate::failure::{Failure, INTERRUPTED};
use crate::interrupt;
use crate::scratch::Scratch;
use crate::terminal::{self, Terminal};
use clap::ArgMatches;
use plinth::{Database, Error};
use plinth_bench::workloads::{self, Workload};
use plinth_bench::{Bench, Provenance, Report, Settings, Style};
use plinth_env::{Env, Open, block_on};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest time for a workload: a day.
const SECONDS_MAX: f64 = 86_400.0;

/// Runs the command with these options.
pub fn run(options: &ArgMatches) -> Result<u8, Failure> {
    let env = Env::real();
    let workloads = chosen_workloads(options)?;
    let engine = text(options, "engine");
    let settings = settings(options)?;
    let outputs = ["json", "markdown"].map(|name| options.get_one::<PathBuf>(name));
    for output in outputs.into_iter().flatten() {
        // Better now than after ten minutes of measuring.
        block_on(env.files().open(output, Open::Create))
            .map_err(|error| Failure::of(format!("cannot write {}", output.display()), error))?;
    }
    let provenance = provenance(&engine);
    let (report, interrupted) = measure(&env, options.get_one("dir"), settings, &workloads, provenance)?;
    let texts = [report.json_text(), report.text(Style::Markdown)];
    for (output, text) in outputs.into_iter().zip(texts) {
        if let Some(path) = output {
            block_on(env.files().replace(path, text.as_bytes()))
                .map_err(|error| Failure::of(format!("cannot write {}", path.display()), error))?;
        }
    }
    terminal::print(&report.text(Terminal::stdout().style()))?;
    Ok(if interrupted { INTERRUPTED } else { 0 })
}

/// Opens the database and runs the workloads; also says whether that was interrupted.
fn measure(
    env: &Env,
    dir: Option<&PathBuf>,
    settings: Settings,
    workloads: &[&Workload],
    provenance: Provenance,
) -> Result<(Report, bool), Failure> {
    let stop = interrupt::flag();
    let scratch = if dir.is_none() { Some(Scratch::new(env, "plinth-bench")?) } else { None };
    if let Some(warning) = scratch.as_ref().and_then(Scratch::warning) {
        eprintln!("warning: {warning}");
    }
    let path = dir.map_or_else(|| scratch.as_ref().map_or(Path::new("."), Scratch::path), PathBuf::as_path);
    let path =
        std::path::absolute(path).map_err(|error| Failure::of("cannot tell the current directory", error))?;
    let database = open(&path, &provenance.engine)?;
    let progress = terminal::progress();
    let bench = Bench::prepare((*database).clone(), path.clone(), settings, progress, stop.clone())?;
    let report = bench.run(workloads, provenance)?;
    drop(bench);
    drop(database);
    Ok((report, stop.load(Ordering::Relaxed)))
}

fn open(path: &Path, engine: &str) -> Result<Database, Failure> {
    Database::builder(path).engine(engine).open().map_err(|error| match error.detail() {
        Some(detail) if error == Error::invalid_option_value() => Failure::usage(detail),
        _ => Failure::of(format!("cannot open {}", path.display()), error),
    })
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
        Err(Failure::usage(format!("--{name} must be more than 0 and at most {SECONDS_MAX}, not {seconds}")))
    };
    Ok(Settings {
        rows: number("rows").unwrap_or_default(),
        clients: number("clients").map(|clients| clients as usize),
        threads: number("threads").map(|threads| threads as usize),
        time: seconds("seconds")?,
        rest: seconds("rest")?,
        ..Settings::default()
    })
}

fn text(options: &ArgMatches, name: &str) -> String {
    options.get_one::<String>(name).cloned().unwrap_or_default()
}
