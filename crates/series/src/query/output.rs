//! Rows as text, in the two forms of Akumuli: RESP, three lines a row, and CSV; or, with the
//! feature `arrow`, as a stream of Arrow's.
//!
//! Text is made in pieces of a size that suits sockets and allocators: a writer stops behind the
//! row with which a piece is long enough, and says where it stopped, so rows are kept and not their
//! text. Numbers and times are written by `numbers.rs` and `time.rs`.

use super::cursor::Text;
use super::error::QueryResult;
use super::merge::Rows;
use super::numbers::{write_integer, write_value};
use super::parse::{Format, Output};
#[cfg(feature = "arrow")]
use crate::arrow::{Columns, Sheet};
use crate::time::IsoClock;
use crate::value::Value;
use std::io::Write as _;

/// What rows are written by.
pub(crate) enum Sink {
    Text(Writer),
    #[cfg(feature = "arrow")]
    Arrow(Box<Sheet>),
}

impl Sink {
    pub(crate) fn text(output: Output, is_tuple: bool) -> Self {
        Self::Text(Writer::new(output, is_tuple))
    }

    #[cfg(feature = "arrow")]
    pub(crate) fn arrow(columns: &Columns) -> QueryResult<Self> {
        Ok(Self::Arrow(Box::new(Sheet::new(columns)?)))
    }

    pub(crate) fn is_text(&self) -> bool {
        matches!(self, Self::Text(_))
    }

    /// Writes rows of values from `from` on; text stops when it has `most` bytes. Where it stopped.
    pub(crate) fn rows(
        &mut self,
        rows: &Rows<Value>,
        from: usize,
        names: &[String],
        most: usize,
        out: &mut Vec<u8>,
    ) -> QueryResult<usize> {
        match self {
            Self::Text(writer) => Ok(writer.rows(rows, from, names, most, out)),
            #[cfg(feature = "arrow")]
            Self::Arrow(sheet) => {
                for row in from..rows.len() {
                    let (line, time) = (rows.lines[row], rows.times[row]);
                    sheet.cells(line, &names[line as usize], time, rows.row(row), None, out)?;
                }
                Ok(rows.len())
            }
        }
    }

    /// Writes events.
    pub(crate) fn events(
        &mut self,
        rows: &Rows<Text>,
        names: &[String],
        out: &mut Vec<u8>,
    ) -> QueryResult<()> {
        match self {
            Self::Text(writer) => writer.events(rows, names, out),
            #[cfg(feature = "arrow")]
            Self::Arrow(sheet) => {
                for row in 0..rows.len() {
                    let (line, time) = (rows.lines[row], rows.times[row]);
                    let text = rows.row(row).first().and_then(Option::as_deref).unwrap_or_default();
                    let text = String::from_utf8_lossy(text).into_owned();
                    sheet.cells(line, &names[line as usize], time, &[], Some(text), out)?;
                }
            }
        }
        Ok(())
    }

    /// Writes a name alone.
    pub(crate) fn name(&mut self, name: &str, out: &mut Vec<u8>) -> QueryResult<()> {
        match self {
            Self::Text(writer) => writer.name(name, out),
            #[cfg(feature = "arrow")]
            Self::Arrow(sheet) => sheet.name(name, out)?,
        }
        Ok(())
    }

    /// Writes what stands behind all rows.
    pub(crate) fn end(&mut self, out: &mut Vec<u8>) -> QueryResult<()> {
        match self {
            Self::Text(_) => {}
            #[cfg(feature = "arrow")]
            Self::Arrow(sheet) => sheet.finish(out)?,
        }
        let _ = out;
        Ok(())
    }
}

/// Writes rows as text.
pub(crate) struct Writer {
    is_csv: bool,
    is_iso: bool,
    /// Whether rows are arrays, even those with one column.
    is_tuple: bool,
    clock: IsoClock,
}

impl Writer {
    pub(crate) fn new(output: Output, is_tuple: bool) -> Self {
        let is_csv = output.format == Some(Format::Csv);
        Self { is_csv, is_iso: output.iso, is_tuple, clock: IsoClock::default() }
    }

    /// Writes rows of values from `from` on until the text has `most` bytes. Where it stopped.
    pub(crate) fn rows(
        &mut self,
        rows: &Rows<Value>,
        from: usize,
        names: &[String],
        most: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        for row in from..rows.len() {
            if out.len() >= most {
                return row;
            }
            self.head(&names[rows.lines[row] as usize], rows.times[row], out);
            self.cells(rows.row(row), out);
        }
        rows.len()
    }

    fn cells(&self, cells: &[Option<Value>], out: &mut Vec<u8>) {
        if self.is_csv {
            for cell in cells {
                out.push(b',');
                if let Some(value) = cell {
                    write_value(*value, out);
                }
            }
            out.push(b'\n');
            return;
        }
        if self.is_tuple {
            // A vector takes whatever is written.
            let _ = write!(out, "*{}\r\n", cells.len());
        }
        for cell in cells {
            match cell {
                Some(value) => {
                    out.push(b'+');
                    write_value(*value, out);
                }
                None => out.extend_from_slice(b"$-1"),
            }
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Writes events.
    pub(crate) fn events(&mut self, rows: &Rows<Text>, names: &[String], out: &mut Vec<u8>) {
        for row in 0..rows.len() {
            self.head(&names[rows.lines[row] as usize], rows.times[row], out);
            let text = rows.row(row).first().and_then(Option::as_deref).unwrap_or_default();
            let (before, after) = match self.is_csv {
                true => (b',', &b"\n"[..]),
                false => (b'+', &b"\r\n"[..]),
            };
            out.push(before);
            // A row stays a row whatever an event has in it.
            out.extend(
                text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }),
            );
            out.extend_from_slice(after);
        }
    }

    /// Writes a name alone.
    pub(crate) fn name(&self, name: &str, out: &mut Vec<u8>) {
        match self.is_csv {
            true => out.extend_from_slice(name.as_bytes()),
            false => {
                out.push(b'+');
                out.extend_from_slice(name.as_bytes());
                out.push(b'\r');
            }
        }
        out.push(b'\n');
    }

    /// Writes what all rows begin with.
    fn head(&mut self, name: &str, time: i64, out: &mut Vec<u8>) {
        let is_resp = !self.is_csv;
        if is_resp {
            out.push(b'+');
        }
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(if is_resp { b"\r\n+" } else { b"," });
        if self.is_iso {
            out.extend_from_slice(self.clock.text(time));
        } else {
            out.extend_from_slice(b"ts=");
            write_integer(time, out);
        }
        if is_resp {
            out.extend_from_slice(b"\r\n");
        }
    }
}
