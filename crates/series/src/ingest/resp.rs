//! Akumuli's protocol: messages of lines that are marked as in RESP, `+` a text, `:` an integer,
//! `*` how many follow.
//!
//! ```text
//!   *4 +cpu host=a :1 +cpu|mem host=b :2      a dictionary: names and the numbers that stand for them; first of all, if there is one
//!   +cpu host=a  +20200101T000000  +0.5       a message: name (or :number), time, value
//!   +cpu|mem host=a  :1577836800000000000  *2  +0.5  :7        a row: a value for each metric
//!   +SYNC                                     is answered by +OK and the number of points saved so far, when all before it is durable
//! ```
//!
//! A message counts as a whole or not at all. A line with a wrong number or name spoils its
//! message, which is read to its end and refused once. Where a line can't belong to the message at
//! all the reading is lost, and begins again with the next line that can only be a name: a text
//! with a blank and a tag in it; or the number of a known name with a time behind it.
//!
//! Messages come by the million, nearly all of them whole and without a mistake: those are taken at
//! once, and their lines are not looked for one by one. Whatever is not such a message goes line by
//! line through the states, which say what is wrong; so both ways mean the same.

use super::Sample;
use super::intake::{Intake, Shown};
use super::line_parser::LineParser;
use super::lines::{Lines, TOO_LONG, whole_line};
use super::names::Row;
use super::number::{self, Recent};
use crate::event;
use crate::value::{Point, Value};
use std::collections::BTreeMap;

/// The request for an acknowledgement.
const SYNC: &[u8] = b"SYNC";
/// Names of a dictionary.
const MAX_NAMES: u64 = 1 << 20;
/// Values that a spoilt row may announce and still be read to its end.
const MAX_ANNOUNCED: u64 = 1 << 16;
/// Digits of a number that can only be a time.
const DIGITS_OF_TIME: usize = 18;

#[derive(Default, Debug)]
pub(super) struct Parser {
    lines: Lines,
    state: State,
    /// Whether a message came already.
    begun: bool,
    dictionary: Dictionary,
    message: Message,
    /// The time read last, as it was written: many series share it.
    recent: Recent,
}

/// What the next line is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum State {
    #[default]
    Message,
    /// A name of the dictionary, of which this many lines are left.
    DictionaryName(u64),
    /// Its number, for what the name stands for.
    DictionaryNumber(u64, Option<Row>),
    /// What is left of a dictionary that was refused.
    Skipped(u64),
    Time,
    /// A value, or how many there are.
    Values,
    /// One of a row's values, of which this many are left.
    Value(u64),
    /// Unknown. A row if the line before may have been its number.
    Lost(Option<Row>),
}

/// The message that is being read.
#[derive(Debug)]
struct Message {
    row: Row,
    time: i64,
    /// Whether it was refused already.
    spoilt: bool,
    samples: Vec<Sample>,
    /// How many values came.
    values: u32,
}

impl Default for Message {
    fn default() -> Self {
        Self { row: NO_ROW, time: 0, spoilt: false, samples: Vec::new(), values: 0 }
    }
}

/// What numbers stand for: small ones, as most senders give them, by their place.
#[derive(Default, Debug)]
struct Dictionary {
    small: Vec<Option<Row>>,
    others: BTreeMap<i64, Row>,
    len: u64,
}

impl Dictionary {
    #[inline]
    fn get(&self, number: i64) -> Option<Row> {
        match usize::try_from(number).ok().and_then(|place| self.small.get(place)) {
            Some(row) => *row,
            None => self.others.get(&number).copied(),
        }
    }

    fn insert(&mut self, number: i64, row: Row) {
        self.len += 1;
        // As long as the numbers are dense.
        let most = self.len.saturating_mul(4).saturating_add(1024);
        match u64::try_from(number) {
            Ok(place) if place < most => {
                let place = place as usize;
                if place >= self.small.len() {
                    self.small.resize(place + 1, None);
                    self.others.retain(|number, row| {
                        let place =
                            usize::try_from(*number).ok().and_then(|at| self.small.get_mut(at));
                        place.map(|place| *place = Some(*row)).is_none()
                    });
                }
                self.small[place] = Some(row);
            }
            _ => drop(self.others.insert(number, row)),
        }
    }
}

/// What a name that is none stands for.
const NO_ROW: Row = Row { first: 0, count: 1, has_events: false };

/// Why a line was refused, and whether what follows it is known.
struct Refused {
    why: String,
    is_lost: bool,
}

