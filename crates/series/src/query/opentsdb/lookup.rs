//! Which series there are of a metric, or with some tags (`/api/search/lookup`): what Grafana's
//! data source asks for the values that a variable may have.
//!
//! A tag is asked for by its value, by its key alone (`host=*`), or by its value alone (`*=a`).
//! Each series is told with all of its tags, in the order of names, a page of them at a time; how
//! many there are besides is told, too.

use super::asked::{braces, quoted};
use super::{Failure, MAX_SERIES, MAX_SUGGESTED, SUGGESTED, SUGGESTING};
use crate::query::prometheus::{StoreSource, labels_of};
use crate::store::SeriesStore;
use plinth_promql::{Error, Labels, NAME, parse_selector};
use serde_json::{Value as Json, json};

const ANY: &str = "*";

/// What is looked for.
#[derive(PartialEq, Eq, Debug, Default)]
struct Lookup {
    metric: String,
    tags: Vec<(String, String)>,
    limit: usize,
    begin: usize,
}

/// Answers a question, of which the parameters stand in the URL or in the body.
pub(super) async fn lookup(
    store: &SeriesStore,
    pairs: &[(String, String)],
    body: &Json,
) -> Result<String, Failure> {
    let asked = match body {
        Json::Null => Lookup::of_parameters(pairs),
        body => Lookup::of_json(body),
    };
    let asked = asked.map_err(Failure::Asked)?;
    let matchers = parse_selector(&asked.selector()).map_err(Error::Parse)?;
    let source = StoreSource::new(store, SUGGESTING);
    let found = source.find_at_most(&matchers, MAX_SERIES).await?;
    let mut found: Vec<(Labels, u64)> =
        found.iter().map(|found| (labels_of(&found.name), found.id)).collect();
    found.retain(|(labels, _)| asked.has_values(labels));
    found.sort();
    let page = found.iter().skip(asked.begin).take(asked.limit);
    let results: Vec<Json> = page.map(|(labels, id)| result(labels, *id)).collect();
    let tags = asked.tags.iter().map(|(key, value)| json!({ "key": key, "value": value }));
    Ok(json!({
        "type": "LOOKUP",
        "metric": asked.metric,
        "tags": tags.collect::<Vec<_>>(),
        "limit": asked.limit,
        "startIndex": asked.begin,
        "totalResults": found.len(),
        "results": results,
    })
    .to_string())
}

fn result(labels: &Labels, id: u64) -> Json {
    let tags = labels.iter().filter(|(name, _)| *name != NAME);
    let tags = tags.map(|(name, value)| (name.to_owned(), Json::from(value)));
    let tags: serde_json::Map<String, Json> = tags.collect();
    json!({ "metric": labels.metric(), "tags": tags, "tsuid": format!("{id:016X}") })
}

impl Lookup {
    /// `m=cpu{host=*}`.
    fn of_parameters(pairs: &[(String, String)]) -> Result<Self, String> {
        let get = |name: &str| pairs.iter().find(|(found, _)| found == name).map(|(_, text)| text);
        let (metric, groups) = braces(get("m").map_or("", String::as_str));
        let mut tags = Vec::new();
        for tag in groups.iter().flat_map(|group| group.split(',')).filter(|tag| !tag.is_empty()) {
            let (key, value) =
                tag.split_once('=').ok_or_else(|| format!("{tag:?} is no KEY=VALUE"))?;
            tags.push((key.trim().to_owned(), value.trim().to_owned()));
        }
        let number = |name: &str, usual| match get(name) {
            None => Ok(usual),
            Some(text) => text.parse().map_err(|_| format!("{name}={text} is no number")),
        };
        let begin = number("start_index", 0)?;
        Self::new(metric, tags, (number("limit", SUGGESTED)?, begin))
    }

    /// `{"metric": "cpu", "tags": [{"key": "host", "value": "*"}]}`.
    fn of_json(body: &Json) -> Result<Self, String> {
        let text = |of: &Json, name: &str| match &of[name] {
            Json::Null => Ok(String::new()),
            Json::String(text) => Ok(text.clone()),
            other => Err(format!("{name} is a text, not {other}")),
        };
        let mut tags = Vec::new();
        match &body["tags"] {
            Json::Null => {}
            Json::Array(all) => {
                for tag in all {
                    tags.push((text(tag, "key")?, text(tag, "value")?));
                }
            }
            other => return Err(format!("tags is a list, not {other}")),
        }
        let number = |name: &str, usual| match &body[name] {
            Json::Null => Ok(usual),
            number => number
                .as_u64()
                .and_then(|number| usize::try_from(number).ok())
                .ok_or_else(|| format!("{name} is a number, not {number}")),
        };
        let page = (number("limit", SUGGESTED)?, number("startIndex", 0)?);
        Self::new(&text(body, "metric")?, tags, page)
    }

    fn new(
        metric: &str,
        tags: Vec<(String, String)>,
        (limit, begin): (usize, usize),
    ) -> Result<Self, String> {
        // No tag is as good as any, as OpenTSDB has it.
        let or_any = |text: String| if text.is_empty() { ANY.to_owned() } else { text };
        let tags: Vec<_> =
            tags.into_iter().map(|(key, value)| (or_any(key), or_any(value))).collect();
        let metric = metric.trim().to_owned();
        let names_none = metric.is_empty() || metric == ANY;
        if names_none && tags.iter().all(|(key, value)| key == ANY && value == ANY) {
            return Err("a lookup names a metric, or a tag's key or value".to_owned());
        }
        Ok(Self { metric, tags, limit: limit.min(MAX_SUGGESTED), begin })
    }

    /// What it is about, as PromQL selects it: all but values of which the key isn't said.
    fn selector(&self) -> String {
        let mut conditions = Vec::new();
        if !self.metric.is_empty() && self.metric != ANY {
            conditions.push(format!("{NAME}={}", quoted(&self.metric)));
        }
        for (key, value) in self.tags.iter().filter(|(key, _)| key != ANY) {
            let condition =
                if value == ANY { "!=\"\"".to_owned() } else { format!("={}", quoted(value)) };
            conditions.push(format!("{}{condition}", quoted(key)));
        }
        if conditions.is_empty() {
            conditions.push(format!("{NAME}!=\"\""));
        }
        format!("{{{}}}", conditions.join(","))
    }

    /// Whether a series has the values of which the key isn't said.
    fn has_values(&self, labels: &Labels) -> bool {
        let mut wanted = self.tags.iter().filter(|(key, value)| key == ANY && value != ANY);
        wanted.all(|(_, wanted)| labels.iter().any(|(name, value)| name != NAME && value == wanted))
    }
}
