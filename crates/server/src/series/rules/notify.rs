//! Telling an Alertmanager of alerts, by its API of version 2.
//!
//! Alerts wait in a queue of a bounded length. Of one alert the newest word counts, so an
//! Alertmanager that was away hears of each alert once, as it is then. One that fires says until
//! when it is to be believed; if that has passed it is dropped, since a newer word of it comes
//! within a minute. While an Alertmanager can't be told it is tried again, later and later, up to
//! half a minute; what it refuses is dropped, since it would refuse it again. Both are counted as
//! errors. Nothing of this holds up a server that stops.

use crate::series::events;
use crate::series::post::Recipient;
use plinth_env::sync::{First, race};
use plinth_env::{Env, Signal};
use plinth_promql::Labels;
use plinth_rules::{Notice, Outside, posted};
use plinth_types::Result;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Alerts that may wait, and how many of them are sent at a time: as with Prometheus.
const MOST: usize = 10_000;
const AT_ONCE: usize = 256;
/// Where an Alertmanager takes alerts.
const PATH: &str = "/api/v2/alerts";
/// How long what is under way may take when the server stops.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long an Alertmanager may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long it is until another try, at first and at last.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// An Alertmanager, and what it has to be told.
pub(super) struct Notifier {
    recipient: Recipient,
    url: String,
    queue: Mutex<Queue>,
    wake: Signal,
    stop: Signal,
    is_stopping: AtomicBool,
    sent: AtomicU64,
    errors: AtomicU64,
    dropped: AtomicU64,
}

/// Alerts that wait, the oldest first.
#[derive(Default)]
struct Queue {
    next: u64,
    waiting: BTreeMap<u64, Notice>,
    places: HashMap<Labels, u64>,
}

impl Queue {
    /// Puts an alert at the end, or in place of an older word of it. How many had to go for it.
    fn add(&mut self, notice: Notice) -> u64 {
        if let Some(known) = self.places.get(&notice.labels) {
            self.waiting.insert(*known, notice);
            return 0;
        }
        self.places.insert(notice.labels.clone(), self.next);
        self.waiting.insert(self.next, notice);
        self.next += 1;
        let mut gone = 0;
        while self.waiting.len() > MOST
            && let Some((_, oldest)) = self.waiting.pop_first()
        {
            self.places.remove(&oldest.labels);
            gone += 1;
        }
        gone
    }

    /// The first ones, and where they stand; those that nobody would believe any more go. How many
    /// those were.
    fn first(&mut self, now: i64) -> (Vec<(u64, Notice)>, u64) {
        let before = self.waiting.len();
        self.waiting.retain(|_, notice| notice.is_resolved || notice.ends_at > now);
        self.places.retain(|_, place| self.waiting.contains_key(place));
        let first = self.waiting.iter().take(AT_ONCE);
        let first = first.map(|(place, notice)| (*place, notice.clone())).collect();
        (first, (before - self.waiting.len()) as u64)
    }

    /// Takes those away that are done with, unless there is a newer word of them.
    fn done(&mut self, told: &[(u64, Notice)]) {
        for (place, notice) in told {
            if self.waiting.get(place) == Some(notice) {
                self.waiting.remove(place);
                self.places.remove(&notice.labels);
            }
        }
    }
}

impl Notifier {
    /// The Alertmanager at a URL. One behind TLS is trusted if the system trusts it, or the file of
    /// certificates says so.
    ///
    /// # Errors
    /// If it is no such URL; if nobody is trusted.
    pub(super) async fn open(env: &Env, url: &str, trusted: Option<&Path>) -> Result<Self> {
        let recipient = Recipient::open(env, url, trusted).await.map_err(|error| {
            let why = format!("the Alertmanager {url}: {}", error.detail().unwrap_or_default());
            error.with_detail(why)
        })?;
        Ok(Self {
            url: format!("{}{PATH}", recipient.url()),
            recipient,
            queue: Mutex::default(),
            wake: Signal::new(),
            stop: Signal::new(),
            is_stopping: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        })
    }

