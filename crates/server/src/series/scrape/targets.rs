//! Targets: what groups of a job come to once its rules have looked at their labels.
//!
//! Labels that begin with `__` say where and how a target is scraped, and rules may change them;
//! the others stand in each of its series.

use super::config::{Group, Job};
use super::relabel::{Labels, relabel};
use std::sync::Arc;
use std::time::Duration;

/// Somebody who is scraped.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) job: Arc<Job>,
    /// Labels before rules looked at them.
    pub(super) discovered: Labels,
    /// Labels of its series.
    pub(super) labels: Labels,
    /// `http://HOST:PORT`, and what is asked for there.
    pub(super) server: String,
    pub(super) path: String,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    /// Why it isn't asked all the same.
    pub(super) fault: Option<String>,
}

impl Target {
    /// What it is told from others by: where it is, how it is scraped, and its labels. Whom else
    /// its job is about makes no difference.
    pub(super) fn key(&self) -> String {
        let Self { server, path, interval, timeout, labels, fault, job, .. } = self;
        let Job { name, asks, keeps, limits, of: _ } = &**job;
        let how = format!("{name:?} {asks:?} {keeps:?} {limits:?}");
        format!("{server}{path} {interval:?} {timeout:?} {labels:?} {fault:?} {how}")
    }

    /// Where it is, for people.
    pub(super) fn url(&self) -> String {
        format!("{}{}", self.server, self.path)
    }
}

/// The targets of a job's groups, and the labels of those that its rules drop.
///
/// # Errors
/// Why one can't be scraped.
pub(super) fn targets(
    job: &Arc<Job>,
    groups: &[Group],
) -> Result<(Vec<Target>, Vec<Labels>), String> {
    let (mut targets, mut dropped) = (Vec::new(), Vec::new());
    for group in groups {
        for address in &group.targets {
            let discovered = discovered(job, group, address);
            let mut labels = discovered.clone();
            let wrong = |why| format!("job {:?}, {address}: {why}", job.name);
            if relabel(&job.of.relabel, &mut labels).map_err(wrong)? {
                targets.push(target(job, discovered, labels).map_err(wrong)?);
            } else {
                dropped.push(discovered);
            }
        }
    }
    let (count, most) = (targets.len(), job.limits.targets);
    if most > 0 && count > most {
        let why = format!("the job has {count} targets, and {most} are allowed (target_limit)");
        targets.iter_mut().for_each(|target: &mut Target| target.fault = Some(why.clone()));
    }
    Ok((targets, dropped))
}

fn discovered(job: &Job, group: &Group, address: &str) -> Labels {
    let mut labels = group.labels.clone();
    labels.insert("__address__".to_owned(), address.to_owned());
    // What is empty isn't there, so it is as usual.
    labels.retain(|_, value| !value.is_empty());
    let asks = &job.asks;
    let mut usual = vec![
        ("job".to_owned(), job.name.clone()),
        ("__scheme__".to_owned(), asks.scheme.clone()),
        ("__metrics_path__".to_owned(), asks.path.clone()),
        ("__scrape_interval__".to_owned(), in_words(asks.interval)),
        ("__scrape_timeout__".to_owned(), in_words(asks.timeout)),
    ];
    for (name, value) in &asks.parameters {
        usual.push((format!("__param_{name}"), value.clone()));
    }
    for (name, value) in usual {
        labels.entry(name).or_insert(value);
    }
    labels.retain(|_, value| !value.is_empty());
    labels
}

fn target(job: &Arc<Job>, discovered: Labels, mut labels: Labels) -> Result<Target, String> {
    let of = |name: &str| labels.get(name).map_or("", String::as_str);
    let address = of("__address__").to_owned();
    if address.is_empty() || address.contains('/') {
        return Err(format!("its rules leave {address:?} as its address"));
    }
    let duration = |name: &str| {
        let text = of(name);
        let nanos = plinth_promql::duration(text).and_then(|nanos| u64::try_from(nanos).ok());
        let duration = nanos.filter(|nanos| *nanos > 0).map(Duration::from_nanos);
        duration.ok_or_else(|| format!("{name} is {text:?}, and not a duration"))
    };
    let (interval, timeout) = (duration("__scrape_interval__")?, duration("__scrape_timeout__")?);
    if timeout > interval {
        let why =
            "its rules leave a __scrape_timeout__ that is longer than its __scrape_interval__";
        return Err(why.to_owned());
    }
    let server = format!("{}://{address}", of("__scheme__"));
    let mut path = of("__metrics_path__").to_owned();
    if !path.starts_with('/') {
        path.insert(0, '/');
    }
    for (at, (name, value)) in parameters(job, &labels).iter().enumerate() {
        path.push(if at == 0 && !path.contains('?') { '?' } else { '&' });
        path.push_str(&encoded(name));
        path.push('=');
        path.push_str(&encoded(value));
    }
    labels.entry("instance".to_owned()).or_insert(address);
    labels.retain(|name, _| !name.starts_with("__"));
    let job = job.clone();
    Ok(Target { job, discovered, labels, server, path, interval, timeout, fault: None })
}

