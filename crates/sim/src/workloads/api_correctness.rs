//! ApiCorrectness: every call of the API, one after the other, does what it would do to a sorted
//! list.
//!
//! Each client has a part of the key space of its own, and a model of it. A transaction writes by a
//! few calls and commits; others read what has been committed, by every kind of read. Keys share
//! prefixes and hold the least and the greatest bytes; values go up to the longest that may be.

use super::{Work, Workload};
use crate::client::Client;
use crate::draw::Draw;
use crate::fixed::wrong;
use crate::history::{Rows, Write, apply_write};
use crate::shadow::Shadow;
use plinth_client::{KeySelector, RangeOptions, StreamingMode, Transaction};
use plinth_types::{Bytes, MutationType as M, Result, limits, strinc};
use std::sync::Arc;

const BYTES: [u8; 5] = [0x00, 0x01, b'm', 0xfe, 0xff];

const OPERATIONS: [M; 10] = [
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
];

pub struct ApiCorrectness {
    longest_key: usize,
    longest_value: usize,
    shadow: Shadow,
}

impl ApiCorrectness {
    pub fn new(draw: &mut Draw<'_>) -> Self {
        let longest_key = draw.pick("longest_key", &[2, 3, 6, 2_000]) as usize;
        let longest_value =
            draw.pick("longest_value", &[20, 500, limits::VALUE_SIZE as u64]) as usize;
        Self { longest_key, longest_value, shadow: Shadow::new("api") }
    }

    fn key(&self, client: &Client) -> Bytes {
        let len = client.index(self.longest_key);
        let mut key = self.shadow.prefix(client.id).into_bytes();
        // Long keys differ at their end alone.
        key.resize(key.len() + len.saturating_sub(3), b'm');
        key.extend((0..len.min(3)).map(|_| BYTES[client.index(BYTES.len())]));
        key.into()
    }

    fn value(&self, client: &Client) -> Bytes {
        let longest =
            if client.chance(0.1) { self.longest_value } else { self.longest_value.min(100) };
        vec![client.below(3) as u8; client.index(longest + 1)].into()
    }

    /// Two keys in order.
    fn two(&self, client: &Client) -> (Bytes, Bytes) {
        let (one, two) = (self.key(client), self.key(client));
        if one <= two { (one, two) } else { (two, one) }
    }

    async fn change(&self, client: &Client) {
        let done = self.shadow.attempt(client, async |tr, mut rows| {
            let mut size = tr.approximate_size().await?;
            for _ in 0..1 + client.below(6) {
                self.one_change(client, &tr, &mut rows);
                let larger = tr.approximate_size().await?;
                if larger < size {
                    return Err(wrong(
                        client,
                        format!("a write shrank the transaction from {size} to {larger}"),
                    ));
                }
                size = larger;
            }
            Ok(rows)
        });
        done.await;
    }

    fn one_change(&self, client: &Client, tr: &Transaction, rows: &mut Rows) {
        match client.below(10) {
            0 => {
                let key = self.key(client);
                tr.clear(&key);
                rows.remove(&key);
            }
            1 => {
                let (begin, end) = self.two(client);
                tr.clear_range(&begin, &end);
                rows.retain(|key, _| *key < begin || *key >= end);
            }
            2 => {
                let prefix = self.key(client);
                tr.clear_prefix(&prefix);
                rows.retain(|key, _| !key.starts_with(&prefix));
            }
            3..6 => {
                let kind = OPERATIONS[client.index(OPERATIONS.len())];
                let operand = vec![client.below(3) as u8; client.index(12)].into();
                let write = Write { kind, key: self.key(client), operand };
                tr.atomic_op(&write.key, &write.operand, kind);
                apply_write(rows, &write);
            }
            _ => {
                let (key, value) = (self.key(client), self.value(client));
                tr.set(&key, &value);
                rows.insert(key, value);
            }
        }
    }

