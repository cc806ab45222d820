//! Files of Parquet: what was written comes back, files of others are understood, and files that
//! lie are refused with words.
//!
//! Files of others are made by the library's own writer, with the types and compressions that other
//! programs choose.

use super::{Reader, Writer};
use crate::Value;
use crate::dump::Cell;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use plinth_env::block_on;
use plinth_env::{Env, Open, TemporaryDir};
use std::sync::Arc;

/// Keeps the directory as long as it is read.
struct Place(TemporaryDir);

impl Place {
    fn new() -> Self {
        Self(block_on(Env::real().files().temporary_dir("plinth-parquet")).unwrap())
    }

    fn open(&self, bytes: &[u8]) -> Result<Reader, String> {
        let (env, path) = (Env::real(), self.0.path().join("file"));
        block_on(env.files().replace(&path, bytes)).unwrap();
        let file = block_on(env.files().open(&path, Open::Read)).unwrap();
        Reader::open(file, bytes.len() as u64)
    }

    /// All rows as text, and why there are no more.
    fn read(&self, bytes: &[u8]) -> (Vec<String>, Result<(), String>) {
        let mut rows = Vec::new();
        let read = self.open(bytes).and_then(|reader| {
            for number in 0..reader.groups() {
                let mut group = reader.group(number)?;
                loop {
                    let some = group.next()?;
                    if some.is_empty() {
                        break;
                    }
                    rows.extend(some.into_iter().map(|row| match row {
                        Ok((name, time, cell)) => {
                            format!(
                                "{} {time} {}",
                                String::from_utf8_lossy(name.data()),
                                shown(&cell)
                            )
                        }
                        Err(why) => why,
                    }));
                }
            }
            Ok(())
        });
        (rows, read)
    }
}

fn shown(cell: &Cell) -> String {
    match cell {
        Cell::Value(Value::Float(float)) => format!("float {:x}", float.to_bits()),
        Cell::Value(Value::Integer(integer)) => format!("integer {integer}"),
        Cell::Text(text) => format!("text {}", String::from_utf8_lossy(text)),
    }
}

fn cells(count: usize) -> Vec<(String, i64, Cell)> {
    let odd = [f64::from_bits(0x7ff8_0000_0000_0123), f64::NEG_INFINITY, -0.0, 5e-324, 0.1];
    let cell = |at: usize| match at % 7 {
        0 => Cell::Value(Value::Integer(i64::MAX - at as i64)),
        1 => Cell::Value(Value::Integer(-(at as i64))),
        2 => Cell::Text(format!("note {at}, \"é\"").into_bytes()),
        _ => Cell::Value(Value::Float(odd[at % odd.len()])),
    };
    let name = |at: usize| format!("cpu.user host=h{}", at / 1000);
    (0..count).map(|at| (name(at), i64::MIN + (at as i64).pow(3), cell(at))).collect()
}

fn written(rows: &[(String, i64, Cell)]) -> Vec<u8> {
    let (mut writer, mut out) = (Writer::new().unwrap(), Vec::new());
    for (name, time, cell) in rows {
        writer.row(name, *time, cell.clone(), &mut out).unwrap();
    }
    writer.finish(&mut out).unwrap();
    out
}

fn expected(rows: &[(String, i64, Cell)]) -> Vec<String> {
    rows.iter().map(|(name, time, cell)| format!("{name} {time} {}", shown(cell))).collect()
}

#[test]
fn rows_come_back_bit_by_bit() {
    let place = Place::new();
    // With no row, with one, and with more than a group and a piece have.
    for count in [0, 1, 20_000, 300_000] {
        let rows = cells(count);
        let bytes = written(&rows);
        assert_eq!(place.open(&bytes).unwrap().rows(), count as u64);
        let (found, read) = place.read(&bytes);
        assert_eq!(read, Ok(()));
        assert!(found == expected(&rows), "{count}");
    }
}

/// Texts of four kilobytes are a group long before there are enough rows.
#[test]
fn long_texts_end_a_group() {
    let (place, text) = (Place::new(), vec![b'x'; 4095]);
    let rows: Vec<_> =
        (0..10_000).map(|at| ("!e a=b".to_owned(), at, Cell::Text(text.clone()))).collect();
    let bytes = written(&rows);
    assert_eq!(place.open(&bytes).unwrap().groups(), 2);
    assert!(place.read(&bytes).0 == expected(&rows));
}

