//! Failover: three servers, a client that commits all the time, and one thing after the other that
//! happens to whoever leads.
//!
//! ```text
//!   commits of one client   | | | | | |                          | | | |          | | |
//!   the leader               ....... killed .................... started again .......
//!                                     <------ the pause ------->
//! ```
//! The pause is the longest time between two acknowledged commits from the moment at which
//! something happens until the server is back and commits go on; so whatever its return costs is in
//! it too. The client is one of Plinth's own, in a loop of retries, and knows nothing.

use super::{Group, Workload};
use crate::figures;
use crate::host::{Cluster, Mishap};
use crate::load::lock;
use crate::outcome::{Figure, Outcome};
use crate::place::Place;
use crate::unit::Unit;
use crate::{Bench, Error, Result, words};
use plinth_client::Database;
use plinth_env::{Env, Task, block_on};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Pauses of clients when something happens to the server that leads.
pub const FAILOVER: Workload = Workload {
    name: "failover",
    about: "three servers: the longest pause of a client that commits all the time, when the one that leads is killed, stopped, cut off, ended",
    group: Group::Own,
    long: true,
    run: failover,
};

/// Below the database's own directory, so that it is on the same disk.
const DIRECTORY: &str = "plinth-bench-failover";
const SERVERS: usize = 3;
/// So many commits in a row say that all goes well.
const STEADY: usize = 20;
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(5);
/// How long commits may be waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Upper ends of the histogram's classes, in milliseconds.
const CLASSES: [u64; 10] = [10, 20, 50, 100, 200, 400, 1000, 2000, 4000, 8000];

/// What happens, in words, and what the pauses are held against.
const MISHAPS: [(Mishap, &str, figures::Target); 4] = [
    (Mishap::Killed, "killed", figures::FAILOVER),
    (Mishap::Stopped, "stopped", figures::FAILOVER_SILENT),
    (Mishap::CutOff, "cut off", figures::FAILOVER_SILENT),
    (Mishap::Ended, "ended", figures::HAND_OVER),
];

fn failover(bench: &Bench) -> Result<Outcome> {
    let Some(host) = &bench.host else {
        return Err(Error::Skipped("it starts servers of its own".to_owned()));
    };
    let times = bench.settings.time.as_secs().max(1);
    let task = bench.progress.counted("failover", times * MISHAPS.len() as u64, "pauses");
    let mut all = Vec::new();
    // Whoever can be cut off has something between it and the others, which would cost the others
    // time.
    for is_apart in [false, true] {
        let place = Place::new(&bench.env, bench.directory.join(DIRECTORY))?;
        let mut cluster = super::cluster_of(&**host, &place.path, (SERVERS, is_apart))?;
        let client = Client::begin(&bench.env, cluster.database()?);
        for (mishap, name, target) in
            MISHAPS.iter().filter(|(mishap, ..)| is_apart == (*mishap == Mishap::CutOff))
        {
            let mut pauses = Vec::new();
            for time in 0..times {
                pauses.push(pause(bench, &mut *cluster, &client, *mishap)?);
                task.set(all.len() as u64 * times + time + 1, (*name).to_owned());
            }
            pauses.sort_unstable();
            all.push((*mishap, *name, *target, pauses));
        }
        client.end()?;
    }
    Ok(outcome(&all, times))
}

