//! What a request of OpenTSDB's asks for, as `m=sum:1m-avg:cpu{host=*}` in its address or as JSON.
//!
//! Either becomes the same: functions of PromQL, and conditions that select the series. Whatever
//! stands in a name or a value is put in quotes, and means itself in a regular expression.

use super::AGGREGATORS;
use crate::time::parse_moment;
use plinth_promql::nanoseconds;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeSet;

/// Queries of one request, at most.
const MAX_QUERIES: usize = 20;
const MILLISECOND: i64 = 1_000_000;
const SECOND: i64 = 1000 * MILLISECOND;

/// A request.
pub(super) struct Asked {
    pub(super) start: i64,
    pub(super) end: i64,
    /// Whether times of the answer are milliseconds.
    pub(super) is_fine: bool,
    /// Whether points are told as a list of pairs.
    pub(super) are_arrays: bool,
    /// Whether each series is told with the query that it is of.
    pub(super) shows_query: bool,
    pub(super) queries: Vec<One>,
}

/// One of its queries.
pub(super) struct One {
    pub(super) metric: String,
    /// How series become one; `None` for each series alone.
    pub(super) aggregate: Option<Aggregate>,
    /// How points become fewer; `None` for all of them.
    pub(super) downsample: Option<Downsample>,
    pub(super) rate: Option<Rate>,
    /// Conditions on labels, as PromQL has them.
    pub(super) conditions: Vec<String>,
    pub(super) by: Vec<String>,
    /// The tags that it names.
    pub(super) tags: BTreeSet<String>,
    /// Whether its series have these tags and no others.
    pub(super) is_explicit: bool,
    /// What it was asked by, if that is told.
    pub(super) told: Map<String, Json>,
}

/// How series of a group become one.
pub(super) struct Aggregate {
    pub(super) operator: Operator,
    /// Whether a series has a value between its points, or its steps, too.
    pub(super) is_interpolated: bool,
}

/// How the points of each step become one.
pub(super) struct Downsample {
    /// Nanoseconds; `None` for one step from the start to the end.
    pub(super) step: Option<i64>,
    pub(super) sample: Operator,
    pub(super) fill: Fill,
}

/// What a step has in which there is no point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fill {
    /// The step is left out.
    None,
    /// A value that is no number, told as a text, or as JSON's null.
    Nan,
    Null,
    Zero,
}

/// A function of PromQL, and the number that it takes before its series.
pub(super) struct Operator {
    pub(super) name: &'static str,
    pub(super) number: Option<f64>,
}

/// How a rate is made of what a counter says.
#[derive(Default)]
pub(super) struct Rate {
    pub(super) is_counter: bool,
    pub(super) counter_max: Option<f64>,
    /// Where a counter falls, a rate beyond it is told as 0.
    pub(super) reset_value: Option<f64>,
}

