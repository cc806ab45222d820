//! The bytes of a file, by page.
//!
//! Pages are shared between the copies of a file that a disk keeps (what programs see, what is
//! durable) until one of them changes, and a page of zeros takes no memory, so that a simulated
//! disk can hold many large preallocated files.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;

const ZEROS: [u8; PAGE] = [0; PAGE];

#[derive(Clone, Default)]
pub(crate) struct Contents {
    len: u64,
    /// Pages that take room on the disk; `None` is one of zeros.
    pages: BTreeMap<u64, Option<Arc<[u8; PAGE]>>>,
}

/// A part of a write that lies in one page.
struct Part {
    page: u64,
    /// Where in the page.
    at: usize,
    /// Where in the write.
    from: usize,
    len: usize,
}

fn parts(offset: u64, len: usize) -> impl Iterator<Item = Part> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let position = offset + from as u64;
        let at = (position % PAGE as u64) as usize;
        let part =
            Part { page: position / PAGE as u64, at, from, len: (PAGE - at).min(len - from) };
        from += part.len;
        (part.len > 0).then_some(part)
    })
}

impl Contents {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// How many pages take room.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// How many pages more a write would take.
    pub(crate) fn pages_missing(&self, offset: u64, len: u64) -> u64 {
        let first = offset / PAGE as u64;
        let end = (offset + len).div_ceil(PAGE as u64).max(first);
        (end - first) - self.pages.range(first..end).count() as u64
    }

    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let available = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = available.min(buffer.len());
        for part in parts(offset, len) {
            let into = &mut buffer[part.from..part.from + part.len];
            match self.pages.get(&part.page) {
                Some(Some(page)) => into.copy_from_slice(&page[part.at..part.at + part.len]),
                Some(None) | None => into.fill(0),
            }
        }
        len
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for part in parts(offset, bytes.len()) {
            let from = &bytes[part.from..part.from + part.len];
            let page = self.pages.entry(part.page).or_default();
            if from == &ZEROS[..from.len()] && (page.is_none() || part.len == PAGE) {
                *page = None;
                continue;
            }
            let page = page.get_or_insert_with(|| Arc::new(ZEROS));
            Arc::make_mut(page)[part.at..part.at + part.len].copy_from_slice(from);
        }
        self.len = self.len.max(offset + bytes.len() as u64);
    }

    pub(crate) fn write_zeros(&mut self, offset: u64, len: u64) {
        let mut at = offset;
        while at < offset + len {
            let part = (offset + len - at).min(PAGE as u64 - at % PAGE as u64);
            self.write(at, &ZEROS[..part as usize]);
            at += part;
        }
    }

    pub(crate) fn set_len(&mut self, len: u64) {
        if len < self.len {
            drop(self.pages.split_off(&len.div_ceil(PAGE as u64)));
            // What a later extension brings back must read as zeros.
            let kept = (len % PAGE as u64) as usize;
            if let Some(Some(page)) = self.pages.get_mut(&(len / PAGE as u64)) {
                Arc::make_mut(page)[kept..].fill(0);
            }
        }
        self.len = len;
    }

    /// Turns one bit over; nothing beyond the end.
    pub(crate) fn flip(&mut self, offset: u64, mask: u8) {
        let mut byte = [0];
        if self.read(offset, &mut byte) == 1 {
            self.write(offset, &[byte[0] ^ mask]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::random::Random;
    use super::*;

    #[test]
    fn contents_are_what_a_vector_would_be() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let (mut contents, mut model) = (Contents::default(), Vec::<u8>::new());
            for _ in 0..200 {
                let offset = random.index(5 * PAGE);
                let mut bytes = vec![0; random.index(2 * PAGE)];
                match random.index(4) {
                    0 => contents.write_zeros(offset as u64, bytes.len() as u64),
                    1 => {
                        contents.set_len(offset as u64);
                        model.resize(offset, 0);
                        continue;
                    }
                    _ => {
                        random.fill(&mut bytes);
                        contents.write(offset as u64, &bytes);
                    }
                }
                if !bytes.is_empty() {
                    model.resize(model.len().max(offset + bytes.len()), 0);
                    model[offset..offset + bytes.len()].copy_from_slice(&bytes);
                }
                let mut all = vec![1; model.len() + 10];
                assert_eq!(contents.read(0, &mut all), model.len(), "seed {seed}");
                assert!(all[..model.len()] == model, "seed {seed}");
                let at = random.index(model.len() + 1);
                let mut part = vec![1; 100.min(model.len() - at)];
                assert_eq!(contents.read(at as u64, &mut part), part.len(), "seed {seed}");
                assert!(part == model[at..at + part.len()], "seed {seed}");
            }
        }
    }
}
