//! The rows of a range as a stream, read batch by batch as they are wanted.
//!
//! Each batch is a range read of the transaction's, made when the rows before it have been given
//! out; so a stream sees the own writes that there are when a batch is read.

use crate::range::RangeOptions;
use crate::transaction::{Snapshot, Transaction};
use futures_core::Stream;
use plinth_env::reply::Reply;
use plinth_types::{KeyValue, RangeResult, Result, Rows};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The rows of a range, in order: the result of [`Transaction::range`].
///
/// A [`Stream`]; without its traits, [`next`](RangeStream::next) gives row after row, and
/// [`next_blocking`](RangeStream::next_blocking) does so for threads that may block. Ends after the
/// first error.
#[derive(Debug)]
#[must_use = "a stream reads nothing until it is polled"]
pub struct RangeStream {
    transaction: Transaction,
    range: RangeOptions,
    snapshot: bool,
    /// The batch that is being given out, and how many of its rows have been.
    rows: Rows,
    given: usize,
    pending: Option<Reply<RangeResult>>,
    more: bool,
}

impl Transaction {
    /// The rows of a range as a stream, read in batches as it goes.
    ///
    /// ```
    /// # use plinth_client::{Transaction, Result};
    /// # async fn example(tr: &Transaction) -> Result<()> {
    /// let mut rows = tr.range("users/".."users0");
    /// while let Some(row) = rows.next().await {
    ///     let row = row?;
    ///     println!("{:?} = {:?}", row.key, row.value);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn range(&self, range: impl Into<RangeOptions>) -> RangeStream {
        RangeStream::new(self.clone(), range.into(), false)
    }
}

impl Snapshot<'_> {
    /// As [`Transaction::range`].
    pub fn range(&self, range: impl Into<RangeOptions>) -> RangeStream {
        RangeStream::new(self.transaction().clone(), range.into(), true)
    }
}

impl RangeStream {
    fn new(transaction: Transaction, range: RangeOptions, snapshot: bool) -> Self {
        Self {
            transaction,
            range,
            snapshot,
            rows: Rows::new(),
            given: 0,
            pending: None,
            more: true,
        }
    }

    /// The next row; `None` after the last one.
    #[expect(clippy::should_implement_trait, reason = "it awaits what an iterator would block for")]
    pub fn next(&mut self) -> impl Future<Output = Option<Result<KeyValue>>> + Send + '_ {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context))
    }

    /// The next row; `None` after the last one. Parks the thread until it is there.
    pub fn next_blocking(&mut self) -> Option<Result<KeyValue>> {
        loop {
            if let Some(row) = self.take_row() {
                return Some(Ok(row));
            }
            let batch = self.request()?.wait();
            if let Err(error) = self.note_batch(batch) {
                return Some(Err(error));
            }
        }
    }

    /// All rows that are left.
    ///
    /// # Errors
    /// The first error of a read.
    pub async fn collect(mut self) -> Result<Vec<KeyValue>> {
        let mut rows = Vec::new();
        while let Some(row) = self.next().await {
            rows.push(row?);
        }
        Ok(rows)
    }

    /// All rows that are left. Parks the thread until they are there.
    ///
    /// # Errors
    /// The first error of a read.
    pub fn collect_blocking(mut self) -> Result<Vec<KeyValue>> {
        std::iter::from_fn(|| self.next_blocking()).collect()
    }

    fn take_row(&mut self) -> Option<KeyValue> {
        let row = self.rows.get(self.given)?;
        self.given += 1;
        Some(row)
    }

    /// The next batch on its way; `None` if there is none.
    fn request(&mut self) -> Option<Reply<RangeResult>> {
        if let Some(pending) = self.pending.take() {
            return Some(pending);
        }
        if !std::mem::take(&mut self.more) {
            return None;
        }
        let range = self.range.clone();
        Some(if self.snapshot {
            self.transaction.snapshot().get_range(range)
        } else {
            self.transaction.get_range(range)
        })
    }

    fn note_batch(&mut self, batch: Result<RangeResult>) -> Result<()> {
        let batch = batch?;
        self.given = 0;
        if let Some((last, _)) = batch.rows.last() {
            let range = self.range.clone().after(last, batch.rows.len());
            self.more = batch.more && range.limit != Some(0);
            self.range = range;
        }
        self.rows = batch.rows;
        Ok(())
    }
}

impl Stream for RangeStream {
    type Item = Result<KeyValue>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(row) = self.take_row() {
                return Poll::Ready(Some(Ok(row)));
            }
            let Some(mut pending) = self.request() else { return Poll::Ready(None) };
            let polled = Pin::new(&mut pending).poll(context);
            if polled.is_pending() {
                self.pending = Some(pending);
            }
            let batch = ready!(polled);
            if let Err(error) = self.note_batch(batch) {
                return Poll::Ready(Some(Err(error)));
            }
        }
    }
}
