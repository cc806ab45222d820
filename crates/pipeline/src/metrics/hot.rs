//! What is hot: ranges that many reads, writes or conflicts fall into, found by sampling; and
//! transactions that took long.
//!
//! The latest samples of each kind are kept as they are. Only when somebody asks are they sorted
//! and cut where keys part, like a trie, as deep as a branch still holds its share of all samples.
//! So a single hot key shows as itself, and a hot table as its prefix, without anybody having said
//! where tables begin.

use crate::batch_lock::lock;
use plinth_types::{Bytes, Version};
use std::collections::VecDeque;
use std::sync::Mutex;

/// Samples that are kept of each kind.
const SAMPLES: usize = 512;
/// The share of the samples that makes a range hot, as one part in so many.
const HOT: usize = 10;
/// Slow transactions that are kept.
const SLOW: usize = 32;
/// Longer keys are cut: where they part so late, nothing is learnt.
const KEY: usize = 256;

/// What keys are sampled of.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Heat {
    Reads,
    Writes,
    Conflicts,
}

/// A prefix, and the share of all samples that lie under it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct HotRange {
    pub prefix: Bytes,
    pub share: f64,
}

/// A transaction that committed long after it had begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SlowTransaction {
    /// Between its read version and its commit version: microseconds.
    pub age: Version,
    pub version: Version,
    pub bytes: usize,
    pub mutations: usize,
    /// The key of its first mutation.
    pub first_key: Bytes,
}

#[derive(Default)]
pub(crate) struct Hot {
    kinds: [Mutex<VecDeque<Bytes>>; 3],
    slow: Mutex<VecDeque<SlowTransaction>>,
}

fn keep<T>(queue: &Mutex<VecDeque<T>>, item: T, most: usize) {
    let mut queue = lock(queue);
    if queue.len() >= most {
        queue.pop_front();
    }
    queue.push_back(item);
}

impl Hot {
    /// A sample.
    pub fn note(&self, heat: Heat, key: &[u8]) {
        let key = Bytes::copy_from_slice(&key[..key.len().min(KEY)]);
        keep(&self.kinds[heat as usize], key, SAMPLES);
    }

    pub fn note_slow(&self, slow: SlowTransaction) {
        keep(&self.slow, slow, SLOW);
    }

    /// The hot ranges of a kind, the hottest first.
    pub fn ranges(&self, heat: Heat) -> Vec<HotRange> {
        let mut samples: Vec<Bytes> = lock(&self.kinds[heat as usize]).iter().cloned().collect();
        samples.sort_unstable();
        let least = (samples.len() / HOT).max(2);
        let mut ranges = Vec::new();
        branch(&samples, least, &mut ranges);
        let share = |count: usize| count as f64 / samples.len() as f64;
        ranges.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        ranges.into_iter().map(|(prefix, count)| HotRange { prefix, share: share(count) }).collect()
    }

    /// The latest slow transactions, the latest last.
    pub fn slow(&self) -> Vec<SlowTransaction> {
        lock(&self.slow).iter().cloned().collect()
    }
}

/// The hot branches of sorted samples, each as deep as it stays hot.
fn branch(samples: &[Bytes], least: usize, ranges: &mut Vec<(Bytes, usize)>) {
    if samples.len() < least {
        return;
    }
    let (first, last) = (&samples[0], &samples[samples.len() - 1]);
    let common = first.iter().zip(last.iter()).take_while(|(a, b)| a == b).count();
    let mut rest = samples;
    let mut under = 0;
    while let Some(next) = rest.first() {
        // Those that end here are together, too.
        let byte = next.get(common).copied();
        let count = rest.partition_point(|key| key.get(common).copied() <= byte);
        let (group, others) = rest.split_at(count);
        if count >= least && (count < samples.len() || byte.is_none()) {
            under += count;
            if byte.is_none() {
                ranges.push((next.clone(), count));
            } else {
                branch(group, least, ranges);
            }
        }
        rest = others;
    }
    // What lies under this prefix, but under no hotter one.
    if samples.len() - under >= least && common > 0 {
        ranges.push((first.slice(..common), samples.len() - under));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(keys: impl IntoIterator<Item = String>) -> Vec<(String, f64)> {
        let hot = Hot::default();
        keys.into_iter().for_each(|key| hot.note(Heat::Reads, key.as_bytes()));
        let text =
            |range: HotRange| (String::from_utf8(range.prefix.to_vec()).unwrap(), range.share);
        hot.ranges(Heat::Reads).into_iter().map(text).collect()
    }

    #[test]
    fn a_hot_key_a_hot_table_and_the_rest_are_told_apart() {
        let key = (0..150).map(|_| "counter".to_owned());
        let table = (0..200).map(|n| format!("user/{:04}", n * 37 % 1000));
        let rest = (0..100).map(|n| format!("{:02}/row", n));
        let found = ranges(key.chain(table).chain(rest));
        assert_eq!(found[0].0, "user/0", "{found:?}");
        assert!(
            found
                .iter()
                .any(|(prefix, share)| prefix == "counter" && (share - 1.0 / 3.0).abs() < 0.01)
        );
    }

    #[test]
    fn evenly_spread_keys_have_no_hot_range() {
        assert_eq!(ranges((0..=255_u8).map(|n| char::from(n % 94 + 33).to_string())), []);
        assert_eq!(ranges([]), []);
    }

    #[test]
    fn one_key_alone_is_all_there_is() {
        assert_eq!(ranges(vec!["hot".to_owned(); 40]), [("hot".to_owned(), 1.0)]);
    }

    #[test]
    fn only_the_latest_are_kept() {
        let old = vec!["old".to_owned(); 600];
        assert_eq!(
            ranges(old.into_iter().chain(vec!["new".to_owned(); 600])),
            [("new".to_owned(), 1.0)]
        );
    }
}
