//! The window over the engine: what was written since the engine's version, in memory.
//!
//! ```text
//!   overlay   k1: 90 "new" → 70 "old"     keys that were written or removed one by one
//!             k2: 85 removed
//!   clears    b──────f @ 80               ranges that were removed as a whole
//! ```
//!
//! A read at a version asks, in this order: the overlay's record of the key, the window's clears,
//! the engine's state. The engine moves on in the other order: first the state takes in what was
//! written up to its next version, then the clears up to there are forgotten, then the records. So
//! a reader who does not find something any more in one place finds it in the next, or finds that
//! the state has moved beyond its version and that it came too late.

use super::clears::{Clears, WindowClears};
use crate::memory::{GROUP, Overlay, OverlayWriter, Seen};
use crate::{Change, Changed};
use plinth_types::version::VERSIONS_PER_SECOND;
use plinth_types::{
    Bytes, KeyList, LogPosition, MutationRef, MutationType, Version, atomic, key_after,
};
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// Bytes that one part of a walk takes from the window, about.
const PART_BYTES: usize = 1 << 20;
/// Batches are counted together up to so many bytes, and so many versions.
const MARK: (u64, Version) = (64 << 10, VERSIONS_PER_SECOND);
/// Leaves that are let go under one lock.
const RELEASED_AT_ONCE: usize = 32;

/// What a part of the window knows: entries in the order of the walk, and cleared ranges.
#[derive(Default)]
pub(crate) struct Part {
    data: Vec<u8>,
    /// Where key and value end, and whether there is a value.
    spans: Vec<(u32, u32, bool)>,
    at: usize,
    pub clears: Clears,
    /// Where the part ends: forward the first key that is not in it, back the last one that is.
    /// `None`: it goes as far as was asked.
    pub reach: Option<Bytes>,
}

impl Part {
    fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.data.extend_from_slice(key);
        let key_end = self.data.len() as u32;
        self.data.extend_from_slice(value.unwrap_or_default());
        self.spans.push((key_end, self.data.len() as u32, value.is_some()));
    }

    fn begin(&self) -> usize {
        self.at.checked_sub(1).map_or(0, |before| self.spans[before].1 as usize)
    }

    /// The key of the present entry; `None` behind the last.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        let (end, ..) = *self.spans.get(self.at)?;
        Some(&self.data[self.begin()..end as usize])
    }

    /// The value of the present entry; `None` if its key is removed.
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        let (begin, end, exists) = *self.spans.get(self.at)?;
        exists.then(|| &self.data[begin as usize..end as usize])
    }

    #[inline]
    pub fn step(&mut self) {
        self.at += 1;
    }
}

/// What was applied, a few batches together.
struct Mark {
    /// The first of them.
    begin: Version,
    /// The last.
    at: LogPosition,
    bytes: u64,
}

/// What was written since the engine's version.
pub(crate) struct Window {
    overlay: Overlay,
    clears: RwLock<WindowClears>,
    has_clears: AtomicBool,
    /// Ascending. What lies between two of them is flushed together.
    marks: Mutex<VecDeque<Mark>>,
    cleared_bytes: AtomicU64,
}

impl Window {
    /// An empty window over an engine at `version`.
    pub fn new(version: Version) -> Self {
        Self {
            overlay: Overlay::new(version),
            clears: RwLock::default(),
            has_clears: AtomicBool::new(false),
            marks: Mutex::default(),
            cleared_bytes: AtomicU64::new(0),
        }
    }

    /// Keys that were written one by one, and the versions that may be read.
    #[inline]
    pub fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    /// Bytes of memory in use.
    pub fn live(&self) -> usize {
        self.overlay.live() + self.cleared_bytes.load(Ordering::Relaxed) as usize
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.overlay.reserved().max(self.overlay.live())
            + self.cleared_bytes.load(Ordering::Relaxed) as usize
    }

    fn marks(&self) -> MutexGuard<'_, VecDeque<Mark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a key was cleared in a range at or before `version`.
    #[inline]
    pub fn is_cleared(&self, key: &[u8], version: Version) -> bool {
        if !self.has_clears.load(Ordering::Acquire) {
            return false;
        }
        self.clears.read().unwrap_or_else(PoisonError::into_inner).covers(key, version)
    }

