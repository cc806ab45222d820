//! Scraping: asking targets for their measurements, as a Prometheus does, by its configuration.
//!
//! ```text
//!   file --config.rs--> jobs --targets.rs, relabel.rs--> targets --run.rs--> a task each: ask, when it is due
//!     |   files that name targets --^                                          |
//!     +-- looked at again every 15 seconds                                     v
//!                             text, messages --scraped.rs--> points, histograms, exemplars with the target's labels, marks of ends --> the store
//! ```
//!
//! One server of all that share the series scrapes: whoever owns them, or the first part of them.
//! An answer counts as a whole. A series that an answer no longer has, all of a target that can't
//! be asked, and those of one that is no longer named end with Prometheus' mark.

mod config;
mod md5;
mod relabel;
mod run;
mod scraped;
mod targets;

use super::Hub;
use super::bodies::Bodies;
use super::yaml::Yaml;
use plinth_env::{Env, Signal};
use plinth_rules::rfc3339;
use plinth_rules::yaml::{MAX_BYTES, parse};
use plinth_series::form_pairs;
use plinth_types::{Error, Result};
use relabel::Labels;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use targets::{Target, in_words};

/// What scrapes, and what it has come to.
pub(crate) struct Scraping {
    file: PathBuf,
    shown: Mutex<Shown>,
    /// What is remembered of the series of all targets, so that it is bounded.
    names: Bodies,
    /// What is wrong with the files now, as it was told.
    told: Mutex<Option<String>>,
    stop: Signal,
    is_stopping: AtomicBool,
}

/// Targets, and the labels of those that rules drop, with their jobs.
#[derive(Default)]
struct Shown {
    active: Vec<Arc<Scraped>>,
    dropped: Vec<(String, Labels)>,
    configuration: Configuration,
}

/// What a file says of scraping, to be shown.
#[derive(Clone, Default)]
pub(super) struct Configuration {
    pub(super) global: Vec<(String, Yaml)>,
    pub(super) jobs: Vec<Yaml>,
}

impl Configuration {
    /// That of a text that makes sense.
    fn of(text: &str) -> Self {
        let mut all = Self::default();
        let Ok(Some(root)) = parse(text) else { return all };
        let Yaml::Map(sections) = Yaml::shown(&root) else { return all };
        for (name, section) in sections {
            match (name.as_str(), section) {
                ("global", Yaml::Map(fields)) => all.global = fields,
                ("scrape_configs", Yaml::List(jobs)) => all.jobs = jobs,
                _ => {}
            }
        }
        all.global.retain(|(name, _)| !config::NOT_OF_SCRAPING.contains(&name.as_str()));
        all
    }
}

/// A target, and how it went.
struct Scraped {
    target: Target,
    status: Mutex<Status>,
    stop: Signal,
    is_over: AtomicBool,
    /// Whether its series end with it.
    is_marked: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    Unknown,
    Up,
    Down,
}

struct Status {
    health: Health,
    error: Option<String>,
    at: Option<i64>,
    seconds: f64,
}

impl Scraped {
    fn new(target: Target) -> Self {
        let status = Status { health: Health::Unknown, error: None, at: None, seconds: 0.0 };
        Self {
            target,
            status: Mutex::new(status),
            stop: Signal::new(),
            is_over: AtomicBool::new(false),
            is_marked: AtomicBool::new(false),
        }
    }

    fn end(&self, with_marks: bool) {
        self.is_marked.store(with_marks, Ordering::Relaxed);
        self.is_over.store(true, Ordering::Relaxed);
        self.stop.notify();
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn is_marked(&self) -> bool {
        self.is_marked.load(Ordering::Relaxed)
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, status: Status) {
        *self.status() = status;
    }

    /// Notes that points of it are not kept.
    fn refused(&self, count: u64, why: &plinth_series::Error) {
        self.status().error = Some(format!("{count} points are not kept: {why}"));
    }

    fn json(&self) -> Value {
        let (target, status) = (&self.target, self.status());
        let health = match status.health {
            Health::Unknown => "unknown",
            Health::Up => "up",
            Health::Down => "down",
        };
        json!({
            "discoveredLabels": object(&target.discovered),
            "labels": object(&target.labels),
            "scrapePool": target.job.name,
            "scrapeUrl": target.url(),
            "globalUrl": target.url(),
            "lastError": status.error.clone().unwrap_or_default(),
            "lastScrape": status.at.map_or("0001-01-01T00:00:00Z".to_owned(), rfc3339),
            "lastScrapeDuration": status.seconds,
            "health": health,
            "scrapeInterval": in_words(target.interval),
            "scrapeTimeout": in_words(target.timeout),
        })
    }
}

fn object(labels: &Labels) -> Map<String, Value> {
    labels.iter().map(|(name, value)| (name.clone(), json!(value))).collect()
}

/// Who is to be scraped.
struct Plan {
    jobs: usize,
    targets: Vec<Target>,
    dropped: Vec<(String, Labels)>,
    configuration: Configuration,
}

/// Reads a configuration, and the files that it names.
async fn plan(env: &Env, file: &Path) -> std::result::Result<Plan, String> {
    let text = |path: PathBuf| async move {
        let bytes = env.files().read_at_most(&path, MAX_BYTES).await;
        let bytes = bytes.map_err(|why| format!("{}: {why}", path.display()))?;
        String::from_utf8(bytes).map_err(|_| format!("{}: it is no UTF-8", path.display()))
    };
    let root = file.parent().unwrap_or(Path::new(""));
    let said = text(file.to_owned()).await?;
    let jobs = config::parse(&file.display().to_string(), &said, root)?;
    let configuration = Configuration::of(&said);
    let mut plan =
        Plan { jobs: jobs.len(), targets: Vec::new(), dropped: Vec::new(), configuration };
    for job in jobs {
        let mut groups = job.of.groups.clone();
        for file in files(env, &job.of.files).await {
            let text = text(file.clone()).await?;
            groups.extend(config::groups(&file.display().to_string(), &text)?);
        }
        let job = Arc::new(job);
        let (targets, dropped) = targets::targets(&job, &groups)?;
        plan.targets.extend(targets);
        plan.dropped.extend(dropped.into_iter().map(|labels| (job.name.clone(), labels)));
    }
    Ok(plan)
}

/// Files that are there of those that name targets: one that isn't there yet names none yet.
async fn files(env: &Env, named: &[PathBuf]) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for path in named {
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let Some((before, behind)) = name.split_once('*') else {
            if env.files().exists(path).await.unwrap_or(false) {
                all.push(path.clone());
            }
            continue;
        };
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        let is_meant = |name: &String| {
            name.len() >= before.len() + behind.len()
                && name.starts_with(before)
                && name.ends_with(behind)
        };
        let mut found = env.files().list(dir).await.unwrap_or_default();
        found.retain(is_meant);
        found.sort();
        all.extend(found.into_iter().map(|name| dir.join(name)));
    }
    all
}

