//! A directory is a target as every other one, on a real disk and on a simulated one.

#[test]
fn a_directory_does_what_targets_do() {
    use plinth_backup::{Directory, target::conformance};
    use plinth_env::{Env, block_on};

    let env = Env::real();
    let place = block_on(env.files().temporary_dir("plinth-backup-target")).unwrap();
    block_on(conformance::all(&Directory::new(&env, place.path().join("a/b"))));

    let simulation = plinth_env::simulated::Simulation::new(1);
    let machine = simulation.process("target");
    simulation.run_until(conformance::all(&Directory::new(&machine, "/backups/a")));
}