    /// What was cleared in ranges at or before `version`, between two keys.
    pub fn clears_at(&self, version: Version, begin: &[u8], end: Option<&[u8]>) -> Clears {
        if !self.has_clears.load(Ordering::Acquire) {
            return Clears::new();
        }
        self.clears.read().unwrap_or_else(PoisonError::into_inner).at(version, begin, end)
    }

    /// The keys of a batch whose value must be known before it can be applied.
    pub fn unknown_bases(&self, mutations: &mut dyn Iterator<Item = MutationRef<'_>>) -> KeyList {
        let mut keys = KeyList::new();
        let mut last: Option<&[u8]> = None;
        for mutation in mutations {
            if mutation.kind.is_atomic() && last != Some(mutation.param1) {
                keys.push(mutation.param1);
                last = Some(mutation.param1);
            }
        }
        keys
    }

    /// Applies a batch, with what the keys of its atomic operations hold in the engine.
    pub fn apply(
        &self,
        bases: &BTreeMap<Bytes, Option<Bytes>>,
        at: LogPosition,
        mutations: &mut dyn Iterator<Item = MutationRef<'_>>,
        mut changed: Changed<'_>,
    ) {
        let version = at.version;
        let mut writer = self.overlay.write();
        writer.begin(version);
        let nothing = MutationRef { kind: MutationType::Set, param1: &[], param2: &[] };
        let (mut group, mut bytes) = ([nothing; GROUP], 0);
        loop {
            let (mut keys, mut len) = ([&[][..]; GROUP], 0);
            for ((place, key), mutation) in group.iter_mut().zip(&mut keys).zip(&mut *mutations) {
                (*place, *key) = (mutation, mutation.param1);
                len += 1;
            }
            writer.warm(&keys[..len]);
            for mutation in &group[..len] {
                bytes += (mutation.param1.len() + mutation.param2.len() + 64) as u64;
                self.mutate(&mut writer, version, mutation, bases, &mut changed);
            }
            if len < GROUP {
                break;
            }
        }
        writer.end();
        self.mark(at, bytes);
    }

    fn mutate(
        &self,
        writer: &mut OverlayWriter<'_>,
        version: Version,
        mutation: &MutationRef<'_>,
        bases: &BTreeMap<Bytes, Option<Bytes>>,
        changed: &mut Changed<'_>,
    ) {
        let (key, operand) = (mutation.param1, mutation.param2);
        if mutation.kind == MutationType::ClearRange {
            if key < operand {
                self.clear(writer, version, key, operand, changed);
            }
            return;
        }
        if mutation.kind == MutationType::Set {
            writer.put(key, Some(operand));
            if let Some(changed) = changed {
                changed(Change::Key(key, Some(operand)));
            }
            return;
        }
        let existing = match writer.newest(key) {
            Seen::Value(value) => Some(Bytes::copy_from_slice(value)),
            Seen::Removed => None,
            Seen::Nothing if self.is_cleared(key, Version::MAX) => None,
            Seen::Nothing => bases.get(key).expect("this batch was prepared, and no other").clone(),
        };
        let value = atomic::apply(mutation.kind, existing.as_deref(), operand);
        let value = value.as_deref();
        let compared = mutation.kind == MutationType::CompareAndClear;
        // A comparison that did not match changes nothing; everything else writes.
        if compared && (value.is_some() || existing.is_none()) {
            return;
        }
        writer.put(key, value);
        if let Some(changed) = changed {
            changed(Change::Key(key, value));
        }
    }

    fn clear(
        &self,
        writer: &mut OverlayWriter<'_>,
        version: Version,
        begin: &[u8],
        end: &[u8],
        changed: &mut Changed<'_>,
    ) {
        if *end == key_after(begin)[..] {
            writer.put(begin, None);
            if let Some(changed) = changed {
                changed(Change::Key(begin, None));
            }
            return;
        }
        {
            let mut clears = self.clears.write().unwrap_or_else(PoisonError::into_inner);
            clears.add(begin, end, version);
            self.cleared_bytes.store(clears.bytes() as u64, Ordering::Relaxed);
        }
        self.has_clears.store(true, Ordering::Release);
        writer.clear(begin, end);
        if let Some(changed) = changed {
            changed(Change::Range(begin, end));
        }
    }

