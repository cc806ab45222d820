//! The files of rules: read at the start, when what is wrong with one keeps the server from
//! starting, and again when they change, when it keeps the rules from changing.

use plinth_env::Env;
use plinth_rules::{Group, GroupSpec, MAX_FILE_BYTES, Options};
use plinth_types::{Error, Result};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files, and what stood in them when they were read last.
pub(super) struct Files {
    paths: Vec<PathBuf>,
    read: Mutex<Read>,
}

#[derive(Default)]
struct Read {
    texts: Vec<Vec<u8>>,
    specs: Vec<(String, GroupSpec)>,
}

impl Files {
    /// Reads and checks all of them.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub(super) async fn open(env: &Env, paths: &[PathBuf]) -> Result<Self> {
        let files = Self { paths: paths.to_vec(), read: Mutex::default() };
        let texts = files.texts(env).await?;
        let specs = files.specs(&texts).map_err(|why| {
            let why = format!("the rules make no sense:\n{why}");
            Error::client_invalid_operation().with_detail(why)
        })?;
        *files.lock() = Read { texts, specs };
        Ok(files)
    }

    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    fn lock(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn texts(&self, env: &Env) -> Result<Vec<Vec<u8>>> {
        let mut texts = Vec::new();
        for path in &self.paths {
            texts.push(env.files().read_at_most(path, MAX_FILE_BYTES).await?);
        }
        Ok(texts)
    }

    fn specs(&self, texts: &[Vec<u8>]) -> std::result::Result<Vec<(String, GroupSpec)>, String> {
        let (mut specs, mut faults) = (Vec::new(), Vec::new());
        for (path, text) in self.paths.iter().zip(texts) {
            let file = path.display().to_string();
            match std::str::from_utf8(text).map(|text| plinth_rules::parse(&file, text)) {
                Err(_) => faults.push(format!("{file}: it is no UTF-8")),
                Ok(Ok(groups)) => {
                    specs.extend(groups.into_iter().map(|group| (file.clone(), group)));
                }
                Ok(Err(found)) => faults.extend(found.iter().map(ToString::to_string)),
            }
        }
        if faults.is_empty() { Ok(specs) } else { Err(faults.join("\n")) }
    }

    /// The groups, of which nothing is known yet.
    pub(super) fn groups(&self, options: &Options) -> Vec<Group> {
        self.lock()
            .specs
            .iter()
            .map(|(file, spec)| Group::new(file, spec.clone(), options))
            .collect()
    }

    /// Reads them again; whether they have changed, and hold from now on.
    ///
    /// # Errors
    /// If they have changed and can't be read or make no sense: what was there before holds.
    pub(super) async fn changed(&self, env: &Env) -> std::result::Result<bool, String> {
        let texts = self.texts(env).await.map_err(|error| error.to_string())?;
        if self.lock().texts == texts {
            return Ok(false);
        }
        let specs = self.specs(&texts)?;
        *self.lock() = Read { texts, specs };
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::Open;
    use plinth_env::simulated::Simulation;

    /// A name that had come to be that of a file of gigabytes was read, every 15 seconds.
    #[test]
    fn of_a_file_that_is_too_long_nothing_is_read() {
        let sim = Simulation::new(1);
        let env = sim.process("server");
        sim.run_until(async {
            let path = PathBuf::from("/rules.yml");
            env.files().replace(&path, b"groups: []").await.unwrap();
            let files = Files::open(&env, std::slice::from_ref(&path)).await.unwrap();
            let file = env.files().open(&path, Open::Write).await.unwrap();
            file.set_len(1 << 50).await.unwrap();
            let why = files.changed(&env).await.unwrap_err();
            assert!(why.contains("/rules.yml has 1125899906842624 bytes"), "{why}");
            let why = Files::open(&env, &[path]).await.err().unwrap();
            assert_eq!(why, Error::file_too_large());
        });
    }
}
