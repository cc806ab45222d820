//! Tenants: parts of the key space under a prefix of their own.
//!
//! A tenant's transaction may be made before the tenant has been looked up: its operations go by
//! keys relative to the prefix, and wait for the prefix where they would ask for the read version
//! (see `Inner::read_version`). If there is no such tenant, each of them says so.

use crate::database::Database;
use crate::endpoint::Endpoint;
use crate::options::TransactionOption;
use crate::prefix::TenantPrefix;
use crate::special_keys::tenants::{name_key, prefix_of};
use crate::transact::{transact, transact_blocking, transact_mut};
use crate::transaction::{Task, Transaction};
use bytes::Bytes;
use plinth_env::reply::{Reply, promise};
use plinth_types::{Error, Result};
use std::future::Future;
use std::sync::Arc;

/// A part of the key space that its transactions see as the whole of it.
#[derive(Clone)]
pub struct Tenant {
    database: Database,
    name: Bytes,
    prefix: Arc<TenantPrefix>,
}

impl std::fmt::Debug for Tenant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenant")
            .field("name", &self.name)
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

impl Database {
    /// The tenant of this name. Tenants are made by setting
    /// `\xff\xff/management/tenant/map/<name>`, and removed by clearing it.
    ///
    /// # Errors
    /// `tenant_not_found`; `invalid_tenant_name`.
    pub fn open_tenant(&self, name: impl AsRef<[u8]>) -> Reply<Tenant> {
        let name = Bytes::copy_from_slice(name.as_ref());
        if name.first() == Some(&0xff) {
            return Reply::ready(Err(Error::invalid_tenant_name()));
        }
        let (promise, reply) = promise();
        let database = self.clone();
        self.look_up_tenant(&name, None).on_complete(move |found| {
            promise.send(found.map(|prefix| Tenant {
                database,
                name,
                prefix: TenantPrefix::known(prefix),
            }));
        });
        reply
    }

    /// A transaction on the keys of the tenant of this name. The tenant is looked up meanwhile: the
    /// transaction's reads and its commit wait for it, and fail with `tenant_not_found` if there is
    /// none.
    pub fn create_tenant_transaction(&self, name: impl AsRef<[u8]>) -> Transaction {
        let prefix = TenantPrefix::of(Bytes::copy_from_slice(name.as_ref()));
        let found = prefix.clone();
        self.look_up_tenant(name.as_ref(), None).on_complete(move |result| found.tell(&result));
        Transaction::new(self.clone(), Some(prefix))
    }

    /// The prefix of the tenant of this name, asked of another endpoint if there is one.
    pub(crate) fn look_up_tenant(
        &self,
        name: &[u8],
        endpoint: Option<Arc<dyn Endpoint>>,
    ) -> Reply<[u8; 8]> {
        let (tr, key) = (Transaction::bare(self), name_key(name));
        let (promise, reply) = promise();
        Task::detached(
            async move {
                loop {
                    tr.set_option(TransactionOption::ReadSystemKeys)?;
                    tr.set_option(TransactionOption::ReadLockAware)?;
                    tr.ask_of(endpoint.clone());
                    let stored = tr.snapshot().get(&key).await;
                    match stored {
                        Ok(stored) => {
                            return stored
                                .as_deref()
                                .and_then(prefix_of)
                                .ok_or_else(Error::tenant_not_found);
                        }
                        Err(error) => tr.on_error(error).await?,
                    }
                }
            },
            promise,
        );
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
        i64::from_be_bytes(*self.prefix.prefix())
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

    /// As [`Database::transact_mut`], on the tenant's keys.
    ///
    /// # Errors
    /// As there.
    pub async fn transact_mut<T, F>(&self, body: F) -> Result<T>
    where
        F: AsyncFnMut(Transaction) -> Result<T>,
    {
        transact_mut(self.create_transaction(), body).await
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
