//! What is to be scraped, as a configuration of Prometheus says it: `global` and `scrape_configs`.
//!
//! Sections that are about something else (`rule_files`, `alerting`, `remote_write` ..) are passed
//! over, so a Prometheus' own file can be given as it is. Within what is about scraping nothing is
//! passed over: a field that isn't known is told, with its place.

use super::relabel::{Action, Labels, Rule, regex};
use plinth_promql::is_plain_label;
use plinth_rules::Place;
use plinth_rules::yaml::{self, Kind, Node};
use plinth_series::ingest::ScrapedHistograms;
use std::path::PathBuf;
use std::time::Duration;

/// What is usual, as with Prometheus.
const INTERVAL: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(10);
const LONGER: &str = "scrape_timeout is longer than scrape_interval";
/// Below it nothing else would be done.
const LEAST: Duration = Duration::from_millis(100);
/// Sections of a file that are about something else.
const PASSED_OVER: [&str; 8] = [
    "rule_files",
    "alerting",
    "remote_write",
    "remote_read",
    "storage",
    "tracing",
    "otlp",
    "runtime",
];

/// What `global` says of rules, and of what is sent elsewhere.
pub(super) const NOT_OF_SCRAPING: [&str; 4] =
    ["evaluation_interval", "rule_query_offset", "external_labels", "query_log_file"];

/// Targets that are scraped alike.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) asks: Asks,
    pub(super) keeps: Keeps,
    pub(super) limits: Limits,
    pub(super) of: Whom,
}

/// How targets are asked.
#[derive(Clone, Debug)]
pub(super) struct Asks {
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    pub(super) scheme: String,
    pub(super) path: String,
    pub(super) parameters: Vec<(String, String)>,
    /// Whether messages are asked for first: only they have native histograms.
    pub(super) messages: bool,
    /// Whether answers may be compressed.
    pub(super) compressed: bool,
    pub(super) credentials: Credentials,
    /// Certificates of authorities, if not those that the system trusts.
    pub(super) trusted: Option<PathBuf>,
}

/// What is kept of an answer, and with which labels.
#[derive(Clone, Debug)]
pub(super) struct Keeps {
    pub(super) honors_labels: bool,
    pub(super) honors_times: bool,
    /// Whether series end whose samples say of when they are.
    pub(super) tracks_times: bool,
    pub(super) histograms: ScrapedHistograms,
    pub(super) relabel: Vec<Rule>,
}

/// How much there may be; 0 is any number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Limits {
    pub(super) body: usize,
    pub(super) samples: usize,
    pub(super) labels: usize,
    pub(super) name_bytes: usize,
    pub(super) value_bytes: usize,
    pub(super) targets: usize,
}

/// Whom a job is about.
#[derive(Clone, Debug, Default)]
pub(super) struct Whom {
    pub(super) groups: Vec<Group>,
    /// Files that name targets; the last part of a path may have a `*` for any text.
    pub(super) files: Vec<PathBuf>,
    pub(super) relabel: Vec<Rule>,
}

/// What a request says of who asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Credentials {
    None,
    Basic { name: String, password: Secret },
    Bearer { kind: String, secret: Secret },
}

/// A secret, or the file that has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Secret {
    Text(String),
    File(PathBuf),
}

/// Targets with labels.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Group {
    pub(super) targets: Vec<String>,
    pub(super) labels: Labels,
}

/// The jobs of a file; paths in it are below `root`.
///
/// # Errors
/// All that is wrong with it, a line each.
pub(super) fn parse(file: &str, text: &str, root: &std::path::Path) -> Result<Vec<Job>, String> {
    let mut reader = Reader { file, root, faults: Vec::new() };
    let jobs = match yaml::parse(text) {
        Ok(None) => Vec::new(),
        Ok(Some(node)) => reader.root(node),
        Err((place, why)) => {
            reader.wrong(place, why);
            Vec::new()
        }
    };
    if reader.faults.is_empty() { Ok(jobs) } else { Err(reader.faults.join("\n")) }
}