fn wrong(why: impl ToString) -> Refused {
    Refused { why: why.to_string(), is_lost: false }
}

fn lost(why: impl ToString) -> Refused {
    Refused { why: why.to_string(), is_lost: true }
}

impl LineParser for Parser {
    fn lines(&mut self) -> &mut Lines {
        &mut self.lines
    }

    #[inline]
    fn line(&mut self, intake: &mut Intake, line: &[u8]) {
        self.begin_line();
        let result = match (self.state, line) {
            (State::Value(left), _) => self.value(intake, line, left),
            (State::Message, [b'+', name @ ..]) if !name.eq_ignore_ascii_case(SYNC) => {
                self.name(intake, name)
            }
            (State::Time, [b'+' | b':', ..]) => self.time(intake, line),
            (State::Message, [b':', number @ ..]) => self.numbered(number),
            (State::Values, [b'+' | b':', ..]) if self.message.row.count == 1 => {
                self.value(intake, line, 1)
            }
            _ => self.rare(intake, line),
        };
        if let Err(refused) = result {
            self.refuse(intake, &refused, line);
        }
    }

    #[inline]
    fn message(&mut self, intake: &mut Intake, bytes: &[u8]) -> Option<usize> {
        if self.state != State::Message || self.lines.skipping {
            return None;
        }
        let before = intake.samples.len();
        let Some((len, lines)) = self.whole(intake, bytes) else {
            intake.samples.truncate(before);
            return None;
        };
        self.lines.number += lines;
        self.begun = true;
        self.message.spoilt = false;
        Some(len)
    }

    fn too_long(&mut self, intake: &mut Intake) {
        self.begin_line();
        self.refuse(intake, &lost(format!("out of quota: {TOO_LONG}")), b"");
    }

    fn end(&mut self, intake: &mut Intake, rest: &[u8]) {
        if !matches!(self.state, State::Message | State::Lost(_)) || !rest.is_empty() {
            self.refuse(intake, &lost("the stream ends in the middle of a message"), rest);
        }
    }
}

impl Parser {
    /// The row that what follows belongs to, if it may.
    pub(super) fn in_hand(&self) -> Option<Row> {
        match self.state {
            State::DictionaryNumber(_, row) => row,
            State::Time | State::Values | State::Value(_) => Some(self.message.row),
            State::Message | State::DictionaryName(_) | State::Skipped(_) | State::Lost(_) => None,
        }
    }

    /// Takes the place to which the row in hand has moved.
    pub(super) fn moved(&mut self, row: Row) {
        if let State::DictionaryNumber(left, Some(_)) = self.state {
            self.state = State::DictionaryNumber(left, Some(row));
            return;
        }
        let first = self.message.row.first;
        for sample in &mut self.message.samples {
            sample.target = sample.target.wrapping_sub(first).wrapping_add(row.first);
        }
        self.message.row = row;
    }

    /// Between two messages nothing was refused.
    #[inline]
    fn begin_line(&mut self) {
        if self.state == State::Message {
            self.message.spoilt = false;
        }
    }

    /// Lines that are not those of a stream of messages in their order.
    #[cold]
    fn rare(&mut self, intake: &mut Intake, line: &[u8]) -> Result<(), Refused> {
        match (self.state, line) {
            (State::Message, [b'+', ..]) => {
                intake.wants_sync = true;
                self.begun = true;
                Ok(())
            }
            (State::Message, [b'*', count @ ..]) => self.dictionary_begins(count),
            (State::Message, _) => {
                Err(lost("a name, a number of the dictionary or SYNC is expected"))
            }
            (State::DictionaryName(left) | State::DictionaryNumber(left, _), _) => {
                self.define(intake, line, left)
            }
            (State::Skipped(left), _) => {
                self.skip(left - 1);
                Ok(())
            }
            (State::Time, _) => Err(lost("unexpected parameter timestamp format")),
            (State::Values, [b'*', count @ ..]) => self.values(count),
            (State::Values, [b'+', ..]) if is_name(line) => {
                self.starts_anew(intake, line, "values are expected")
            }
            (State::Values, [b'+' | b':', ..]) => {
                Err(lost("array expected (bulk format), string found"))
            }
            (State::Values | State::Value(_), _) => Err(lost("unexpected parameter value format")),
            (State::Lost(candidate), _) => self.found(intake, line, candidate),
        }
    }

