//! What a checkpoint does to commits, told apart from what the disk does anyway.
//!
//! One client commits without a pause, so any stop is a commit that takes long. Times with and
//! without checkpoints take turns: both see the same disk, which has its own bad moments, and one
//! of those decides no median of several turns. Checkpoints follow each other without a gap, so
//! that every part of one falls into the measured time.
//!
//! A commit's time is the log's sync and everything else. What a checkpoint does to the second is
//! ours alone: the longest is told as it is. To the first it adds what one of its steps keeps the
//! disk busy for; beside it stands a calibrator, in turns too: synced writes of a plain program
//! while nothing else writes, and while a plain program writes a checkpoint's bytes at a
//! checkpoint's pace.

use super::write::BlockingWrites;
use super::{Group, Workload, join};
use crate::calibrate::SyncTimes;
use crate::clients::drive;
use crate::figures;
use crate::host::{Host, Waits};
use crate::outcome::{Figure, Measurement, Outcome};
use crate::plan::Plan;
use crate::tally::Latency;
use crate::unit::Unit;
use crate::{Bench, Error, Result, words};
use plinth_env::reply::{self, Reply};
use plinth_env::{Open, block_on};
use serde_json::{Value, json};
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

/// Odd, so that there is a middle one.
const TURNS: usize = 7;
/// What the plain program writes in one go, and after how much it syncs.
const PLAIN_WRITE: usize = 1 << 20;
const PLAIN_SYNC: u64 = 8 << 20;
const PLAIN_FILE: &str = "plinth-bench-plain";

/// What was measured with checkpoints, or without.
#[derive(Default)]
struct Side {
    commits: Option<Measurement>,
    /// Of each turn: the longest commit, and the calibrator's longest sync.
    longest: Vec<Duration>,
    plain: Vec<Duration>,
    waits: Waits,
    syncs: SyncTimes,
}

fn checkpoint(bench: &Bench) -> Result<Outcome> {
    let Some(host) = &bench.host else {
        return Err(Error::Skipped("it needs a database in this process".to_owned()));
    };
    let began = bench.env.now();
    match host.checkpoint() {
        Err(error) if error == plinth_types::Error::unsupported_operation() => {
            return Err(Error::Skipped(
                error.detail().unwrap_or("there are no checkpoints").to_owned(),
            ));
        }
        written => written?,
    }
    let alone = bench.env.now() - began;
    // A turn sees at least one whole checkpoint.
    let time = (bench.settings.time / TURNS as u32 / 2).max(alone);
    let (mut without, mut with, mut checkpoints) = (Side::default(), Side::default(), 0);
    for turn in 1..=TURNS {
        let title = format!("checkpoint ({turn} of {TURNS})");
        let plan = Plan { title, clients: 1, threads: 1, time, slices: 0 };
        without.commits(bench, host, &plan)?;
        let writer = host.clone();
        let writing = Background::begin(bench, move || writer.checkpoint());
        let measured = with.commits(bench, host, &plan);
        checkpoints += writing.end()?;
        measured?;
        with.waits = with.waits.max(host.take_longest_waits());
        without.syncs(bench, time / 4)?;
        let writing = Background::begin(bench, plain_writer(bench, alone));
        let measured = with.syncs(bench, time / 4);
        writing.end()?;
        measured?;
    }
    Ok(outcome(without, with, checkpoints, alone))
}

impl Side {
    /// One turn of commits.
    fn commits(&mut self, bench: &Bench, host: &Arc<dyn Host>, plan: &Plan) -> Result<()> {
        host.take_longest_waits();
        let measured = drive(bench, plan, BlockingWrites(1))?;
        self.waits = self.waits.max(host.take_longest_waits());
        self.longest.push(measured.tally.latency().max);
        self.commits = Some(join(self.commits.take(), measured));
        Ok(())
    }

    /// One turn of the calibrator.
    fn syncs(&mut self, bench: &Bench, time: Duration) -> Result<()> {
        let mut turn = SyncTimes::default();
        turn.measure(bench, time)?;
        self.plain.push(turn.longest());
        self.syncs.add(turn);
        Ok(())
    }

    fn measured(&self) -> &Measurement {
        self.commits.as_ref().expect("there is at least one turn")
    }

    fn latency(&self) -> Latency {
        self.measured().tally.latency()
    }

