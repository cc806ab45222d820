//! Reads that no cache answers, in turns with what the disk itself gives.
//!
//! ```text
//!   the system forgets the tables | clients read random rows | it forgets them again | threads read random pages of them | ...
//! ```
//!
//! The system's own cache of pages would answer most of both, were it not emptied before each turn.
//! A turn ends before more than a sixteenth of the pages can have come back. Where the tables lie
//! is known of the engine `ssd` alone.

use super::device::Device;
use super::mix::{Mix, OPERATIONS};
use super::{Group, Workload, join};
use crate::figures::{self, Target};
use crate::outcome::{Figure, Measurement, Outcome};
use crate::plan::Plan;
use crate::random::Random;
use crate::unit::Unit;
use crate::{Bench, Error, Result};
use plinth_env::reply::{self, Reply};
use plinth_env::{Env, File, Open, block_on};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Reads of a database that lies there already.
pub const UNCACHED: Workload = Workload {
    name: "uncached",
    about: "reads that no cache answers, in turns with random reads of the disk itself, on a database of --dir",
    group: Group::Own,
    long: true,
    run: uncached,
};

/// Turns of each side, at least and at most.
const TURNS: [u32; 2] = [5, 25];
/// The part of the pages that one turn may bring back.
const MOST_PAGES: f64 = 1.0 / 16.0;
/// How long the disk is tried to see how quick it is.
const TRIAL: Duration = Duration::from_millis(100);
/// As many as the engine has under way at once.
const DEPTH: u64 = 32;
const CLIENTS: usize = 100;
/// What a disk reads at once.
const PAGE: u64 = 4096;
/// Where a database's tables lie: in the directory of its newest generation.
const GENERATION: &str = "gen-";
const TABLES: &str = "tables";

/// What came of the turns, on one side or the other.
#[derive(Clone, Copy, Default)]
struct Rate {
    reads: f64,
    seconds: f64,
}

impl Rate {
    fn add(&mut self, reads: f64, time: Duration) {
        self.reads += reads;
        self.seconds += time.as_secs_f64();
    }

    fn a_second(self) -> f64 {
        self.reads / self.seconds.max(1e-9)
    }
}

fn uncached(bench: &Bench) -> Result<Outcome> {
    let (measured, mut figures) = measure(bench)?.ok_or_else(|| {
        let why = "it needs a database of the engine ssd with rows in tables: a run of --engine ssd --dir DIR that overwrote them";
        Error::Skipped(why.to_owned())
    })?;
    let headline = figures.remove(0);
    let mut outcome = Outcome::new(
        "uncached",
        "100 clients, 10 reads, all caches emptied".to_owned(),
        headline,
        Some(measured),
    );
    outcome.figures.extend(figures);
    Ok(outcome)
}

/// What was measured of reads that go to the disk, with figures; `None` if no tables are found.
pub fn measure(bench: &Bench) -> Result<Option<(Measurement, Vec<Figure>)>> {
    let files = block_on(tables(&bench.env, &bench.directory))?;
    let pages: u64 = files.iter().map(|(_, pages)| pages).sum();
    if pages == 0 {
        return Ok(None);
    }
    let files = Arc::new(files);
    let Some((turns, time)) = turns(bench, &files, pages as f64)? else { return Ok(None) };
    let (mut engine, mut disk, mut uncached, mut fetched) =
        (Rate::default(), Rate::default(), 0.0, 0.0);
    let mut sum = None;
    for turn in 0..turns {
        block_on(forget(&files))?;
        let meanwhile = watch(bench, time);
        let plan = Plan { time, ..bench.plan("uncached reads", CLIENTS, 1) };
        sum = Some(join(sum, Mix::new(OPERATIONS, 0).drive(bench, &plan)?));
        let Some((done, took)) = meanwhile.wait()? else { return Ok(None) };
        engine.add(done.reads(), took);
        uncached += done.uncached();
        fetched += done.fetched_bytes().unwrap_or_default();
        let (reads, took) = of_the_disk(bench, &files, turn, time)?;
        disk.add(reads, took);
    }
    Ok(sum.map(|sum| (sum, figures(engine, disk, uncached, fetched))))
}

/// What the engine does from now on, once all clients are at it and until the first of them may
/// stop.
fn watch(bench: &Bench, time: Duration) -> Reply<Option<(Device, Duration)>> {
    let (promise, reply) = reply::promise();
    let (env, database) = (bench.env.clone(), bench.database.clone());
    bench.env.spawn("bench-device", async move {
        env.sleep(time / 10).await;
        let (before, began) = (Device::of(&env, &database), env.now());
        env.sleep(time / 5 * 4).await;
        let (after, ended) = (Device::of(&env, &database), env.now());
        let done = before.zip(after).map(|(before, after)| (after.since(before), ended - began));
        promise.send(Ok(done));
    });
    reply
}

