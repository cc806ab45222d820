//! The resolver: generations in a row, the newest of which grows.
//!
//! For a transaction that reads at version `v` those generations count that have writes above `v`:
//! the newest few, and of them only the oldest has older writes too, which stamps tell apart. A
//! transaction is judged and, if it may commit, recorded before the next one is looked at; so the
//! writes of one batch need no rules of their own: their version is above every read version.
//!
//! Whoever reads memory waits for it. While one transaction is judged, the hash table's slots for
//! the next one are on their way to the cache (`look_ahead`).

use crate::generation::{After, Credit, Generation};
use crate::hash::Hasher;
use crate::planted::{Planted, Plot};
use crate::points;
use crate::{Transaction, Verdict};
use plinth_types::limits::WINDOW_VERSIONS;
use plinth_types::{Conflicts, RangeRef, Version};
use std::collections::VecDeque;

/// Decides which transactions may commit. See the [crate's page](crate) for how.
pub struct Resolver {
    hasher: Hasher,
    sizing: Sizing,
    /// Never empty. All but the last are complete; versions go up.
    generations: VecDeque<Generation>,
    /// A forgotten generation whose memory the next one of its size takes over.
    spare: Option<Generation>,
    oldest: Version,
    newest: Version,
    credit: Credit,
    hashes: Hashes,
    plot: Plot,
}

/// When a generation is complete.
#[derive(Clone, Copy)]
pub(crate) struct Sizing {
    /// Writes that the smallest and the largest generations have room for.
    pub(crate) smallest: usize,
    pub(crate) largest: usize,
    /// With fewer writes it isn't worth while to complete one for the sake of memory.
    pub(crate) few: usize,
    /// How many versions it may span, and how many if it has few writes.
    pub(crate) span: Version,
    pub(crate) longest_span: Version,
}

/// The hashes of the single keys of two transactions, reads before writes; 0 stands for a range.
#[derive(Default)]
struct Hashes {
    now: Vec<u64>,
    next: Vec<u64>,
}

impl Sizing {
    const USUAL: Self = Self {
        smallest: 1 << 10,
        largest: points::LARGEST,
        few: 1 << 12,
        span: WINDOW_VERSIONS / 16,
        longest_span: WINDOW_VERSIONS / 2,
    };
}

impl Resolver {
    /// A resolver that knows nothing of versions up to `oldest`: transactions that read below are
    /// too old.
    pub fn new(oldest: Version) -> Self {
        Self::with_seed(oldest, 0)
    }

    /// The same with a secret from which the hash function is made. Verdicts don't depend on it;
    /// without a random one, somebody who may choose keys can make the resolver slow.
    pub fn with_seed(oldest: Version, seed: u64) -> Self {
        Self::with_sizing(oldest, seed, Sizing::USUAL)
    }

    pub(crate) fn with_sizing(oldest: Version, seed: u64, sizing: Sizing) -> Self {
        Self {
            hasher: Hasher::new(seed),
            sizing,
            generations: VecDeque::from([Generation::new(sizing.smallest)]),
            spare: None,
            oldest,
            newest: oldest,
            credit: Credit::default(),
            hashes: Hashes::default(),
            plot: Plot::default(),
        }
    }

    /// Makes a mistake of this kind from now on.
    #[cfg(any(test, feature = "planted-bugs"))]
    pub fn plant(&mut self, bug: Planted) {
        self.plot.plant(bug);
    }