    /// Refuses a line's message, once.
    #[cold]
    fn refuse(&mut self, intake: &mut Intake, refused: &Refused, line: &[u8]) {
        if !self.message.spoilt {
            let (why, number) = (&refused.why, self.lines.number);
            intake.reply(format_args!("-PARSER {why} (line {number}) - {}\r\n", Shown(line)));
        }
        self.message.spoilt = true;
        match self.state {
            // How many lines a dictionary has is known, and none of them shall be taken for a
            // message.
            State::DictionaryName(left) | State::DictionaryNumber(left, _) if refused.is_lost => {
                self.skip(left - 1)
            }
            State::Skipped(left) if refused.is_lost => self.skip(left - 1),
            _ if refused.is_lost => self.state = State::Lost(None),
            _ => {}
        }
    }

    #[inline]
    fn name(&mut self, intake: &mut Intake, name: &[u8]) -> Result<(), Refused> {
        self.begun = true;
        self.state = State::Time;
        self.message.spoilt = false;
        if let Some(row) = intake.names.find(name, b"") {
            self.message.row = row;
            return Ok(());
        }
        self.new_name(intake, name)
    }

    #[cold]
    fn new_name(&mut self, intake: &mut Intake, name: &[u8]) -> Result<(), Refused> {
        // The rest of the message follows also if it is none.
        let (metrics, _) = divide(name);
        let count = 1 + metrics.iter().filter(|byte| **byte == b'|').count() as u32;
        self.message.row = Row { count, ..NO_ROW };
        self.message.row = add_name(intake, name, true)?;
        Ok(())
    }

    #[inline]
    fn numbered(&mut self, number: &[u8]) -> Result<(), Refused> {
        self.begun = true;
        let row = number::integer(number).ok().and_then(|number| self.dictionary.get(number));
        match row {
            Some(row) => {
                self.message.row = row;
                self.state = State::Time;
                Ok(())
            }
            None => Err(lost("invalid series name format: the dictionary has no such number")),
        }
    }

    /// Takes a message without a mistake, and says how many bytes and lines it has. Of any other
    /// some samples may be left.
    #[inline]
    fn whole(&mut self, intake: &mut Intake, bytes: &[u8]) -> Option<(usize, u64)> {
        let (row, mut at) = match bytes {
            [b':', number @ ..] => self.number_line(number)?,
            [b'+', name @ ..] => {
                let (name, len) = whole_line(name)?;
                (intake.names.find(name, b"")?, len)
            }
            _ => return None,
        };
        if row.has_events {
            return None;
        }
        at += 1;
        let (time, len) = self.time_line(&bytes[at..])?;
        at += len;
        let mut lines = 3;
        if row.count > 1 || bytes.get(at) == Some(&b'*') {
            let (count, digits) = number::short_digits(bytes[at..].strip_prefix(b"*")?);
            at += 1 + digits;
            at += number::line_break(&bytes[at..]).filter(|_| count == i64::from(row.count))?;
            lines += u64::from(row.count);
        }
        for target in row.first..row.first + row.count {
            let (value, len) = number::value_line(&bytes[at..])?;
            at += len;
            intake.samples.push(Sample { target, time, value });
        }
        Some((at, lines))
    }

    /// What a line with a short number of the dictionary stands for, and the line's length.
    #[inline]
    fn number_line(&self, line: &[u8]) -> Option<(Row, usize)> {
        let (number, digits) = number::short_digits(line);
        let end = number::line_break(&line[digits..]).filter(|_| digits > 0)?;
        Some((self.dictionary.get(number)?, digits + end))
    }

    /// What a line says that is a time, and its length.
    #[inline]
    fn time_line(&mut self, text: &[u8]) -> Option<(i64, usize)> {
        if let Some(found) = self.recent.again(text) {
            return Some(found);
        }
        let (line, len) = whole_line(text)?;
        let (b'+' | b':') = line.first()? else { return None };
        Some((self.recent.parse(line, time_of).ok()?, len))
    }

    fn dictionary_begins(&mut self, count: &[u8]) -> Result<(), Refused> {
        let count = number::integer(count).map_err(|wrong| lost(wrong.text()))?;
        let count =
            u64::try_from(count).map_err(|_| lost("a number of elements is not negative"))?;
        if count > 2 * MAX_NAMES {
            return Err(lost("a dictionary has 1048576 names at most"));
        }
        if count % 2 != 0 {
            return Err(lost("number of elements in the dictionary should be even"));
        }
        if self.begun {
            self.skip(count);
            return Err(wrong("a dictionary is expected before the first message only"));
        }
        self.state = if count == 0 { State::Message } else { State::DictionaryName(count) };
        Ok(())
    }

