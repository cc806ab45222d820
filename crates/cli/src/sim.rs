//! `plinth sim`: the simulation, any number of seeds. Its command line is the simulation's own.

use clap::{Arg, ArgMatches, Command};
use plinth_sim::Caller;

/// The argument that takes all others.
const ARGUMENTS: &str = "arguments";

/// What clap is to know of it.
pub fn command() -> Command {
    Command::new("sim")
        .about(
            "Simulates a whole database under crashes, disk faults and lost messages, from a seed",
        )
        .after_help("Its own help: plinth sim --help")
        .disable_help_flag(true)
        .arg(Arg::new(ARGUMENTS).num_args(0..).trailing_var_arg(true).allow_hyphen_values(true))
}

/// `plinth sim ...`.
pub fn run(options: &ArgMatches) -> u8 {
    let arguments: Vec<String> =
        options.get_many(ARGUMENTS).into_iter().flatten().cloned().collect();
    let program = std::env::current_exe().unwrap_or_else(|_| "plinth".into());
    // By which the simulation starts the processes that it kills.
    plinth_sim::command::run(Caller::Plinth, &[program.into_os_string(), "sim".into()], &arguments)
}
