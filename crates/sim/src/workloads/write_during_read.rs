//! WriteDuringRead: reads and writes interleaved in one transaction match a model at each moment.
//!
//! Each client has a part of the key space of its own, and a model of it. A transaction issues
//! random writes and reads; what a read must give is settled when it is issued, but most are
//! awaited only later, after further writes. Reads that are against the rules must fail in their
//! own way, and disturb nothing. When it is unknown what became of a transaction, the next life of
//! the node decides: all of it is there, or nothing.

use super::{Work, Workload};
use crate::client::Client;
use crate::draw::Draw;
use crate::history::{self, Asked, Rows, Told, Write};
use crate::shadow::Shadow;
use plinth_client::{
    Get, KeySelector, RangeOptions, RangeResult, Reply, StreamingMode, Transaction,
};
use plinth_types::{Bytes, Error, MutationType, Result, key_after};
use std::sync::Arc;

const KINDS: [MutationType; 8] = [
    MutationType::Set,
    MutationType::Set,
    MutationType::Add,
    MutationType::Max,
    MutationType::ByteMin,
    MutationType::AppendIfFits,
    MutationType::BitXor,
    MutationType::CompareAndClear,
];

pub struct WriteDuringRead {
    keys: u64,
    operations: u64,
    shadow: Shadow,
}

/// A read on its way.
enum Pending {
    Get(Get),
    Key(Reply<Bytes>),
    Range(Reply<RangeResult>),
}

impl Pending {
    async fn told(self) -> Result<Told> {
        Ok(match self {
            Self::Get(get) => Told::Value(get.await?),
            Self::Key(key) => Told::Key(key.await?),
            Self::Range(range) => {
                let result = range.await?;
                let rows = result.rows.key_values().map(|row| (row.key, row.value)).collect();
                Told::Rows { rows, more: result.more }
            }
        })
    }
}

impl WriteDuringRead {
    pub fn new(draw: &mut Draw<'_>) -> Self {
        let (keys, operations) = (draw.number("keys", 3..40), draw.number("operations", 5..60));
        Self { keys, operations, shadow: Shadow::new("w") }
    }

    fn key(&self, client: &Client) -> Bytes {
        format!("{}{:03}", self.shadow.prefix(client.id), client.below(self.keys)).into()
    }

    fn range(&self, client: &Client) -> (Bytes, Bytes) {
        let (one, two) = (self.key(client), self.key(client));
        match one.cmp(&two) {
            std::cmp::Ordering::Less => (one, two),
            std::cmp::Ordering::Equal => (one.clone(), key_after(&one)),
            std::cmp::Ordering::Greater => (two, one),
        }
    }

    fn random_write(&self, client: &Client) -> Write {
        if client.chance(0.2) {
            let (key, operand) = self.range(client);
            return Write { kind: MutationType::ClearRange, key, operand };
        }
        let length = if client.chance(0.02) { client.index(30_000) } else { client.index(9) };
        // Few different bytes, so that comparisons come out equal now and then.
        let operand = vec![client.below(3) as u8; length].into();
        Write { kind: KINDS[client.index(KINDS.len())], key: self.key(client), operand }
    }

    fn random_read(&self, client: &Client) -> Asked {
        match client.below(3) {
            0 => Asked::Get(self.key(client)),
            1 => {
                let offset = client.below(7) as i32 - 3;
                Asked::GetKey(KeySelector::new(self.key(client), client.chance(0.5), offset))
            }
            _ => {
                let (begin, end) = self.range(client);
                let limit = 1 + client.index(self.keys as usize);
                Asked::Range { begin, end, limit, reverse: client.chance(0.5) }
            }
        }
    }

