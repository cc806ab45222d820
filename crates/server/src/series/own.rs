//! The server's own measurements as series: what `/metrics` shows, every ten seconds, kept for a
//! week.
//!
//! A series has the metric's name, its labels as tags, and `server`, the address that clients know.
//! Buckets of histograms are left out, but for those that an alert rule of `docs/monitoring.md`
//! asks for: their counts and sums say how it went, at a twentieth of the series. While the series
//! are somebody else's, or can't be opened, nothing is recorded.
//!
//! What the page says of its metrics is what senders say of theirs: `/api/v1/metadata` has it from
//! the start on.

use super::{Hub, keep};
use crate::page::Page;
use plinth_env::sync::{First, race};
use plinth_series::ingest::{Metadata, ScrapedBody, ScrapedHistograms};
use plinth_series::{Error, Listing, Name, Result, Series, SeriesStore, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How often they are recorded.
const EVERY: Duration = Duration::from_secs(10);
/// How long they are kept, and how often older ones are deleted.
const KEPT: Duration = Duration::from_hours(7 * 24);
const CLEAN_EVERY: Duration = Duration::from_hours(1);

/// How lines begin that are of buckets, and of those that are recorded.
const BUCKET: &str = "_bucket{";
const BUCKETS: &str = "plinth_log_sync_seconds_bucket{";

/// What the names of a server's measurements begin with: its own, and what Prometheus has about any
/// process.
pub(super) const METRICS: [&str; 2] = [MEASURED, "process_"];
const MEASURED: &str = "plinth_";
/// The tag that tells whose they are.
const SERVER: &str = "server";

/// Whether a series is one of a server's own measurements.
pub fn is_of_a_server(name: &Name) -> bool {
    let is_measured = METRICS.iter().any(|own| name.metric().starts_with(own));
    is_measured && name.tags().any(|(tag, _)| tag == SERVER)
}

/// Whether a metric has nothing but servers' measurements, as far as the first of its series say.
pub(super) async fn has_own_alone(store: &SeriesStore, metric: &str) -> Result<bool> {
    if metric.starts_with(MEASURED) {
        return Ok(true);
    }
    if !METRICS.iter().any(|own| metric.starts_with(own)) {
        return Ok(false);
    }
    // Programs of users have metrics of these names too, of which there may be many series.
    let tags = Listing::Tags { metric: metric.to_owned() };
    if store.list(&tags, SERVER, None, 1).await? != [SERVER] {
        return Ok(false);
    }
    let (found, _) = store.browse(Some(metric), &[], 0).await?;
    Ok(found.iter().all(|series| is_of_a_server(series.name())))
}

/// From where on users' metrics may come that are behind this one.
pub(super) fn behind(metric: &str) -> String {
    if metric.starts_with(MEASURED) { format!("{MEASURED}\u{10ffff}") } else { metric.to_owned() }
}

/// Records until the server stops.
pub(super) async fn record(hub: Arc<Hub>, figures: Page, server: String) {
    let mut own: Option<Own> = None;
    let mut cleaned = hub.env.now();
    hub.described.take_own(described(&figures.text()));
    loop {
        if race(hub.stops.own.wait(), hub.env.sleep(EVERY)).await == First::Left(())
            || hub.is_stopping()
        {
            return;
        }
        let now = hub.env.wall_clock();
        let Ok(opened) = hub.slot.takes_now() else { continue };
        // Series of a store that was lost can't be written any more, and those of one in whose
        // place there is another one go the longer way, or nowhere.
        let mut ours =
            own.take().filter(|own| own.store.is_same_as(&opened.store)).unwrap_or_else(|| Own {
                store: opened.store.clone(),
                server: server.clone(),
                series: BTreeMap::new(),
            });
        // What fails is tried again with the next values.
        let result = ours.take(&figures.text(), nanos(now)).await;
        if result.is_ok() && hub.env.now().saturating_sub(cleaned) >= CLEAN_EVERY {
            cleaned = hub.env.now();
            // Some metrics come to be only when there is something to count.
            hub.described.take_own(described(&figures.text()));
            // Whoever owns the series does that, for all servers.
            if let Ok(owned) = hub.slot.own()
                && let Ok(now) = keep::time(&hub, &owned.store).await
            {
                let first = now.saturating_sub(nanos(KEPT));
                let _ = forget(&owned.store, ours.metrics(), first).await;
            }
        }
        own = Some(ours);
    }
}

/// Units with which a name may end, as OpenMetrics has them, before `_total` if that is there.
const UNITS: [&str; 2] = ["seconds", "bytes"];

/// What a text in Prometheus' format says of its metrics, and their units, which their names say.
fn described(text: &str) -> Vec<Metadata> {
    let histograms = ScrapedHistograms::default();
    let Ok(mut body) = ScrapedBody::of("text/plain", text.as_bytes(), histograms) else {
        return Vec::new();
    };
    let mut work = 0;
    while !body.is_at_end() {
        // Of a line that can't be read there is nothing to be said.
        let _ = body.step(&mut work);
    }
    let mut all = body.take_metadata();
    for Metadata { metric, unit, .. } in &mut all {
        let name = metric.strip_suffix("_total").unwrap_or(metric);
        let end = name.rsplit('_').next().filter(|end| UNITS.contains(end));
        end.unwrap_or_default().clone_into(unit);
    }
    all
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// The series that were recorded so far, by what stands before the value.
struct Own {
    store: SeriesStore,
    server: String,
    series: BTreeMap<String, Series>,
}

impl Own {
    /// Appends what a text in Prometheus' format says.
    async fn take(&mut self, text: &str, now: i64) -> Result<()> {
        let is_wanted = |line: &&str| {
            !line.starts_with('#') && (!line.contains(BUCKET) || line.starts_with(BUCKETS))
        };
        let lines = text.lines().filter(is_wanted);
        let measured: Vec<(&str, Value)> = lines
            .filter_map(|line| {
                let (what, value) = line.rsplit_once(' ')?;
                let integer = value.parse().map(Value::Integer);
                Some((what, integer.or_else(|_| value.parse().map(Value::Float)).ok()?))
            })
            .collect();
        let new: Vec<&str> = measured
            .iter()
            .map(|(what, _)| *what)
            .filter(|what| !self.series.contains_key(*what))
            .collect();
        let names: Vec<String> = new.iter().map(|what| self.name(what)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if !names.is_empty() {
            for (what, series) in new.iter().zip(self.store.each_series(&names).await?) {
                match series {
                    // It is told of elsewhere.
                    Err(Error::Damaged { .. }) => {}
                    series => drop(self.series.insert((*what).to_owned(), series?)),
                }
            }
        }
        for (what, value) in measured {
            match self.series.get(what).map(|series| series.append(now, value)) {
                // Somebody deleted it: it begins again with the next values.
                Some(Err(Error::Deleted)) => drop(self.series.remove(what)),
                // A store that is behind has better things to do, and one that is damaged is told
                // of elsewhere.
                None | Some(Ok(()) | Err(Error::Behind | Error::Damaged { .. })) => {}
                Some(result) => result?,
            }
        }
        Ok(())
    }

    /// The name of the series of `metric{label="value"}`.
    fn name(&self, what: &str) -> String {
        let (metric, labels) = what.split_once('{').unwrap_or((what, ""));
        let labels =
            labels.trim_end_matches('}').split("\",").filter_map(|label| label.split_once("=\""));
        let tags = labels.map(|(label, value)| {
            let value = value.trim_end_matches('"').replace(' ', "\\ ");
            format!(" {label}={}", if value.is_empty() { "none" } else { &value })
        });
        format!("{metric} {SERVER}={}{}", self.server, tags.collect::<String>())
    }

    /// The metrics that were recorded so far.
    fn metrics(&self) -> BTreeSet<&str> {
        self.series.keys().map(|what| what.split('{').next().unwrap_or(what)).collect()
    }
}

/// Deletes what is older than `first` of the measurements of every server.
async fn forget(store: &SeriesStore, metrics: BTreeSet<&str>, first: i64) -> Result<()> {
    for metric in metrics {
        let found = store.find(metric, &[]).await?;
        for name in found.iter().filter(|name| name.tags().any(|(tag, _)| tag == SERVER)) {
            let Some(series) = store.existing(name.as_str()).await? else { continue };
            // What rollups have of them stays, and what is damaged.
            match series.forget_before(first).await {
                Err(Error::Damaged { .. }) => {}
                forgotten => drop(forgotten?),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_client::Database;
    use plinth_env::{Env, block_on};
    use plinth_pipeline::{Node, NodeConfig};
    use plinth_series::{Keeping, Metrics, Rollup, Settings};

    /// They were deleted, and what rollups had of them went with them.
    #[test]
    fn rollups_of_measurements_stay_when_these_go() {
        const SECOND: i64 = 1_000_000_000;
        let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
        let database = Database::new(Arc::new(node.endpoint()));
        let settings = Settings { commit_every: None, ..Settings::default() };
        let rule = Rollup::new(Metrics::parse("a_total").unwrap(), Duration::from_secs(10));
        let change = |keeping: &mut Keeping| keeping.add(rule.clone());
        block_on(SeriesStore::change_keeping(&database, &settings, change)).unwrap();
        let store = block_on(SeriesStore::open_with(&database, settings)).unwrap();
        let mut own = Own { store, server: "127.0.0.1:4500".to_owned(), series: BTreeMap::new() };
        for time in 1..=90 {
            block_on(own.take(&format!("a_total {time}\n"), time * SECOND)).unwrap();
        }
        for _ in 0..2 {
            block_on(forget(&own.store, own.metrics(), 60 * SECOND)).unwrap();
            block_on(own.store.roll_up()).unwrap();
        }
        let series = own.series.values().next().unwrap();
        let found = block_on(series.aggregate(..)).unwrap().unwrap();
        assert_eq!((found.count, found.sum), (90, 4095.0));
    }

    #[test]
    fn metrics_have_the_type_help_and_unit_that_their_page_says() {
        let text = "# HELP plinth_waits_seconds_total How long it waited.\n\
            # TYPE plinth_waits_seconds_total counter\nplinth_waits_seconds_total 1\n\
            # HELP plinth_sync_seconds Syncs.\n# TYPE plinth_sync_seconds histogram\n\
            plinth_sync_seconds_bucket{le=\"1\"} 3\nplinth_sync_seconds_count 3\nnonsense {\n\
            # HELP process_resident_memory_bytes Memory.\n\
            # TYPE process_resident_memory_bytes gauge\n\
            # HELP plinth_seconds_left What.\n# TYPE plinth_seconds_left gauge\n";
        let found = described(text);
        let found = found.iter().map(|Metadata { metric, kind, help, unit }| {
            [metric.as_str(), kind, help.as_str(), unit.as_str()]
        });
        assert_eq!(
            found.collect::<Vec<_>>(),
            [
                ["plinth_waits_seconds_total", "counter", "How long it waited.", "seconds"],
                ["plinth_sync_seconds", "histogram", "Syncs.", "seconds"],
                ["process_resident_memory_bytes", "gauge", "Memory.", "bytes"],
                ["plinth_seconds_left", "gauge", "What.", ""],
            ]
        );
    }

    #[test]
    fn measurements_become_series_and_old_ones_go() {
        let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
        let store = block_on(SeriesStore::open(&Database::new(Arc::new(node.endpoint())))).unwrap();
        let mut own = Own { store, server: "127.0.0.1:4500".to_owned(), series: BTreeMap::new() };
        for time in 1..=9 {
            let text = format!(
                "# HELP a_total What.\na_total {time}\nb{{engine=\"ssd\",why=\"no room\"}} 0.5\n\
                 c_bucket{{le=\"1\"}} 3\nd NaN\n{BUCKETS}le=\"+Inf\"}} 4\nnonsense\n"
            );
            block_on(own.take(&text, time)).unwrap();
        }
        let another = block_on(own.store.series("a_total server=127.0.0.1:4501")).unwrap();
        another.append(1, 1.0).unwrap();
        block_on(forget(&own.store, own.metrics(), 5)).unwrap();
        assert!(block_on(another.aggregate(..)).unwrap().is_none(), "of every server");
        let names: Vec<String> =
            own.series.values().map(|series| series.name().to_string()).collect();
        let server = "server=127.0.0.1:4500";
        assert_eq!(
            names,
            [
                format!("a_total {server}"),
                format!("b engine=ssd {server} why=no\\ room"),
                format!("d {server}"),
                format!("plinth_log_sync_seconds_bucket le=+Inf {server}"),
            ]
        );
        for (series, sum) in own.series.values().zip([35.0, 2.5, 0.0, 20.0]) {
            let found = block_on(series.aggregate(..)).unwrap().unwrap();
            assert_eq!((found.count, found.sum), (5, sum), "{}", series.name());
        }
    }
}
