//! Bits that turn over on the disk, and what may come of it.
//!
//! A damaged database may refuse to open, if it names the file; it may open, if what was hit is
//! nobody's data; what it must never do is serve something else than what was committed, which the
//! workload's oracle sees. `check` must find no damage where none was done, and must find what made
//! the node refuse.

use crate::plan::{DIR, OPEN_LIMIT, keys_of};
use plinth_env::Env;
use plinth_env::simulated::{Random, Simulation};
use plinth_pipeline::{CheckReport, check_with};
use plinth_types::Error;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Most of a log file is room for later; bits are mostly turned over where something has been
/// written.
const FILLED: u64 = 20_000;

/// The files in which bits have been turned over.
#[derive(Default, Debug)]
pub(crate) struct Damage {
    files: BTreeSet<PathBuf>,
}

impl Damage {
    /// Turns one bit over somewhere in the database's files.
    pub fn flip_a_bit(&mut self, sim: &Simulation, machine: &Env, random: &mut Random) {
        let files: Vec<_> = sim.files(machine).into_iter().filter(|(_, len)| *len > 0).collect();
        if files.is_empty() {
            return;
        }
        let (path, len) = &files[random.index(files.len())];
        let bound = if random.chance(0.8) { (*len).min(FILLED) } else { *len };
        if sim.flip_bit(machine, path, random.below(bound)).is_ok() {
            self.files.insert(path.clone());
        }
    }

    /// Whether any was.
    pub fn is_done(&self) -> bool {
        !self.files.is_empty()
    }

    fn names(&self, text: &str) -> bool {
        self.files.iter().any(|path| {
            path.file_name().is_some_and(|name| text.contains(&*name.to_string_lossy()))
        })
    }

    /// Whether what was done to the disk explains that the node does not open.
    ///
    /// # Errors
    /// Why not.
    pub fn explains(&self, sim: &Simulation, machine: &Env, error: &Error) -> Result<(), String> {
        let is_damage =
            [Error::file_corrupt(), Error::checksum_failed(), Error::unsupported_operation()];
        if self.files.is_empty() || !is_damage.contains(error) {
            return Err(format!("the node says that its files are damaged: {error}"));
        }
        if !self.names(&error.to_string()) {
            return Err(format!(
                "a bit turned over in {:?}, and the node names none of it: {error}",
                self.files
            ));
        }
        if self.report(sim, machine)?.problems.is_empty() {
            return Err(format!("check finds nothing, and the node does not open: {error}"));
        }
        Ok(())
    }

    /// Every checksum holds, but for those in files in which bits have been turned over.
    ///
    /// # Errors
    /// What does not.
    pub fn inspect(&self, sim: &Simulation, machine: &Env) -> Result<(), String> {
        let report = self.report(sim, machine)?;
        match report.problems.iter().find(|problem| !self.names(&problem.file)) {
            Some(problem) => Err(format!("check finds damage that nobody did: {problem}")),
            None => Ok(()),
        }
    }

    fn report(&self, sim: &Simulation, machine: &Env) -> Result<CheckReport, String> {
        let checked =
            sim.run_until_within(OPEN_LIMIT, check_with(machine, Path::new(DIR), &keys_of(0)));
        let checked = checked.ok_or_else(|| format!("check did not end within {OPEN_LIMIT:?}"))?;
        checked.map_err(|error| format!("the directory can't be checked: {error}"))
    }
}
