//! Reads for programs that work on a whole database, whether it is locked or not: backups, a second
//! site.
//!
//! Transactions end after five seconds and know nothing of other reads; what these programs want is
//! a version, and some of the system's rows as of it, through passing failures.

use crate::{Database, ReadVersionRequest};
use plinth_types::{Bytes, KeyList, KeySpace, Result, Version};
use std::time::Duration;

/// How often something that may get better is tried again, and the pause before each time.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    /// How often.
    pub attempts: usize,
    /// The pause.
    pub pause: Duration,
}

impl Retries {
    /// Runs `attempt` until it succeeds, fails for good, or has failed so often.
    ///
    /// # Errors
    /// The last one of `attempt`.
    async fn run<T, F>(self, db: &Database, mut attempt: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut left = self.attempts;
        loop {
            match attempt().await {
                Err(error) if error.is_retryable() && left > 0 => left -= 1,
                result => return result,
            }
            db.endpoint().env().sleep(self.pause).await;
        }
    }

    /// A version at which everything is visible that was acknowledged before the call.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn read_version(self, db: &Database) -> Result<Version> {
        let request = ReadVersionRequest { lock_aware: true, ..ReadVersionRequest::default() };
        let reply = self.run(db, || db.endpoint().read_version(request.clone())).await?;
        Ok(reply.version)
    }

    /// The values of these keys, system keys among them, and the version that they are from.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn read(
        self,
        db: &Database,
        keys: &[&[u8]],
    ) -> Result<(Version, Vec<Option<Bytes>>)> {
        let mut list = KeyList::new();
        for key in keys {
            list.push(key);
        }
        let list = &list;
        self.run(db, || async move {
            let version = self.read_version(db).await?;
            let values = db.endpoint().get_many(version, KeySpace::System, list).await?;
            Ok((version, values))
        })
        .await
    }
}