    /// Where alerts are sent.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It has to be told of these.
    pub(super) fn add(&self, notices: &[Notice]) {
        if notices.is_empty() {
            return;
        }
        let mut queue = self.lock();
        let gone: u64 = notices.iter().map(|notice| queue.add(notice.clone())).sum();
        drop(queue);
        self.dropped.fetch_add(gone, Ordering::Relaxed);
        self.wake.notify();
    }

    /// Somebody else tells it from now on.
    pub(super) fn forget(&self) {
        *self.lock() = Queue::default();
    }

    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.stop.notify();
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Alerts that it took.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// How often it couldn't be told.
    pub(super) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Alerts that it won't be told.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Alerts that wait.
    pub(super) fn waiting(&self) -> u64 {
        self.lock().waiting.len() as u64
    }
}

/// Why alerts were not taken.
enum Refusal {
    /// It would refuse them again.
    Final(String),
    /// It may take them later.
    Away(String),
}

/// Tells an Alertmanager of what there is, until the server stops.
pub(super) async fn run(env: Env, notifier: Arc<Notifier>, outside: Outside) {
    let mut pause = PAUSE;
    let mut is_away = false;
    while !notifier.is_stopping() {
        let now = i64::try_from(env.wall_clock().as_nanos()).unwrap_or(i64::MAX);
        let (first, expired) = notifier.lock().first(now);
        notifier.dropped.fetch_add(expired, Ordering::Relaxed);
        if first.is_empty() {
            race(notifier.stop.wait(), notifier.wake.wait()).await;
            continue;
        }
        let away = match notifier.tell(&env, &first, &outside).await {
            None => return,
            Some(Ok(())) => {
                notifier.sent.fetch_add(first.len() as u64, Ordering::Relaxed);
                None
            }
            Some(Err(Refusal::Final(why))) => {
                notifier.errors.fetch_add(1, Ordering::Relaxed);
                notifier.dropped.fetch_add(first.len() as u64, Ordering::Relaxed);
                events::alerts_refused(notifier.url(), &why);
                None
            }
            Some(Err(Refusal::Away(why))) => Some(why),
        };
        let Some(why) = away else {
            notifier.lock().done(&first);
            pause = PAUSE;
            if std::mem::take(&mut is_away) {
                events::alertmanager_back(notifier.url());
            }
            continue;
        };
        notifier.errors.fetch_add(1, Ordering::Relaxed);
        if !std::mem::replace(&mut is_away, true) {
            events::alertmanager_away(notifier.url(), &why);
        }
        // `tell` may have heard of the end, and it is heard of once.
        if notifier.is_stopping() {
            return;
        }
        race(notifier.stop.wait(), env.sleep(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl Notifier {
    /// Sends alerts, and hears that they were taken; `None` if the server stops before.
    async fn tell(
        &self,
        env: &Env,
        alerts: &[(u64, Notice)],
        outside: &Outside,
    ) -> Option<std::result::Result<(), Refusal>> {
        let notices: Vec<Notice> = alerts.iter().map(|(_, notice)| notice.clone()).collect();
        let asking = self.recipient.post(env, PATH, posted(&notices, outside));
        let stopping = async {
            self.stop.wait().await;
            env.sleep(FAREWELL).await;
        };
        let status = match race(race(asking, stopping), env.sleep(TIMEOUT)).await {
            First::Left(First::Left(Ok(status))) => status,
            First::Left(First::Left(Err(why))) => return Some(Err(Refusal::Away(why))),
            First::Left(First::Right(())) => return None,
            First::Right(()) => {
                return Some(Err(Refusal::Away(format!("no answer within {TIMEOUT:?}"))));
            }
        };
        Some(match status {
            200..=299 => Ok(()),
            // These say that it was too early or too much.
            408 | 425 | 429 => Err(Refusal::Away(format!("status {status}"))),
            400..=499 => Err(Refusal::Final(format!("status {status}"))),
            _ => Err(Refusal::Away(format!("status {status}"))),
        })
    }
}

#[cfg(test)]
mod tests;
