//! From JSON to a typed query. Each field is looked at once, by its name; an error names the field,
//! what was expected and what is there.
//!
//! The kind of a query is the one of its fields that says so, and there has to be exactly one.
//! Fields that the kind has no use for are refused: a query that is answered is answered as it was
//! meant.

use super::apply::Function;
use super::error::{QueryError, QueryResult};
use super::filter::ValueFilter;
use super::json::Json;
use super::range::Range;
use crate::name::with_own_blanks;
use crate::time::{FORMS, parse_moment, unit_of_our_days};

/// Columns of a row at most.
const MAX_COLUMNS: usize = 256;

/// Values, or sets of tags, that a query may name series by.
const MAX_VALUES: usize = 10_000;

/// What a query asks for.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Select { metric: String, filter: ValueFilter },
    Events { metric: String, pattern: Option<regex_lite::Regex> },
    Aggregate { metrics: Vec<(String, Func)> },
    Group { metrics: Vec<String>, funcs: Vec<Func>, step: u64, filter: RowFilter },
    Join { metrics: Vec<String>, filters: Vec<ValueFilter> },
    GroupJoin { metrics: Vec<String>, func: Func, step: u64, filters: Vec<ValueFilter> },
    Names { metric: Option<String> },
}

/// Conditions on the columns of a row.
#[derive(Clone, Default, Debug)]
pub(crate) struct RowFilter {
    /// For some columns, what they have to be.
    pub(crate) columns: Vec<(usize, ValueFilter)>,
    /// Whether one condition is enough.
    pub(crate) any: bool,
}

/// What is asked of the points of a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Func {
    Min,
    Max,
    Sum,
    Count,
    Mean,
    First,
    Last,
    MinTime,
    MaxTime,
    FirstTime,
    LastTime,
}

const FUNCS: [(&str, Func); 11] = [
    ("min", Func::Min),
    ("max", Func::Max),
    ("sum", Func::Sum),
    ("count", Func::Count),
    ("mean", Func::Mean),
    ("first", Func::First),
    ("last", Func::Last),
    ("min_timestamp", Func::MinTime),
    ("max_timestamp", Func::MaxTime),
    ("first_timestamp", Func::FirstTime),
    ("last_timestamp", Func::LastTime),
];

impl Func {
    fn parse(field: &str, name: &str) -> QueryResult<Self> {
        let found = FUNCS.iter().find(|(known, _)| *known == name).map(|(_, func)| *func);
        found.ok_or_else(|| {
            let known: Vec<_> = FUNCS.iter().map(|(name, _)| *name).collect();
            QueryError::field(
                field,
                format_args!("one of {} expected, `{name}` found", known.join(", ")),
            )
        })
    }

    pub(crate) fn name(self) -> &'static str {
        FUNCS.iter().find(|(_, func)| *func == self).map_or("", |(name, _)| name)
    }
}

/// Which series of the metrics.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Where {
    /// Those that have for each of these tags one of its values.
    Tags(Vec<(String, Vec<String>)>),
    /// Those with exactly these tags.
    Exact(Vec<Vec<(String, String)>>),
}

/// Which tags the names of rows keep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    All,
    Only(Vec<String>),
    Without(Vec<String>),
}

/// How rows of several series lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Time,
    Series,
}

/// The form of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    Resp,
    Csv,
    Arrow,
}

/// How rows are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Output {
    /// `None` if it is not said: RESP then, or what whoever asks likes best.
    pub(crate) format: Option<Format>,
    pub(crate) iso: bool,
}

impl Output {
    /// Takes a format by its name.
    fn set_format(&mut self, field: &str, name: &str) -> QueryResult<()> {
        self.format = match name {
            "resp" => Some(Format::Resp),
            "csv" => Some(Format::Csv),
            "arrow" if cfg!(feature = "arrow") => Some(Format::Arrow),
            "arrow" => return Err(QueryError::field(field, WITHOUT_ARROW)),
            _ => {
                let why = format_args!("resp, csv or arrow expected, `{name}` found");
                return Err(QueryError::field(field, why));
            }
        };
        Ok(())
    }
}

