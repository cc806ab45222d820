//! Rows out of a file of Parquet, whoever wrote it.
//!
//! A file says at its end where everything lies, so one that is cut off is refused before anything
//! is taken. The library believes much of what a file says; so what it asks for is checked against
//! the length of the file, what a dictionary claims to hold against the bytes that it has, and
//! where the library gives up nevertheless that is an error like any other.

use crate::Value;
use crate::dump::Cell;
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor};
use plinth_env::File;
use plinth_env::block_on;
use plinth_types::Bytes;
use std::io::{BufReader, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Rows that are read at a time.
const ROWS: usize = 8192;

/// A file, as the library reads it.
struct Source {
    file: File,
    len: u64,
}

impl Length for Source {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for Source {
    type T = BufReader<Rest>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(BufReader::new(Rest { file: self.file.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let end = start.checked_add(length as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(ParquetError::General(format!(
                "{length} bytes at {start} are expected, the file has {}",
                self.len
            )));
        }
        let mut bytes = vec![0; length];
        block_on(self.file.read_exact_at(start, &mut bytes))
            .map_err(|error| ParquetError::General(error.to_string()))?;
        Ok(bytes.into())
    }
}

/// A file from a place on.
struct Rest {
    file: File,
    at: u64,
}

impl Read for Rest {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = block_on(self.file.read_at(self.at, buffer))
            .map_err(|error| std::io::Error::other(error.to_string()))?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Pages whose dictionaries hold no more than their bytes can.
struct Checked {
    pages: Box<dyn PageReader>,
    /// The fewest bytes that a value of a dictionary takes.
    least: usize,
}

impl Iterator for Checked {
    type Item = ParquetResult<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Checked {
    fn get_next_page(&mut self) -> ParquetResult<Option<Page>> {
        let page = self.pages.get_next_page()?;
        if let Some(Page::DictionaryPage { buf, num_values, .. }) = &page
            && *num_values as usize > buf.len() / self.least
        {
            let why = format!("a dictionary of {} bytes can't hold {num_values} values", buf.len());
            return Err(ParquetError::General(why));
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> ParquetResult<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> ParquetResult<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> ParquetResult<bool> {
        self.pages.at_record_boundary()
    }
}

/// Has the library work on bytes that may be anything.
fn guarded<T>(work: impl FnOnce() -> ParquetResult<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("what the file says of itself contradicts its bytes".to_owned()),
    }
}

/// Where the columns stand.
struct Columns {
    series: usize,
    time: usize,
    /// What a step of `time` is in nanoseconds.
    unit: i64,
    value: Option<usize>,
    integer: Option<usize>,
    text: Option<usize>,
}

/// Reads a file.
pub struct Reader {
    file: SerializedFileReader<Source>,
    columns: Columns,
}

/// Reads a group of rows.
pub struct Group {
    series: Column,
    time: Column,
    value: Option<Column>,
    integer: Option<Column>,
    text: Option<Column>,
    unit: i64,
    left: u64,
}

/// A row: name, time, and what is there; or why it is none.
pub type Row = Result<(ByteArray, i64, Cell), String>;

impl Reader {
    /// Reads what a file of this length says of itself.
    ///
    /// # Errors
    /// Why it is no file of Parquet with points.
    pub fn open(file: File, len: u64) -> Result<Self, String> {
        let file = guarded(|| SerializedFileReader::new(Source { file, len }))?;
        let columns = columns(file.metadata().file_metadata().schema_descr().columns())?;
        Ok(Self { file, columns })
    }

    /// How many rows it says it has.
    pub fn rows(&self) -> u64 {
        u64::try_from(self.file.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// How many groups of rows it has.
    pub fn groups(&self) -> usize {
        self.file.num_row_groups()
    }

    /// The group of this number.
    ///
    /// # Errors
    /// Why it can't be read.
    pub fn group(&self, number: usize) -> Result<Group, String> {
        guarded(|| {
            let group = self.file.get_row_group(number)?;
            let descriptors = self.file.metadata().file_metadata().schema_descr();
            let column = |at: usize| {
                let descriptor = descriptors.column(at);
                let pages = Box::new(Checked {
                    pages: group.get_column_page_reader(at)?,
                    least: match descriptor.physical_type() {
                        Physical::INT64 | Physical::DOUBLE => 8,
                        _ => 4,
                    },
                });
                Ok::<_, ParquetError>(Column {
                    most_level: descriptor.max_def_level(),
                    reader: get_column_reader(descriptor, pages),
                })
            };
            let columns = &self.columns;
            Ok(Group {
                series: column(columns.series)?,
                time: column(columns.time)?,
                value: columns.value.map(column).transpose()?,
                integer: columns.integer.map(column).transpose()?,
                text: columns.text.map(column).transpose()?,
                unit: columns.unit,
                left: u64::try_from(group.metadata().num_rows()).unwrap_or(0),
            })
        })
    }
}

/// Finds the columns, and refuses those that can't be understood.
fn columns(all: &[ColumnDescPtr]) -> Result<Columns, String> {
    let find =
        |name: &str| all.iter().position(|column| column.path().parts() == [name.to_owned()]);
    let need = |name: &str| {
        find(name).ok_or_else(|| {
            let found: Vec<String> = all.iter().map(|column| column.path().string()).collect();
            format!(
                "it has no column `{name}`: series, time, and value or text are expected, {} found",
                found.join(", ")
            )
        })
    };
    let typed = |at: usize, kinds: &[Physical], expected: &str| {
        let column = &all[at];
        if kinds.contains(&column.physical_type()) && column.max_rep_level() == 0 && !is_odd(column)
        {
            return Ok(at);
        }
        let (name, found) = (column.name(), column.physical_type());
        let logical =
            column.logical_type_ref().map_or(String::new(), |logical| format!(" ({logical:?})"));
        Err(format!("column `{name}` is {found}{logical}, {expected} is expected"))
    };
    let text = &[Physical::BYTE_ARRAY][..];
    let integer = &[Physical::INT32, Physical::INT64][..];
    let number = &[Physical::INT32, Physical::INT64, Physical::FLOAT, Physical::DOUBLE][..];
    let optional = |name: &str, kinds: &[Physical], expected: &str| {
        find(name).map(|at| typed(at, kinds, expected)).transpose()
    };
    let time = typed(need("time")?, &[Physical::INT64], "a timestamp of 64 bits")?;
    let found = Columns {
        series: typed(need("series")?, text, "text")?,
        time,
        unit: unit(&all[time]),
        value: optional("value", number, "a signed number")?,
        integer: optional("integer", integer, "a signed integer")?,
        text: optional("text", text, "text")?,
    };
    match (found.value, found.integer, found.text) {
        (None, None, None) => need("value").map(|_| found),
        _ => Ok(found),
    }
}

/// Whether numbers in it are not what their bits say.
fn is_odd(column: &ColumnDescriptor) -> bool {
    let unsigned = [
        ConvertedType::UINT_8,
        ConvertedType::UINT_16,
        ConvertedType::UINT_32,
        ConvertedType::UINT_64,
    ];
    unsigned.contains(&column.converted_type())
        || column.converted_type() == ConvertedType::DECIMAL
        || match column.logical_type_ref() {
            Some(LogicalType::Integer(kind)) => !kind.is_signed,
            Some(LogicalType::Decimal(_)) => true,
            _ => false,
        }
}

/// What a step of a timestamp is; of one that doesn't say a nanosecond.
fn unit(column: &ColumnDescriptor) -> i64 {
    match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Timestamp(kind)), _) => match kind.unit {
            TimeUnit::MILLIS => 1_000_000,
            TimeUnit::MICROS => 1_000,
            TimeUnit::NANOS => 1,
        },
        (_, ConvertedType::TIMESTAMP_MILLIS) => 1_000_000,
        (_, ConvertedType::TIMESTAMP_MICROS) => 1_000,
        _ => 1,
    }
}

/// A column of a group.
struct Column {
    reader: ColumnReader,
    /// The level of a row that has a value.
    most_level: i16,
}

impl Column {
    fn texts(&mut self) -> ParquetResult<Vec<Option<ByteArray>>> {
        match &mut self.reader {
            ColumnReader::ByteArrayColumnReader(reader) => {
                read(reader, self.most_level, |text| text)
            }
            _ => Err(ParquetError::General("text expected".to_owned())),
        }
    }

    fn values(&mut self) -> ParquetResult<Vec<Option<Value>>> {
        let most_level = self.most_level;
        match &mut self.reader {
            ColumnReader::Int32ColumnReader(reader) => {
                read(reader, most_level, |value| Value::Integer(value.into()))
            }
            ColumnReader::Int64ColumnReader(reader) => read(reader, most_level, Value::Integer),
            ColumnReader::FloatColumnReader(reader) => {
                read(reader, most_level, |value| Value::Float(value.into()))
            }
            ColumnReader::DoubleColumnReader(reader) => read(reader, most_level, Value::Float),
            _ => Err(ParquetError::General("a number expected".to_owned())),
        }
    }
}

/// The next values of a column; none at its end.
fn read<T: DataType, U>(
    reader: &mut ColumnReaderImpl<T>,
    most_level: i16,
    made: impl Fn(T::T) -> U,
) -> ParquetResult<Vec<Option<U>>> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    reader.read_records(ROWS, Some(&mut levels), None, &mut values)?;
    let mut values = values.into_iter().map(made);
    if most_level == 0 {
        return Ok(values.map(Some).collect());
    }
    let cell = |level: i16| match level == most_level {
        true => values.next().map(Some).ok_or("fewer values than rows that have one"),
        false => Ok(None),
    };
    let cells: Result<Vec<_>, _> = levels.into_iter().map(cell).collect();
    cells.map_err(|why| ParquetError::General(why.to_owned()))
}

impl Group {
    /// The next rows; none at the end.
    ///
    /// # Errors
    /// Why they can't be read.
    pub fn next(&mut self) -> Result<Vec<Row>, String> {
        let series = guarded(|| self.series.texts())?;
        let rows = series.len();
        let whole = |found: usize, name: &str| match found == rows {
            true => Ok(()),
            false => Err(format!(
                "its columns end in different rows: {rows} of `series`, {found} of `{name}`"
            )),
        };
        let times = guarded(|| self.time.values())?;
        whole(times.len(), "time")?;
        let optional = |column: &mut Option<Column>, name| match column {
            None => Ok(vec![None; rows]),
            Some(column) => {
                let values = guarded(|| column.values())?;
                whole(values.len(), name).map(|()| values)
            }
        };
        let values = optional(&mut self.value, "value")?;
        let integers = optional(&mut self.integer, "integer")?;
        let texts = match &mut self.text {
            None => vec![None; rows],
            Some(column) => guarded(|| column.texts())?,
        };
        whole(texts.len(), "text")?;
        if rows as u64 > self.left || (rows == 0 && self.left > 0) {
            return Err(format!("it has {rows} rows where {} are expected", self.left));
        }
        self.left -= rows as u64;
        let values = integers.into_iter().zip(values).map(|(integer, value)| integer.or(value));
        let cells = values.zip(texts).map(|(value, text)| match (value, text) {
            (Some(value), None) => Ok(Cell::Value(value)),
            (None, Some(text)) => Ok(Cell::Text(text.data().to_vec())),
            (None, None) => Err("it has neither a value nor a text"),
            (Some(_), Some(_)) => Err("it has both a value and a text"),
        });
        let heads = series.into_iter().zip(times);
        Ok(heads.zip(cells).map(|((name, time), cell)| row(name, time, cell, self.unit)).collect())
    }
}

fn row(
    name: Option<ByteArray>,
    time: Option<Value>,
    cell: Result<Cell, &'static str>,
    unit: i64,
) -> Row {
    let name = name.ok_or("it has no series")?;
    let Some(Value::Integer(time)) = time else { return Err("it has no time".to_owned()) };
    let time = time.checked_mul(unit);
    Ok((name, time.ok_or("its time is not between 1677 and 2262")?, cell?))
}
