//! The crash model notices the bugs that can be planted in the log: a test of the tests.

mod support;

use plinth_env::simulated::Random;
use plinth_log::planted::Planted;
use support::model::{Plan, run};

/// Runs seeds until one shows a violation, and gives it with what it says.
fn first_violation(make: fn(&mut Random) -> Plan) -> Option<(u64, String)> {
    (0..200).find_map(|seed| run(seed, make).err().map(|violation| (seed, violation)))
}

#[test]
fn a_replayed_torn_tail_is_noticed() {
    let plan = |random: &mut Random| {
        let mut plan = Plan::quiet(random);
        plan.config.planted = Planted::ReplayTornTail;
        plan
    };
    let (seed, violation) = first_violation(plan).expect("no seed notices a replayed torn tail");
    println!("seed {seed}: {violation}");
}

#[test]
fn a_skipped_sync_is_noticed() {
    let plan = |random: &mut Random| {
        let mut plan = Plan::quiet(random);
        plan.config.planted = Planted::SkipSync;
        plan
    };
    let (seed, violation) = first_violation(plan).expect("no seed notices a skipped sync");
    println!("seed {seed}: {violation}");
}