const WITHOUT_ARROW: &str = "this program was built without Arrow: build it with the feature `arrow` (cargo build --release --features arrow)";

/// A query that is understood. [`crate::SeriesStore::query`] answers it.
#[derive(Clone, Debug)]
pub struct Query {
    pub(crate) kind: Kind,
    /// `None` for all of time.
    pub(crate) range: Option<Range>,
    pub(crate) tags: Where,
    pub(crate) keep: Keep,
    pub(crate) order: Order,
    pub(crate) limit: Option<u64>,
    pub(crate) offset: u64,
    pub(crate) apply: Vec<Function>,
    pub(crate) output: Output,
}

/// What a request to suggest something asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Suggest {
    pub(crate) listing: crate::store::Listing,
    pub(crate) starts_with: String,
    pub(crate) output: Output,
}

const KINDS: [&str; 6] =
    ["select", "aggregate", "join", "group-aggregate", "group-aggregate-join", "select-events"];

/// The fields of an object, each taken when it is understood.
struct Fields<'a> {
    left: Vec<(&'a str, &'a Json)>,
}

impl<'a> Fields<'a> {
    fn new(json: &'a Json) -> QueryResult<Self> {
        let fields = json.object("query", "an object")?;
        Ok(Self { left: fields.iter().map(|(name, value)| (name.as_str(), value)).collect() })
    }

    fn take(&mut self, name: &str) -> Option<&'a Json> {
        let place = self.left.iter().position(|(found, _)| *found == name)?;
        Some(self.left.swap_remove(place).1)
    }

    /// Fails if something is left: either unknown, or of no use here.
    fn finish(self, of: &str) -> QueryResult<()> {
        match self.left.first() {
            None => Ok(()),
            Some((name, _)) => Err(QueryError::Query(format!(
                "Query object contains unexpected field `{name}`, which {of} has no use for"
            ))),
        }
    }
}

impl Query {
    /// Has the answer be a stream of Arrow's, unless the query itself says what it is to be.
    ///
    /// # Errors
    /// [`QueryError::Query`] if the program was built without the feature `arrow`.
    pub fn prefer_arrow(&mut self) -> QueryResult<()> {
        match self.output.format {
            None => self.output.set_format("output.format", "arrow"),
            Some(_) => Ok(()),
        }
    }

    /// What the rows of its answer hold.
    #[cfg(feature = "arrow")]
    pub(crate) fn columns(&self) -> crate::arrow::Columns {
        use crate::arrow::Columns;
        let mut names = match &self.kind {
            Kind::Names { .. } => return Columns::Names("series"),
            Kind::Events { .. } => return Columns::Texts,
            Kind::Group { funcs, .. } => funcs.iter().map(|func| func.name().to_owned()).collect(),
            kind => kind.columns(),
        };
        if self.apply.iter().any(Function::makes_one) {
            names.truncate(1);
        }
        Columns::Values(names)
    }

    /// The query of a JSON document, in which no time is told from now.
    ///
    /// # Errors
    /// [`QueryError::Query`] says which field is wrong, and what was expected there.
    pub fn parse(text: &[u8]) -> QueryResult<Self> {
        Self::parse_at(text, None)
    }

