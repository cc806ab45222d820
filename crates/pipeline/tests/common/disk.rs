//! The files of a simulated machine, as somebody with a copy program sees them.

use plinth_env::Env;
use plinth_env::Open;
use plinth_env::simulated::{CallKind, Simulation};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub type Contents = BTreeMap<PathBuf, Vec<u8>>;

/// All files below a directory, by their paths in it.
pub fn contents(simulation: &Simulation, machine: &Env, dir: &str) -> Contents {
    let files = simulation.files(machine).into_iter();
    let inside = files.filter(|(path, _)| path.starts_with(dir));
    let read = |path: PathBuf| simulation.run_until(machine.files().read(&path)).unwrap();
    inside.map(|(path, _)| (path.strip_prefix(dir).unwrap().to_path_buf(), read(path))).collect()
}

/// Makes a directory hold these files and no others.
pub fn restore(simulation: &Simulation, machine: &Env, dir: &str, contents: &Contents) {
    simulation.run_until(async {
        machine.files().remove_dir_all(dir).await.unwrap();
        for (path, bytes) in contents {
            write(machine, &Path::new(dir).join(path), bytes).await;
        }
    });
}

/// Writes a file, and makes the directories above it.
pub async fn write(machine: &Env, path: &Path, bytes: &[u8]) {
    machine.files().create_dir_all(path.parent().unwrap()).await.unwrap();
    let file = machine.files().open(path, Open::Truncate).await.unwrap();
    file.write_all_at(0, bytes).await.unwrap();
    file.sync_all().await.unwrap();
    machine.files().sync_dir(path.parent().unwrap()).await.unwrap();
}

/// How many file calls a machine has made since it began.
pub fn calls(simulation: &Simulation, machine: &Env) -> u64 {
    let kinds = [CallKind::Read, CallKind::Write, CallKind::Sync, CallKind::Open, CallKind::Rename];
    kinds.map(|kind| simulation.call_count(machine, kind)).iter().sum()
}
