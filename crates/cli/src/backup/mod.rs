//! `plinth backup` and `plinth restore`: backups of a database, and what is restored from them.
//!
//! Here stands what a command line needs: URLs become targets, ranges and times are read as people
//! write them, progress becomes a bar. What a backup is, and how it is taken and restored, is the
//! crate `plinth-backup`.

mod continuous;
mod now;
mod progress;
mod restore;
mod show;

use crate::failure::Failure;
use crate::target::{Open, Target as Named};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use plinth::backup::target::redacted;
use plinth::backup::{self, Backup, Key};
use plinth::client::{Filling, ReadVersionRequest};
use plinth::{Database, Error, KeyRange, printable};
use plinth_bench::words::grouped;
use plinth_env::{Env, block_on};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

use progress::answered;
pub use restore::{command as restore_command, run as restore};

const URLS: &str = "URL is the path of a directory, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or \
                    blobstore://key@host:port/name?bucket=B.";

/// What is to be said of a snapshot without a manifest.
const UNFINISHED: &str = "has no manifest: it is under way, was interrupted, or has lost it";

/// The command line of `plinth backup`.
pub fn command() -> Command {
    let url = || Arg::new("url").value_name("URL").required(true).help("Where the backup is");
    Command::new("backup")
        .about("Backs a database up, and shows and verifies backups")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help(
            "Examples:\n  plinth backup now --dir ./shop /backups/shop\n  \
             plinth backup now --cluster-file ./shop/fdb.cluster /backups/shop\n  \
             plinth backup start --cluster-file ./shop/fdb.cluster -d /backups/shop\n  \
             plinth backup describe /backups/shop\n  plinth backup verify /backups/shop\n  \
             plinth restore -r /backups/shop --dest-dir ./shop-again",
        )
        .subcommand(
            database_args(Command::new("now"))
                .about("Takes a snapshot of the whole database, or of ranges, and ends")
                .after_help(format!(
                    "{URLS}\nA backup of the same database that is there already gets one more snapshot. A database in a directory must \
                     not be open; one of a server stays in use. Everything committed before the command began is in the snapshot."
                ))
                .arg(url())
                .arg(ranges("Only this range of keys, with escapes; may be given several times [default: everything]"))
                .arg(key_file())
                .arg(credentials())
                .arg(workers()),
        )
        .subcommands(continuous::commands())
        .subcommand(
            Command::new("describe")
                .about("What a backup holds, and to which versions and times it can be restored")
                .arg(url())
                .arg(key_file())
                .arg(credentials())
                .arg(json()),
        )
        .subcommand(
            Command::new("list").about("The backups at or directly below a place").arg(url()).arg(credentials()).arg(json()),
        )
        .subcommand(
            Command::new("verify")
                .about("Reads all of a backup, and names each damaged or missing file and what that costs")
                .after_help("Without the key of an encrypted backup checksums are compared, and nothing else.\nExit code 3 if anything is damaged.")
                .arg(url())
                .arg(key_file())
                .arg(credentials()),
        )
}

/// Runs `plinth backup`.
pub fn run(options: &ArgMatches) -> Result<u8, Failure> {
    let done = options.subcommand().and_then(|(name, options)| continuous::run(name, options));
    if let Some(done) = done {
        return done;
    }
    match options.subcommand() {
        Some(("now", options)) => now::run(options),
        Some(("describe", options)) => show::describe(options),
        Some(("list", options)) => show::list(options),
        Some(("verify", options)) => show::verify(options),
        _ => Err(Failure::usage("there is no such command; see plinth backup --help")),
    }
}

fn database_args(command: Command) -> Command {
    command
        .arg(
            Arg::new("dir")
                .long("dir")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("The database in this directory, which nobody has open"),
        )
        .arg(
            Arg::new("cluster-file")
                .short('C')
                .long("cluster-file")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .conflicts_with("dir")
                .help("The database of a server, by its cluster file [default: FDB_CLUSTER_FILE, ./fdb.cluster]"),
        )
}

fn ranges(help: &'static str) -> Arg {
    Arg::new("keys")
        .short('k')
        .long("keys")
        .value_name("'BEGIN END'")
        .action(ArgAction::Append)
        .help(help)
}

fn key_file() -> Arg {
    Arg::new("encryption-key-file")
        .long("encryption-key-file")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Encrypts by AES-256-GCM with the key in FILE: 32 bytes, or 64 hexadecimal digits")
}

fn workers() -> Arg {
    Arg::new("workers")
        .long("workers")
        .value_name("N")
        .value_parser(value_parser!(u64).range(1..=64))
        .default_value("4")
        .help("Threads that read and compress")
}

fn json() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).help("As JSON, for programs")
}

