//! OpenTSDB's points as JSON, which `/api/put` takes: an object, or a list of them.
//!
//! They are read into a few bytes each, the fields of a message, and taken from there in turns:
//! `{"metric": "cpu", "timestamp": 1767225600, "value": 7, "tags": {"host": "a"}}` means what the
//! line `put cpu 1767225600 7 host=a` does. Where the text is no JSON nothing is taken; whatever
//! else is wrong with a point costs that alone, and is told with the point.

use super::super::intake::{Intake, TURN};
use super::super::lines::MAX_LINE_BYTES;
use super::super::names::escape;
use super::super::number::Recent;
use super::super::protobuf::{Fields, Payload, put_bytes, put_number};
use super::put_words;
use serde_core::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Value as Json, json};
use std::borrow::Cow;
use std::fmt;

/// Fields of a point in bytes: what is wrong with it, and its words.
const WRONG: u32 = 1;
const METRIC: u32 = 2;
const TIME: u32 = 3;
const VALUE: u32 = 4;
const KEY: u32 = 5;
const TAG: u32 = 6;

/// What may be wrong with a point before it is looked at as one, by numbers from 1 on.
const WRONGS: [&str; 7] = [
    "a point is an object",
    "metric is a text",
    "timestamp is a number",
    "value is a number",
    "tags are an object of texts",
    "a text is empty, or has control characters",
    "a point is longer than a line may be",
];
const NO_OBJECT: u64 = 1;
const NO_TAGS: u64 = 5;
const NO_WORD: u64 = 6;
const TOO_LONG: u64 = 7;
/// Bytes of points that are kept with the reason for which they were refused; more are counted.
const TOLD: usize = 256 << 10;

/// Points of a request, and how far they have been taken.
#[derive(Debug, Default)]
pub struct PutPoints {
    bytes: Vec<u8>,
    at: usize,
    points: u64,
    recent: Recent,
    refused: u64,
    told: Vec<(Json, String)>,
    told_bytes: usize,
}

impl PutPoints {
    /// Those of a body.
    ///
    /// # Errors
    /// Why it has none.
    pub fn of(body: &[u8]) -> Result<Self, String> {
        let mut bytes = Vec::new();
        let mut reader = serde_json::Deserializer::from_slice(body);
        let points = Points { bytes: &mut bytes, is_listed: false };
        let read = points.deserialize(&mut reader).and_then(|()| reader.end());
        read.map_err(|why| why.to_string())?;
        bytes.shrink_to_fit();
        Ok(Self { bytes, ..Self::default() })
    }

    /// How many bytes they have in memory.
    pub fn bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// How many of them were looked at.
    pub fn points(&self) -> u64 {
        self.points
    }

    /// How many of them were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Those, as far as they are kept, and why.
    pub fn told(&self) -> &[(Json, String)] {
        &self.told
    }

    fn refuse(&mut self, point: &Point<'_>, why: String) {
        self.refused += 1;
        if self.told_bytes < TOLD {
            self.told_bytes += point.len + why.len();
            self.told.push((point.json(), why));
        }
    }
}

/// Takes in points, until there is something to save, or as much was done as others can wait for:
/// whether that was the rest of them.
pub(in crate::ingest) fn take(intake: &mut Intake, points: &mut PutPoints) -> bool {
    let bytes = std::mem::take(&mut points.bytes);
    let mut fields = Fields::of(&bytes[points.at..]);
    let mut work = 0;
    while work < TURN && !intake.is_full() {
        let Some(Ok((_, Payload::Bytes(point)))) = fields.next() else { break };
        work += point.len() + 64;
        points.points += 1;
        let point = Point::of(point);
        if let Err(why) = point.put(intake, &mut points.recent) {
            intake.refused += 1;
            points.refuse(&point, why);
        }
    }
    points.at = bytes.len() - fields.rest().len();
    points.bytes = bytes;
    points.at == points.bytes.len()
}

