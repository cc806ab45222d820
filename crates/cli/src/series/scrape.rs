//! `plinth series scrape`: what is to be scraped, before a server is told.

use crate::failure::Failure;
use crate::terminal;
use clap::{Arg, ArgMatches, Command};
use plinth_bench::words::grouped;
use plinth_env::{Env, block_on};
use plinth_server::check_scraping;
use std::path::Path;

/// The command line of `plinth series scrape`.
pub fn command() -> Command {
    let file = Arg::new("file")
        .value_name("FILE")
        .required(true)
        .help("A file with scrape_configs, as Prometheus has them");
    let check = Command::new("check")
        .about("Says whether a server would take this file, and else what is wrong and where")
        .arg(file);
    Command::new("scrape")
        .about("Who is scraped")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(check)
}

/// Runs the command with these options.
pub fn run(options: &ArgMatches) -> Result<u8, Failure> {
    let Some(("check", options)) = options.subcommand() else {
        return Err(Failure::usage("there is no such command; see plinth series scrape --help"));
    };
    let file = options.get_one::<String>("file").map_or("", String::as_str);
    let checked = block_on(check_scraping(&Env::real(), Path::new(file)));
    let (jobs, targets) = checked.map_err(Failure::new)?;
    let (jobs, targets) = (grouped(jobs as u64), grouped(targets as u64));
    terminal::print(&format!("{file}: jobs {jobs}, targets {targets}\n"))?;
    Ok(0)
}
