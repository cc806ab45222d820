//! What a checkpoint does to commits: the longest one while checkpoints are written, beside the longest without.
//!
//! One client commits without a pause, so any stop is a commit that takes long. Times with and without checkpoints
//! take turns and are equally long: both saw the same disk, which has its own bad moments. Checkpoints follow each other
//! without a gap, so that every part of one falls into the measured time.

use super::{Group, Workload, write};
use crate::clients::{Client, Plan, drive};
use crate::figures;
use crate::host::Host;
use crate::outcome::{Figure, Measurement, Outcome, Unit};
use crate::{Bench, Error, Result, words};
use plinth_client::Transaction;
use plinth_env::reply::{self, Reply};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Commits during checkpoints.
pub const CHECKPOINT: Workload = Workload {
    name: "checkpoint",
    about: "one client's commits while checkpoints are written, beside those without",
    group: Group::Own,
    long: false,
    run: checkpoint,
};

const TURNS: u32 = 3;
/// A turn sees at least so many whole checkpoints.
const CHECKPOINTS_A_TURN: u32 = 2;

fn checkpoint(bench: &Bench) -> Result<Outcome> {
    let Some(host) = &bench.host else {
        return Err(Error::Skipped("it needs a database in this process".to_owned()));
    };
    let began = bench.env.now();
    match host.checkpoint() {
        Err(error) if error == plinth_types::Error::unsupported_operation() => {
            return Err(Error::Skipped(error.detail().unwrap_or("there are no checkpoints").to_owned()));
        }
        written => written?,
    }
    let alone = bench.env.now() - began;
    let time = (bench.settings.time / TURNS / 2).max(alone * CHECKPOINTS_A_TURN);
    let mut sums: [Option<Measurement>; 2] = [None, None];
    let mut checkpoints = 0;
    for turn in 1..=TURNS {
        for during in [false, true] {
            let title = format!("checkpoint ({turn} of {TURNS})");
            let plan = Plan { title, clients: 1, threads: 1, time, slices: 0 };
            let writing = during.then(|| Writing::begin(bench, host));
            let measured = drive(bench, &plan, async |transaction: &Transaction, client: &mut Client| {
                write::set_random(transaction, client, 1);
                transaction.commit().wait()?;
                Ok(1)
            });
            checkpoints += writing.map_or(Ok(0), Writing::end)?;
            let (sum, measured) = (&mut sums[usize::from(during)], measured?);
            *sum = Some(sum.take().map_or(measured.clone(), |sum| sum.and(&measured)));
        }
    }
    let [without, with] = sums.map(|sum| sum.expect("there is at least one turn"));
    Ok(outcome(without, with, checkpoints, alone))
}

fn outcome(without: Measurement, with: Measurement, checkpoints: u64, alone: Duration) -> Outcome {
    let [quiet, busy] = [&without, &with].map(|measured| measured.tally.latency());
    let added = busy.max.saturating_sub(quiet.max);
    let note = format!(
        "longest commit {} during {checkpoints} checkpoints (of {} each when nothing else runs), {} without; 999 in 1000 \
         within {} and {}; {} and {} commits/s",
        words::duration(busy.max),
        words::duration(alone),
        words::duration(quiet.max),
        words::duration(busy.p999),
        words::duration(quiet.p999),
        words::short(with.rate()),
        words::short(without.rate()),
    );
    let details = json!({
        "checkpoints": checkpoints,
        "seconds_alone": alone.as_secs_f64(),
        "without": without.to_json(),
    });
    let figure = Figure::new(
        "a checkpoint adds to the longest commit",
        added.as_secs_f64(),
        Unit::Seconds,
        figures::CHECKPOINT_STOP,
    );
    let mut outcome =
        Outcome::new("checkpoint", "1 client, 1 write".to_owned(), figure.if_quiet(), Some(with));
    outcome.notes.push(note);
    outcome.details.push(("checkpoint", details));
    outcome
}

/// Checkpoints being written, one after the other.
struct Writing {
    stop: Arc<AtomicBool>,
    written: Reply<u64>,
}

impl Writing {
    fn begin(bench: &Bench, host: &Arc<dyn Host>) -> Self {
        let (promise, written) = reply::promise();
        let stop = Arc::new(AtomicBool::new(false));
        let (host, stopped) = (host.clone(), stop.clone());
        bench.env.spawn("bench-checkpoints", async move {
            let mut count = 0;
            let result = loop {
                if let Err(error) = host.checkpoint() {
                    break Err(error);
                }
                count += 1;
                if stopped.load(Ordering::Relaxed) {
                    break Ok(count);
                }
            };
            promise.send(result);
        });
        Self { stop, written }
    }

    /// Waits for the last one, and tells how many there were.
    fn end(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(self.written.wait()?)
    }
}
