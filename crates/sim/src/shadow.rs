//! What each client knows of the rows that it alone writes: a model that must equal the database,
//! row for row.
//!
//! When nobody can say what became of a transaction, all of it is there or nothing; which of the
//! two is looked up once the database takes commits again: then the transaction in question has
//! been decided.

use crate::client::{Client, Outcome};
use crate::history::Rows;
use crate::stage::lock;
use plinth_client::Transaction;
use plinth_types::Result;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Models of all clients of a workload, each with the keys under a prefix of its own.
pub(crate) struct Shadow {
    name: &'static str,
    models: Mutex<BTreeMap<usize, Rows>>,
    /// How each client's last transaction that came to nothing ended, for people.
    last: Mutex<BTreeMap<usize, String>>,
}

impl Shadow {
    /// `name` begins the keys of the workload, and of no other.
    pub fn new(name: &'static str) -> Self {
        Self { name, models: Mutex::default(), last: Mutex::default() }
    }

    /// With what the keys of a client begin.
    pub fn prefix(&self, id: usize) -> String {
        format!("{}/{id}/", self.name)
    }

    /// What the database holds of a client.
    pub fn rows(&self, id: usize) -> Rows {
        lock(&self.models).get(&id).cloned().unwrap_or_default()
    }

    /// How the client's last transaction that came to nothing ended.
    pub fn last_refusal(&self, id: usize) -> String {
        lock(&self.last).get(&id).cloned().unwrap_or_default()
    }

    fn remember(&self, id: usize, rows: Rows) {
        lock(&self.models).insert(id, rows);
    }

    /// Runs one transaction. `body` is given what the database holds, and changes it as it changes
    /// the database.
    pub async fn attempt<Fut>(
        &self,
        client: &Client,
        body: impl FnOnce(Transaction, Rows) -> Fut + Send,
    ) where
        Fut: Future<Output = Result<Rows>> + Send,
    {
        let before = self.rows(client.id);
        let after = Mutex::new(before.clone());
        let outcome = client.attempt(async |tr| {
            let rows = body(tr, before.clone()).await?;
            *lock(&after) = rows;
            Ok(())
        });
        let outcome = outcome.await;
        let after = after.into_inner().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Outcome::Committed(..) => self.remember(client.id, after),
            Outcome::Refused(error) if before != after => {
                lock(&self.last).insert(client.id, format!("refused: {error}"));
            }
            Outcome::Refused(_) => {}
            Outcome::Unknown => self.settle(client, before, after).await,
        }
    }

    /// Finds out what became of a transaction.
    async fn settle(&self, client: &Client, before: Rows, after: Rows) {
        if before == after {
            return;
        }
        // The pipeline is first in, first out, and takes nothing any more when it has lost track
        // itself.
        let settled = client.insist(async |tr| {
            tr.set(format!("settled/{}/{}", self.name, client.id), b"");
            Ok(())
        });
        if settled.await.is_none() {
            return;
        }
        let Some(rows) = client.read_all(&self.prefix(client.id)).await else { return };
        let rows: Rows = rows.into_iter().collect();
        if rows != before && rows != after {
            let what = format!("{rows:?} is neither {before:?} nor {after:?}");
            return client
                .fail(format!("client {}: a part of a transaction is there: {what}", client.id));
        }
        self.remember(client.id, rows);
    }

    /// The database holds what the models say.
    pub async fn check(&self, client: &Client) {
        let models = lock(&self.models).clone();
        for (id, model) in models {
            let Some(rows) = client.read_all(&self.prefix(id)).await else { return };
            let rows: Rows = rows.into_iter().collect();
            if rows != model {
                let differs = |key: &&plinth_types::Bytes| rows.get(*key) != model.get(*key);
                let key =
                    rows.keys().chain(model.keys()).find(differs).cloned().unwrap_or_default();
                let (found, expected) = (rows.get(&key), model.get(&key));
                return client.fail(format!("client {id}: {key:?} is {found:?}, not {expected:?}"));
            }
        }
    }
}
