//! Compaction: tables are merged downwards, so that reads meet few runs and what was overwritten
//! goes.
//!
//! ```text
//!   level 0   run run run run   ──▶ all of them with what they overlap of level 1, once there are four
//!   level 1   t t [t] t t       ──▶ the table that overlaps least of level 2, once the level is over its size
//!   level 2   t t t [t t] t t t t
//! ```
//!
//! Tables that overlap nothing below are moved instead of written anew: keys that come in order are
//! written once. Flushes that are small beside level 1 are merged among themselves first. A table
//! that mostly says what is gone goes down when nothing is more urgent, so that the space comes
//! back, and flushes of which range clears among them hide two fifths are merged before there are
//! four; what a newer range clear covers whole is dropped without being read. Last come tables that
//! another key has sealed than what is written now: each is written anew in its place.

use super::Engine;
use super::clears::Clears;
use super::cursor::{Merge, RunCursor, clears_of};
use super::load::Loader;
use super::state::{DEEPEST, Placed, Run, State};
use super::switch::{Step, switch};
use super::table::Table;
use super::writer::RunWriter;
use crate::failure::{StorageError, StorageResult};
use plinth_types::{Bytes, Version, planted, probe};
use std::sync::Arc;

/// Runs of level 0 that are worth a compaction.
const FLUSHED_RUNS: usize = 4;
/// Runs of level 0 from which on they go down even where level 1 is much larger.
const MANY_FLUSHED_RUNS: usize = 12;
/// Cleared ranges of a table that are looked at when its worth is estimated.
const CLEARS_LOOKED_AT: usize = 64;
/// How many times larger each level is than the one above.
const RATIO: u64 = 10;

/// Tables of one source, side by side.
struct Input {
    tables: Vec<Arc<Table>>,
}

/// What is merged into what.
struct Merging {
    /// The newest first.
    inputs: Vec<Input>,
    level: u32,
    flush: u64,
    /// Nothing lies below: what is gone need not be remembered.
    is_last: bool,
    /// Above all keys of the inputs.
    upper: Bytes,
}

enum Work {
    Move(Vec<Arc<Table>>, u32),
    Merge(Merging),
}

/// Does the most urgent piece of work. Whether there was one.
pub(super) async fn step(engine: &Engine) -> StorageResult<bool> {
    let _one_at_a_time = engine.gates.compact.enter().await;
    let state = engine.state();
    let work = choose(&state, engine.settings.level_bytes).or_else(|| choose_outdated(&state));
    match work {
        None => Ok(false),
        Some(Work::Move(tables, level)) => {
            let added = tables
                .iter()
                .map(|table| Placed { level, flush: 0, table: table.clone() })
                .collect();
            let step = Step { at: None, removed: Vec::new(), added };
            probe!("ssd: tables moved down unread");
            move_tables(engine, step).await.map(|()| true)
        }
        Some(Work::Merge(merging)) => merge(engine, merging).await.map(|()| true),
    }
}

async fn move_tables(engine: &Engine, step: Step) -> StorageResult<()> {
    match switch(engine, step).await {
        Ok(()) => Ok(()),
        // The files are those of both states.
        Err(failed) => Err(failed.clean_up(engine, &[]).await),
    }
}

/// What to do next.
fn choose(state: &State, level_bytes: u64) -> Option<Work> {
    let flushed = state.flushed().count();
    let mut best = (flushed as f64 / FLUSHED_RUNS as f64, 0);
    let mut target = level_bytes as f64;
    for level in 1..DEEPEST {
        let bytes = state.level(level).map_or(0, |run| run.bytes());
        let score = bytes as f64 / target;
        if score > best.0 {
            best = (score, level);
        }
        target *= RATIO as f64;
    }
    match best {
        (score, 0) if score >= 1.0 => choose_flushed(state, flushed < MANY_FLUSHED_RUNS),
        (score, level) if score > 1.0 => choose_from(state, level, |_| true),
        _ => choose_garbage(state),
    }
}

/// Work on the runs of level 0, which may stay there if they are small.
fn choose_flushed(state: &State, may_stay: bool) -> Option<Work> {
    let runs: Vec<&Arc<Run>> = state.flushed().collect();
    let oldest = runs.last()?;
    let below = state.level(1);
    let overlaps = |table: &Arc<Table>| {
        below.is_some_and(|run| !run.overlapping(table.lower(), table.upper()).is_empty())
    };
    if !oldest.tables.iter().any(|table| overlaps(table) || table.is_mostly_garbage()) {
        return Some(Work::Move(oldest.tables.clone(), 1));
    }
    let bytes: u64 = runs.iter().map(|run| run.bytes()).sum();
    let below_bytes: u64 = below_flushed(state)?.iter().map(|table| table.file_len()).sum();
    if may_stay && bytes < below_bytes / 8 {
        return Some(among_themselves(&runs));
    }
    merge_flushed(state)
}

