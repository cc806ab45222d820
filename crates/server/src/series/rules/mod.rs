//! Rules over the series of this server: read at the start, evaluated by whoever owns the series,
//! and told to Alertmanager.
//!
//! ```text
//!   files --read, and again when they change--> groups --evaluate.rs--> points, alerts --notify.rs--> Alertmanagers
//!                                                 |  ^
//!                                                 v  | what is kept beside the series, of whoever evaluated before
//!                                               the series' database
//! ```
//! Evaluation is a task of its own, on a thread of its own, so it takes no time of those that serve
//! keys; it begins when this server comes to own the series and ends when it doesn't any more.
//! Whatever it writes is fenced as all else of the owner's, so what two servers evaluate at the
//! same time is written once. What `/api/v1/rules` shows is what the last evaluations left.

mod evaluate;
mod measured;
mod notify;
mod read;
mod store;

use super::Hub;
use crate::config::RulesConfig;
use crate::door::Door;
use crate::series::events;
use plinth_env::sync::race;
use plinth_env::{Env, Signal, Task};
use plinth_rules::{GroupStatus, Options, Outcome, Outside};
use plinth_series::form_pairs;
use plinth_types::Result;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long it is until evaluation that failed begins again.
const PAUSE: Duration = Duration::from_secs(10);

/// What evaluates rules, and what it has come to.
pub(crate) struct Rules {
    files: read::Files,
    options: Options,
    external_labels: BTreeMap<String, String>,
    /// By file and name of the group.
    statuses: Mutex<BTreeMap<String, Arc<GroupStatus>>>,
    notifiers: Vec<Arc<notify::Notifier>>,
    counts: Counts,
    /// What is wrong with the files now, as it was told.
    told: Mutex<Option<String>>,
    stop: Signal,
    is_stopping: AtomicBool,
}

/// What happened since the start.
#[derive(Default)]
struct Counts {
    evaluations: AtomicU64,
    failures: AtomicU64,
    missed: AtomicU64,
    points: AtomicU64,
    /// Microseconds that the last evaluation of a group took.
    last_micros: AtomicU64,
    /// Times that state couldn't be kept.
    unsaved: AtomicU64,
}

/// Checks what [`Rules::open`] would.
pub(super) async fn check(env: &Env, config: &RulesConfig) -> Result<()> {
    Rules::open(env, config, None).await.map(drop)
}

impl Rules {
    /// Reads the files; `None` if there are none.
    ///
    /// # Errors
    /// All that is wrong with them, or with the address of an Alertmanager.
    pub(super) async fn open(
        env: &Env,
        config: &RulesConfig,
        http: Option<&Door>,
    ) -> Result<Option<Self>> {
        if config.files.is_empty() {
            return Ok(None);
        }
        let here = http.map(|door| format!("http://{}", door.local_address())).unwrap_or_default();
        let url = config.external_url.clone().unwrap_or(here);
        let outside = Outside::new(&url, config.external_labels.clone());
        let mut notifiers = Vec::new();
        for url in &config.alertmanagers {
            let trusted = config.alertmanager_ca.as_deref();
            notifiers.push(Arc::new(notify::Notifier::open(env, url, trusted).await?));
        }
        Ok(Some(Self {
            files: read::Files::open(env, &config.files).await?,
            external_labels: config.external_labels.clone(),
            options: Options { outside, ..Options::default() },
            statuses: Mutex::default(),
            notifiers,
            counts: Counts::default(),
            told: Mutex::default(),
            stop: Signal::new(),
            is_stopping: AtomicBool::new(false),
        }))
    }

    /// Evaluates nothing more, and tells nobody more.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.stop.notify();
        self.notifiers.iter().for_each(|notifier| notifier.stop());
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Begins a task again whenever it fails, until the server stops. One that panics is a fault of
    /// ours, and nobody would miss it before an alert does that doesn't come.
    async fn keep_on(&self, env: &Env, begin: impl Fn() -> Task) {
        while let Err(why) = begin().await
            && !self.is_stopping()
        {
            self.counts.failures.fetch_add(1, Ordering::Relaxed);
            events::rules_failed(&why);
            race(self.stop.wait(), env.sleep(PAUSE)).await;
            if self.is_stopping() {
                return;
            }
        }
    }

    fn told(&self) -> MutexGuard<'_, Option<String>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the files have changed, and what stands in them now makes no rules.
    fn is_outdated(&self) -> bool {
        self.told().is_some()
    }

    /// Reads the files again; whether they have changed, or make sense again, and hold from now on.
    /// If they make none, that is told once.
    async fn read_again(&self, env: &Env) -> bool {
        let changed = self.files.changed(env).await;
        let mut told = self.told();
        match changed {
            Ok(is_changed) => {
                // What was put off while they made no sense is to be done, also if they are as they
                // were before.
                let made_none = told.take().is_some();
                let holds_anew = is_changed || made_none;
                if holds_anew {
                    events::rules_changed();
                }
                holds_anew
            }
            Err(why) => {
                if told.as_ref() != Some(&why) {
                    events::rules_not_read(&why);
                }
                *told = Some(why);
                false
            }
        }
    }

