//! `plinth check` and `plinth salvage`: what to do when a disk has not kept what it was given.
//!
//! Both print what they found to standard output, each damaged place on a line of its own, and end with
//! exit code 3 if there was any.

use crate::failure::{DAMAGED, Failure};
use crate::terminal::{self, Terminal};
use clap::ArgMatches;
use plinth_bench::words::{bytes, grouped};
use plinth_env::{Env, block_on};
use std::fmt::Display;
use std::path::PathBuf;

/// `plinth check DIR`.
pub fn check(options: &ArgMatches) -> Result<u8, Failure> {
    let dir = path(options, "dir");
    let task = terminal::progress().unknown(&format!("checking {}", dir.display()));
    let report = block_on(plinth::check(&Env::real(), &dir));
    drop(task);
    let report = report.map_err(|error| Failure::of(format!("cannot check {}", dir.display()), error))?;
    println!("log          {} records, {}", grouped(report.log_records), bytes(report.log_bytes));
    println!("checkpoint   {} rows, {}", grouped(report.checkpoint_rows), bytes(report.checkpoint_bytes));
    if let Some(tail) = &report.torn_tail {
        println!("unfinished   {tail}; this is what a crash leaves, and the next start cuts it off");
    }
    let terminal = Terminal::stdout();
    if report.problems.is_empty() {
        println!("{}: every checksum holds", terminal.good("ok"));
        return Ok(0);
    }
    tell(terminal, &report.problems);
    let dir = dir.display();
    println!("Restore a backup, or copy what is readable into a new database: plinth salvage {dir} OUT");
    Ok(DAMAGED)
}

/// `plinth salvage DIR OUT`.
pub fn salvage(options: &ArgMatches) -> Result<u8, Failure> {
    let (dir, out) = (path(options, "dir"), path(options, "out"));
    let task = terminal::progress().unknown(&format!("copying {} to {}", dir.display(), out.display()));
    let report = block_on(plinth::salvage(&Env::real(), &dir, &out));
    drop(task);
    let failed = |error| Failure::of(format!("cannot copy {} to {}", dir.display(), out.display()), error);
    let report = report.map_err(failed)?;
    println!(
        "copied       {} rows, after {} batches of the log",
        grouped(report.rows),
        grouped(report.batches)
    );
    let terminal = Terminal::stdout();
    if report.problems.is_empty() && report.missing_batches == 0 {
        println!("{}: nothing was damaged, {} has everything", terminal.good("ok"), out.display());
        return Ok(0);
    }
    tell(terminal, &report.problems);
    if report.missing_batches > 0 {
        let missing = grouped(report.missing_batches);
        println!(
            "batches of commits that are missing: {missing}; what they wrote is older than it was, or absent"
        );
    }
    Ok(DAMAGED)
}

/// One line for each damaged place.
fn tell(terminal: Terminal, problems: &[impl Display]) {
    let places = if problems.len() == 1 { "place" } else { "places" };
    println!("{} in {} {places}:", terminal.bad("damaged"), grouped(problems.len() as u64));
    for problem in problems {
        println!("  {problem}");
    }
}

fn path(options: &ArgMatches, name: &str) -> PathBuf {
    options.get_one::<PathBuf>(name).cloned().unwrap_or_default()
}
