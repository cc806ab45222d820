//! The `plinth` program: a guided tour, the benchmark, a shell, help for damaged databases.
//!
//! ## Role
//! Turns a command line into calls of the library, and what they give into words, tables and exit
//! codes. It uses the same API as every application.
//!
//! ## Data structure
//! ```text
//!   plinth demo            demo/    tour ─▶ crash (starts itself, kills it, recovers) ─▶ bench, in short
//!   plinth bench           bench/       a directory or a scratch one ─▶ plinth-bench ─▶ table, JSON, Markdown
//!   plinth server, dev     server.rs    a database on a socket, until SIGTERM
//!   plinth shell           shell/    words ─▶ session ─▶ a command on any database
//!   plinth backup, restore backup/      a database ─▶ plinth-backup ─▶ files, and back
//!   plinth migrate         migrate.rs   two databases by name ─▶ plinth-migrate
//!   plinth changes         changes.rs   streams of changes, registered and followed
//!   plinth dr              dr.rs        two databases by name ─▶ plinth-dr
//!   plinth series          series/      points out of and into files; lists, descriptions, plots
//!   plinth status, top     monitor.rs   the status document, in words, once or live
//!   plinth sim             sim.rs       seeds ─▶ plinth-sim
//!   plinth check DIR       damage.rs    every checksum
//!   plinth salvage DIR OUT damage.rs    what is readable
//!   plinth completions     reference.rs the command line ─▶ completions for shells; man pages
//! ```
//!
//! ## Invariants
//! 1. What a command found goes to standard output; progress and failures go to standard error.
//! 2. A failure says what happened, where, and what to do; the exit code tells scripts which kind
//!    it was.
//! 3. Temporary directories are gone at the end, also after Ctrl-C.
//!
//! ## Not here
//! Workloads and the figures they are held against: `bench`. Read next: `command.rs`, then
//! `demo/mod.rs`.
#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod agents;
mod allocator;
mod backup;
mod bench;
mod changes;
mod command;
mod damage;
mod demo;
mod dev_nodes;
mod dr;
mod encryption;
mod failure;
mod interrupt;
mod layers;
mod member;
mod migrate;
mod monitor;
mod nodes;
mod patience;
mod process;
mod reference;
mod scratch;
mod series;
mod series_settings;
mod server;
mod settings;
mod shell;
mod silence;
mod sim;
mod starting;
mod target;
mod terminal;
mod tls;
mod token;
mod told;
mod trend;

use clap::ArgMatches;
use failure::Failure;
use std::process::ExitCode;

/// The version and the commit, as `plinth --version` shows them.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("PLINTH_COMMIT"), ")");
/// What a server writes into its directory for clients to find it by.
const CLUSTER_FILE: &str = "fdb.cluster";

fn main() -> ExitCode {
    allocator::give_large_blocks_back();
    let matches = command::command(VERSION).get_matches();
    match run(&matches) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.tell();
            ExitCode::from(failure.code())
        }
    }
}

fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    // A server has a setting for it.
    match matches.subcommand() {
        Some(("server", options)) => return server::run(options),
        Some(("dev", options)) => return server::dev(options),
        _ => {}
    }
    let _listening = plinth_telemetry::begin_as_asked().map_err(Failure::usage)?;
    match matches.subcommand() {
        Some(("bench", options)) => bench::run(options),
        Some(("demo", options)) => demo::run(options.get_flag("short")),
        Some((command::WRITER, options)) => demo::writer::run(options),
        Some((command::BENCH_WRITER, options)) => bench::writer::run(options),
        Some(("shell", options)) => shell::run(options),
        Some(("sim", options)) => Ok(sim::run(options)),
        Some(("backup", options)) => backup::run(options),
        Some(("restore", options)) => backup::restore(options),
        Some(("migrate", options)) => migrate::run(options),
        Some(("changes", options)) => changes::run(options),
        Some(("dr", options)) => dr::run(options),
        Some(("series", options)) => series::run(options),
        Some(("tls", options)) => tls::run(options),
        Some(("status", options)) => monitor::status(options),
        Some(("top", options)) => monitor::top(options),
        Some(("check", options)) => damage::check(options),
        Some(("salvage", options)) => damage::salvage(options),
        Some((reference::COMPLETIONS, options)) => {
            reference::completions(&command::command(VERSION), options)
        }
        Some((reference::MAN_PAGES, options)) => {
            reference::man_pages(&command::command(VERSION), options)
        }
        Some(("version", _)) => {
            terminal::print(&format!("plinth {VERSION}\n"))?;
            Ok(0)
        }
        _ => Err(Failure::usage("there is no such command; see plinth --help")),
    }
}