/// Says what a configuration comes to: how many jobs and targets it has.
///
/// # Errors
/// All that is wrong with it.
pub async fn check_scraping(env: &Env, file: &Path) -> std::result::Result<(usize, usize), String> {
    plan(env, file).await.map(|plan| (plan.jobs, plan.targets.len()))
}

/// Checks the file, if there is one.
///
/// # Errors
/// All that is wrong with it.
pub(super) async fn check(env: &Env, file: Option<&Path>) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    checked(env, file).await.map(drop)
}

async fn checked(env: &Env, file: &Path) -> Result<Plan> {
    plan(env, file).await.map_err(|why| {
        let why = format!("what is to be scraped makes no sense:\n{why}");
        Error::client_invalid_operation().with_detail(why)
    })
}

impl Scraping {
    /// Reads the file; `None` if there is none. What is remembered of targets may come to so many
    /// bytes.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub(super) async fn open(env: &Env, file: Option<&Path>, most: usize) -> Result<Option<Self>> {
        let Some(file) = file else { return Ok(None) };
        let configuration = checked(env, file).await?.configuration;
        Ok(Some(Self {
            file: file.to_owned(),
            names: Bodies::up_to(most),
            shown: Mutex::new(Shown { configuration, ..Shown::default() }),
            told: Mutex::default(),
            stop: Signal::new(),
            is_stopping: AtomicBool::new(false),
        }))
    }

    /// Asks nobody more.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.stop.notify();
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    fn told(&self) -> MutexGuard<'_, Option<String>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show<T>(
        &self,
        running: &BTreeMap<String, (Arc<Scraped>, T)>,
        dropped: Vec<(String, Labels)>,
    ) {
        let active = running.values().map(|(scraped, _)| scraped.clone()).collect();
        let mut shown = self.shown();
        (shown.active, shown.dropped) = (active, dropped);
    }

    /// Notes what the file says from now on.
    fn hold(&self, configuration: Configuration) {
        self.shown().configuration = configuration;
    }

    /// What the file said when it last made sense.
    pub(super) fn configuration(&self) -> Configuration {
        self.shown().configuration.clone()
    }

    /// What a request of Prometheus' interface is answered, if it is about targets.
    pub(super) fn answer(&self, path: &str, encoded: &[&[u8]]) -> Option<(u16, String)> {
        if !owns(path) {
            return None;
        }
        let pairs: Vec<(String, String)> =
            encoded.iter().flat_map(|part| form_pairs(part)).collect();
        let get = |name: &str| {
            pairs.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
        };
        let (state, pool) = (get("state").unwrap_or("any"), get("scrapePool").unwrap_or(""));
        let shown = self.shown();
        let is_of = |job: &str| pool.is_empty() || pool == job;
        let active = shown.active.iter().filter(|it| is_of(&it.target.job.name));
        let active: Vec<Value> =
            active.filter(|_| state != "dropped").map(|scraped| scraped.json()).collect();
        let dropped = shown.dropped.iter().filter(|(job, _)| is_of(job));
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        dropped.clone().for_each(|(job, _)| *counts.entry(job.as_str()).or_default() += 1);
        let dropped: Vec<Value> = dropped
            .filter(|_| state != "active")
            .map(|(job, it)| json!({ "discoveredLabels": object(it), "scrapePool": job }))
            .collect();
        let data = json!({
            "activeTargets": active,
            "droppedTargets": dropped,
            "droppedTargetCounts": counts,
        });
        Some((200, json!({ "status": "success", "data": data }).to_string()))
    }
}

/// Whether a request is about targets, of which whoever scrapes them knows.
pub(super) fn owns(path: &str) -> bool {
    path == "/api/v1/targets"
}

/// Begins to scrape, if there is anything to be.
pub(super) fn start(hub: &Arc<Hub>) {
    if hub.duties.scraping.is_some() {
        // On a thread of its own: it reads files.
        drop(hub.env.spawn("plinth-scrape", run::run(hub.clone())));
    }
}
