//! Records: what a series has at a time that is no number, such as a native histogram.
//!
//! ```text
//!   append_records --commit--> letters in the inbox --the owner, as any mail--> rows by time (`by_time.rs`)
//!                                                                              of this kind and series
//! ```
//!
//! Nothing of a record is in memory: it is in the inbox, or in its row. So what was appended is
//! durable at once, whoever owns the series, and readers who have the inbox taken in find all of
//! them in rows. What is in a record is the affair of whoever wrote it; here it is bytes.
//!
//! Invariants: a row is keyed by its first time and ends before the next one begins; of two records
//! of one kind, series and time the one that came later is there. Rows of a damaged series stay as
//! they are, and its records are set aside as letters.

use super::keys::Id;
use super::letter::{self, RecordLetter};
use super::record_rows::decode;
use super::{Part, Series, SeriesStore, Shared, Standing, lock, retry};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::record::{Kind, Record};
use crate::tree::Span;
use plinth_client::{KeySelector, RangeOptions, StreamingMode, Transaction};
use plinth_env::sync::all;
use plinth_types::Bytes;
use std::collections::BTreeMap;

/// Bytes of letters in one commit, about.
const MAIL_BYTES: usize = 1 << 20;
/// Rows that are read at a time.
const PAGE: usize = 64;

/// What became of records that were appended: how many were, and series of which none is taken.
#[derive(Default)]
pub(crate) struct Mail {
    pub(crate) by_kind: BTreeMap<Kind, u64>,
    pub(crate) refused: Vec<(Name, Error)>,
}

/// The records of a kind and series in a span, some at a time.
pub(crate) struct Records {
    own: Vec<u8>,
    kind: Kind,
    span: Span,
    tr: Transaction,
    unread: Option<(KeySelector, KeySelector)>,
    /// The time of the last that was given: rows that were rewritten between two pages may overlap.
    reach: Option<i64>,
    /// What the inbox has, of a store that only reads: it lies over what rows have.
    above: BTreeMap<i64, Bytes>,
}

impl Records {
    fn of(shared: &Shared, (kind, id): (Kind, Id), span: Span) -> Self {
        let keys = &shared.keys;
        let own = keys.records(kind, id);
        let begin = match span.first {
            i64::MIN => KeySelector::first_greater_or_equal(own.clone()),
            // There may be none before it, and what is found then belongs to somebody else.
            first => KeySelector::last_less_or_equal(keys.record_row(kind, id, first)),
        };
        let end = KeySelector::first_greater_than(keys.record_row(kind, id, span.last));
        let unread = (!span.is_empty()).then_some((begin, end));
        let tr = shared.database.create_transaction();
        let above = lock(&shared.index.posted).of((id, kind), span);
        Self { own, kind, span, tr, unread, reach: None, above }
    }

    /// The next ones, which may be none yet; `None` if there are no more.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<(i64, Bytes)>>> {
        let Some((begin, end)) = self.unread.take() else { return Ok(None) };
        let range = RangeOptions::new(begin, end.clone()).limit(PAGE).mode(StreamingMode::WantAll);
        let rows = loop {
            match self.tr.snapshot().range(range.clone()).collect().await {
                Ok(rows) => break rows,
                Err(error) => retry::again(&self.tr, error.into()).await?,
            }
        };
        let last = rows.last().filter(|_| rows.len() >= PAGE);
        self.unread =
            last.map(|row| (KeySelector::first_greater_than(row.key.clone()), end.clone()));
        let mut found = Vec::new();
        for row in rows.iter().filter(|row| row.key.starts_with(&self.own)) {
            for (time, bytes) in decode(self.kind, &row.value)? {
                if self.span.contains(time) && self.reach.is_none_or(|reach| reach < time) {
                    self.reach = Some(time);
                    found.push((time, bytes));
                }
            }
        }
        Ok(Some(self.with_above(found)))
    }

    /// What was found with what lies above it and before what is unread.
    fn with_above(&mut self, found: Vec<(i64, Bytes)>) -> Vec<(i64, Bytes)> {
        if self.above.is_empty() {
            return found;
        }
        let later = match (self.unread.is_some(), self.reach) {
            (false, _) => BTreeMap::new(),
            (true, Some(reach)) if reach < i64::MAX => self.above.split_off(&(reach + 1)),
            (true, _) => return found,
        };
        let above = std::mem::replace(&mut self.above, later);
        let mut all: BTreeMap<i64, Bytes> = found.into_iter().collect();
        all.extend(above);
        all.into_iter().collect()
    }
}

/// Fails if a row of a series can't be read.
pub(super) async fn check(shared: &Shared, id: Id) -> Result<()> {
    for kind in Kind::KEPT {
        let mut records = Records::of(shared, (kind, id), Span::ALL);
        while records.next().await?.is_some() {}
    }
    Ok(())
}

impl Series {
    /// The records of a kind in a span, as far as they were taken in: whoever asks has had the
    /// inbox looked into.
    pub(crate) fn records(&self, kind: Kind, span: Span) -> Records {
        Records::of(&self.shared, (kind, self.cell.id), span)
    }

