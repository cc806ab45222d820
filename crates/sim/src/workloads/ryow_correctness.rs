//! RyowCorrectness: a transaction reads the database as it would be with its own writes so far, by
//! every kind of read.
//!
//! The database holds fixed rows. A transaction writes at random (sets, clears of keys and ranges,
//! atomic operations of all kinds) and after each few writes reads, by key, by selector, by range
//! in every streaming mode from batch to batch and as a stream; each answer is compared with a
//! sorted list at once. It is never committed.

use super::{Work, Workload};
use crate::client::Client;
use crate::draw::Draw;
use crate::fixed::{Fixed, between, wrong};
use crate::history::{Rows, Write, apply_write, resolve_key};
use plinth_client::{KeySelector, RangeOptions, StreamingMode, Transaction};
use plinth_types::{Bytes, MutationType as M, Result};
use std::sync::Arc;

const KINDS: [M; 14] = [
    M::Set,
    M::Set,
    M::Set,
    M::Add,
    M::BitAndV2,
    M::BitOr,
    M::BitXor,
    M::AppendIfFits,
    M::Max,
    M::MinV2,
    M::ByteMin,
    M::ByteMax,
    M::CompareAndClear,
    M::ClearRange,
];

const MODES: [StreamingMode; 7] = [
    StreamingMode::WantAll,
    StreamingMode::Iterator,
    StreamingMode::Exact,
    StreamingMode::Small,
    StreamingMode::Medium,
    StreamingMode::Large,
    StreamingMode::Serial,
];

pub struct RyowCorrectness {
    fixed: Fixed,
    operations: u64,
}

/// A range read: between which selectors, and how.
#[derive(Debug)]
struct Wanted {
    begin: KeySelector,
    end: KeySelector,
    limit: usize,
    reverse: bool,
    mode: StreamingMode,
    snapshot: bool,
}

impl RyowCorrectness {
    pub fn new(draw: &mut Draw<'_>) -> Self {
        let rows = draw.number("rows", 0..80);
        Self { fixed: Fixed::new(rows), operations: draw.number("operations", 2..50) }
    }

    fn selector(&self, client: &Client) -> KeySelector {
        let offset = client.below(9) as i32 - 4;
        KeySelector::new(self.fixed.key(client), client.chance(0.5), offset)
    }

    fn write(&self, client: &Client) -> Write {
        let (kind, key) = (KINDS[client.index(KINDS.len())], self.fixed.key(client));
        let operand = match kind {
            M::ClearRange => self.fixed.key(client),
            M::Set => self.fixed.value(client, 300),
            _ => self.fixed.value(client, 12),
        };
        match kind {
            M::ClearRange if operand < key => Write { kind, key: operand, operand: key },
            _ => Write { kind, key, operand },
        }
    }

    async fn body(&self, client: &Client, tr: &Transaction) -> Result<()> {
        let mut rows = self.fixed.rows();
        for _ in 0..client.below(self.operations) {
            if client.chance(0.5) {
                let write = self.write(client);
                match write.kind {
                    M::Set => tr.set(&write.key, &write.operand),
                    M::ClearRange => tr.clear_range(&write.key, &write.operand),
                    kind => tr.atomic_op(&write.key, &write.operand, kind),
                }
                apply_write(&mut rows, &write);
            } else {
                self.read(client, tr, &rows).await?;
            }
        }
        self.read(client, tr, &rows).await
    }

    async fn read(&self, client: &Client, tr: &Transaction, rows: &Rows) -> Result<()> {
        let snapshot = client.chance(0.3);
        match client.below(4) {
            0 => {
                let key = self.fixed.key(client);
                let found = if snapshot { tr.snapshot().get(&key) } else { tr.get(&key) }.await?;
                if found.as_ref() != rows.get(&key) {
                    return Err(wrong(
                        client,
                        format!("{key:?} is {found:?}, not {:?}", rows.get(&key)),
                    ));
                }
            }
            1 => {
                let wanted = self.selector(client);
                let key = wanted.clone();
                let found =
                    if snapshot { tr.snapshot().get_key(key) } else { tr.get_key(key) }.await?;
                let expected = resolve_key(rows, &wanted);
                if found != expected {
                    return Err(wrong(
                        client,
                        format!("{wanted:?} led to {found:?}, not {expected:?}"),
                    ));
                }
            }
            _ => {
                let wanted = Wanted {
                    begin: self.selector(client),
                    end: self.selector(client),
                    limit: if client.chance(0.3) { 0 } else { 1 + client.index(40) },
                    reverse: client.chance(0.5),
                    mode: MODES[client.index(MODES.len())],
                    snapshot,
                };
                self.range(client, tr, rows, &wanted).await?;
            }
        }
        Ok(())
    }

    async fn range(
        &self,
        client: &Client,
        tr: &Transaction,
        rows: &Rows,
        wanted: &Wanted,
    ) -> Result<()> {
        // The mode `Exact` wants a limit.
        let limit =
            if wanted.mode == StreamingMode::Exact { wanted.limit.max(1) } else { wanted.limit };
        let mut options = RangeOptions::new(wanted.begin.clone(), wanted.end.clone())
            .reverse(wanted.reverse)
            .mode(wanted.mode);
        options.limit = (limit > 0).then_some(limit);
        let most = if limit == 0 { usize::MAX } else { limit };
        let expected = between(rows, &wanted.begin, &wanted.end, most, wanted.reverse);
        let found = if client.chance(0.3) && wanted.mode != StreamingMode::Exact {
            let snapshot = tr.snapshot();
            let rows = if wanted.snapshot { snapshot.range(options) } else { tr.range(options) };
            rows.collect().await?.into_iter().map(|row| (row.key, row.value)).collect()
        } else {
            in_batches(client, tr, options, wanted, most).await?
        };
        if found != expected {
            return Err(wrong(client, format!("{wanted:?} gave {found:?}, not {expected:?}")));
        }
        Ok(())
    }
}

/// Reads a range batch by batch, as bindings do.
async fn in_batches(
    client: &Client,
    tr: &Transaction,
    mut options: RangeOptions,
    wanted: &Wanted,
    most: usize,
) -> Result<Vec<(Bytes, Bytes)>> {
    let mut found = Vec::new();
    loop {
        let snapshot = tr.snapshot();
        let batch = if wanted.snapshot {
            snapshot.get_range(options.clone())
        } else {
            tr.get_range(options.clone())
        };
        let batch = batch.await?;
        let rows: Vec<(Bytes, Bytes)> =
            batch.rows.key_values().map(|row| (row.key, row.value)).collect();
        found.extend(rows.iter().cloned());
        match rows.last() {
            Some((last, _)) if batch.more && found.len() < most => {
                options = options.after(last, rows.len())
            }
            None if batch.more && found.is_empty() => {
                return Err(wrong(
                    client,
                    format!("{wanted:?} gave no row, and says that there are more"),
                ));
            }
            _ => return Ok(found),
        }
    }
}

impl Workload for RyowCorrectness {
    fn set_up(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move { self.fixed.fill(&client).await })
    }

    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            while !client.is_stopping() {
                client.look(async |tr| self.body(&client, &tr).await).await;
                client.pause(15_000).await;
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
