//! `plinth restore`: into a new directory, or into a database that is running.
//!
//! Words become a plan, which a dry run prints and a restore carries out; a restore into a running
//! database has a state there, which `status`, `wait` and `abort` look at from another process.
//! Always: nothing is touched before the plan is made.

use super::progress::{Waiting, tenth, watched};
use super::{
    UNFINISHED, count, credentials, key_file, key_ranges, open_backup, ranges, read_key, refused,
};
use crate::encryption;
use crate::failure::{Failure, INTERRUPTED, tell};
use crate::interrupt;
use crate::patience::{PATIENCE, SOON, within};
use crate::target::{Open, Target as Named};
use crate::terminal::{self, Terminal};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use plinth::backup::restore::{
    self, Choice, Goal, Mapping, Plan, RestoreControl, RestoreReport, Restoring, check_served,
    restore_into, restore_served, unfinished,
};
use plinth::backup::target::redacted;
use plinth::backup::{Backup, Gap, Moment, parse_time, show_ranges, show_time};
use plinth::{Builder, Database, EngineKind, Error, printable};
use plinth_bench::words::{bytes, grouped};
use plinth_env::{Env, block_on};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The command line of `plinth restore`.
pub fn command() -> Command {
    let served = |name: &'static str, about: &'static str| {
        Command::new(name).about(about).arg(cluster_file().required(true))
    };
    Command::new("restore")
        .about("Restores a database from a backup: into a new directory, or into a database that is running")
        .subcommand_negates_reqs(true)
        .args_conflicts_with_subcommands(true)
        .after_help(
            "Into a directory: it must not exist, or be empty, and has its name only once it is whole. Into a running\n\
             database: the ranges must be empty there, and are locked until they are whole; the same command goes on after\n\
             an interruption.\n\nExamples:\n  plinth restore -r /backups/shop --dest-dir ./shop-again\n  \
             plinth restore -r /backups/shop --dest-cluster-file ./new/fdb.cluster --timestamp 2026-11-25T03:05:34Z\n  \
             plinth restore -r /backups/shop --dest-dir ./part -k 'users/ users0' --dry-run",
        )
        .arg(Arg::new("url").short('r').value_name("URL").required(true).help("The backup: file:///path, or a path"))
        .arg(
            Arg::new("dest-dir")
                .long("dest-dir")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("Makes a new database in this directory"),
        )
        .arg(cluster_file().conflicts_with("dest-dir"))
        .arg(
            Arg::new("engine")
                .long("engine")
                .value_name("ENGINE")
                .requires("dest-dir")
                .help("Storage engine of the new database: memory or ssd [default: memory]"),
        )
        .arg(
            Arg::new("version")
                .short('v')
                .long("version")
                .value_name("V")
                .value_parser(value_parser!(i64).range(0..))
                .help("To this version [default: the newest]"),
        )
        .arg(
            Arg::new("timestamp")
                .long("timestamp")
                .value_name("TIME")
                .conflicts_with("version")
                .help("To what there was at this time: 2026-11-25T03:05:34Z, 2026/11/25.03:05:34+0100, seconds since 1970"),
        )
        .arg(
            Arg::new("snapshot-before")
                .long("snapshot-before")
                .value_name("V")
                .value_parser(value_parser!(i64).range(0..))
                .help("Begins with a snapshot older than this version: a later one is damaged"),
        )
        .arg(ranges("Only this range of keys; may be given several times [default: everything]"))
        .arg(prefix("add-prefix").help("Put before each key"))
        .arg(prefix("remove-prefix").help("Taken away from the begin of each key first"))
        .arg(key_file())
        .arg(credentials())
        .arg(
            Arg::new("dry-run")
                .short('n')
                .long("dry-run")
                .action(ArgAction::SetTrue)
                .help("Says what would be read, and to which version, and restores nothing"),
        )
        .subcommand(served("status", "How far a restore into a running database is"))
        .subcommand(served("wait", "Waits until a restore into a running database has come to its end"))
        .subcommand(served("abort", "Gives such a restore up: clears what it brought in, and unlocks the database"))
}

fn cluster_file() -> Arg {
    Arg::new("dest-cluster-file")
        .long("dest-cluster-file")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Restores into the running database that this cluster file names")
}

fn prefix(name: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("PREFIX")
}

