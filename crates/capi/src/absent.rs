//! A database that can't be used: every operation fails with what is wrong.

use plinth_client::{Description, Endpoint, ReadVersionReply, ReadVersionRequest};
use plinth_env::Env;
use plinth_env::reply::Reply;
use plinth_types::{
    Bytes, CommitReply, CommitRequest, Error, KeyList, KeyRange, KeySelector, KeySpace, RangeRead,
    RangeResult, Version,
};

/// An endpoint without a database behind it.
pub(crate) struct Absent {
    env: Env,
    description: Description,
    failure: Error,
}

impl Absent {
    /// Every operation fails with `failure`.
    pub(crate) fn new(env: Env, description: Description, failure: Error) -> Self {
        Self { env, description, failure }
    }

    fn answer<T: Send + 'static>(&self) -> Reply<T> {
        Reply::ready(Err(self.failure.clone()))
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
        let document =
            r#"{"client":{"database_status":{"available":false,"healthy":false}},"cluster":{}}"#;
        Reply::ready(Ok(document.to_string()))
    }

    fn may_lose_answers(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_client::remote::{ClusterFile, RemoteEndpoint};
    use plinth_client::{Database, TransactionOption};
    use std::sync::Arc;
    use std::time::Duration;

    fn unreachable() -> Database {
        let file = ClusterFile::parse("nobody:there@127.0.0.1:1").unwrap();
        Database::new(Arc::new(RemoteEndpoint::connect(&Env::real(), file)))
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
        tr.set_option(TransactionOption::Timeout(Some(Duration::from_millis(20)))).unwrap();
        let read = tr.get("key");
        assert_eq!(tr.commit().wait(), Err(Error::transaction_timed_out()));
        assert_eq!(read.wait(), Err(Error::transaction_timed_out()));
        assert_eq!(tr.get_read_version().wait(), Err(Error::transaction_timed_out()));
    }

    #[test]
    fn operations_tell_what_is_wrong() {
        let absent =
            Absent::new(Env::real(), Description::default(), Error::no_cluster_file_found());
        let tr = Database::new(Arc::new(absent)).create_transaction();
        assert_eq!(tr.get("key").wait(), Err(Error::no_cluster_file_found()));
        tr.set("key", "value");
        assert!(tr.commit().wait().is_err());
    }
}
