//! Chunks of memory from the system, cut into spans.
//!
//! The lowest chunks are filled first, so that the others empty, and empty ones go back. A table
//! leads from an address to its chunk: what describes the spans lies outside of them, where it does
//! not crowd the same few sets of the processor's caches.

use std::ptr::{self, NonNull};

/// Bytes of a span.
pub(super) const SPAN: usize = 64 << 10;
/// Spans in a chunk.
pub(super) const SPANS_PER_CHUNK: usize = if cfg!(miri) { 4 } else { 32 };
/// Bytes of a chunk, and its alignment: a huge page.
pub(super) const CHUNK: usize = SPAN * SPANS_PER_CHUNK;

const ALL_FREE: u32 = if SPANS_PER_CHUNK == 32 { u32::MAX } else { (1 << SPANS_PER_CHUNK) - 1 };

/// Whether the objects of a chunk can be moved elsewhere. The two never share a chunk: what can't
/// be moved would keep it from being emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mobility {
    Movable = 0,
    Fixed = 1,
}

/// All chunks of an arena.
pub(super) struct Chunks {
    chunks: Vec<Chunk>,
    table: Table,
    /// No chunk of that mobility before this one has a free span.
    lowest: [usize; 2],
    mapped: [usize; 2],
    empty: [usize; 2],
    spans_in_use: usize,
}

struct Chunk {
    /// Null when the chunk was given back: its place can be used again.
    base: *mut u8,
    /// A bit for each span: set when it is free.
    free: u32,
    mobility: Mobility,
    /// No span of it is handed out.
    closed: bool,
    /// Bytes of the objects in use.
    live: usize,
}

impl Chunks {
    pub(super) fn new() -> Self {
        let (lowest, mapped, empty) = ([0; 2], [0; 2], [0; 2]);
        Self { chunks: Vec::new(), table: Table::default(), lowest, mapped, empty, spans_in_use: 0 }
    }

    /// Bytes taken from the system for objects of a mobility.
    pub(super) fn bytes(&self, mobility: Mobility) -> usize {
        self.mapped[mobility as usize] * CHUNK
    }

    pub(super) fn spans_in_use(&self) -> usize {
        self.spans_in_use
    }

    /// The first byte of a span that is in use.
    pub(super) fn span_base(&self, id: u32) -> *mut u8 {
        let chunk = &self.chunks[id as usize / SPANS_PER_CHUNK];
        debug_assert!(!chunk.base.is_null());
        // SAFETY: the span lies inside its chunk.
        unsafe { chunk.base.add(id as usize % SPANS_PER_CHUNK * SPAN) }
    }

    /// The span that `address` lies in, and where in it; `None` if it lies in no chunk.
    #[inline]
    pub(super) fn locate(&self, address: NonNull<u8>) -> Option<(u32, usize)> {
        let address = address.addr().get();
        let chunk = self.table.get(address / CHUNK)?;
        let offset = address % CHUNK;
        Some((chunk * SPANS_PER_CHUNK as u32 + (offset / SPAN) as u32, offset % SPAN))
    }

    /// Notes that objects of a span came into use (or, below zero, out of it).
    #[inline]
    pub(super) fn add_live(&mut self, id: u32, bytes: isize) {
        let live = &mut self.chunks[id as usize / SPANS_PER_CHUNK].live;
        *live = live.wrapping_add_signed(bytes);
    }

    /// A span that nobody uses: from the lowest chunk in use that has one, else from an empty one.
    /// So what is evacuated never opens an empty chunk while others have room, and each evacuation
    /// of a chunk leaves one fewer in use.
    pub(super) fn take_span(&mut self, mobility: Mobility) -> u32 {
        let usable = |chunk: &Chunk| chunk.free != 0 && !chunk.closed && chunk.mobility == mobility;
        let mut open = (self.lowest[mobility as usize]..self.chunks.len())
            .filter(|at| usable(&self.chunks[*at]));
        let first = open.clone().next();
        let in_use = open.find(|at| self.chunks[*at].free != ALL_FREE);
        let at = in_use.or(first).unwrap_or_else(|| self.map_chunk(mobility));
        self.lowest[mobility as usize] = first.unwrap_or(at);
        let chunk = &mut self.chunks[at];
        self.empty[mobility as usize] -= usize::from(chunk.free == ALL_FREE);
        let span = chunk.free.trailing_zeros();
        chunk.free &= chunk.free - 1;
        self.spans_in_use += 1;
        at as u32 * SPANS_PER_CHUNK as u32 + span
    }

