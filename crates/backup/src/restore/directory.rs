//! Into a new directory: rows become the files of an engine, without transactions; the log is
//! applied to what they make.
//!
//! Who makes a database of rows is not this crate's business: a [`Loader`] does. Until it has put
//! the database in its place nothing has the name that was asked for.

use super::apply::{Place, Sink, apply};
use super::read::Pieces;
use super::{Plan, RestoreControl, RestoreReport};
use crate::container::Backup;
use crate::rows::Piece;
use crate::target::Doing;
use plinth_client::{Database, Endpoint};
use plinth_types::{CommitReply, CommitRequest, Conflicts, Error, KeyRange, MutationList, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Makes a new database of rows, in a place that nobody takes for a database yet.
pub trait Loader: Send {
    /// Takes the next rows, which are all between two keys. They come in key order; what none
    /// speaks of isn't there.
    ///
    /// # Errors
    /// Those of writing files.
    fn take(&mut self, piece: Piece) -> Doing<'_, ()>;

    /// Everything has been taken: opens what it makes, for the changes that come on top.
    ///
    /// # Errors
    /// Those of files and of opening.
    fn open(&mut self) -> Doing<'_, Database>;

    /// Closes it and gives it its name, durably and in one step.
    ///
    /// # Errors
    /// Those of files; then it may or may not have the name, whole.
    fn put_in_place(&mut self) -> Doing<'_, ()>;
}

/// Restores into what a loader makes.
///
/// # Errors
/// `file_corrupt`, `restore_missing_data` and those of target and loader; `operation_cancelled` if
/// it was stopped. Then nothing has been put in place.
pub async fn restore_into(
    backup: &Backup,
    plan: &Plan,
    control: &RestoreControl,
    loader: &mut dyn Loader,
) -> Result<RestoreReport> {
    let (mut rows, mut bytes) = (0, 0);
    let mut pieces = Pieces::new(backup, plan, control);
    while let Some(file) = pieces.next().await? {
        for piece in file {
            rows += piece.rows.len() as u64;
            bytes += piece.rows.data_len() as u64;
            control.restored.fetch_add(piece.rows.data_len() as u64, Ordering::Relaxed);
            let (begin, end) =
                (plan.mapping.key(&piece.range.begin), plan.mapping.end(&piece.range.end));
            let range = KeyRange { begin, end };
            loader.take(Piece { range, rows: plan.mapping.rows(piece.rows) }).await?;
        }
    }
    let mut mutations = 0;
    let db = loader.open().await?;
    if !plan.logs.is_empty() {
        let mut direct = Direct { endpoint: db.endpoint().clone() };
        mutations = apply(backup, plan, control, Place::default(), &mut direct).await?;
    }
    drop(db);
    loader.put_in_place().await?;
    Ok(RestoreReport { version: plan.version, rows, bytes, mutations })
}

/// Commits to a database that nobody else has, and that is thrown away if anything goes wrong.
struct Direct {
    endpoint: Arc<dyn Endpoint>,
}

impl Sink for Direct {
    fn commit(&mut self, mutations: MutationList, _reached: Place) -> Doing<'_, ()> {
        Box::pin(async move {
            let version = self.endpoint.read_version(Default::default()).await?.version;
            let conflicts = Conflicts { read_version: version, ..Conflicts::default() };
            let request = CommitRequest { conflicts, mutations, ..CommitRequest::default() };
            match self.endpoint.commit(request).await? {
                CommitReply::Committed { .. } => Ok(()),
                CommitReply::Conflict { .. } => Err(Error::not_committed()),
            }
        })
    }
}