impl Asked {
    /// The request in an address's parameters.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn of_parameters(pairs: &[(String, String)], now: i64) -> Result<Self, String> {
        let get = |wanted: &str| pairs.iter().find(|(name, _)| name == wanted).map(|(_, it)| it);
        let start = get("start").ok_or("start is missing")?;
        let queries = pairs.iter().filter(|(name, _)| name == "m").map(|(_, m)| One::of_text(m));
        let (start, end) =
            (moment(start, now)?, get("end").map_or(Ok(now), |end| moment(end, now))?);
        let mut asked = Self::new(start, end, queries.collect::<Result<_, _>>()?)?;
        asked.take_switches(pairs);
        Ok(asked)
    }

    /// What an address switches on, of a request in a body, too.
    fn take_switches(&mut self, pairs: &[(String, String)]) {
        let is_on =
            |wanted: &str| pairs.iter().any(|(name, value)| name == wanted && value != "false");
        self.is_fine |= is_on("ms");
        self.are_arrays |= is_on("arrays");
        self.shows_query |= is_on("show_query");
    }

    /// The request in a body, of an address with these parameters.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn of_json(
        body: &Json,
        pairs: &[(String, String)],
        now: i64,
    ) -> Result<Self, String> {
        let time = |name: &str| match &body[name] {
            Json::Null => Ok(None),
            Json::String(text) => moment(text, now).map(Some),
            Json::Number(number) => moment(&number.to_string(), now).map(Some),
            _ => Err(format!("{name} is no time")),
        };
        let is_on = |name: &str| body[name].as_bool().unwrap_or(false);
        if is_on("delete") {
            return Err("delete: nothing is deleted by a query; see /api/v1/admin".to_owned());
        }
        if is_on("useCalendar") {
            let why =
                "useCalendar: intervals of calendars are not known; take those of hours or days";
            return Err(why.to_owned());
        }
        let queries = body["queries"].as_array().ok_or("queries is no list")?;
        let mut asked = Self::new(
            time("start")?.ok_or("start is missing")?,
            time("end")?.unwrap_or(now),
            queries.iter().map(One::of_json).collect::<Result<_, _>>()?,
        )?;
        asked.take_switches(pairs);
        asked.is_fine |= is_on("msResolution");
        asked.are_arrays |= is_on("arrays");
        asked.shows_query |= is_on("showQuery");
        Ok(asked)
    }

    fn new(start: i64, end: i64, queries: Vec<One>) -> Result<Self, String> {
        if queries.is_empty() || queries.len() > MAX_QUERIES {
            return Err(format!("1 to {MAX_QUERIES} queries are expected"));
        }
        if end <= start {
            return Err("end must be later than start".to_owned());
        }
        let (is_fine, are_arrays, shows_query) = (false, false, false);
        Ok(Self { start, end, is_fine, are_arrays, shows_query, queries })
    }
}

impl One {
    /// `aggregator:[rate[{counter[,max[,reset]]}]:][downsample:][explicit_tags:]metric[{tag=value,..}]`.
    pub(super) fn of_text(text: &str) -> Result<Self, String> {
        let (head, groups) = braces(text);
        if groups.len() > 2 {
            return Err(format!("m={text}: more than two lists of tags in braces"));
        }
        let parts: Vec<&str> = head.split(':').collect();
        let [aggregator, between @ .., metric] = &parts[..] else {
            return Err(format!("m={text}: aggregator:downsample:metric is expected"));
        };
        let (mut downsample, mut rate, mut is_explicit) = (None, None, false);
        for part in between {
            match part.strip_prefix("rate") {
                Some(options) => rate = Some(Rate::of_text(options)),
                None if *part == "explicit_tags" => is_explicit = true,
                None => downsample = Some(*part),
            }
        }
        let told = json!({
            "aggregator": aggregator, "metric": metric, "downsample": downsample,
            "rate": rate.is_some(), "explicitTags": is_explicit,
        });
        let mut one = Self::new(metric, aggregator, downsample, rate)?;
        one.is_explicit = is_explicit;
        one.told = told.as_object().cloned().unwrap_or_default();
        // The first list is grouped by, the second only selects.
        for (place, tags) in groups.iter().enumerate() {
            for tag in tags.split(',').filter(|tag| !tag.is_empty()) {
                let (tag, value) =
                    tag.split_once('=').ok_or("a tag is not of the form key=value")?;
                one.tag((tag, value), place == 0)?;
            }
        }
        Ok(one)
    }