/// The groups of a file that names targets.
///
/// # Errors
/// What is wrong with it.
pub(super) fn groups(file: &str, text: &str) -> Result<Vec<Group>, String> {
    let mut reader = Reader { file, root: "".as_ref(), faults: Vec::new() };
    let groups = match yaml::parse(text) {
        Ok(None) => Vec::new(),
        Ok(Some(node)) => reader.groups(node, "a file of targets"),
        Err((place, why)) => {
            reader.wrong(place, why);
            Vec::new()
        }
    };
    if reader.faults.is_empty() { Ok(groups) } else { Err(reader.faults.join("\n")) }
}

/// An interval, a time-out, limits, and what is said of histograms, of jobs that say nothing of
/// them.
type Usual = (Duration, Duration, Limits, Histograms);

/// What is said of histograms, in words of newer and of older files.
#[derive(Clone, Copy, Default)]
struct Histograms {
    native: Option<bool>,
    /// Whether messages are among the formats that are named.
    messages: bool,
    classic_too: bool,
}

impl Histograms {
    /// Whoever names the format alone means what it is for.
    fn taken(self) -> ScrapedHistograms {
        let native = self.native.unwrap_or(self.messages);
        ScrapedHistograms { native, classic_too: self.classic_too }
    }
}

/// A file being read, and what was wrong so far.
struct Reader<'a> {
    file: &'a str,
    root: &'a std::path::Path,
    faults: Vec<String>,
}

