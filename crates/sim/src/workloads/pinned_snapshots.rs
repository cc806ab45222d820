//! PinnedSnapshots: a pinned version is one that was, and stays as it was for as long as somebody
//! holds it.
//!
//! Half of the clients write rows of their own, each transaction with a number among them, and keep
//! what the rows were at each number; now and then they note a read version and the number seen at
//! it. The others pin a version, read everyone's rows, wait while tables are flushed, merged and
//! buried, and read again. What they find must be what the rows were at the number found, of every
//! writer; a number not older than what was seen at an earlier version and not newer than what was
//! seen at a later one; and the second time the same.

use super::{Work, Workload};
use crate::client::Client;
use crate::draw::Draw;
use crate::history::Rows;
use crate::shadow::Shadow;
use crate::stage::lock;
use plinth_client::{PinnedSnapshot, RangeOptions};
use plinth_types::{Bytes, Error, Result, Version};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const NAME: &str = "pinned";
/// The row with the number, behind all others.
const NUMBER: &str = "~";

/// What is known of one writer.
#[derive(Default)]
struct Ledger {
    last: u64,
    /// What its rows are once the transaction of this number has committed, if it has.
    rows: BTreeMap<u64, Rows>,
    /// The numbers that were seen, each at a read version.
    seen: Vec<(Version, u64)>,
}

pub struct PinnedSnapshots {
    keys: u64,
    /// How long a version is held at most, in milliseconds.
    held: u64,
    shadow: Shadow,
    ledgers: Mutex<BTreeMap<usize, Ledger>>,
}

impl PinnedSnapshots {
    pub fn new(draw: &mut Draw<'_>) -> Self {
        let keys = draw.number("keys", 3..60);
        let held = draw.pick("held", &[20, 300, 3_000]);
        Self { keys, held, shadow: Shadow::new(NAME), ledgers: Mutex::default() }
    }

    fn with_ledger<T>(&self, writer: usize, ask: impl FnOnce(&mut Ledger) -> T) -> T {
        ask(lock(&self.ledgers).entry(writer).or_default())
    }

    fn key(&self, client: &Client) -> Bytes {
        format!("{}{:03}", self.shadow.prefix(client.id), client.below(self.keys))
            .into_bytes()
            .into()
    }

    fn number_key(&self, writer: usize) -> Bytes {
        format!("{}{NUMBER}", self.shadow.prefix(writer)).into_bytes().into()
    }

    async fn write(&self, client: &Client) {
        let number = self.with_ledger(client.id, |ledger| {
            ledger.last += 1;
            ledger.last
        });
        let done = self.shadow.attempt(client, async |tr, mut rows| {
            if client.chance(0.1) {
                let (one, two) = (self.key(client), self.key(client));
                let (begin, end) = if one < two { (one, two) } else { (two, one) };
                tr.clear_range(&begin, &end);
                rows.retain(|key, _| *key < begin || *key >= end);
            }
            for _ in 0..1 + client.below(6) {
                let (key, value) =
                    (self.key(client), Bytes::from(vec![number as u8; client.index(300)]));
                tr.set(&key, &value);
                rows.insert(key, value);
            }
            let value = Bytes::copy_from_slice(&number.to_le_bytes());
            tr.set(self.number_key(client.id), &value);
            rows.insert(self.number_key(client.id), value);
            self.with_ledger(client.id, |ledger| ledger.rows.insert(number, rows.clone()));
            Ok(rows)
        });
        done.await;
        if client.chance(0.3) {
            self.note(client).await;
        }
    }

    /// Notes which number there is at a version.
    async fn note(&self, client: &Client) {
        let seen = client.look(async |tr| {
            let version = tr.get_read_version().await?;
            Ok((version, tr.get(self.number_key(client.id)).await?))
        });
        let Some((version, number)) = seen.await else { return };
        let number = number.as_deref().and_then(super::number).unwrap_or(0);
        self.with_ledger(client.id, |ledger| ledger.seen.push((version, number)));
    }

    /// Pins a version, reads all rows, and reads them once more after a while.
    async fn pin(&self, client: &Client) {
        let done = client.in_life(|life| async move {
            let snapshot = life.database.pin_snapshot().await?;
            let first = read(&snapshot).await?;
            self.judge(client, snapshot.version(), &first);
            let before = self.written();
            client.pause(1_000 * self.held).await;
            let second = read(&snapshot).await?;
            if first != second {
                let what =
                    format!("version {} was {first:?} and is {second:?}", snapshot.version());
                client.fail(format!("client {}: a pinned version has changed: {what}", client.id));
            }
            if self.written() > before {
                client.stage().probe("snapshot held through changes");
            }
            Ok::<(), Error>(())
        });
        if let Some(Err(error)) = done.await {
            client.explain(error);
        }
    }

    fn written(&self) -> u64 {
        lock(&self.ledgers).values().map(|ledger| ledger.last).sum()
    }

    /// Holds what all writers' rows are at a version against what is known of them.
    fn judge(&self, client: &Client, version: Version, found: &Rows) {
        for (writer, ledger) in lock(&self.ledgers).iter() {
            let prefix = self.shadow.prefix(*writer).into_bytes();
            let rows: Rows = found
                .iter()
                .filter(|(key, _)| key.starts_with(&prefix))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            let number = rows
                .get(&self.number_key(*writer))
                .and_then(|value| super::number(value))
                .unwrap_or(0);
            let none = Rows::new();
            let expected = if number == 0 { Some(&none) } else { ledger.rows.get(&number) };
            if expected != Some(&rows) {
                let what = format!("at number {number} they were {expected:?}, not {rows:?}");
                client.fail(format!("writer {writer}'s rows at version {version}, pinned: {what}"));
            }
            for (at, seen) in &ledger.seen {
                if (*at <= version && *seen > number) || (*at >= version && *seen < number) {
                    let what = format!("number {number}, where {seen} was seen at version {at}");
                    client
                        .fail(format!("writer {writer} has at version {version}, pinned, {what}"));
                }
            }
        }
    }
}

/// The rows of all writers.
async fn read(snapshot: &PinnedSnapshot) -> Result<Rows> {
    let rows = snapshot.range(RangeOptions::prefix(format!("{NAME}/"))).collect().await?;
    Ok(rows.into_iter().map(|row| (row.key, row.value)).collect())
}

impl Workload for PinnedSnapshots {
    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            while !client.is_stopping() {
                if client.id.is_multiple_of(2) {
                    self.write(&client).await;
                    client.pause(10_000).await;
                } else {
                    self.pin(&client).await;
                    client.pause(50_000).await;
                }
            }
        })
    }

    fn check(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move {
            self.shadow.check(&client).await;
            self.pin(&client).await;
        })
    }
}
