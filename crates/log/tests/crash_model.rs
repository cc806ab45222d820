//! Whatever instant the power fails at: what was acknowledged is there, of the rest a prefix.

mod support;

use std::ops::Range;

use plinth_env::simulated::Random;
use support::model::{Plan, Stats, run};

fn run_seeds(seeds: Range<u64>, plan: fn(&mut Random) -> Plan) -> Stats {
    let mut all = Stats::default();
    for seed in seeds {
        match run(seed, plan) {
            Ok(stats) => all += stats,
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    println!("{all:?}");
    all
}

#[test]
fn crashes_lose_nothing_that_was_acknowledged() {
    let Stats { acknowledged, survived, lost, tails_cut, spares, poisoned, .. } =
        run_seeds(0..48, Plan::quiet);
    for (what, count) in [("acknowledged", acknowledged), ("survived", survived), ("lost", lost)] {
        assert!(count > 100, "{count} entries {what}: the model is too tame");
    }
    assert!(
        tails_cut > 10 && spares > 10,
        "{tails_cut} tails cut, {spares} spares: the model is too tame"
    );
    assert_eq!(poisoned, 0);
}

#[test]
fn failing_disks_lose_nothing_that_was_acknowledged() {
    let Stats { poisoned, disk_full, acknowledged, .. } = run_seeds(1020..1060, Plan::faulty);
    assert!(
        poisoned > 10 && disk_full > 10,
        "{poisoned} logs poisoned, {disk_full} times no room: too tame"
    );
    assert!(acknowledged > 100);
}
