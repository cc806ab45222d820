//! Rules about what is kept: which metrics have rollups, and for how long points and rollups stay.
//!
//! They are kept in the database, as one text of JSON, so that they can be changed at any time and
//! go with the series wherever these go. A rule has a number that no other rule gets afterwards:
//! its rollups lie under that, so those of a rule that was removed are never taken for another
//! one's.

use crate::error::{Error, Result};
use plinth_types::Metrics;
use serde_json::{Value as Json, json};
use std::fmt;
use std::time::Duration;

const FORMAT: u64 = 1;
/// Rules that there may be: each bucket that a metric loses or gets costs as many rows.
const MAX_ROLLUPS: usize = 64;
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_hours(24);

/// A rule: these metrics have buckets of this length, for so long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rollup {
    /// Its number, once it is kept; before that 0, whatever is said.
    pub id: u64,
    /// The metrics.
    pub metrics: Metrics,
    /// The length of a bucket: one by which a day can be divided, of a second at least.
    pub every: Duration,
    /// For how long buckets are kept; `None` for ever.
    pub keep: Option<Duration>,
    /// For how long points are kept that are in buckets; `None` for as long as the rules of
    /// retention say.
    pub raw: Option<Duration>,
}

/// All rules about what is kept.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Keeping {
    rollups: Vec<Rollup>,
    /// What is said of retention, in place of what a server was started with.
    retention: Option<String>,
    /// The number of the next rule.
    next: u64,
}

impl Rollup {
    /// A rule for these metrics, whose buckets are kept for ever.
    pub fn new(metrics: Metrics, every: Duration) -> Self {
        Self { id: 0, metrics, every, keep: None, raw: None }
    }

    /// The length of a bucket in nanoseconds.
    pub(crate) fn every(&self) -> i64 {
        nanoseconds(self.every)
    }

    /// What is wrong with it, if anything is.
    fn fault(&self) -> Option<String> {
        let every = format!("every {}", written(self.every));
        if self.every < SECOND || !DAY.as_nanos().is_multiple_of(self.every.as_nanos()) {
            return Some(format!(
                "{every}: a day has to be a multiple of it, as of 5m or 1h, and it of 1s at least"
            ));
        }
        for (what, time) in [("keep", self.keep), ("raw", self.raw)] {
            if let Some(time) = time.filter(|time| *time < self.every) {
                let time = written(time);
                return Some(format!("{what} {time} is shorter than a bucket, {every}"));
            }
        }
        match (self.keep, self.raw) {
            (Some(keep), Some(raw)) if keep < raw => Some(format!(
                "keep {} is shorter than raw {}: nobody would look at the buckets",
                written(keep),
                written(raw)
            )),
            _ => None,
        }
    }
}

impl fmt::Display for Rollup {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |time: Option<Duration>| time.map_or_else(|| "forever".to_string(), written);
        write!(out, "{} every {} keep {}", self.metrics, written(self.every), time(self.keep))?;
        self.raw.map_or(Ok(()), |raw| write!(out, " raw {}", written(raw)))
    }
}

