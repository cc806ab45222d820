//! How a command fails: what happened and what to do, on standard error, and a number for scripts.
//!
//! What went wrong is in the error's own words. What to do is added here where it is the same for
//! several commands, and knows of the program's settings and files, as libraries don't.

use crate::CLUSTER_FILE;
use plinth::{Error, block_on};
use plinth_env::Env;
use std::fmt;
use std::path::Path;

/// Something could not be done: a file, a database, the system.
pub const FAILED: u8 = 1;
/// The command line makes no sense.
pub const USAGE: u8 = 2;
/// A database that was to be opened is damaged, `check` found damage, or `salvage` could not save
/// everything; or a server's node was removed from its cluster: what is in the directory has to be
/// looked at before it is served again.
pub const DAMAGED: u8 = 3;
/// A server ended to be started again, because a client asked for that. Whoever starts programs
/// again only after a failure does so then.
pub const BEGINS_ANEW: u8 = 75;
/// The user interrupted it.
pub const INTERRUPTED: u8 = 130;

/// Why a command ends early.
#[derive(Debug)]
pub struct Failure {
    what: String,
    code: u8,
}

impl Failure {
    /// Something could not be done.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), code: FAILED }
    }

    /// The user interrupted it.
    pub fn interrupted() -> Self {
        Self { what: "interrupted".to_owned(), code: INTERRUPTED }
    }

    /// What was found can't be printed. That its reader has gone is no news to whoever sent him
    /// away, and needs no words.
    pub fn printing(error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::new("");
        }
        Self::of("cannot write to standard output", error)
    }

    /// The command line asks for what there isn't.
    pub fn usage(what: impl Into<String>) -> Self {
        Self { what: what.into(), code: USAGE }
    }

    /// Something went wrong with this part of the work.
    pub fn of(work: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self::new(format!("{work}: {}", for_people(&error.to_string())))
    }

    /// A database can't be opened, whose name is given. The code tells scripts whether it is
    /// damaged.
    pub fn opening(name: impl fmt::Display, error: &Error) -> Self {
        let name = name.to_string();
        let mut failure = Self::of_database(format!("cannot open {name}"), error);
        let file = Path::new(&name).join(CLUSTER_FILE);
        if *error == Error::lock_file_failure()
            && block_on(Env::real().files().exists(&file)).unwrap_or(false)
        {
            let hint = format!("; if that is a server, it is reached by {}", file.display());
            failure.what.push_str(&hint);
        }
        failure
    }

    /// A server can't begin. Whose address is taken is told by which setting to name another one.
    pub fn serving(error: &Error) -> Self {
        let mut failure = Self::of("cannot serve", error);
        // An address without a setting is one that none asked for.
        let setting = error.detail().and_then(|detail| detail.split_once(' '));
        if let Some((setting, _)) = setting.filter(|_| *error == Error::address_in_use()) {
            let hint = format!(
                "; another program listens there, a server perhaps: name another address by --{setting} IP:PORT"
            );
            failure.what.push_str(&hint);
        }
        failure
    }

    /// A database can't be opened by a command that makes one only if it is told to, and wasn't.
    pub fn opening_what_is_there(name: impl fmt::Display, error: &Error) -> Self {
        if *error == Error::file_not_found() {
            return Self::of(
                format!("cannot open {name}"),
                format!("{error} (--create makes one)"),
            );
        }
        Self::opening(name, error)
    }

    /// Something went wrong with a database in a directory, which may be damaged.
    pub fn of_database(work: impl fmt::Display, error: &Error) -> Self {
        let is_damaged = *error == Error::file_corrupt() || *error == Error::checksum_failed();
        let code = if is_damaged { DAMAGED } else { FAILED };
        Self { what: format!("{work}: {}", for_people(&error.to_string())), code }
    }

    /// The database of a server has failed. One whose node was removed from its cluster is refused
    /// each time that it begins, as a damaged one is.
    pub fn of_served(work: impl fmt::Display, error: &Error) -> Self {
        let failure = Self::of_database(work, error);
        match *error == Error::client_invalid_operation() {
            true => Self { code: DAMAGED, ..failure },
            false => failure,
        }
    }

    /// A backup can't be opened. The advice of the error is for a database in a directory.
    pub fn opening_backup(url: impl fmt::Display, error: &Error) -> Self {
        let failure = Self::of_database(format!("cannot open {url}"), error);
        match error.detail() {
            Some(detail) if failure.code == DAMAGED => Self {
                what: format!(
                    "cannot open {url}: {}: {detail}; bring this file back from a copy of the backup: nothing else in it can be read without it",
                    error.name()
                ),
                ..failure
            },
            _ => failure,
        }
    }

    /// Tells people, if there is something to be told.
    pub fn tell(&self) {
        if !self.what.is_empty() {
            tell(self);
        }
    }

    /// The number that the process ends with.
    pub fn code(&self) -> u8 {
        self.code
    }
}

/// An error without a name and a number that say nothing beside what it says in words.
fn for_people(error: &str) -> &str {
    error.strip_prefix("client_invalid_operation (2000): ").unwrap_or(error)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<plinth_bench::Error> for Failure {
    fn from(error: plinth_bench::Error) -> Self {
        let code = match error {
            plinth_bench::Error::UnknownWorkload { .. } => USAGE,
            plinth_bench::Error::Interrupted => INTERRUPTED,
            _ => FAILED,
        };
        Self { what: error.to_string(), code }
    }
}

/// Tells people something on standard error. Nobody may be listening, which is no reason to end.
pub(crate) fn tell(text: impl std::fmt::Display) {
    plinth_env::tell(format_args!("plinth: {text}"));
}
