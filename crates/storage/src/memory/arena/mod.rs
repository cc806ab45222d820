//! The memory of one store: objects of one size side by side, handed out and taken back by the
//! writer alone.
//!
//! ```text
//!   chunk (2 MiB, one huge page where the system has them)
//!   ┌───────────┬───────────┬───────────┬─ ...
//!   │ span 64 K │ span 64 K │   free    │
//!   └───────────┴───────────┴───────────┴─ ...
//!    96 96 96 ..  1024 1024 ..                  every object of a span has the span's size class
//! ```
//!
//! A general allocator would cost a lock-free readers' index three things: 8 to 16 bytes an object,
//! atomic operations, and memory that stays scattered when the window has passed: after a burst of
//! overwrites each page still holds a few live rows. Here what is free stands in bitmaps beside the
//! spans (taking an object back touches no line of it), spans that are fuller are filled first, the
//! sparsest ones can be named to be emptied ([`Arena::begin_evacuation`]), and empty chunks go back
//! to the system.
//!
//! Objects above [`MAX_CLASS`] come from the global allocator.

mod chunks;
mod classes;

use chunks::{CHUNK, Chunks, Mobility, SPAN, SPANS_PER_CHUNK};
pub(crate) use classes::MAX_CLASS;
use classes::{CLASSES, class_of, class_size};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::ptr::NonNull;

/// What an object is. Kinds never share a span, so that spans of one kind can be emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Record = 0,
    Leaf = 1,
    /// Inner nodes and separators.
    Inner = 2,
}

const KINDS: [Kind; 3] = [Kind::Record, Kind::Leaf, Kind::Inner];

impl Kind {
    fn mobility(self) -> Mobility {
        if self == Kind::Inner { Mobility::Fixed } else { Mobility::Movable }
    }
}

/// Alignment of every object whose size is a multiple of it; objects of other sizes are aligned to
/// 8.
pub(crate) const NODE_ALIGN: usize = 64;

type SpanId = u32;
const NONE: SpanId = SpanId::MAX;
const BUCKETS: usize = 8;

/// Memory of one store. One thread at a time.
pub(crate) struct Arena {
    chunks: Chunks,
    spans: Vec<Span>,
    classes: Vec<Class>,
    /// Spans that were being emptied and still hold something: nothing is put there.
    cold: Vec<SpanId>,
    large: BTreeMap<usize, (NonNull<u8>, Layout)>,
    large_bytes: usize,
    kinds: [Usage; KINDS.len()],
}

/// Bytes of one kind of objects.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Usage {
    /// In objects that are in use.
    pub(crate) live: usize,
    /// In the spans that hold them.
    pub(crate) spans: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No class has it.
    Free,
    /// The class takes objects from it.
    Active,
    /// Nearly full: in no list.
    Full,
    /// In the list of its bucket.
    Listed(u8),
    /// To be emptied: in no list.
    Cold,
}

struct Span {
    /// A bit for each object: set when it is free.
    free: Box<[u64]>,
    live: u32,
    class: u16,
    state: State,
    next: SpanId,
    prev: SpanId,
}

/// Objects of one kind and size.
struct Class {
    kind: Kind,
    size: u32,
    slots: u32,
    /// How many spans it has, and how many of their objects are in use.
    spans: u32,
    live: u64,
    /// The span that objects are taken from, and the word of its bitmap that is being used up.
    active: SpanId,
    base: *mut u8,
    word_at: u32,
    word: u64,
    /// Spans with room, by how full they are.
    buckets: [SpanId; BUCKETS],
}

// SAFETY: an arena owns its memory; the raw pointers in it are to nothing else.
unsafe impl Send for Arena {}

impl Arena {
    pub(crate) fn new() -> Self {
        let class = |kind, index| {
            let size = class_size(index) as u32;
            let slots = SPAN as u32 / size;
            let base = std::ptr::null_mut();
            Class {
                kind,
                size,
                slots,
                spans: 0,
                live: 0,
                active: NONE,
                base,
                word_at: 0,
                word: 0,
                buckets: [NONE; BUCKETS],
            }
        };
        let classes =
            KINDS.into_iter().flat_map(|kind| (0..CLASSES).map(move |index| class(kind, index)));
        Self {
            chunks: Chunks::new(),
            spans: Vec::new(),
            classes: classes.collect(),
            cold: Vec::new(),
            large: BTreeMap::new(),
            large_bytes: 0,
            kinds: [Usage::default(); KINDS.len()],
        }
    }