    fn skip(&mut self, left: u64) {
        self.state = if left == 0 { State::Message } else { State::Skipped(left) };
    }

    /// A line of the dictionary, which has `left` of them from this one on. A name that is none
    /// spoils itself alone.
    fn define(&mut self, intake: &mut Intake, line: &[u8], left: u64) -> Result<(), Refused> {
        match (self.state, line) {
            (State::DictionaryNumber(_, row), [b':', number @ ..]) => {
                let number = number::integer(number).map_err(|wrong| lost(wrong.text()))?;
                if self.dictionary.len >= MAX_NAMES {
                    return Err(lost("a dictionary has 1048576 names at most"));
                }
                if let Some(row) = row {
                    self.dictionary.insert(number, row);
                    intake.names.fix();
                }
                self.message.spoilt = false;
                self.state =
                    if left > 1 { State::DictionaryName(left - 1) } else { State::Message };
                Ok(())
            }
            (State::DictionaryNumber(..), _) => Err(lost("unexpected parameter id format")),
            (_, [b'+', name @ ..]) => {
                let added = add_name(intake, name, false);
                self.state = State::DictionaryNumber(left - 1, added.as_ref().ok().copied());
                added.map(|_| ())
            }
            _ => Err(lost("a name of the dictionary is expected")),
        }
    }

    #[inline]
    fn time(&mut self, intake: &mut Intake, line: &[u8]) -> Result<(), Refused> {
        self.state = State::Values;
        self.message.values = 0;
        self.message.samples.clear();
        match self.recent.parse(line, time_of) {
            Ok(time) => self.message.time = time,
            Err(_) if line[0] == b'+' && is_name(line) => {
                return self.starts_anew(intake, line, "a time is expected");
            }
            Err(why) => return Err(wrong(why.text())),
        }
        Ok(())
    }

    /// How many values follow.
    #[inline]
    fn values(&mut self, count: &[u8]) -> Result<(), Refused> {
        let announced = number::integer(count).ok().and_then(|count| u64::try_from(count).ok());
        let Some(announced) = announced.filter(|count| *count <= MAX_ANNOUNCED) else {
            return Err(lost("a number of values is expected"));
        };
        self.state = if announced == 0 { State::Message } else { State::Value(announced) };
        let expected = u64::from(self.message.row.count);
        match announced.cmp(&expected) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Less => Err(self.count_wrong("more", expected, announced)),
            std::cmp::Ordering::Greater => Err(self.count_wrong("less", expected, announced)),
        }
    }

    #[cold]
    fn count_wrong(&self, which: &str, expected: u64, announced: u64) -> Refused {
        wrong(format!(
            "wrong array size, {which} values expected: there are {expected} metrics and {announced} values"
        ))
    }

    /// One value, behind which `left` - 1 follow.
    #[inline]
    fn value(&mut self, intake: &mut Intake, line: &[u8], left: u64) -> Result<(), Refused> {
        let message = &mut self.message;
        let is_event = message.row.has_events && is_event(intake, message);
        let value = match line {
            [b'+', text @ ..] if !is_event => number::value(text),
            [b':', digits @ ..] if !is_event => number::integer(digits).map(Value::Integer),
            [b'+', ..] => return self.event(intake, line, left),
            _ => return Err(lost("unexpected parameter value format")),
        };
        let sample = match value {
            Ok(value) => {
                Sample { target: message.row.first + message.values, time: message.time, value }
            }
            Err(_) if line[0] == b'+' && is_name(line) => {
                return self.starts_anew(intake, line, "a value is expected");
            }
            Err(why) => {
                self.refuse(intake, &wrong(why.text()), line);
                self.value_ends(intake, left);
                return Ok(());
            }
        };
        if message.row.count == 1 && left == 1 && !message.spoilt {
            intake.samples.push(sample);
            self.state = State::Message;
            return Ok(());
        }
        if !message.spoilt {
            message.samples.push(sample);
        }
        self.value_ends(intake, left);
        Ok(())
    }

    fn event(&mut self, intake: &mut Intake, line: &[u8], left: u64) -> Result<(), Refused> {
        let message = &mut self.message;
        let target = message.row.first + message.values;
        match event::points(message.time, &line[1..]) {
            Ok(_) if message.spoilt => {}
            Ok(points) => {
                let sample = |point: Point| Sample { target, time: point.time, value: point.value };
                message.samples.extend(points.into_iter().map(sample));
            }
            Err(why) => self.refuse(intake, &wrong(why), line),
        }
        self.value_ends(intake, left);
        Ok(())
    }

    /// Notes that a value came, and takes the message if it was the last and all of them were good.
    #[inline]
    fn value_ends(&mut self, intake: &mut Intake, left: u64) {
        self.message.values += 1;
        if left > 1 {
            self.state = State::Value(left - 1);
            return;
        }
        self.state = State::Message;
        if !self.message.spoilt {
            intake.samples.extend_from_slice(&self.message.samples);
        }
    }

    /// A name stands where something else is expected: what came before it is refused, and it
    /// begins a message.
    #[cold]
    fn starts_anew(
        &mut self,
        intake: &mut Intake,
        line: &[u8],
        expected: &str,
    ) -> Result<(), Refused> {
        self.refuse(intake, &lost(format!("{expected}, and a name found")), line);
        self.name(intake, &line[1..])
    }

    /// Looks for where messages begin again.
    #[cold]
    fn found(
        &mut self,
        intake: &mut Intake,
        line: &[u8],
        candidate: Option<Row>,
    ) -> Result<(), Refused> {
        if let (Some(row), true) = (candidate, is_time(line)) {
            self.message.row = row;
            self.message.spoilt = false;
            return self.time(intake, line);
        }
        match line {
            [b'+', name @ ..] if name.eq_ignore_ascii_case(SYNC) => {
                intake.wants_sync = true;
                self.state = State::Message;
                Ok(())
            }
            [b'+', name @ ..] if is_name(line) => self.name(intake, name),
            [b':', number @ ..] => {
                let number = number::integer(number).ok();
                self.state = State::Lost(number.and_then(|number| self.dictionary.get(number)));
                Ok(())
            }
            _ => {
                self.state = State::Lost(None);
                Ok(())
            }
        }
    }
}

