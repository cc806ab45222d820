//! Histories: what random concurrent transactions read, wrote and were told, and in which order
//! they took effect.
//!
//! Each transaction leaves a marker with its versionstamp. When all has come to rest, the markers
//! say which took effect and in which order, whatever their clients were told; and because they are
//! part of the database too, a model that applies the transactions in that order is equal to the
//! whole database, row for row.
//!
//! Events are numbered as they happen, so that the order in real time is known exactly.

use crate::client::{Client, Outcome};
use crate::stage::lock;
use plinth_client::{KeySelector, RangeOptions, StreamingMode, Transaction};
use plinth_types::{Bytes, Error, MutationType, Result, Version, Versionstamp, atomic, key_after};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// What a transaction asked.
#[derive(Clone, Debug)]
pub enum Asked {
    Get(Bytes),
    GetKey(KeySelector),
    /// The first (or last) `limit` rows of a range.
    Range {
        begin: Bytes,
        end: Bytes,
        limit: usize,
        reverse: bool,
    },
}

/// What it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Value(Option<Bytes>),
    Key(Bytes),
    Rows { rows: Vec<(Bytes, Bytes)>, more: bool },
}

/// What it changes: `ClearRange` has its end as `operand`.
#[derive(Clone, Debug)]
pub struct Write {
    pub kind: MutationType,
    pub key: Bytes,
    pub operand: Bytes,
}

/// How it ended, as far as its client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Committed(Version),
    Refused(Error),
    Unknown,
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct Record {
    pub id: u64,
    pub life: u64,
    /// Numbers of events: it was about to begin; its commit was about to be sent; its fate was
    /// known.
    pub began: u64,
    pub submitted: Option<u64>,
    pub ended: u64,
    pub read_version: Option<Version>,
    /// The number of the event that it had its read version.
    pub read_at: u64,
    pub reads: Vec<(Asked, Told)>,
    pub writes: Vec<Write>,
    pub fate: Fate,
}

/// Rows of a model, or of the database.
pub type Rows = BTreeMap<Bytes, Bytes>;

#[derive(Default)]
struct Log {
    clock: u64,
    records: Vec<Record>,
}

/// All transactions of a run.
#[derive(Default)]
pub struct History {
    log: Mutex<Log>,
}

/// Transactions in the order in which they took effect, and those that did not.
pub struct Resolved {
    pub records: Vec<Record>,
    /// Stamps of those that took effect, with their index in `records`.
    pub order: BTreeMap<[u8; 10], usize>,
    /// For each record its stamp, if it took effect.
    pub stamps: Vec<Option<Versionstamp>>,
    /// The whole database as it is.
    pub rows: Rows,
}

const MARKERS: &str = "m/";

impl History {
    fn tick(&self) -> u64 {
        let mut log = lock(&self.log);
        log.clock += 1;
        log.clock
    }

    /// Runs one random transaction over `keys` keys and notes all about it.
    pub async fn one(&self, client: &Client, keys: u64) {
        let began = self.tick();
        let note = Mutex::new(Record {
            id: began,
            life: client.stage().life_number(),
            began,
            submitted: None,
            ended: 0,
            read_version: None,
            read_at: 0,
            reads: Vec::new(),
            writes: Vec::new(),
            fate: Fate::Unknown,
        });
        let outcome = client.attempt(async |tr| self.body(client, &tr, keys, &note).await).await;
        let mut record = note.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        record.ended = self.tick();
        record.fate = match outcome {
            Outcome::Committed((), version) => Fate::Committed(version),
            Outcome::Refused(error) => Fate::Refused(error),
            Outcome::Unknown => Fate::Unknown,
        };
        lock(&self.log).records.push(record);
    }

    async fn body(
        &self,
        client: &Client,
        tr: &Transaction,
        keys: u64,
        note: &Mutex<Record>,
    ) -> Result<()> {
        let noted = || lock(note);
        noted().life = client.stage().life_number();
        // A first read may travel with the request for a version, which is known behind it then.
        let (asks_first, reads) = (client.chance(0.5), client.below(4));
        if asks_first || reads == 0 {
            noted().read_version = Some(tr.get_read_version().await?);
            noted().read_at = self.tick();
        }
        for _ in 0..reads {
            let asked = random_read(client, keys);
            let told = ask(tr, &asked).await?;
            noted().reads.push((asked, told));
            if noted().read_version.is_none() {
                noted().read_at = self.tick();
                noted().read_version = Some(tr.get_read_version().await?);
            }
            if client.chance(0.5) {
                client.pause(3_000).await;
            }
        }
        for _ in 0..client.below(4) {
            let write = random_write(client, keys);
            perform(tr, &write);
            noted().writes.push(write);
        }
        // Versionstamped values: ten bytes of room, then where they are.
        tr.set_versionstamped_value(marker(noted().id), [0; 14]);
        client.pause(2_000).await;
        noted().submitted = Some(self.tick());
        Ok(())
    }