    /// The same; `now`, in nanoseconds since 1970, is what times such as `now-1h` are told from.
    ///
    /// # Errors
    /// As [`Query::parse`].
    pub fn parse_at(text: &[u8], now: Option<i64>) -> QueryResult<Self> {
        let json = Json::parse(text)?;
        let mut fields = Fields::new(&json)?;
        let mut kinds =
            KINDS.into_iter().filter(|kind| fields.left.iter().any(|(name, _)| name == kind));
        let Some(name) = kinds.next() else {
            let found: Vec<String> =
                fields.left.iter().map(|(name, _)| format!("`{name}`")).collect();
            let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
            return Err(QueryError::Query(format!(
                "one of the fields {} expected, {found} found",
                KINDS.join(", ")
            )));
        };
        if let Some(second) = kinds.next() {
            return Err(QueryError::Query(format!(
                "either `{name}` or `{second}` expected, both found"
            )));
        }
        drop(kinds);
        let output = output(&mut fields)?;
        let tags = tags(&mut fields)?;
        let limit = fields.take("limit").map(|json| json.count("limit")).transpose()?;
        let offset = fields.take("offset").map_or(Ok(0), |json| json.count("offset"))?;
        let kind = kind(name, &mut fields)?;
        let (mut range, mut keep, mut order, mut apply) =
            (None, Keep::All, Order::Time, Vec::new());
        if !matches!(kind, Kind::Names { .. }) {
            range = self::range(&mut fields, now)?;
            if range.is_none() && !matches!(kind, Kind::Aggregate { .. }) {
                return Err(QueryError::field(
                    "range",
                    "{\"from\": .., \"to\": ..} expected, it is missing",
                ));
            }
            if !matches!(kind, Kind::Join { .. } | Kind::GroupJoin { .. }) {
                keep = self::keep(&mut fields)?;
            }
            if !matches!(kind, Kind::Aggregate { .. }) {
                order = self::order(&mut fields)?;
            }
            if !matches!(kind, Kind::Events { .. }) {
                apply = self::apply(&mut fields, &kind)?;
            }
            fields.take("eval");
        }
        fields.finish(&format!("`{name}`"))?;
        Ok(Self { kind, range, tags, keep, order, limit, offset, apply, output })
    }

    /// What is sent to `/api/search`: names of series by metric, all metrics if it is empty, and
    /// tags.
    ///
    /// # Errors
    /// As [`Query::parse`].
    pub fn parse_search(text: &[u8]) -> QueryResult<Self> {
        let json = Json::parse(text)?;
        let mut fields = Fields::new(&json)?;
        let metric = text_field(&mut fields, "select", "the name of a metric, or \"\"")?;
        let (output, tags) = (output(&mut fields)?, tags(&mut fields)?);
        let limit = fields.take("limit").map(|json| json.count("limit")).transpose()?;
        let offset = fields.take("offset").map_or(Ok(0), |json| json.count("offset"))?;
        fields.finish("a search")?;
        let kind = Kind::Names { metric: (!metric.is_empty()).then(|| with_own_blanks(metric)) };
        let (keep, order) = (Keep::All, Order::Series);
        Ok(Self { kind, range: None, tags, keep, order, limit, offset, apply: Vec::new(), output })
    }
}

/// What is sent to `/api/suggest`.
pub(crate) fn suggest(text: &[u8]) -> QueryResult<Suggest> {
    use crate::store::Listing;
    let json = Json::parse(text)?;
    let mut fields = Fields::new(&json)?;
    const WHAT: &str = "metric-names, tag-names or tag-values";
    let listing = match text_field(&mut fields, "select", WHAT)? {
        "metric-names" => Listing::Metrics,
        "tag-names" => {
            let metric = text_field(&mut fields, "metric", "the name of a metric")?;
            Listing::Tags { metric: with_own_blanks(metric) }
        }
        "tag-values" => Listing::Values {
            metric: with_own_blanks(text_field(&mut fields, "metric", "the name of a metric")?),
            tag: with_own_blanks(text_field(&mut fields, "tag", "the name of a tag")?),
        },
        other => {
            return Err(QueryError::field(
                "select",
                format_args!("{WHAT} expected, `{other}` found"),
            ));
        }
    };
    let starts_with = fields.take("starts-with");
    let starts_with =
        starts_with.map_or(Ok(""), |json| json.text("starts-with", "a text"))?.to_string();
    let output = output(&mut fields)?;
    fields.finish("a request to suggest")?;
    Ok(Suggest { listing, starts_with, output })
}

fn text_field<'a>(fields: &mut Fields<'a>, name: &str, expected: &str) -> QueryResult<&'a str> {
    match fields.take(name) {
        Some(json) => json.text(name, expected),
        None => Err(QueryError::field(name, format_args!("{expected} expected, it is missing"))),
    }
}