    fn mark(&self, at: LogPosition, bytes: u64) {
        let mut marks = self.marks();
        if let Some(LogPosition { version, index, .. }) = marks.back().map(|last| last.at) {
            assert!(version <= at.version, "version {} is applied behind {version}", at.version);
            assert!(index <= at.index, "entry {} is applied behind {index}", at.index);
        }
        let is_open = |mark: &Mark| mark.bytes < MARK.0 && at.version - mark.begin < MARK.1;
        match marks.back_mut() {
            Some(last) if last.at.version == at.version || is_open(last) => {
                last.at = at;
                last.bytes += bytes;
            }
            _ => marks.push_back(Mark { begin: at.version, at, bytes }),
        }
    }

    /// The last place in the log, not above `version`, up to which what was written can be told
    /// from what came later.
    pub fn position_until(&self, version: Version) -> Option<LogPosition> {
        self.marks().iter().map(|mark| mark.at).take_while(|at| at.version <= version).last()
    }

    /// Bytes written up to `version` that the engine does not have.
    pub fn bytes_until(&self, version: Version) -> u64 {
        self.marks()
            .iter()
            .take_while(|mark| mark.at.version <= version)
            .map(|mark| mark.bytes)
            .sum()
    }

    /// Whether the engine may lack something that was written up to `version`.
    pub fn lacks_until(&self, version: Version) -> bool {
        self.marks().iter().take_while(|mark| mark.begin <= version).any(|mark| mark.bytes > 0)
    }

    /// Whether anything was written that the engine does not have.
    pub fn has_marks(&self) -> bool {
        !self.marks().is_empty()
    }

    /// Part of what a walk at `version` meets: at most `most` entries.
    pub fn part(
        &self,
        version: Version,
        from: &[u8],
        until: &[u8],
        forward: bool,
        most: usize,
    ) -> Part {
        let mut part = Part::default();
        self.overlay.walk(version, from, forward, |key, _, value| {
            if if forward { key >= until } else { key < until } {
                return ControlFlow::Break(());
            }
            part.push(key, value);
            if part.spans.len() < most && part.data.len() < PART_BYTES {
                return ControlFlow::Continue(());
            }
            part.reach = Some(if forward { key_after(key) } else { Bytes::copy_from_slice(key) });
            ControlFlow::Break(())
        });
        let reach = part.reach.as_deref().unwrap_or(until);
        let (low, high) = if forward { (from, reach) } else { (reach, from) };
        part.clears = self.clears_at(version, low, Some(high));
        part
    }

    /// # Panics
    /// If marks don't ascend, or memory isn't counted as it is.
    pub fn check_invariants(&self) {
        self.overlay.check_invariants();
        let clears = self.clears.read().unwrap_or_else(PoisonError::into_inner);
        let counted = self.cleared_bytes.load(Ordering::Relaxed);
        assert_eq!(clears.bytes() as u64, counted, "bytes of cleared ranges");
        clears.check_invariants();
        drop(clears);
        let marks = self.marks();
        let mut before = Version::MIN;
        for mark in marks.iter() {
            assert!(before < mark.begin, "marks of the window ascend");
            assert!(mark.begin <= mark.at.version, "a mark ends before it begins");
            before = mark.at.version;
        }
    }

    /// Forgets what the engine has now, up to `version`: the clears, and then the records, a few at
    /// a time. Gives where to go on with the records; `None` when that was all.
    pub fn release(&self, version: Version, from: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let from = from.unwrap_or_else(|| {
            let mut clears = self.clears.write().unwrap_or_else(PoisonError::into_inner);
            clears.forget(version);
            self.cleared_bytes.store(clears.bytes() as u64, Ordering::Relaxed);
            self.has_clears.store(!clears.is_empty(), Ordering::Release);
            let mut marks = self.marks();
            while marks.front().is_some_and(|mark| mark.at.version <= version) {
                marks.pop_front();
            }
            Vec::new()
        });
        self.overlay.write().release(version, from, RELEASED_AT_ONCE)
    }
}
