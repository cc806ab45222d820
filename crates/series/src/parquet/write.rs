//! Rows into a file of Parquet.
//!
//! Parquet writes columns, and all of one before the next, so rows are gathered until there are
//! enough for a group. What was written is taken out of a buffer behind each; the end of the file
//! says where everything lies, and without it there is nothing.

use crate::Value;
use crate::dump::Cell;
use parquet::basic::{Compression, Encoding};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

const SCHEMA: &str = "message points {
    required binary series (STRING);
    required int64 time (TIMESTAMP(NANOS, true));
    optional double value;
    optional int64 integer;
    optional binary text (STRING);
}";
/// Rows of a group; and bytes of texts beyond which it gets no more of them.
const ROWS: usize = 1 << 18;
const TEXT_BYTES: usize = 32 << 20;

/// Bytes that were written and not taken yet.
#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    fn move_to(&self, out: &mut Vec<u8>) {
        out.append(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A column in which some rows have nothing.
struct Optional<T> {
    /// For each row 1, or 0 if it has nothing.
    levels: Vec<i16>,
    values: Vec<T>,
}

impl<T> Default for Optional<T> {
    fn default() -> Self {
        Self { levels: Vec::new(), values: Vec::new() }
    }
}

impl<T> Optional<T> {
    fn push(&mut self, value: Option<T>) {
        self.levels.push(i16::from(value.is_some()));
        self.values.extend(value);
    }
}

/// The rows of a group.
#[derive(Default)]
struct Rows {
    series: Vec<ByteArray>,
    times: Vec<i64>,
    values: Optional<f64>,
    integers: Optional<i64>,
    texts: Optional<ByteArray>,
    text_bytes: usize,
}

/// Writes a file.
pub struct Writer {
    /// `None` behind the end.
    file: Option<SerializedFileWriter<Buffer>>,
    buffer: Buffer,
    rows: Rows,
}

impl Writer {
    /// A file without rows.
    pub fn new() -> Result<Self> {
        let mut properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        for column in ["time", "integer"] {
            // Times ascend, and integers are often near each other.
            let column = ColumnPath::from(column);
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
        }
        let buffer = Buffer::default();
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let file = SerializedFileWriter::new(buffer.clone(), schema, Arc::new(properties.build()))?;
        Ok(Self { file: Some(file), buffer, rows: Rows::default() })
    }

    /// Writes a row. What is finished is appended to `out`.
    pub fn row(&mut self, name: &str, time: i64, cell: Cell, out: &mut Vec<u8>) -> Result<()> {
        let rows = &mut self.rows;
        let name = match rows.series.last().filter(|last| last.data() == name.as_bytes()) {
            Some(last) => last.clone(),
            None => ByteArray::from(name.as_bytes().to_vec()),
        };
        rows.series.push(name);
        rows.times.push(time);
        let (value, text) = match cell {
            Cell::Value(value) => (Some(value), None),
            // Others may refuse a text that is none.
            Cell::Text(text) => {
                (None, Some(String::from_utf8_lossy(&text).into_owned().into_bytes()))
            }
        };
        rows.values.push(value.map(Value::as_f64));
        rows.integers.push(match value {
            Some(Value::Integer(integer)) => Some(integer),
            _ => None,
        });
        rows.text_bytes += text.as_ref().map_or(0, Vec::len);
        rows.texts.push(text.map(ByteArray::from));
        if rows.times.len() >= ROWS || rows.text_bytes >= TEXT_BYTES {
            self.write_group(out)
        } else {
            Ok(())
        }
    }

    /// Writes the rows that wait, and the end.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.write_group(out)?;
        if let Some(file) = self.file.take() {
            file.close()?;
            self.buffer.move_to(out);
        }
        Ok(())
    }

    fn write_group(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        let Some(file) = self.file.as_mut().filter(|_| !rows.times.is_empty()) else {
            return Ok(());
        };
        let mut group = file.next_row_group()?;
        column::<ByteArrayType>(&mut group, &rows.series, None)?;
        column::<Int64Type>(&mut group, &rows.times, None)?;
        column::<DoubleType>(&mut group, &rows.values.values, Some(&rows.values.levels))?;
        column::<Int64Type>(&mut group, &rows.integers.values, Some(&rows.integers.levels))?;
        column::<ByteArrayType>(&mut group, &rows.texts.values, Some(&rows.texts.levels))?;
        group.close()?;
        self.buffer.move_to(out);
        Ok(())
    }
}

/// Writes the next column of a group.
fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Buffer>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<()> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General(
            "the schema has fewer columns than rows have cells".to_owned(),
        ));
    };
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}
