//! Samples by series: who sends many series sends them in turn, but a series is locked, and its
//! memory fetched, more cheaply for several points at a time.
//!
//! ```text
//!   samples   a0 b1 c2 a3 b4 a5         order   a b c, as they came first
//!   next       3  4  -  5  -  -         first of each series, last of each series: by its number
//! ```
//!
//! Points of one series stay in the order in which they came.

const NONE: u32 = u32::MAX;

/// The samples of each series as a list. Its memory is used again.
#[derive(Default, Debug)]
pub(super) struct Runs {
    /// Series that have samples, in the order of their first.
    order: Vec<u32>,
    /// By series: its first and its last sample. [`NONE`] for those that have none.
    ends: Vec<(u32, u32)>,
    /// By sample: the next one of the same series.
    next: Vec<u32>,
}

impl Runs {
    /// Takes the series of each sample, in the order in which the samples came. A series is a
    /// number, best a small one.
    pub(super) fn arrange(&mut self, series: impl ExactSizeIterator<Item = u32>) {
        for series in self.order.drain(..) {
            self.ends[series as usize] = (NONE, NONE);
        }
        self.next.clear();
        self.next.resize(series.len(), NONE);
        for (sample, series) in (0..).zip(series) {
            if self.ends.len() <= series as usize {
                self.ends.resize(series as usize + 1, (NONE, NONE));
            }
            let (first, last) = &mut self.ends[series as usize];
            if *first == NONE {
                *first = sample;
                self.order.push(series);
            } else {
                self.next[*last as usize] = sample;
            }
            *last = sample;
        }
    }

    /// How many series have samples.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// One of the series that have samples, if there are so many.
    pub(super) fn series(&self, at: usize) -> Option<u32> {
        self.order.get(at).copied()
    }

    /// One of the series that have samples, which there must be, and the places of its samples.
    pub(super) fn run(&self, at: usize) -> (u32, impl Iterator<Item = usize> + '_) {
        let series = self.order[at];
        let first = self.ends[series as usize].0;
        let place = |sample: u32| (sample != NONE).then_some(sample);
        let samples =
            std::iter::successors(place(first), move |sample| place(self.next[*sample as usize]));
        (series, samples.map(|sample| sample as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Random;
    use std::collections::BTreeMap;

    #[test]
    fn each_series_has_its_samples_in_their_order() {
        let (mut random, mut runs) = (Random::new(4), Runs::default());
        for _ in 0..200 {
            let bound = 1 + random.below(50);
            let series: Vec<u32> =
                (0..random.below(300)).map(|_| random.below(bound) as u32).collect();
            let mut expected: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
            for (place, series) in series.iter().enumerate() {
                expected.entry(*series).or_default().push(place);
            }
            runs.arrange(series.iter().copied());
            let found = (0..runs.len())
                .map(|at| runs.run(at))
                .map(|(series, places)| (series, places.collect()));
            let found: Vec<(u32, Vec<usize>)> = found.collect();
            assert!(
                found.windows(2).all(|pair| pair[0].1[0] < pair[1].1[0]),
                "in the order of their first"
            );
            assert_eq!(found.into_iter().collect::<BTreeMap<_, _>>(), expected);
        }
    }
}
