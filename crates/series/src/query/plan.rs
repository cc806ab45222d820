//! Which series a query reads, and what the names of its rows are.
//!
//! Each series that is found belongs to a line: all rows of one name. Without a rule for tags each
//! series has a line of its own; with one, series whose remaining tags are the same share it; in a
//! join the series of several metrics with the same tags do, each with its column. Lines are
//! numbered in the order in which their first series came to be, those of one metric after the
//! other.

use super::error::{QueryError, QueryResult};
use super::member::Member;
use super::parse::{Func, Keep, Kind, Query, Where};
use crate::name::Name;
use crate::store::{Found, SeriesStore, Share};
use std::collections::BTreeMap;

/// Series that are looked up at a time, and what one costs besides its names, about.
const AT_ONCE: usize = 10_000;
const SERIES: usize = 160;

/// What is read, and the names of the lines.
#[derive(Debug)]
pub(crate) struct Plan {
    /// By line.
    pub(crate) names: Vec<String>,
    /// Ascending by line.
    pub(crate) members: Vec<Member>,
    /// For each line what is asked of it, if that differs.
    pub(crate) funcs: Vec<Func>,
    /// What all of it takes.
    pub(crate) share: Share,
}

/// One metric of a query.
struct Head<'a> {
    metric: &'a str,
    label: String,
    column: usize,
    func: Option<Func>,
}

fn heads(kind: &Kind) -> Vec<Head<'_>> {
    let plain = |metric| Head { metric, label: metric.to_string(), column: 0, func: None };
    match kind {
        Kind::Select { metric, .. } | Kind::Events { metric, .. } => vec![plain(metric)],
        Kind::Aggregate { metrics } => metrics
            .iter()
            .map(|(metric, func)| Head {
                label: format!("{metric}:{}", func.name()),
                func: Some(*func),
                ..plain(metric)
            })
            .collect(),
        Kind::Group { metrics, funcs, .. } => metrics
            .iter()
            .map(|metric| {
                let parts: Vec<String> =
                    funcs.iter().map(|func| format!("{metric}:{}", func.name())).collect();
                Head { label: parts.join("|"), ..plain(metric) }
            })
            .collect(),
        Kind::Join { metrics, .. } | Kind::GroupJoin { metrics, .. } => {
            let label = metrics.join("|");
            let columns = metrics.iter().enumerate();
            columns
                .map(|(column, metric)| Head { label: label.clone(), column, ..plain(metric) })
                .collect()
        }
        Kind::Names { .. } => Vec::new(),
    }
}

/// The tags of a name that stay, as they stand in a name.
fn tags_text(name: &Name, keep: &Keep) -> String {
    if *keep == Keep::All {
        return name.as_str()[name.metric().len()..].to_string();
    }
    let mut text = String::new();
    for (tag, value) in name.tags() {
        let stays = match keep {
            Keep::All => true,
            Keep::Only(tags) => tags.iter().any(|kept| kept == tag),
            Keep::Without(tags) => tags.iter().all(|gone| gone != tag),
        };
        if stays {
            text.extend([" ", tag, "=", value]);
        }
    }
    text
}

/// The series of a metric, at most `limit` and one more.
pub(crate) async fn find(
    store: &SeriesStore,
    metric: &str,
    tags: &Where,
    limit: usize,
    share: &mut Share,
) -> QueryResult<Vec<Found>> {
    let mut all = Vec::new();
    match tags {
        Where::Tags(tags) => {
            let (mut begin, most) = (Some(0), limit.saturating_add(1));
            while let Some(least) = begin.filter(|_| all.len() < most) {
                let (found, next) =
                    store.search(metric, tags, least, AT_ONCE.min(most - all.len())).await?;
                share.add(weight(&found))?;
                all.extend(found);
                begin = next;
            }
        }
        Where::Exact(sets) => {
            let mut names = Vec::new();
            for tags in sets {
                let mut name = metric.to_string();
                for (tag, value) in tags {
                    name.extend([" ", tag, "=", value]);
                }
                let name = Name::parse(&name);
                names.push(name.map_err(|error| QueryError::field("where", error))?);
            }
            all = store.named(&names).await?;
            share.add(weight(&all))?;
        }
    }
    Ok(all)
}

/// What series take with what is made of them, in bytes: their names as they are and as rows have
/// them.
fn weight(found: &[Found]) -> usize {
    found.iter().map(|found| SERIES + 2 * found.name.as_str().len()).sum()
}

impl Plan {
    /// The plan of a query, of at most `limit` series.
    pub(crate) async fn new(store: &SeriesStore, query: &Query, limit: usize) -> QueryResult<Self> {
        let mut plan = Self {
            names: Vec::new(),
            members: Vec::new(),
            funcs: Vec::new(),
            share: Share::new(store),
        };
        let mut lines: BTreeMap<String, u32> = BTreeMap::new();
        let is_join = matches!(query.kind, Kind::Join { .. } | Kind::GroupJoin { .. });
        // Each series then has a line of its own.
        let are_alone = !is_join && query.keep == Keep::All;
        let heads = heads(&query.kind);
        let mut seen: Vec<&str> = Vec::new();
        for head in &heads {
            if !is_join && seen.contains(&head.label.as_str()) {
                continue;
            }
            seen.push(&head.label);
            let left = limit - plan.members.len();
            let found = find(store, head.metric, &query.tags, left, &mut plan.share).await?;
            if plan.members.len() + found.len() > limit {
                return Err(QueryError::TooMany(format!(
                    "more than {limit} series match; name more tags in `where`"
                )));
            }
            for found in found {
                let name = head.label.clone() + &tags_text(&found.name, &query.keep);
                let next = plan.names.len() as u32;
                let known = if are_alone { None } else { lines.get(&name).copied() };
                let line = known.unwrap_or(next);
                if known.is_none() {
                    if !are_alone {
                        lines.insert(name.clone(), next);
                    }
                    plan.names.push(name);
                    plan.funcs.extend(head.func);
                }
                plan.members.push(Member { found, line, column: head.column });
            }
        }
        if plan.members.is_empty() {
            let metrics: Vec<_> = heads.iter().map(|head| format!("`{}`", head.metric)).collect();
            return Err(QueryError::NotFound(format!(
                "no series of {} is as `where` says",
                metrics.join(", ")
            )));
        }
        plan.members.sort_by_key(|member| member.line);
        Ok(plan)
    }
}