    /// Reads the markers and everything else, and tells the transactions that took effect from the
    /// others. What contradicts the clients' knowledge is a failure.
    pub async fn resolve(&self, client: &Client) -> Option<Resolved> {
        let records = lock(&self.log).records.clone();
        let read = client.insist(async |tr| -> Result<Rows> {
            let rows = tr.range("".."\u{7f}").collect().await?;
            Ok(rows.into_iter().map(|row| (row.key, row.value)).collect())
        });
        let (rows, _) = read.await?;
        let mut order = BTreeMap::new();
        let mut stamps = Vec::with_capacity(records.len());
        for (at, record) in records.iter().enumerate() {
            let stamp =
                rows.get(&marker(record.id)[..]).map(|value| <[u8; 10]>::try_from(&value[..]));
            let stamp = match stamp {
                Some(Ok(stamp)) => Some(stamp),
                Some(Err(_)) => {
                    client.fail(format!("the marker of {} is no versionstamp", record.id));
                    return None;
                }
                None => None,
            };
            if let Some(stamp) = stamp {
                order.insert(stamp, at);
            }
            let stamp = stamp.map(Versionstamp::from_bytes);
            if let Some(what) = contradiction(record, stamp) {
                client.fail(format!("{what}: {record:?}"));
                return None;
            }
            stamps.push(stamp);
        }
        if order.len() != stamps.iter().flatten().count() {
            client.fail("two transactions have the same versionstamp");
            return None;
        }
        Some(Resolved { records, order, stamps, rows })
    }
}

fn contradiction(record: &Record, stamp: Option<Versionstamp>) -> Option<String> {
    match (&record.fate, stamp) {
        (Fate::Committed(_), None) => Some("an acknowledged transaction is gone".to_string()),
        (Fate::Committed(version), Some(stamp)) if stamp.version() != *version => {
            Some(format!("its stamp is of version {}", stamp.version()))
        }
        (Fate::Refused(error), Some(_)) => Some(format!("refused with {error}, it took effect")),
        (_, Some(stamp)) if record.read_version.is_some_and(|read| stamp.version() <= read) => {
            Some(format!("it took effect at {}, not after its read version", stamp.version()))
        }
        _ => None,
    }
}

fn marker(id: u64) -> Vec<u8> {
    format!("{MARKERS}{id:08}").into_bytes()
}

fn random_key(client: &Client, keys: u64) -> Bytes {
    format!("k/{:03}", client.below(keys)).into_bytes().into()
}

fn random_range(client: &Client, keys: u64) -> (Bytes, Bytes) {
    let (one, two) = (random_key(client, keys), random_key(client, keys));
    let (begin, end) = if one <= two { (one, two) } else { (two, one) };
    if begin == end { (begin.clone(), key_after(&begin)) } else { (begin, end) }
}

fn random_read(client: &Client, keys: u64) -> Asked {
    match client.below(4) {
        0 | 1 => Asked::Get(random_key(client, keys)),
        2 => {
            let offset = client.below(5) as i32 - 2;
            Asked::GetKey(KeySelector::new(random_key(client, keys), client.chance(0.5), offset))
        }
        _ => {
            let (begin, end) = random_range(client, keys);
            let limit = 1 + client.index(keys as usize);
            Asked::Range { begin, end, limit, reverse: client.chance(0.5) }
        }
    }
}

fn random_write(client: &Client, keys: u64) -> Write {
    let operand =
        || Bytes::copy_from_slice(&client.next_u64().to_le_bytes()[..1 + client.index(8)]);
    let kinds = [MutationType::Set, MutationType::Add, MutationType::ByteMax, MutationType::BitXor];
    if client.chance(0.25) {
        let (key, end) = random_range(client, keys);
        return Write { kind: MutationType::ClearRange, key, operand: end };
    }
    Write {
        kind: kinds[client.index(kinds.len())],
        key: random_key(client, keys),
        operand: operand(),
    }
}

async fn ask(tr: &Transaction, asked: &Asked) -> Result<Told> {
    Ok(match asked {
        Asked::Get(key) => Told::Value(tr.get(key).await?),
        Asked::GetKey(selector) => Told::Key(tr.get_key(selector.clone()).await?),
        Asked::Range { begin, end, limit, reverse } => {
            let range = RangeOptions::from(begin.clone()..end.clone());
            let range = range.limit(*limit).mode(StreamingMode::Exact).reverse(*reverse);
            let result = tr.get_range(range).await?;
            let rows = result.rows.key_values().map(|row| (row.key, row.value)).collect();
            Told::Rows { rows, more: result.more }
        }
    })
}