    /// Takes a span back.
    pub(super) fn give_span(&mut self, id: u32) {
        let at = id as usize / SPANS_PER_CHUNK;
        let chunk = &mut self.chunks[at];
        let mobility = chunk.mobility as usize;
        chunk.free |= 1 << (id as usize % SPANS_PER_CHUNK);
        self.spans_in_use -= 1;
        if chunk.free == ALL_FREE {
            chunk.closed = false;
            self.empty[mobility] += 1;
            // A few empty chunks stay, so that a store that breathes does not map and unmap all the
            // time.
            if self.empty[mobility] > 1 + self.mapped[mobility] / 32 {
                return self.unmap_chunk(at);
            }
        }
        if !self.chunks[at].closed {
            self.lowest[mobility] = self.lowest[mobility].min(at);
        }
    }

    /// Closes the movable chunk that has least in use, if other chunks that are in use have room
    /// for its spans. Gives its spans.
    pub(super) fn close_emptiest(&mut self) -> Option<std::ops::Range<u32>> {
        let in_use = |chunk: &Chunk| {
            let used = !chunk.base.is_null() && chunk.free != ALL_FREE && !chunk.closed;
            used && chunk.mobility == Mobility::Movable
        };
        let used = self.chunks.iter().enumerate().filter(|(_, chunk)| in_use(chunk));
        let free: usize = used.clone().map(|(_, chunk)| chunk.free.count_ones() as usize).sum();
        let (at, _) = used.min_by_key(|(_, chunk)| chunk.live)?;
        // All free spans, less those of this chunk, are to take those of this chunk that are in
        // use.
        if free < SPANS_PER_CHUNK {
            return None;
        }
        self.chunks[at].closed = true;
        let first = (at * SPANS_PER_CHUNK) as u32;
        Some(first..first + SPANS_PER_CHUNK as u32)
    }

    /// Opens all closed chunks.
    pub(super) fn reopen(&mut self) {
        for (at, chunk) in self.chunks.iter_mut().enumerate().filter(|(_, chunk)| chunk.closed) {
            chunk.closed = false;
            let lowest = &mut self.lowest[chunk.mobility as usize];
            *lowest = (*lowest).min(at);
        }
    }

    fn map_chunk(&mut self, mobility: Mobility) -> usize {
        let chunk = Chunk { base: map(), free: ALL_FREE, mobility, closed: false, live: 0 };
        self.mapped[mobility as usize] += 1;
        self.empty[mobility as usize] += 1;
        let at =
            self.chunks.iter().position(|chunk| chunk.base.is_null()).unwrap_or(self.chunks.len());
        match self.chunks.get_mut(at) {
            Some(vacant) => *vacant = chunk,
            None => self.chunks.push(chunk),
        }
        self.table = Table::of(&self.chunks);
        at
    }

    fn unmap_chunk(&mut self, at: usize) {
        let chunk = &mut self.chunks[at];
        debug_assert_eq!(chunk.live, 0);
        let base = std::mem::replace(&mut chunk.base, ptr::null_mut());
        chunk.free = 0;
        self.mapped[chunk.mobility as usize] -= 1;
        self.empty[chunk.mobility as usize] -= 1;
        self.table = Table::of(&self.chunks);
        // SAFETY: `base` came from `map`, no span of the chunk is in use, and its place is vacant
        // now.
        unsafe { unmap(base) };
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        for chunk in self.chunks.iter().filter(|chunk| !chunk.base.is_null()) {
            // SAFETY: `base` came from `map` and was not unmapped; the arena's owner goes with the
            // arena.
            unsafe { unmap(chunk.base) };
        }
    }
}

