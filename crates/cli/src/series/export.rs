//! `plinth series export`: points as text that can be imported again, here or elsewhere, or as a
//! table for other programs.
//!
//! Series are read one after the other, a piece at a time, and what a format makes of a piece is
//! written before much more is read. A format that this program was built without is refused before
//! a file is made.

use super::{Format, Own, Place, times};
use crate::failure::{Failure, INTERRUPTED, tell};
use crate::interrupt;
use crate::terminal;
use clap::ArgMatches;
use plinth::block_on;
#[cfg(any(feature = "arrow", feature = "parquet"))]
use plinth::series::dump::Cells;
use plinth::series::dump::{Dump, Form};
use plinth::series::{Direction, Name, Points};
use plinth_bench::words::{counted, grouped};
use plinth_env::{Env, File, Open};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Bytes that are written at a time.
const PIECE: usize = 1 << 20;

/// Where bytes go.
enum Out {
    Standard,
    File { file: File, at: u64 },
}

/// What makes bytes of points.
enum Writer {
    Text {
        form: Form,
        dump: Option<Dump>,
    },
    #[cfg(feature = "arrow")]
    Arrow {
        sheet: Box<plinth::series::arrow::Sheet>,
        cells: Option<Cells>,
    },
    #[cfg(feature = "parquet")]
    Parquet {
        table: Box<plinth::series::parquet::Writer>,
        cells: Option<Cells>,
    },
}

/// What was exported.
#[derive(Default)]
struct Told {
    series: u32,
    points: u64,
    renamed: u64,
}

/// Runs the command with these options.
pub fn run(place: &Place, options: &ArgMatches) -> Result<u8, Failure> {
    let format = Format::chosen(options)?.unwrap_or(Format::Text(Form::Csv));
    let store = place.store()?;
    let (mut told, mut bytes) = (Told::default(), Vec::new());
    let mut writer = Writer::new(format, &mut bytes)?;
    let mut out = Out::open(options)?;
    let stop = interrupt::flag();
    let task = terminal::progress().unknown(&format!("exporting {}", place.name));
    let mut own = Own::of(options);
    let series = place.each(&store, options, |series| {
        if own.leaves_out(series) {
            return Ok(());
        }
        let name = series.name();
        writer.begin(name);
        let failed = |error| place.failed(error);
        let mut stream =
            block_on(series.scan(times(options), Direction::Forward)).map_err(failed)?;
        while let Some(some) = block_on(stream.next()).map_err(failed)? {
            told.points += writer.points(told.series, name, &some, &mut bytes)?;
            if bytes.len() >= PIECE {
                out.write(&mut bytes)?;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(Failure::interrupted());
            }
        }
        told.series += 1;
        told.renamed +=
            u64::from(format == Format::Text(Form::Influx) && !name.metric().contains('.'));
        Ok(())
    });
    drop(task);
    let (points, renamed) = (told.points, told.renamed);
    match series {
        Err(failure) if failure.code() == INTERRUPTED => {
            out.write(&mut bytes)?;
            let points = grouped(points);
            match format {
                Format::Text(_) => tell(format_args!(
                    "interrupted after {points} points: what was written is not all"
                )),
                _ => tell(format_args!(
                    "interrupted after {points} points: what was written has no end, and others can't read it"
                )),
            }
            return Ok(INTERRUPTED);
        }
        Err(failure) => return Err(failure),
        Ok(_) => {}
    }
    writer.finish(&mut bytes)?;
    out.write(&mut bytes)?;
    out.finish()?;
    let were = if points == 1 { "was" } else { "were" };
    tell(format_args!(
        "{} of {} series {were} exported",
        counted(points, "point"),
        grouped(told.series.into())
    ));
    own.tell();
    if renamed > 0 {
        tell(format_args!(
            "{} of the metrics have no point in them; they are written as the field \"value\", and come back as METRIC.value",
            grouped(renamed)
        ));
    }
    Ok(0)
}