/// A point as it was sent.
#[derive(Default)]
struct Point<'a> {
    wrong: u64,
    /// Metric, time, value.
    words: [&'a [u8]; 3],
    tags: Vec<(&'a [u8], &'a [u8])>,
    len: usize,
}

impl<'a> Point<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        let mut point = Self { len: bytes.len(), ..Self::default() };
        for field in Fields::of(bytes).flatten() {
            let (number, payload) = (field.0 as u32, field.1);
            match (number, payload) {
                (WRONG, Payload::Number(wrong)) => point.wrong = wrong,
                (METRIC..=VALUE, Payload::Bytes(text)) => {
                    point.words[(number - METRIC) as usize] = text;
                }
                (KEY, Payload::Bytes(key)) => point.tags.push((key, b"")),
                (TAG, Payload::Bytes(value)) => {
                    point.tags.last_mut().into_iter().for_each(|tag| tag.1 = value);
                }
                _ => {}
            }
        }
        point
    }

    fn put(&self, intake: &mut Intake, recent: &mut Recent) -> Result<(), String> {
        let wrong = usize::try_from(self.wrong).ok().and_then(|wrong| wrong.checked_sub(1));
        if let Some(why) = wrong.and_then(|wrong| WRONGS.get(wrong)) {
            return Err((*why).to_owned());
        }
        let [metric, time, value] = self.words;
        for (word, name) in self.words.iter().zip(["metric", "timestamp", "value"]) {
            if word.is_empty() {
                return Err(format!("{name} is missing"));
            }
        }
        let (mut name, mut tags) = (Vec::new(), Vec::new());
        escape(metric, &mut name);
        for (key, value) in &self.tags {
            tags.push(b' ');
            escape(key, &mut tags);
            tags.push(b'=');
            escape(value, &mut tags);
        }
        put_words(intake, recent, (&name, time, value, &tags)).map_err(|(what, why)| {
            let what = what.strip_prefix("put: ").unwrap_or(what);
            if why.is_empty() { what.to_owned() } else { format!("{what}: {why}") }
        })
    }

    /// The point as JSON, as far as it was one.
    fn json(&self) -> Json {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let number = |bytes: &[u8]| {
            let text = text(bytes);
            text.parse::<i64>().map_or(Json::from(text), Json::from)
        };
        let mut point = Map::new();
        let [metric, time, value] = self.words;
        if !metric.is_empty() {
            point.insert("metric".to_owned(), json!(text(metric)));
        }
        if !time.is_empty() {
            point.insert("timestamp".to_owned(), number(time));
        }
        if !value.is_empty() {
            point.insert("value".to_owned(), json!(text(value)));
        }
        let tags = self.tags.iter().map(|(key, value)| (text(key), json!(text(value))));
        point.insert("tags".to_owned(), Json::Object(tags.collect()));
        Json::Object(point)
    }
}

/// Points that become bytes.
struct Points<'o> {
    bytes: &'o mut Vec<u8>,
    /// Whether it is one of a list.
    is_listed: bool,
}

