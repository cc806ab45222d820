//! Commands that read and write keys.
//!
//! Each is one transaction, or a part of the one that was begun. What is shown is written so that
//! it can be typed again, and ranges are read whole before they are shown, so that nothing is shown
//! twice when a read has to be tried again.

use super::session::{Refusal, Session};
use super::words::quoted;
use plinth::{
    Bytes, KeySelector, RangeOptions, Rows, StreamingMode, Transaction, printable, strinc,
};
use std::io::Write;

/// How many rows a range shows unless told otherwise.
const LIMIT: i32 = 25;
/// The end of what ordinary transactions may read.
const USER_END: &[u8] = b"\xff";
/// The end of what can be read at all, special keys aside.
const SYSTEM_END: &[u8] = b"\xff\xff";

/// `get KEY`
pub fn get<Out: Write>(session: &mut Session<Out>, key: &[u8]) -> Result<(), Refusal> {
    let value = session.read(|transaction| transaction.get(key).wait())?;
    match value {
        Some(value) => writeln!(session.out, "`{}' is `{}'", printable(key), printable(&value))?,
        None => writeln!(session.out, "`{}': not found", printable(key))?,
    }
    Ok(())
}

/// `getkey [<|<=|>=|>] KEY [OFFSET]`
pub fn get_key<Out: Write>(
    session: &mut Session<Out>,
    arguments: &[Vec<u8>],
) -> Result<(), Refusal> {
    let relation = |word: &[u8]| -> Option<fn(Bytes) -> KeySelector> {
        match word {
            b"<" => Some(KeySelector::last_less_than),
            b"<=" => Some(KeySelector::last_less_or_equal),
            b">=" => Some(KeySelector::first_greater_or_equal),
            b">" => Some(KeySelector::first_greater_than),
            _ => None,
        }
    };
    let (selector, rest) = match (relation(&arguments[0]), arguments.get(1)) {
        (Some(selector), Some(_)) => (selector, &arguments[1..]),
        _ => (KeySelector::first_greater_or_equal as fn(Bytes) -> KeySelector, arguments),
    };
    let offset = match rest {
        [_] => 0,
        [_, offset] => number(offset, "OFFSET")?,
        _ => return Err(Refusal::Usage("the relation must be one of <, <=, >= and >".to_owned())),
    };
    let selector = selector(Bytes::copy_from_slice(&rest[0])).shifted(offset);
    let key = session.read(|transaction| transaction.get_key(selector.clone()).wait())?;
    match &key[..] {
        b"" => writeln!(session.out, "before the first key")?,
        USER_END | SYSTEM_END => {
            writeln!(session.out, "after the last key: `{}'", printable(&key))?
        }
        key => writeln!(session.out, "`{}'", printable(key))?,
    }
    Ok(())
}

/// `getlocation KEY`
pub fn get_location<Out: Write>(session: &mut Session<Out>, key: &[u8]) -> Result<(), Refusal> {
    let addresses = session.read(|transaction| transaction.addresses_for_key(key).wait())?;
    for address in addresses {
        writeln!(session.out, "  {address}")?;
    }
    Ok(())
}

/// `getrange BEGIN [END] [LIMIT]` and `getrangekeys`
pub fn get_range<Out: Write>(
    session: &mut Session<Out>,
    arguments: &[Vec<u8>],
    values: bool,
) -> Result<(), Refusal> {
    let begin = &arguments[0];
    let end = arguments.get(1).map_or_else(|| end_of_prefix(begin), |end| Ok(end.clone()))?;
    let limit = arguments.get(2).map_or(Ok(LIMIT), |limit| number(limit, "LIMIT"))?;
    let count = i32::unsigned_abs(limit);
    let first = RangeOptions::from(begin.clone()..end)
        .limit(count as usize)
        .reverse(limit < 0)
        .mode(StreamingMode::WantAll);
    let batches = session.read(|transaction| rows(transaction, first.clone()))?;
    writeln!(session.out, "\nRange limited to {count} keys")?;
    for (key, value) in batches.iter().flat_map(Rows::iter) {
        if values {
            writeln!(session.out, "`{}' is `{}'", printable(key), printable(value))?;
        } else {
            writeln!(session.out, "`{}'", printable(key))?;
        }
    }
    writeln!(session.out)?;
    Ok(())
}

/// All rows of a range, up to its limit, batch by batch.
fn rows(transaction: &Transaction, mut options: RangeOptions) -> plinth::Result<Vec<Rows>> {
    let mut batches = Vec::new();
    while options.limit != Some(0) {
        let batch = transaction.get_range(options.clone()).wait()?;
        let last = batch.rows.last().filter(|_| batch.more).map(|(last, _)| last.to_vec());
        let count = batch.rows.len();
        batches.push(batch.rows);
        let Some(last) = last else { break };
        options = options.after(&last, count);
    }
    Ok(batches)
}

/// Where a range ends whose end is not given: after the keys that begin with `begin`.
fn end_of_prefix(begin: &[u8]) -> Result<Vec<u8>, Refusal> {
    match begin {
        b"" => Ok(USER_END.to_vec()),
        USER_END => Ok(SYSTEM_END.to_vec()),
        prefix => strinc(prefix).map(|end| end.to_vec()).ok_or_else(|| {
            Refusal::Usage(format!("nothing comes after {}; give END", quoted(prefix)))
        }),
    }
}

/// `set KEY VALUE`
pub fn set<Out: Write>(
    session: &mut Session<Out>,
    key: &[u8],
    value: &[u8],
) -> Result<(), Refusal> {
    let version = session.write(|transaction| transaction.set(key, value))?;
    committed(session, version)
}

/// `clear KEY`
pub fn clear<Out: Write>(session: &mut Session<Out>, key: &[u8]) -> Result<(), Refusal> {
    let version = session.write(|transaction| transaction.clear(key))?;
    committed(session, version)
}

/// `clearrange BEGIN END`
pub fn clear_range<Out: Write>(
    session: &mut Session<Out>,
    begin: &[u8],
    end: &[u8],
) -> Result<(), Refusal> {
    if begin > end {
        let text = format!("BEGIN {} comes after END {}", quoted(begin), quoted(end));
        return Err(Refusal::Usage(text));
    }
    let version = session.write(|transaction| transaction.clear_range(begin, end))?;
    committed(session, version)
}

fn committed<Out: Write>(session: &mut Session<Out>, version: Option<i64>) -> Result<(), Refusal> {
    if let Some(version) = version {
        writeln!(session.out, "Committed ({version})")?;
    }
    Ok(())
}

/// `writemode on|off`
pub fn write_mode<Out: Write>(session: &mut Session<Out>, mode: &[u8]) -> Result<(), Refusal> {
    session.writable = match mode {
        b"on" => true,
        b"off" => false,
        other => {
            return Err(Refusal::Usage(format!("the mode is on or off, not {}", quoted(other))));
        }
    };
    Ok(())
}

/// An argument that is a number.
pub fn number<T: std::str::FromStr>(word: &[u8], name: &str) -> Result<T, Refusal> {
    let parsed = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| Refusal::Usage(format!("{name} must be a number, not {}", quoted(word))))
}
