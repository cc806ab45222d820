//! Records on their way from the inbox to their rows.
//!
//! A flush saves them ahead of the step in which their letters go, in as many transactions as that
//! takes. What breaks off before that step is done again from the letters, to the same end.

use super::aside::Aside;
use super::by_time::{self, ByTime};
use super::fault::Fault;
use super::keys::Id;
use super::record_rows::ROW_BYTES;
use super::{Cell, Shared, Standing, lock};
use crate::record::{Kind, Record};
use crate::tree::Span;
use plinth_client::Transaction;
use plinth_env::sync::all;
use plinth_types::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Series of one transaction, at most, and what each may write there; and bytes of all, about: what
/// lies in rows already is written anew, and isn't known before.
const SERIES_AT_ONCE: usize = 512;
const STEP_BYTES: usize = 32 << 10;
const TOGETHER: usize = 1 << 20;

/// Records of one kind and series that are to be saved.
pub(super) struct Unsaved {
    cell: Arc<Cell>,
    kind: Kind,
    records: BTreeMap<i64, Bytes>,
}

impl Unsaved {
    fn is_of_damaged(&self) -> bool {
        lock(&self.cell.state).standing == Standing::Damaged
    }
}

/// What a flush has to save of records, by series.
#[derive(Default)]
pub(super) struct Mailed {
    all: BTreeMap<(Id, Kind), Unsaved>,
    /// Bytes of records.
    bytes: usize,
}

impl Mailed {
    /// Adds one of a series; of the same time the one that is added last counts.
    pub(super) fn add(&mut self, cell: &Arc<Cell>, record: Record) {
        let unsaved =
            || Unsaved { cell: cell.clone(), kind: record.kind, records: BTreeMap::new() };
        let all = self.all.entry((cell.id, record.kind)).or_insert_with(unsaved);
        self.bytes += record.bytes.len();
        let before = all.records.insert(record.time, record.bytes);
        self.bytes -= before.map_or(0, |before| before.len());
    }

    /// Those of a series in a span.
    pub(super) fn of(&self, of: (Id, Kind), span: Span) -> BTreeMap<i64, Bytes> {
        let Some(all) = self.all.get(&of).filter(|_| !span.is_empty()) else {
            return BTreeMap::new();
        };
        let some = all.records.range(span.first..=span.last);
        some.map(|(time, bytes)| (*time, bytes.clone())).collect()
    }

    /// The newest native histogram of a series.
    pub(super) fn newest_histogram(&self, id: Id) -> Option<(i64, Bytes)> {
        let newest = self.all.get(&(id, Kind::Histogram))?.records.last_key_value();
        newest.map(|(time, bytes)| (*time, bytes.clone()))
    }

    pub(super) fn has(&self, kind: Kind) -> bool {
        self.all.keys().any(|(_, of)| *of == kind)
    }

    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What a step of a flush saves of them, ahead of its own transaction.
#[derive(Default)]
pub(super) struct Saving(Mutex<Vec<Arc<Unsaved>>>);

impl From<Mailed> for Saving {
    fn from(all: Mailed) -> Self {
        Self(Mutex::new(all.all.into_values().map(Arc::new).collect()))
    }
}

impl Saving {
    /// Takes out those of series that turned out to be damaged, to be set aside.
    pub(super) fn take_damaged(&self, shared: &Shared) -> Aside {
        let mut aside = Aside::default();
        lock(&self.0).retain(|one| {
            let is_damaged = one.is_of_damaged();
            if is_damaged {
                let name = &one.cell.name;
                let records = one.records.iter().map(|(time, bytes)| Record {
                    kind: one.kind,
                    time: *time,
                    bytes: bytes.clone(),
                });
                let records: Vec<Record> = records.collect();
                aside.add_records(shared, name, &shared.why_damaged(name), &records);
            }
            !is_damaged
        });
        aside
    }

    /// Whether there is one of a series that turned out to be damaged.
    pub(super) fn has_damaged(&self) -> bool {
        lock(&self.0).iter().any(|one| one.is_of_damaged())
    }

    /// Forgets those of such series: they are aside still.
    pub(super) fn forget_damaged(&self) {
        lock(&self.0).retain(|one| !one.is_of_damaged());
    }

    /// Saves them, in as many transactions as that takes. Doing so again changes nothing.
    pub(super) async fn save(&self, shared: &Shared) -> Result<(), Fault> {
        let all = lock(&self.0).clone();
        let mut left: Vec<Left> = all.into_iter().map(|one| (one, i64::MIN)).collect();
        let mut most = SERIES_AT_ONCE;
        while !left.is_empty() {
            let some = left.split_off(left.len() - fit(&left, most));
            let tr = shared.database.create_transaction();
            let rest = loop {
                match try_save(shared, &tr, &some).await {
                    Ok(rest) => break rest,
                    // Rows that are there were larger than expected, or reading them took long.
                    Err(fault) if some.len() > 1 && fault.is_too_much() => {
                        most = some.len() / 2;
                        break some;
                    }
                    Err(fault) => fault.again(&tr).await?,
                }
            };
            left.extend(rest);
        }
        Ok(())
    }
}

/// Records that are left to be saved, and from which time on.
type Left = (Arc<Unsaved>, i64);

/// How many of the last of these fit one transaction, about.
fn fit(left: &[Left], most: usize) -> usize {
    let mut bytes = 0;
    let fit = left.iter().rev().take(most).take_while(|(one, _)| {
        let own: usize = one.records.values().map(Kind::weight).sum();
        // With the row that it goes into.
        bytes += own.min(STEP_BYTES) + ROW_BYTES / 2;
        bytes <= TOGETHER
    });
    fit.count().max(1)
}

/// Saves some of each; gives what is left, and from which time on.
async fn try_save(shared: &Shared, tr: &Transaction, some: &[Left]) -> Result<Vec<Left>, Fault> {
    shared.check_owner(tr).await?;
    let merge = async |one: &Unsaved, from: i64| {
        let rows = (tr, &shared.keys, one.cell.id);
        by_time::merge(&one.kind, rows, &one.records, from, STEP_BYTES).await
    };
    let merged = all(some.iter().map(|(one, from)| merge(one, *from))).await;
    let mut rest = Vec::new();
    for ((one, _), next) in some.iter().zip(merged) {
        rest.extend(next.map_err(Fault::of(&one.cell))?.map(|from| (one.clone(), from)));
    }
    tr.commit().await?;
    Ok(rest)
}
