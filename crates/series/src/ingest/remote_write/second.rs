//! Version 2: all texts of a message stand in it once, and are named by their places. Where those
//! are is found out first; a series' key of names is the texts themselves, so it is the same in
//! every message.
//!
//! Samples and histograms say when what they count began, in drafts before 2.0-rc.4 their series.

use super::super::Sample;
use super::super::intake::{Intake, IntakeRecord, Mark};
use super::super::metadata::Metadata;
use super::super::protobuf::{Fields, Payload, numbers};
use super::super::start::{Start, is_before};
use super::{Besides, Labels, nanoseconds, take_exemplar, take_histogram, take_sample, text};
use crate::exemplar::MAX_LABEL_BYTES;
use crate::histogram;
use crate::record::Kind;
use crate::{MAX_NAME_BYTES, MAX_TAGS};

/// Texts of one message, at most.
const MAX_SYMBOLS: usize = 1 << 20;
/// What a key of names begins with here: none of version 1 does.
const OURS: [u8; 4] = [0xfe, 0xff, 0xff, 0xff];

/// Where each text of a message is: its begin and its length.
#[derive(Debug)]
pub(super) struct Symbols(Vec<(u32, u32)>);

impl Symbols {
    /// Those of a message.
    pub(super) fn of(message: &[u8]) -> Result<Self, String> {
        let mut all = Vec::new();
        let mut fields = Fields::of(message);
        while let Some(field) = fields.next() {
            let (4, Payload::Bytes(text)) = field? else { continue };
            if all.len() == MAX_SYMBOLS {
                return Err(format!("more than {MAX_SYMBOLS} symbols in a message"));
            }
            let end = message.len() - fields.rest().len();
            all.push(((end - text.len()) as u32, text.len() as u32));
        }
        Ok(Self(all))
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.len() * size_of::<(u32, u32)>()
    }

    /// The text at a place.
    fn text<'m>(&self, message: &'m [u8], place: u64) -> Result<&'m [u8], String> {
        let found = usize::try_from(place).ok().and_then(|place| self.0.get(place));
        let (begin, len) =
            found.ok_or_else(|| format!("there is no symbol {place}, but {}", self.0.len()))?;
        Ok(&message[*begin as usize..(*begin + *len) as usize])
    }
}

/// Puts the labels of a series into `key`, and its samples and histograms, which belong to nobody
/// yet, behind those that there are.
pub(super) fn gather<'a>(
    intake: &mut Intake,
    series: &[u8],
    (message, symbols): (&'a [u8], &Symbols),
    key: &mut Vec<u8>,
) -> Result<Besides<'a>, String> {
    let begin = intake.mark();
    let mut besides = Besides { labels: Some(labels), ..Besides::default() };
    let (mut places, mut created, mut is_quantile) = (Vec::new(), 0, false);
    for field in Fields::of(series) {
        match field? {
            (1, payload) => {
                numbers(payload, |place| places.push(place))?;
                if places.len() > 2 * MAX_TAGS + 2 {
                    return Err(format!("more than {MAX_TAGS} labels"));
                }
            }
            (2, Payload::Bytes(sample)) => take_sample(intake, begin.samples, sample)?,
            (3, Payload::Bytes(one)) => take_histogram(intake, begin.records, one)?,
            (4, Payload::Bytes(one)) => {
                let mut open = None;
                take_exemplar(intake, one, |payload, labels| {
                    take_labels(payload, (message, symbols), &mut open, labels)
                });
            }
            (5, Payload::Bytes(metadata)) => {
                besides.metadata = Some(described(metadata, message, symbols)?);
            }
            (6, Payload::Number(number)) => created = number as i64,
            _ => {}
        }
    }
    if !places.len().is_multiple_of(2) {
        return Err("a label has no value".to_owned());
    }
    let begin_key = key.len();
    key.extend_from_slice(&OURS);
    for (at, place) in places.into_iter().enumerate() {
        let text = symbols.text(message, place)?;
        is_quantile |= at % 2 == 0 && text == b"quantile";
        // Many may name one long text; what is longer than a name can't be one.
        if key.len() + text.len() > begin_key + 2 * MAX_NAME_BYTES {
            return Err("the labels are longer than a name may be".to_owned());
        }
        key.extend_from_slice(&(text.len() as u32).to_le_bytes());
        key.extend_from_slice(text);
    }
    match besides.metadata {
        // A sender that says when these began means no number that counts.
        Some(("gauge" | "gaugehistogram" | "info" | "stateset", ..)) => {
            intake.starts.truncate(begin.starts);
        }
        Some(("summary", ..)) if is_quantile => intake.starts.truncate(begin.starts),
        _ if created > 0 && intake.starts.len() == begin.starts => {
            take_created(intake, begin, created)?;
        }
        _ => {}
    }
    Ok(besides)
}

/// Takes the start that drafts before 2.0-rc.4 have, one for all samples of a series.
fn take_created(intake: &mut Intake, begin: Mark, created: i64) -> Result<(), String> {
    let start = nanoseconds(created).unwrap_or(0);
    let mut before = None;
    for Sample { time, .. } in &intake.samples[begin.samples..] {
        if is_before(start, *time, before.replace(*time)) {
            intake.starts.push(Start::of_number(start));
            return Ok(());
        }
    }
    for IntakeRecord { record, .. } in &intake.records[begin.records..] {
        if record.kind == Kind::Histogram
            && is_before(start, record.time, before.replace(record.time))
        {
            let histogram = histogram::decode(&record.bytes).map_err(|error| error.to_string())?;
            intake.starts.push(Start::of_histogram(start, &histogram)?);
            return Ok(());
        }
    }
    Ok(())
}

/// Takes places of labels, of which `open` is the name that has no value yet.
fn take_labels(
    payload: Payload<'_>,
    (message, symbols): (&[u8], &Symbols),
    open: &mut Option<String>,
    labels: &mut Vec<(String, String)>,
) -> Result<(), String> {
    let mut places = Vec::new();
    numbers(payload, |place| places.push(place))?;
    for place in places {
        if labels.len() > MAX_TAGS {
            return Err(format!("more than {MAX_TAGS} labels of an exemplar"));
        }
        let found = symbols.text(message, place)?;
        // Many may name one long text.
        if found.len() > MAX_LABEL_BYTES {
            return Err("a label of an exemplar is too long".to_owned());
        }
        let found = text(found)?;
        match open.take() {
            Some(name) => labels.push((name, found)),
            None => *open = Some(found),
        }
    }
    Ok(())
}

fn described<'a>(
    metadata: &[u8],
    message: &'a [u8],
    symbols: &Symbols,
) -> Result<(&'static str, &'a [u8], &'a [u8]), String> {
    let (mut kind, mut help, mut unit) = (0, 0, 0);
    for field in Fields::of(metadata) {
        match field? {
            (1, Payload::Number(number)) => kind = number,
            (3, Payload::Number(place)) => help = place,
            (4, Payload::Number(place)) => unit = place,
            _ => {}
        }
    }
    let text = |place| if place == 0 { Ok(&b""[..]) } else { symbols.text(message, place) };
    Ok((Metadata::kind(kind), text(help)?, text(unit)?))
}

/// The labels of a key.
fn labels(key: &[u8]) -> Labels<'_> {
    let mut rest = &key[OURS.len()..];
    let mut next = move || {
        let (len, more) = rest.split_first_chunk()?;
        let text;
        (text, rest) = more.split_at(u32::from_le_bytes(*len) as usize);
        Some(text)
    };
    Box::new(std::iter::from_fn(move || Some(Ok((next()?, next()?)))))
}
