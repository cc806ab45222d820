//! Rows of buckets, as a transaction changes them.
//!
//! A row has up to some hundred buckets behind each other, and its key is where the first of them
//! begins. What is put in place of others reads the two rows at the ends alone, however many lie
//! between.

use super::keys::{Id, Keys};
use crate::error::Result;
use crate::rollup::{Bucket, MAX_BUCKETS, decode, encode};
use plinth_client::{KeyValue, RangeOptions, Transaction};
use plinth_types::{Bytes, key_after, strinc};

/// Bytes of a row, at most: what a value may have.
const MAX_BYTES: usize = plinth_types::limits::VALUE_SIZE;

/// The buckets of a series by a rule, as they are written.
pub(super) struct Written<'a> {
    pub(super) tr: &'a Transaction,
    pub(super) keys: &'a Keys,
    /// The rule and the series.
    pub(super) of: (u64, Id),
}

impl Written<'_> {
    fn row(&self, begin: i64) -> Vec<u8> {
        self.keys.rolled_row(self.of.0, self.of.1, begin)
    }

    /// The row in which a bucket would be that begins then: the last that begins no later.
    async fn row_of(&self, begin: i64) -> Result<Option<KeyValue>> {
        let all = RangeOptions::from(self.row(i64::MIN)..key_after(&self.row(begin)).to_vec());
        let rows = self.tr.snapshot().range(all.limit(1).reverse(true)).collect().await?;
        Ok(rows.into_iter().next())
    }

    /// The first row, or the last one, that begins behind a moment and before a key.
    async fn row_behind(&self, begin: i64, end: &[u8], is_last: bool) -> Result<Option<KeyValue>> {
        let range = RangeOptions::from(key_after(&self.row(begin)).to_vec()..end.to_vec());
        let rows = self.tr.snapshot().range(range.limit(1).reverse(is_last)).collect().await?;
        Ok(rows.into_iter().next())
    }

    /// Puts buckets in place of all that there are from a time up to another.
    pub(super) async fn replace(&self, (begin, end): (i64, i64), fresh: Vec<Bucket>) -> Result<()> {
        let first = self.row_of(begin).await?;
        let last = self.row_behind(begin, &self.row(end), true).await?;
        let mut buckets = match &first {
            Some(row) => decode(&row.value)?,
            None => Vec::new(),
        };
        let mut behind = buckets.split_off(buckets.partition_point(|bucket| bucket.begin < end));
        let kept = buckets.partition_point(|bucket| bucket.begin < begin);
        if kept == buckets.len() && last.is_none() && fresh.is_empty() {
            return Ok(());
        }
        buckets.truncate(kept);
        buckets.extend(fresh);
        if let Some(row) = &last {
            let of_row = decode(&row.value)?;
            behind.extend(of_row.into_iter().filter(|bucket| bucket.begin >= end));
        }
        buckets.append(&mut behind);
        let from = first.as_ref().map_or_else(|| self.row(begin), |row| row.key.to_vec());
        let to = last.or(first).map(|row| key_after(&row.key));
        if let Some(to) = to {
            self.tr.clear_range(from, to);
        }
        self.put(&buckets);
        Ok(())
    }

    /// Adds buckets where points have gone, of points that came since. Of two for one time that of
    /// more points stays: so what is sent again changes nothing, and neither do a few late points.
    /// A bucket can't be told of which points it was made, so they can't be added to it: what is
    /// sent again would count twice. Gives the beginnings of the buckets that others stayed for,
    /// which ascend.
    pub(super) async fn complete(&self, fresh: Vec<Bucket>) -> Result<Vec<i64>> {
        let mut left_out = Vec::new();
        let all = strinc(&self.keys.rolled(self.of.0, self.of.1));
        let all = all.unwrap_or_else(|| Bytes::from_static(b"\xff"));
        let mut rest = &fresh[..];
        while let Some(next) = rest.first() {
            let row = self.row_of(next.begin).await?;
            let behind = self.row_behind(next.begin, &all, false).await?;
            let here = match &behind {
                Some(behind) => {
                    let end = decode(&behind.value)?.first().map_or(i64::MAX, |first| first.begin);
                    rest.partition_point(|bucket| bucket.begin < end).max(1)
                }
                None => rest.len(),
            };
            let (some, others) = rest.split_at(here);
            rest = others;
            let before = match &row {
                Some(row) => decode(&row.value)?,
                None => Vec::new(),
            };
            let merged = merged(&before, some, &mut left_out);
            if merged != before {
                row.iter().for_each(|row| self.tr.clear(&row.key));
                self.put(&merged);
            }
        }
        Ok(left_out)
    }

    /// Writes rows of buckets that ascend, where there are none.
    fn put(&self, buckets: &[Bucket]) {
        let size = buckets.len().div_ceil(buckets.len().div_ceil(MAX_BUCKETS).max(1)).max(1);
        for some in buckets.chunks(size) {
            self.put_row(some);
        }
    }

    fn put_row(&self, buckets: &[Bucket]) {
        let bytes = encode(buckets);
        if bytes.len() > MAX_BYTES && buckets.len() > 1 {
            let (first, second) = buckets.split_at(buckets.len() / 2);
            self.put_row(first);
            self.put_row(second);
            return;
        }
        self.tr.set(self.row(buckets[0].begin), bytes);
    }
}

/// Those of both, in order; of two for one time that of more points. Notes which fresh ones are
/// left out, unless the other is the same.
fn merged(before: &[Bucket], fresh: &[Bucket], left_out: &mut Vec<i64>) -> Vec<Bucket> {
    let mut all: Vec<Bucket> = before.iter().chain(fresh).copied().collect();
    // Those that were there before stand first of their time.
    all.sort_by_key(|bucket| bucket.begin);
    all.dedup_by(|next, last| {
        let is_same = next.begin == last.begin;
        if is_same && next.count() > last.count() {
            *last = *next;
        } else if is_same && next != last {
            left_out.push(next.begin);
        }
        is_same
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollup::Maker;
    use crate::value::{Point, Points};

    fn buckets(times: &[i64]) -> Vec<Bucket> {
        let mut maker = Maker::new(10);
        let mut points = Points::default();
        let point = |time: &i64| Point { time: *time, value: 1.0.into() };
        times.iter().for_each(|time| points.push(point(time)));
        maker.add(&points);
        maker.until(i64::MAX)
    }

    #[test]
    fn of_two_buckets_for_one_time_that_of_more_points_stays() {
        let before = buckets(&[0, 1, 20, 21]);
        let mut left_out = Vec::new();
        let all = merged(&before, &buckets(&[2, 10, 20, 22, 23, 30]), &mut left_out);
        let counts: Vec<_> = all.iter().map(|bucket| (bucket.begin, bucket.count())).collect();
        assert_eq!(counts, [(0, 2), (10, 1), (20, 3), (30, 1)]);
        assert_eq!(left_out, [0]);
        assert_eq!(merged(&before, &before, &mut left_out), before);
        assert_eq!(left_out.len(), 1, "the same ones are not left out");
    }
}