    /// Reads what is committed, in a transaction of its own.
    async fn read(&self, client: &Client, tr: &Transaction) -> Result<()> {
        let rows = self.shadow.rows(client.id);
        match client.below(4) {
            0 => {
                let keys: Vec<Bytes> = (0..1 + client.below(5)).map(|_| self.key(client)).collect();
                let reads: Vec<_> = keys.iter().map(|key| tr.get(key)).collect();
                for (key, read) in keys.iter().zip(reads) {
                    let found = read.await?;
                    if found.as_ref() != rows.get(key) {
                        return Err(wrong(
                            client,
                            format!("{key:?} is {found:?}, not {:?}", rows.get(key)),
                        ));
                    }
                }
                Ok(())
            }
            1 => self.first_and_last(client, tr, &rows).await,
            2 => self.estimates(client, tr).await,
            _ => self.range(client, tr, &rows).await,
        }
    }

    /// The first and the last key of the client's part, by selectors.
    async fn first_and_last(&self, client: &Client, tr: &Transaction, rows: &Rows) -> Result<()> {
        let prefix = Bytes::from(self.shadow.prefix(client.id).into_bytes());
        let end = strinc(&prefix).unwrap_or_default();
        let first = tr.get_key(KeySelector::first_greater_or_equal(prefix.clone()));
        let last = tr.get_key(KeySelector::last_less_than(end));
        for (found, expected) in
            [(first.await?, rows.keys().next()), (last.await?, rows.keys().next_back())]
        {
            let is_right =
                expected.map_or(!found.starts_with(&prefix), |expected| found == *expected);
            if !is_right {
                return Err(wrong(
                    client,
                    format!("a selector led to {found:?}, not {expected:?}"),
                ));
            }
        }
        Ok(())
    }

    async fn estimates(&self, client: &Client, tr: &Transaction) -> Result<()> {
        let (begin, end) = self.two(client);
        let size = tr.estimated_range_size(&begin, &end).await?;
        let points = tr.split_points(&begin, &end, 1 + client.below(2_000) as i64).await?;
        let ascend = points.windows(2).all(|pair| pair[0] < pair[1]);
        let ends = points.first() == Some(&begin) && (points.last() == Some(&end) || begin == end);
        if size < 0 || !ascend || !ends {
            return Err(wrong(
                client,
                format!("{begin:?} to {end:?}: {size} bytes, split at {points:?}"),
            ));
        }
        Ok(())
    }

    async fn range(&self, client: &Client, tr: &Transaction, rows: &Rows) -> Result<()> {
        let ((begin, end), limit, reverse) =
            (self.two(client), 1 + client.index(50), client.chance(0.5));
        let options = RangeOptions::from(begin.clone()..end.clone())
            .limit(limit)
            .reverse(reverse)
            .mode(StreamingMode::WantAll);
        let found = tr.range(options).collect().await?;
        let all = rows.range(begin.clone()..end.clone());
        let expected: Vec<_> =
            if reverse { all.rev().take(limit).collect() } else { all.take(limit).collect() };
        let is_same = found.len() == expected.len()
            && found
                .iter()
                .zip(&expected)
                .all(|(row, (key, value))| row.key == **key && row.value == **value);
        if !is_same {
            let keys: Vec<&Bytes> = found.iter().map(|row| &row.key).collect();
            let expected: Vec<_> = expected.iter().map(|(key, _)| key).collect();
            let what = format!("{begin:?} to {end:?}, {limit} rows, reverse {reverse}");
            return Err(wrong(
                client,
                format!("{what}: {keys:?}, not {expected:?}, or other values"),
            ));
        }
        Ok(())
    }
}

impl Workload for ApiCorrectness {
    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            while !client.is_stopping() {
                if client.chance(0.4) {
                    self.change(&client).await;
                } else {
                    client.look(async |tr| self.read(&client, &tr).await).await;
                }
                client.pause(8_000).await;
            }
        })
    }

    fn check(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move { self.shadow.check(&client).await })
    }
}