    fn of_json(query: &Json) -> Result<Self, String> {
        let text = |name: &str| query[name].as_str();
        let options = &query["rateOptions"];
        let rate = query["rate"].as_bool().unwrap_or(false).then(|| Rate {
            is_counter: options["counter"].as_bool().unwrap_or(false),
            counter_max: options["counterMax"].as_f64(),
            reset_value: options["resetValue"].as_f64().filter(|value| *value > 0.0),
        });
        let metric = text("metric").ok_or("a query has no metric")?;
        let aggregator = text("aggregator").ok_or("a query has no aggregator")?;
        let mut one = Self::new(metric, aggregator, text("downsample"), rate)?;
        one.is_explicit = query["explicitTags"].as_bool().unwrap_or(false);
        one.told = query.as_object().cloned().unwrap_or_default();
        for (tag, value) in query["tags"].as_object().into_iter().flatten() {
            one.tag((tag, value.as_str().ok_or("a tag has no text")?), true)?;
        }
        for filter in query["filters"].as_array().into_iter().flatten() {
            let of = |name: &str| filter[name].as_str().ok_or(format!("a filter has no {name}"));
            let is_grouped = filter["groupBy"].as_bool().unwrap_or(false);
            one.filter((of("type")?, of("tagk")?, of("filter")?), is_grouped)?;
        }
        Ok(one)
    }

    fn new(
        metric: &str,
        aggregator: &str,
        downsample: Option<&str>,
        rate: Option<Rate>,
    ) -> Result<Self, String> {
        let downsample = downsample.map(Downsample::of_text).transpose()?;
        let aggregate = match aggregator {
            "none" => None,
            name => Some(Aggregate::of_name(name).ok_or_else(|| {
                let known = AGGREGATORS.join(", ");
                format!(
                    "no such aggregator: {name}; there are {known}, and percentiles such as p90"
                )
            })?),
        };
        if metric.contains('*') {
            return Err(format!("metric={metric}: a metric is named whole, without *"));
        }
        let (conditions, by, tags, told) = Default::default();
        let (metric, is_explicit) = (metric.to_owned(), false);
        Ok(Self { metric, aggregate, downsample, rate, conditions, by, tags, is_explicit, told })
    }

    /// A tag as the first version of OpenTSDB's queries has them: a value or several, `*` for any,
    /// texts with `*` in them, or a filter by its name, as `regexp(a.c)`.
    fn tag(&mut self, (tag, value): (&str, &str), is_grouped: bool) -> Result<(), String> {
        if let Some((kind, filter)) = value.split_once('(') {
            let filter = filter
                .strip_suffix(')')
                .ok_or_else(|| format!("{tag}={value}: a bracket has no end"))?;
            return self.filter((&kind.to_ascii_lowercase(), tag, filter), is_grouped);
        }
        let kind = match value {
            "*" => "wildcard",
            // Whoever writes it so short means either case.
            value if value.contains('*') => "iwildcard",
            _ => "literal_or",
        };
        self.filter((kind, tag, value), is_grouped)
    }

    fn filter(
        &mut self,
        (kind, tag, filter): (&str, &str, &str),
        is_grouped: bool,
    ) -> Result<(), String> {
        let list = || filter.split('|').map(escaped).collect::<Vec<_>>().join("|");
        let glob = || filter.split('*').map(escaped).collect::<Vec<_>>().join(".*");
        let (condition, pattern) = match kind {
            "wildcard" if filter == "*" => ("=~", ".+".to_owned()),
            "literal_or" => ("=~", list()),
            "iliteral_or" => ("=~", format!("(?i:{})", list())),
            "not_literal_or" => ("!~", list()),
            "wildcard" => ("=~", glob()),
            "iwildcard" => ("=~", format!("(?i:{})", glob())),
            // In Java's, what both sets have; here it would be a set with a sign in it.
            "regexp" if filter.contains("&&") => {
                return Err(format!("regexp({filter}): && isn't known within brackets"));
            }
            "regexp" => ("=~", format!(".*(?:{filter}).*")),
            "not_key" => ("=~", String::new()),
            kind => return Err(format!("no such filter: {kind}")),
        };
        self.conditions.push(format!("{}{condition}{}", quoted(tag), quoted(&pattern)));
        if kind != "not_key" {
            self.tags.insert(tag.to_owned());
        }
        if is_grouped {
            self.by.push(tag.to_owned());
        }
        Ok(())
    }

