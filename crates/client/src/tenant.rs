//! Tenants: parts of the key space under a prefix of their own.

use bytes::Bytes;

/// The prefix of all keys of a tenant.
#[derive(Debug)]
pub(crate) struct TenantPrefix {
    prefix: Bytes,
}

impl TenantPrefix {
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }
}
