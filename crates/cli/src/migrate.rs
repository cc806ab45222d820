//! `plinth migrate`: copies a database into another one, ours or FoundationDB's, while it is in
//! use.
//!
//! Here stands what a command line needs: names of databases become databases, progress becomes a
//! bar or lines, and what went wrong becomes advice. The copy itself is the crate `plinth-migrate`.

use crate::failure::{DAMAGED, Failure, INTERRUPTED, tell};
use crate::interrupt;
use crate::patience::PATIENCE;
use crate::target::{Open, Target};
use crate::terminal::{self, Terminal};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use plinth::{Database, Error};
use plinth_bench::words::{bytes, grouped};
use plinth_migrate::{Phase, Progress, Report, Settings, abort, migrate, unfinished};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A line of progress is printed each time that this many bytes more have been read, where there is
/// no terminal.
const LINE_BYTES: u64 = 1 << 30;

/// The command line of `plinth migrate`.
pub fn command() -> Command {
    let side = |name: &'static str| Arg::new(name).long(name).value_name("T");
    Command::new("migrate")
        .about("Copies a database into another one, Plinth's or FoundationDB's, while it is in use")
        .after_help(
            "T is a directory, a server's cluster file, or fdb:CLUSTER_FILE[?lib=/path/to/libfdb_c.so] for what\n\
             FoundationDB's client library reaches. The destination must be empty; it holds what the source held at one\n\
             version when the command ends, row for row, which is verified. Interrupted, the same command goes on; where\n\
             that can't be said any more, --abort makes the destination free, with the part that was copied.\n\n\
             Examples:\n  plinth migrate --from ./shop --to fdb:/etc/foundationdb/fdb.cluster\n  \
             plinth migrate --from fdb:/etc/foundationdb/fdb.cluster --to ./shop --lock\n  \
             plinth migrate --abort --to ./shop --yes",
        )
        .arg(side("from").required_unless_present("abort").help("The source"))
        .arg(side("to").required(true).help("The destination"))
        .arg(Arg::new("lock").long("lock").action(ArgAction::SetTrue).help(
            "Locks the source for the last round, and leaves it locked: nothing is written to it that is not copied",
        ))
        .arg(
            Arg::new("workers")
                .long("workers")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..=256))
                .default_value("4")
                .help("Threads that copy"),
        )
        .arg(
            Arg::new("abort")
                .long("abort")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(["from", "lock"])
                .help("Gives up what was begun into the destination: what was copied stays, and nobody goes on with it"),
        )
        .arg(
            Arg::new("yes")
                .long("yes")
                .action(ArgAction::SetTrue)
                .requires("abort")
                .help("With --abort: does so; without this it only says what is there"),
        )
}

/// Runs the command with these options.
pub fn run(options: &ArgMatches) -> Result<u8, Failure> {
    if options.get_flag("abort") {
        return give_up(options);
    }
    let [from, to] =
        ["from", "to"].map(|side| options.get_one::<String>(side).cloned().unwrap_or_default());
    let targets = [target(&from)?, target(&to)?];
    // A destination is made only for a source that is there.
    let source = reached(&targets[0], &from, true)?;
    let destination = reached(&targets[1], &to, false)?;
    let stop = interrupt::flag();
    let task = Arc::new(terminal::progress().share("migrating"));
    let settings = Settings {
        source_is_exclusive: matches!(targets[0], Target::Directory(_)),
        lock_source: options.get_flag("lock"),
        workers: options.get_one::<u64>("workers").map_or(4, |count| *count as usize),
        stop: stop.clone(),
        watcher: Some({
            let (task, said) = (task.clone(), AtomicU64::new(0));
            Arc::new(move |progress: &Progress| {
                let (position, message) = shown(progress);
                let gigabytes = progress.bytes_read / LINE_BYTES;
                if said.swap(gigabytes, Ordering::Relaxed) < gigabytes {
                    plinth_env::tell(format_args!("  {message}"));
                }
                task.set(position, message);
            })
        }),
        ..Settings::default()
    };
    let name = describe(&source.database, &targets[0]);
    let result = migrate(&source.database, &destination.database, &name, &settings);
    drop((settings, task));
    match result {
        Ok(report) => {
            terminal::print(&summary(&report, &from, &to))?;
            close(destination, &to)?;
            close(source, &from)?;
            Ok(0)
        }
        Err(error) if stop.load(Ordering::Relaxed) && error == Error::operation_cancelled() => {
            tell(format_args!(
                "interrupted; the same command goes on from here, and {to} stays locked until it has ended"
            ));
            Ok(INTERRUPTED)
        }
        Err(error) if error == Error::checksum_failed() => {
            tell(format_args!("{to} does not hold what was written to it: {error}"));
            Ok(DAMAGED)
        }
        Err(error) => Err(Failure::of(format!("cannot migrate {from} to {to}"), error)),
    }
}