    /// Leaves series out that have tags which it doesn't name, of those that there are.
    pub(super) fn without_others<'l>(&mut self, labels: impl Iterator<Item = &'l str>) {
        let others: BTreeSet<&str> = labels.filter(|label| !self.tags.contains(*label)).collect();
        let without = |label| format!("{}=\"\"", quoted(label));
        self.conditions.extend(others.into_iter().map(without));
        self.conditions.extend(self.tags.iter().map(|tag| format!("{}!=\"\"", quoted(tag))));
    }

    /// The series that it is about, as PromQL selects them.
    pub(super) fn selector(&self) -> String {
        let name = format!("__name__={}", quoted(&self.metric));
        let all: Vec<&str> =
            [&name].into_iter().chain(&self.conditions).map(String::as_str).collect();
        format!("{{{}}}", all.join(","))
    }
}

/// What stands before lists of tags in braces, and those.
pub(super) fn braces(text: &str) -> (&str, Vec<&str>) {
    let (mut head, mut groups) = (text, Vec::new());
    while let Some(inner) = head.strip_suffix('}') {
        // A regular expression may have braces of its own.
        let mut depth = 1;
        let open = inner.char_indices().rev().find(|(_, c)| {
            depth += match c {
                '}' => 1,
                '{' => -1,
                _ => 0,
            };
            depth == 0
        });
        let Some((open, _)) = open else { break };
        if inner[..open].ends_with(":rate") {
            break;
        }
        groups.insert(0, &inner[open + 1..]);
        head = &inner[..open];
    }
    (head, groups)
}

impl Rate {
    /// `{counter[,max[,reset]]}`, or nothing.
    fn of_text(text: &str) -> Self {
        let inner = text.trim_start_matches('{').trim_end_matches('}');
        let mut parts = inner.split(',');
        let is_counter = parts.next().is_some_and(|word| word.contains("counter"));
        let mut number = || parts.next().and_then(|number| number.parse().ok());
        let (counter_max, reset_value) = (number(), number().filter(|value| *value > 0.0));
        Self { is_counter, counter_max, reset_value }
    }
}

impl Aggregate {
    fn of_name(name: &str) -> Option<Self> {
        let is_interpolated = !matches!(name, "zimsum" | "mimmin" | "mimmax" | "count");
        Some(Self { operator: Operator::aggregate(name)?, is_interpolated })
    }
}

impl Downsample {
    /// `interval-function[-fill]`; the interval may be `0all`.
    fn of_text(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("downsample={text}: {why}");
        let mut parts = text.split('-');
        let (step, sample) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let is_all = step.strip_suffix("all").is_some_and(|digits| digits.parse::<u32>().is_ok());
        let step = match span(step).filter(|step| *step >= MILLISECOND) {
            None if is_all => None,
            None => return Err(wrong("no such interval; 30s, 5m, 1h, 1d and 0all are some")),
            step => step,
        };
        let functions = "no such function; there are avg, count, dev, first, last, max, min, sum \
                         and percentiles such as p90";
        let sample = Operator::over_time(sample).ok_or_else(|| wrong(functions))?;
        let fill = match parts.next().unwrap_or("none") {
            "none" => Fill::None,
            "nan" => Fill::Nan,
            "null" => Fill::Null,
            "zero" => Fill::Zero,
            _ => return Err(wrong("steps are filled with none, nan, null or zero")),
        };
        match parts.next() {
            None => Ok(Self { step, sample, fill }),
            Some(_) => Err(wrong("interval-function-fill is expected")),
        }
    }
}

impl Operator {
    fn aggregate(name: &str) -> Option<Self> {
        let name = match name {
            "sum" | "zimsum" => "sum",
            "min" | "mimmin" => "min",
            "max" | "mimmax" => "max",
            "avg" => "avg",
            "count" => "count",
            "dev" => "stddev",
            "median" => return Some(Self { name: "quantile", number: Some(0.5) }),
            name => {
                return quantile(name).map(|of| Self { name: "quantile", number: Some(of) });
            }
        };
        Some(Self { name, number: None })
    }