fn perform(tr: &Transaction, write: &Write) {
    match write.kind {
        MutationType::Set => tr.set(&write.key, &write.operand),
        MutationType::ClearRange => tr.clear_range(&write.key, &write.operand),
        kind => tr.atomic_op(&write.key, &write.operand, kind),
    }
}

/// What a read gives in a model. Of rows, `more` is not part of it.
pub fn answer(rows: &Rows, asked: &Asked) -> Told {
    match asked {
        Asked::Get(key) => Told::Value(rows.get(key).cloned()),
        Asked::GetKey(selector) => Told::Key(resolve_key(rows, selector)),
        Asked::Range { begin, end, limit, reverse } => {
            let all = rows.range(begin.clone()..end.clone());
            let pair = |(key, value): (&Bytes, &Bytes)| (key.clone(), value.clone());
            let rows: Vec<_> = if *reverse {
                all.rev().take(*limit).map(pair).collect()
            } else {
                all.take(*limit).map(pair).collect()
            };
            Told::Rows { rows, more: false }
        }
    }
}

/// The key that a selector names among these rows: the one before the first is empty, the one after
/// the last `\xff`.
pub fn resolve_key(rows: &Rows, selector: &KeySelector) -> Bytes {
    let first = if selector.or_equal { key_after(&selector.key) } else { selector.key.clone() };
    if selector.offset > 0 {
        let nth = rows.range(first..).nth(selector.offset as usize - 1);
        return nth.map_or(Bytes::from_static(b"\xff"), |(key, _)| key.clone());
    }
    let nth = rows.range(..first).rev().nth(selector.offset.unsigned_abs() as usize);
    nth.map_or(Bytes::new(), |(key, _)| key.clone())
}

/// Whether a read was told what the model says.
pub fn agrees(told: &Told, expected: &Told) -> bool {
    match (told, expected) {
        (Told::Rows { rows: told, .. }, Told::Rows { rows: expected, .. }) => told == expected,
        _ => told == expected,
    }
}

/// Applies a transaction to a model.
pub fn apply(rows: &mut Rows, record: &Record, stamp: Versionstamp) {
    for write in &record.writes {
        apply_write(rows, write);
    }
    rows.insert(marker(record.id).into(), Bytes::copy_from_slice(stamp.as_bytes()));
}

/// Applies one change to a model.
pub fn apply_write(rows: &mut Rows, Write { kind, key, operand }: &Write) {
    match kind {
        MutationType::Set => drop(rows.insert(key.clone(), operand.clone())),
        MutationType::ClearRange if key < operand => {
            let gone: Vec<Bytes> =
                rows.range(key.clone()..operand.clone()).map(|(key, _)| key.clone()).collect();
            gone.iter().for_each(|key| drop(rows.remove(key)));
        }
        MutationType::ClearRange => {}
        kind => {
            let after = atomic::apply(*kind, rows.get(key).map(|value| &value[..]), operand);
            match after.map(|value| Bytes::copy_from_slice(&value)) {
                Some(value) => drop(rows.insert(key.clone(), value)),
                None => drop(rows.remove(key)),
            }
        }
    }
}

/// What a read that was told this conflicts with, as `begin <= key < end`; FoundationDB's rules for
/// reads of a transaction that has written nothing yet.
pub fn conflict_range(asked: &Asked, told: &Told) -> (Bytes, Bytes) {
    match (asked, told) {
        (Asked::Get(key), _) => (key.clone(), key_after(key)),
        (Asked::GetKey(selector), Told::Key(found)) => {
            let key =
                if selector.or_equal { key_after(&selector.key) } else { selector.key.clone() };
            if selector.offset <= 0 { (found.clone(), key) } else { (key, key_after(found)) }
        }
        (Asked::Range { begin, end, reverse, .. }, Told::Rows { rows, more }) => {
            match (rows.last(), more, reverse) {
                (Some((last, _)), true, false) => (begin.clone(), key_after(last)),
                (Some((last, _)), true, true) => (last.clone(), end.clone()),
                _ => (begin.clone(), end.clone()),
            }
        }
        _ => (Bytes::new(), Bytes::from_static(b"\xff")),
    }
}

/// What a write conflicts with.
pub fn written_range(write: &Write) -> (Bytes, Bytes) {
    match write.kind {
        MutationType::ClearRange => (write.key.clone(), write.operand.clone()),
        _ => (write.key.clone(), key_after(&write.key)),
    }
}

/// Whether `later` read anything that `earlier` writes, its marker included.
pub fn collides(earlier: &Record, later: &Record) -> bool {
    let marker = Bytes::from(marker(earlier.id));
    let mut written: Vec<_> = earlier.writes.iter().map(written_range).collect();
    written.push((marker.clone(), key_after(&marker)));
    later
        .reads
        .iter()
        .map(|(asked, told)| conflict_range(asked, told))
        .any(|(begin, end)| written.iter().any(|(first, last)| *first < end && begin < *last))
}
