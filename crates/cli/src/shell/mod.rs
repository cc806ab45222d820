//! `plinth shell`: FoundationDB's shell commands for data and for operators, on a database.
//!
//! A line comes from the command line (`--exec`), from a terminal with an editor, or from a pipe.
//! In all three it goes through the same [`Session`](session::Session), which takes any client's
//! database; only this file knows how one is opened.
//!
//! What a command finds goes to standard output, and why it failed to standard error, with the
//! command's name. With `--exec`, and when lines come from a pipe, the first failure ends the shell
//! with exit code 1: what stands after it may depend on it.

mod changes;
mod commands;
mod data;
mod editor;
mod elsewhere;
mod escapes;
mod interrupts;
mod kill;
mod members;
mod operator;
mod option;
mod quota;
mod rights;
mod run;
mod session;
mod status;
mod tenant;
mod throttle;
mod transaction;
mod tuples;
mod words;

use crate::encryption;
use crate::failure::{FAILED, Failure, tell};
use crate::target::{Open, Target, check_name};
use crate::token;
use clap::ArgMatches;
use plinth::{Builder, Local};
use plinth_env::Env;
use session::{Failed, Next, Refusal, Session};
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

/// The name under which a database in memory alone is opened, for trying things out.
const IN_MEMORY: &str = ":memory:";

/// Runs the command with these options.
pub fn run(options: &ArgMatches) -> Result<u8, Failure> {
    if let Some(seconds) = options.get_one::<u64>("timeout") {
        end_after(*seconds);
    }
    let opened = open(options)?;
    let session = Session::new(opened.database.clone(), std::io::stdout());
    let result = match options.get_one::<String>("exec") {
        Some(line) => execute(session, line),
        None if std::io::stdin().is_terminal() => editor::converse(session),
        None => read_lines(session, std::io::stdin().lock()),
    };
    let closed = opened.close();
    result?;
    closed.map_err(|error| Failure::of("cannot close the database", error))?;
    Ok(0)
}

/// Ends the program once so much time has passed, wherever it is: a script doesn't wait for ever.
fn end_after(seconds: u64) {
    let env = Env::real();
    drop(env.clone().spawn("timeout", async move {
        env.sleep(Duration::from_secs(seconds)).await;
        tell(format_args!("the commands were not done within {seconds} s (--timeout)"));
        std::process::exit(i32::from(FAILED));
    }));
}

fn open(options: &ArgMatches) -> Result<Open, Failure> {
    let Some(dir) = options.get_one::<PathBuf>("dir") else { return connect(options) };
    check_name(dir).map_err(|error| Failure::opening(dir.display(), &error))?;
    let builder = Builder::new(dir).encryption(&encryption::given(options, dir)?);
    let local = if dir.as_os_str() == IN_MEMORY {
        Local::in_memory()
    } else if options.get_flag("create") {
        builder.open()
    } else {
        builder.must_exist().open()
    };
    local.map(Open::from).map_err(|error| match options.get_flag("create") {
        true => Failure::opening(dir.display(), &error),
        false => Failure::opening_what_is_there(dir.display(), &error),
    })
}

/// The database of a server, by its cluster file: the one given, else where clients look for one;
/// or FoundationDB's.
fn connect(options: &ArgMatches) -> Result<Open, Failure> {
    let file = options.get_one::<PathBuf>("cluster-file");
    Target::of_cluster_file(file).and_then(|target| target.open(true)).map_err(|error| match file {
        _ if token::is_of_it(&error) => Failure::of("cannot show a token", error),
        Some(file) => Failure::of(format!("cannot connect by {}", file.display()), error),
        None => Failure::of("no --dir DIR and no --cluster-file FILE is given", error),
    })
}

/// One line, from the command line.
fn execute(mut session: Session<impl Write>, line: &str) -> Result<(), Failure> {
    session.run_line(line).map(drop).map_err(|failed| failure(&failed, None))
}

/// Lines until they end, or one fails.
fn read_lines(mut session: Session<impl Write>, lines: impl BufRead) -> Result<(), Failure> {
    for (number, line) in lines.lines().enumerate() {
        let number = number + 1;
        let line = line.map_err(|error| Failure::of(format!("line {number}"), error))?;
        if session.run_line(&line).map_err(|failed| failure(&failed, Some(number)))? == Next::Exit {
            break;
        }
    }
    Ok(())
}

/// Why a command of that line failed.
fn failure(failed: &Failed, line: Option<usize>) -> Failure {
    match (&failed.why, line) {
        (Refusal::Output(error), _) => Failure::printing(error),
        (_, None) => Failure::new(failed.to_string()),
        (_, Some(number)) => Failure::of(format!("line {number}"), failed),
    }
}

#[cfg(test)]
mod tests;
