//! The high-contention allocator: short numbers, each given once, to transactions that hardly ever
//! conflict.
//!
//! Numbers are drawn at random from a window; a counter says how many of it are taken, and when
//! half are, the window moves on. A number is taken by a key that nobody else has:
//!
//! ```text
//!   counters  (0, start)      -> how many were drawn from the window that begins at start, 8 bytes little-endian
//!   recent    (1, candidate)  -> ""
//! ```
//!
//! Two transactions conflict only if they draw the same number: counters are added to and read as
//! snapshots, and of the marks only the one that is kept has a write conflict, made by hand. What
//! is true of every binding of FoundationDB holds here too, or they would give out the same number
//! twice: the read of a mark is issued before the mark is set, so that it sees others' marks and
//! not the transaction's own just made.

use crate::subspace::Subspace;
use plinth_client::{Get, RangeOptions, Reply, Transaction, TransactionOption};
use plinth_types::{Error, RangeResult, Result};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Gives out the numbers of one directory layer.
pub(super) struct Allocator {
    counters: Subspace,
    recent: Subspace,
}

/// Held while calls are issued whose order matters: "the next write" must be the one that was meant
/// even when several threads work on directories in the same transaction. So whatever writes here
/// holds it. Never held while waiting.
static ORDER: Mutex<()> = Mutex::new(());

/// The right to write to a transaction.
pub(super) fn in_order() -> MutexGuard<'static, ()> {
    ORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Allocator {
    /// The allocator that keeps its marks in `subspace`.
    pub fn new(subspace: &Subspace) -> Self {
        Self { counters: subspace.subspace(&0), recent: subspace.subspace(&1) }
    }

    /// A number that was not, and will not be, given to another transaction that commits.
    pub async fn allocate(&self, tr: &Transaction) -> Result<i64> {
        loop {
            let start = self.current_window(tr).await?;
            if let Some(number) = self.draw(tr, start).await? {
                return Ok(number);
            }
        }
    }

    /// The start of a window that is less than half taken, this transaction counted.
    async fn current_window(&self, tr: &Transaction) -> Result<i64> {
        let latest = self.issue_latest(tr).await?;
        let mut start = self.window_start(&latest)?.unwrap_or(0);
        let mut advanced = false;
        loop {
            let count = self.issue_count(tr, start, advanced)?.await?;
            let count = count.map_or(Ok(0), |bytes| counter(&bytes))?;
            let window = window_size(start);
            if count.saturating_mul(2) < window {
                return Ok(start);
            }
            start =
                start.checked_add(window).ok_or_else(|| damaged("there are no numbers left"))?;
            advanced = true;
        }
    }

    /// A number of the window that begins at `start`; none if the window has moved on.
    async fn draw(&self, tr: &Transaction, start: i64) -> Result<Option<i64>> {
        let window = window_size(start);
        loop {
            let number = start.saturating_add((tr.env().random_u64() % window as u64) as i64);
            let mark = self.recent.pack(&number);
            let (latest, taken) = self.issue_draw(tr, &mark)?;
            let latest = self.window_start(&latest.await?)?;
            let taken = taken.await?.is_some();
            if latest.is_some_and(|latest| latest > start) {
                return Ok(None);
            }
            if !taken {
                tr.add_write_conflict_key(&mark);
                return Ok(Some(number));
            }
        }
    }

    /// Counts one more in the window at `start`, and reads the count. If the window has just been
    /// entered, what the ones before it left is cleared.
    fn issue_count(&self, tr: &Transaction, start: i64, advanced: bool) -> Result<Get> {
        let _order = in_order();
        let key = self.counters.pack(&start);
        if advanced {
            tr.clear_range(self.counters.prefix(), &key);
            tr.set_option(TransactionOption::NextWriteNoWriteConflictRange)?;
            tr.clear_range(self.recent.prefix(), self.recent.pack(&start));
        }
        tr.add(&key, 1_i64.to_le_bytes());
        Ok(tr.snapshot().get(&key))
    }

    /// Reads the newest window and whether the mark is there, and then makes the mark.
    fn issue_draw(&self, tr: &Transaction, mark: &[u8]) -> Result<(Reply<RangeResult>, Get)> {
        let _order = in_order();
        let latest = self.issue_latest(tr);
        let taken = tr.get(mark);
        tr.set_option(TransactionOption::NextWriteNoWriteConflictRange)?;
        tr.set(mark, b"");
        Ok((latest, taken))
    }

    fn issue_latest(&self, tr: &Transaction) -> Reply<RangeResult> {
        tr.snapshot().get_range(RangeOptions::from(self.counters.range()).limit(1).reverse(true))
    }

    fn window_start(&self, latest: &RangeResult) -> Result<Option<i64>> {
        let key = latest.rows.row(0).map(|(key, _)| key);
        key.map(|key| self.counters.unpack(key).map_err(|error| damaged(&error.to_string())))
            .transpose()
    }
}

/// How many numbers the window at `start` has: small ones while numbers are short, larger ones
/// where many are drawn.
fn window_size(start: i64) -> i64 {
    match start {
        ..255 => 64,
        255..65_535 => 1024,
        _ => 8192,
    }
}

fn counter(bytes: &[u8]) -> Result<i64> {
    let bytes = bytes.try_into().map_err(|_| damaged("a counter has not 8 bytes"))?;
    Ok(i64::from_le_bytes(bytes))
}

fn damaged(what: &str) -> Error {
    Error::invalid_directory_layer_metadata().with_detail(format!("allocator: {what}"))
}