/// How many turns there are and how long each is; `None` for a disk that gives nothing.
fn turns(
    bench: &Bench,
    files: &Arc<Vec<(File, u64)>>,
    pages: f64,
) -> Result<Option<(u32, Duration)>> {
    let (reads, took) = of_the_disk(bench, files, TURNS[1], TRIAL)?;
    if reads == 0.0 {
        return Ok(None);
    }
    let longest = took.mul_f64(pages * MOST_PAGES / reads);
    let time = longest.min(bench.settings.time / TURNS[0]).max(TRIAL);
    let turns = bench.settings.time.div_duration_f64(time).ceil() as u32;
    Ok(Some((turns.clamp(TURNS[0], TURNS[1]), time)))
}

/// Random pages that the disk gives in a while, its cache emptied before, and how long it was in
/// truth.
fn of_the_disk(
    bench: &Bench,
    files: &Arc<Vec<(File, u64)>>,
    turn: u32,
    time: Duration,
) -> Result<(f64, Duration)> {
    block_on(forget(files))?;
    let began = bench.env.now();
    let reads = random_pages(bench, files, turn, time)?;
    Ok((reads as f64, bench.env.now() - began))
}

/// The figures; the first is the one that a bound is for.
fn figures(engine: Rate, disk: Rate, uncached: f64, fetched: f64) -> Vec<Figure> {
    let rate = |what: &str, rate: Rate| {
        Figure::new(what, rate.a_second(), Unit::PerSecond("reads"), Target::NONE)
    };
    let part = engine.a_second() / disk.a_second().max(1e-9);
    let mut figures = vec![
        Figure::new("uncached reads, of the disk's own rate", part, Unit::Part, figures::UNCACHED)
            .if_quiet(),
        rate("device reads/s", engine),
        rate("random pages/s of the same files, 32 at once", disk),
        Figure::new(
            "device reads an uncached read, from an empty page cache",
            engine.reads / f64::max(uncached, 1.0),
            Unit::Times,
            figures::DEVICE_READS,
        ),
    ];
    if fetched > 0.0 {
        let pages = fetched / PAGE as f64 / engine.reads.max(1.0);
        figures.push(Figure::new(
            "pages fetched for a device read",
            pages,
            Unit::Times,
            Target::NONE,
        ));
    }
    figures
}

/// The tables of the database in a directory, with the number of whole pages in each.
async fn tables(env: &Env, database: &Path) -> Result<Vec<(File, u64)>> {
    let names = env.files().list(database).await?;
    let numbers =
        names.iter().filter_map(|name| name.strip_prefix(GENERATION)?.parse::<u64>().ok());
    let Some(newest) = numbers.max() else { return Ok(Vec::new()) };
    let directory = database.join(format!("{GENERATION}{newest}")).join(TABLES);
    if !env.files().exists(&directory).await? {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for name in env.files().list(&directory).await? {
        // Merges go on, and what is listed may be gone.
        let Ok(file) = env.files().open(directory.join(name), Open::Read).await else { continue };
        let pages = file.len().await? / PAGE;
        files.push((file, pages));
    }
    Ok(files)
}

async fn forget(files: &[(File, u64)]) -> Result<()> {
    for (file, _) in files {
        file.forget_cached().await?;
    }
    Ok(())
}

/// How many random pages so many threads read in a while, each one after the other.
fn random_pages(
    bench: &Bench,
    files: &Arc<Vec<(File, u64)>>,
    turn: u32,
    time: Duration,
) -> Result<u64> {
    let end = bench.env.now() + time;
    let replies: Vec<Reply<u64>> = (0..DEPTH)
        .map(|thread| {
            let (promise, reply) = reply::promise();
            let (clock, files) = (bench.env.clone(), files.clone());
            let random = Random::new(u64::from(turn), thread);
            bench.env.spawn("bench-calibrator", async move {
                promise.send(read_pages(&clock, &files, random, end).await);
            });
            reply
        })
        .collect();
    let mut reads = 0;
    for reply in replies {
        reads += reply.wait()?;
    }
    Ok(reads)
}

async fn read_pages(
    clock: &Env,
    files: &[(File, u64)],
    mut random: Random,
    end: Duration,
) -> plinth_types::Result<u64> {
    let pages: u64 = files.iter().map(|(_, pages)| pages).sum();
    let (mut buffer, mut reads) = ([0; PAGE as usize], 0);
    while clock.now() < end {
        let mut page = random.below(pages);
        for (file, pages) in files {
            if page < *pages {
                // A table that a merge has replaced meanwhile is cut piece by piece.
                reads += u64::from(file.read_at(page * PAGE, &mut buffer).await? == buffer.len());
                break;
            }
            page -= pages;
        }
    }
    Ok(reads)
}
