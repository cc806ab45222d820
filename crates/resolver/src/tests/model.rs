//! Random histories, decided by the resolver and by a list of everything that was ever written.
//!
//! Generations are small here, so that histories of some hundred transactions see them filled,
//! completed by age, kept for their memory and dropped. Each failure names the seed of its history.

use super::random::{Keys, Random};
use crate::resolver::Sizing;
use crate::{Planted, Resolver, Transaction, Verdict};
use plinth_types::{Conflicts, KeyRange, Version};

/// Everything ever written, to be looked through.
struct Model {
    written: Vec<(Version, KeyRange)>,
    oldest: Version,
}

impl Model {
    /// The rules as they are told: what was committed above the read version, and earlier in the
    /// same batch.
    fn resolve(&mut self, version: Version, batch: &[Transaction<'_>]) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for Transaction { conflicts, report } in batch {
            let is_newer =
                |written: Version| written > conflicts.read_version || written == version;
            let conflicts_with_any = |read: &KeyRange| {
                let overlaps = |range: &KeyRange| range.begin < read.end && read.begin < range.end;
                self.written.iter().any(|(written, range)| is_newer(*written) && overlaps(range))
            };
            let reads = conflicts.reads.iter().map(|read| read.to_range()).enumerate();
            let positions: Vec<usize> = reads
                .filter(|(_, read)| conflicts_with_any(read))
                .map(|(position, _)| position)
                .collect();
            let verdict = if !conflicts.reads.is_empty() && conflicts.read_version < self.oldest {
                Verdict::TooOld
            } else if positions.is_empty() {
                self.written
                    .extend(conflicts.writes.iter().map(|range| (version, range.to_range())));
                Verdict::Commit
            } else {
                Verdict::Conflict { reads: if *report { positions } else { Vec::new() } }
            };
            verdicts.push(verdict);
        }
        verdicts
    }
}

/// How often each verdict was given.
#[derive(Default, Debug)]
struct Counts {
    commits: usize,
    conflicts: usize,
    too_old: usize,
}

/// One random history.
struct History {
    random: Random,
    keys: Keys,
    /// Versions that something happened at.
    versions: Vec<Version>,
    model: Model,
    resolver: Resolver,
    counts: Counts,
}

impl History {
    fn new(seed: u64, bug: Option<Planted>) -> Self {
        let mut random = Random::new(seed);
        let largest = *random.pick(&[2, 10, 100, 4000]);
        let sizing = Sizing {
            smallest: 1 + random.below(largest),
            largest,
            few: random.below(largest),
            span: 20,
            longest_span: *random.pick(&[30, 200]),
        };
        let oldest = random.below(100) as Version;
        let mut resolver = Resolver::with_sizing(oldest, random.next(), sizing);
        if let Some(bug) = bug {
            resolver.plant(bug);
        }
        let (keys, model) = (Keys::any(&mut random), Model { written: Vec::new(), oldest });
        Self { random, keys, versions: vec![oldest], model, resolver, counts: Counts::default() }
    }

    /// A version at or close to one where something happened, mostly lately.
    fn version(&mut self) -> Version {
        let back =
            if self.random.one_in(4) { self.versions.len() } else { self.versions.len().min(3) };
        let near = self.versions[self.versions.len() - 1 - self.random.below(back)];
        near + *self.random.pick(&[0, 0, 0, 0, -1, 1])
    }

    fn transaction(&mut self, most_ranges: usize) -> Conflicts {
        let mut conflicts = Conflicts { read_version: self.version(), ..Conflicts::default() };
        for list in [&mut conflicts.reads, &mut conflicts.writes] {
            for _ in 0..self.random.below(most_ranges + 1) {
                let range = self.keys.range(&mut self.random);
                list.push(&range.begin, &range.end);
            }
        }
        conflicts
    }

    /// One batch, decided twice.
    fn step(&mut self) -> Result<(), String> {
        let newest = self.versions[self.versions.len() - 1];
        let version = newest + 1 + self.random.below(8) as Version;
        let (count, most_ranges) = (self.random.below(12), 1 + self.random.below(6));
        let transactions: Vec<_> = (0..count).map(|_| self.transaction(most_ranges)).collect();
        let report = self.random.one_in(2);
        let batch: Vec<_> =
            transactions.iter().map(|conflicts| Transaction { conflicts, report }).collect();
        let mut verdicts = Vec::new();
        self.resolver.resolve(version, &batch, &mut verdicts);
        self.resolver.check_invariants();
        let expected = self.model.resolve(version, &batch);
        if verdicts != expected {
            return Err(format!("batch {version}: {verdicts:?}, not {expected:?}, for {batch:#?}"));
        }
        for verdict in &verdicts {
            match verdict {
                Verdict::Commit => self.counts.commits += 1,
                Verdict::Conflict { .. } => self.counts.conflicts += 1,
                Verdict::TooOld => self.counts.too_old += 1,
            }
        }
        self.versions.push(version);
        if self.random.one_in(3) {
            let oldest = self.version().min(version - self.random.below(60) as Version);
            self.resolver.forget_before(oldest);
            self.resolver.check_invariants();
            self.model.oldest = self.model.oldest.max(oldest);
        }
        Ok(())
    }
}

fn run(seed: u64, steps: usize, bug: Option<Planted>) -> Result<Counts, String> {
    let mut history = History::new(seed, bug);
    for _ in 0..steps {
        history.step().map_err(|what| format!("seed {seed}: {what}"))?;
    }
    assert_eq!(history.resolver.oldest(), history.model.oldest);
    assert_eq!(Some(&history.resolver.newest()), history.versions.last());
    Ok(history.counts)
}

#[test]
fn verdicts_are_those_of_a_list_that_is_looked_through() {
    let mut sum = Counts::default();
    for seed in 0..250 {
        let counts = run(seed, 60, None).unwrap_or_else(|what| panic!("{what}"));
        sum.commits += counts.commits;
        sum.conflicts += counts.conflicts;
        sum.too_old += counts.too_old;
    }
    // A test in which everything has the same fate would show little.
    assert!(sum.commits > 10_000 && sum.conflicts > 10_000 && sum.too_old > 1_000, "{sum:?}");
}

#[test]
fn long_histories_agree_too() {
    for seed in 1000..1006 {
        run(seed, 600, None).unwrap_or_else(|what| panic!("{what}"));
    }
}

#[test]
fn every_planted_bug_is_noticed() {
    for bug in Planted::ALL {
        let noticed = (0..40).filter(|seed| run(*seed, 60, Some(bug)).is_err()).count();
        assert!(noticed > 20, "{bug:?} was noticed in {noticed} of 40 histories");
    }
}