/// Gives up what was begun into a destination.
fn give_up(options: &ArgMatches) -> Result<u8, Failure> {
    let to = options.get_one::<String>("to").cloned().unwrap_or_default();
    let destination = reached(&target(&to)?, &to, true)?;
    let failed = |error| Failure::of(format!("cannot give up the migration into {to}"), error);
    let Some(found) = unfinished(&destination.database).map_err(failed)? else {
        terminal::print(&format!("no migration into {to} is unfinished\n"))?;
        close(destination, &to)?;
        return Ok(0);
    };
    let part = format!(
        "a part of {}, {} rows with {}, each as it was at some version",
        found.source,
        grouped(found.copied.rows),
        bytes(found.copied.bytes)
    );
    if !options.get_flag("yes") {
        return Err(Failure::new(format!(
            "the migration into {to} could not be gone on with, and {to} would be free with {part}; nothing was changed: --yes does so"
        )));
    }
    if !abort(&destination.database).map_err(failed)? {
        terminal::print(&format!(
            "no migration into {to} is unfinished any more: a run has brought it to its end\n"
        ))?;
        close(destination, &to)?;
        return Ok(0);
    }
    let lock = match found.is_locked {
        true => "is free",
        false => "was not locked for it",
    };
    terminal::print(&format!(
        "the migration is given up: {to} {lock}, and has {part}; clear it before something is migrated into it\n"
    ))?;
    close(destination, &to)?;
    Ok(0)
}

/// Opens a database that answers.
fn reached(target: &Target, name: &str, must_exist: bool) -> Result<Open, Failure> {
    let opened = target.open(must_exist).map_err(|error| Failure::opening(name, &error))?;
    let reached = opened.until_reached(PATIENCE);
    reached.map_err(|error| Failure::of(format!("cannot reach {name}"), error))?;
    Ok(opened)
}

const PERCENT: u64 = 100;

fn shown(progress: &Progress) -> (u64, String) {
    let copied = progress.copied.bytes;
    match progress.phase {
        Phase::Copying => {
            let share = progress.clean_pieces as u64 * PERCENT / progress.pieces.max(1) as u64;
            (share / 2, format!("copied {}, read {}", bytes(copied), bytes(progress.bytes_read)))
        }
        Phase::Verifying => {
            let share = progress.bytes_verified * PERCENT / copied.max(1);
            (
                PERCENT / 2 + share / 2,
                format!("verified {} of {}", bytes(progress.bytes_verified), bytes(copied)),
            )
        }
    }
}

fn summary(report: &Report, from: &str, to: &str) -> String {
    let terminal = Terminal::stdout();
    let mut lines = vec![
        format!("rows         {}", grouped(report.sum.rows)),
        format!("bytes        {}", grouped(report.sum.bytes)),
        format!("checksum     {:032x}, of both sides", report.sum.hash),
        format!("version      {} of {from}", report.version),
        format!(
            "pieces       {} written in {} rounds",
            grouped(report.pieces_written),
            report.rounds
        ),
    ];
    if report.resumed_pieces > 0 {
        lines.push(format!(
            "resumed      with {} pieces of a run before",
            grouped(report.resumed_pieces as u64)
        ));
    }
    if report.source_is_locked {
        lines.push(format!("locked       {from} takes no more writes: let its users go to {to}"));
    }
    lines.push(format!("{}: {to} holds what {from} held at that version", terminal.good("ok")));
    lines.join("\n") + "\n"
}

/// What the source is called in the destination's record: its identity, whatever its path is today.
fn describe(source: &Database, target: &Target) -> String {
    let id = source.endpoint().describe().cluster_id;
    match target {
        _ if !id.is_empty() => id,
        Target::Directory(path) | Target::ClusterFile(path) => path.display().to_string(),
        Target::Foundation(target) => target.to_string(),
    }
}

fn target(text: &str) -> Result<Target, Failure> {
    Target::named(text).map_err(|error| Failure::usage(error.to_string()))
}

fn close(database: Open, name: &str) -> Result<(), Failure> {
    database.close().map_err(|error| Failure::of(format!("cannot close {name}"), error))
}