impl Writer {
    /// What a file begins with is put into `out`.
    fn new(format: Format, out: &mut Vec<u8>) -> Result<Self, Failure> {
        match format.available()? {
            Format::Text(form) => {
                out.extend_from_slice(form.heading().as_bytes());
                Ok(Self::Text { form, dump: None })
            }
            #[cfg(feature = "arrow")]
            Format::Arrow => {
                let sheet = Box::new(plinth::series::arrow::Sheet::of_points().map_err(unwritten)?);
                Ok(Self::Arrow { sheet, cells: None })
            }
            #[cfg(feature = "parquet")]
            Format::Parquet => {
                let table = Box::new(plinth::series::parquet::Writer::new().map_err(unwritten)?);
                Ok(Self::Parquet { table, cells: None })
            }
            #[cfg(not(all(feature = "arrow", feature = "parquet")))]
            _ => Err(Failure::new("this program was built without that format")),
        }
    }

    /// The points of this series come next.
    fn begin(&mut self, name: &Name) {
        match self {
            Self::Text { form, dump } => *dump = Some(Dump::new(*form, name)),
            #[cfg(feature = "arrow")]
            Self::Arrow { cells, .. } => *cells = Some(Cells::new(name)),
            #[cfg(feature = "parquet")]
            Self::Parquet { cells, .. } => *cells = Some(Cells::new(name)),
        }
    }

    /// Writes points of the series with this name, which is the one of this number: how many,
    /// events counted once.
    fn points(
        &mut self,
        number: u32,
        name: &Name,
        points: &Points,
        out: &mut Vec<u8>,
    ) -> Result<u64, Failure> {
        let _ = (number, name);
        match self {
            Self::Text { dump: Some(dump), .. } => {
                let (before, mut text) = (dump.written(), String::new());
                dump.points(points, &mut text);
                out.extend_from_slice(text.as_bytes());
                Ok(dump.written() - before)
            }
            #[cfg(feature = "arrow")]
            Self::Arrow { sheet, cells: Some(cells) } => {
                let mut written = 0;
                for (time, cell) in points.iter().filter_map(|point| cells.push(point)) {
                    sheet.row(number, name.as_str(), time, cell, out).map_err(unwritten)?;
                    written += 1;
                }
                Ok(written)
            }
            #[cfg(feature = "parquet")]
            Self::Parquet { table, cells: Some(cells) } => {
                let mut written = 0;
                for (time, cell) in points.iter().filter_map(|point| cells.push(point)) {
                    table.row(name.as_str(), time, cell, out).map_err(unwritten)?;
                    written += 1;
                }
                Ok(written)
            }
            _ => Ok(0),
        }
    }

    /// Writes what a file ends with.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        let _ = &out;
        match self {
            Self::Text { .. } => Ok(()),
            #[cfg(feature = "arrow")]
            Self::Arrow { sheet, .. } => sheet.finish(out).map_err(unwritten),
            #[cfg(feature = "parquet")]
            Self::Parquet { table, .. } => table.finish(out).map_err(unwritten),
        }
    }
}

#[cfg(any(feature = "arrow", feature = "parquet"))]
fn unwritten(error: impl std::fmt::Display) -> Failure {
    Failure::of("cannot write the table", error)
}

impl Out {
    fn open(options: &ArgMatches) -> Result<Self, Failure> {
        let Some(path) = options.get_one::<PathBuf>("out") else { return Ok(Self::Standard) };
        let file = block_on(Env::real().files().open(path, Open::CreateNew));
        let file =
            file.map_err(|error| Failure::of(format!("cannot make {}", path.display()), error))?;
        Ok(Self::File { file, at: 0 })
    }

    /// Writes all of it, and leaves nothing.
    fn write(&mut self, bytes: &mut Vec<u8>) -> Result<(), Failure> {
        match self {
            Self::Standard => terminal::print_bytes(bytes)?,
            Self::File { file, at } => {
                block_on(file.write_all_at(*at, bytes))
                    .map_err(|error| Failure::of("cannot write the file", error))?;
                *at += bytes.len() as u64;
            }
        }
        bytes.clear();
        Ok(())
    }

    fn finish(&self) -> Result<(), Failure> {
        match self {
            Self::Standard => Ok(()),
            Self::File { file, .. } => block_on(file.sync_all())
                .map_err(|error| Failure::of("cannot write the file", error)),
        }
    }
}
