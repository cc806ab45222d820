//! A cluster keeps Raft's promises in every weather, and the simulation notices when it doesn't.

mod support;

use plinth_replication::planted::Planted;
use support::{Stats, run};

const STEPS: u64 = 1500;

#[test]
fn what_raft_promises_holds_in_every_weather() {
    let mut sum = Stats::default();
    for seed in 0..300 {
        let stats = run(seed, STEPS, false, Planted::None)
            .unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        sum.elections += stats.elections;
        sum.committed += stats.committed;
        sum.rewinds += stats.rewinds;
        sum.crashes += stats.crashes;
        sum.lost_ops += stats.lost_ops;
        sum.reads += stats.reads;
    }
    println!("{sum:?}");
    assert!(sum.elections > 1000 && sum.committed > 10_000 && sum.rewinds > 100, "{sum:?}");
    assert!(sum.crashes > 1000 && sum.lost_ops > 1000 && sum.reads > 10_000, "{sum:?}");
}

#[test]
fn what_raft_promises_holds_while_members_come_and_go() {
    let mut sum = Stats::default();
    for seed in 0..120 {
        let stats = run(seed, STEPS, true, Planted::None)
            .unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        sum.elections += stats.elections;
        sum.committed += stats.committed;
        sum.changes += stats.changes;
        sum.unkept += stats.unkept;
        sum.wiped += stats.wiped;
        sum.led_and_left += stats.led_and_left;
    }
    println!("{sum:?}");
    assert!(sum.elections > 1000 && sum.committed > 10_000 && sum.changes > 1000, "{sum:?}");
    assert!(sum.wiped > 50 && sum.led_and_left > 50 && sum.unkept > 50, "{sum:?}");
}

/// Any number of other seeds, for whoever has the time: `PLINTH_SEEDS=FROM..TO` (`make model`).
/// What is rare (a stale read was seen once in 20,000 runs) needs thousands.
#[test]
fn what_raft_promises_holds_with_other_seeds() {
    let seeds = std::env::var("PLINTH_SEEDS").unwrap_or_else(|_| "10000..10010".to_owned());
    let (from, to) = seeds.split_once("..").expect("PLINTH_SEEDS is FROM..TO");
    let number = |text: &str| text.parse::<u64>().expect("PLINTH_SEEDS has two numbers");
    let (from, to) = (number(from), number(to));
    assert!(from < to, "PLINTH_SEEDS={seeds} has no seed");
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for seed in (from + thread..to).step_by(threads as usize) {
                    for changes in [false, true] {
                        run(seed, STEPS, changes, Planted::None).unwrap_or_else(|what| {
                            panic!("seed {seed}, members come and go {changes}: {what}")
                        });
                    }
                }
            });
        }
    });
}

#[test]
fn a_learner_that_is_counted_is_noticed() {
    first_seed_that_says(Planted::LearnerCounted, true, 300, "synced on");
}

#[test]
fn a_wiped_node_that_votes_under_its_old_number_is_noticed() {
    first_seed(Planted::WipedNodeVotes, true, 300);
}

/// The first seed at which a planted bug is noticed, and what is said of it.
fn first_seed(planted: Planted, changes: bool, within: u64) -> (u64, String) {
    first_seed_that_says(planted, changes, within, "")
}

/// The same for one sign of several that a bug may show.
fn first_seed_that_says(planted: Planted, changes: bool, within: u64, sign: &str) -> (u64, String) {
    let told = |seed| run(seed, STEPS, changes, planted).err().filter(|what| what.contains(sign));
    let found = (0..within).find_map(|seed| Some((seed, told(seed)?)));
    let found = found.unwrap_or_else(|| panic!("{planted:?} went unnoticed for {within} seeds"));
    println!("{planted:?}: seed {}, {}", found.0, found.1);
    assert!(!found.1.contains("refused"), "{found:?}");
    found
}

#[test]
fn a_read_without_proof_is_noticed() {
    let (_, what) = first_seed(Planted::ReadWithoutProof, false, 300);
    assert!(what.contains("proves a read"), "{what}");
}

#[test]
fn an_entry_of_an_older_term_committed_by_counting_is_noticed() {
    first_seed(Planted::CommitByCounting, false, 1000);
}

#[test]
fn a_vote_before_its_sync_is_noticed() {
    first_seed(Planted::VoteBeforeSync, false, 3000);
}

#[test]
fn an_append_acknowledged_before_its_sync_is_noticed() {
    let (_, what) = first_seed(Planted::AppendBeforeSync, false, 50);
    assert!(what.contains("synced on"), "{what}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for (seed, changes) in (0..5).flat_map(|seed| [(seed, false), (seed, true)]) {
        let once = format!("{:?}", run(seed, STEPS, changes, Planted::None));
        assert_eq!(once, format!("{:?}", run(seed, STEPS, changes, Planted::None)), "seed {seed}");
    }
}
