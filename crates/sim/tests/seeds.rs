//! Seeds of every workload under faults. How many of each: `PLINTH_SIM_SEEDS`, 24 if it isn't set.

use plinth_sim::probes::Probes;
use plinth_sim::{Plan, run};

fn seeds() -> u64 {
    std::env::var("PLINTH_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(24)
}

fn all_pass(workload: &str) {
    let mut probes = Probes::default();
    for seed in 1..=seeds() {
        let report = run(&Plan::new(workload, seed));
        assert!(report.failure.is_none(), "{report}");
        probes.merge(&report.probes);
    }
    println!("{workload}: never reached: {}", probes.never_reached().join("; "));
}

macro_rules! workloads {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                all_pass(stringify!($name));
            }
        )*

        #[test]
        fn no_workload_is_left_out() {
            assert_eq!(plinth_sim::workloads::NAMES, [$(stringify!($name)),*]);
        }
    };
}

workloads! {
    cycle atomic_ops conflict_range write_during_read serializability increment sideband watches version_stamp
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for workload in plinth_sim::workloads::NAMES {
        let [one, two] = [(), ()].map(|()| run(&Plan::new(workload, 77)));
        assert_eq!(one.trace_hash, two.trace_hash, "{one}\n{two}");
        assert_eq!((one.events, one.committed, &one.probes), (two.events, two.committed, &two.probes));
        let other = run(&Plan::new(workload, 78));
        assert_ne!(one.trace_hash, other.trace_hash, "another seed is another run");
    }
}
