//! `plinth series import`: files of points into a database.
//!
//! A file is read in pieces and fed to a session, the same as a server has for a connection. Where
//! the series are ours they are appended to the store and committed; where they are a server's,
//! some thousand points at a time are committed as a transaction. Rows of Parquet take the same
//! way. A file that can't be read any further has what came before committed, and that is said.

use super::{Format, Place};
use crate::failure::{FAILED, Failure, INTERRUPTED, tell};
use crate::interrupt;
use crate::terminal;
use clap::ArgMatches;
use plinth::series::dump::Form;
use plinth::series::ingest::{Memory, Protocol, Session};
use plinth::series::{Error, Point, SeriesLayer, SeriesStore};
use plinth::{Database, TransactionOption, block_on};
use plinth_bench::words::{bytes, grouped};
use plinth_env::{Env, File, Open};
use std::io::Read;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;
/// How often a transaction is tried whose points find no room in the inbox: for a minute or so.
const TRIES: usize = 120;
/// A line of progress is printed each time that this many bytes more were read, where there is no
/// terminal.
const LINE_BYTES: u64 = 1 << 30;

/// Where points go.
enum Sink {
    /// Series that are ours.
    Store(SeriesStore),
    /// Series of somebody who takes in what transactions write.
    Transactions(Database, Box<SeriesLayer>),
}

/// Where bytes come from.
enum Source {
    File { file: File, at: u64, len: u64 },
    Standard,
}

/// What became of a file.
#[derive(Default)]
struct Told {
    points: u64,
    refused: u64,
    was_interrupted: bool,
    /// Why there is more in it that can't be read.
    broken: Option<String>,
}

/// Runs the command with these options.
pub fn run(place: &Place, options: &ArgMatches) -> Result<u8, Failure> {
    let files: Vec<&String> = options.get_many::<String>("file").into_iter().flatten().collect();
    let chosen = Format::chosen(options)?;
    let mut formats = Vec::new();
    for file in &files {
        let format = chosen.or_else(|| by_name(file)).ok_or_else(|| {
            Failure::usage(format!(
                "{file}: which format is it? --format resp, csv, influx or parquet says so"
            ))
        })?;
        formats.push(format.available()?);
    }
    let sink = if place.is_ours {
        Sink::Store(place.store()?)
    } else {
        Sink::Transactions(place.database.clone(), Box::new(place.layer()))
    };
    let stop = interrupt::flag();
    let now = i64::try_from(Env::real().wall_clock().as_nanos()).unwrap_or(i64::MAX);
    let mut code = 0;
    for (file, format) in files.iter().zip(formats) {
        let is_stopped = || stop.load(Ordering::Relaxed);
        let told = match format {
            Format::Text(form) => take(place, &sink, file, form.protocol(now), &is_stopped)?,
            #[cfg(feature = "parquet")]
            Format::Parquet => take_table(place, &sink, file, &is_stopped)?,
            _ => return Err(Failure::usage(format!("{file}: this format can only be written"))),
        };
        let points = grouped(told.points);
        if let Some(why) = told.broken {
            return Err(Failure::new(format!(
                "{file} can't be read any further, {points} points before are committed: {why}"
            )));
        }
        if told.was_interrupted {
            tell(format_args!(
                "interrupted: {points} points of {file} are committed; the same command again adds none of them twice, unless its times are told from now"
            ));
            return Ok(INTERRUPTED);
        }
        let refused = match told.refused {
            0 => String::new(),
            refused => format!(", {} of its messages were refused", grouped(refused)),
        };
        terminal::print(&format!("{file}: {points} points are committed{refused}\n"))?;
        if told.refused > 0 {
            code = FAILED;
        }
    }
    Ok(code)
}

/// The format that a file's name tells.
fn by_name(file: &str) -> Option<Format> {
    match Path::new(file).extension()?.to_str()? {
        "csv" => Some(Format::Text(Form::Csv)),
        "resp" => Some(Format::Text(Form::Resp)),
        "influx" | "lp" | "line" => Some(Format::Text(Form::Influx)),
        "parquet" => Some(Format::Parquet),
        _ => None,
    }
}