impl Points<'_> {
    fn point(&mut self, point: &[u8]) {
        put_bytes(1, point, self.bytes);
    }

    fn no_object<E: Error>(mut self) -> Result<(), E> {
        if !self.is_listed {
            return Err(E::custom("a point, or a list of points, is expected"));
        }
        self.point(&[(WRONG << 3) as u8, NO_OBJECT as u8]);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Points<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Points<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a point, or a list of points")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut points: A) -> Result<(), A::Error> {
        if self.is_listed {
            while points.next_element::<IgnoredAny>()?.is_some() {}
            return self.no_object();
        }
        let Points { bytes, .. } = self;
        let mut next = || points.next_element_seed(Points { bytes: &mut *bytes, is_listed: true });
        while next()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        let (mut point, mut wrong) = (Vec::new(), 0);
        while let Some(name) = fields.next_key::<Cow<'_, str>>()? {
            let number = match &*name {
                "metric" => METRIC,
                "timestamp" => TIME,
                "value" => VALUE,
                "tags" => {
                    let tags = Tags { bytes: &mut point, wrong: 0 };
                    wrong = fields.next_value_seed(tags)?.max(wrong);
                    continue;
                }
                _ => {
                    fields.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            // The number of a field is that of what is wrong with it.
            match fields.next_value::<Word>()? {
                Word(Some(text)) if is_word(&text) => {
                    put_bytes(number, text.as_bytes(), &mut point)
                }
                Word(Some(_)) => wrong = NO_WORD,
                Word(None) => wrong = number.into(),
            }
        }
        if point.len() > MAX_LINE_BYTES {
            // No name has room for that: of it the reason alone is kept.
            point.clear();
            wrong = TOO_LONG;
        }
        if wrong > 0 {
            put_number((WRONG << 3).into(), &mut point);
            put_number(wrong, &mut point);
        }
        self.point(&point);
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.no_object()
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.no_object()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.no_object()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.no_object()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.no_object()
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.no_object()
    }
}

/// Whether a text may be a part of a point.
fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.bytes().any(|byte| byte.is_ascii_control())
}

/// Tags that become bytes; says what is wrong with them.
struct Tags<'o> {
    bytes: &'o mut Vec<u8>,
    wrong: u64,
}

impl<'de> DeserializeSeed<'de> for Tags<'_> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tags<'_> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tags")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut tags: A) -> Result<u64, A::Error> {
        while let Some((key, value)) = tags.next_entry::<Cow<'_, str>, Word>()? {
            let Word(Some(value)) = value else {
                self.wrong = NO_TAGS;
                continue;
            };
            if !is_word(&key) || !is_word(&value) {
                self.wrong = NO_WORD;
                continue;
            }
            put_bytes(KEY, key.as_bytes(), self.bytes);
            put_bytes(TAG, value.as_bytes(), self.bytes);
        }
        Ok(self.wrong)
    }

    /// OpenTSDB asks for tags; here a point needs none.
    fn visit_unit<E>(self) -> Result<u64, E> {
        Ok(0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<u64, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(NO_TAGS)
    }

    fn visit_bool<E>(self, _: bool) -> Result<u64, E> {
        Ok(NO_TAGS)
    }

    fn visit_u64<E>(self, _: u64) -> Result<u64, E> {
        Ok(NO_TAGS)
    }

    fn visit_i64<E>(self, _: i64) -> Result<u64, E> {
        Ok(NO_TAGS)
    }

    fn visit_f64<E>(self, _: f64) -> Result<u64, E> {
        Ok(NO_TAGS)
    }

    fn visit_str<E>(self, _: &str) -> Result<u64, E> {
        Ok(NO_TAGS)
    }
}