/// The parameters of a request: rules may change the first of each name.
fn parameters(job: &Job, labels: &Labels) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for (name, value) in &job.asks.parameters {
        let is_first = all.iter().all(|(known, _)| known != name);
        let changed = labels.get(&format!("__param_{name}")).filter(|_| is_first);
        all.push((name.clone(), changed.unwrap_or(value).clone()));
    }
    for (label, value) in labels {
        if let Some(name) = label.strip_prefix("__param_")
            && all.iter().all(|(known, _)| known != name)
        {
            all.push((name.to_owned(), value.clone()));
        }
    }
    all
}

/// A text as it stands in an address.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(byte as char);
            }
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// A duration as files have them, and Prometheus prints it.
pub(super) fn in_words(duration: Duration) -> String {
    let (mut left, mut text) = (duration.as_millis(), String::new());
    // Days stand alone, as with Prometheus.
    for (unit, milliseconds, alone) in
        [("d", 86_400_000, true), ("h", 3_600_000, false), ("m", 60_000, false), ("s", 1000, false)]
    {
        let count = left / milliseconds;
        if count > 0 && (!alone || left % milliseconds == 0) {
            text += &format!("{count}{unit}");
            left %= milliseconds;
        }
    }
    if left > 0 || text.is_empty() {
        text += &format!("{left}ms");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::config::parse;
    use super::*;

    fn of(config: &str) -> Result<(Vec<Target>, Vec<Labels>), String> {
        let text = format!("scrape_configs:\n- {{job_name: j, {config}}}\n");
        let mut jobs = parse("f", &text, "".as_ref())?;
        let job = Arc::new(jobs.remove(0));
        targets(&job, &job.of.groups)
    }

    fn one(config: &str) -> Target {
        of(config).unwrap().0.remove(0)
    }

    #[test]
    fn labels_say_where_and_how_a_target_is_asked() {
        let usual = one("static_configs: [{targets: [h]}]");
        assert_eq!(usual.url(), "http://h/metrics");
        assert_eq!(usual.labels["instance"], "h");
        assert_eq!(usual.labels["job"], "j");
        assert_eq!(usual.labels.len(), 2);
        assert_eq!(usual.discovered["__scrape_interval__"], "1m");
        let labels = "{__scheme__: https, __metrics_path__: p, __param_a: g, __param_c: d e, \
                      __scrape_interval__: 1m30s, __scrape_timeout__: 1s, job: other, \
                      instance: me, kept: x, __lost: y, job2: ''}";
        let target = one(&format!(
            "params: {{a: [f, '2'], b: ['&']}}, static_configs: [{{targets: ['h:1'], labels: {labels}}}]"
        ));
        assert_eq!(target.url(), "https://h:1/p?a=g&a=2&b=%26&c=d%20e");
        let labels: Vec<_> =
            target.labels.iter().map(|(name, it)| format!("{name}={it}")).collect();
        assert_eq!(labels, ["instance=me", "job=other", "kept=x"]);
        assert_eq!((target.interval.as_secs(), target.timeout.as_secs()), (90, 1));
        let relabelled = one("static_configs: [{targets: ['a;b:9']}], relabel_configs: [\
             {source_labels: [__address__], regex: '(.*);(.*)', target_label: __address__, \
             replacement: $2}, {source_labels: [__address__], target_label: __param_target}]");
        assert_eq!(relabelled.url(), "http://b:9/metrics?target=b%3A9");
        let empty = one("static_configs: [{targets: [h], labels: {__scheme__: '', job: ''}}]");
        assert_eq!((empty.url(), &*empty.labels["job"]), ("http://h/metrics".to_owned(), "j"));
    }

    #[test]
    fn what_can_not_be_asked_is_told() {
        for (config, words) in [
            (
                "static_configs: [{targets: [h], labels: {__address__: x}}], relabel_configs: [{target_label: __address__, replacement: ''}]",
                "as its address",
            ),
            (
                "static_configs: [{targets: [h], labels: {__scrape_interval__: soon}}]",
                "not a duration",
            ),
            ("static_configs: [{targets: [h], labels: {__scrape_timeout__: 2m}}]", "longer than"),
        ] {
            let why = of(config).unwrap_err();
            assert!(why.contains(words) && why.contains("job \"j\""), "{why}");
        }
        let (targets, _) = of("target_limit: 1, static_configs: [{targets: [a, b]}]").unwrap();
        assert!(targets.iter().all(|it| it.fault.as_deref().unwrap().contains("target_limit")));
    }

    #[test]
    fn a_target_stays_when_others_come() {
        let before = one("static_configs: [{targets: [a]}]");
        let after = one("static_configs: [{targets: [a, b]}]");
        assert_eq!(before.key(), after.key());
        let other = one("honor_labels: true, static_configs: [{targets: [a]}]");
        assert_ne!(before.key(), other.key());
    }

    #[test]
    fn durations_are_printed_as_prometheus_prints_them() {
        for text in ["15s", "1m30s", "1h", "1d", "1d1h", "500ms", "1s500ms"] {
            let nanos = plinth_promql::duration(text).unwrap();
            let words = in_words(Duration::from_nanos(nanos as u64));
            assert_eq!(words, if text == "1d1h" { "25h" } else { text });
        }
    }
}
