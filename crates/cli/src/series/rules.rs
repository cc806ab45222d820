//! `plinth series rules`: files of recording and alerting rules, before a server is given them.

use crate::failure::Failure;
use crate::terminal;
use clap::{Arg, ArgMatches, Command};
use plinth_bench::words::grouped;
use plinth_env::{Env, block_on};
use plinth_rules::{MAX_FILE_BYTES, RuleKind};

/// The command line of `plinth series rules`.
pub fn command() -> Command {
    let files = Arg::new("file")
        .value_name("FILE")
        .num_args(1..)
        .required(true)
        .help("Files of rules, as Prometheus has them");
    let check = Command::new("check")
        .about("Says whether a server would take these files, and else what is wrong and where")
        .arg(files);
    Command::new("rules")
        .about("Recording and alerting rules")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(check)
}

/// Runs the command with these options.
pub fn run(options: &ArgMatches) -> Result<u8, Failure> {
    let Some(("check", options)) = options.subcommand() else {
        return Err(Failure::usage("there is no such command; see plinth series rules --help"));
    };
    let env = Env::real();
    let mut faults = Vec::new();
    for file in options.get_many::<String>("file").into_iter().flatten() {
        let bytes = block_on(env.files().read_at_most(file, MAX_FILE_BYTES))
            .map_err(|error| Failure::of(format!("cannot read {file}"), error))?;
        let Ok(text) = std::str::from_utf8(&bytes) else {
            faults.push(format!("{file}: it is no UTF-8"));
            continue;
        };
        match plinth_rules::parse(file, text) {
            Err(found) => faults.extend(found.iter().map(ToString::to_string)),
            Ok(groups) => {
                let rules = groups.iter().flat_map(|group| &group.rules);
                let alerting =
                    rules.clone().filter(|rule| matches!(rule.kind, RuleKind::Alert { .. }));
                let (all, alerting) = (rules.count(), alerting.count());
                terminal::print(&format!(
                    "{file}: groups {}, recording rules {}, alerting rules {}\n",
                    grouped(groups.len() as u64),
                    grouped((all - alerting) as u64),
                    grouped(alerting as u64),
                ))?;
            }
        }
    }
    if faults.is_empty() { Ok(0) } else { Err(Failure::new(faults.join("\n"))) }
}
