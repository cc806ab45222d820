//! A second site: how far it is behind the first one, which is written at half of what it can take.
//!
//! ```text
//!   commits of the first ──answered──▶ version, time
//!   position of the second ──looked at each few milliseconds──▶ version, time      lag: from a commit's answer until it is seen there
//! ```
//! The second database is a server's of its own on this machine; the agent works in this process,
//! as a program beside the first would. The first copy is not measured. A lag has the time between
//! two looks in it.

use super::{Group, Workload};
use crate::figures;
use crate::host::Server;
use crate::load::lock;
use crate::open_loop::{Arrivals, Offered, PEAK_UNDER_WAY, offer};
use crate::outcome::{Figure, Measurement, Outcome};
use crate::place::Place;
use crate::tally::Tally;
use crate::unit::Unit;
use crate::workloads::changes::Writes;
use crate::{Bench, Error, Result, words};
use plinth_client::Database;
use plinth_dr::{Agent, Control, Copied, Phase, Sites, StartSettings, Status};
use plinth_env::{Env, Task, block_on};
use plinth_types::Version;
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The lag of a second site.
pub const DR: Workload = Workload {
    name: "dr",
    about: "a second site: its lag behind a first one that is written at half of its peak",
    group: Group::Own,
    long: true,
    run: second_site,
};

/// Below the database's own directory, so that it is on the same disk.
const DIRECTORY: &str = "plinth-bench-second-site";
/// The peak and the lag take such a part of the time.
const PART: u32 = 2;
/// The part of the peak that is offered.
const OF_PEAK: f64 = 0.5;
/// How often it is looked where the second is.
const LOOK: Duration = Duration::from_millis(2);
/// How long the second may take for the rest when nobody writes any more, and for its first copy
/// without getting further.
const REST: Duration = Duration::from_secs(30);

fn second_site(bench: &Bench) -> Result<Outcome> {
    let Some(host) = &bench.host else {
        return Err(Error::Skipped("it needs a database in this process".to_owned()));
    };
    let place = Place::new(&bench.env, bench.directory.join(DIRECTORY))?;
    let time = bench.settings.time / PART;
    let peak =
        offer(bench, "dr, the peak", Arrivals::UnderWay(PEAK_UNDER_WAY), time, Writes::default())?
            .rate;
    let pair = Pair::begin(bench, host.serve(&place.path)?)?;
    let measured = measure(bench, &pair, (peak * OF_PEAK).max(1.0), time);
    let ended = pair.end();
    let measured = measured?;
    ended?;
    Ok(outcome(bench, peak, measured))
}

/// What was measured.
struct Measured {
    rate: f64,
    offered: Offered,
    lags: Tally,
    missing: u64,
    copied: Copied,
    copying: Duration,
}

fn measure(bench: &Bench, pair: &Pair, rate: f64, time: Duration) -> Result<Measured> {
    let began = bench.env.now();
    let task = bench.progress.counted("dr, the first copy", bench.dataset.bytes(), "bytes");
    let copied = pair.until(bench, |status| {
        task.set(status.copied.bytes.min(bench.dataset.bytes()), words::bytes(status.copied.bytes));
        status.phase == Phase::Following
    })?;
    drop(task);
    let copying = bench.env.now() - began;
    let writes = Writes::default();
    let answered = writes.answered.clone();
    let look = Look::begin(&bench.env, &pair.second.database);
    let title = format!("dr, {} commits a second", words::short(rate));
    let offered = offer(bench, &title, Arrivals::PerSecond(rate), time, writes);
    let last = lock(&answered).iter().map(|(version, _)| *version).max().unwrap_or_default();
    // Those that don't come are told as missing.
    let _ = pair.until(bench, |status| status.position.is_some_and(|position| position >= last));
    let seen = look.end()?;
    let (lags, missing) = lags(&mut lock(&answered), &seen);
    Ok(Measured { rate, offered: offered?, lags, missing, copied: copied.copied, copying })
}

/// From each commit's answer until the second was seen to have it; and how many never were.
fn lags(answered: &mut [(Version, Duration)], seen: &[(Version, Duration)]) -> (Tally, u64) {
    answered.sort_unstable();
    let (mut lags, mut missing, mut at) = (Tally::new(0), 0, 0);
    for (version, time) in answered {
        // Positions ascend.
        at += seen[at..].iter().take_while(|(position, _)| position < version).count();
        match seen.get(at) {
            Some((_, came)) => lags.record(came.saturating_sub(*time), 1),
            None => missing += 1,
        }
    }
    (lags, missing)
}

/// The two databases, and the agent between.
struct Pair {
    sites: Sites,
    second: Server,
    tag: String,
    control: Control,
    agent: Task,
    failure: Arc<Mutex<Option<plinth_types::Error>>>,
}

impl Pair {
    fn begin(bench: &Bench, second: Server) -> Result<Self> {
        let sites = Sites::new(bench.database.clone(), second.database.clone());
        // One that an earlier run left behind when it was killed must not be in the way.
        let tag = format!("plinth-bench-{:08x}", bench.env.random_u64() as u32);
        let settings = StartSettings { tag: tag.clone(), clear: true, ..StartSettings::default() };
        block_on(plinth_dr::start(&sites, &settings))?;
        let control = Control::default();
        let agent = Agent::new(sites.clone(), control.clone());
        let failure = Arc::<Mutex<Option<plinth_types::Error>>>::default();
        let failed = failure.clone();
        let agent = bench.env.spawn("bench-second-site", async move {
            if let Err(error) = agent.run().await {
                *lock(&failed) = Some(error);
            }
        });
        Ok(Self { sites, second, tag, control, agent, failure })
    }

