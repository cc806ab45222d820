//! The last chapter: the benchmarking guide's six workloads, each for a moment.

use super::open;
use super::story::Story;
use crate::bench::provenance;
use crate::failure::Failure;
use crate::terminal;
use plinth_bench::{Bench, Progress, Settings, workloads};
use std::path::Path;
use std::time::Duration;

/// The chapter; `short` has next to no rows and takes no time.
pub fn chapter(story: &Story, path: &Path, short: bool) -> Result<(), Failure> {
    story.chapter("Speed")?;
    story.say("FoundationDB's benchmarking guide has six tests for one core. Here they are, for three seconds each, on a")?;
    story.say("million rows, every write synced to the disk before its commit returns:")?;
    let mut settings = Settings { time: Duration::from_secs(3), ..Settings::default() };
    if short {
        settings = Settings { rows: 2_000, time: Duration::from_millis(50), ..settings };
    }
    let progress = if short { Progress::Silent } else { terminal::progress() };
    let database = open(path)?;
    let bench = Bench::prepare(database, path.to_owned(), settings, progress, story.stop.clone())?;
    let report = bench.run(&workloads::select(&["guide"])?, provenance("memory"))?;
    story.say("")?;
    story.show(&report.brief(story.terminal().style()))
}
