//! Serializability: what random concurrent transactions read is what re-execution in commit order
//! gives.
//!
//! Three questions. Did each transaction, committed or not, read the database as it was at its read
//! version? Had nothing that it read changed by the moment at which it took effect? And is the
//! order that of real time: whoever was acknowledged before another began is seen by it?

use super::{Work, Workload};
use crate::client::Client;
use crate::draw::Draw;
use crate::history::{self, Fate, History, Record, Resolved, Rows};
use plinth_types::{Version, Versionstamp};
use std::collections::BTreeMap;
use std::sync::Arc;

pub struct Serializability {
    keys: u64,
    history: History,
}

impl Serializability {
    pub fn new(draw: &mut Draw<'_>) -> Self {
        Self { keys: draw.number("keys", 3..40), history: History::default() }
    }
}

/// Where in the order a transaction's reads are looked at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    /// It takes effect.
    Effect,
    /// It read: everything of that version is there.
    Read,
}

/// Goes through all moments in order with a model; says what contradicts it.
fn re_execute(resolved: &Resolved) -> Result<(), String> {
    let mut moments: BTreeMap<(Version, u32, Moment, usize), ()> = BTreeMap::new();
    for (at, record) in resolved.records.iter().enumerate() {
        if let Some(version) = record.read_version {
            moments.insert((version, u32::MAX, Moment::Read, at), ());
        }
        if let Some(stamp) = resolved.stamps[at] {
            moments.insert((stamp.version(), stamp.batch_index().into(), Moment::Effect, at), ());
        }
    }
    let mut rows = Rows::new();
    for (version, _, moment, at) in moments.into_keys() {
        let record = &resolved.records[at];
        let when = match moment {
            Moment::Read => "at its read version",
            Moment::Effect => "when it took effect",
        };
        compare(record, &rows, when)?;
        if moment == Moment::Effect
            && let Some(stamp) = resolved.stamps[at]
        {
            debug_assert_eq!(stamp.version(), version);
            history::apply(&mut rows, record, stamp);
        }
    }
    if rows != resolved.rows {
        let differs = |key: &&plinth_types::Bytes| rows.get(*key) != resolved.rows.get(*key);
        let key =
            rows.keys().chain(resolved.rows.keys()).find(differs).cloned().unwrap_or_default();
        let (model, real) = (rows.get(&key), resolved.rows.get(&key));
        return Err(format!(
            "the database is not what its transactions made it: {key:?} is {real:?}, not {model:?}"
        ));
    }
    Ok(())
}

fn compare(record: &Record, rows: &Rows, when: &str) -> Result<(), String> {
    for (asked, told) in &record.reads {
        let expected = history::answer(rows, asked);
        if !history::agrees(told, &expected) {
            return Err(format!(
                "transaction {}: {asked:?} gave {told:?}, but {when} it was {expected:?}; {record:?}",
                record.id
            ));
        }
    }
    Ok(())
}

/// What happened to a transaction at some moment of real time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Began,
    /// It had its read version.
    Read,
    Acknowledged,
}

/// Whoever began after another's commit was acknowledged, or after another had its read version,
/// reads at that version or a later one.
fn in_real_time(records: &[Record], stamps: &[Option<Versionstamp>]) -> Result<(), String> {
    let mut events: Vec<(u64, Event, &Record)> = Vec::new();
    for (record, stamp) in records.iter().zip(stamps) {
        if matches!(record.fate, Fate::Committed(_)) && stamp.is_some() {
            events.push((record.ended, Event::Acknowledged, record));
        }
        if record.read_version.is_some() {
            events.push((record.read_at, Event::Read, record));
            events.push((record.began, Event::Began, record));
        }
    }
    events.sort_by_key(|(tick, event, _)| (*tick, *event));
    let mut newest: (Version, u64) = (0, 0);
    let mut known_at_begin: BTreeMap<u64, (Version, u64)> = BTreeMap::new();
    for (_, event, record) in events {
        let read = record.read_version.unwrap_or_default();
        match (event, &record.fate) {
            (Event::Began, _) => drop(known_at_begin.insert(record.id, newest)),
            (Event::Read, _) => newest = newest.max((read, record.id)),
            (Event::Acknowledged, Fate::Committed(version)) => {
                newest = newest.max((*version, record.id))
            }
            (Event::Acknowledged, _) => {}
        }
    }
    for record in records {
        let Some((known, id)) = known_at_begin.get(&record.id) else { continue };
        let read = record.read_version.unwrap_or_default();
        if read < *known {
            let what = format!("transaction {id} had reached version {known}");
            return Err(format!(
                "{what} before transaction {} began, which reads at {read}",
                record.id
            ));
        }
    }
    Ok(())
}

impl Workload for Serializability {
    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            while !client.is_stopping() {
                self.history.one(&client, self.keys).await;
                client.pause(15_000).await;
            }
        })
    }

    fn owns_database(&self) -> bool {
        true
    }

    fn check(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move {
            let Some(resolved) = self.history.resolve(&client).await else { return };
            let judged = re_execute(&resolved)
                .and_then(|()| in_real_time(&resolved.records, &resolved.stamps));
            if let Err(what) = judged {
                client.fail(what);
            }
        })
    }
}