    /// Room for `size` bytes, uninitialised, aligned to 8, or to [`NODE_ALIGN`] if `size` is a
    /// multiple of it.
    #[inline]
    pub(crate) fn alloc(&mut self, kind: Kind, size: usize) -> NonNull<u8> {
        if size > MAX_CLASS {
            return self.alloc_large(kind, size);
        }
        let at = kind as usize * CLASSES + class_of(size);
        if self.classes[at].word == 0 {
            self.refill(at);
        }
        let class = &mut self.classes[at];
        let slot = class.word_at * 64 + class.word.trailing_zeros();
        class.word &= class.word - 1;
        self.kinds[kind as usize].live += class.size as usize;
        // SAFETY: the bit was set, so `slot` is below `slots`, and the object lies inside the span.
        unsafe { NonNull::new_unchecked(class.base.add((slot * class.size) as usize)) }
    }

    /// Takes an object back.
    ///
    /// # Safety
    /// `object` came from [`Arena::alloc`] of this arena, was not freed since, and nobody uses it
    /// any more.
    pub(crate) unsafe fn free(&mut self, object: NonNull<u8>) {
        let Some((id, offset)) = self.chunks.locate(object) else {
            return self.free_large(object);
        };
        let span = &mut self.spans[id as usize];
        let class = &mut self.classes[span.class as usize];
        let slot = offset as u32 / class.size;
        let (word, bit) = (slot as usize / 64, 1u64 << (slot % 64));
        assert!(
            span.free[word] & bit == 0 && (offset as u32).is_multiple_of(class.size),
            "a free of what is not in use"
        );
        span.free[word] |= bit;
        span.live -= 1;
        class.live -= 1;
        let size = class.size as usize;
        self.kinds[class.kind as usize].live -= size;
        self.chunks.add_live(id, -(size as isize));
        self.settle(id);
    }

    /// What an object of `size` bytes occupies.
    #[inline(always)]
    pub(crate) fn rounded(size: usize) -> usize {
        if size > MAX_CLASS { size } else { class_size(class_of(size)) }
    }

    /// Whether `object` is in use and lies in a span that is to be emptied.
    pub(crate) fn is_evacuating(&self, object: NonNull<u8>) -> bool {
        let Some((id, offset)) = self.chunks.locate(object) else { return false };
        let span = &self.spans[id as usize];
        let slot = offset as u32 / self.classes[span.class as usize].size;
        span.state == State::Cold && span.free[slot as usize / 64] & (1 << (slot % 64)) == 0
    }

    /// The bytes that `object` occupies.
    #[cfg(test)]
    pub(crate) fn size_of(&self, object: NonNull<u8>) -> usize {
        match self.chunks.locate(object) {
            Some((id, _)) => self.classes[self.spans[id as usize].class as usize].size as usize,
            None => self.large.get(&object.addr().get()).map_or(0, |(_, layout)| layout.size()),
        }
    }

    /// All memory taken from the system, in bytes, the bookkeeping included.
    pub(crate) fn reserved(&self) -> usize {
        let bitmaps = self.chunks.spans_in_use() * 96;
        self.chunks.bytes(Mobility::Movable)
            + self.chunks.bytes(Mobility::Fixed)
            + self.large_bytes
            + self.spans.capacity() * size_of::<Span>()
            + bitmaps
    }

    /// Bytes of records or of nodes.
    pub(crate) fn usage(&self, kind: Kind) -> Usage {
        self.kinds[kind as usize]
    }

    /// Bytes of the chunks for objects that can be moved, and how many of them are in use.
    pub(crate) fn movable(&self) -> (usize, usize) {
        let live = self.kinds[Kind::Record as usize].live + self.kinds[Kind::Leaf as usize].live;
        (self.chunks.bytes(Mobility::Movable), live - self.large_bytes)
    }

    /// The least that one evacuation is about, in bytes.
    pub(crate) const LEAST_EVACUATED: usize = SPAN;