/// A text or a number, as it is written; nothing of anything else.
struct Word(Option<String>);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Word;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a number")
            }

            fn visit_str<E>(self, text: &str) -> Result<Word, E> {
                Ok(Word(Some(text.to_owned())))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Word, E> {
                Ok(Word(Some(number.to_string())))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Word, E> {
                Ok(Word(Some(number.to_string())))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Word, E> {
                // A few bytes stay a few.
                Ok(Word(Some(format!("{number:e}"))))
            }

            fn visit_unit<E>(self) -> Result<Word, E> {
                Ok(Word(None))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Word, E> {
                Ok(Word(None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Word, A::Error> {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Word(None))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Word, A::Error> {
                while pairs.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Word(None))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Memory, Protocol, Session};
    use super::*;

    /// What a body becomes: its points, and what is told of those that are refused.
    fn taken(body: &str) -> Result<(Vec<String>, Vec<String>), String> {
        let mut points = PutPoints::of(body.as_bytes())?;
        let mut session = Session::new(Protocol::OpenTsdb, 1, &Memory::default());
        assert!(session.take_put(&mut points));
        let found = session.points();
        let found = found.map(|(name, point)| format!("{name} {} {:?}", point.time, point.value));
        let found = found.collect();
        assert_eq!(points.refused(), session.refused());
        Ok((found, points.told().iter().map(|(point, why)| format!("{point} {why}")).collect()))
    }

    #[test]
    fn each_point_is_one_of_its_series() {
        let one = r#"{"metric": "sys.cpu", "timestamp": 1767225600, "value": 18.5, "tags": {"host": "a b", "dc": "lga"}}"#;
        let point = "sys.cpu dc=lga host=a\\ b 1767225600000000000 Float(18.5)";
        assert_eq!(taken(one), Ok((vec![point.to_owned()], vec![])));
        let other = r#"{"tags": {"n": 1}, "value": "7", "timestamp": "1767225600123", "more": [], "metric": "m"}"#;
        let (points, told) = taken(&format!("[{one}, {other}]")).unwrap();
        assert_eq!(points, [point, "m n=1 1767225600123000000 Float(7.0)"]);
        assert!(told.is_empty());
        assert_eq!(taken("[]"), Ok((vec![], vec![])));
        for wrong in ["", "7", "null", "{} x", "[{}", r#"{"metric": "a"#] {
            assert!(taken(wrong).is_err(), "{wrong}");
        }
        assert!(taken(&"[".repeat(1 << 12)).is_err());
    }

    /// One bad point of a body refused all of them.
    #[test]
    fn what_is_wrong_with_a_point_costs_that_alone() {
        let good = r#"{"metric": "m", "timestamp": 5, "value": 1}"#;
        for (wrong, words) in [
            ("7", "{\"tags\":{}} a point is an object"),
            ("[[]]", "a point is an object"),
            ("\"x\"", "a point is an object"),
            ("{}", "metric is missing"),
            (r#"{"metric": {}}"#, "metric is a text"),
            (r#"{"metric": "m", "timestamp": [1]}"#, "timestamp is a number"),
            (r#"{"metric": "m", "timestamp": 1, "value": true}"#, "value is a number"),
            (r#"{"metric": "m", "tags": []}"#, "tags are an object"),
            (r#"{"metric": "m", "tags": {"a": {}}}"#, "tags are an object"),
            (r#"{"metric": "m", "tags": {"a": ""}}"#, "a text is empty"),
            (r#"{"metric": "a\nput b 1 1 c=d"}"#, "control characters"),
            (
                r#"{"metric": "m", "timestamp": 5, "value": "x", "tags": {"a": "b"}}"#,
                r#"{"metric":"m","tags":{"a":"b"},"timestamp":5,"value":"x"} bad floating point value"#,
            ),
            (r#"{"metric": "m", "timestamp": "now", "value": 1}"#, "invalid timestamp format"),
            (r#"{"metric": "!m", "timestamp": 5, "value": 1}"#, "rows and events are no part"),
        ] {
            let (points, told) = taken(&format!("[{good}, {wrong}, {good}]")).unwrap();
            assert_eq!(points, ["m 5000000000 Float(1.0)"; 2], "{wrong}");
            assert!(told.len() == 1 && told[0].contains(words), "{wrong}: {told:?}");
        }
    }

    #[test]
    fn of_many_that_are_refused_some_are_told() {
        let body = format!("[{}7]", r#"{"metric": 1, "timestamp": "no time"},"#.repeat(50_000));
        let mut points = PutPoints::of(body.as_bytes()).unwrap();
        assert!(points.bytes() < 2 * body.len());
        let mut session = Session::new(Protocol::OpenTsdb, 1, &Memory::default());
        let mut turns = 1;
        while !session.take_put(&mut points) {
            turns += 1;
        }
        assert!(turns > 10, "{turns}");
        assert_eq!((points.refused(), session.refused()), (50_001, 50_001));
        assert!((1000..20_000).contains(&points.told().len()), "{}", points.told().len());
    }
}