    /// The newest record of a kind that was taken in.
    pub(super) async fn newest_record(&self, kind: Kind) -> Result<Option<(i64, Bytes)>> {
        let shared = &self.shared;
        let range = RangeOptions::prefix(shared.keys.records(kind, self.cell.id));
        let range = &range.limit(1).reverse(true);
        let last = |tr: Transaction| async move { tr.snapshot().get_range(range.clone()).await };
        let rows = retry::transact(&shared.database, last).await?.rows;
        match rows.iter().next() {
            Some((_, row)) => Ok(decode(kind, row)?.pop()),
            None => Ok(None),
        }
    }

    /// Whether there are records before a time.
    pub(super) async fn has_records_before(&self, first: i64) -> Result<bool> {
        let (shared, id) = (&self.shared, self.cell.id);
        for kind in Kind::KEPT {
            // A row is keyed by its first time.
            let (begin, end) =
                (shared.keys.records(kind, id), shared.keys.record_row(kind, id, first));
            let range = &RangeOptions::from(begin..end).limit(1);
            let row = |tr: Transaction| async move { tr.snapshot().get_range(range.clone()).await };
            if retry::transact(&shared.database, row).await?.rows.iter().next().is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl SeriesStore {
    /// Appends records of series of this store. When it returns, they survive a crash.
    ///
    /// # Errors
    /// As [`SeriesStore::sync`].
    pub(crate) async fn append_records(&self, records: Vec<(Series, Record)>) -> Result<Mail> {
        let (mut by_part, mut mail) = (BTreeMap::<usize, Vec<_>>::new(), Mail::default());
        for (series, record) in records {
            let (shared, name) = (&series.shared, &series.cell.name);
            let standing = lock(&series.cell.state).standing;
            let why = match standing {
                Standing::Known | Standing::Found => None,
                Standing::Gone => Some(Error::Deleted),
                Standing::Damaged => Some(shared.why_damaged(name)),
            };
            if let Some(why) = why {
                if mail.refused.last().is_none_or(|(last, _)| last != name) {
                    mail.refused.push((name.clone(), why));
                }
                continue;
            }
            *mail.by_kind.entry(record.kind).or_default() += 1;
            by_part.entry(shared.of.number).or_default().push((series, record));
        }
        let posted = all(by_part.values().map(|records| post(records))).await;
        posted.into_iter().collect::<Result<()>>()?;
        Ok(mail)
    }

    /// Whether there is any record.
    pub(super) async fn has_any_records(&self) -> Result<bool> {
        for kind in Kind::KEPT {
            if self.has_records(kind).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether there is any record of a kind.
    pub(crate) async fn has_records(&self, kind: Kind) -> Result<bool> {
        let has = async |part: &Part| {
            let shared = &part.shared;
            let range = &RangeOptions::prefix(shared.keys.all_records(kind)).limit(1);
            let first =
                |tr: Transaction| async move { tr.snapshot().get_range(range.clone()).await };
            let rows = retry::transact(&shared.database, first).await?.rows;
            Ok::<_, Error>(rows.iter().next().is_some() || lock(&shared.index.posted).has(kind))
        };
        for found in all(self.parts.iter().map(has)).await {
            if found? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Puts records of series of one part into its inbox.
async fn post(records: &[(Series, Record)]) -> Result<()> {
    let Some((first, _)) = records.first() else { return Ok(()) };
    let shared = &first.shared;
    shared.check()?;
    // What has to be taken in has letters of its own: a server that doesn't know its kinds sets a
    // letter aside as a whole.
    let (mut kept, mut others, mut rows) =
        (RecordLetter::default(), RecordLetter::default(), Vec::new());
    for (series, record) in records {
        let letter = if Kind::KEPT.contains(&record.kind) { &mut kept } else { &mut others };
        rows.extend(letter.add(&series.cell.name, record));
    }
    rows.extend(others.rest());
    rows.extend(kept.rest());
    let mut rest = &rows[..];
    while !rest.is_empty() {
        let mut bytes = 0;
        let fit = rest.iter().take_while(|row| {
            bytes += row.len();
            bytes <= MAIL_BYTES
        });
        let (now, later) = rest.split_at(fit.count().max(1));
        rest = later;
        if !shared.is_poster() && inbox_is_full(shared).await? {
            // Nobody else makes room there.
            shared.take_in().await?;
        }
        retry::transact_all(&shared.database, |tr| async move {
            let size = tr.snapshot().get(shared.keys.inbox_size());
            shared.check_owner(&tr).await?;
            if shared.is_poster() {
                letter::judge(size.await?.as_ref(), shared.settings.inbox_bytes)?;
            }
            now.iter().for_each(|row| letter::put(&tr, &shared.keys, row));
            Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn inbox_is_full(shared: &Shared) -> Result<bool> {
    let key = &shared.keys.inbox_size();
    let size = retry::transact(&shared.database, |tr| async move { tr.snapshot().get(key).await });
    Ok(letter::judge(size.await?.as_ref(), shared.settings.inbox_bytes).is_err())
}
