//! DiskDurability: every block that was acknowledged is there, byte for byte, whatever became of
//! the disk.
//!
//! Each client owns a set of blocks, of a few bytes up to the largest value, whose contents say
//! which block they are and which writing of it. It overwrites some, removes some, clears stretches
//! of them, so that log segments and checkpoints come and go; after each new life, and now and
//! then, it reads all of its blocks and holds them against what it knows.

use super::{Work, Workload};
use crate::client::Client;
use crate::draw::Draw;
use crate::shadow::Shadow;
use plinth_types::{Bytes, limits};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct DiskDurability {
    blocks: u64,
    largest: u64,
    written: AtomicU64,
    shadow: Shadow,
}

impl DiskDurability {
    pub fn new(draw: &mut Draw<'_>) -> Self {
        let blocks = draw.number("blocks", 5..60);
        let largest = draw.pick("largest", &[200, 3_000, 30_000, limits::VALUE_SIZE as u64]);
        Self { blocks, largest, written: AtomicU64::new(0), shadow: Shadow::new("block") }
    }

    fn key(&self, client: &Client, block: u64) -> Bytes {
        format!("{}{block:03}", self.shadow.prefix(client.id)).into_bytes().into()
    }

    /// Contents that no other writing has, and whose every part depends on where it is.
    fn contents(&self, client: &Client, block: u64) -> Bytes {
        let writing = self.written.fetch_add(1, Ordering::Relaxed);
        let len = client.below(self.largest.min(limits::VALUE_SIZE as u64)) as usize;
        let mut bytes = Vec::with_capacity(len + 32);
        while bytes.len() < len {
            let at = bytes.len() as u64;
            for part in [block, writing, at, writing.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at] {
                bytes.extend_from_slice(&part.to_le_bytes());
            }
        }
        bytes.truncate(len);
        bytes.into()
    }

    async fn change(&self, client: &Client) {
        let done = self.shadow.attempt(client, async |tr, mut rows| {
            let first = client.below(self.blocks);
            let stretch = 1 + client.below(5);
            if client.chance(0.1) {
                let (begin, end) = (self.key(client, first), self.key(client, first + stretch));
                tr.clear_range(&begin, &end);
                rows.retain(|key, _| *key < begin || *key >= end);
            }
            for block in first..first + stretch {
                let key = self.key(client, block % self.blocks);
                if client.chance(0.15) {
                    tr.clear(&key);
                    rows.remove(&key);
                } else {
                    let contents = self.contents(client, block % self.blocks);
                    tr.set(&key, &contents);
                    rows.insert(key, contents);
                }
            }
            Ok(rows)
        });
        done.await;
    }

    async fn scrub(&self, client: &Client) {
        let prefix = self.shadow.prefix(client.id);
        let Some(rows) = client.read_all(&prefix).await else { return };
        let expected = self.shadow.rows(client.id);
        let found: crate::history::Rows = rows.into_iter().collect();
        for key in found.keys().chain(expected.keys()) {
            if found.get(key) != expected.get(key) {
                let len = |value: Option<&Bytes>| value.map(Bytes::len);
                let (found, expected) = (len(found.get(key)), len(expected.get(key)));
                let what = format!("{found:?} bytes, not the {expected:?} that were acknowledged");
                return client.fail(format!("client {}: block {key:?} has {what}", client.id));
            }
        }
    }
}

impl Workload for DiskDurability {
    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            let mut life = 0;
            while !client.is_stopping() {
                let now = client.stage().life_number();
                if now != life || client.chance(0.05) {
                    self.scrub(&client).await;
                    life = now;
                }
                self.change(&client).await;
                client.pause(15_000 * (1 + self.largest / 10_000)).await;
            }
        })
    }

    fn check(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move { self.shadow.check(&client).await })
    }
}
