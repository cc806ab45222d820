//! The configuration in force, as Prometheus shows its own: `/api/v1/status/config`.
//!
//! It is that of what whoever owns the series does beside: what is scraped, as the file said when
//! it last made sense, which rules are evaluated, who is told of alerts; and what the database says
//! of how long series are kept.

use super::Hub;
use super::yaml::Yaml;
use serde_json::json;

/// Whether a request asks for it.
pub(super) fn owns(path: &str) -> bool {
    path == "/api/v1/status/config"
}

/// What a request is answered, if it asks for that.
pub(super) fn answer(hub: &Hub, path: &str) -> Option<(u16, String)> {
    owns(path).then(|| {
        let document = document(hub);
        // A server that does nothing beside has none.
        let text =
            if document == Yaml::Map(Vec::new()) { String::new() } else { document.written() };
        (200, json!({ "status": "success", "data": { "yaml": text } }).to_string())
    })
}

fn document(hub: &Hub) -> Yaml {
    let (mut global, mut jobs) = (Vec::new(), None);
    if let Some(scraping) = &hub.duties.scraping {
        let said = scraping.configuration();
        global = said.global;
        jobs = Some(("scrape_configs".to_owned(), Yaml::List(said.jobs)));
    }
    let mut rest = Vec::new();
    if let Some(rules) = &hub.duties.rules {
        let labels = rules.external_labels();
        if !labels.is_empty() {
            let labels =
                labels.iter().map(|(name, value)| (name.clone(), Yaml::text(value.as_str())));
            global.push(("external_labels".to_owned(), Yaml::Map(labels.collect())));
        }
        let alertmanagers = rules.alertmanagers().map(alertmanager).collect::<Vec<_>>();
        if !alertmanagers.is_empty() {
            let alerting = Yaml::map([("alertmanagers", Yaml::List(alertmanagers))]);
            rest.push(("alerting".to_owned(), alerting));
        }
        rest.push(("rule_files".to_owned(), Yaml::texts(rules.files())));
    }
    let mut all = Vec::new();
    if !global.is_empty() {
        all.push(("global".to_owned(), Yaml::Map(global)));
    }
    all.extend(rest);
    all.extend(jobs);
    all.extend(kept(hub));
    Yaml::Map(all)
}

/// An Alertmanager as the `alerting` of a file names it.
fn alertmanager(url: &str) -> Yaml {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = path.strip_suffix("api/v2/alerts").unwrap_or(path).trim_end_matches('/');
    let target = Yaml::map([("targets", Yaml::texts([host.to_owned()]))]);
    let mut fields = vec![("scheme".to_owned(), Yaml::text(scheme))];
    if !prefix.is_empty() {
        fields.push(("path_prefix".to_owned(), Yaml::text(format!("/{prefix}"))));
    }
    fields.push(("api_version".to_owned(), Yaml::text("v2")));
    fields.push(("static_configs".to_owned(), Yaml::List(vec![target])));
    Yaml::Map(fields)
}

/// What the database says of how long series are kept, if it says anything.
fn kept(hub: &Hub) -> Option<(String, Yaml)> {
    let opened = hub.slot.own().ok()?;
    let keeping = opened.store.known_keeping();
    let retention = keeping.retention().map(|text| ("retention".to_owned(), Yaml::text(text)));
    let rollups: Vec<String> = keeping.rollups().iter().map(ToString::to_string).collect();
    let rollups = Some(rollups).filter(|rollups| !rollups.is_empty());
    let rollups = rollups.map(|rollups| ("rollups".to_owned(), Yaml::texts(rollups)));
    let all: Vec<(String, Yaml)> = retention.into_iter().chain(rollups).collect();
    (!all.is_empty()).then(|| ("plinth".to_owned(), Yaml::Map(all)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alertmanager_is_named_as_in_a_file() {
        assert_eq!(
            alertmanager("https://am.example:9093/here/api/v2/alerts").written(),
            "scheme: https\npath_prefix: /here\napi_version: v2\nstatic_configs:\n- targets:\n  - am.example:9093\n"
        );
        let plain = alertmanager("http://127.0.0.1:9093/api/v2/alerts").written();
        assert!(!plain.contains("path_prefix"), "{plain}");
    }
}