    /// One transaction on `rows`, which is what the database holds and becomes what it is meant to
    /// hold.
    async fn body(&self, client: &Client, tr: &Transaction, rows: &mut Rows) -> Result<()> {
        let mut pending: Vec<(Asked, Told, Pending)> = Vec::new();
        for _ in 0..client.below(self.operations) {
            match client.below(20) {
                0..9 => {
                    let write = self.random_write(client);
                    perform(tr, &write);
                    history::apply_write(rows, &write);
                }
                9..17 => {
                    let asked = self.random_read(client);
                    let read = issue(tr, &asked, client.chance(0.3));
                    pending.push((asked.clone(), history::answer(rows, &asked), read));
                }
                17 => must_be_refused(client, tr).await?,
                _ if !pending.is_empty() => {
                    let (asked, expected, read) = pending.swap_remove(client.index(pending.len()));
                    self.compare(client, &asked, &expected, &read.told().await?)?;
                }
                _ => client.pause(200).await,
            }
        }
        for (asked, expected, read) in pending {
            self.compare(client, &asked, &expected, &read.told().await?)?;
        }
        Ok(())
    }

    fn compare(&self, client: &Client, asked: &Asked, expected: &Told, told: &Told) -> Result<()> {
        // A selector that leaves the client's own part ends where others write.
        let prefix = self.shadow.prefix(client.id);
        if let (Told::Key(expected), Told::Key(found)) = (expected, told)
            && !expected.starts_with(prefix.as_bytes())
            && !found.starts_with(prefix.as_bytes())
        {
            return Ok(());
        }
        if history::agrees(told, expected) {
            return Ok(());
        }
        let last = self.shadow.last_refusal(client.id);
        Err(wrong(
            client,
            format!("{asked:?} gave {told:?}, not {expected:?}; last not committed: {last}"),
        ))
    }

    async fn one(&self, client: &Client) {
        let done = self.shadow.attempt(client, async |tr, mut rows| {
            self.body(client, &tr, &mut rows).await?;
            Ok(rows)
        });
        done.await;
    }
}

fn perform(tr: &Transaction, Write { kind, key, operand }: &Write) {
    match kind {
        MutationType::Set => tr.set(key, operand),
        MutationType::ClearRange if operand[..] == key_after(key)[..] => tr.clear(key),
        MutationType::ClearRange => tr.clear_range(key, operand),
        kind => tr.atomic_op(key, operand, *kind),
    }
}

fn issue(tr: &Transaction, asked: &Asked, snapshot: bool) -> Pending {
    let at = tr.snapshot();
    match asked {
        Asked::Get(key) => Pending::Get(if snapshot { at.get(key) } else { tr.get(key) }),
        Asked::GetKey(selector) => {
            let selector = selector.clone();
            Pending::Key(if snapshot { at.get_key(selector) } else { tr.get_key(selector) })
        }
        Asked::Range { begin, end, limit, reverse } => {
            let range = RangeOptions::from(begin.clone()..end.clone());
            let range = range.limit(*limit).mode(StreamingMode::Exact).reverse(*reverse);
            Pending::Range(if snapshot { at.get_range(range) } else { tr.get_range(range) })
        }
    }
}

/// By which a body says that the model disagrees: an error that no fault gives.
fn wrong(client: &Client, what: String) -> Error {
    client.fail(format!("client {}: {what}", client.id));
    Error::unknown_error()
}

/// Reads that are against the rules fail in their own way, and alone.
async fn must_be_refused(client: &Client, tr: &Transaction) -> Result<()> {
    let key = tr.get(b"\xff/outside").await;
    if key != Err(Error::key_outside_legal_range()) {
        return Err(wrong(client, format!("reading a system key gave {key:?}")));
    }
    let inverted = tr.get_range(RangeOptions::from("z".."a")).await?;
    if !inverted.rows.is_empty() || inverted.more {
        return Err(wrong(client, format!("an inverted range gave {inverted:?}")));
    }
    Ok(())
}

impl Workload for WriteDuringRead {
    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            while !client.is_stopping() {
                self.one(&client).await;
                client.pause(20_000).await;
            }
        })
    }

    fn check(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move { self.shadow.check(&client).await })
    }
}
