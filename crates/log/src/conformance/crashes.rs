//! What is committed survives whatever crash.

use super::{Bench, Make, body};

pub(super) fn run_all(make: Make<'_>, seeds: u64) {
    for seed in 0..seeds {
        committed_entries_survive_and_of_the_others_a_prefix(make, seed);
    }
}

fn committed_entries_survive_and_of_the_others_a_prefix(make: Make<'_>, seed: u64) {
    let mut bench = Bench::new(make, seed, 1 << 13);
    let mut random = bench.site.world().random();
    let mut last = 0;
    for _ in 0..6 {
        let (term, lease) = (bench.log.term(), bench.view.committed().lease);
        let mut committed = last;
        for _ in 0..random.below(20) {
            last += 1 + i64::from(random.chance(0.3));
            let position = bench.append(last, random.index(900));
            if random.chance(0.4) {
                bench.run(bench.view.sync(position)).expect("a commit");
                committed = last;
            }
        }
        bench = bench.crashed();
        assert!(bench.log.term() > term, "seed {seed}");
        assert!(bench.view.committed().lease >= lease, "seed {seed}");
        let entries = bench.read(1).expect("entries");
        let found = entries.last().map_or(0, |entry| entry.version);
        assert!(
            (committed..=last).contains(&found),
            "seed {seed}: {found} of {committed} to {last}"
        );
        assert_eq!(found, bench.view.committed().version, "seed {seed}");
        assert!(entries.iter().all(|entry| entry.body == body(entry.version, entry.body.len())));
        last = found;
    }
}
