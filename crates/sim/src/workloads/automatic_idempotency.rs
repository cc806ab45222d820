//! AutomaticIdempotency: a transaction with an idempotency id takes effect once, however often its
//! answers get lost.
//!
//! Each transaction appends one row under a number of its own, by a versionstamped key, through the
//! client library's retry loop: a second effect of it would be a second row. Whoever was told that
//! it committed finds one row, whoever was not finds one or none.

use super::{Work, Workload};
use crate::client::Client;
use crate::draw::Draw;
use crate::stage::lock;
use plinth_client::TransactionOption;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// How keys begin: then come the number and the stamp.
const PREFIX: &str = "once/";

pub struct AutomaticIdempotency {
    /// Of so many transactions one also reads what others write, so that it may have to be retried
    /// for that.
    contended: u64,
    next: AtomicU64,
    /// Numbers of transactions that are known to have committed.
    acknowledged: Mutex<Vec<u64>>,
}

impl AutomaticIdempotency {
    pub fn new(draw: &mut Draw<'_>) -> Self {
        let contended = draw.number("contended", 1..6);
        Self { contended, next: AtomicU64::new(0), acknowledged: Mutex::default() }
    }

    async fn append(&self, client: &Client) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let is_contended = number.is_multiple_of(self.contended);
        // Ten bytes of room for the stamp, and where they are.
        let head = [PREFIX.as_bytes(), &number.to_be_bytes(), b"/"].concat();
        let key = [&head[..], &[0; 10], &(head.len() as u32).to_le_bytes()].concat();
        let done = client.transact(async |tr| {
            tr.set_option(TransactionOption::AutomaticIdempotency)?;
            if is_contended {
                tr.get("once-last").await?;
                tr.set("once-last", number.to_be_bytes());
            }
            tr.set_versionstamped_key(&key, b"");
            Ok(())
        });
        if done.await.is_some() {
            lock(&self.acknowledged).push(number);
        }
    }
}

impl Workload for AutomaticIdempotency {
    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            while !client.is_stopping() {
                self.append(&client).await;
                client.pause(8_000).await;
            }
        })
    }

    fn check(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move {
            let Some(rows) = client.read_all(PREFIX).await else { return };
            let mut effects: BTreeMap<u64, u64> = BTreeMap::new();
            for (key, _) in &rows {
                let number = key[PREFIX.len()..]
                    .first_chunk::<8>()
                    .map(|number| u64::from_be_bytes(*number));
                *effects.entry(number.unwrap_or(u64::MAX)).or_default() += 1;
            }
            if let Some((number, count)) = effects.iter().find(|(_, count)| **count > 1) {
                return client.fail(format!("transaction {number} took effect {count} times"));
            }
            let acknowledged = lock(&self.acknowledged).clone();
            if let Some(number) = acknowledged.iter().find(|number| !effects.contains_key(number)) {
                client.fail(format!("transaction {number} was acknowledged, and is not there"));
            }
        })
    }
}
