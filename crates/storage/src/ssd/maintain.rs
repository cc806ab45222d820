//! What happens behind the reads and writes: flushes, the switch to a new state, and the end of old
//! files.
//!
//! ```text
//!   flush   1 write what the window has up to its oldest readable version into tables, synced
//!           2 sync the directory, replace the manifest                 ← the step: D becomes D'
//!           3 let readers see the new state
//!           4 forget the window's clears up to D', then its records
//! ```
//!
//! A flush or a compaction that fails before the manifest has changed leaves the engine as it was.
//! If the replacing itself fails, either manifest may be the one on disk; then the files that both
//! name stay where they are.

use super::Engine;
use super::clears::Clears;
use super::compact;
use super::manifest::MANIFEST;
use super::state::{Placed, State};
use super::switch::{Step, switch};
use super::table::{Table, table_id, table_path};
use super::writer::RunWriter;
use crate::failure::{StorageError, StorageResult};
use crate::removal::remove_large_file;
use plinth_env::Env;
use plinth_env::sync::race;
use plinth_types::{Bytes, Version, key_after, planted, probe};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often the flusher looks for something to do.
const PERIOD: Duration = Duration::from_millis(200);
/// After a failure (a full disk, say) the next try comes after this.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(500);
/// With so many runs of level 0 flushes wait for a compaction.
pub(super) const MOST_FLUSHED_RUNS: usize = 24;
/// Bytes of rows that a flush takes from the window in one go.
const HELPING: usize = 256 << 10;

/// Whether enough has left the window.
pub(super) fn wants_flush(engine: &Engine) -> bool {
    let ready = engine.window.bytes_until(engine.window.overlay().oldest());
    // Small flushes make more work for merges, and each of them walks all of the window: only when
    // room gets scarce.
    let hurry = engine.window_fullness() > 0.75;
    ready >= if hurry { engine.settings.flush_bytes / 4 } else { engine.settings.flush_bytes }
}

/// Moves what the window's oldest readable version shows into the tables: whole batches, up to one
/// whose place in the log is known.
pub(super) async fn flush(engine: &Engine) -> StorageResult<bool> {
    flush_or_move(engine, false).await
}

/// The same; and where there are no rows between, the tables are those of the later place, too.
pub(super) async fn flush_all(engine: &Engine) -> StorageResult<bool> {
    flush_or_move(engine, true).await
}

async fn flush_or_move(engine: &Engine, moves: bool) -> StorageResult<bool> {
    let _one_at_a_time = engine.gates.flush.enter().await;
    let from = engine.state().at.version;
    let Some(at) = engine.window.position_until(engine.window.overlay().oldest()) else {
        return Ok(false);
    };
    let horizon = at.version;
    if horizon <= from || !moves && engine.window.bytes_until(horizon) == 0 {
        return Ok(false);
    }
    let mut clears = engine.window.clears_at(horizon, &[], None);
    if planted!("flushes forget cleared ranges") {
        clears = Clears::new();
    }
    let mut writer = RunWriter::new(&engine.making, horizon, 0, clears);
    let tables = match write_window(engine, from, horizon, &mut writer).await {
        Ok(tables) => tables,
        Err(error) => {
            probe!("ssd: flush given up");
            writer.abandon().await;
            return Err(error);
        }
    };
    assert!(tables.iter().all(|table| table.header().version == horizon), "of one version");
    assert_eq!(engine.state().at.version, from, "flushes alone move the state on");
    let written: u64 = tables.iter().map(|table| table.footer().row_bytes).sum();
    let ids: Vec<u64> = tables.iter().map(|table| table.id()).collect();
    let flush = engine.state().next_flush;
    let added = tables.into_iter().map(|table| Placed { level: 0, flush, table }).collect();
    if let Err(failed) = switch(engine, Step { at: Some(at), removed: Vec::new(), added }).await {
        return Err(failed.clean_up(engine, &ids).await);
    }
    // Not before the tables are among those of the engine: who compares the two sees both.
    engine.making.flushed.fetch_add(written, Ordering::Relaxed);
    probe!("ssd: window flushed");
    let mut next = engine.window.release(horizon, None);
    while let Some(from) = next {
        engine.making.env.yield_now().await;
        next = engine.window.release(horizon, Some(from));
    }
    engine.divide_memory();
    engine.life.wakeups.compactor.notify();
    Ok(true)
}

async fn write_window(
    engine: &Engine,
    above: Version,
    horizon: Version,
    writer: &mut RunWriter,
) -> StorageResult<Vec<Arc<Table>>> {
    let mut next = Some(Bytes::new());
    let mut helping = Helping::default();
    while let Some(from) = next {
        next = helping.fill(engine, above, horizon, &from);
        for (key, value) in helping.rows() {
            if !writer.has_room() {
                writer.make_room(key).await?;
            }
            writer.push(key, value);
        }
        engine.making.env.yield_now().await;
    }
    writer.finish().await
}

