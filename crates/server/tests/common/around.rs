//! A node's endpoint, some of whose answers a test gives itself.

use plinth_client::{Description, Endpoint, ReadVersionReply, ReadVersionRequest};
use plinth_env::Env;
use plinth_env::reply::Reply;
use plinth_pipeline::InProcess;
use plinth_types::{
    Bytes, CommitReply, CommitRequest, Error, KeyList, KeyRange, KeySelector, KeySpace, RangeRead,
    RangeResult, Result, Version,
};

/// What a test answers itself; everything else the node does.
pub trait Around: Send + Sync + 'static {
    fn inner(&self) -> &InProcess;

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        self.inner().get_range(version, space, read)
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        self.inner().commit(request)
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        self.inner().split_points(range, chunk)
    }

    fn status_json(&self) -> Reply<String> {
        self.inner().status_json()
    }

    /// As of a database elsewhere: a test whose answers wait is asked for no rows of rights.
    fn newest_here(&self) -> Result<Version> {
        Err(Error::unsupported_operation())
    }
}

/// The endpoint that answers so.
pub struct Altered<T>(pub std::sync::Arc<T>);

impl<T: Around> Endpoint for Altered<T> {
    fn env(&self) -> &Env {
        self.0.inner().env()
    }
    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        self.0.inner().read_version(request)
    }
    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        self.0.inner().get_many(version, space, keys)
    }
    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        self.0.inner().get_key(version, space, selector)
    }
    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        self.0.get_range(version, space, read)
    }
    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        self.0.commit(request)
    }
    fn watch(&self, key: Bytes, value: Option<Bytes>, version: Version) -> Reply<Version> {
        self.0.inner().watch(key, value, version)
    }
    fn range_size(&self, range: KeyRange) -> Reply<i64> {
        self.0.inner().range_size(range)
    }
    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        self.0.split_points(range, chunk)
    }
    fn addresses_for_key(&self, key: &[u8]) -> Reply<Vec<String>> {
        self.0.inner().addresses_for_key(key)
    }
    fn describe(&self) -> Description {
        self.0.inner().describe()
    }
    fn status_json(&self) -> Reply<String> {
        self.0.status_json()
    }
    fn newest_here(&self) -> Result<Version> {
        self.0.newest_here()
    }
}