    /// What an aggregation makes of values, of which there is one at least.
    pub(super) fn applied(&self, values: &mut [f64]) -> f64 {
        let count = values.len() as f64;
        let sum = |values: &[f64]| values.iter().sum::<f64>();
        match self.name {
            "sum" => sum(values),
            "avg" => sum(values) / count,
            "min" => values.iter().copied().fold(f64::INFINITY, f64::min),
            "max" => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            "count" => count,
            "stddev" => {
                let mean = sum(values) / count;
                (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt()
            }
            _ => {
                values.sort_unstable_by(f64::total_cmp);
                let rank = self.number.unwrap_or_default() * (count - 1.0);
                let (lower, upper) = (rank.floor(), rank.ceil());
                let (least, greatest) = (values[lower as usize], values[upper as usize]);
                least + (greatest - least) * (rank - lower)
            }
        }
    }

    fn over_time(name: &str) -> Option<Self> {
        let name = match name {
            "sum" | "zimsum" => "sum_over_time",
            "min" | "mimmin" => "min_over_time",
            "max" | "mimmax" => "max_over_time",
            "avg" => "avg_over_time",
            "count" => "count_over_time",
            "dev" => "stddev_over_time",
            "median" => return Some(Self { name: "quantile_over_time", number: Some(0.5) }),
            "last" => "last_over_time",
            "first" => "first_over_time",
            name => {
                let of = quantile(name)?;
                return Some(Self { name: "quantile_over_time", number: Some(of) });
            }
        };
        Some(Self { name, number: None })
    }
}

/// `p95` is 0.95, `p999` is 0.999.
fn quantile(name: &str) -> Option<f64> {
    let digits = name.strip_prefix('p').filter(|digits| (2..=3).contains(&digits.len()))?;
    let number: u32 = digits.parse().ok()?;
    Some(f64::from(number) / 10_f64.powi(digits.len() as i32))
}

/// A text in a regular expression that means itself.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// A text in quotes, as PromQL has them.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// Nanoseconds of `10m`.
fn span(text: &str) -> Option<i64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3600 * SECOND,
        "d" => 86_400 * SECOND,
        "w" => 7 * 86_400 * SECOND,
        "n" => 30 * 86_400 * SECOND,
        "y" => 365 * 86_400 * SECOND,
        _ => return None,
    };
    number.parse::<i64>().ok()?.checked_mul(unit)
}