    /// Judges the transactions of a batch, in order, and remembers what those write that may
    /// commit, at `version`.
    ///
    /// `verdicts` is cleared first and has one verdict for each transaction then.
    ///
    /// # Panics
    /// If `version` is not above [`Resolver::newest`]: what was committed could no longer be told
    /// from what comes.
    pub fn resolve(
        &mut self,
        version: Version,
        batch: &[Transaction<'_>],
        verdicts: &mut Vec<Verdict>,
    ) {
        assert!(version > self.newest, "batch {version} is not above batch {}", self.newest);
        self.newest = version;
        verdicts.clear();
        let deferred = self.plot.has(Planted::IgnoreSameBatch);
        self.look_ahead(batch.first());
        for (at, transaction) in batch.iter().enumerate() {
            std::mem::swap(&mut self.hashes.now, &mut self.hashes.next);
            self.look_ahead(batch.get(at + 1));
            let verdict = self.judge(transaction);
            if !deferred && (verdict == Verdict::Commit || self.plot.has(Planted::RecordRejected)) {
                self.record(transaction.conflicts);
            }
            verdicts.push(verdict);
        }
        if deferred {
            self.record_accepted(batch, verdicts);
        }
        self.complete_by_age();
    }

    /// Forgets what was written up to `oldest`: transactions that read below are too old from now
    /// on. An `oldest` below the one before changes nothing.
    ///
    /// Memory is given back a generation at a time, so that no call takes long.
    pub fn forget_before(&mut self, oldest: Version) {
        self.oldest = self.oldest.max(oldest);
        self.release_one();
    }

    /// The lowest version that a transaction may read at.
    pub fn oldest(&self) -> Version {
        self.oldest
    }

    /// The version of the newest batch; before the first, what [`Resolver::new`] got.
    pub fn newest(&self) -> Version {
        self.newest
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        let generations = self.generations.iter().chain(&self.spare).map(Generation::memory);
        let hashes = self.hashes.now.capacity() + self.hashes.next.capacity();
        generations.sum::<usize>() + hashes * size_of::<u64>()
    }

    /// Checks all that should always hold. Takes long.
    ///
    /// # Panics
    /// If anything is wrong.
    pub fn check_invariants(&self) {
        let mut before = None;
        for (at, generation) in self.generations.iter().enumerate() {
            generation.check(|key| self.hasher.hash(key));
            assert!(
                generation.len() <= generation.capacity() + 1,
                "a generation has room for its writes"
            );
            assert!(
                generation.oldest() >= before || generation.oldest().is_none(),
                "generations are in order"
            );
            assert!(
                at + 1 == self.generations.len() || generation.oldest().is_some(),
                "none but the last is empty"
            );
            before = generation.newest().or(before);
        }
        assert!(
            before.is_none_or(|version| version <= self.newest),
            "no write is above the newest version"
        );
    }

    /// Hashes the keys of the next transaction, and has the slots that it needs loaded.
    fn look_ahead(&mut self, transaction: Option<&Transaction<'_>>) {
        let next = &mut self.hashes.next;
        next.clear();
        let Some(Transaction { conflicts, .. }) = transaction else { return };
        let hash =
            |range: RangeRef<'_>| if range.is_single() { self.hasher.hash(range.begin) } else { 0 };
        let first = first_above(&self.generations, conflicts.read_version);
        let mut touched = 0;
        for read in &conflicts.reads {
            let hash = hash(read);
            next.push(hash);
            touched |= self
                .generations
                .range(first..)
                .fold(0, |all, generation| all | generation.touch(hash));
        }
        let current = self.generations.back();
        for write in &conflicts.writes {
            let hash = hash(write);
            next.push(hash);
            touched |= current.map_or(0, |current| current.touch(hash));
        }
        // Else the compiler would see that nobody wants to know.
        std::hint::black_box(touched);
    }

    fn judge(&mut self, transaction: &Transaction<'_>) -> Verdict {
        let Conflicts { read_version, reads, .. } = transaction.conflicts;
        if reads.is_empty() && !self.plot.has(Planted::BlindTooOld) {
            return Verdict::Commit;
        }
        if *read_version < self.oldest && !self.plot.has(Planted::NeverTooOld) {
            return Verdict::TooOld;
        }
        if self.plot.has(Planted::IgnoreReads) {
            return Verdict::Commit;
        }
        // Whatever a transaction says that it read at, the batch's own writes are newer.
        let version = (*read_version).min(self.newest.saturating_sub(1));
        let version = if self.plot.has(Planted::IncludeReadVersion) {
            version.saturating_sub(1)
        } else {
            version
        };
        let first = first_above(&self.generations, version);
        let Some(after) = self.generations.get(first).map(|generation| generation.after(version))
        else {
            return Verdict::Commit;
        };
        let mut conflicting = Vec::new();
        for (position, read) in reads.iter().enumerate() {
            if !self.is_written(read, self.hashes.now[position], first, after) {
                continue;
            }
            if !transaction.report {
                return Verdict::Conflict { reads: Vec::new() };
            }
            conflicting.push(position);
        }
        if conflicting.is_empty() {
            Verdict::Commit
        } else {
            Verdict::Conflict { reads: conflicting }
        }
    }

    /// Whether a key of `range` was written in the generations from `first` on, in that one above
    /// `after`.
    #[inline]
    fn is_written(&mut self, range: RangeRef<'_>, hash: u64, first: usize, after: After) -> bool {
        let since = |at| if at == first { after } else { After::default() };
        let credit = &mut self.credit;
        let newest_first = (first..self.generations.len()).rev();
        match range.end {
            None => newest_first
                .into_iter()
                .any(|at| self.generations[at].has_point(hash, range.begin, since(at))),
            Some(end) => newest_first
                .into_iter()
                .any(|at| self.generations[at].has_any(range.begin, end, since(at), credit)),
        }
    }

    /// Remembers what a transaction writes that may commit.
    fn record(&mut self, conflicts: &Conflicts) {
        for (position, write) in conflicts.writes.iter().enumerate() {
            let hash = self.hashes.now[conflicts.reads.len() + position];
            let current = self.current();
            match write.end {
                None => current.write_point(hash, write.begin),
                Some(end) => current.write_range(write.begin, end),
            }
        }
    }

    /// The generation that takes the next write of the newest batch.
    #[inline]
    fn current(&mut self) -> &mut Generation {
        if self.generations.back().is_none_or(Generation::is_full) {
            self.open();
        }
        let current = self.generations.back_mut().expect("there is always a generation");
        current.begin_batch(self.newest);
        current
    }

    /// For the planted mistake that the transactions of a batch don't see each other.
    fn record_accepted(&mut self, batch: &[Transaction<'_>], verdicts: &[Verdict]) {
        for (transaction, _) in
            batch.iter().zip(verdicts).filter(|(_, verdict)| **verdict == Verdict::Commit)
        {
            self.look_ahead(Some(transaction));
            std::mem::swap(&mut self.hashes.now, &mut self.hashes.next);
            self.record(transaction.conflicts);
        }
    }

    /// Begins a new generation if the current one spans so much time that it would hold memory for
    /// too long.
    fn complete_by_age(&mut self) {
        let Some(current) = self.generations.back() else { return };
        let span = current.oldest().map_or(0, |oldest| self.newest.saturating_sub(oldest));
        let Sizing { few, span: usual, longest_span, .. } = self.sizing;
        if span > longest_span || span > usual && current.len() >= few {
            self.open();
        }
    }

    /// Begins a new generation, as large as the current one makes expect.
    fn open(&mut self) {
        let Sizing { smallest, largest, .. } = self.sizing;
        let writes = self.generations.back().map_or(0, |current| {
            if current.is_full() {
                2 * current.capacity()
            } else {
                (current.len() * 5 / 4).next_power_of_two()
            }
        });
        let capacity = writes.clamp(smallest, largest);
        let next = match self.spare.take().filter(|spare| spare.capacity() == capacity) {
            Some(mut spare) => {
                spare.clear();
                spare
            }
            None => Generation::new(capacity),
        };
        self.generations.push_back(next);
        self.release_one();
    }

    /// Gives the oldest generation's memory back if all of it is forgotten.
    fn release_one(&mut self) {
        let newest = self.generations.front().and_then(Generation::newest);
        if newest.is_none_or(|newest| newest > self.oldest) {
            return;
        }
        if self.generations.len() == 1 {
            return self.open();
        }
        self.spare =
            self.generations.pop_front().filter(|gone| gone.capacity() == self.sizing.largest);
    }
}

/// The first generation with writes above `version`.
#[inline]
fn first_above(generations: &VecDeque<Generation>, version: Version) -> usize {
    let older =
        |generation: &Generation| generation.newest().is_some_and(|newest| newest <= version);
    generations.iter().rposition(older).map_or(0, |at| at + 1)
}