    fn to_json(&self) -> Value {
        let seconds =
            |times: &[Duration]| times.iter().map(Duration::as_secs_f64).collect::<Vec<_>>();
        json!({
            "commits": self.measured().to_json(),
            "longest_commit_by_turn": seconds(&self.longest),
            "longest_sync_of_the_log": self.waits.sync.as_secs_f64(),
            "longest_of_everything_else": self.waits.work.as_secs_f64(),
            "longest_step_of_a_checkpoint": self.waits.checkpoint_step.as_secs_f64(),
            "plain_fdatasync": self.syncs.to_json(),
            "plain_longest_by_turn": seconds(&self.plain),
        })
    }
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

fn outcome(without: Side, with: Side, checkpoints: u64, alone: Duration) -> Outcome {
    let medians = [&with, &without].map(|side| median(&side.longest));
    let plain = [&with, &without].map(|side| median(&side.plain));
    let figure = |what: &str, time: Duration| {
        Figure::new(what, time.as_secs_f64(), Unit::Seconds, figures::CHECKPOINT_STOP).if_quiet()
    };
    let headline =
        figure("a checkpoint adds to the longest commit", medians[0].saturating_sub(medians[1]));
    let title = format!("1 client, 1 write, {TURNS} turns");
    let (busy, quiet) = (with.latency(), without.latency());
    let mut outcome = Outcome::new("checkpoint", title, headline, with.commits.clone());
    outcome.figures.push(figure("the pipeline itself held up a commit at most", with.waits.work));
    outcome.figures.push(figure(
        "a step of a checkpoint kept the disk busy at most",
        with.waits.checkpoint_step,
    ));
    let times = |[one, other]: [Duration; 2]| {
        format!("{} and {}", words::duration(one), words::duration(other))
    };
    outcome.notes = vec![
        format!(
            "with and without checkpoints ({checkpoints} were written, {} each when nothing else runs): a turn's longest commit \
             {} in the median, {} of all; 99 in 100 within {}, 999 in 1000 within {}; {} and {} commits/s",
            words::duration(alone),
            times(medians),
            times([busy.max, quiet.max]),
            times([busy.p99, quiet.p99]),
            times([busy.p999, quiet.p999]),
            words::short(with.measured().rate()),
            words::short(without.measured().rate()),
        ),
        format!(
            "longest wait for the log's sync {}, for everything else {}",
            times([with.waits.sync, without.waits.sync]),
            times([with.waits.work, without.waits.work])
        ),
        format!(
            "the disk without a database: a plain program's write and fdatasync of 4 KiB while another writes as many bytes as \
             a checkpoint, and while none does: a turn's longest {} in the median, {} of all; 99 in 100 within {}",
            times(plain),
            times([with.syncs.longest(), without.syncs.longest()]),
            times([with.syncs.percentile(99), without.syncs.percentile(99)]),
        ),
    ];
    let details = json!({
        "checkpoints": checkpoints,
        "seconds_alone": alone.as_secs_f64(),
        "with": with.to_json(),
        "without": without.to_json(),
    });
    outcome.details.push(("checkpoint", details));
    outcome
}

/// Writes a file of as many bytes as the rows have, in as much time as a checkpoint takes.
fn plain_writer(
    bench: &Bench,
    takes: Duration,
) -> impl FnMut() -> plinth_types::Result<()> + Send + use<> {
    let (env, path) = (bench.env.clone(), bench.directory.join(PLAIN_FILE));
    let (bytes, buffer) = (bench.dataset.bytes(), vec![0x5a; PLAIN_WRITE]);
    move || {
        Ok(block_on(async {
            let file = env.files().open(&path, Open::Truncate).await?;
            let (began, mut written) = (env.now(), 0);
            while written < bytes {
                let part = buffer.len().min((bytes - written) as usize);
                file.write_all_at(written, &buffer[..part]).await?;
                written += part as u64;
                if written % PLAIN_SYNC == 0 {
                    file.sync_data().await?;
                }
                env.sleep_until(began + takes.mul_f64(written as f64 / bytes as f64)).await;
            }
            file.sync_all().await?;
            drop(file);
            env.files().remove(&path).await
        })?)
    }
}

/// Something that is done again and again, until it is told to end.
struct Background {
    stop: Arc<AtomicBool>,
    done: Reply<u64>,
}

impl Background {
    fn begin(
        bench: &Bench,
        mut step: impl FnMut() -> plinth_types::Result<()> + Send + 'static,
    ) -> Self {
        let (promise, done) = reply::promise();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        bench.env.spawn("bench-background", async move {
            let mut count = 0;
            let result = loop {
                if let Err(error) = step() {
                    break Err(error);
                }
                count += 1;
                if stopped.load(Ordering::Relaxed) {
                    break Ok(count);
                }
            };
            promise.send(result);
        });
        Self { stop, done }
    }

    /// Waits until the last step has ended, and tells how many there were.
    fn end(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(self.done.wait()?)
    }
}