fn kind(name: &str, fields: &mut Fields<'_>) -> QueryResult<Kind> {
    let json = fields.take(name).unwrap_or(&Json::Null);
    match name {
        "select" => {
            let metric = metric(name, json.text(name, "the name of a metric")?)?;
            if let Some(names) = metric.strip_prefix("meta:names") {
                return match names.strip_prefix(':') {
                    None if !names.is_empty() => {
                        Err(QueryError::field(name, "meta:names or meta:names:METRIC expected"))
                    }
                    of => Ok(Kind::Names { metric: of.map(String::from) }),
                };
            }
            let filter = fields.take("filter");
            let filter = filter
                .map_or(Ok(ValueFilter::default()), |json| ValueFilter::parse("filter", json));
            Ok(Kind::Select { metric, filter: filter? })
        }
        "select-events" => {
            let metric = metric(name, json.text(name, "the name of an event")?)?;
            if !metric.starts_with('!') {
                return Err(QueryError::field(
                    name,
                    format_args!("names of events begin with `!`, not `{metric}`"),
                ));
            }
            Ok(Kind::Events { metric, pattern: pattern(fields)? })
        }
        "aggregate" => aggregate(json),
        "join" => {
            let metrics = metrics(name, json, 1)?;
            let filters = joined_filters(fields, &metrics)?;
            Ok(Kind::Join { metrics, filters })
        }
        "group-aggregate" => group(name, json, fields),
        _ => {
            let (metrics, funcs, step) = grouped(name, json)?;
            let &[func] = &funcs[..] else {
                return Err(QueryError::field(
                    "group-aggregate-join.func",
                    "exactly one function expected",
                ));
            };
            if metrics.len() < 2 {
                return Err(QueryError::field(
                    "group-aggregate-join.metric",
                    "at least two metrics expected",
                ));
            }
            let filters = joined_filters(fields, &metrics)?;
            Ok(Kind::GroupJoin { metrics, func, step, filters })
        }
    }
}

fn pattern(fields: &mut Fields<'_>) -> QueryResult<Option<regex_lite::Regex>> {
    let Some(json) = fields.take("filter") else { return Ok(None) };
    let pattern = json.text("filter", "a regular expression")?;
    match plinth_promql::compiled(pattern, 1 << 20) {
        Ok(regex) => Ok(Some(regex)),
        Err(error) => {
            Err(QueryError::field("filter", format_args!("no regular expression: {error}")))
        }
    }
}

fn metric(field: &str, name: &str) -> QueryResult<String> {
    if name.is_empty() || name.len() > crate::MAX_NAME_BYTES {
        return Err(QueryError::field(field, "the name of a metric expected, of 1 to 4096 bytes"));
    }
    Ok(with_own_blanks(name))
}

fn metrics(field: &str, json: &Json, least: usize) -> QueryResult<Vec<String>> {
    json.list(field, "a list of metrics")?;
    let metrics = json.texts(field, "a list of metrics")?;
    if metrics.len() < least || metrics.len() > MAX_COLUMNS {
        return Err(QueryError::field(
            field,
            format_args!("{least} to {MAX_COLUMNS} metrics expected"),
        ));
    }
    metrics.iter().map(|name| metric(field, name)).collect()
}

fn aggregate(json: &Json) -> QueryResult<Kind> {
    const EXPECTED: &str = "an object such as {\"METRIC\": \"max\"}";
    let fields = json.object("aggregate", EXPECTED)?;
    if fields.is_empty() || fields.len() > MAX_COLUMNS {
        return Err(QueryError::field(
            "aggregate",
            format_args!("{EXPECTED} expected, of 1 to 256 metrics"),
        ));
    }
    let mut metrics = Vec::new();
    for (name, func) in fields {
        let field = format!("aggregate.{name}");
        let name = metric("aggregate", name)?;
        for func in func.texts(&field, "the name of a function")? {
            metrics.push((name.clone(), Func::parse(&field, &func)?));
        }
    }
    Ok(Kind::Aggregate { metrics })
}