fn take(
    place: &Place,
    sink: &Sink,
    name: &str,
    protocol: Protocol,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Told, Failure> {
    let env = Env::real();
    let mut source = Source::open(&env, name)?;
    let len = source.len();
    let task = match len {
        Some(len) => terminal::progress().counted(&format!("importing {name}"), len, "bytes"),
        None => terminal::progress().unknown(&format!("importing {name}")),
    };
    let mut session = Session::new(protocol, env.random_u64(), &Memory::default());
    let (mut told, mut held, mut read, mut lines) = (Told::default(), Vec::new(), 0, 0);
    loop {
        let count = source
            .read(&mut held)
            .map_err(|error| Failure::of(format!("cannot read {name}"), error))?;
        read += count as u64;
        let mut at = 0;
        loop {
            at += session.feed(&held[at..]);
            let goes_on = session.wants_save();
            sink.save(&mut session, &mut told).map_err(|error| place.failed(error))?;
            say(&mut session, name);
            if !goes_on {
                break;
            }
        }
        held.drain(..at);
        let message = format!("{} points, {}", grouped(told.points), bytes(read));
        if read / LINE_BYTES > lines {
            lines = read / LINE_BYTES;
            plinth_env::tell(format_args!("  {message}"));
        }
        task.set(read, message);
        told.was_interrupted = count > 0 && is_stopped();
        if count == 0 || told.was_interrupted {
            break;
        }
    }
    if !told.was_interrupted {
        session.finish(&held);
    }
    sink.save(&mut session, &mut told)
        .and_then(|()| sink.finish())
        .map_err(|error| place.failed(error))?;
    drop(task);
    say(&mut session, name);
    told.refused = session.refused();
    Ok(told)
}

/// Rows of Parquet that are refused and told; what is wrong beyond is counted.
#[cfg(feature = "parquet")]
const TOLD_ROWS: u64 = 100;

#[cfg(feature = "parquet")]
fn take_table(
    place: &Place,
    sink: &Sink,
    name: &str,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Told, Failure> {
    let env = Env::real();
    let Source::File { file, len, .. } = Source::open(&env, name)? else {
        return Err(Failure::usage(
            "a file of Parquet is read from its end on: give its name instead of -",
        ));
    };
    let unread =
        |why| Failure::of(format!("cannot read {name} as Parquet, nothing was taken"), why);
    let table = plinth::series::parquet::Reader::open(file, len).map_err(unread)?;
    let task = terminal::progress().counted(&format!("importing {name}"), table.rows(), "rows");
    let mut session = Session::new(Protocol::Csv(0), env.random_u64(), &Memory::default());
    let (mut told, mut row) = (Told::default(), 0);
    let failed = |error| place.failed(error);
    'groups: for number in 0..table.groups() {
        let mut group = table.group(number);
        loop {
            let rows =
                match group.as_mut().map_err(|why| why.clone()).and_then(|group| group.next()) {
                    Ok(rows) if rows.is_empty() => break,
                    Ok(rows) => rows,
                    Err(why) => {
                        told.broken = Some(format!("row {} or one behind: {why}", row + 1));
                        break 'groups;
                    }
                };
            for found in rows {
                row += 1;
                let taken = found
                    .and_then(|(series, time, cell)| session.take_row(series.data(), time, &cell));
                if let Err(why) = taken {
                    told.refused += 1;
                    if told.refused <= TOLD_ROWS {
                        plinth_env::tell(format_args!("{name}: {why} (row {row})"));
                    }
                }
                if session.wants_save() {
                    sink.save(&mut session, &mut told).map_err(failed)?;
                }
            }
            sink.save(&mut session, &mut told).map_err(failed)?;
            task.set(row, format!("{} points", grouped(told.points)));
            told.was_interrupted = is_stopped();
            if told.was_interrupted {
                break 'groups;
            }
        }
    }
    sink.save(&mut session, &mut told).and_then(|()| sink.finish()).map_err(failed)?;
    drop(task);
    Ok(told)
}

/// Tells what was refused and why, with its line.
fn say(session: &mut Session, name: &str) {
    while !session.replies().is_empty() {
        let replies = String::from_utf8_lossy(session.replies()).into_owned();
        let len = session.replies().len();
        for line in replies.lines().filter(|line| !line.starts_with("+OK")) {
            plinth_env::tell(format_args!("{name}: {}", line.trim_start_matches("-PARSER ")));
        }
        session.sent(len);
    }
}

impl Source {
    fn open(env: &Env, name: &str) -> Result<Self, Failure> {
        if name == "-" {
            return Ok(Self::Standard);
        }
        let opened = block_on(async {
            let file = env.files().open(name, Open::Read).await?;
            let len = file.len().await?;
            Ok::<_, plinth::Error>(Self::File { file, at: 0, len })
        });
        opened.map_err(|error| Failure::of(format!("cannot read {name}"), error))
    }

    fn len(&self) -> Option<u64> {
        match self {
            Self::File { len, .. } => Some(*len),
            Self::Standard => None,
        }
    }

    /// Puts more bytes behind those that are held: how many; 0 at the end.
    fn read(&mut self, held: &mut Vec<u8>) -> Result<usize, String> {
        let before = held.len();
        held.resize(before + PIECE, 0);
        let read = match self {
            Self::File { file, at, .. } => {
                let read = block_on(file.read_at(*at, &mut held[before..]))
                    .map_err(|error| error.to_string())?;
                *at += read as u64;
                read
            }
            Self::Standard => std::io::stdin()
                .lock()
                .read(&mut held[before..])
                .map_err(|error| error.to_string())?,
        };
        held.truncate(before + read);
        Ok(read)
    }
}

impl Sink {
    /// Puts what a session took where it belongs.
    fn save(&self, session: &mut Session, told: &mut Told) -> Result<(), Error> {
        if !session.has_points() {
            return Ok(());
        }
        match self {
            Self::Store(store) => {
                block_on(session.save(store))?;
                told.points = session.saved();
            }
            Self::Transactions(database, layer) => {
                let points: Vec<(&str, Point)> =
                    session.points().map(|(name, point)| (name.as_str(), point)).collect();
                database.try_transact_blocking(|tr| {
                    // Nobody who takes them in: that is to be told, within a minute or so.
                    tr.set_option(TransactionOption::RetryLimit(Some(TRIES)))?;
                    layer.append_all(tr, points.iter().copied()).wait()
                })?;
                session.discard();
                told.points = session.saved();
            }
        }
        Ok(())
    }

    /// Makes all of it durable.
    fn finish(&self) -> Result<(), Error> {
        match self {
            Self::Store(store) => block_on(store.sync()),
            Self::Transactions(..) => Ok(()),
        }
    }
}
