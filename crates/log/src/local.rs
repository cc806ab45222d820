//! [`LocalLog`] as an implementation of [`CommitLog`]: on one node committed means durable.
//!
//! The log, its views and its readers have these methods of their own; here they are only called,
//! and what they give back is boxed. Waiting for a commit is waiting for a sync, and ends by an
//! error when the log is poisoned or closed.

use std::sync::Arc;

use plinth_types::Version;

use crate::commit_log::{CommitLog, LogReader, LogView, Waiting};
use crate::entry::Entry;
use crate::failure::{LogError, LogResult};
use crate::log::LocalLog;
use crate::position::{Position, Progress};
use crate::reader::Reader;
use crate::syncer::{Syncer, drive};
use crate::view::LocalView;

impl CommitLog for LocalLog {
    fn term(&self) -> u64 {
        Self::term(self)
    }

    fn written(&self) -> Position {
        Self::written(self)
    }

    fn view(&self) -> Arc<dyn LogView> {
        Arc::new(Self::view(self))
    }

    fn append<'a>(
        &'a mut self,
        version: Version,
        parts: &'a [&'a [u8]],
    ) -> Waiting<'a, LogResult<Position>> {
        Box::pin(Self::append(self, version, parts))
    }

    fn extend_lease(&mut self, upto: Version) -> Waiting<'_, LogResult<Position>> {
        Box::pin(Self::extend_lease(self, upto))
    }

    fn mark_durable(&mut self) -> Waiting<'_, LogResult<()>> {
        Box::pin(Self::mark_durable(self))
    }

    fn close(self: Box<Self>) -> Waiting<'static, LogResult<()>> {
        Box::pin(Self::close(*self))
    }

    fn check_invariants(&self) {
        Self::check_invariants(self);
    }
}

impl LogView for LocalView {
    fn committed(&self) -> Progress {
        Self::committed(self)
    }

    fn durable(&self) -> Progress {
        Self::durable(self)
    }

    fn until_committed(&self, beyond: Position) -> Waiting<'_, LogResult<Progress>> {
        Box::pin(self.shared.until_more(move |inner| {
            let committed = inner.committed().progress();
            if committed.position > beyond {
                return Some(Ok(committed));
            }
            inner.check_poison().err().or_else(|| inner.is_closed()).map(Err)
        }))
    }

    fn drive(&self) -> Waiting<'_, LogResult<Option<Progress>>> {
        Box::pin(drive(&self.shared))
    }

    fn sync(&self, upto: Position) -> Waiting<'_, LogResult<()>> {
        let syncer = Syncer::new(self.shared.clone());
        Box::pin(async move { syncer.sync(upto).await })
    }

    fn check(&self) -> LogResult<()> {
        Self::check(self)
    }

    fn damage(&self) -> Option<(LogError, u64)> {
        Self::damage(self)
    }

    fn reader(&self, from: Version) -> Box<dyn LogReader> {
        Box::new(Self::reader(self, from))
    }

    fn reader_of(&self, consumer: &str) -> LogResult<Box<dyn LogReader>> {
        Ok(Box::new(Self::reader_of(self, consumer)?))
    }

    fn reader_for(&self, consumer: &str, from: Version) -> LogResult<Box<dyn LogReader>> {
        Ok(Box::new(Self::reader_for(self, consumer, from)?))
    }

    fn register(
        &self,
        consumer: &str,
        from: Version,
        bound_bytes: Option<u64>,
    ) -> LogResult<Version> {
        Self::register(self, consumer, from, bound_bytes)
    }

    fn pop(&self, consumer: &str, upto: Version) -> LogResult<()> {
        Self::pop(self, consumer, upto)
    }

    fn unregister(&self, consumer: &str) {
        Self::unregister(self, consumer);
    }

    fn consumers(&self) -> Vec<(String, Version)> {
        Self::consumers(self)
    }

    fn held_bytes(&self, consumer: &str) -> LogResult<u64> {
        Self::held_bytes(self, consumer)
    }

    fn bytes_between(&self, from: Version, until: Version) -> u64 {
        Self::bytes_between(self, from, until)
    }

    fn bytes(&self) -> u64 {
        Self::bytes(self)
    }

    fn disk_bytes(&self) -> u64 {
        Self::disk_bytes(self)
    }

    fn outdated(&self) -> (u64, u64) {
        Self::outdated(self)
    }

    fn keep_free(&self, bytes: u64) {
        Self::keep_free(self, bytes);
    }
}

impl LogReader for Reader {
    fn next(&mut self) -> Waiting<'_, LogResult<Option<Entry>>> {
        Box::pin(Self::next(self))
    }

    fn follow(&mut self) {
        Self::follow(self);
    }

    fn wait(&mut self) -> Waiting<'_, LogResult<Entry>> {
        Box::pin(Self::wait(self))
    }
}
