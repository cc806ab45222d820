//! A database by the name that a user gives it: a directory, a server's cluster file, or `fdb:` and
//! what FoundationDB's C library takes.

use crate::encryption;
use crate::silence;
use plinth::{Builder, Database, Error, Local, fdb};
use plinth_env::{Env, block_on};
use std::path::PathBuf;

/// What a server writes into its directory for clients to find it by.
pub const CLUSTER_FILE: &str = "fdb.cluster";

/// A database that was opened, wherever it is.
#[derive(Clone)]
pub struct Open {
    /// The handle on it.
    pub database: Database,
    /// The node, if it is in this process.
    pub local: Option<Local>,
}

impl Open {
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
    /// Those of opening; `file_not_found` for a directory without a database that `must_exist`.
    pub fn open(&self, must_exist: bool) -> Result<Open, Error> {
        Ok(match self {
            Self::Directory(path) => {
                let builder = encryption::of_environment(Builder::new(path), path)?;
                let builder = if must_exist { builder.must_exist() } else { builder };
                builder.open()?.into()
            }
            Self::ClusterFile(path) => {
                let database = Database::connect(path)?;
                silence::watch(database.endpoint());
                database.into()
            }
            Self::Foundation(target) => fdb::open(target)?.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