/// Runs the command with these options.
pub fn run(options: &ArgMatches) -> Result<u8, Failure> {
    match options.subcommand() {
        Some(("status", options)) => return status(options),
        Some(("wait", options)) => return wait(options),
        Some(("abort", options)) => return abort(options),
        _ => {}
    }
    let (env, url) = (Env::real(), super::url(options));
    let to = destination(options)?;
    let backup = open_backup(&env, &url, read_key(options)?, options)?;
    let url = redacted(&url);
    let plan = plan(options, &backup, &to, &url)?;
    if options.get_flag("dry-run") {
        check_destination(&backup, &plan, &to)
            .map_err(|error| Failure::of(format!("cannot restore {url} to {to}"), error))?;
        terminal::print(&dry_run(&plan))?;
        return Ok(0);
    }
    let began = env.now();
    let control = RestoreControl { stop: interrupt::flag(), ..RestoreControl::default() };
    let (result, name) = match &to {
        Destination::Nowhere => return Err(no_destination()),
        Destination::Directory(dir) => {
            let engine = options.get_one::<String>("engine").map_or("memory", |engine| engine);
            let engine =
                EngineKind::from_name(engine).map_err(|error| Failure::usage(error.summary()))?;
            let builder = encryption::of_environment(Builder::new(dir).engine(engine), dir)
                .map_err(|error| Failure::opening(dir.display(), &error))?;
            (into_directory(&env, &backup, &plan, &control, builder), dir.display().to_string())
        }
        Destination::Served(db, name) => {
            (into_served(&env, &backup, &plan, &control, db), name.clone())
        }
    };
    match result {
        Ok(report) => {
            let took = env.now().saturating_sub(began).as_secs_f64();
            terminal::print(&summary(&report, &plan, took, &name))?;
            Ok(0)
        }
        Err(_) if control.stop.load(Ordering::Relaxed) => {
            tell(
                "interrupted; the same command begins again, or goes on in a running database, which stays locked",
            );
            Ok(INTERRUPTED)
        }
        Err(error) => Err(Failure::of(
            format!("cannot restore {url} to {name}"),
            helped(error, &plan, options),
        )),
    }
}

/// What is to be restored.
fn plan(
    options: &ArgMatches,
    backup: &Backup,
    to: &Destination,
    url: &str,
) -> Result<Plan, Failure> {
    let (goal, mapping) = (goal(options)?, mapping(options)?);
    let before = options.get_one::<i64>("snapshot-before").copied();
    let choice = before.map_or(Choice::Latest, Choice::Before);
    let noted = match to {
        // One that doesn't answer is waited for when its rows come, with a bar.
        Destination::Served(db, name) => {
            let noted = within(db.endpoint().env(), SOON, unfinished(db)).unwrap_or(Ok(None));
            noted.map_err(|error| refused(&format!("cannot read {name}"), &error))?
        }
        _ => None,
    };
    let made = block_on(async {
        if let Some(noted) = &noted
            && let Some(plan) = noted.plan(backup, goal, &mapping).await?
        {
            tell(format_args!("goes on with the unfinished restore of version {}", plan.version));
            return Ok(plan);
        }
        Plan::make_from(backup, goal, mapping, &choice).await
    });
    made.map_err(|error| Failure::of(format!("cannot restore from {url}"), error))
}

/// The error, with what can be done about a damaged or missing file of the backup.
fn helped(error: Error, plan: &Plan, options: &ArgMatches) -> Error {
    if ![Error::file_corrupt(), Error::restore_missing_data()].contains(&error) {
        return error;
    }
    let said = error.summary();
    let mut words = format!("{said}; plinth backup verify names all that is damaged");
    if let Some(older) = plan.older {
        words += &format!(
            "; the snapshot of version {older} reaches the same version: add --snapshot-before {}",
            plan.snapshot.header.to
        );
    }
    if options.contains_id("dest-cluster-file") {
        words += "; what was brought in stays locked until it is given up: plinth restore abort";
    }
    error.with_detail(words)
}

enum Destination {
    /// Of a dry run.
    Nowhere,
    Directory(PathBuf),
    /// A database with the name of its cluster file.
    Served(Database, String),
}

fn destination(options: &ArgMatches) -> Result<Destination, Failure> {
    let path = |name: &str| options.get_one::<PathBuf>(name);
    match (path("dest-dir"), path("dest-cluster-file")) {
        (Some(dir), _) => Ok(Destination::Directory(dir.clone())),
        (None, Some(file)) => Ok(Destination::Served(connect(file)?, file.display().to_string())),
        (None, None) if options.get_flag("dry-run") => Ok(Destination::Nowhere),
        (None, None) => Err(no_destination()),
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => f.write_str("nowhere"),
            Self::Directory(dir) => dir.display().fmt(f),
            Self::Served(_, name) => f.write_str(name),
        }
    }
}

