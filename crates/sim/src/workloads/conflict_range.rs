//! ConflictRange: a transaction is rejected if, and only if, what it read could have changed before
//! its commit.
//!
//! What its reads depend on is worked out here from their results, by FoundationDB's rules, and
//! held against what others wrote between its read version and its place in the order. A rejection
//! needs a cause: another transaction that writes there, and that was sent before the rejection
//! came. That other one may itself have come to nothing since (its sync failed, or the node died),
//! for nobody can know that when conflicts are decided.

use super::{Work, Workload};
use crate::client::Client;
use crate::draw::Draw;
use crate::history::{self, Fate, History, Record, Resolved};
use plinth_types::Error;
use std::sync::Arc;

pub struct ConflictRange {
    keys: u64,
    history: History,
}

impl ConflictRange {
    pub fn new(draw: &mut Draw<'_>) -> Self {
        Self { keys: draw.number("keys", 5..80), history: History::default() }
    }
}

fn judge(resolved: &Resolved) -> Result<(), String> {
    for (at, record) in resolved.records.iter().enumerate() {
        match &record.fate {
            Fate::Refused(error) if *error == Error::not_committed() => {
                must_have_a_cause(resolved, record)?
            }
            _ => {}
        }
        if resolved.stamps[at].is_some() {
            must_have_been_undisturbed(resolved, at)?;
        }
    }
    Ok(())
}

/// Nothing that it read was written between its read version and its place in the order.
fn must_have_been_undisturbed(resolved: &Resolved, at: usize) -> Result<(), String> {
    let record = &resolved.records[at];
    let (Some(read_version), Some(stamp)) = (record.read_version, resolved.stamps[at]) else {
        return Ok(());
    };
    for (other, index) in resolved.order.range(..*stamp.as_bytes()).rev() {
        let other = plinth_types::Versionstamp::from_bytes(*other);
        if other.version() <= read_version {
            return Ok(());
        }
        let earlier = &resolved.records[*index];
        if history::collides(earlier, record) {
            return Err(format!(
                "committed although {earlier:?} at {other:?} wrote what it had read: {record:?}"
            ));
        }
    }
    Ok(())
}

fn must_have_a_cause(resolved: &Resolved, record: &Record) -> Result<(), String> {
    let is_cause = |(at, other): (usize, &Record)| {
        let sent_before = other.submitted.is_some_and(|submitted| submitted < record.ended);
        let counts = match (&other.fate, resolved.stamps[at]) {
            // The client library may have committed something with the same keys later, to make
            // sure that the lost one was over.
            (Fate::Unknown, _) => true,
            (_, Some(stamp)) => record.read_version.is_some_and(|read| stamp.version() > read),
            // Rejected itself, it leaves nothing behind.
            (Fate::Refused(error), None) => {
                *error != Error::not_committed() && *error != Error::transaction_too_old()
            }
            (_, None) => true,
        };
        other.id != record.id
            && other.life == record.life
            && sent_before
            && counts
            && history::collides(other, record)
    };
    if resolved.records.iter().enumerate().any(is_cause) {
        return Ok(());
    }
    Err(format!("rejected, and nobody wrote what it had read: {record:?}"))
}

impl Workload for ConflictRange {
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
            if let Err(what) = judge(&resolved) {
                client.fail(what);
            }
        })
    }
}
