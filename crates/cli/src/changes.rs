//! `plinth changes`: streams of changes, registered, listed, followed and removed.
//!
//! `tail` prints what comes until it is interrupted, as text or as a line of JSON for each
//! mutation, and acknowledges, if it is told to, what has left standard output. Everything else is
//! one call of the library.

use crate::failure::{Failure, INTERRUPTED};
use crate::interrupt;
use crate::target::{Open, Target};
use crate::terminal;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use plinth::client::{ChangeBatch, ChangeStream, TransactionOption};
use plinth::{Bytes, Database, KeyRange, Version, block_on, printable, strinc};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// The command line of `plinth changes`.
pub fn command() -> Command {
    let name = || Arg::new("name").value_name("NAME").required(true).help("The stream's name");
    let register = Command::new("register")
        .about("Registers a stream: everything that is committed from now on in its ranges is in it")
        .arg(name())
        .arg(prefix())
        .arg(
            Arg::new("log-bytes")
                .long("log-bytes")
                .value_name("BYTES")
                .value_parser(value_parser!(u64).range(1..))
                .help("How much of the log it may hold back on a node [default: a quarter of the free disk]"),
        );
    let tail = Command::new("tail")
        .about("Prints what a stream delivers, until it is interrupted")
        .arg(name())
        .arg(
            Arg::new("format")
                .long("format")
                .value_parser(["text", "json"])
                .default_value("text")
                .help("How; JSON has a line for each mutation"),
        )
        .arg(
            Arg::new("from")
                .long("from")
                .value_name("VERSION")
                .value_parser(value_parser!(i64).range(0..))
                .help("Begins behind this version [default: behind what was acknowledged]"),
        )
        .arg(flag("acknowledge", "Acknowledges what was printed: it doesn't come again"))
        .arg(flag("once", "Ends when everything was printed that is there"));
    let commands = [
        register,
        Command::new("list").about("Lists streams, and how far their consumers are"),
        tail,
        Command::new("remove")
            .about("Removes a stream, and what its consumer hasn't taken")
            .arg(name()),
    ];
    Command::new("changes")
        .about("Streams of changes: what is committed in some ranges, in order")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(commands.map(|command| command.args(place())))
        .after_help(
            "Examples:\n  plinth changes register orders --prefix order/ --cluster-file ./shop/fdb.cluster\n  \
             plinth changes tail orders --format json --acknowledge --cluster-file ./shop/fdb.cluster | ./feed",
        )
}

fn prefix() -> Arg {
    Arg::new("prefix")
        .long("prefix")
        .value_name("PREFIX")
        .action(ArgAction::Append)
        .help("Covers the keys that begin with this; may be given several times [default: all normal keys]")
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// Where the database is.
fn place() -> [Arg; 2] {
    let path = |name: &'static str| {
        Arg::new(name).long(name).value_name("PATH").value_parser(value_parser!(PathBuf))
    };
    [
        path("dir").help("The database's directory, which nobody has open"),
        path("cluster-file")
            .conflicts_with("dir")
            .help("The cluster file of its server [default: FDB_CLUSTER_FILE]"),
    ]
}

/// Runs the command with these options.
pub fn run(options: &ArgMatches) -> Result<u8, Failure> {
    let Some((command, options)) = options.subcommand() else {
        return Err(Failure::usage("plinth changes register, list, tail or remove"));
    };
    let opened = open(options)?;
    let database = &opened.database;
    let done = match command {
        "register" => register(database, options),
        "list" => list(database),
        "tail" => tail(database, options),
        _ => {
            let name = name(options);
            let removed = database.remove_changes(&name).wait();
            removed.map(|()| 0).map_err(|error| Failure::of(format!("cannot remove {name}"), error))
        }
    }?;
    opened.close().map_err(|error| Failure::of("cannot close the database", error))?;
    Ok(done)
}

fn open(options: &ArgMatches) -> Result<Open, Failure> {
    let named = |name: &str| options.get_one::<PathBuf>(name).cloned();
    let from_environment =
        || std::env::var_os("FDB_CLUSTER_FILE").filter(|file| !file.is_empty()).map(PathBuf::from);
    let target = match (named("dir"), named("cluster-file").or_else(from_environment)) {
        (Some(dir), _) => Target::Directory(dir),
        (None, Some(file)) => Target::of_cluster_file(Some(&file))
            .map_err(|error| Failure::usage(error.to_string()))?,
        (None, None) => {
            return Err(Failure::usage("say where the database is: --dir or --cluster-file"));
        }
    };
    target.open(true).map_err(|error| Failure::opening("the database", &error))
}