/// Whether a restore would begin there: a dry run that says so of a place with rows in it is none.
fn check_destination(backup: &Backup, plan: &Plan, to: &Destination) -> Result<(), Error> {
    match to {
        Destination::Nowhere => Ok(()),
        Destination::Directory(dir) => block_on(Builder::new(dir).check_loader()),
        Destination::Served(db, _) => {
            Open::from(db.clone()).until_reached(PATIENCE)?;
            block_on(check_served(backup, plan, db))
        }
    }
}

fn no_destination() -> Failure {
    Failure::usage("say where to: --dest-dir DIR or --dest-cluster-file FILE")
}

fn goal(options: &ArgMatches) -> Result<Goal, Failure> {
    if let Some(version) = options.get_one::<i64>("version") {
        return Ok(Goal::Version(*version));
    }
    let Some(text) = options.get_one::<String>("timestamp") else { return Ok(Goal::Newest) };
    parse_time(text).map(Goal::Time).map_err(|error| Failure::usage(error.to_string()))
}

fn mapping(options: &ArgMatches) -> Result<Mapping, Failure> {
    let bytes = |name: &str| {
        let text = options.get_one::<String>(name).map_or("", |text| text);
        printable::parse(text).map_err(|what| Failure::usage(format!("--{name}: {what}")))
    };
    Ok(Mapping {
        ranges: key_ranges(options)?,
        remove_prefix: bytes("remove-prefix")?.into(),
        add_prefix: bytes("add-prefix")?.into(),
    })
}

fn into_directory(
    env: &Env,
    backup: &Backup,
    plan: &Plan,
    control: &RestoreControl,
    builder: Builder,
) -> Result<RestoreReport, Error> {
    let (backup, plan, inner) = (backup.clone(), plan.clone(), control.clone());
    watched(env, "restoring", total(&plan), &control.restored, async move {
        let mut loader = builder.loader(plan.version).await?;
        restore_into(&backup, &plan, &inner, &mut loader).await
    })
}

fn into_served(
    env: &Env,
    backup: &Backup,
    plan: &Plan,
    control: &RestoreControl,
    db: &Database,
) -> Result<RestoreReport, Error> {
    let (backup, plan, inner) = (backup.clone(), plan.clone(), control.clone());
    let client = db.clone();
    watched(env, "restoring", total(&plan), &control.restored, async move {
        restore_served(&backup, &plan, &inner, &client).await
    })
}

fn total(plan: &Plan) -> u64 {
    plan.row_bytes() + plan.log_bytes()
}

fn connect(file: &std::path::Path) -> Result<Database, Failure> {
    let opened = Named::ClusterFile(file.to_path_buf()).open(true);
    let opened = opened.map(|opened| opened.database);
    opened.map_err(|error| Failure::of(format!("cannot open {}", file.display()), error))
}

/// Bytes of rows that are restored in a second, about, for a guess: into a directory, and into a
/// running database.
const PACE: (f64, f64) = (150e6, 40e6);
/// A byte of the log, compressed as it lies there, takes as long as so many of rows.
const LOG_BYTE: u64 = 3;

/// About how many seconds it takes to restore so many bytes at a pace.
fn guess(row_bytes: u64, log_bytes: u64, pace: f64) -> f64 {
    row_bytes.saturating_add(log_bytes.saturating_mul(LOG_BYTE)) as f64 / pace
}

fn dry_run(plan: &Plan) -> String {
    let bytes_of_rows = plan.row_bytes();
    // What of a file lies in the ranges only reading it can tell.
    let most = if plan.cuts_files() { "up to " } else { "" };
    let seconds = |pace: f64| guess(bytes_of_rows, plan.log_bytes(), pace);
    let mut lines = vec![
        version_line(plan),
        format!("snapshot     {}", plan.snapshot.directory),
        format!("rows         {}{}, {}", most, grouped(plan.rows()), bytes(bytes_of_rows)),
        format!(
            "reads        {}, {}",
            count(plan.file_count() as u64, "file"),
            bytes(plan.stored_bytes())
        ),
        format!("of the log   {}", bytes(plan.log_bytes())),
    ];
    lines.push(format!("ranges       {}", show_ranges(&plan.ranges)));
    lines.extend(missing_lines(plan));
    let (fast, slow) = (seconds(PACE.0), seconds(PACE.1));
    lines.push(format!("takes        about {fast:.0} s into a directory, {slow:.0} s into a running database; nothing was restored"));
    lines.join("\n") + "\n"
}

