//! A replicated log as a [`CommitLog`]: committed means that a majority has synced it.
//!
//! The writer is that of one term; it ends with the term, whatever it has appended and not seen
//! committed then has an unknown fate. It commits by itself: nobody lends it a thread.

use std::sync::Arc;

use plinth_env::Promise;
use plinth_log::{
    CommitLog, EntryKind, LocalView, LogError, LogReader, LogResult, LogView, Position, Progress,
    Waiting,
};
use plinth_types::{Bytes, Version};

use crate::inbox::{Event, Inbox};

/// The writer of a replicated log, for the term in which this node leads.
pub struct ReplicatedLog {
    term: u64,
    inbox: Arc<Inbox>,
    local: LocalView,
}

/// What everybody else has of it.
struct View {
    term: u64,
    inbox: Arc<Inbox>,
    local: LocalView,
}

impl ReplicatedLog {
    pub(crate) fn new(term: u64, inbox: Arc<Inbox>, local: LocalView) -> Self {
        Self { term, inbox, local }
    }

    async fn send(
        &self,
        kind: EntryKind,
        version: Option<Version>,
        body: Vec<u8>,
    ) -> LogResult<Position> {
        self.inbox.check()?;
        let (answer, reply) = Promise::pair();
        let (term, body) = (self.term, Bytes::from(body));
        self.inbox.post(Event::Append { term, kind, version, body, answer });
        reply.await
    }
}

impl CommitLog for ReplicatedLog {
    fn term(&self) -> u64 {
        self.term
    }

    fn written(&self) -> Position {
        self.inbox.with(|told| told.last.position)
    }

    fn view(&self) -> Arc<dyn LogView> {
        let Self { term, inbox, local } = self;
        Arc::new(View { term: *term, inbox: inbox.clone(), local: local.clone() })
    }

    fn append<'a>(
        &'a mut self,
        version: Version,
        parts: &'a [&'a [u8]],
    ) -> Waiting<'a, LogResult<Position>> {
        Box::pin(self.send(EntryKind::Mutations, Some(version), parts.concat()))
    }

    fn append_members<'a>(
        &'a mut self,
        version: Version,
        parts: &'a [&'a [u8]],
    ) -> Waiting<'a, LogResult<Position>> {
        Box::pin(self.send(EntryKind::Members, Some(version), parts.concat()))
    }

    fn extend_lease(&mut self, upto: Version) -> Waiting<'_, LogResult<Position>> {
        Box::pin(self.send(EntryKind::Lease, None, upto.to_le_bytes().to_vec()))
    }

    fn mark_durable(&mut self) -> Waiting<'_, LogResult<()>> {
        Box::pin(async {
            self.inbox.check()?;
            let (answer, reply) = Promise::pair();
            self.inbox.post(Event::Mark(answer));
            reply.await
        })
    }

    fn close(self: Box<Self>) -> Waiting<'static, LogResult<()>> {
        Box::pin(async move { self.inbox.close().await })
    }

    fn check_invariants(&self) {
        let (committed, durable) = (self.local.committed(), self.local.durable());
        assert!(
            committed.version <= committed.lease || committed.lease == 0,
            "{committed:?} above its lease"
        );
        assert!(
            durable.position.sequence() > 0,
            "the first record is durable before anybody has the log"
        );
    }
}

impl View {
    /// The error of whoever waits for an entry of a term that has ended.
    fn ended(&self, leads: Option<u64>) -> Option<LogError> {
        let detail = "this node ceased to lead before the entry was known committed";
        (leads != Some(self.term)).then(|| LogError::Unknown(detail.into()))
    }
}

impl LogView for View {
    fn committed(&self) -> Progress {
        self.local.committed()
    }

    fn durable(&self) -> Progress {
        self.local.durable()
    }

    fn until_committed(&self, beyond: Position) -> Waiting<'_, LogResult<Progress>> {
        LogView::until_committed(&self.local, beyond)
    }

    fn commits_by_itself(&self) -> bool {
        true
    }

    fn drive(&self) -> Waiting<'_, LogResult<Option<Progress>>> {
        Box::pin(async { self.check().map(|()| None) })
    }

    fn sync(&self, upto: Position) -> Waiting<'_, LogResult<()>> {
        Box::pin(async move {
            loop {
                let committed = self.local.committed().position;
                if committed >= upto {
                    return Ok(());
                }
                let (written, leads) = self.inbox.with(|told| (told.last.position, told.leads));
                if upto > written {
                    let detail = format!(
                        "nothing was appended at {upto:?}, the last entry is at {written:?}"
                    );
                    return Err(LogError::Misused(detail));
                }
                self.ended(leads).map_or(Ok(()), Err)?;
                let ends = self.inbox.until(|told| self.ended(told.leads));
                match plinth_env::sync::race(LogView::until_committed(&self.local, committed), ends)
                    .await
                {
                    plinth_env::sync::First::Left(progress) => drop(progress?),
                    plinth_env::sync::First::Right(ended)
                        if self.local.committed().position < upto =>
                    {
                        return Err(ended);
                    }
                    plinth_env::sync::First::Right(_) => {}
                }
            }
        })
    }

    fn check(&self) -> LogResult<()> {
        self.inbox.check()?;
        LogView::check(&self.local)
    }

    fn damage(&self) -> Option<(LogError, u64)> {
        LogView::damage(&self.local)
    }

    fn reader(&self, from: Version) -> Box<dyn LogReader> {
        LogView::reader(&self.local, from)
    }

    fn reader_of(&self, consumer: &str) -> LogResult<Box<dyn LogReader>> {
        LogView::reader_of(&self.local, consumer)
    }

    fn reader_for(&self, consumer: &str, from: Version) -> LogResult<Box<dyn LogReader>> {
        LogView::reader_for(&self.local, consumer, from)
    }

    fn register(
        &self,
        consumer: &str,
        from: Version,
        bound_bytes: Option<u64>,
    ) -> LogResult<Version> {
        LogView::register(&self.local, consumer, from, bound_bytes)
    }

    fn pop(&self, consumer: &str, upto: Version) -> LogResult<()> {
        LogView::pop(&self.local, consumer, upto)
    }

    fn unregister(&self, consumer: &str) {
        LogView::unregister(&self.local, consumer);
    }

    fn consumers(&self) -> Vec<(String, Version)> {
        LogView::consumers(&self.local)
    }

    fn held_bytes(&self, consumer: &str) -> LogResult<u64> {
        LogView::held_bytes(&self.local, consumer)
    }

    fn bytes_between(&self, from: Version, until: Version) -> u64 {
        LogView::bytes_between(&self.local, from, until)
    }

    fn bytes(&self) -> u64 {
        LogView::bytes(&self.local)
    }

    fn disk_bytes(&self) -> u64 {
        LogView::disk_bytes(&self.local)
    }

    fn outdated(&self) -> (u64, u64) {
        LogView::outdated(&self.local)
    }

    fn keep_free(&self, bytes: u64) {
        LogView::keep_free(&self.local, bytes);
    }
}
