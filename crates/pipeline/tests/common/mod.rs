//! What the tests of the node share: requests in a line each.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod disk;
pub mod heard;
pub mod tables;
pub mod world;

use plinth_client::{Endpoint, ReadVersionRequest};
use plinth_env::Env;
use plinth_pipeline::{InProcess, Node, NodeConfig};
use plinth_types::{
    Bytes, CommitReply, CommitRequest, Conflicts, KeyList, KeySpace, MutationList, MutationType,
    Result, Version,
};
use std::path::Path;
use std::sync::Arc;

/// Whatever an endpoint can be reached through.
pub trait Reach {
    fn reach(&self) -> &dyn Endpoint;
}

impl Reach for InProcess {
    fn reach(&self) -> &dyn Endpoint {
        self
    }
}

impl Reach for Arc<dyn Endpoint> {
    fn reach(&self) -> &dyn Endpoint {
        &**self
    }
}

impl Reach for reached::Opened {
    fn reach(&self) -> &dyn Endpoint {
        &*self.endpoint
    }
}

impl Reach for world::World {
    fn reach(&self) -> &dyn Endpoint {
        &**self.endpoint()
    }
}

/// A node over files in `dir`.
pub async fn open(env: &Env, dir: &Path) -> Result<InProcess> {
    Ok(Node::open(env, dir, NodeConfig::default()).await?.endpoint())
}

include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/provided/endpoint.rs"));

/// How databases are reached that lie on a disk.
pub mod reached {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/provided/way.rs"));
}

/// A node without files.
pub async fn in_memory() -> Arc<dyn Endpoint> {
    provided(Arc::new(in_process().await))
}

/// A node without files, in any case in this process.
pub async fn in_process() -> InProcess {
    Node::in_memory(&Env::real(), NodeConfig::default()).await.unwrap().endpoint()
}

/// A request that does this, blindly.
pub fn request(mutations: &[(MutationType, &[u8], &[u8])]) -> CommitRequest {
    let mut request = CommitRequest::default();
    for (kind, param1, param2) in mutations {
        request.mutations.push(*kind, param1, param2);
        match kind {
            MutationType::ClearRange => request.conflicts.writes.push(param1, param2),
            MutationType::SetVersionstampedKey => {}
            _ => request.conflicts.writes.push_single(param1),
        }
    }
    request
}

/// A request that also read `keys` at `version`.
pub fn having_read(mut request: CommitRequest, version: Version, keys: &[&[u8]]) -> CommitRequest {
    request.conflicts.read_version = version;
    keys.iter().for_each(|key| request.conflicts.reads.push_single(key));
    request
}

/// Commits, and expects a version.
pub async fn commit(endpoint: &impl Reach, request: CommitRequest) -> Result<(Version, u16)> {
    match endpoint.reach().commit(request).await? {
        CommitReply::Committed { version, batch_index } => Ok((version, batch_index)),
        CommitReply::Conflict { .. } => Err(plinth_types::Error::not_committed()),
    }
}

/// Sets one key.
pub async fn set(endpoint: &impl Reach, key: &[u8], value: &[u8]) -> Result<Version> {
    Ok(commit(endpoint, request(&[(MutationType::Set, key, value)])).await?.0)
}

/// A fresh read version.
pub async fn version(endpoint: &impl Reach) -> Version {
    let request = ReadVersionRequest { lock_aware: true, ..Default::default() };
    endpoint.reach().read_version(request).await.unwrap().version
}

/// The value of a key at a version.
pub async fn get_at(endpoint: &impl Reach, version: Version, key: &[u8]) -> Result<Option<Bytes>> {
    let mut keys = KeyList::new();
    keys.push(key);
    Ok(endpoint.reach().get_many(version, KeySpace::System, &keys).await?.pop().flatten())
}

/// The value of a key now.
pub async fn get(endpoint: &impl Reach, key: &[u8]) -> Option<Bytes> {
    get_at(endpoint, version(endpoint).await, key).await.unwrap()
}

/// A request of nothing.
pub fn empty() -> CommitRequest {
    CommitRequest {
        conflicts: Conflicts::default(),
        mutations: MutationList::new(),
        ..CommitRequest::default()
    }
}