/// Metrics, functions and step of buckets.
fn grouped(kind: &str, json: &Json) -> QueryResult<(Vec<String>, Vec<Func>, u64)> {
    let parts = json.object(kind, "an object with metric, step and func")?;
    let (mut names, mut funcs, mut step) = (Vec::new(), Vec::new(), None);
    for (name, value) in parts {
        let field = format!("{kind}.{name}");
        match name.as_str() {
            "metric" => {
                let found = value.texts(&field, "the name of a metric, or a list of them")?;
                names =
                    found.iter().map(|name| metric(&field, name)).collect::<QueryResult<_>>()?;
            }
            "func" => {
                let found = value.texts(&field, "the name of a function, or a list of them")?;
                funcs = found
                    .iter()
                    .map(|name| Func::parse(&field, name))
                    .collect::<QueryResult<_>>()?;
            }
            "step" => step = Some(duration(&field, value)?),
            _ => return Err(QueryError::field(&field, "metric, step or func expected")),
        }
    }
    for (missing, name) in
        [(names.is_empty(), "metric"), (funcs.is_empty(), "func"), (step.is_none(), "step")]
    {
        if missing {
            return Err(QueryError::field(&format!("{kind}.{name}"), "it is missing"));
        }
    }
    if names.len() > MAX_COLUMNS || funcs.len() > MAX_COLUMNS {
        return Err(QueryError::field(kind, "at most 256 metrics and functions expected"));
    }
    Ok((names, funcs, step.unwrap_or(1)))
}

fn group(kind: &str, json: &Json, fields: &mut Fields<'_>) -> QueryResult<Kind> {
    let (metrics, funcs, step) = grouped(kind, json)?;
    let mut filter = RowFilter::default();
    if let Some(json) = fields.take("filter") {
        for (name, value) in json.object("filter", "an object such as {\"max\": {\"gt\": 10}}")? {
            let field = format!("filter.{name}");
            if name == "=" {
                filter.any = require(&field, value)?;
                continue;
            }
            let func = Func::parse("filter", name)?;
            let Some(column) = funcs.iter().position(|found| *found == func) else {
                return Err(QueryError::field(&field, "it is not among the functions in `func`"));
            };
            filter.columns.push((column, ValueFilter::parse(&field, value)?));
        }
    }
    Ok(Kind::Group { metrics, funcs, step, filter })
}

/// Whether one condition is enough.
fn require(field: &str, json: &Json) -> QueryResult<bool> {
    const EXPECTED: &str = "{\"require\": \"all\"} or {\"require\": \"any\"}";
    match json.object(field, EXPECTED)? {
        [(name, Json::Text(text))] if name == "require" && (text == "all" || text == "any") => {
            Ok(text == "any")
        }
        _ => Err(QueryError::field(field, format_args!("{EXPECTED} expected"))),
    }
}

/// A filter for each of the metrics.
fn joined_filters(fields: &mut Fields<'_>, metrics: &[String]) -> QueryResult<Vec<ValueFilter>> {
    let mut filters = vec![ValueFilter::default(); metrics.len()];
    if let Some(json) = fields.take("filter") {
        for (name, value) in
            json.object("filter", "an object such as {\"METRIC\": {\"gt\": 10}}")?
        {
            let field = format!("filter.{name}");
            let name = with_own_blanks(name);
            if !metrics.contains(&name) {
                return Err(QueryError::field(&field, "it is not among the metrics"));
            }
            let filter = ValueFilter::parse(&field, value)?;
            let columns = filters.iter_mut().zip(metrics).filter(|(_, metric)| **metric == name);
            columns.for_each(|(column, _)| column.clone_from(&filter));
        }
    }
    Ok(filters)
}