fn name(options: &ArgMatches) -> String {
    options.get_one::<String>("name").cloned().unwrap_or_default()
}

fn register(database: &Database, options: &ArgMatches) -> Result<u8, Failure> {
    let name = name(options);
    let prefixes = options.get_many::<String>("prefix").into_iter().flatten();
    let ranges = ranges_of(prefixes.map(String::as_bytes));
    let bound = options.get_one::<u64>("log-bytes").copied();
    let stream = database.register_changes(&name, ranges, bound).wait();
    let stream = stream.map_err(|error| Failure::of(format!("cannot register {name}"), error))?;
    terminal::print(&format!(
        "stream {} of {name}: everything committed after version {}\n",
        stream.id, stream.registered
    ))?;
    Ok(0)
}

/// The keys that begin with these prefixes; all normal ones without any.
pub fn ranges_of<'a>(prefixes: impl Iterator<Item = &'a [u8]>) -> Vec<KeyRange> {
    let range = |prefix: &[u8]| {
        KeyRange::new(Bytes::copy_from_slice(prefix), strinc(prefix).unwrap_or_default())
    };
    let ranges: Vec<_> = prefixes.map(range).collect();
    if ranges.is_empty() { vec![KeyRange::new("", &b"\xff"[..])] } else { ranges }
}

/// A stream in a line.
pub fn described(stream: &ChangeStream) -> String {
    let ChangeStream { name, id, ranges, registered, acknowledged, bound_bytes } = stream;
    let bound =
        bound_bytes.map_or("a quarter of the free disk".into(), |bytes| format!("{bytes} bytes"));
    format!(
        "{}: id {id}, acknowledged {acknowledged}, registered {registered}, bound {bound}, {ranges:?}",
        printable(name)
    )
}

fn list(database: &Database) -> Result<u8, Failure> {
    let streams = database.list_changes().wait();
    let streams = streams.map_err(|error| Failure::of("cannot list streams", error))?;
    let text: String = streams.iter().map(|stream| described(stream) + "\n").collect();
    terminal::print(&text)?;
    Ok(0)
}

/// The newest version that is committed now, which is as far as `--once` goes: the server that
/// gives changes may lag.
pub async fn committed(database: &Database) -> plinth::Result<Version> {
    let transaction = database.create_transaction();
    transaction.set_option(TransactionOption::LockAware)?;
    transaction.get_read_version().await
}

/// A stream can't be read. If there is none of that name, it is told how one is made.
fn unregistered(database: &Database, name: &str, failure: Failure) -> Failure {
    let streams = database.list_changes().wait();
    match streams {
        Ok(streams) if streams.iter().all(|stream| stream.name != name.as_bytes()) => {
            Failure::new(format!(
                "{failure}; `plinth changes register {name}` makes one, of what is committed from then on"
            ))
        }
        _ => failure,
    }
}

fn tail(database: &Database, options: &ArgMatches) -> Result<u8, Failure> {
    let (stop, name) = (interrupt::flag(), name(options));
    let failed = |error| Failure::of(format!("cannot follow {name}"), error);
    let consumer = database.consume_changes(&name).wait();
    let mut consumer = consumer.map_err(|error| unregistered(database, &name, failed(error)))?;
    if let Some(from) = options.get_one::<i64>("from") {
        consumer = database.resume_changes(consumer.id(), *from);
    }
    let end = if options.get_flag("once") {
        block_on(committed(database)).map_err(failed)?
    } else {
        Version::MAX
    };
    let is_json = options.get_one::<String>("format").is_some_and(|format| format == "json");
    while !stop.load(Ordering::Relaxed) {
        let changes = match options.get_flag("once") {
            true => block_on(consumer.try_next()),
            false => block_on(consumer.next()),
        };
        let changes = changes.map_err(failed)?;
        let lines = if is_json { ChangeBatch::json_lines } else { ChangeBatch::text_lines };
        let text: String = changes.batches.iter().map(lines).collect();
        terminal::print(&text)?;
        if options.get_flag("acknowledge") {
            block_on(consumer.acknowledge()).map_err(failed)?;
        }
        if changes.upto >= end {
            return Ok(0);
        }
    }
    Ok(INTERRUPTED)
}