/// Nanoseconds since 1970 of a time as OpenTSDB's are written, or as any other is.
fn moment(text: &str, now: i64) -> Result<i64, String> {
    let wrong = || format!("{text} is no time");
    if text == "now" {
        return Ok(now);
    }
    if let Some(ago) = text.strip_suffix("-ago") {
        return span(ago).and_then(|ago| now.checked_sub(ago)).ok_or_else(wrong);
    }
    if let Some(time) = parse_moment(text, Some(now)) {
        return Ok(time);
    }
    if let Ok(seconds) = text.parse::<f64>() {
        return nanoseconds(seconds).ok_or_else(wrong);
    }
    let (day, time) = text.split_once(['-', ' ']).unwrap_or((text, "00:00:00"));
    let seconds = if time.matches(':').count() == 1 { ":00" } else { "" };
    let moment = format!("{}T{time}{seconds}Z", day.replace('/', "-"));
    parse_moment(&moment, None).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_767_225_600 * SECOND;

    #[test]
    fn times_are_read_in_each_form() {
        for (text, expected) in [
            ("now", NOW),
            ("1h-ago", NOW - 3600 * SECOND),
            ("1767225600", NOW),
            ("1767225600123", NOW + 123 * MILLISECOND),
            ("1767225600000123", NOW + 123_000),
            ("1767225600000000123", NOW + 123),
            ("1767225600.5", NOW + SECOND / 2),
            ("now-1h", NOW - 3600 * SECOND),
            ("2026-01-01T01:00:00+01:00", NOW),
            ("2026-01-01", NOW),
            ("20260101T000000", NOW),
            ("1767225600123ms", NOW + 123 * MILLISECOND),
            ("2026/01/01-00:00:00", NOW),
            ("2026/01/01 00:00", NOW),
            ("2026/01/01", NOW),
        ] {
            assert_eq!(moment(text, NOW), Ok(expected), "{text}");
        }
        for text in ["", "ago", "x-ago", "1q-ago", "99999999999999999999y-ago", "2026/13/01"] {
            assert!(moment(text, NOW).is_err(), "{text}");
        }
    }

    #[test]
    fn steps_are_read_with_what_fills_them() {
        let of = |text: &str| {
            let read = Downsample::of_text(text).unwrap();
            (read.step, read.sample.name, read.fill)
        };
        let minute = Some(60 * SECOND);
        assert_eq!(of("1m-avg"), (minute, "avg_over_time", Fill::None));
        assert_eq!(of("1m-sum-none"), (minute, "sum_over_time", Fill::None));
        assert_eq!(of("1m-max-nan"), (minute, "max_over_time", Fill::Nan));
        assert_eq!(of("60s-p99-null"), (minute, "quantile_over_time", Fill::Null));
        assert_eq!(of("1m-median"), (minute, "quantile_over_time", Fill::None));
        assert_eq!(of("0all-sum-zero"), (None, "sum_over_time", Fill::Zero));
    }

    #[test]
    fn queries_become_selectors() {
        let of = |text: &str| One::of_text(text).map(|one| (one.selector(), one.by.join(",")));
        let selector = |text: &str| text.to_owned();
        for (text, expected, by) in [
            ("sum:1m-avg:cpu.user", r#"{__name__="cpu.user"}"#, ""),
            (
                "avg:rate{counter,100}:10s-max-none:cpu{host=*,dc=a|b.c}",
                r#"{__name__="cpu","host"=~".+","dc"=~"a|b\\.c"}"#,
                "host,dc",
            ),
            ("p95:1h-p99:rate:m", r#"{__name__="m"}"#, ""),
            ("sum:m{host=a}", r#"{__name__="m","host"=~"a"}"#, "host"),
            // Its tags were taken for options of a rate.
            ("sum:1m-avg:error_rate{host=a}", r#"{__name__="error_rate","host"=~"a"}"#, "host"),
            // A `*` in a value meant itself, and found nothing.
            ("sum:1m-avg:cpu{host=web*.a}", r#"{__name__="cpu","host"=~"(?i:web.*\\.a)"}"#, "host"),
            (
                "sum:1m-avg:rate{counter}:cpu{host=*}{dc=literal_or(a|b),rack=Regexp(r[0-9]{2})}",
                r#"{__name__="cpu","host"=~".+","dc"=~"a|b","rack"=~".*(?:r[0-9]{2}).*"}"#,
                "host",
            ),
        ] {
            assert_eq!(of(text), Ok((selector(expected), by.to_owned())), "{text}");
        }
        for (text, words) in [
            ("cpu", "is expected"),
            ("sum:1x-avg:cpu", "no such interval"),
            ("sum:1m-what:cpu", "no such function"),
            ("sum:1m-avg-five:cpu", "none, nan, null or zero"),
            ("sum:1m-avg-zero-zero:cpu", "interval-function-fill"),
            ("sum:all-avg:cpu", "no such interval"),
            ("what:1m-avg:cpu", "no such aggregator"),
            ("sum:1m-avg:cpu{host}", "key=value"),
            ("sum:1m-avg:cpu.*", "named whole"),
            ("sum:1m-avg:cpu{host=near(a)}", "no such filter: near"),
            ("sum:1m-avg:cpu{host=regexp(a}", "a bracket has no end"),
            ("sum:1m-avg:cpu{host=regexp([a-z&&b])}", "&& isn't known"),
            ("sum:1m-avg:cpu{a=b}{c=d}{e=f}", "more than two lists"),
        ] {
            let why = of(text).unwrap_err();
            assert!(why.contains(words), "{text}: {why}");
        }
    }
}