    /// Notes what an evaluation came to.
    fn note(&self, key: &str, status: GroupStatus, outcome: &Outcome) {
        let micros = status.last.as_ref().map_or(0, |last| last.took.as_micros());
        self.show(key, status);
        let counts = &self.counts;
        counts.last_micros.store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Relaxed);
        for (count, more) in [
            (&counts.evaluations, outcome.evaluations),
            (&counts.failures, outcome.failures),
            (&counts.missed, outcome.missed),
            (&counts.points, outcome.points),
        ] {
            count.fetch_add(more, Ordering::Relaxed);
        }
    }

    fn show(&self, key: &str, status: GroupStatus) {
        let mut statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        statuses.insert(key.to_string(), Arc::new(status));
    }

    fn show_nothing(&self) {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn statuses(&self) -> Vec<Arc<GroupStatus>> {
        let statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        statuses.values().cloned().collect()
    }

    /// The files that name them.
    pub(super) fn files(&self) -> impl Iterator<Item = String> {
        self.files.paths().iter().map(|path| path.display().to_string())
    }

    /// Labels that alerts get unless they have them.
    pub(super) fn external_labels(&self) -> &BTreeMap<String, String> {
        &self.external_labels
    }

    /// Where alerts are sent.
    pub(super) fn alertmanagers(&self) -> impl Iterator<Item = &str> {
        self.notifiers.iter().map(|notifier| notifier.url())
    }

    /// What a request of Prometheus' interface is answered, if it is about rules.
    pub(super) fn answer(&self, path: &str, encoded: &[&[u8]]) -> Option<(u16, String)> {
        let data = match path.strip_prefix("/api/v1/")? {
            "alerts" => Ok(plinth_rules::alerts(&self.statuses())),
            "rules" => {
                let parameters: Vec<(String, String)> =
                    encoded.iter().flat_map(|part| form_pairs(part)).collect();
                plinth_rules::rules(&self.statuses(), &parameters)
            }
            "alertmanagers" => {
                let active = self.notifiers.iter().map(|notifier| json!({ "url": notifier.url() }));
                let active: Vec<_> = active.collect();
                Ok(json!({ "activeAlertmanagers": active, "droppedAlertmanagers": [] }))
            }
            _ => return None,
        };
        Some(match data {
            Ok(data) => (200, json!({ "status": "success", "data": data }).to_string()),
            Err(why) => {
                let text = json!({ "status": "error", "errorType": "bad_data", "error": why });
                (400, text.to_string())
            }
        })
    }
}

/// Whether a request is about rules, of which whoever evaluates them knows.
pub(super) fn owns(path: &str) -> bool {
    matches!(path.strip_prefix("/api/v1/"), Some("alerts" | "rules" | "alertmanagers"))
}

/// Begins to evaluate, if there are rules.
pub(super) fn start(hub: &Arc<Hub>) {
    let Some(rules) = &hub.duties.rules else { return };
    drop(hub.env.spawn_network("watch rules", evaluate_on(hub.clone())));
    for notifier in &rules.notifiers {
        let sending = notify::run(hub.env.clone(), notifier.clone(), rules.options.outside.clone());
        drop(hub.env.spawn_network("tell alertmanager", sending));
    }
}

/// Evaluates until the server stops.
async fn evaluate_on(hub: Arc<Hub>) {
    let Some(rules) = &hub.duties.rules else { return };
    // On a thread of its own: an expression may take a second of a processor's time.
    let begin = || hub.env.spawn("plinth-rules", evaluate::run(hub.clone()));
    rules.keep_on(&hub.env, begin).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::simulated::Simulation;

    fn opened(sim: &Simulation, env: &Env) -> Rules {
        sim.run_until(async {
            env.files().replace("/rules.yml", b"groups: []").await.unwrap();
            let config = RulesConfig { files: vec!["/rules.yml".into()], ..RulesConfig::default() };
            Rules::open(env, &config, None).await.unwrap().unwrap()
        })
    }

    /// A template whose function had no argument made the task panic: nothing was evaluated from
    /// then on, and nobody was told.
    #[test]
    fn what_panics_is_begun_again() {
        let sim = Simulation::new(1);
        sim.tolerate_panics(true);
        let env = sim.process("server");
        let rules = opened(&sim, &env);
        let begun = Arc::new(AtomicU64::new(0));
        let begin = || {
            let times = begun.fetch_add(1, Ordering::Relaxed);
            env.spawn("fails twice", async move { assert!(times >= 2, "as it is to be tested") })
        };
        sim.run_until(rules.keep_on(&env, begin));
        assert_eq!(begun.load(Ordering::Relaxed), 3);
        assert_eq!(rules.counts.failures.load(Ordering::Relaxed), 2, "an alert is on these");
        assert!(sim.now() >= 2 * PAUSE, "it isn't begun in a loop");
    }

    #[test]
    fn nothing_is_begun_again_once_the_server_stops() {
        let sim = Simulation::new(2);
        sim.tolerate_panics(true);
        let env = sim.process("server");
        let rules = opened(&sim, &env);
        let begun = AtomicU64::new(0);
        let begin = || {
            begun.fetch_add(1, Ordering::Relaxed);
            rules.stop();
            env.spawn("fails", async { panic!("as it is to be tested") })
        };
        sim.run_until(rules.keep_on(&env, begin));
        assert_eq!(begun.load(Ordering::Relaxed), 1);
    }
}
