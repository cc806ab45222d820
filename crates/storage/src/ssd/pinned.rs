//! Snapshots that stay readable however long they are held, while the engine goes on.
//!
//! A snapshot holds the state of the tables; the window is no part of it, so whoever pins flushes
//! first. Its version is the newest outside the window of which they have everything: versions go
//! on by the clock where nobody writes, and so does what can be pinned. The engine has a list of
//! the states that are pinned: their tables count in its memory and its figures.
//!
//! Always: a pinned state is in that list until its last handle is gone, and so long its files are
//! there.

use super::load::Loader;
use super::read::View;
use super::state::State;
use super::{Engine, estimate};
use crate::PinnedVersion;
use crate::chunk::{self, Chunk};
use crate::failure::Answer;
use plinth_types::{
    Bytes, KeyList, KeySelector, KeySpace, LogPosition, RangeRead, RangeResult, Version,
};
use std::sync::{Arc, PoisonError, RwLock};

/// A version of the engine that stays readable, for hours if need be: it holds table files, not
/// memory.
pub struct Pinned {
    version: Version,
    state: RwLock<Arc<State>>,
    engine: Arc<Engine>,
}

impl Pinned {
    /// Pins what is in tables.
    pub(super) fn of(engine: &Arc<Engine>) -> Arc<Self> {
        let (version, state) = newest_of_tables(engine);
        engine.lock_pins().push(state.clone());
        Arc::new(Self { version, state: RwLock::new(state), engine: engine.clone() })
    }

    fn state(&self) -> Arc<State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn view(&self) -> View<'_> {
        View { window: None, state: &self.state, version: self.version }
    }
}

/// The tables, and the newest version that is theirs.
fn newest_of_tables(engine: &Engine) -> (Version, Arc<State>) {
    // Everything up to this one has been applied, whatever comes meanwhile.
    let readable = engine.window.overlay().oldest();
    let mut state = engine.state();
    loop {
        let lacks = engine.window.lacks_until(readable);
        // The window lets go of what a flush wrote once the tables of that are there: if these are
        // still the same, the window had what they lack.
        let now = engine.state();
        if now.at.version == state.at.version {
            let version = if lacks { state.at.version } else { readable.max(state.at.version) };
            return (version, state);
        }
        state = now;
    }
}

impl PinnedVersion for Arc<Pinned> {
    fn version(&self) -> Version {
        self.version
    }

    fn position(&self) -> LogPosition {
        // Merges move rows; what they are everything of stays.
        self.state().at
    }

    fn get_many(&self, space: KeySpace, keys: &KeyList) -> Answer<Vec<Option<Bytes>>> {
        let (this, keys, loader) = (self.clone(), keys.clone(), self.engine.loader());
        self.engine.finish(&loader.clone(), async move {
            this.view().get_many(space, &keys, &loader).await
        })
    }

    fn get_key(&self, space: KeySpace, selector: &KeySelector) -> Answer<Bytes> {
        let (this, selector, loader) = (self.clone(), selector.clone(), self.engine.loader());
        self.engine.finish(&loader.clone(), async move {
            this.view().resolve(space, &selector, &loader).await.map(|(key, _)| key)
        })
    }

    fn get_range(&self, space: KeySpace, read: &RangeRead) -> Answer<RangeResult> {
        let (this, read, loader) = (self.clone(), read.clone(), self.engine.loader());
        self.engine.finish(&loader.clone(), async move {
            this.view().get_range(space, &read, &loader).await
        })
    }

    fn export(&self, begin: &[u8], end: &[u8], target_bytes: usize) -> Answer<Chunk> {
        let (this, read) = (self.clone(), chunk::read_for(begin, end, target_bytes));
        let range = [begin, end].map(Bytes::copy_from_slice);
        let loader = Loader::passing(&self.engine.making.cache, &self.engine.reads);
        self.engine.pool.run(&self.engine.making.env, async move {
            let result = this.view().get_range(KeySpace::System, &read, &loader).await?;
            Ok(Chunk::of(this.position(), (&range[0], &range[1]), result))
        })
    }

    fn range_size(&self, begin: &[u8], end: &[u8]) -> u64 {
        estimate::range_size(&self.state(), None, begin, end)
    }

    fn split_points(&self, begin: &[u8], end: &[u8], chunk: u64) -> Vec<Bytes> {
        estimate::split(&self.state(), None, begin, end, chunk)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let state = self.state();
        let mut pins = self.engine.lock_pins();
        if let Some(at) = pins.iter().position(|pin| Arc::ptr_eq(pin, &state)) {
            pins.swap_remove(at);
        }
        drop(pins);
        // Files that only this snapshot needed go now.
        self.engine.life.wakeups.flusher.notify();
    }
}