/// Rows copied out of the window, so that it is not held while files are written.
#[derive(Default)]
struct Helping {
    data: Vec<u8>,
    spans: Vec<(usize, usize, bool)>,
}

impl Helping {
    /// Takes rows from the first key not below `from` on; gives where to go on.
    fn fill(
        &mut self,
        engine: &Engine,
        above: Version,
        horizon: Version,
        from: &[u8],
    ) -> Option<Bytes> {
        self.data.clear();
        self.spans.clear();
        let mut next = None;
        engine.window.overlay().walk(horizon, from, true, |key, version, value| {
            // What the engine has already; and a removed key that the run's clears remove as well.
            if version <= above || (value.is_none() && engine.window.is_cleared(key, horizon)) {
                return ControlFlow::Continue(());
            }
            self.data.extend_from_slice(key);
            let key_end = self.data.len();
            self.data.extend_from_slice(value.unwrap_or_default());
            self.spans.push((key_end, self.data.len(), value.is_some()));
            if self.data.len() < HELPING {
                return ControlFlow::Continue(());
            }
            next = Some(key_after(key));
            ControlFlow::Break(())
        });
        next
    }

    fn rows(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut begin = 0;
        self.spans.iter().map(move |(key_end, value_end, exists)| {
            let key = &self.data[begin..*key_end];
            begin = *value_end;
            (key, exists.then(|| &self.data[*key_end..*value_end]))
        })
    }
}

/// Removes the files of tables that nobody holds any more.
pub(super) async fn bury(engine: &Engine) {
    let making = &engine.making;
    for gone in making.graveyard.take() {
        let removed = remove_large_file(&making.env, &table_path(&making.dir, gone.id)).await;
        if removed.is_err_and(|error| !error.is_not_found()) {
            probe!("ssd: table could not be removed yet");
            making.graveyard.put(gone);
        } else {
            making.graveyard.bury(gone);
        }
    }
}

/// Removes the files that a crash left and no manifest names.
pub(super) async fn remove_leftovers(env: &Env, dir: &Path, state: &State) -> StorageResult<()> {
    let mut live: Vec<u64> = state.tables().map(|table| table.id()).collect();
    live.sort_unstable();
    for name in env.files().list(dir).await? {
        let is_table = table_id(&name).is_some_and(|id| live.binary_search(&id).is_err());
        if is_table || name == format!("{MANIFEST}.new") {
            probe!("ssd: leftover of a crash removed");
            env.files().remove(dir.join(name)).await?;
        }
    }
    Ok(())
}

/// Who may be in trouble.
#[derive(Clone, Copy)]
enum Worker {
    Flusher,
    Compactor,
}

/// Why flushes fail at the moment, and why merges do. A merge that goes well says nothing of
/// flushes.
pub(super) type Trouble = Mutex<[Option<StorageError>; 2]>;

fn note(engine: &Engine, worker: Worker, result: StorageResult<bool>) -> bool {
    let mut trouble = engine.trouble.lock().unwrap_or_else(PoisonError::into_inner);
    let failed = result.is_err();
    trouble[worker as usize] = result.err();
    failed
}

/// Flushes until the engine closes.
pub(super) async fn run_flusher(engine: Arc<Engine>) {
    let env = engine.making.env.clone();
    let mut last = env.now();
    let mut pause = PERIOD;
    while !engine.is_closing() {
        race(engine.life.wakeups.flusher.wait(), env.sleep(pause)).await;
        pause = PERIOD;
        if engine.is_closing() {
            return;
        }
        bury(&engine).await;
        engine.window.overlay().tidy();
        engine.divide_memory();
        let due = env.now().saturating_sub(last) >= engine.settings.flush_after
            && engine.window.has_marks();
        if !(due || wants_flush(&engine)) || engine.state().flushed().count() >= MOST_FLUSHED_RUNS {
            continue;
        }
        last = env.now();
        if note(&engine, Worker::Flusher, flush(&engine).await) {
            env.sleep(PAUSE_AFTER_FAILURE).await;
        }
    }
}

/// Compacts until the engine closes.
pub(super) async fn run_compactor(engine: Arc<Engine>) {
    let env = engine.making.env.clone();
    while !engine.is_closing() {
        let result = compact::step(&engine).await;
        let more = matches!(result, Ok(true));
        let failed = !engine.is_closing() && note(&engine, Worker::Compactor, result);
        if !more {
            let pause = if failed { PAUSE_AFTER_FAILURE } else { 5 * PERIOD };
            race(engine.life.wakeups.compactor.wait(), env.sleep(pause)).await;
        }
        bury(&engine).await;
    }
}