/// Columns of a file as others write them.
enum Others {
    Texts(&'static [&'static str]),
    Longs(&'static [i64]),
    Ints(&'static [i32]),
    Floats(&'static [f32]),
    Doubles(&'static [f64], &'static [i16]),
}

fn of_others(schema: &str, compression: Compression, columns: &[Others]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(&format!("message m {{ {schema} }}")).unwrap());
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut out = Vec::new();
    let mut file = SerializedFileWriter::new(&mut out, schema, Arc::new(properties)).unwrap();
    let mut group = file.next_row_group().unwrap();
    for column in columns {
        let mut writer = group.next_column().unwrap().unwrap();
        let written = match column {
            Others::Texts(texts) => {
                let texts: Vec<ByteArray> =
                    texts.iter().map(|text| ByteArray::from(*text)).collect();
                writer.typed::<ByteArrayType>().write_batch(&texts, None, None)
            }
            Others::Longs(values) => writer.typed::<Int64Type>().write_batch(values, None, None),
            Others::Ints(values) => writer.typed::<Int32Type>().write_batch(values, None, None),
            Others::Floats(values) => writer.typed::<FloatType>().write_batch(values, None, None),
            Others::Doubles(values, levels) => {
                writer.typed::<DoubleType>().write_batch(values, Some(levels), None)
            }
        };
        written.unwrap();
        writer.close().unwrap();
    }
    group.close().unwrap();
    file.close().unwrap();
    out
}

#[test]
fn files_of_others_are_understood() {
    use Others::*;
    let place = Place::new();
    let names = &["m a=1", "m a=2"];
    let (float, one) =
        (format!("float {:x}", 0.5_f64.to_bits()), format!("float {:x}", 1.5_f64.to_bits()));
    for (schema, columns, rows) in [
        (
            "required binary series (STRING); required int64 time (TIMESTAMP(MILLIS, true)); required float value;",
            vec![Texts(names), Longs(&[5, -6]), Floats(&[0.5, 1.5])],
            [format!("m a=1 5000000 {float}"), format!("m a=2 -6000000 {one}")],
        ),
        (
            "required int32 value (INTEGER(16, true)); required binary series; required int64 time (TIMESTAMP_MICROS); required float other;",
            vec![Ints(&[7, -7]), Texts(names), Longs(&[5, i64::MAX]), Floats(&[0.5, 1.5])],
            ["m a=1 5000 integer 7".to_owned(), "its time is not between 1677 and 2262".to_owned()],
        ),
        (
            "required binary series (STRING); required int64 time; optional double value; required int64 more;",
            vec![Texts(names), Longs(&[5, 6]), Doubles(&[0.5], &[1, 0]), Longs(&[1, 2])],
            [format!("m a=1 5 {float}"), "it has neither a value nor a text".to_owned()],
        ),
    ] {
        for compression in
            [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::GZIP(Default::default())]
        {
            let bytes = of_others(schema, compression, &columns);
            let (found, read) = place.read(&bytes);
            assert_eq!((found, read), (rows.to_vec(), Ok(())), "{schema}");
        }
    }
    if cfg!(feature = "zstd") {
        let schema = "required binary series; required int64 time; required int64 value;";
        let columns = [Texts(names), Longs(&[5, 6]), Longs(&[7, 8])];
        let bytes = of_others(schema, Compression::ZSTD(ZstdLevel::default()), &columns);
        assert_eq!(place.read(&bytes).0, ["m a=1 5 integer 7", "m a=2 6 integer 8"]);
    }
}

#[test]
fn files_with_other_columns_are_refused() {
    use Others::*;
    let (place, names) = (Place::new(), &["m a=1", "m a=2"]);
    for (schema, columns, why) in [
        (
            "required binary name; required int64 time;",
            vec![Texts(names), Longs(&[1, 2])],
            "no column `series`: series, time, and value or text are expected, name, time found",
        ),
        (
            "required binary series; required int64 time;",
            vec![Texts(names), Longs(&[1, 2])],
            "no column `value`",
        ),
        (
            "required binary series; required int32 time; required int64 value;",
            vec![Texts(names), Ints(&[1, 2]), Longs(&[1, 2])],
            "column `time` is INT32, a timestamp",
        ),
        (
            "required int64 series; required int64 time; required int64 value;",
            vec![Longs(&[1, 2]), Longs(&[1, 2]), Longs(&[1, 2])],
            "column `series` is INT64, text",
        ),
        (
            "required binary series; required int64 time; required int64 value (INTEGER(64, false));",
            vec![Texts(names), Longs(&[1, 2]), Longs(&[1, 2])],
            "a signed number is expected",
        ),
        (
            "required binary series; required int64 time; required int64 value (DECIMAL(10, 2));",
            vec![Texts(names), Longs(&[1, 2]), Longs(&[1, 2])],
            "a signed number is expected",
        ),
    ] {
        let refused =
            place.read(&of_others(schema, Compression::UNCOMPRESSED, &columns)).1.unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

/// Wherever it is cut off, nothing of it is taken: what it holds is said at its end.
#[test]
fn a_file_that_is_cut_off_is_refused_as_a_whole() {
    let (place, bytes) = (Place::new(), written(&cells(3000)));
    for len in (0..bytes.len()).step_by(bytes.len() / 200).chain(bytes.len() - 60..bytes.len()) {
        let why = place.open(&bytes[..len]).err();
        assert!(why.is_some_and(|why| !why.is_empty()), "{len} of {} bytes", bytes.len());
    }
}

/// With any bit flipped it gives rows, as many as it says at most, or says why it doesn't; it
/// neither hangs nor takes what it hasn't.
#[test]
fn a_file_with_wrong_bytes_does_no_harm() {
    let (place, bytes) = (Place::new(), written(&cells(60)));
    let (mut refused, mut read) = (0, 0);
    for at in 0..bytes.len() {
        for bit in [0, 3, 7] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            match place.read(&damaged) {
                (_, Err(why)) => {
                    assert!(!why.is_empty());
                    refused += 1;
                }
                (rows, Ok(())) => {
                    assert!(
                        rows.len() <= 60,
                        "{} rows with bit {bit} of byte {at} flipped",
                        rows.len()
                    );
                    read += 1;
                }
            }
        }
    }
    assert!(refused > bytes.len() / 4, "{refused} refused, {read} read");
}
