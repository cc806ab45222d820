//! A database that can't be reached: operations fail with what is wrong, or wait until their timeout if nothing is
//! known to be wrong but that nobody answers.

use plinth_client::{Description, Endpoint, ReadVersionReply, ReadVersionRequest};
use plinth_env::Env;
use plinth_env::reply::{Promise, Reply, promise};
use plinth_types::{
    Bytes, CommitReply, CommitRequest, Error, KeyList, KeyRange, KeySelector, KeySpace, RangeRead,
    RangeResult, Version,
};
use std::sync::{Mutex, PoisonError};

/// An endpoint without a database behind it.
pub(crate) struct Absent {
    env: Env,
    description: Description,
    failure: Option<Error>,
    /// Promises that are never kept, of those who still wait.
    waiting: Mutex<Vec<Box<dyn Unkept>>>,
}

trait Unkept: Send {
    fn is_cancelled(&self) -> bool;
}

impl<T: Send> Unkept for Promise<T> {
    fn is_cancelled(&self) -> bool {
        Promise::is_cancelled(self)
    }
}

impl Absent {
    /// Every operation fails with `failure`, or, without one, waits.
    pub(crate) fn new(env: Env, description: Description, failure: Option<Error>) -> Self {
        Self { env, description, failure, waiting: Mutex::new(Vec::new()) }
    }

    fn answer<T: Send + 'static>(&self) -> Reply<T> {
        if let Some(failure) = &self.failure {
            return Reply::ready(Err(failure.clone()));
        }
        let (promise, reply) = promise();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|unkept| !unkept.is_cancelled());
        waiting.push(Box::new(promise));
        reply
    }
}

impl Endpoint for Absent {
    fn env(&self) -> &Env {
        &self.env
    }

    fn read_version(&self, _: ReadVersionRequest) -> Reply<ReadVersionReply> {
        self.answer()
    }

    fn get_many(&self, _: Version, _: KeySpace, _: &KeyList) -> Reply<Vec<Option<Bytes>>> {
        self.answer()
    }

    fn get_key(&self, _: Version, _: KeySpace, _: &KeySelector) -> Reply<Bytes> {
        self.answer()
    }

    fn get_range(&self, _: Version, _: KeySpace, _: &RangeRead) -> Reply<RangeResult> {
        self.answer()
    }

    fn commit(&self, _: CommitRequest) -> Reply<CommitReply> {
        self.answer()
    }

    fn watch(&self, _: Bytes, _: Option<Bytes>, _: Version) -> Reply<Version> {
        self.answer()
    }

    fn range_size(&self, _: KeyRange) -> Reply<i64> {
        self.answer()
    }

    fn split_points(&self, _: KeyRange, _: i64) -> Reply<Vec<Bytes>> {
        self.answer()
    }

    fn addresses_for_key(&self, _: &[u8]) -> Reply<Vec<String>> {
        self.answer()
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }

    fn status_json(&self) -> Reply<String> {
        let document = r#"{"client":{"database_status":{"available":false,"healthy":false}},"cluster":{}}"#;
        Reply::ready(Ok(document.to_string()))
    }

    fn may_lose_answers(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_client::{Database, TransactionOption};
    use std::sync::Arc;

    fn unreachable() -> Database {
        Database::new(Arc::new(Absent::new(Env::real(), Description::default(), None)))
    }

    #[test]
    fn a_commit_that_waits_for_a_read_is_cancelled() {
        let tr = unreachable().create_transaction();
        let read = tr.get("key");
        let commit = tr.commit();
        tr.cancel();
        assert_eq!(commit.wait(), Err(Error::transaction_cancelled()));
        assert_eq!(read.wait(), Err(Error::transaction_cancelled()));
    }

    #[test]
    fn operations_wait_until_their_timeout() {
        let tr = unreachable().create_transaction();
        tr.set_option(TransactionOption::Timeout(20)).unwrap();
        let read = tr.get("key");
        assert_eq!(tr.commit().wait(), Err(Error::transaction_timed_out()));
        assert_eq!(read.wait(), Err(Error::transaction_timed_out()));
        assert_eq!(tr.get_read_version().wait(), Err(Error::transaction_timed_out()));
    }

    #[test]
    fn operations_tell_what_is_wrong() {
        let failure = Some(Error::no_cluster_file_found());
        let db = Database::new(Arc::new(Absent::new(Env::real(), Description::default(), failure)));
        let tr = db.create_transaction();
        assert_eq!(tr.get("key").wait(), Err(Error::no_cluster_file_found()));
        tr.set("key", "value");
        assert!(tr.commit().wait().is_err());
    }
}
