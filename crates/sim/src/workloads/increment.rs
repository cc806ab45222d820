//! Increment: what was acknowledged is there after each crash, everything else whole or not at all.
//!
//! Each client counts in keys of its own: one transaction writes the next number, with ballast of
//! many sizes, at both ends of the key space. Whenever it looks, both ends must agree, and the
//! number lies between the last one acknowledged and the last one attempted.

use super::{Work, Workload, number};
use crate::client::{Client, Outcome};
use crate::draw::Draw;
use crate::stage::lock;
use plinth_client::Transaction;
use plinth_types::Result;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What a client knows of its own counter.
#[derive(Clone, Copy, Default)]
struct Known {
    acknowledged: u64,
    attempted: u64,
}

pub struct Increment {
    ballast: u64,
    known: Mutex<BTreeMap<usize, Known>>,
}

impl Increment {
    pub fn new(draw: &mut Draw<'_>) -> Self {
        let ballast = draw.pick("ballast", &[10, 500, 9_000, 60_000]);
        Self { ballast, known: Mutex::default() }
    }

    fn known(&self, id: usize) -> Known {
        lock(&self.known).get(&id).copied().unwrap_or_default()
    }

    fn remember(&self, id: usize, known: Known) {
        lock(&self.known).insert(id, known);
    }

    /// Reads both ends and compares them with what is known.
    async fn look(&self, client: &Client, id: usize) {
        let looked = client.insist(async |tr: Transaction| -> Result<_> {
            let (low, high) = (tr.get(low(id)), tr.get(high(id)));
            Ok((low.await?, high.await?))
        });
        let Some(((low, high), _)) = looked.await else { return };
        let known = self.known(id);
        let read = |value: &Option<plinth_types::Bytes>| match value {
            None => Some(0),
            Some(value) => value.get(..8).and_then(number),
        };
        let (Some(below), Some(above)) = (read(&low), read(&high)) else {
            return client.fail(format!("client {id}: its counter is {low:?} and {high:?}"));
        };
        if below != above {
            return client
                .fail(format!("client {id}: half of a transaction is there: {below} and {above}"));
        }
        if below < known.acknowledged {
            let what = format!("{} was acknowledged, and it is {below}", known.acknowledged);
            return client.fail(format!("client {id}: lost a commit: {what}"));
        }
        if below > known.attempted {
            let what = format!("{} was the last attempt, and it is {below}", known.attempted);
            return client.fail(format!("client {id}: made up a commit: {what}"));
        }
        // What is visible has been durable since.
        self.remember(id, Known { acknowledged: below, ..known });
    }

    async fn count(&self, client: &Client) {
        let known = self.known(client.id);
        let next = known.attempted + 1;
        self.remember(client.id, Known { attempted: next, ..known });
        let mut value = next.to_le_bytes().to_vec();
        value.resize(8 + client.below(self.ballast) as usize, next as u8);
        let (low, high) = (low(client.id), high(client.id));
        let outcome = client.attempt(async |tr| {
            tr.set(&low, &value);
            tr.set(&high, &value);
            Ok(())
        });
        if let Outcome::Committed(..) = outcome.await {
            self.remember(client.id, Known { acknowledged: next, attempted: next });
        }
    }
}

fn low(id: usize) -> String {
    format!("a/{id}")
}

fn high(id: usize) -> String {
    format!("z/{id}")
}

impl Workload for Increment {
    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            let mut life = 0;
            while !client.is_stopping() {
                let now = client.stage().life_number();
                if now != life || client.chance(0.1) {
                    self.look(&client, client.id).await;
                    life = now;
                }
                self.count(&client).await;
                client.pause(8_000).await;
            }
        })
    }

    fn check(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move {
            let ids: Vec<usize> = lock(&self.known).keys().copied().collect();
            for id in ids {
                self.look(&client, id).await;
            }
        })
    }
}
