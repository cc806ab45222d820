//! `plinth series export`: points as text that can be imported again, here or elsewhere.

use super::{Place, form, times};
use crate::failure::{Failure, INTERRUPTED};
use crate::interrupt;
use crate::terminal;
use clap::ArgMatches;
use plinth::block_on;
use plinth::series::Direction;
use plinth::series::dump::{Dump, Form};
use plinth_bench::words::grouped;
use plinth_env::{Env, File, Open};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Bytes that are written at a time.
const PIECE: usize = 1 << 20;

/// Where text goes.
enum Out {
    Standard,
    File { file: File, at: u64 },
}

/// Runs the command with these options.
pub fn run(place: &Place, options: &ArgMatches) -> Result<u8, Failure> {
    let form = options.get_one::<String>("format").and_then(|name| form(name)).unwrap_or(Form::Csv);
    let store = place.store()?;
    let mut out = Out::open(options)?;
    let stop = interrupt::flag();
    let task = terminal::progress().unknown(&format!("exporting {}", place.name));
    let (mut text, mut points, mut renamed) = (form.heading().to_owned(), 0, 0);
    let series = place.each(&store, options, |series| {
        let mut dump = Dump::new(form, series.name());
        let failed = |error| place.failed(error);
        let mut stream = block_on(series.scan(times(options), Direction::Forward)).map_err(failed)?;
        while let Some(some) = block_on(stream.next()).map_err(failed)? {
            dump.points(&some, &mut text);
            if text.len() >= PIECE {
                out.write(&text)?;
                text.clear();
            }
            if stop.load(Ordering::Relaxed) {
                return Err(Failure::interrupted());
            }
        }
        points += dump.written();
        renamed += u64::from(form == Form::Influx && !series.name().metric().contains('.'));
        Ok(())
    });
    drop(task);
    out.write(&text)?;
    let series = match series {
        Err(failure) if failure.code() == INTERRUPTED => {
            eprintln!("plinth: interrupted after {} points: what was written is not all", grouped(points));
            return Ok(INTERRUPTED);
        }
        series => series?,
    };
    out.finish()?;
    eprintln!("plinth: {} points of {} series were exported", grouped(points), grouped(series));
    if renamed > 0 {
        eprintln!(
            "plinth: {} of the metrics have no point in them; they are written as the field \"value\", and come back as METRIC.value",
            grouped(renamed)
        );
    }
    Ok(0)
}

impl Out {
    fn open(options: &ArgMatches) -> Result<Self, Failure> {
        let Some(path) = options.get_one::<PathBuf>("out") else { return Ok(Self::Standard) };
        let file = block_on(Env::real().files().open(path, Open::CreateNew));
        let file = file.map_err(|error| Failure::of(format!("cannot make {}", path.display()), error))?;
        Ok(Self::File { file, at: 0 })
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        match self {
            Self::Standard => terminal::print(text),
            Self::File { file, at } => {
                block_on(file.write_all_at(*at, text.as_bytes()))
                    .map_err(|error| Failure::of("cannot write the file", error))?;
                *at += text.len() as u64;
                Ok(())
            }
        }
    }

    fn finish(&self) -> Result<(), Failure> {
        match self {
            Self::Standard => Ok(()),
            Self::File { file, .. } => {
                block_on(file.sync_all()).map_err(|error| Failure::of("cannot write the file", error))
            }
        }
    }
}
