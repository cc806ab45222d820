//! A node's part in a replicated log: the handle, and what goes to other nodes.

use std::sync::Arc;

use plinth_env::reply::promise;
use plinth_env::{Env, Task};
use plinth_log::{Entry, LocalView, ReplicaLog};
use plinth_types::{Error, Result};

use crate::NodeId;
use crate::core::{Config, Core, Promise};
use crate::driver::{self, Driver};
use crate::inbox::{Event, Inbox};
use crate::message::Message;
use crate::replicated::ReplicatedLog;
use crate::terms::Terms;

/// What one node sends another: a message, and the entries that it speaks of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The message.
    pub message: Message,
    /// The entries of an append, whole: as many as the message has terms.
    pub entries: Vec<Entry>,
}

impl Frame {
    /// Whether the entries are those of the message.
    pub(crate) fn is_whole(&self) -> bool {
        let Message { index, entries, .. } = &self.message;
        let ids = (index + 1..).zip(entries.iter().copied());
        self.entries.len() == entries.len()
            && self.entries.iter().zip(ids).all(|(entry, id)| (entry.index, entry.term) == id)
    }
}

/// How frames get to other nodes.
pub trait Peers: Send + Sync {
    /// Sends a frame to the node that its message names, without waiting. It may be lost, doubled, or overtaken.
    fn send(&self, frame: Frame);
}

/// A node's part in a replicated log. Dropping it ends nothing: see [`Member::close`].
pub struct Member {
    id: NodeId,
    inbox: Arc<Inbox>,
    view: LocalView,
    tasks: Vec<Task>,
}

impl Member {
    /// Takes part with this log, in tasks of `env`.
    ///
    /// # Errors
    /// `invalid_option_value` if configuration and log contradict themselves or each other.
    pub fn start(env: &Env, config: Config, log: ReplicaLog, peers: Arc<dyn Peers>) -> Result<Self> {
        let terms = Terms::of_runs(log.terms(), log.last().0)?;
        let promised = log.promised();
        let known = Promise {
            term: promised.term,
            vote: promised.vote,
            commit: promised.commit.max(log.committed_index()),
        };
        let (id, inbox, view) = (config.id, Inbox::new(), log.view().clone());
        let core = Core::new(config, terms, known)?;
        let syncs = (0..driver::SYNCS)
            .map(|_| env.spawn("replication-sync", driver::sync(inbox.clone(), log.syncer())))
            .collect::<Vec<_>>();
        let driver = Driver::new(env, core, log, peers, inbox.clone());
        let mut tasks = vec![env.spawn("replication", driver.run())];
        tasks.extend(syncs);
        Ok(Self { id, inbox, view, tasks })
    }

    /// This node.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// A frame has arrived.
    pub fn receive(&self, frame: Frame) {
        self.inbox.post(Event::Frame(frame));
    }

    /// Has this node want to lead, without waiting until it hears of no leader.
    pub fn campaign(&self) {
        self.inbox.post(Event::Campaign);
    }

    /// The term in which this node leads, if it does and an entry of that term is committed.
    pub fn leads(&self) -> Option<u64> {
        self.inbox.with(|told| told.leads)
    }

    /// Waits until this node leads, and gives the writer of that term.
    ///
    /// # Errors
    /// Why the member has ended.
    pub async fn until_leads(&self) -> Result<ReplicatedLog> {
        let term = self.inbox.until(|told| told.leads.map(Ok).or_else(|| told.ended.clone().map(Err)));
        Ok(ReplicatedLog::new(term.await?, self.inbox.clone(), self.view.clone()))
    }

    /// Waits for proof that this node led after this was called: then nobody else had committed anything until then
    /// that this node doesn't know.
    ///
    /// # Errors
    /// `process_behind` if it doesn't lead, or ceases to before there is proof; why the member has ended.
    pub async fn prove(&self) -> Result<()> {
        let (promise, reply) = promise();
        self.inbox.check()?;
        self.inbox.post(Event::Prove(promise));
        reply.await
    }

    /// The log on this node, for readers and consumers.
    pub fn view(&self) -> &LocalView {
        &self.view
    }

    /// Ends, and closes the log.
    ///
    /// # Errors
    /// Those of closing the log; why the member has ended, if it had.
    pub async fn close(self) -> Result<()> {
        let closed = close(&self.inbox).await;
        for task in self.tasks {
            task.await.map_err(Error::from)?;
        }
        closed
    }
}

/// Has a member end.
pub(crate) async fn close(inbox: &Inbox) -> Result<()> {
    inbox.check()?;
    let (promise, reply) = promise();
    inbox.post(Event::Close(promise));
    reply.await
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("id", &self.id).field("leads", &self.leads()).finish()
    }
}