type Pauses = (Mishap, &'static str, figures::Target, Vec<Duration>);

/// The pause that so large a part of them is not above.
fn percentile(sorted: &[Duration], part: f64) -> Duration {
    let at = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or_default()
}

/// How many pauses there are up to each class's end, and beyond them all.
fn histogram(sorted: &[Duration]) -> Vec<(Option<u64>, usize)> {
    let upto = |ms: u64| sorted.partition_point(|pause| *pause <= Duration::from_millis(ms));
    let mut classes = Vec::new();
    let mut before = 0;
    for class in CLASSES {
        classes.push((Some(class), upto(class) - before));
        before = upto(class);
    }
    classes.push((None, sorted.len() - before));
    classes
}

fn outcome(all: &[Pauses], times: u64) -> Outcome {
    let figure = |part: f64, name: &str, (_, mishap, target, pauses): &Pauses| {
        let what = format!("leader {mishap}, {name} pause");
        let target = if part > 0.5 { *target } else { target.beside() };
        Figure::new(what, percentile(pauses, part).as_secs_f64(), Unit::Seconds, target)
    };
    let mut figures: Vec<_> = all
        .iter()
        .flat_map(|one| [figure(0.99, "99th percentile", one), figure(0.5, "median", one)])
        .collect();
    let first = figures.remove(0);
    let title = format!("{SERVERS} servers, {times} times each");
    let mut outcome = Outcome::new("failover", title, first, None);
    outcome.figures.extend(figures);
    for (_, name, _, pauses) in all {
        let shown =
            histogram(pauses).into_iter().filter(|(_, count)| *count > 0).map(|(class, count)| {
                class.map_or_else(|| format!("{count} above"), |ms| format!("{count} to {ms} ms"))
            });
        let longest = words::duration(pauses.last().copied().unwrap_or_default());
        outcome.notes.push(format!(
            "leader {name}: {}; longest {longest}",
            shown.collect::<Vec<_>>().join(", ")
        ));
    }
    let seconds =
        |pauses: &[Duration]| pauses.iter().map(Duration::as_secs_f64).collect::<Vec<_>>();
    let details: serde_json::Map<String, Value> = all
        .iter()
        .map(|(_, name, _, pauses)| ((*name).to_owned(), json!(seconds(pauses))))
        .collect();
    outcome.details.push(("pauses", Value::Object(details)));
    outcome
}

/// Has something happen to the server that leads, and gives the longest pause until all is as
/// before.
fn pause(
    bench: &Bench,
    cluster: &mut dyn Cluster,
    client: &Client,
    mishap: Mishap,
) -> Result<Duration> {
    client.until_steady(bench)?;
    let leader = loop {
        if let Some(leader) = cluster.leader() {
            break leader;
        }
        block_on(bench.env.sleep(LOOK));
    };
    let begin = bench.env.now();
    cluster.begin(leader, mishap)?;
    client.until_steady(bench)?;
    cluster.end(leader, mishap)?;
    client.until_steady(bench)?;
    Ok(client.longest_since(begin))
}

/// A client that commits all the time.
struct Client {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Vec<Duration>>>,
    task: Task,
}

impl Client {
    fn begin(env: &Env, database: Database) -> Self {
        let (stop, acknowledged) =
            (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<Duration>>>::default());
        let (told, times, clock) = (stop.clone(), acknowledged.clone(), env.clone());
        let task = env.spawn("bench-failover", async move {
            let mut number = 0_u64;
            while !told.load(Ordering::Relaxed) {
                let tr = database.create_transaction();
                loop {
                    tr.set("bench:failover", number.to_le_bytes());
                    match tr.commit().await {
                        Ok(()) => break,
                        // What can't be tried again fails here, and shows as silence.
                        Err(error) => {
                            if tr.on_error(error).await.is_err() {
                                return;
                            }
                        }
                    }
                }
                number += 1;
                lock(&times).push(clock.now());
            }
        });
        Self { stop, acknowledged, task }
    }

    /// Waits until commits have gone on for a while.
    fn until_steady(&self, bench: &Bench) -> Result<()> {
        let (since, had) = (bench.env.now(), lock(&self.acknowledged).len());
        while lock(&self.acknowledged).len() < had + STEADY {
            if bench.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if bench.env.now() - since > PATIENCE {
                let detail = format!("no commit is acknowledged for {}", words::duration(PATIENCE));
                return Err(plinth_types::Error::timed_out().with_detail(detail).into());
            }
            block_on(bench.env.sleep(LOOK));
        }
        Ok(())
    }

    /// The longest time between two commits since then.
    fn longest_since(&self, begin: Duration) -> Duration {
        let mut times = lock(&self.acknowledged);
        let from = times.partition_point(|time| *time < begin).saturating_sub(1);
        let longest =
            times[from..].windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
        times.drain(..from);
        longest
    }

    fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(block_on(self.task).map_err(plinth_types::Error::from)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_counted_by_class_and_told_by_percentile() {
        let pauses: Vec<_> = [3, 10, 11, 399, 401, 9000].map(Duration::from_millis).into();
        let counted: Vec<_> =
            histogram(&pauses).into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(
            counted,
            [(Some(10), 2), (Some(20), 1), (Some(400), 1), (Some(1000), 1), (None, 1)]
        );
        assert_eq!(percentile(&pauses, 0.5), Duration::from_millis(11));
        assert_eq!(percentile(&pauses, 0.99), Duration::from_millis(9000));
        assert_eq!(percentile(&[], 0.5), Duration::ZERO);
    }

    #[test]
    fn the_longest_pause_is_one_that_has_to_do_with_what_happened() {
        let times = [0, 900, 910, 1500, 1510].map(Duration::from_millis).to_vec();
        let task = Env::real().spawn("nothing", async {});
        let client =
            Client { stop: Arc::default(), acknowledged: Arc::new(Mutex::new(times)), task };
        assert_eq!(client.longest_since(Duration::from_millis(905)), Duration::from_millis(590));
        assert_eq!(client.longest_since(Duration::from_millis(1505)), Duration::from_millis(10));
        client.end().unwrap();
    }
}