fn output(fields: &mut Fields<'_>) -> QueryResult<Output> {
    let mut output = Output { format: None, iso: true };
    let Some(json) = fields.take("output") else { return Ok(output) };
    for (name, value) in json.object("output", "an object such as {\"format\": \"csv\"}")? {
        let field = format!("output.{name}");
        let text = value.text(&field, "a text")?;
        match (name.as_str(), text) {
            ("format", _) => output.set_format(&field, text)?,
            ("timestamp", "iso") => output.iso = true,
            ("timestamp", "raw") => output.iso = false,
            ("timestamp", _) => {
                return Err(QueryError::field(
                    &field,
                    format_args!("iso or raw expected, `{text}` found"),
                ));
            }
            _ => return Err(QueryError::field(&field, "format or timestamp expected")),
        }
    }
    Ok(output)
}

fn range(fields: &mut Fields<'_>, now: Option<i64>) -> QueryResult<Option<Range>> {
    let Some(json) = fields.take("range") else { return Ok(None) };
    let (mut from, mut to) = (None, None);
    for (name, value) in json.object("range", "an object with from and to")? {
        match name.as_str() {
            "from" => from = Some(time("range.from", value, now)?),
            "to" => to = Some(time("range.to", value, now)?),
            other => {
                return Err(QueryError::field(
                    "range",
                    format_args!("from or to expected, `{other}` found"),
                ));
            }
        }
    }
    match (from, to) {
        (Some(from), Some(to)) => Ok(Some(Range { from, to })),
        (None, _) => Err(QueryError::field("range.from", "it is missing")),
        (_, None) => Err(QueryError::field("range.to", "it is missing")),
    }
}

/// The nanoseconds of a number's unit. Akumuli's numbers are nanoseconds, however few; but where
/// those would be a time in 1970 that hardly anybody means, and the number is a moment of our days
/// in a unit that its size says, it is that one.
fn unit(number: i128) -> i128 {
    unit_of_our_days(number).unwrap_or(1).into()
}

/// A time: a text, or a number, with or without quotation marks.
fn time(field: &str, json: &Json, now: Option<i64>) -> QueryResult<i64> {
    let moment = |number: i128| i64::try_from(number.checked_mul(unit(number))?).ok();
    let found = match json {
        Json::Integer(number) => moment(*number),
        Json::Text(text) => match text.parse::<i64>() {
            Ok(number) if !text.starts_with('+') => moment(number.into()),
            _ => parse_moment(text, now),
        },
        _ => None,
    };
    found.ok_or_else(|| {
        let found = match json {
            Json::Text(text) => format!("`{text}`"),
            Json::Integer(number) => number.to_string(),
            other => other.kind().to_string(),
        };
        let expected = format_args!("a time from 1677 to 2262, such as {FORMS}, expected");
        QueryError::field(field, format_args!("{expected}, {found} found"))
    })
}

/// Nanoseconds of `10s`.
fn duration(field: &str, json: &Json) -> QueryResult<u64> {
    const EXPECTED: &str = "a step such as 500ms, 10s, 5m, 1h or 1d";
    let found = match json {
        Json::Integer(number) => u64::try_from(*number).ok(),
        Json::Text(text) => nanoseconds(text),
        other => {
            return Err(QueryError::field(
                field,
                format_args!("{EXPECTED} expected, {} found", other.kind()),
            ));
        }
    };
    match found {
        Some(step) if (1..=i64::MAX as u64).contains(&step) => Ok(step),
        _ => Err(QueryError::field(field, format_args!("{EXPECTED} expected"))),
    }
}

