//! Whether the database answers at all: one that has lost the majority of its servers answers
//! nobody, and everything that reads of it or commits waits.
//!
//! Whoever asks over HTTP waits too, but not for longer than for an owner. So each request is
//! answered by whatever comes first: its answer, or that the database has been silent for so long.
//! It is asked for nothing as long as answers come soon: what is slow has the database asked every
//! second whether it is there, by a read version, which any majority gives.

use crate::config::ServerConfig;
use plinth_client::{Database, Endpoint};
use plinth_env::Env;
use plinth_env::sync::{First, race};
use plinth_types::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// For how long it may be silent: as long as an owner of the series is looked for.
pub(super) const SILENT: Duration = Duration::from_secs(10);
/// How often it is asked.
const LOOK: Duration = Duration::from_secs(1);

/// The database, as far as it is asked whether it is there.
#[derive(Clone)]
pub(super) struct Pulse {
    env: Env,
    /// The one in which the series are.
    database: Database,
    /// This server's own.
    endpoint: Arc<dyn Endpoint>,
}

/// Queries at work, and what they wait for.
#[derive(Clone)]
pub(super) struct Asking {
    pub(super) queries: Arc<AtomicUsize>,
    pub(super) pulse: Pulse,
}

impl Asking {
    pub(super) fn new(pulse: Pulse) -> Self {
        Self { queries: Arc::default(), pulse }
    }
}

impl Pulse {
    /// That of the database in which a server with this configuration has series.
    pub(super) fn of(endpoint: &Arc<dyn Endpoint>, config: &ServerConfig) -> Self {
        let shared = config.among.as_ref().map(|among| among.database.clone());
        Self::new(endpoint, shared.unwrap_or_else(|| Database::new(endpoint.clone())))
    }

    pub(super) fn new(endpoint: &Arc<dyn Endpoint>, database: Database) -> Self {
        Self { env: endpoint.env().clone(), database, endpoint: endpoint.clone() }
    }

    /// What comes, unless the database is silent for too long.
    ///
    /// # Errors
    /// `process_behind`, if it is.
    pub(super) async fn or_silent<T>(&self, coming: impl Future<Output = T>) -> Result<T, Error> {
        match race(coming, self.silent()).await {
            First::Left(come) => Ok(come),
            First::Right(why) => {
                let why = why.map_or_else(
                    || "a majority of its servers can't be reached".to_owned(),
                    |why| why.to_string(),
                );
                Err(Error::process_behind().with_detail(format!(
                    "the database has answered nothing for {} s: {why}. Nothing is known of what was to be written",
                    SILENT.as_secs()
                )))
            }
        }
    }

    /// Why this server serves nothing now, if it knows.
    pub(super) fn refusal(&self) -> Option<Error> {
        self.endpoint.refusal()
    }

    /// That it is locked, if it says so soon.
    pub(super) async fn lock(&self) -> Option<Error> {
        let asked = self.database.create_transaction();
        match race(asked.get_read_version(), self.env.sleep(LOOK)).await {
            First::Left(Err(why)) if why == Error::database_locked() => Some(why),
            _ => None,
        }
    }

    /// Ends when the database has been silent for too long. Gives what it was asked in vain for
    /// last, if that isn't that a server has no majority.
    async fn silent(&self) -> Option<Error> {
        let mut heard = self.env.now();
        loop {
            self.env.sleep(LOOK).await;
            let until = (heard + SILENT).saturating_sub(self.env.now());
            let mut why = None;
            match race(self.heard(&mut why), self.env.sleep(until)).await {
                First::Left(()) => heard = self.env.now(),
                First::Right(()) => return why,
            }
        }
    }

    /// Ends when it has said something. A server without a majority says that, and is asked again.
    async fn heard(&self, last: &mut Option<Error>) {
        loop {
            let asked = self.database.create_transaction().get_read_version().await;
            let Err(why) = asked else { return };
            if why == Error::database_locked() {
                return;
            }
            *last = (why != Error::process_behind()).then_some(why);
            self.env.sleep(LOOK).await;
            // Of the next one nothing is known while it hangs.
            *last = None;
        }
    }
}
