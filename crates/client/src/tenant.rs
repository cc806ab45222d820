//! Tenants: parts of the key space under a prefix of their own.

use crate::database::{Database, transact, transact_blocking};
use crate::options::TransactionOption;
use crate::special_keys::tenants::{name_key, prefix_of};
use crate::transaction::Transaction;
use bytes::Bytes;
use plinth_env::reply::{Reply, promise};
use plinth_types::{Error, Result};
use std::future::Future;
use std::sync::Arc;

/// The prefix of all keys of a tenant.
#[derive(Debug)]
pub(crate) struct TenantPrefix {
    prefix: [u8; 8],
}

impl TenantPrefix {
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }
}

/// A part of the key space that its transactions see as the whole of it.
#[derive(Clone, Debug)]
pub struct Tenant {
    database: Database,
    name: Bytes,
    prefix: Arc<TenantPrefix>,
}

impl Database {
    /// The tenant of this name. Tenants are made by setting `\xff\xff/management/tenant/map/<name>`, and removed by
    /// clearing it.
    ///
    /// # Errors
    /// `tenant_not_found`; `invalid_tenant_name`.
    pub fn open_tenant(&self, name: impl AsRef<[u8]>) -> Reply<Tenant> {
        let name = Bytes::copy_from_slice(name.as_ref());
        if name.first() == Some(&0xff) {
            return Reply::ready(Err(Error::invalid_tenant_name()));
        }
        let (promise, reply) = promise();
        let tr = self.create_bare_transaction();
        for option in [TransactionOption::ReadSystemKeys, TransactionOption::ReadLockAware] {
            if let Err(error) = tr.set_option(option) {
                return Reply::ready(Err(error));
            }
        }
        let database = self.clone();
        let value = tr.snapshot().get(name_key(&name));
        value.on_complete(move |stored| {
            let tenant = stored.and_then(|stored| {
                let prefix = stored.as_deref().and_then(prefix_of).ok_or_else(Error::tenant_not_found)?;
                Ok(Tenant { database, name, prefix: Arc::new(TenantPrefix { prefix }) })
            });
            promise.send(tenant);
        });
        reply
    }
}

impl Tenant {
    /// The tenant's name.
    pub fn name(&self) -> &Bytes {
        &self.name
    }

    /// The tenant's id.
    pub fn id(&self) -> i64 {
        i64::from_be_bytes(self.prefix.prefix)
    }

    /// The database that this is a tenant of.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// A new transaction on the tenant's keys.
    pub fn create_transaction(&self) -> Transaction {
        Transaction::new(self.database.clone(), Some(self.prefix.clone()))
    }

    /// As [`Database::transact`], on the tenant's keys.
    ///
    /// # Errors
    /// As there.
    pub async fn transact<T, F, Fut>(&self, body: F) -> Result<T>
    where
        F: FnMut(Transaction) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        transact(self.create_transaction(), body).await
    }

    /// As [`Database::transact_blocking`], on the tenant's keys.
    ///
    /// # Errors
    /// As there.
    pub fn transact_blocking<T, F>(&self, body: F) -> Result<T>
    where
        F: FnMut(&Transaction) -> Result<T>,
    {
        transact_blocking(&self.create_transaction(), body)
    }
}
