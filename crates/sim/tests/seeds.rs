//! Seeds of every built-in spec. How many of each: `PLINTH_SIM_SEEDS`, 12 if it isn't set.

use plinth_sim::probes::Probes;
use plinth_sim::{BUILT_IN, Plan, Spec, run};
use std::sync::Arc;

fn seeds() -> u64 {
    std::env::var("PLINTH_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(12)
}

/// Of specs of backups half as many more: with those of streams they make sixty. Of clusters' some
/// more: with those of one node on several they make two hundred.
fn seeds_of(name: &str) -> u64 {
    match name {
        _ if name.ends_with("backup") => seeds() * 3 / 2,
        _ if name.starts_with("cluster_") => seeds() * 7 / 6,
        _ => seeds(),
    }
}

fn all_pass(name: &str) {
    let spec = Arc::new(Spec::find(name).unwrap());
    let mut probes = Probes::default();
    for seed in 1..=seeds_of(name) {
        let report = run(&Plan::new(spec.clone(), seed));
        assert!(report.failure.is_none(), "{report}");
        probes.merge(&report.probes);
    }
    println!("{name}: never reached: {}", probes.never_reached().join("; "));
}

macro_rules! specs {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                all_pass(stringify!($name));
            }
        )*

        #[test]
        fn no_spec_is_left_out() {
            let names: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

specs! {
    api_correctness atomic_ops automatic_idempotency backup bit_flips changes conflict_range conflict_range_network cycle
    disk_durability doubled dr everything_at_once fuzz_api_correctness history_network increment lost_answers
    network pinned_snapshots quiet ryow_correctness selector_correctness serializability sideband small_flushes version_stamp
    watches write_during_read cluster_backup cluster_changes cluster_cycle cluster_damage cluster_disks cluster_dr cluster_history cluster_increment
    cluster_members cluster_mixed cluster_quiet cluster_upgrade
}

/// Runs that found something once, by what that was.
#[test]
fn what_runs_have_found_stays_mended() {
    let found = [
        // A segment was removed, the directory's sync failed, and the next attempt was to keep the
        // file: it was taken for a spare that isn't there, and commits were refused with 1511.
        ("increment", 920_012),
        // The next term's entries are applied beside a leader that decides another batch.
        ("cluster_upgrade", 920_036),
        ("cluster_increment", 920_039),
        // An opening failed at its first record, while a segment was being taken away: the next one
        // found that segment in the directory's list, and not in the directory.
        ("fuzz_api_correctness", 2_026_112_735),
        // A leader's sync failed while it was at its work; it led again, and its node did nothing
        // but begin that term.
        ("cluster_disks", 2_026_112_601),
        // A manifest whose directory couldn't be synced was there for the next process, which let
        // go of the log on the strength of it, and gone with the power.
        ("sideband", 2_026_112_635),
        // The leader had resigned when the nodes were to be compared.
        ("cluster_history", 2_026_112_625),
        // Sides were changed between the two questions of an agent, which ended for good.
        ("cluster_dr", 1),
    ];
    for (name, seed) in found {
        let report = run(&Plan::new(Arc::new(Spec::find(name).unwrap()), seed));
        assert!(report.failure.is_none(), "{report}");
    }
}

/// What has a long spec of its own for several nodes.
const OF_ONE_NODE: [&str; 2] = ["backup", "dr"];

/// The specs of one node on several, a few seeds of each: some of what is run here all the time
/// runs there, too.
fn on_nodes(names: &[&str], nodes: u64, seeds: u64) {
    for name in names {
        let spec = Arc::new(Spec::find(name).unwrap().on(nodes));
        for seed in 1..=seeds {
            let report = run(&Plan::new(spec.clone(), seed));
            assert!(report.failure.is_none(), "{report}");
        }
    }
}

fn of_one_node() -> Vec<&'static str> {
    let is_of_one = |name: &&str| !name.starts_with("cluster_") && !OF_ONE_NODE.contains(name);
    let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).filter(is_of_one).collect();
    assert_eq!(names.len(), 26);
    names
}

#[test]
fn specs_of_one_node_hold_on_three() {
    on_nodes(&of_one_node(), 3, seeds().div_ceil(6));
}

#[test]
fn specs_of_one_node_hold_on_five() {
    on_nodes(&of_one_node(), 5, seeds().div_ceil(12));
}