    /// Waits until the second is as it should be, as long as it gets further.
    fn until(&self, bench: &Bench, is_so: impl Fn(&Status) -> bool) -> Result<Status> {
        let (mut last, mut since) = (None, bench.env.now());
        loop {
            if bench.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if let Some(error) = lock(&self.failure).take() {
                return Err(error.into());
            }
            let status = block_on(plinth_dr::status(None, &self.second.database))?;
            let status = status.ok_or_else(|| stuck("it follows nobody any more"))?;
            if is_so(&status) {
                return Ok(status);
            }
            let (now, reached) = (bench.env.now(), Some((status.position, status.copied)));
            if last != reached {
                (last, since) = (reached, now);
            }
            if now - since > REST {
                return Err(stuck(status.problem.as_deref().unwrap_or("it stands still")).into());
            }
            block_on(bench.env.sleep(LOOK * 5));
        }
    }

    /// Makes both free, and ends the server.
    fn end(self) -> Result<()> {
        let aborted = block_on(plinth_dr::abort(&self.sites, &self.tag, None));
        self.control.stop.store(true, Ordering::Relaxed);
        block_on(self.agent).map_err(plinth_types::Error::from)?;
        aborted?;
        Ok(())
    }
}

fn stuck(why: &str) -> plinth_types::Error {
    plinth_types::Error::internal_error()
        .with_detail(format!("the second site gets no further: {why}"))
}

/// Where the second was, and when.
type Seen = Arc<Mutex<Vec<(Version, Duration)>>>;

/// Whoever looks where the second is, as long as it is there.
struct Look {
    stop: Arc<AtomicBool>,
    seen: Seen,
    task: Task,
}

impl Look {
    fn begin(env: &Env, second: &Database) -> Self {
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Seen::default());
        let (told, found, env, second) = (stop.clone(), seen.clone(), env.clone(), second.clone());
        let inner = env.clone();
        let task = env.spawn("bench-look", async move {
            loop {
                // Once it is told to stop it looks once more: what has arrived by then is seen.
                let is_last = told.load(Ordering::Relaxed);
                // What can't be read now is read the next time.
                if let Ok(Some(Status { position: Some(position), .. })) =
                    plinth_dr::status(None, &second).await
                {
                    let mut found = lock(&found);
                    if found.last().is_none_or(|(last, _)| *last < position) {
                        found.push((position, inner.now()));
                    }
                }
                if is_last {
                    break;
                }
                inner.sleep(LOOK).await;
            }
        });
        Self { stop, seen, task }
    }

    fn end(self) -> Result<Vec<(Version, Duration)>> {
        self.stop.store(true, Ordering::Relaxed);
        block_on(self.task).map_err(plinth_types::Error::from)?;
        Ok(std::mem::take(&mut *lock(&self.seen)))
    }
}

fn outcome(bench: &Bench, peak: f64, measured: Measured) -> Outcome {
    let lag = measured.lags.latency();
    let seconds = |what: &str, time: Duration, target| {
        Figure::new(what, time.as_secs_f64(), Unit::Seconds, target)
    };
    let none = figures::Target::NONE;
    let rate = words::short(measured.rate);
    let headline =
        seconds(&format!("lag at {rate} commits/s, 99th percentile"), lag.p99, figures::DR_LAG);
    let measurement = Measurement {
        clients: PEAK_UNDER_WAY,
        threads: bench.env.network_threads(),
        time: bench.settings.time / PART,
        tally: measured.offered.whole,
        cpu: measured.offered.cpu,
        cpu_of_slices: Vec::new(),
    };
    let title =
        "a second site, a server of its own; the first is written at half of its peak".to_owned();
    let mut outcome = Outcome::new("dr", title, headline, Some(measurement));
    let copy = measured.copied.bytes as f64 / measured.copying.as_secs_f64().max(1e-9);
    outcome.figures.extend([
        seconds("lag, median", lag.p50, none),
        seconds("lag, mean", lag.mean, none),
        seconds("lag, longest", lag.max, none),
        Figure::new("the first copy, of rows", copy, Unit::BytesPerSecond, none),
        Figure::new("peak of the first alone", peak, Unit::PerSecond("commits"), none),
    ]);
    if measured.missing > 0 {
        let text = format!(
            "{} commits were not seen at the second site within {} s",
            measured.missing,
            REST.as_secs()
        );
        outcome.notes.push(text);
    }
    outcome.details.push(("lag", lag.to_json()));
    outcome.details.push(("not_arrived", json!(measured.missing)));
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_goes_from_a_commits_answer_to_the_first_look_that_has_it() {
        let at = Duration::from_millis;
        let mut answered = [(30, at(5)), (10, at(1)), (20, at(2)), (50, at(9))];
        let seen = [(15, at(3)), (20, at(4)), (40, at(8))];
        let (lags, missing) = lags(&mut answered, &seen);
        assert_eq!((lags.transactions, missing), (3, 1));
        let latency = lags.latency();
        let near = |time: Duration, wanted| time.abs_diff(at(wanted)) < Duration::from_micros(50);
        assert!(near(latency.max, 3) && near(latency.p50, 2), "{latency:?}");
    }
}
