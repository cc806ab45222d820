//! SelectorCorrectness: key selectors lead where a sorted list says, with every offset, both ways,
//! and as bounds.
//!
//! The database holds a fixed set of keys and nothing else. Clients resolve random selectors, far
//! beyond both ends too, and read ranges between two of them, as snapshots or not, with
//! read-your-writes or without; some have own writes, which count as if they were there.

use super::{Work, Workload};
use crate::client::Client;
use crate::draw::Draw;
use crate::fixed::{Fixed, wrong};
use plinth_client::{KeySelector, RangeOptions, StreamingMode, Transaction, TransactionOption};
use plinth_types::{Bytes, Result};
use std::sync::Arc;

pub struct SelectorCorrectness {
    fixed: Fixed,
    farthest: i32,
}

impl SelectorCorrectness {
    pub fn new(draw: &mut Draw<'_>) -> Self {
        let rows = draw.number("rows", 0..60);
        Self { fixed: Fixed::new(rows), farthest: draw.number("farthest", 1..40) as i32 }
    }

    fn selector(&self, client: &Client) -> KeySelector {
        let offset = client.below(2 * self.farthest as u64 + 1) as i32 - self.farthest;
        KeySelector::new(self.fixed.key(client), client.chance(0.5), offset)
    }

    async fn look(&self, client: &Client, tr: &Transaction) -> Result<()> {
        let mut rows = self.fixed.rows();
        let sees_writes = !client.chance(0.3);
        if !sees_writes {
            tr.set_option(TransactionOption::ReadYourWritesDisable)?;
        }
        for _ in 0..client.below(6) {
            let key = self.fixed.key(client);
            if client.chance(0.5) {
                tr.set(&key, b"own");
                if sees_writes {
                    rows.insert(key, Bytes::from_static(b"own"));
                }
            } else {
                tr.clear(&key);
                if sees_writes {
                    rows.remove(&key);
                }
            }
        }
        for _ in 0..1 + client.below(8) {
            let (selector, snapshot) = (self.selector(client), client.chance(0.3));
            let reply = if snapshot {
                tr.snapshot().get_key(selector.clone())
            } else {
                tr.get_key(selector.clone())
            };
            let (found, expected) = (reply.await?, crate::history::resolve_key(&rows, &selector));
            if found != expected {
                return Err(wrong(
                    client,
                    format!("{selector:?} led to {found:?}, not {expected:?}"),
                ));
            }
            self.between(client, tr, &rows).await?;
        }
        Ok(())
    }

    /// Reads the rows between two selectors.
    async fn between(
        &self,
        client: &Client,
        tr: &Transaction,
        rows: &crate::history::Rows,
    ) -> Result<()> {
        let (begin, end) = (self.selector(client), self.selector(client));
        let reverse = client.chance(0.5);
        let limit = 1 + client.index(70);
        let options = RangeOptions::new(begin.clone(), end.clone())
            .limit(limit)
            .reverse(reverse)
            .mode(StreamingMode::Exact);
        let found = tr.get_range(options).await?;
        let found: Vec<(Bytes, Bytes)> =
            found.rows.key_values().map(|row| (row.key, row.value)).collect();
        let expected = crate::fixed::between(rows, &begin, &end, limit, reverse);
        if found != expected {
            let what = format!("{begin:?} to {end:?}, {limit} rows, reverse {reverse}");
            return Err(wrong(client, format!("{what}: {found:?}, not {expected:?}")));
        }
        Ok(())
    }
}

impl Workload for SelectorCorrectness {
    fn set_up(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move { self.fixed.fill(&client).await })
    }

    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            while !client.is_stopping() {
                client.look(async |tr| self.look(&client, &tr).await).await;
                client.pause(10_000).await;
            }
        })
    }

    fn owns_database(&self) -> bool {
        true
    }

    fn check(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move { self.fixed.check(&client).await })
    }
}
