//! AtomicOps: the operands that are logged, folded together, are the value that the operations
//! accumulated.
//!
//! Each transaction logs an operand under a key of its own and applies it to a shared value,
//! without reading: no transaction conflicts with another. All operations used are commutative, so
//! the order doesn't matter, and log and value must agree at every version, whatever became of
//! whom.

use super::{Work, Workload};
use crate::client::Client;
use crate::draw::Draw;
use plinth_client::{RangeOptions, Transaction};
use plinth_types::{Bytes, MutationType, Result, atomic};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The operations: those whose order doesn't matter.
const KINDS: [MutationType; 8] = [
    MutationType::Add,
    MutationType::BitAndV2,
    MutationType::BitOr,
    MutationType::BitXor,
    MutationType::Max,
    MutationType::MinV2,
    MutationType::ByteMin,
    MutationType::ByteMax,
];

pub struct AtomicOps {
    groups: usize,
    width: usize,
    next: AtomicU64,
}

impl AtomicOps {
    pub fn new(draw: &mut Draw<'_>) -> Self {
        let groups = draw.number("groups", 1..11) as usize;
        let width = draw.pick("width", &[1, 4, 8, 8]).clamp(1, 8) as usize;
        Self { groups, width, next: AtomicU64::new(0) }
    }

    fn kind(group: usize) -> MutationType {
        KINDS[group % KINDS.len()]
    }

    async fn apply(&self, client: &Client) {
        let group = client.index(self.groups);
        let log = format!("log/{group}/{:08}", self.next.fetch_add(1, Ordering::Relaxed));
        let operand = &client.next_u64().to_le_bytes()[..self.width];
        let applied = client.attempt(async |tr| {
            tr.set(&log, operand);
            tr.atomic_op(value_key(group), operand, Self::kind(group));
            Ok(())
        });
        applied.await;
    }

    /// Compares the log and the value of a group at one version.
    async fn compare(&self, client: &Client, group: usize) {
        let read = client.insist(async |tr: Transaction| -> Result<_> {
            let value = tr.snapshot().get(value_key(group)).await?;
            let log = tr
                .snapshot()
                .range(RangeOptions::prefix(format!("log/{group}/")))
                .collect()
                .await?;
            Ok((value, log))
        });
        let Some(((value, log), _)) = read.await else { return };
        let kind = Self::kind(group);
        let folded = log.iter().fold(None::<Bytes>, |folded, row| {
            let after = atomic::apply(kind, folded.as_deref(), &row.value);
            after.map(|after| Bytes::copy_from_slice(&after))
        });
        if folded != value {
            let count = log.len();
            client.fail(format!(
                "{kind:?} of {count} logged operands is {folded:?}, the value is {value:?}"
            ));
        }
    }
}

fn value_key(group: usize) -> String {
    format!("value/{group}")
}

impl Workload for AtomicOps {
    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            while !client.is_stopping() {
                if client.chance(0.05) {
                    self.compare(&client, client.index(self.groups)).await;
                } else {
                    self.apply(&client).await;
                }
                client.pause(6_000).await;
            }
        })
    }

    fn check(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move {
            for group in 0..self.groups {
                self.compare(&client, group).await;
            }
        })
    }
}