/// A time as rules have it: `1h30m`.
pub(crate) fn written(time: Duration) -> String {
    const UNITS: [(&str, u128); 6] = [
        ("d", 86_400_000_000_000),
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("ns", 1),
    ];
    let (mut text, mut rest) = (String::new(), time.as_nanos());
    for (unit, size) in UNITS {
        if rest >= size {
            text += &format!("{}{unit}", rest / size);
            rest %= size;
        }
    }
    if text.is_empty() { "0s".to_string() } else { text }
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

impl Keeping {
    /// All rules of rollups, in the order in which they came.
    pub fn rollups(&self) -> &[Rollup] {
        &self.rollups
    }

    /// What is said of retention here, in place of what a server was started with.
    pub fn retention(&self) -> Option<&str> {
        self.retention.as_deref()
    }

    /// Says what retention is; `None` leaves it to each server again.
    pub fn set_retention(&mut self, text: Option<String>) {
        self.retention = text;
    }

    /// The rules that are about a metric: none about events, whose points are texts.
    pub(crate) fn of<'a>(&'a self, metric: &'a str) -> impl Iterator<Item = &'a Rollup> {
        let is_event = metric.starts_with('!');
        self.rollups.iter().filter(move |rollup| !is_event && rollup.metrics.fits(metric))
    }

    /// Whether a metric has rollups.
    pub(crate) fn has(&self, metric: &str) -> bool {
        self.of(metric).next().is_some()
    }

    /// Adds a rule. One for the same metrics and buckets of the same length is changed: it keeps
    /// its buckets, and for how long these and points are kept is what is said now.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn add(&mut self, rollup: Rollup) -> Result<(), String> {
        if let Some(fault) = rollup.fault() {
            return Err(fault);
        }
        let is_same =
            |other: &&mut Rollup| other.metrics == rollup.metrics && other.every == rollup.every;
        if let Some(other) = self.rollups.iter_mut().find(is_same) {
            (other.keep, other.raw) = (rollup.keep, rollup.raw);
            return Ok(());
        }
        if self.rollups.len() >= MAX_ROLLUPS {
            return Err(format!("there are {MAX_ROLLUPS} rules, and there may be no more"));
        }
        self.next = self.next.max(1);
        self.rollups.push(Rollup { id: self.next, ..rollup });
        self.next += 1;
        Ok(())
    }

    /// Removes the rules for these metrics, that of one length of buckets or all, and gives them.
    pub fn remove(&mut self, metrics: &Metrics, every: Option<Duration>) -> Vec<Rollup> {
        let is_meant = |rollup: &mut Rollup| {
            rollup.metrics == *metrics && every.is_none_or(|every| every == rollup.every)
        };
        self.rollups.extract_if(.., is_meant).collect()
    }

    /// Numbers of rules that are no more: from the first of each, up to and without the second.
    pub(crate) fn gone(&self) -> Vec<(u64, u64)> {
        let mut gone = Vec::new();
        let mut begin = 0;
        for id in self.rollups.iter().map(|rollup| rollup.id).chain([u64::MAX]) {
            if begin < id {
                gone.push((begin, id));
            }
            begin = id.saturating_add(1);
        }
        gone
    }

    /// The text in which they are kept.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let rollup = |rollup: &Rollup| {
            json!({
                "id": rollup.id,
                "metrics": rollup.metrics.to_string(),
                "every": nanoseconds(rollup.every),
                "keep": rollup.keep.map(nanoseconds),
                "raw": rollup.raw.map(nanoseconds),
            })
        };
        let rollups: Vec<Json> = self.rollups.iter().map(rollup).collect();
        let text = json!({
            "format": FORMAT,
            "next": self.next,
            "rollups": rollups,
            "retention": self.retention,
        });
        text.to_string().into_bytes()
    }

    /// The rules of a text.
    pub(crate) fn decode(text: &[u8]) -> Result<Self> {
        let wrong = |why: &str| Error::damaged("the rules about what is kept", why);
        let text: Json = serde_json::from_slice(text).map_err(|why| wrong(&why.to_string()))?;
        if text["format"] != FORMAT {
            return Err(wrong(&format!("format {FORMAT} expected, {} found", text["format"])));
        }
        let time = |json: &Json| match json {
            Json::Null => Some(None),
            json => json.as_u64().map(|time| Some(Duration::from_nanos(time))),
        };
        let rollup = |json: &Json| {
            let rollup = Rollup {
                id: json["id"].as_u64()?,
                metrics: Metrics::parse(json["metrics"].as_str()?)?,
                every: time(&json["every"])??,
                keep: time(&json["keep"])?,
                raw: time(&json["raw"])?,
            };
            rollup.fault().is_none().then_some(rollup)
        };
        let list = text["rollups"].as_array().ok_or_else(|| wrong("a list of rollups expected"))?;
        let rollups: Option<Vec<Rollup>> = list.iter().map(rollup).collect();
        let rollups = rollups.ok_or_else(|| wrong("a rollup that is none"))?;
        let next = text["next"].as_u64().ok_or_else(|| wrong("a next number expected"))?;
        let ascend = rollups.is_sorted_by(|one, next| one.id < next.id);
        if !ascend || rollups.last().is_some_and(|last| last.id >= next) {
            return Err(wrong("numbers of rollups that ascend"));
        }
        let retention = text["retention"].as_str().map(str::to_string);
        Ok(Self { rollups, retention, next })
    }
}