/// The tables of level 1 that runs of level 0 overlap. `None` if there are no runs.
fn below_flushed(state: &State) -> Option<&[Arc<Table>]> {
    let (lower, upper) = span(state.flushed().flat_map(|run| &run.tables))?;
    Some(state.level(1).map_or(&[][..], |run| run.overlapping(&lower, &upper)))
}

/// All runs of level 0 go down.
fn merge_flushed(state: &State) -> Option<Work> {
    let below = below_flushed(state)?;
    let inputs: Vec<&[Arc<Table>]> =
        state.flushed().map(|run| &run.tables[..]).chain([below]).collect();
    Some(Work::Merge(merging(state, &inputs, 1)?))
}

/// Whether clears in runs of level 0 hide so much of what these and the tables below them have that
/// to merge them pays: what is written for a byte that comes back is a byte and a half at most.
fn are_flushed_mostly_hidden(state: &State) -> bool {
    let below = below_flushed(state).unwrap_or_default();
    let tables = state.flushed().flat_map(|run| &run.tables).chain(below);
    let all: u64 = tables.map(|table| table.footer().row_bytes).sum();
    let mut newer = Clears::new();
    let mut hidden = 0;
    for run in state.flushed() {
        hidden += bytes_hidden_by(&newer, run);
        for (begin, end) in
            run.tables.iter().flat_map(|table| table.clears().iter().take(CLEARS_LOOKED_AT))
        {
            newer.add(begin, end);
        }
    }
    hidden += state.level(1).map_or(0, |run| bytes_hidden_by(&newer, run));
    hidden * 5 > all * 2
}

/// Bytes of rows of an older run that clears hide, about.
fn bytes_hidden_by(clears: &Clears, run: &Run) -> u64 {
    clears.iter().take(CLEARS_LOOKED_AT).map(|(begin, end)| run.row_bytes_in(begin, end)).sum()
}

/// Small runs become one run of level 0; a large old one among them stays out of it.
fn among_themselves(runs: &[&Arc<Run>]) -> Work {
    let mut runs = runs;
    while let [rest @ .., last] = runs
        && rest.len() >= 2
        && last.bytes() > 2 * rest.iter().map(|run| run.bytes()).sum::<u64>()
    {
        runs = rest;
    }
    let inputs = runs.iter().map(|run| Input { tables: run.tables.clone() }).collect();
    let flush = runs.first().map_or(0, |run| run.flush);
    let upper =
        span(runs.iter().flat_map(|run| &run.tables)).map(|(_, upper)| upper).unwrap_or_default();
    probe!("ssd: small flushes merged among themselves");
    Work::Merge(Merging { inputs, level: 0, flush, is_last: false, upper })
}

/// Work on a level below the first: the table that costs least to bring down.
fn choose_from(state: &State, level: u32, wanted: impl Fn(&Table) -> bool) -> Option<Work> {
    let run = state.level(level)?;
    let below = state.level(level + 1);
    let overlapped =
        |table: &Table| below.map_or(&[][..], |run| run.overlapping(table.lower(), table.upper()));
    let cost = |table: &&Arc<Table>| {
        let bytes: u64 = overlapped(table).iter().map(|table| table.file_len()).sum();
        let cost = bytes * 1000 / table.file_len().max(1);
        if table.is_mostly_garbage() { cost / 4 } else { cost }
    };
    let table = run.tables.iter().filter(|table| wanted(table)).min_by_key(cost)?;
    let overlapped = overlapped(table);
    if overlapped.is_empty() && !table.is_mostly_garbage() {
        return Some(Work::Move(vec![table.clone()], level + 1));
    }
    Some(Work::Merge(merging(state, &[std::slice::from_ref(table), overlapped], level + 1)?))
}

/// A table that takes room for nothing, or whose clears would give much back.
fn choose_garbage(state: &State) -> Option<Work> {
    let is_worth = |level: u32, table: &Table| {
        table.is_mostly_garbage() || hidden_bytes(state, level, table) > table.file_len() / 2
    };
    if state.flushed().any(|run| run.tables.iter().any(|table| is_worth(0, table))) {
        return choose_flushed(state, false);
    }
    if are_flushed_mostly_hidden(state) {
        probe!("ssd: flushes merged for what they clear");
        return merge_flushed(state);
    }
    let level = (1..DEEPEST).find(|level| {
        let run = state.level(*level);
        run.is_some_and(|run| run.tables.iter().any(|table| is_worth(*level, table)))
    })?;
    choose_from(state, level, |table| is_worth(level, table))
}

/// A table that another key than the newest has sealed, or none though there is one.
fn choose_outdated(state: &State) -> Option<Work> {
    let is_outdated = |table: &&Arc<Table>| table.is_outdated();
    if state.flushed().any(|run| run.tables.iter().any(|table| table.is_outdated())) {
        return choose_flushed(state, false);
    }
    let mut runs = state.runs.iter().filter(|run| run.level > 0);
    let found = runs.find_map(|run| Some((run.level, run.tables.iter().find(is_outdated)?)));
    let (level, table) = found?;
    probe!("ssd: table of another key written anew");
    Some(Work::Merge(merging(state, &[std::slice::from_ref(table)], level)?))
}

