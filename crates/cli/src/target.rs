//! A database by the name that a user gives it: a directory, a server's cluster file, or `fdb:` and
//! what FoundationDB's C library takes.
//!
//! Opening a server's asks nobody. What is asked of it waits for as long as it takes, and it is
//! told for what; a command that would rather not begin waits by itself, and not for ever.

use crate::encryption;
use crate::patience::{no_answer, within};
use crate::silence;
use crate::token;
use plinth::{Builder, ClusterFile, Database, Error, Local, TransactionOption, fdb};
use plinth_env::{Env, block_on};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A database that was opened, wherever it is.
#[derive(Clone)]
pub struct Open {
    /// The handle on it.
    pub database: Database,
    /// The node, if it is in this process.
    pub local: Option<Local>,
}

impl Open {
    /// Waits until it answers, for so long at most.
    ///
    /// # Errors
    /// `timed_out` with what it was waited for; those of reading.
    pub fn until_reached(&self, patience: Duration) -> Result<(), Error> {
        let env = self.database.endpoint().env().clone();
        let asked = async {
            let tr = self.database.create_transaction();
            tr.set_option(TransactionOption::LockAware)?;
            loop {
                match tr.get_read_version().await {
                    Ok(_) => return Ok(()),
                    Err(error) => tr.on_error(error).await?,
                }
            }
        };
        within(&env, patience, asked).unwrap_or_else(|| {
            let why = self.database.endpoint().stalled();
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            Err(Error::timed_out().with_detail(format!("{}{why}", no_answer(patience))))
        })
    }

    /// Closes it, if it is in this process.
    ///
    /// # Errors
    /// As [`Local::close`].
    pub fn close(self) -> Result<(), Error> {
        self.local.map_or(Ok(()), Local::close)
    }
}

impl From<Local> for Open {
    fn from(local: Local) -> Self {
        Self { database: local.database().clone(), local: Some(local) }
    }
}

impl From<Database> for Open {
    fn from(database: Database) -> Self {
        Self { database, local: None }
    }
}

/// Where a database is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// In a directory, which this process opens alone.
    Directory(PathBuf),
    /// Behind a server.
    ClusterFile(PathBuf),
    /// Behind FoundationDB's C library.
    Foundation(fdb::Target),
}

impl Target {
    /// What a name stands for.
    ///
    /// # Errors
    /// `connection_string_invalid` for an `fdb:` that makes no sense.
    pub fn named(text: &str) -> Result<Self, Error> {
        if fdb::Target::is_one(text) {
            return text.parse().map(Self::Foundation);
        }
        let (path, env) = (PathBuf::from(text), Env::real());
        let exists = block_on(env.files().exists(&path)).unwrap_or(false);
        let is_directory = if exists {
            block_on(env.files().list(&path)).is_ok()
        } else {
            !text.ends_with(".cluster")
        };
        Ok(if is_directory { Self::Directory(path) } else { Self::ClusterFile(path) })
    }

    /// What `--cluster-file` stands for: a file, `fdb:` and what belongs to it, or, if nothing is
    /// given, the file where clients look for one.
    ///
    /// # Errors
    /// `connection_string_invalid` for an `fdb:` that makes no sense.
    pub fn of_cluster_file(given: Option<&PathBuf>) -> Result<Self, Error> {
        let Some(path) = given else { return Ok(Self::ClusterFile(PathBuf::new())) };
        match path.to_str().filter(|text| fdb::Target::is_one(text)) {
            Some(text) => text.parse().map(Self::Foundation),
            None => Ok(Self::ClusterFile(path.clone())),
        }
    }

    /// Opens it. Should a server not answer, that is said; see [`silence`].
    ///
    /// # Errors
    /// Those of opening, and of the token that the environment names; `file_not_found` for a
    /// directory without a database that `must_exist`.
    pub fn open(&self, must_exist: bool) -> Result<Open, Error> {
        Ok(match self {
            Self::Directory(path) => {
                check_name(path)?;
                let builder = encryption::of_environment(Builder::new(path), path)?;
                let builder = if must_exist { builder.must_exist() } else { builder };
                builder.open()?.into()
            }
            Self::ClusterFile(path) => {
                let database = token::of_environment(Database::connect(path)?)?;
                silence::watch(database.endpoint());
                database.into()
            }
            Self::Foundation(target) => fdb::open(target)?.into(),
        })
    }
}

/// Refuses to make a directory of a name that is more likely a slip: nearly one of a cluster file,
/// or with options behind it as bindings take them.
///
/// # Errors
/// `file_not_found`, with what may be meant.
pub fn check_name(path: &Path) -> Result<(), Error> {
    if block_on(Env::real().files().exists(path)).unwrap_or(false) {
        return Ok(());
    }
    let text = path.to_string_lossy();
    let shown = path.display();
    let why = if text.split_once('?').is_some_and(|(_, options)| options.contains('=')) {
        format!(
            "there is no {shown}: options behind a name are for bindings, `plinth` has some of its own, such as \
             --create, --engine and --memory (see --help)"
        )
    } else if ClusterFile::is_nearly_one(path) {
        format!(
            "there is no {shown}: is a cluster file meant? Their names end in .cluster, and --cluster-file \
             takes them; a directory of this name has to be made before"
        )
    } else {
        return Ok(());
    };
    Err(Error::file_not_found().with_detail(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::PATIENCE;

    #[test]
    fn names_are_told_apart() {
        let named = |text: &str| Target::named(text).unwrap();
        assert_eq!(named("./nowhere"), Target::Directory("./nowhere".into()));
        assert_eq!(named("./no.cluster"), Target::ClusterFile("./no.cluster".into()));
        assert!(matches!(named("fdb:a?lib=b"), Target::Foundation(_)));
        assert!(Target::named("fdb:a?b").unwrap_err().to_string().contains("fdb:CLUSTER_FILE"));
        let served = |text: &str| Target::of_cluster_file(Some(&text.into()));
        assert!(matches!(served("fdb:a"), Ok(Target::Foundation(_))));
        assert_eq!(served("./nowhere").unwrap(), Target::ClusterFile("./nowhere".into()));
        assert!(served("fdb:a?b").is_err());
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert_eq!(named(file), Target::ClusterFile(file.into()));
    }

    /// `plinth migrate` waited for ever.
    #[test]
    fn a_database_that_is_not_there_is_not_waited_for_for_ever() {
        let env = Env::real();
        let dir = block_on(env.files().temporary_dir("plinth-target-test")).unwrap();
        let path = dir.path().join("fdb.cluster");
        // Nobody listens at a port that is kept for that.
        block_on(env.files().replace(&path, b"a:b@127.0.0.1:1")).unwrap();
        let opened = Target::ClusterFile(path).open(true).unwrap();
        let error = opened.until_reached(Duration::from_millis(300)).unwrap_err();
        assert!(
            error == Error::timed_out() && error.to_string().contains("127.0.0.1:1"),
            "{error}"
        );
        let local = Open::from(Local::in_memory().unwrap());
        assert_eq!(local.until_reached(PATIENCE), Ok(()));
    }
}
