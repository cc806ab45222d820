//! A session: what the shell remembers from one command to the next, and how commands read and
//! write.
//!
//! A session works on any client's database. Outside a transaction of its own each command is one,
//! retried as an application would; after `begin`, all commands belong to the one transaction until
//! `commit`, `rollback`, or an error of the database, which rolls it back.

use super::interrupts::Interrupts;
use crate::patience::{SOON, no_answer, within};
use plinth::backup::restore;
use plinth::{Database, Error, Transaction, TransactionOption};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

/// A session on a database, which prints to `Out`.
pub struct Session<Out> {
    pub database: Database,
    pub out: Out,
    /// Whether keys may be written.
    pub writable: bool,
    /// The transaction begun and not yet ended.
    pub transaction: Option<Begun>,
    /// Options of every transaction to come, by code, with their values.
    pub options: Options,
    /// The tenant in which keys are read and written, if not the whole database's.
    pub tenant: Option<Vec<u8>>,
    /// Ctrl-C, where it ends a command and not the shell.
    pub interrupts: Interrupts,
}

/// Options by code, with their values.
pub type Options = BTreeMap<i32, Option<Vec<u8>>>;

/// A transaction of several commands.
pub struct Begun {
    pub transaction: Transaction,
    /// Set for it alone.
    pub options: Options,
}

/// Whether the shell goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    GoOn,
    Exit,
}

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub enum Refusal {
    /// It was not well-formed, or is not allowed now. In words.
    Usage(String),
    /// The database refused.
    Database(Error),
    /// Ctrl-C ended it, and so it failed.
    Interrupted(Error),
    /// Nobody can read what it prints.
    Output(io::Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) => f.write_str(text),
            // The advice is to read the words that are here already.
            Self::Database(error)
                if *error == Error::special_keys_api_failure() && error.detail().is_some() =>
            {
                f.write_str(error.detail().unwrap_or_default())
            }
            Self::Database(error) => write!(f, "{error}"),
            Self::Interrupted(error) if error.is_maybe_committed() => {
                write!(f, "interrupted: {error}")
            }
            Self::Interrupted(_) => f.write_str("interrupted"),
            Self::Output(error) => write!(f, "cannot write to standard output: {error}"),
        }
    }
}

/// A command that failed: its name, and why. The rest of its line was not run.
#[derive(Debug)]
pub struct Failed {
    pub command: String,
    pub why: Refusal,
    /// Whether a transaction was rolled back because of it.
    pub rolled_back: bool,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.command.is_empty() {
            write!(f, "{}: ", self.command)?;
        }
        write!(f, "{}", self.why)?;
        if self.rolled_back {
            f.write_str("\nRolling back current transaction")?;
        }
        Ok(())
    }
}

impl<Out: Write> Session<Out> {
    /// A session that may only read, until `writemode on`.
    pub fn new(database: Database, out: Out) -> Self {
        let interrupts = Interrupts::default();
        let options = Options::new();
        Self {
            database,
            out,
            writable: false,
            transaction: None,
            options,
            tenant: None,
            interrupts,
        }
    }

    /// Runs a body of reads: in the transaction that was begun, else in one of its own.
    pub fn read<T>(
        &self,
        mut body: impl FnMut(&Transaction) -> plinth::Result<T>,
    ) -> Result<T, Refusal> {
        if let Some(begun) = &self.transaction {
            return Ok(body(&begun.transaction)?);
        }
        let transaction = self.create()?;
        loop {
            match body(&transaction) {
                Ok(value) => return Ok(value),
                Err(error) => again(&transaction, error)?,
            }
        }
    }

    /// Refuses what changes the database before it was said that it may.
    pub fn check_writable(&self) -> Result<(), Refusal> {
        if self.writable {
            return Ok(());
        }
        let text = "write mode is off; turn it on to change the database: writemode on";
        Err(Refusal::Usage(text.to_owned()))
    }

    /// Runs a body of writes: in the transaction that was begun, else in one of its own, which is
    /// committed; gives the version of that commit.
    pub fn write(&self, body: impl Fn(&Transaction)) -> Result<Option<i64>, Refusal> {
        self.check_writable()?;
        if let Some(begun) = &self.transaction {
            body(&begun.transaction);
            return Ok(None);
        }
        let transaction = self.create()?;
        loop {
            body(&transaction);
            match transaction.commit().wait() {
                Ok(()) => return Ok(transaction.committed_version()),
                Err(error) => again(&transaction, error)?,
            }
        }
    }

    /// The database as whoever shows the session's token sees it, if there is one: for what is
    /// asked outside of transactions.
    pub fn shown(&self) -> Database {
        let code = TransactionOption::AuthorizationToken(String::new()).code();
        match self.options.get(&code) {
            Some(Some(token)) => self.database.showing(token),
            _ => self.database.clone(),
        }
    }

    /// A transaction with the options of the session, in its tenant.
    pub fn create(&self) -> plinth::Result<Transaction> {
        self.prepare(match &self.tenant {
            Some(name) => self.database.create_tenant_transaction(name),
            None => self.database.create_transaction(),
        })
    }

    /// An answer that no transaction has asked for. Ctrl-C ends it, as it does a transaction's.
    pub fn answer<T>(&self, answer: impl Future<Output = plinth::Result<T>>) -> plinth::Result<T> {
        self.interrupts.answer(self.database.endpoint().env(), answer)
    }

    /// The same in no tenant: for what concerns the database as a whole.
    pub fn create_outside(&self) -> plinth::Result<Transaction> {
        self.prepare(self.database.create_transaction())
    }

    fn prepare(&self, transaction: Transaction) -> plinth::Result<Transaction> {
        apply(&transaction, &self.options)?;
        self.interrupts.note(&transaction);
        Ok(transaction)
    }
}

/// Prepares a transaction for another attempt after an error that one can help with. A lock isn't
/// waited for, which may last for hours.
pub fn again(transaction: &Transaction, error: Error) -> plinth::Result<()> {
    if error == Error::database_locked() {
        return Err(error);
    }
    if error == Error::transaction_rejected_range_locked() {
        let detail = error.detail().unwrap_or_default();
        let words = format!(
            "{detail}; `plinth restore status` tells how far a restore is that has locked it"
        );
        return Err(error.with_detail(words));
    }
    transaction.on_error(error).wait()
}

/// The restore that has locked a database, with how it ends; `None` if there is none. Whoever
/// unlocked such a database by hand would have a part of its rows.
///
/// # Errors
/// Why that can't be told, in words.
pub fn restoring(database: &Database) -> Result<Option<String>, String> {
    let found = within(database.endpoint().env(), SOON, restore::status(database));
    let found = found.ok_or_else(|| no_answer(SOON))?.map_err(|error| error.to_string())?;
    Ok(found.filter(|found| found.locks_database).map(|found| {
        format!(
            "it is being restored from {}; `plinth restore status` tells how far that is, `plinth restore abort` gives it up",
            found.url
        )
    }))
}

/// Sets these options on a transaction.
pub fn apply(transaction: &Transaction, options: &Options) -> plinth::Result<()> {
    options.iter().try_for_each(|(code, value)| transaction.set_option_raw(*code, value.as_deref()))
}