/// Bytes of rows in deeper levels that a table's clears hide, about.
fn hidden_bytes(state: &State, level: u32, table: &Table) -> u64 {
    let deeper = state.runs.iter().filter(|run| run.level > level);
    deeper.map(|run| bytes_hidden_by(table.clears(), run)).sum()
}

/// The keys that tables say something about.
fn span<'t>(tables: impl Iterator<Item = &'t Arc<Table>>) -> Option<(Bytes, Bytes)> {
    tables
        .map(|table| (table.lower().clone(), table.upper().clone()))
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

fn merging(state: &State, inputs: &[&[Arc<Table>]], level: u32) -> Option<Merging> {
    let (lower, upper) = span(inputs.iter().copied().flatten())?;
    let deeper = state.runs.iter().filter(|run| run.level > level);
    let is_last = planted!("merges forget what hides deeper rows")
        || deeper.into_iter().all(|run| run.overlapping(&lower, &upper).is_empty());
    let inputs = inputs.iter().map(|tables| Input { tables: tables.to_vec() }).collect();
    Some(Merging { inputs, level, flush: 0, is_last, upper })
}

/// Merges tables into new ones and lets these take their place.
async fn merge(engine: &Engine, merging: Merging) -> StorageResult<()> {
    let all: Vec<Arc<Table>> =
        merging.inputs.iter().flat_map(|input| &input.tables).cloned().collect();
    let clears = if merging.is_last { Clears::new() } else { clears_of(all.iter()) };
    assert!(!all.is_empty(), "a merge of nothing");
    let version = all.iter().map(|table| table.header().version).max().unwrap_or(Version::MIN);
    let mut writer = RunWriter::new(&engine.making, version, merging.level, clears);
    let tables = match write_merged(engine, &merging, &mut writer).await {
        Ok(tables) => tables,
        Err(error) => {
            probe!("ssd: merge given up");
            writer.abandon().await;
            return Err(error);
        }
    };
    check_merged(&all, &tables, merging.is_last);
    let ids: Vec<u64> = tables.iter().map(|table| table.id()).collect();
    let (level, flush) = (merging.level, merging.flush);
    let added = tables.into_iter().map(|table| Placed { level, flush, table }).collect();
    let step = Step { at: None, removed: all, added };
    match switch(engine, step).await {
        Ok(()) => {
            probe!("ssd: tables merged");
            engine.divide_memory();
            Ok(())
        }
        Err(failed) => Err(failed.clean_up(engine, &ids).await),
    }
}

/// A merge makes no rows, and speaks of no key that its inputs don't speak of.
///
/// # Panics
/// If it has.
fn check_merged(inputs: &[Arc<Table>], outputs: &[Arc<Table>], is_last: bool) {
    let entries = |tables: &[Arc<Table>]| -> u64 {
        let footers = tables.iter().map(|table| table.footer());
        footers.map(|footer| footer.rows + footer.removals).sum()
    };
    assert!(entries(outputs) <= entries(inputs), "a merge has made entries");
    let removals: u64 = outputs.iter().map(|table| table.footer().removals).sum();
    assert!(!is_last || removals == 0, "below the last rows there is nothing to remove");
    if let (Some(from), Some(to)) = (span(inputs.iter()), span(outputs.iter())) {
        assert!(from.0 <= to.0 && to.1 <= from.1, "a merge speaks of keys of no input");
    }
}

/// The sources of a merge. Tables that newer ones clear whole are left out.
fn sources(merging: &Merging) -> Vec<RunCursor> {
    let mut newer = Clears::new();
    let mut sources = Vec::with_capacity(merging.inputs.len());
    for input in &merging.inputs {
        let kept = input.tables.iter().filter(|table| !newer.covers(table.lower(), table.upper()));
        let run = Arc::new(Run::new(0, 0, kept.cloned().collect()));
        if run.tables.len() < input.tables.len() {
            probe!("ssd: cleared table dropped unread");
        }
        input.tables.iter().for_each(|table| newer.add_all(table.clears()));
        sources.push(RunCursor::new(run, true, merging.upper.clone(), usize::MAX));
    }
    sources
}

async fn write_merged(
    engine: &Engine,
    merging: &Merging,
    writer: &mut RunWriter,
) -> StorageResult<Vec<Arc<Table>>> {
    let loader = Loader::passing(&engine.making.cache, &engine.reads);
    let mut merged = Merge::new(sources(merging), true);
    merged.seek(&[], &loader).await?;
    while let Some(winner) = merged.peek(&loader).await? {
        let value = merged.value(winner);
        if value.is_some() || !merging.is_last {
            if !writer.has_room() {
                if engine.is_closing() {
                    return Err(StorageError::Cancelled);
                }
                let next = merged.key(winner).to_vec();
                writer.make_room(&next).await?;
                engine.making.env.yield_now().await;
            }
            writer.push(merged.key(winner), merged.value(winner));
        }
        merged.step(winner);
    }
    writer.finish().await
}