/// What a line of a time says, with its mark, since that decides what it may be.
fn time_of(line: &[u8]) -> Result<i64, number::Wrong> {
    match line {
        [b'+', text @ ..] => number::time(text),
        _ => number::integer(&line[1..]),
    }
}

/// Whether the next value of a message is a text.
fn is_event(intake: &Intake, message: &Message) -> bool {
    let target = message.row.first as usize + message.values as usize;
    message.values < message.row.count
        && intake.names.targets[target].name().metric().starts_with('!')
}

/// Whether a line can only be a name: it has a blank, and a tag behind it.
#[inline]
fn is_name(line: &[u8]) -> bool {
    let blank = line.iter().position(|byte| *byte == b' ');
    blank.is_some_and(|blank| line[blank..].contains(&b'='))
}

/// Whether a line can only be a time.
fn is_time(line: &[u8]) -> bool {
    match line {
        [b'+', text @ ..] => text.get(8) == Some(&b'T') && number::time(text).is_ok(),
        [b':', digits @ ..] => digits.len() >= DIGITS_OF_TIME && number::integer(digits).is_ok(),
        _ => false,
    }
}

/// The metrics of a name, and its tags.
fn divide(name: &[u8]) -> (&[u8], &[u8]) {
    let begin = name.iter().position(|byte| *byte != b' ').unwrap_or(name.len());
    let name = &name[begin..];
    let mut escaped = false;
    let end = name.iter().position(|byte| {
        let ends = *byte == b' ' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    name.split_at(end.unwrap_or(name.len()))
}

/// Looks a name up or notes it; only what stands in messages is found by its text again.
#[cold]
fn add_name(intake: &mut Intake, name: &[u8], by_text: bool) -> Result<Row, Refused> {
    let (metrics, tags) = divide(name);
    // Akumuli refuses such a name, and one that lost its tags on the way shall not become another.
    if tags.iter().all(|byte| *byte == b' ') && !metrics.is_empty() {
        return Err(wrong("invalid series name format: it has no tag"));
    }
    let added = match by_text {
        true => intake.names.insert(name, b"", metrics, tags),
        false => intake.names.add(metrics, tags),
    };
    added.map_err(|error| {
        let why = match error {
            crate::Error::Name { why, .. } => why,
            other => other.to_string(),
        };
        wrong(format!("invalid series name format: {why}"))
    })
}