    /// Chooses what the caller is to empty, and pushes its objects to `objects`: the emptiest span
    /// of a class whose other spans have room for what is in it, or a chunk whose spans find room
    /// in others. Nothing new is put there until [`Arena::end_evacuations`]. False when nothing
    /// would be gained.
    pub(crate) fn begin_evacuation(&mut self, objects: &mut Vec<(Kind, NonNull<u8>)>) -> bool {
        if let Some(id) = self.sparse_span() {
            self.evacuate(id, objects);
            return true;
        }
        let Some(ids) = self.chunks.close_emptiest() else { return false };
        for id in ids {
            if self
                .spans
                .get(id as usize)
                .is_some_and(|span| !matches!(span.state, State::Free | State::Cold))
            {
                self.evacuate(id, objects);
            }
        }
        true
    }

    /// The emptiest span of a class whose free objects would fill a span and more.
    fn sparse_span(&self) -> Option<SpanId> {
        let loose = |class: &&Class| {
            let all = u64::from(class.spans) * u64::from(class.slots);
            class.kind.mobility() == Mobility::Movable
                && all - class.live > u64::from(class.slots) + all / 16
        };
        self.classes
            .iter()
            .filter(loose)
            .find_map(|class| class.buckets.iter().copied().find(|id| *id != NONE))
    }

    fn evacuate(&mut self, id: SpanId, objects: &mut Vec<(Kind, NonNull<u8>)>) {
        if self.spans[id as usize].state == State::Active {
            self.deactivate(id);
        }
        self.unlist(id);
        self.spans[id as usize].state = State::Cold;
        self.cold.push(id);
        self.settle(id);
        if self.spans[id as usize].state == State::Cold {
            self.push_objects(id, objects);
        }
    }

    /// Lets spans that could not be emptied be used again.
    pub(crate) fn end_evacuations(&mut self) {
        self.chunks.reopen();
        for id in std::mem::take(&mut self.cold) {
            if self.spans[id as usize].state == State::Cold {
                self.spans[id as usize].state = State::Full;
                self.settle(id);
            }
        }
    }

    /// Takes a class's active span from it.
    fn deactivate(&mut self, id: SpanId) {
        let span = &mut self.spans[id as usize];
        let class = &mut self.classes[span.class as usize];
        span.free[class.word_at as usize] |= class.word;
        span.live -= class.word.count_ones();
        class.live -= u64::from(class.word.count_ones());
        self.chunks.add_live(id, -(class.word.count_ones() as isize * class.size as isize));
        (class.active, class.word) = (NONE, 0);
        span.state = State::Full;
    }

    fn push_objects(&self, id: SpanId, objects: &mut Vec<(Kind, NonNull<u8>)>) {
        let span = &self.spans[id as usize];
        let class = &self.classes[span.class as usize];
        let base = self.chunks.span_base(id);
        for slot in 0..class.slots {
            if span.free[slot as usize / 64] & (1 << (slot % 64)) == 0 {
                // SAFETY: slot < slots, so the object lies inside the span.
                let object =
                    unsafe { NonNull::new_unchecked(base.add((slot * class.size) as usize)) };
                objects.push((class.kind, object));
            }
        }
    }

    /// Gives the class at `at` a word of free objects.
    #[cold]
    fn refill(&mut self, at: usize) {
        loop {
            let class = &mut self.classes[at];
            if class.active == NONE {
                self.activate(at);
                continue;
            }
            let span = &mut self.spans[class.active as usize];
            let from = class.word_at as usize;
            if let Some(word) = (from..span.free.len()).find(|word| span.free[*word] != 0) {
                class.word_at = word as u32;
                class.word = std::mem::take(&mut span.free[word]);
                // The whole word counts as in use: nothing else looks at a word while it is used
                // up.
                let taken = class.word.count_ones();
                span.live += taken;
                class.live += u64::from(taken);
                self.chunks.add_live(class.active, (taken * class.size) as isize);
                return;
            }
            let id = std::mem::replace(&mut class.active, NONE);
            span.state = State::Full;
            self.settle(id);
        }
    }

    /// Chooses the fullest span with room, or takes a new one.
    fn activate(&mut self, at: usize) {
        let listed = self.classes[at].buckets.iter().rev().copied().find(|id| *id != NONE);
        let id = match listed {
            Some(id) => {
                self.unlist(id);
                id
            }
            None => self.new_span(at),
        };
        self.spans[id as usize].state = State::Active;
        let base = self.chunks.span_base(id);
        let class = &mut self.classes[at];
        (class.active, class.base, class.word_at, class.word) = (id, base, 0, 0);
    }