pub(crate) fn nanoseconds(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[end..] {
        "" | "n" | "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    };
    text[..end].parse::<u64>().ok()?.checked_mul(unit)
}

fn tags(fields: &mut Fields<'_>) -> QueryResult<Where> {
    const EXPECTED: &str = "tags such as {\"host\": [\"a\", \"b\"]}, or a list of such objects";
    let Some(json) = fields.take("where") else { return Ok(Where::Tags(Vec::new())) };
    if let Json::List(items) = json {
        let exact = |item: &Json| {
            let tags = item.object("where", EXPECTED)?;
            let pairs = tags.iter().map(|(tag, value)| {
                let value = value.text(&format!("where.{tag}"), "a value")?;
                Ok((with_own_blanks(tag), with_own_blanks(value)))
            });
            let mut pairs = pairs.collect::<QueryResult<Vec<_>>>()?;
            pairs.sort_unstable();
            match pairs.is_empty() {
                true => Err(QueryError::field(
                    "where",
                    format_args!("{EXPECTED} expected, one is empty"),
                )),
                false => Ok(pairs),
            }
        };
        bounded(items.len())?;
        let mut sets = items.iter().map(exact).collect::<QueryResult<Vec<_>>>()?;
        sets.sort_unstable();
        sets.dedup();
        return Ok(Where::Exact(sets));
    }
    let tags = json.object("where", EXPECTED)?.iter().map(|(tag, values)| {
        let values = values.texts(&format!("where.{tag}"), "a value, or a list of values")?;
        let mut values: Vec<String> = values.iter().map(|value| with_own_blanks(value)).collect();
        values.sort_unstable();
        values.dedup();
        Ok((with_own_blanks(tag), values))
    });
    let tags = tags.collect::<QueryResult<Vec<_>>>()?;
    bounded(tags.iter().map(|(_, values)| values.len()).sum())?;
    Ok(Where::Tags(tags))
}

/// Refuses more values, or sets of tags, than are looked up side by side.
fn bounded(count: usize) -> QueryResult<()> {
    if count <= MAX_VALUES {
        return Ok(());
    }
    Err(QueryError::field(
        "where",
        format_args!("at most {MAX_VALUES} values expected, {count} found"),
    ))
}

fn keep(fields: &mut Fields<'_>) -> QueryResult<Keep> {
    let mut keep = Keep::All;
    for name in ["group-by", "pivot-by-tag", "group-by-tag"] {
        let Some(json) = fields.take(name) else { continue };
        if keep != Keep::All {
            return Err(QueryError::field(
                name,
                "only one of pivot-by-tag and group-by-tag expected",
            ));
        }
        let tags = json.texts(name, "a list of tags")?;
        keep = if name == "group-by-tag" { Keep::Without(tags) } else { Keep::Only(tags) };
    }
    Ok(keep)
}

fn order(fields: &mut Fields<'_>) -> QueryResult<Order> {
    match fields.take("order-by") {
        None => Ok(Order::Time),
        Some(json) => match json.text("order-by", "time or series")? {
            "time" => Ok(Order::Time),
            "series" => Ok(Order::Series),
            other => Err(QueryError::field(
                "order-by",
                format_args!("time or series expected, `{other}` found"),
            )),
        },
    }
}

fn apply(fields: &mut Fields<'_>, kind: &Kind) -> QueryResult<Vec<Function>> {
    let Some(json) = fields.take("apply") else { return Ok(Vec::new()) };
    let mut columns = kind.columns();
    let mut functions = Vec::new();
    for json in json.list("apply", "a list such as [{\"name\": \"rate\"}]")? {
        let function = Function::parse(json, &columns)?;
        if function.makes_one() {
            columns.truncate(1);
        }
        functions.push(function);
        if functions.len() > 16 {
            return Err(QueryError::field("apply", "at most 16 functions expected"));
        }
    }
    Ok(functions)
}

impl Kind {
    /// What the columns of a row are called.
    pub(crate) fn columns(&self) -> Vec<String> {
        match self {
            Self::Select { metric, .. } => vec![metric.clone()],
            Self::Join { metrics, .. } | Self::GroupJoin { metrics, .. } => metrics.clone(),
            Self::Group { metrics, funcs, .. } => match &metrics[..] {
                [metric] => funcs.iter().map(|func| format!("{metric}:{}", func.name())).collect(),
                _ => funcs.iter().map(|func| func.name().to_string()).collect(),
            },
            Self::Aggregate { .. } => vec!["value".to_string()],
            Self::Events { .. } | Self::Names { .. } => Vec::new(),
        }
    }
}