/// A count of things that have a plural in -s: `1 snapshot`, `2,000 files`.
fn count(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// A database that was opened for a command.
struct Opened {
    db: Database,
    opened: Open,
    /// Whether this process alone has it.
    is_exclusive: bool,
    name: String,
}

fn open_database(options: &ArgMatches) -> Result<Opened, Failure> {
    let dir = options.get_one::<PathBuf>("dir");
    let file = options.get_one::<PathBuf>("cluster-file").cloned().unwrap_or_default();
    let target = dir.map_or(Named::ClusterFile(file.clone()), |dir| Named::Directory(dir.clone()));
    let name = match dir.unwrap_or(&file) {
        path if path.as_os_str().is_empty() => {
            "the database that the cluster file names".to_owned()
        }
        path => path.display().to_string(),
    };
    let opened = target.open(true).map_err(|error| Failure::opening(&name, &error))?;
    Ok(Opened { db: opened.database.clone(), opened, is_exclusive: dir.is_some(), name })
}

/// The database has refused something. What backs it up may be refused anything that not everybody
/// may, and no single grant but one would do.
fn refused(work: &str, error: &Error) -> Failure {
    if *error != Error::permission_denied() {
        return Failure::of(work, error);
    }
    let grant = "this takes an operator's rights (`plinth shell`: grant operator ...)";
    Failure::of(work, format!("{error}; {grant}"))
}

/// What is half there isn't backed up: nobody could tell that from the whole.
///
/// # Errors
/// If the database has a part of what is being restored or migrated into it.
fn check_is_whole(db: &Database) -> Result<(), Failure> {
    let filling = block_on(Filling::now(db));
    let filling = filling.map_err(|error| refused("cannot read the database", &error))?;
    match filling {
        None => Ok(()),
        Some(filling) => Err(Failure::new(format!("the database {filling}"))),
    }
}

/// The id of a database. A server's is known once it has answered.
fn database_id(db: &Database) -> Result<String, Failure> {
    let asked =
        db.endpoint().read_version(ReadVersionRequest { lock_aware: true, ..Default::default() });
    asked.wait().map_err(|error| refused("cannot reach the database", &error))?;
    Ok(db.endpoint().describe().cluster_id)
}

/// The ranges that `-k` names.
fn key_ranges(options: &ArgMatches) -> Result<Vec<KeyRange>, Failure> {
    let mut ranges = Vec::new();
    for text in options.get_many::<String>("keys").into_iter().flatten() {
        let wrong = |what: String| Failure::usage(format!("-k {text:?}: {what}"));
        let words: Vec<_> = text.split(' ').filter(|word| !word.is_empty()).collect();
        let parse = |word: &str| printable::parse(word).map_err(wrong);
        let range = match words[..] {
            // As fdbbackup has it: one word is all keys that begin with it.
            [prefix] => {
                let begin = parse(prefix)?;
                let end =
                    plinth::strinc(&begin).map_or_else(|| b"\xff".to_vec(), |end| end.to_vec());
                KeyRange::new(begin, end)
            }
            [begin, end] => KeyRange::new(parse(begin)?, parse(end)?),
            _ => return Err(wrong("a begin and an end, separated by a space".into())),
        };
        if range.is_empty() || range.end[..] > b"\xff"[..] {
            return Err(wrong("the begin lies before the end, and both before \\xff".into()));
        }
        ranges.push(range);
    }
    ranges.sort();
    if ranges.windows(2).any(|pair| pair[0].end > pair[1].begin) {
        return Err(Failure::usage("the ranges of -k overlap"));
    }
    Ok(ranges)
}

fn read_key(options: &ArgMatches) -> Result<Option<Key>, Failure> {
    let Some(path) = options.get_one::<PathBuf>("encryption-key-file") else { return Ok(None) };
    let failed = |error: plinth::Error| {
        Failure::of(format!("cannot use the key file {}", path.display()), error)
    };
    let contents = block_on(Env::real().files().read(path)).map_err(|error| failed(error.into()));
    let contents = Zeroizing::new(contents?);
    backup::key_of_file(&contents).map(Some).map_err(failed)
}

fn url(options: &ArgMatches) -> String {
    options.get_one::<String>("url").cloned().unwrap_or_default()
}

fn credentials() -> Arg {
    Arg::new("blob-credentials")
        .long("blob-credentials")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .action(ArgAction::Append)
        .help("A file of accounts for blobstore:// [default: those of FDB_BLOB_CREDENTIALS]")
}

/// The target of a URL, with the credentials of `options`.
fn target(env: &Env, url: &str, options: &ArgMatches) -> Result<Arc<dyn backup::Target>, Failure> {
    let files = options.try_get_many::<PathBuf>("blob-credentials").ok().flatten();
    let files: Vec<_> = files.into_iter().flatten().cloned().collect();
    let named = block_on(backup::target::named(env, url, &files));
    named.map_err(|error| Failure::usage(error.to_string()))
}

fn open_backup(
    env: &Env,
    url: &str,
    key: Option<Key>,
    options: &ArgMatches,
) -> Result<Backup, Failure> {
    let target = target(env, url, options)?;
    let failed = |error| Failure::opening_backup(redacted(url), &error);
    let (title, asked) = (format!("opening {}", redacted(url)), target.clone());
    let opening = Backup::open(env, target, key);
    match answered(env, title, Duration::MAX, move || asked.trouble(), opening) {
        Some(opened) => opened.map_err(failed),
        None => Err(failed(Error::timed_out())),
    }
}