/// From the number of a chunk-sized piece of the address space to the place of the chunk there:
/// open addressing, at most half full, made anew when a chunk comes or goes.
#[derive(Default)]
struct Table {
    /// (number, place); number 0, where nothing can lie, marks a free entry.
    entries: Box<[(usize, u32)]>,
    shift: u32,
}

impl Table {
    fn of(chunks: &[Chunk]) -> Self {
        let size = (chunks.len() * 2).next_power_of_two().max(4);
        let mut table =
            Self { entries: vec![(0, 0); size].into(), shift: usize::BITS - size.ilog2() };
        for (place, chunk) in chunks.iter().enumerate().filter(|(_, chunk)| !chunk.base.is_null()) {
            let number = chunk.base.addr() / CHUNK;
            let mut at = table.hash(number);
            while table.entries[at].0 != 0 {
                at = (at + 1) % size;
            }
            table.entries[at] = (number, place as u32);
        }
        table
    }

    #[inline(always)]
    fn hash(&self, number: usize) -> usize {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize) >> self.shift
    }

    #[inline(always)]
    fn get(&self, number: usize) -> Option<u32> {
        if self.entries.is_empty() {
            return None;
        }
        let mut at = self.hash(number);
        loop {
            match self.entries[at] {
                (0, _) => return None,
                (found, place) if found == number => return Some(place),
                _ => at = (at + 1) % self.entries.len(),
            }
        }
    }
}

/// A chunk of fresh memory, aligned to its size.
#[cfg(all(target_os = "linux", not(miri)))]
fn map() -> *mut u8 {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    let fail = || -> ! { std::alloc::handle_alloc_error(layout()) };
    let flags = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh private mapping at an address of the kernel's choice touches nothing that
    // exists.
    let Ok(base) =
        (unsafe { mmap_anonymous(ptr::null_mut(), 2 * CHUNK, flags, MapFlags::PRIVATE) })
    else {
        fail()
    };
    let base = base.cast::<u8>();
    let before = base.addr().wrapping_neg() % CHUNK;
    // SAFETY: before + CHUNK <= 2 * CHUNK, so all three pieces lie in the mapping just made, of
    // which the outer two are given back. The advice only changes how the kernel backs the piece
    // that stays.
    unsafe {
        let chunk = base.add(before);
        if before > 0 && munmap(base.cast(), before).is_err() {
            fail()
        }
        if before < CHUNK && munmap(chunk.add(CHUNK).cast(), CHUNK - before).is_err() {
            fail()
        }
        // Huge pages are a matter of speed; a system without them serves as well.
        let _ = madvise(chunk.cast(), CHUNK, Advice::LinuxHugepage);
        chunk
    }
}

/// Gives a chunk back.
///
/// # Safety
/// `base` came from [`map`], and nobody uses the chunk any more.
#[cfg(all(target_os = "linux", not(miri)))]
unsafe fn unmap(base: *mut u8) {
    // SAFETY: by the caller's promise the chunk is a mapping of ours that nobody uses.
    let result = unsafe { rustix::mm::munmap(base.cast(), CHUNK) };
    debug_assert!(result.is_ok());
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn map() -> *mut u8 {
    // SAFETY: the size is not zero.
    let chunk = unsafe { std::alloc::alloc(layout()) };
    if chunk.is_null() {
        std::alloc::handle_alloc_error(layout());
    }
    chunk
}

/// Gives a chunk back.
///
/// # Safety
/// `base` came from [`map`], and nobody uses the chunk any more.
#[cfg(not(all(target_os = "linux", not(miri))))]
unsafe fn unmap(base: *mut u8) {
    // SAFETY: by the caller's promise it was allocated with this layout and is not in use.
    unsafe { std::alloc::dealloc(base, layout()) };
}

fn layout() -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(CHUNK, CHUNK).expect("a chunk's size is a power of two")
}