/// Which version it is, and for a time of which time, since that may be an earlier one than was
/// asked for.
fn version_line(plan: &Plan) -> String {
    let noted = |moment: Moment| format!(", noted at {}", show_time(moment.time));
    format!("version      {}{}", plan.version, plan.moment.map_or(String::new(), noted))
}

/// What may have been wanted and is not there.
fn missing_lines(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(Gap { from, to, .. }) = plan.gap {
        lines.push(format!(
            "gap          no file of the log has versions {from} to {to}; what came in them, or behind them, is not restored"
        ));
    }
    if let Some(begun) = plan.unfinished {
        lines
            .push(format!("not taken    a later snapshot, begun at version {begun}, {UNFINISHED}"));
    }
    if let Some(last) = plan.ends {
        lines.push(format!(
            "ends         the last time that is noted in the backup is {}, before the one that was asked for",
            show_time(last.time)
        ));
    }
    lines
}

fn summary(report: &RestoreReport, plan: &Plan, took: f64, name: &str) -> String {
    let rate = bytes((report.bytes as f64 / took.max(0.001)) as u64);
    let mut lines = vec![
        format!("rows         {}, {}", grouped(report.rows), bytes(report.bytes)),
        format!("changes      {} of the log, on top of those rows", grouped(report.mutations)),
        version_line(plan),
        format!("ranges       {}", show_ranges(&plan.ranges)),
        format!("took         {took:.1} s, {rate} of rows a second"),
    ];
    lines.extend(missing_lines(plan));
    lines.push(format!(
        "{}: {name} holds what there was at that version",
        Terminal::stdout().good("ok")
    ));
    lines.join("\n") + "\n"
}

fn served(options: &ArgMatches) -> Result<Database, Failure> {
    connect(&options.get_one::<PathBuf>("dest-cluster-file").cloned().unwrap_or_default())
}

fn status(options: &ArgMatches) -> Result<u8, Failure> {
    let found = under_way(&served(options)?)?;
    let told = found
        .map_or("no restore is under way".into(), |found| format!("restoring    {}", told(&found)));
    terminal::print(&(told + "\n"))?;
    Ok(0)
}

/// The restore into a database; `None` if there is none.
fn under_way(db: &Database) -> Result<Option<Restoring>, Failure> {
    block_on(restore::status(db)).map_err(|error| refused("cannot read the database", &error))
}

/// How far a restore is.
fn told(found: &Restoring) -> String {
    let Restoring { url, version, files: (files, done), log, ranges, .. } = found;
    let log = log.map_or("not begun".to_owned(), |version| format!("up to version {version}"));
    format!(
        "version {version} of {ranges} from {url}: {done} of {files} files of rows are whole, the log {log}; what is restored is locked"
    )
}

fn wait(options: &ArgMatches) -> Result<u8, Failure> {
    let (db, stop) = (served(options)?, interrupt::flag());
    let env = db.endpoint().env();
    let mut waiting = Waiting::begin(env, "waiting for the restore".into());
    let mut last = None;
    while let Some(found) = under_way(&db)? {
        if stop.load(Ordering::Relaxed) {
            return Ok(INTERRUPTED);
        }
        let step = (tenth(found.files.1, found.files.0), found.log.is_some());
        waiting.set(env, step, told(&found));
        last = Some(found.id);
        block_on(env.sleep(Duration::from_millis(500)));
    }
    drop(waiting);
    let how = last.map(|id| block_on(restore::is_whole(&db, &id))).transpose();
    let how = how.map_err(|error| refused("cannot read how the restore has ended", &error))?;
    match how.flatten() {
        None => terminal::print("no restore is under way\n")?,
        Some(true) => terminal::print("no restore is under way any more: it is whole\n")?,
        Some(false) => {
            return Err(Failure::new(
                "the restore was given up: what it had brought in is cleared",
            ));
        }
    }
    Ok(0)
}

fn abort(options: &ArgMatches) -> Result<u8, Failure> {
    let db = served(options)?;
    let aborted = block_on(restore::abort(&db))
        .map_err(|error| refused("cannot give the restore up", &error))?;
    terminal::print(match aborted {
        true => "given up: what it had brought in is cleared, and the database is open\n",
        false => "no restore is under way\n",
    })?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As docs/backup.md says it.
    #[test]
    fn the_guess_is_of_rows_and_of_the_log() {
        let (directory, served) = PACE;
        assert_eq!(guess(300_000_000, 0, directory), 2.0);
        assert_eq!(guess(300_000_000, 50_000_000, directory), 3.0);
        assert_eq!(guess(40_000_000, 40_000_000, served), 4.0);
        assert!(guess(u64::MAX, u64::MAX, served).is_finite());
    }
}
