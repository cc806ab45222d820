//! Real processes of both engines, killed at random instants. How many: `PLINTH_KILL_ROUNDS`, 200
//! if it isn't set.

use plinth_sim::kill;

#[test]
fn a_killed_process_loses_nothing_that_was_acknowledged() {
    let rounds = std::env::var("PLINTH_KILL_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(200);
    let killed = kill::rounds(&[env!("CARGO_BIN_EXE_plinth-sim").into()], rounds, 1).unwrap();
    assert_eq!(killed.rounds, rounds);
    // How many tables there are then depends on how fast the disk is: told, and not asserted.
    println!("{killed:?}");
}