    fn new_span(&mut self, at: usize) -> SpanId {
        let class = &mut self.classes[at];
        class.spans += 1;
        let id = self.chunks.take_span(class.kind.mobility());
        let slots = class.slots as usize;
        let word = |word: usize| match slots - word * 64 {
            64.. => u64::MAX,
            rest => (1 << rest) - 1,
        };
        let free = (0..slots.div_ceil(64)).map(word).collect();
        let span =
            Span { free, live: 0, class: at as u16, state: State::Active, next: NONE, prev: NONE };
        self.kinds[class.kind as usize].spans += SPAN;
        if self.spans.len() <= id as usize {
            let spare = || Span {
                free: Box::default(),
                live: 0,
                class: 0,
                state: State::Free,
                next: NONE,
                prev: NONE,
            };
            self.spans.resize_with((id as usize / SPANS_PER_CHUNK + 1) * SPANS_PER_CHUNK, spare);
        }
        self.spans[id as usize] = span;
        id
    }

    /// Puts a span where it belongs after the number of its objects changed.
    fn settle(&mut self, id: SpanId) {
        let span = &self.spans[id as usize];
        if span.state == State::Active {
            return;
        }
        if span.live == 0 {
            return self.release(id);
        }
        if span.state == State::Cold {
            return;
        }
        let slots = self.classes[span.class as usize].slots;
        // Spans with next to no room are left alone: changing spans for each object would be slow.
        let nearly_full = slots - span.live <= slots / 16;
        let state = match nearly_full {
            true => State::Full,
            false => State::Listed((span.live as usize * BUCKETS / slots as usize) as u8),
        };
        if state != span.state {
            self.unlist(id);
            self.list(id, state);
        }
    }

    fn list(&mut self, id: SpanId, state: State) {
        self.spans[id as usize].state = state;
        let State::Listed(bucket) = state else { return };
        let class = &mut self.classes[self.spans[id as usize].class as usize];
        let head = std::mem::replace(&mut class.buckets[bucket as usize], id);
        (self.spans[id as usize].prev, self.spans[id as usize].next) = (NONE, head);
        if head != NONE {
            self.spans[head as usize].prev = id;
        }
    }

    fn unlist(&mut self, id: SpanId) {
        let Span { state: State::Listed(bucket), next, prev, class, .. } = self.spans[id as usize]
        else {
            return;
        };
        match prev {
            NONE => self.classes[class as usize].buckets[bucket as usize] = next,
            prev => self.spans[prev as usize].next = next,
        }
        if next != NONE {
            self.spans[next as usize].prev = prev;
        }
    }

    fn release(&mut self, id: SpanId) {
        self.unlist(id);
        let span = &mut self.spans[id as usize];
        (span.state, span.free) = (State::Free, Box::default());
        let class = &mut self.classes[span.class as usize];
        class.spans -= 1;
        self.kinds[class.kind as usize].spans -= SPAN;
        self.chunks.give_span(id);
    }

    #[cold]
    fn alloc_large(&mut self, kind: Kind, size: usize) -> NonNull<u8> {
        debug_assert_eq!(kind, Kind::Record, "nodes are small");
        let layout = Layout::from_size_align(size, 16)
            .expect("a record is far smaller than the address space");
        // SAFETY: the size is not zero.
        let object = unsafe { alloc(layout) };
        let Some(object) = NonNull::new(object) else { handle_alloc_error(layout) };
        self.large.insert(object.addr().get(), (object, layout));
        self.large_bytes += size;
        let usage = &mut self.kinds[kind as usize];
        usage.live += size;
        usage.spans += size;
        object
    }

    fn free_large(&mut self, object: NonNull<u8>) {
        let (object, layout) =
            self.large.remove(&object.addr().get()).expect("what is in no chunk is a large object");
        // SAFETY: it was allocated with this layout, and removing it from the map makes this its
        // only free.
        unsafe { dealloc(object.as_ptr(), layout) };
        let usage = &mut self.kinds[Kind::Record as usize];
        usage.live -= layout.size();
        usage.spans -= layout.size();
        self.large_bytes -= layout.size();
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for (object, layout) in self.large.values() {
            // SAFETY: it was allocated with this layout and is still in the map, so not freed.
            unsafe { dealloc(object.as_ptr(), *layout) };
        }
    }
}

const _: () = assert!(CHUNK == SPAN * SPANS_PER_CHUNK && MAX_CLASS <= SPAN / 8);

#[cfg(test)]
mod tests;
