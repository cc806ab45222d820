//! Changes: a fold of a stream over the rows as they were at its registration is the database at
//! every version.
//!
//! Most clients write rows in and around the ranges of a stream: values, clears across the ranges'
//! ends, atomic operations, versionstamps. One client consumes the stream, folds what it is given,
//! and compares the fold with the rows at the version it has come to. Now and then it acknowledges,
//! and begins again as another process would: from what was acknowledged, which must be a position
//! that it did acknowledge, and none before the last one that was certainly noted.

use super::{Work, Workload};
use crate::client::Client;
use crate::draw::Draw;
use crate::history::Rows;
use crate::stage::lock;
use plinth_client::{ChangeConsumer, Database, RangeOptions, StreamingMode, Transaction};
use plinth_types::{
    Bytes, Changes as Delivered, Error, KeyRange, MutationType, Result, Version, atomic,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const STREAM: &str = "changes";
/// Letters under which rows lie; those of the stream's ranges are some of them.
const LETTERS: u64 = 8;

/// What the consumer knows.
#[derive(Default)]
struct Ledger {
    id: u64,
    /// The rows as of the position.
    rows: Rows,
    position: Version,
    /// The rows at positions that may be the acknowledged one, from the last one that certainly
    /// was.
    acknowledged: BTreeMap<Version, Rows>,
}

pub struct Changes {
    keys: u64,
    bytes: usize,
    ledger: Mutex<Ledger>,
}

fn letter(at: u64) -> char {
    char::from(b'a' + at as u8)
}

fn ranges() -> Vec<KeyRange> {
    let range = |begin: &str, end: &str| {
        KeyRange::new(format!("{STREAM}/{begin}"), format!("{STREAM}/{end}"))
    };
    vec![range("b", "d"), range("f", "g")]
}

impl Changes {
    pub fn new(draw: &mut Draw<'_>) -> Self {
        let keys = draw.number("keys", 2..20);
        let bytes = draw.pick("bytes", &[1, 200, 5_000, 1_000_000]) as usize;
        Self { keys, bytes, ledger: Mutex::default() }
    }

    fn key(&self, client: &Client) -> Vec<u8> {
        let (letter, number) = (letter(client.below(LETTERS)), client.below(self.keys));
        format!("{STREAM}/{letter}{number:02}").into_bytes()
    }

    async fn write(&self, client: &Client) {
        let written = client.attempt(async |tr: Transaction| {
            for _ in 0..1 + client.below(4) {
                mutate(client, &tr, self.key(client), self.key(client));
            }
            Ok(())
        });
        written.await;
    }

    /// Reads the stream once; false if that came to nothing.
    async fn consume(&self, client: &Client) -> bool {
        let (id, position) = {
            let ledger = lock(&self.ledger);
            (ledger.id, ledger.position)
        };
        let read = client.in_life(|life| async move {
            let mut consumer = life.database.resume_changes(id, position).with_bytes(self.bytes);
            consumer.next().await
        });
        match read.await {
            Some(Ok(delivered)) => self.fold(client, &delivered),
            Some(Err(error)) => {
                self.explain(client, error);
                return false;
            }
            None => return false,
        }
        let (rows, position) = {
            let ledger = lock(&self.ledger);
            (ledger.rows.clone(), ledger.position)
        };
        if client.chance(0.5)
            && let Some(found) = client.look(async |tr| read_at(&tr, position).await).await
            && found != rows
        {
            client.fail(differ(position, &rows, &found));
        }
        true
    }

    /// Applies what was delivered.
    fn fold(&self, client: &Client, delivered: &Delivered) {
        let mut ledger = lock(&self.ledger);
        for batch in &delivered.batches {
            if batch.version <= ledger.position || batch.version > delivered.upto {
                client.fail(format!(
                    "version {} was delivered behind {}",
                    batch.version, ledger.position
                ));
            }
            ledger.position = batch.version;
            for mutation in &batch.mutations {
                let (key, operand) = (Bytes::copy_from_slice(mutation.param1), mutation.param2);
                let is_clear = mutation.kind == MutationType::ClearRange;
                let last = if is_clear { operand } else { &key };
                let is_inside = |range: &KeyRange| {
                    range.contains(&key)
                        && (range.contains(last) || (is_clear && *last == range.end[..]))
                };
                if !ranges().iter().any(is_inside) || mutation.kind.is_versionstamped() {
                    client.fail(format!(
                        "version {}: no change of the stream's: {mutation:?}",
                        batch.version
                    ));
                }
                if is_clear {
                    ledger.rows.retain(|row, _| !(key <= *row && row[..] < *operand));
                    continue;
                }
                match atomic::apply(
                    mutation.kind,
                    ledger.rows.get(&key).map(|value| &value[..]),
                    operand,
                ) {
                    Some(value) => {
                        let value = Bytes::copy_from_slice(&value);
                        ledger.rows.insert(key, value);
                    }
                    None => drop(ledger.rows.remove(&key)),
                }
            }
        }
        ledger.position = delivered.upto.max(ledger.position);
    }

    async fn acknowledge(&self, client: &Client) {
        let (id, position) = {
            let mut ledger = lock(&self.ledger);
            let (rows, position) = (ledger.rows.clone(), ledger.position);
            ledger.acknowledged.insert(position, rows);
            (ledger.id, position)
        };
        let done = client
            .in_life(|life| async move { life.database.acknowledge_changes(id, position).await });
        match done.await {
            Some(Ok(())) => {
                client.stage().probe("changes acknowledged");
                lock(&self.ledger).acknowledged.retain(|at, _| *at >= position);
            }
            Some(Err(error)) if !error.is_maybe_committed() => self.explain(client, error),
            _ => {}
        }
    }

    /// Goes on as another process would that knows the name alone.
    async fn begin_anew(&self, client: &Client) {
        let found =
            client.in_life(|life| async move { life.database.consume_changes(STREAM).await });
        match found.await {
            Some(Ok(consumer)) => {
                let mut ledger = lock(&self.ledger);
                let (id, position) = (consumer.id(), consumer.position());
                let Some(rows) = ledger.acknowledged.get(&position).cloned() else {
                    let known: Vec<_> = ledger.acknowledged.keys().copied().collect();
                    drop(ledger);
                    let what = format!(
                        "the consumer goes on from {position}, acknowledged was one of {known:?}"
                    );
                    return client.fail(what);
                };
                assert_eq!(id, ledger.id, "the name is registered once");
                (ledger.rows, ledger.position) = (rows, position);
                // That is what the acknowledgements whose fate was unknown have come to.
                ledger.acknowledged.retain(|at, _| *at >= position);
                client.stage().probe("changes begun anew");
            }
            Some(Err(error)) => self.explain(client, error),
            None => {}
        }
    }

    fn explain(&self, client: &Client, error: Error) {
        let is_late = error == Error::version_invalid()
            && error.detail().is_some_and(|detail| detail.contains("have been acknowledged"));
        // An acknowledgement whose fate was unknown may have been committed, and then the position
        // lies behind it. And a cluster of which nobody can be reached for long says so.
        if !is_late && error != Error::connection_failed() {
            client.explain(error);
        }
    }

    async fn register(&self, client: &Client, database: &Database) -> Result<()> {
        let stream = database.register_changes(STREAM, ranges(), None).await?;
        let consumer: ChangeConsumer = database.consume_changes(STREAM).await?;
        if (consumer.id(), consumer.position()) != (stream.id, stream.registered) {
            client.fail(format!("{consumer:?} of {stream:?}"));
        }
        let mut ledger = lock(&self.ledger);
        (ledger.id, ledger.position) = (stream.id, stream.registered);
        ledger.acknowledged.insert(stream.registered, Rows::new());
        Ok(())
    }
}

/// One mutation of these keys, of any kind.
pub(super) fn mutate(client: &Client, tr: &Transaction, key: Vec<u8>, other: Vec<u8>) {
    let value = vec![client.below(256) as u8; 1 + client.index(40)];
    match client.below(10) {
        0..4 => tr.set(&key, &value),
        4 => tr.clear(&key),
        5 => tr.clear_range(key.clone().min(other.clone()), key.max(other)),
        6 => tr.atomic_op(&key, &value, MutationType::Add),
        7 => tr.atomic_op(&key, &value, MutationType::ByteMin),
        8 => {
            let stamped = [&key[..], &[0; 10], &(key.len() as u32).to_le_bytes()].concat();
            tr.atomic_op(stamped, &value, MutationType::SetVersionstampedKey);
        }
        _ => tr.atomic_op(&key, &value, MutationType::AppendIfFits),
    }
}

fn differ(version: Version, folded: &Rows, found: &Rows) -> String {
    format!("at version {version} the stream's fold is {folded:?}, the rows are {found:?}")
}

/// The rows of the stream's ranges at a version.
async fn read_at(tr: &Transaction, version: Version) -> Result<Rows> {
    tr.set_read_version(version);
    let mut rows = Rows::new();
    for range in ranges() {
        let options = RangeOptions::from(range.begin..range.end).mode(StreamingMode::WantAll);
        rows.extend(tr.range(options).collect().await?.into_iter().map(|row| (row.key, row.value)));
    }
    Ok(rows)
}

impl Workload for Changes {
    fn set_up(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move {
            client
                .in_some_life(|life| {
                    let (this, client) = (&self, &client);
                    async move { this.register(client, &life.database).await }
                })
                .await;
        })
    }

    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            while !client.is_stopping() {
                if client.id > 0 {
                    self.write(&client).await;
                    client.pause(5_000).await;
                    continue;
                }
                if !self.consume(&client).await {
                    client.pause(50_000).await;
                }
                match client.below(10) {
                    0 | 1 => self.acknowledge(&client).await,
                    2 => self.begin_anew(&client).await,
                    _ => {}
                }
            }
        })
    }

    fn check(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move {
            self.write(&client).await;
            self.begin_anew(&client).await;
            let Some((version, _)) = client.insist(async |tr| tr.get_read_version().await).await
            else {
                return;
            };
            while lock(&self.ledger).position < version && !client.stage().is_over() {
                if !self.consume(&client).await {
                    client.pause(50_000).await;
                }
            }
            let (rows, position) = {
                let ledger = lock(&self.ledger);
                (ledger.rows.clone(), ledger.position)
            };
            let found = client.look(async |tr| read_at(&tr, position).await).await;
            if let Some(found) = found.filter(|found| *found != rows) {
                client.fail(differ(position, &rows, &found));
            }
        })
    }
}
