//! Points as a stream of Arrow's IPC format: a schema, then some thousand rows at a time, then the
//! end.
//!
//! ```text
//!   series: text, by dictionary | time: timestamp in nanoseconds, UTC | for each column NAME: float, NAME.integer: integer | text: of an event
//! ```
//!
//! A float is the value, also of an integer, as far as a float can tell it; beside it stands the
//! integer itself where the value is one, and nothing where it is a float. A column alone is called
//! `value`, and its integers `integer`. Each batch brings the names of its own rows, in place of
//! those of the batch before: what is held is bounded, however many series there are. Names without
//! points are one column of text.

use crate::cell::Cell;
use crate::error::{Error, Result};
use crate::value::Value;
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampNanosecondArray,
};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows of a batch.
const ROWS: usize = 4096;
/// Bytes of texts beyond which a batch gets no more rows.
const TEXT_BYTES: usize = 4 << 20;

/// What rows have besides the series and the time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Columns {
    /// Values, in columns with these names.
    Values(Vec<String>),
    /// The text of an event.
    Texts,
    /// They are texts alone, without series and time, in a column of this name.
    Names(&'static str),
}

/// Writes rows.
pub struct Sheet {
    schema: SchemaRef,
    /// `None` behind the end.
    stream: Option<StreamWriter<Vec<u8>>>,
    /// Whether rows have a series and a time.
    has_heads: bool,
    /// The names of the rows that wait, and the place of each line's name among them.
    names: Vec<String>,
    places: BTreeMap<u32, i32>,
    keys: Vec<i32>,
    times: Vec<i64>,
    values: Vec<Vec<Option<Value>>>,
    texts: Option<Vec<Option<String>>>,
    text_bytes: usize,
}

fn failed(error: ArrowError) -> Error {
    Error::TooMany { what: format!("rows for a batch of Arrow's: {error}") }
}

impl Sheet {
    /// For points and events of any series: the columns `series`, `time`, `value`, `integer` and
    /// `text`.
    ///
    /// # Errors
    /// None that is known of: whatever the encoder says.
    pub fn of_points() -> Result<Self> {
        Self::with(true, &["value".to_owned()], Some("text"))
    }

    pub(crate) fn new(columns: &Columns) -> Result<Self> {
        match columns {
            Columns::Values(names) if names.len() == 1 => {
                Self::with(true, &["value".to_owned()], None)
            }
            Columns::Values(names) => Self::with(true, names, None),
            Columns::Texts => Self::with(true, &[], Some("text")),
            Columns::Names(name) => Self::with(false, &[], Some(name)),
        }
    }

    fn with(has_heads: bool, columns: &[String], text: Option<&str>) -> Result<Self> {
        let mut fields = Vec::new();
        if has_heads {
            let name = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
            let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
            fields.extend([Field::new("series", name, false), Field::new("time", time, false)]);
        }
        for name in columns {
            let integer =
                if columns.len() == 1 { "integer".to_owned() } else { format!("{name}.integer") };
            fields.push(Field::new(name, DataType::Float64, true));
            fields.push(Field::new(integer, DataType::Int64, true));
        }
        fields.extend(text.map(|name| Field::new(name, DataType::Utf8, has_heads)));
        let schema = Arc::new(Schema::new(fields));
        Ok(Self {
            stream: Some(StreamWriter::try_new(Vec::new(), &schema).map_err(failed)?),
            schema,
            has_heads,
            names: Vec::new(),
            places: BTreeMap::new(),
            keys: Vec::new(),
            times: Vec::new(),
            values: vec![Vec::new(); columns.len()],
            texts: text.map(|_| Vec::new()),
            text_bytes: 0,
        })
    }

    /// Writes a point, or an event, of a series; the number stands for the name among all that this
    /// sheet is given. What is finished is appended to `out`.
    ///
    /// # Errors
    /// None that is known of: whatever the encoder says.
    pub fn row(
        &mut self,
        line: u32,
        name: &str,
        time: i64,
        cell: Cell,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match cell {
            Cell::Value(value) => self.cells(line, name, time, &[Some(value)], None, out),
            Cell::Text(text) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                self.cells(line, name, time, &[], Some(text), out)
            }
        }
    }

    /// Writes a row; cells that are missing are empty.
    pub(crate) fn cells(
        &mut self,
        line: u32,
        name: &str,
        time: i64,
        cells: &[Option<Value>],
        text: Option<String>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let place = *self.places.entry(line).or_insert_with(|| {
            self.names.push(name.to_owned());
            (self.names.len() - 1) as i32
        });
        self.keys.push(place);
        self.times.push(time);
        for (column, values) in self.values.iter_mut().enumerate() {
            values.push(cells.get(column).copied().flatten());
        }
        self.push_text(text);
        self.write_full(self.times.len(), out)
    }

    /// Writes a name alone.
    pub(crate) fn name(&mut self, name: &str, out: &mut Vec<u8>) -> Result<()> {
        self.push_text(Some(name.to_owned()));
        self.write_full(self.texts.as_ref().map_or(0, Vec::len), out)
    }

    fn push_text(&mut self, text: Option<String>) {
        if let Some(texts) = &mut self.texts {
            self.text_bytes += text.as_ref().map_or(0, String::len);
            texts.push(text);
        }
    }

    fn write_full(&mut self, rows: usize, out: &mut Vec<u8>) -> Result<()> {
        if rows >= ROWS || self.text_bytes >= TEXT_BYTES { self.write(out) } else { Ok(()) }
    }

    /// Writes the rows that wait as a batch.
    fn write(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        if self.has_heads {
            self.places.clear();
            let names = StringArray::from_iter_values(std::mem::take(&mut self.names));
            let keys = Int32Array::from(std::mem::take(&mut self.keys));
            let series =
                DictionaryArray::<Int32Type>::try_new(keys, Arc::new(names)).map_err(failed)?;
            let times = TimestampNanosecondArray::from(std::mem::take(&mut self.times));
            arrays.extend([Arc::new(series) as ArrayRef, Arc::new(times.with_timezone("UTC"))]);
        }
        for column in &mut self.values {
            let cells = std::mem::take(column);
            let integer = |cell: &Option<Value>| match cell {
                Some(Value::Integer(integer)) => Some(*integer),
                _ => None,
            };
            let values = cells.iter().map(|cell| cell.map(Value::as_f64)).collect::<Float64Array>();
            let integers = cells.iter().map(integer).collect::<Int64Array>();
            arrays.extend([Arc::new(values) as ArrayRef, Arc::new(integers)]);
        }
        if let Some(texts) = &mut self.texts {
            arrays.push(Arc::new(std::mem::take(texts).into_iter().collect::<StringArray>()));
            self.text_bytes = 0;
        }
        if arrays.first().is_some_and(|first| !first.is_empty()) {
            let batch = RecordBatch::try_new(self.schema.clone(), arrays).map_err(failed)?;
            stream.write(&batch).map_err(failed)?;
        }
        out.append(stream.get_mut());
        Ok(())
    }

    /// Writes the rows that wait, and the end; nothing when that is done.
    ///
    /// # Errors
    /// None that is known of: whatever the encoder says.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.write(out)?;
        if let Some(mut stream) = self.stream.take() {
            stream.finish().map_err(failed)?;
            out.append(stream.get_mut());
        }
        Ok(())
    }
}

impl std::fmt::Debug for Sheet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sheet").field("waiting", &self.times.len()).finish_non_exhaustive()
    }
}
