//! Reads that no cache answers, in turns with what the disk itself gives.
//!
//! ```text
//!   the system forgets the tables | clients read random rows | it forgets them again | threads read random pages of them | ...
//! ```
//!
//! The system's own cache of pages would answer most of both, were it not emptied before each turn. Turns are short, so that
//! little comes back meanwhile, and what does helps both sides alike. Where the tables lie is known of the engine `ssd` alone.

use super::device::Device;
use super::mix::{Mix, OPERATIONS};
use crate::clients::Plan;
use crate::figures::{self, Target};
use crate::outcome::{Figure, Unit};
use crate::random::Random;
use crate::{Bench, Result};
use plinth_env::reply::{self, Reply};
use plinth_env::{Env, File, Open, block_on};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const TURNS: u32 = 5;
/// As many as the engine has under way at once.
const DEPTH: u64 = 32;
const CLIENTS: usize = 100;
/// What a disk reads at once.
const PAGE: u64 = 4096;
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

/// Figures of reads that go to the disk; none if no tables are found.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let files = block_on(tables(&bench.env, &bench.directory.join(TABLES)))?;
    if files.iter().all(|(_, pages)| *pages == 0) {
        return Ok(Vec::new());
    }
    let files = Arc::new(files);
    let time = bench.settings.time / TURNS;
    let (mut engine, mut disk, mut uncached, mut fetched) = (Rate::default(), Rate::default(), 0.0, 0.0);
    for turn in 0..TURNS {
        block_on(forget(&files))?;
        let (Some(before), began) = (Device::of(&bench.env, &bench.database), bench.env.now()) else {
            return Ok(Vec::new());
        };
        let plan = Plan { time, ..bench.plan("uncached reads", CLIENTS, 1) };
        Mix::new(OPERATIONS, 0).drive(bench, &plan)?;
        let took = bench.env.now() - began;
        let Some(after) = Device::of(&bench.env, &bench.database) else { return Ok(Vec::new()) };
        let done = after.since(before);
        engine.add(done.reads(), took);
        uncached += done.uncached();
        fetched += done.fetched_bytes().unwrap_or_default();
        block_on(forget(&files))?;
        let began = bench.env.now();
        let reads = random_pages(bench, &files, turn, time)?;
        disk.add(reads as f64, bench.env.now() - began);
    }
    let rate =
        |what: &str, rate: Rate| Figure::new(what, rate.a_second(), Unit::PerSecond("reads"), Target::NONE);
    let part = engine.a_second() / disk.a_second().max(1e-9);
    let mut figures = vec![
        Figure::new("uncached reads, of the disk's own rate", part, Unit::Part, figures::UNCACHED).if_quiet(),
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
        figures.push(Figure::new("pages fetched for a device read", pages, Unit::Times, Target::NONE));
    }
    Ok(figures)
}

/// The files of a directory with the number of whole pages in each.
async fn tables(env: &Env, directory: &Path) -> Result<Vec<(File, u64)>> {
    if !env.files().exists(directory).await? {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for name in env.files().list(directory).await? {
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
fn random_pages(bench: &Bench, files: &Arc<Vec<(File, u64)>>, turn: u32, time: Duration) -> Result<u64> {
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
