//! The same seed gives the same run: in one process twice, and in another process.

use plinth_sim::{BUILT_IN, Plan, run};
use std::process::Command;

const SEED: u64 = 77;

#[test]
fn the_same_seed_gives_the_same_run() {
    for (spec, _) in BUILT_IN {
        let [one, two] = [(), ()].map(|()| run(&Plan::of(spec, SEED)));
        assert_eq!(one.trace_hash, two.trace_hash, "{one}\n{two}");
        assert_eq!(
            (one.events, one.committed, &one.probes),
            (two.events, two.committed, &two.probes)
        );
        let other = run(&Plan::of(spec, SEED + 1));
        assert_ne!(one.trace_hash, other.trace_hash, "another seed is another run");
    }
}

#[test]
fn two_processes_with_the_same_seed_tell_the_same() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plinth-sim"));
    command.args(["--seed", "77", "--verbose", "--jobs", "1"]);
    let other = String::from_utf8(command.output().unwrap().stdout).unwrap();
    for (spec, _) in BUILT_IN {
        // What this process finds is what the other one found.
        let line = format!("trace {:016x}", run(&Plan::of(spec, SEED)).trace_hash);
        assert!(other.contains(&line), "{spec}: no {line} in\n{other}");
    }
}
