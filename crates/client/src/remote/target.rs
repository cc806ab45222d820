//! Where the connections of an endpoint lead: to the servers of a cluster file; or, of one that has
//! a place among several, to the server that has that place by now.

use super::cluster_file::ClusterFile;
use std::sync::{Arc, PoisonError, RwLock};

pub(super) struct Target {
    given: Arc<ClusterFile>,
    now: RwLock<Arc<ClusterFile>>,
}

impl Target {
    pub(super) fn new(file: Arc<ClusterFile>) -> Arc<Self> {
        Arc::new(Self { given: file.clone(), now: RwLock::new(file) })
    }

    /// The file with which it began.
    pub(super) fn given(&self) -> &ClusterFile {
        &self.given
    }

    /// What is to be connected with.
    pub(super) fn now(&self) -> Arc<ClusterFile> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether that is this still, as [`Target::now`] gave it.
    pub(super) fn is(&self, file: &Arc<ClusterFile>) -> bool {
        Arc::ptr_eq(&self.now(), file)
    }

    /// From now on the servers of this file are connected with. Connections that there are stay.
    pub(super) fn aim(&self, file: ClusterFile) {
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(file);
    }
}
