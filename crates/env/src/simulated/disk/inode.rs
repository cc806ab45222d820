//! A file of a simulated disk: what programs see of it, what is durable, and what lies between.
//!
//! Each change since the last sync is kept by itself. A crash decides for every one of them whether
//! it is lost, kept, or torn: torn, each of its sectors of 512 bytes is kept or lost by itself. A
//! sector is whole or untouched, as disks promise. A change that made the file longer may leave the
//! length without the bytes (they read as zeros).
//!
//! A sync that fails leaves its changes in an unknown state and marks them as written, as Linux
//! does: some are durable now, others never will be, and the next sync succeeds in spite of that.

use super::super::random::Random;
use super::contents::Contents;

/// What a disk writes in one piece.
const SECTOR: u64 = 512;

#[derive(Default)]
pub(crate) struct Inode {
    current: Contents,
    durable: Contents,
    pending: Vec<(u64, Change)>,
    /// Changes so far.
    changes: u64,
    /// Handles that are open.
    pub(crate) opened: u32,
    /// Names that lead here, as programs see it.
    pub(crate) links: u32,
}

enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Zeros { offset: u64, len: u64 },
    SetLen(u64),
}

impl Change {
    fn apply(&self, contents: &mut Contents) {
        match self {
            Self::Write { offset, bytes } => contents.write(*offset, bytes),
            Self::Zeros { offset, len } => contents.write_zeros(*offset, *len),
            Self::SetLen(len) => contents.set_len(*len),
        }
    }

    /// Keeps some sectors of it.
    fn apply_torn(&self, contents: &mut Contents, random: &mut Random) {
        let (offset, len) = match self {
            Self::Write { offset, bytes } => (*offset, bytes.len() as u64),
            Self::Zeros { offset, len } => (*offset, *len),
            // A length is in one sector of its own.
            Self::SetLen(_) => {
                return if random.chance(0.5) {
                    self.apply(contents)
                };
            }
        };
        let end = offset + len;
        // A prefix (the write was under way in order), or any of them (the disk has its own order).
        let prefix = random.chance(0.5).then(|| offset + random.below(len + 1));
        let mut at = offset;
        while at < end {
            let next = (at / SECTOR + 1).saturating_mul(SECTOR).min(end);
            if prefix.map_or_else(|| random.chance(0.5), |prefix| next <= prefix) {
                match self {
                    Self::Write { bytes, .. } => {
                        contents
                            .write(at, &bytes[(at - offset) as usize..(next - offset) as usize]);
                    }
                    _ => contents.write_zeros(at, next - at),
                }
            }
            at = next;
        }
        if contents.len() < end && random.chance(0.25) {
            contents.set_len(end);
        }
    }
}

/// What becomes of data that was not synced when the power fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unsynced {
    /// All of it is gone.
    Lost,
    /// All of it had reached the disk.
    Kept,
    /// The seed decides: for all, or for each change by itself, and then torn ones are among them.
    #[default]
    Seeded,
}

impl Unsynced {
    /// Decides for a crash whether all is lost or kept, or each by itself (`Seeded`).
    pub(crate) fn decide(self, random: &mut Random) -> Self {
        match self {
            Self::Seeded => *[Self::Lost, Self::Kept, Self::Seeded, Self::Seeded]
                .get(random.index(4))
                .unwrap_or(&self),
            decided => decided,
        }
    }
}

impl Inode {
    /// An empty file with one name.
    pub(crate) fn new() -> Self {
        Self { links: 1, ..Self::default() }
    }

    pub(crate) fn len(&self) -> u64 {
        self.current.len()
    }

    pub(crate) fn pages(&self) -> u64 {
        self.current.pages()
    }

    pub(crate) fn pages_missing(&self, offset: u64, len: u64) -> u64 {
        self.current.pages_missing(offset, len)
    }

    /// Whether a crash could change it.
    pub(crate) fn is_synced(&self) -> bool {
        self.pending.is_empty()
    }

    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        self.current.read(offset, buffer)
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.change(Change::Write { offset, bytes: bytes.to_vec() });
        }
    }

    pub(crate) fn write_zeros(&mut self, offset: u64, len: u64) {
        if len > 0 {
            self.change(Change::Zeros { offset, len });
        }
    }

    pub(crate) fn set_len(&mut self, len: u64) {
        if len != self.current.len() {
            self.change(Change::SetLen(len));
        }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.changes += 1;
        self.pending.push((self.changes, change));
    }

    /// What a sync that begins now covers.
    pub(crate) fn sync_point(&self) -> u64 {
        self.changes
    }

    pub(crate) fn synced(&mut self, upto: u64) {
        for (_, change) in self.take_pending(upto) {
            change.apply(&mut self.durable);
        }
    }

    pub(crate) fn sync_failed(&mut self, upto: u64, random: &mut Random) {
        for (_, change) in self.take_pending(upto) {
            match random.index(3) {
                0 => change.apply(&mut self.durable),
                1 => change.apply_torn(&mut self.durable, random),
                _ => {}
            }
        }
        // Clean pages may leave the cache at any time, and come back as the disk has them.
        if random.chance(0.5) {
            self.current = self.durable.clone();
            for (_, change) in &self.pending {
                change.apply(&mut self.current);
            }
        }
    }

    fn take_pending(&mut self, upto: u64) -> Vec<(u64, Change)> {
        let kept = self.pending.partition_point(|(at, _)| *at <= upto);
        let rest = self.pending.split_off(kept);
        std::mem::replace(&mut self.pending, rest)
    }

    /// The power fails.
    pub(crate) fn crash(&mut self, unsynced: Unsynced, random: &mut Random) {
        for (_, change) in std::mem::take(&mut self.pending) {
            match unsynced {
                Unsynced::Lost => {}
                Unsynced::Kept => change.apply(&mut self.durable),
                Unsynced::Seeded => match random.index(4) {
                    0 => {}
                    1 => change.apply_torn(&mut self.durable, random),
                    _ => change.apply(&mut self.durable),
                },
            }
        }
        self.current = self.durable.clone();
        self.opened = 0;
    }

    /// Turns one bit over, wherever the byte is stored.
    pub(crate) fn flip(&mut self, offset: u64, mask: u8) {
        self.current.flip(offset, mask);
        self.durable.flip(offset, mask);
        for (_, change) in &mut self.pending {
            if let Change::Write { offset: begin, bytes } = change
                && let Some(at) = offset.checked_sub(*begin)
                && let Some(byte) = bytes.get_mut(at as usize)
            {
                *byte ^= mask;
            }
        }
    }
}