impl Reader<'_> {
    fn wrong(&mut self, place: Place, why: impl AsRef<str>) {
        let why = why.as_ref();
        self.faults.push(format!("{}:{}:{}: {why}", self.file, place.line, place.column));
    }

    fn fields(&mut self, node: Node, what: &str) -> Vec<(Node, Node)> {
        match node.kind {
            Kind::Map(pairs) => pairs,
            Kind::Null => Vec::new(),
            other => {
                self.wrong(node.place, format!("{what} is a mapping, not {}", other.word()));
                Vec::new()
            }
        }
    }

    fn items(&mut self, node: Node, what: &str) -> Vec<Node> {
        match node.kind {
            Kind::List(items) => items,
            Kind::Null => Vec::new(),
            other => {
                self.wrong(node.place, format!("{what} is a list, not {}", other.word()));
                Vec::new()
            }
        }
    }

    fn text(&mut self, node: Node, what: &str) -> String {
        match node.kind {
            Kind::Text(text) => text,
            Kind::Null => String::new(),
            other => {
                self.wrong(node.place, format!("{what} is a text, not {}", other.word()));
                String::new()
            }
        }
    }

    fn texts(&mut self, node: Node, what: &str) -> Vec<String> {
        let items = self.items(node, what);
        items.into_iter().map(|item| self.text(item, what)).collect()
    }

    fn flag(&mut self, node: Node, what: &str) -> bool {
        let place = node.place;
        match self.text(node, what).as_str() {
            "true" => true,
            "false" => false,
            other => {
                self.wrong(place, format!("{what} is true or false, not {other:?}"));
                false
            }
        }
    }

    fn duration(&mut self, node: Node, what: &str) -> Duration {
        let place = node.place;
        let text = self.text(node, what);
        let nanos = plinth_promql::duration(&text).and_then(|nanos| u64::try_from(nanos).ok());
        match nanos.map(Duration::from_nanos).filter(|duration| *duration >= LEAST) {
            Some(duration) => duration,
            None => {
                self.wrong(place, format!("{what} is a duration such as 15s, not {text:?}"));
                INTERVAL
            }
        }
    }

    /// A number, perhaps of `KB` and so on.
    fn number(&mut self, node: Node, what: &str) -> usize {
        const UNITS: [(&str, usize); 8] = [
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("KB", 1 << 10),
            ("MB", 1 << 20),
            ("GB", 1 << 30),
            ("B", 1),
            ("", 1),
        ];
        let place = node.place;
        let text = self.text(node, what);
        let number = UNITS.iter().find_map(|(unit, scale)| {
            text.strip_suffix(*unit)?.trim().parse::<usize>().ok()?.checked_mul(*scale)
        });
        number.unwrap_or_else(|| {
            self.wrong(place, format!("{what} is a number, not {text:?}"));
            0
        })
    }

    fn path(&mut self, node: Node, what: &str) -> PathBuf {
        self.root.join(self.text(node, what))
    }

    fn unknown(&mut self, key: &Node, of: &str) {
        self.wrong(key.place, format!("field {:?} is not known in {of}", key.name()));
    }

    fn root(&mut self, node: Node) -> Vec<Job> {
        let fields = self.fields(node, "a configuration");
        let mut usual = (INTERVAL, TIMEOUT, Limits::default(), Histograms::default());
        let mut configs = Vec::new();
        for (key, value) in fields {
            match key.name() {
                "global" => usual = self.global(value),
                "scrape_configs" => configs = self.items(value, "scrape_configs"),
                other if PASSED_OVER.contains(&other) => {}
                _ => self.unknown(&key, "a configuration"),
            }
        }
        let mut jobs: Vec<Job> = Vec::new();
        for config in configs {
            let place = config.place;
            let job = self.job(config, usual);
            if jobs.iter().any(|known| known.name == job.name) {
                self.wrong(place, format!("there are two jobs {:?}", job.name));
            }
            jobs.push(job);
        }
        jobs
    }

    fn global(&mut self, node: Node) -> Usual {
        let (mut interval, mut timeout, mut limits) = (INTERVAL, None, Limits::default());
        let mut histograms = Histograms::default();
        let place = node.place;
        for (key, value) in self.fields(node, "global") {
            match key.name() {
                "scrape_interval" => interval = self.duration(value, "scrape_interval"),
                "scrape_timeout" => timeout = Some(self.duration(value, "scrape_timeout")),
                other if NOT_OF_SCRAPING.contains(&other) => {}
                name => {
                    let rest = self
                        .limit(&mut limits, name, value)
                        .and_then(|value| self.histogram(&mut histograms, name, value));
                    if rest.is_some() {
                        self.unknown(&key, "global");
                    }
                }
            }
        }
        if timeout.is_some_and(|timeout| timeout > interval) {
            self.wrong(place, LONGER);
        }
        (interval, timeout.unwrap_or(TIMEOUT).min(interval), limits, histograms)
    }

    fn job(&mut self, node: Node, usual: Usual) -> Job {
        let (interval, timeout, limits, mut histograms) = usual;
        let place = node.place;
        let asks = Asks {
            interval,
            timeout,
            scheme: "http".to_owned(),
            path: "/metrics".to_owned(),
            parameters: Vec::new(),
            messages: false,
            compressed: true,
            credentials: Credentials::None,
            trusted: None,
        };
        let keeps = Keeps {
            honors_labels: false,
            honors_times: true,
            tracks_times: false,
            histograms: ScrapedHistograms::default(),
            relabel: Vec::new(),
        };
        let mut job = Job { name: String::new(), asks, keeps, limits, of: Whom::default() };
        let mut own_timeout = None;
        for (key, value) in self.fields(node, "a job") {
            let name = key.name();
            let rest = match name {
                "job_name" => {
                    job.name = self.text(value, name);
                    None
                }
                "scrape_timeout" => {
                    own_timeout = Some(self.duration(value, name));
                    None
                }
                _ => self
                    .ask(&mut job.asks, name, value)
                    .and_then(|value| self.keep(&mut job.keeps, name, value))
                    .and_then(|value| self.limit(&mut job.limits, name, value))
                    .and_then(|value| self.histogram(&mut histograms, name, value))
                    .and_then(|value| self.whom(&mut job.of, name, value)),
            };
            if rest.is_some() {
                self.unknown(&key, "a job");
            }
        }
        job.keeps.histograms = histograms.taken();
        job.asks.messages = job.keeps.histograms.native || histograms.messages;
        if job.name.is_empty() {
            self.wrong(place, "a job has no job_name");
        }
        let interval = job.asks.interval;
        match own_timeout {
            Some(timeout) if timeout > interval => self.wrong(place, LONGER),
            Some(timeout) => job.asks.timeout = timeout,
            None => job.asks.timeout = job.asks.timeout.min(interval),
        }
        job
    }

    /// Takes a field of how targets are asked; gives back the value of another one.
    fn ask(&mut self, asks: &mut Asks, name: &str, value: Node) -> Option<Node> {
        let place = value.place;
        match name {
            "scrape_interval" => asks.interval = self.duration(value, name),
            "metrics_path" => asks.path = self.text(value, name),
            "scheme" => {
                asks.scheme = self.text(value, name);
                if !matches!(asks.scheme.as_str(), "http" | "https") {
                    self.wrong(place, "scheme is http or https");
                }
            }
            "params" => {
                for (name, values) in self.fields(value, name) {
                    let values = self.texts(values, "params");
                    let name = name.name().to_owned();
                    asks.parameters.extend(values.into_iter().map(|it| (name.clone(), it)));
                }
            }
            "enable_compression" => asks.compressed = self.flag(value, name),
            "basic_auth" | "authorization" => {
                if asks.credentials != Credentials::None {
                    self.wrong(place, "basic_auth and authorization exclude each other");
                }
                asks.credentials = self.credentials(name, value);
            }
            "tls_config" => asks.trusted = self.tls(value),
            _ => return Some(value),
        }
        None
    }

    /// The same of what is kept.
    fn keep(&mut self, keeps: &mut Keeps, name: &str, value: Node) -> Option<Node> {
        match name {
            "honor_labels" => keeps.honors_labels = self.flag(value, name),
            "honor_timestamps" => keeps.honors_times = self.flag(value, name),
            "track_timestamps_staleness" => keeps.tracks_times = self.flag(value, name),
            "metric_relabel_configs" => keeps.relabel = self.rules(value, name),
            _ => return Some(value),
        }
        None
    }

    /// The same of how much there may be.
    fn limit(&mut self, limits: &mut Limits, name: &str, value: Node) -> Option<Node> {
        let limit = match name {
            "body_size_limit" => &mut limits.body,
            "sample_limit" => &mut limits.samples,
            "label_limit" => &mut limits.labels,
            "label_name_length_limit" => &mut limits.name_bytes,
            "label_value_length_limit" => &mut limits.value_bytes,
            "target_limit" => &mut limits.targets,
            _ => return Some(value),
        };
        *limit = self.number(value, name);
        None
    }

    /// The same of histograms.
    fn histogram(&mut self, of: &mut Histograms, name: &str, value: Node) -> Option<Node> {
        const MESSAGES: &str = "PrometheusProto";
        match name {
            "scrape_native_histograms" => of.native = Some(self.flag(value, name)),
            "always_scrape_classic_histograms" => of.classic_too = self.flag(value, name),
            "scrape_protocols" => {
                let place = value.place;
                of.messages = self.texts(value, name).iter().any(|known| known == MESSAGES);
                if !of.messages {
                    let why = format!(
                        "scrape_protocols is known with {MESSAGES} alone, which asks for native histograms"
                    );
                    self.wrong(place, why);
                }
            }
            _ => return Some(value),
        }
        None
    }

    /// The same of who is asked.
    fn whom(&mut self, whom: &mut Whom, name: &str, value: Node) -> Option<Node> {
        match name {
            "static_configs" => whom.groups = self.groups(value, name),
            "file_sd_configs" => whom.files = self.files(value),
            "relabel_configs" => whom.relabel = self.rules(value, name),
            _ => return Some(value),
        }
        None
    }

    fn groups(&mut self, node: Node, what: &str) -> Vec<Group> {
        let mut groups = Vec::new();
        for item in self.items(node, what) {
            let mut group = Group::default();
            for (key, value) in self.fields(item, what) {
                match key.name() {
                    "targets" => {
                        for target in self.items(value, "targets") {
                            let place = target.place;
                            let target = self.text(target, "targets");
                            if target.is_empty() || target.contains('/') {
                                self.wrong(place, format!("a target is HOST:PORT, not {target:?}"));
                            }
                            group.targets.push(target);
                        }
                    }
                    "labels" => {
                        for (name, value) in self.fields(value, "labels") {
                            if !is_plain_label(name.name()) {
                                self.no_label(name.place, name.name());
                            }
                            let text = self.text(value, "labels");
                            group.labels.insert(name.name().to_owned(), text);
                        }
                    }
                    _ => self.unknown(&key, what),
                }
            }
            groups.push(group);
        }
        groups
    }

    fn files(&mut self, node: Node) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for item in self.items(node, "file_sd_configs") {
            for (key, value) in self.fields(item, "file_sd_configs") {
                match key.name() {
                    "files" => {
                        for file in self.items(value, "files") {
                            let place = file.place;
                            let file = self.text(file, "files");
                            let before = file.rsplit_once('/').map_or("", |(dir, _)| dir);
                            if before.contains('*') || file.matches('*').count() > 1 {
                                let why = "a file has one * at most, and that behind the last /";
                                self.wrong(place, why);
                            }
                            files.push(self.root.join(file));
                        }
                    }
                    // They are looked at every fifteen seconds.
                    "refresh_interval" => {
                        self.duration(value, "refresh_interval");
                    }
                    _ => self.unknown(&key, "file_sd_configs"),
                }
            }
        }
        files
    }

    fn no_label(&mut self, place: Place, name: &str) {
        self.wrong(place, format!("{name:?} is no name of a label: a letter or _ begins it, letters, digits and _ follow"));
    }

    fn credentials(&mut self, kind: &str, node: Node) -> Credentials {
        let place = node.place;
        let (mut name, mut word, mut secret) = (String::new(), "Bearer".to_owned(), None);
        for (key, value) in self.fields(node, kind) {
            match (kind, key.name()) {
                ("basic_auth", "username") => name = self.text(value, "username"),
                ("basic_auth", "password") | ("authorization", "credentials") => {
                    secret = Some(Secret::Text(self.text(value, key.name())));
                }
                ("basic_auth", "password_file") | ("authorization", "credentials_file") => {
                    secret = Some(Secret::File(self.path(value, key.name())));
                }
                ("authorization", "type") => word = self.text(value, "type"),
                _ => self.unknown(&key, kind),
            }
        }
        let is_plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
        if kind == "authorization" && (!is_plain(&word) || word.eq_ignore_ascii_case("basic")) {
            self.wrong(place, "the type is a word, and not Basic, which is basic_auth");
        }
        match (kind, secret) {
            ("basic_auth", secret) => {
                let password = secret.unwrap_or(Secret::Text(String::new()));
                Credentials::Basic { name, password }
            }
            (_, Some(secret)) => Credentials::Bearer { kind: word, secret },
            (_, None) => {
                self.wrong(place, "credentials or credentials_file are expected");
                Credentials::None
            }
        }
    }

    fn tls(&mut self, node: Node) -> Option<PathBuf> {
        let mut trusted = None;
        for (key, value) in self.fields(node, "tls_config") {
            match key.name() {
                "ca_file" => trusted = Some(self.path(value, "ca_file")),
                _ => self.unknown(&key, "tls_config, of which ca_file is carried out"),
            }
        }
        trusted
    }

    fn rules(&mut self, node: Node, what: &str) -> Vec<Rule> {
        let items = self.items(node, what);
        items.into_iter().filter_map(|item| self.rule(item, what)).collect()
    }

    fn rule(&mut self, node: Node, what: &str) -> Option<Rule> {
        let place = node.place;
        let mut rule = Rule {
            source: Vec::new(),
            separator: ";".to_owned(),
            target: String::new(),
            regex: regex("(.*)").ok()?,
            modulus: 0,
            replacement: "$1".to_owned(),
            action: Action::Replace,
        };
        for (key, value) in self.fields(node, what) {
            let place = value.place;
            match key.name() {
                "source_labels" => rule.source = self.texts(value, "source_labels"),
                "separator" => rule.separator = self.text(value, "separator"),
                "target_label" => rule.target = self.text(value, "target_label"),
                "replacement" => rule.replacement = self.text(value, "replacement"),
                "modulus" => rule.modulus = self.number(value, "modulus") as u64,
                "regex" => match regex(&self.text(value, "regex")) {
                    Ok(found) => rule.regex = found,
                    Err(why) => self.wrong(place, format!("regex: {why}")),
                },
                "action" => {
                    let name = self.text(value, "action");
                    match Action::of(&name) {
                        Some(action) => rule.action = action,
                        None => self.wrong(place, format!("there is no action {name:?}")),
                    }
                }
                _ => self.unknown(&key, what),
            }
        }
        let is_template = rule.action == Action::Replace && rule.target.contains('$');
        if rule.action.needs_target() && rule.target.is_empty() {
            self.wrong(place, "this action needs a target_label");
        } else if rule.action.needs_target() && !is_template && !is_plain_label(&rule.target) {
            self.no_label(place, &rule.target);
        }
        if rule.action == Action::HashMod && rule.modulus == 0 {
            self.wrong(place, "hashmod needs a modulus above 0");
        }
        Some(rule)
    }
}
