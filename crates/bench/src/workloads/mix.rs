//! Transactions of reads and writes of random keys, in any proportion: what most of the seeds'
//! workloads are.

use crate::clients::{Client, Work, drive};
use crate::outcome::Measurement;
use crate::plan::Plan;
use crate::random::Random;
use crate::{Bench, Result};
use plinth_client::Transaction;
use std::array;

/// Operations in a transaction of the seeds.
pub const OPERATIONS: u64 = 10;

/// How many reads and writes a transaction has; together at most [`OPERATIONS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Reads of random keys, asked for together.
    pub reads: u64,
    /// Writes of random keys, after the reads.
    pub writes: u64,
}

impl Mix {
    /// So many reads and writes.
    pub const fn new(reads: u64, writes: u64) -> Self {
        assert!(reads + writes <= OPERATIONS, "the seeds' transactions have ten operations");
        Self { reads, writes }
    }

    /// All reads but the first so many.
    pub async fn read(
        self,
        transaction: &Transaction,
        client: &mut Client,
        done: u64,
    ) -> plinth_types::Result<()> {
        let ask = |random: &mut Random| transaction.get(client.dataset.random_key(random));
        let values: [_; OPERATIONS as usize] = array::from_fn(|number| {
            (number as u64 + done < self.reads).then(|| ask(&mut client.random))
        });
        for value in values.into_iter().flatten() {
            client.saw(&value.await?.unwrap_or_default());
        }
        Ok(())
    }

    /// Clients that do nothing else.
    pub fn drive(self, bench: &Bench, plan: &Plan) -> Result<Measurement> {
        drive(bench, plan, self)
    }
}

impl Work for Mix {
    /// Reads, writes, and commits if anything was written.
    async fn once(
        &self,
        transaction: &Transaction,
        client: &mut Client,
    ) -> plinth_types::Result<u64> {
        self.read(transaction, client, 0).await?;
        if self.writes > 0 {
            set_random(transaction, client, self.writes);
            transaction.commit().await?;
        }
        Ok(self.reads + self.writes)
    }
}

/// Gives so many random keys new values.
pub fn set_random(transaction: &Transaction, client: &mut Client, writes: u64) {
    for _ in 0..writes {
        let key = client.dataset.random_key(&mut client.random);
        transaction.set(key, client.dataset.random_value(&mut client.random));
    }
}
