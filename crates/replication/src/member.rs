//! A node's part in a replicated log: the handle, and what goes to other nodes.
//!
//! The handle asks by putting events into the member's queue, and waits for what its task tells. It
//! ends once, for one reason: it was closed, or its log broke. From then on the node says nothing
//! to others.

use std::sync::{Arc, Mutex, PoisonError};

use plinth_env::reply::{Promise as Answer, Reply};
use plinth_env::{Env, Task};
use plinth_log::{LocalView, LogError, LogResult, ReplicaLog};
use plinth_types::Version;

use crate::NodeId;
use crate::core::{Config, Core, Follower, Promise};
use crate::driver::{self, Driver};
use crate::inbox::{Event, Inbox, Left, Progress, Told};
use crate::members::Members;
use crate::peers::{Frame, Peers, Records};
use crate::proofs::Proofs;
use crate::proving::Taken;
use crate::replicated::ReplicatedLog;
use crate::terms::{EntryId, Terms};

/// What a member knows of who leads.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Standing {
    /// The newest term that it has heard of.
    pub term: u64,
    /// Who leads in it, as far as it knows.
    pub leader: Option<NodeId>,
    /// The term in which it leads itself, once an entry of that term is committed.
    pub leads: Option<u64>,
    /// How many terms it has seen begin since its start.
    pub elections: u64,
    /// If it leads: the others.
    pub followers: Arc<[Follower]>,
    /// How many entries nodes lack, as far as it knows: [`crate::Core::lags`].
    pub lags: Arc<[(NodeId, u64)]>,
    /// Who is a member.
    pub members: Arc<Members>,
    /// As of which entry.
    pub members_index: u64,
    /// Up to which index entries are committed, as far as it knows.
    pub committed_index: u64,
    /// The index of its last entry.
    pub last_index: u64,
    /// If it lacks entries that the leader has no more: the entry behind which the leader's log
    /// begins. It needs rows.
    pub behind: Option<EntryId>,
    /// Why entries wait to be written, if they do: its disk is full.
    pub full: Option<LogError>,
}

/// A node's part in a replicated log. Dropping it ends nothing: see [`Member::close`].
pub struct Member {
    id: NodeId,
    inbox: Arc<Inbox>,
    proofs: Arc<Proofs>,
    peers: Arc<dyn Peers>,
    view: LocalView,
    tasks: Mutex<Vec<Task>>,
}

impl Member {
    /// Takes part with this log, in tasks of `env`. Who is a member is written down by `records`.
    ///
    /// # Errors
    /// `Invalid` if configuration and log contradict themselves or each other.
    pub fn start(
        env: &Env,
        config: Config,
        log: ReplicaLog,
        peers: Arc<dyn Peers>,
        records: Arc<dyn Records>,
    ) -> LogResult<Self> {
        let terms = Terms::of_runs(log.terms(), log.last().0)?.with_members(log.members());
        let promised = log.promised();
        let known = Promise {
            term: promised.term,
            vote: promised.vote,
            commit: promised.commit.max(log.committed_index()),
        };
        let (id, inbox, view) = (config.id, Inbox::new(), log.view().clone());
        let core = Core::new(config.clone(), terms, known)?;
        if core.committed() > log.committed_index() {
            log.commit(core.committed())?;
        }
        let members = (Arc::new(core.members().clone()), core.members_index());
        let proofs =
            Proofs::new(&config, core.stand(), members.0.clone(), peers.clone(), view.clone());
        inbox.with(|told| told.members = members);
        let syncs = (0..driver::SYNCS)
            .map(|_| env.spawn("replication-sync", driver::sync(inbox.clone(), log.syncer())))
            .collect::<Vec<_>>();
        let driver =
            Driver::new(env, core, log, (peers.clone(), records), (inbox.clone(), proofs.clone()));
        let mut tasks = vec![env.spawn("replication", driver.run())];
        tasks.extend(syncs);
        Ok(Self { id, inbox, proofs, peers, view, tasks: Mutex::new(tasks) })
    }

    /// This node.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// A frame has arrived, on a way that leads here only: an answer goes by [`Peers`].
    pub fn receive(&self, frame: Frame) {
        if let Some(answer) = self.receive_and_answer(frame) {
            self.peers.send(answer);
        }
    }

    /// A frame has arrived. Gives the answer if there is one that is known at once; it is for
    /// whoever sent the frame.
    #[must_use = "somebody waits for the answer"]
    pub fn receive_and_answer(&self, frame: Frame) -> Option<Frame> {
        match self.proofs.receive(&frame.message) {
            Taken::No => self.inbox.post_frame(frame),
            Taken::Counted => {}
            Taken::Answer(message) => return Some(Frame::new(message, Vec::new())),
        }
        None
    }

    /// Has this node want to lead, without waiting until it hears of no leader.
    pub fn campaign(&self) {
        self.inbox.post(Event::Campaign);
    }

    /// Has this node give its part as a leader to another one, if it leads. It takes no entries
    /// until another leads, or that was in vain.
    pub fn hand_over(&self) {
        self.inbox.post(Event::HandOver);
    }

    /// Who leads, as far as this node knows.
    pub fn standing(&self) -> Standing {
        self.inbox.with(|told| standing(told))
    }

    /// Waits until `f` gives something for what this node knows of who leads; it is asked now and
    /// after each change.
    ///
    /// # Errors
    /// Why the member has ended.
    pub async fn until<T>(&self, mut f: impl FnMut(&Standing) -> Option<T>) -> LogResult<T> {
        let ended = |told: &Told| told.end.cause.clone().map(Err);
        self.inbox.until(|told| ended(told).or_else(|| f(&standing(told)).map(Ok))).await
    }

    /// The term in which this node leads, if it does and an entry of that term is committed.
    pub fn leads(&self) -> Option<u64> {
        self.inbox.with(|told| told.leads)
    }

    /// Waits until this node leads, and gives the writer of that term.
    ///
    /// # Errors
    /// Why the member has ended.
    pub async fn until_leads(&self) -> LogResult<ReplicatedLog> {
        let term = self.until(|standing| standing.leads).await?;
        Ok(ReplicatedLog::new(term, self.inbox.clone(), self.view.clone()))
    }

    /// Waits for proof that this node led after this was called: then nobody else had committed
    /// anything until then that this node doesn't know. Gives the version up to which it knows
    /// entries to be committed: whoever is to see all that anybody could have seen has to have
    /// applied them.
    ///
    /// # Errors
    /// `Behind` if it doesn't lead, or ceases to before there is proof; why the member has
    /// ended.
    pub fn prove(&self) -> Reply<Version, LogError> {
        self.proofs.ask()
    }

    /// Who has to agree that this node leads, for whoever asks them itself; it has led at some
    /// moment since this was called. The version is that up to which it knows entries to be
    /// committed, as [`Member::prove`] gives it. `None` where that has to be proven here.
    pub fn quorum(&self) -> Option<(plinth_types::Quorum, Version)> {
        self.proofs.quorum()
    }

    /// Whom this node follows, for whoever counts those that agree; `None` once it has ended.
    pub fn follows(&self) -> Option<plinth_types::Standing> {
        self.proofs.standing()
    }

    /// Has this node's disk say of every entry so far that it is durable.
    ///
    /// # Errors
    /// Those of files; why the member has ended.
    pub async fn mark_durable(&self) -> LogResult<()> {
        self.inbox.check()?;
        let (answer, reply) = Answer::pair();
        self.inbox.post(Event::Mark(answer));
        reply.await
    }

    /// Why it does nothing more.
    ///
    /// # Errors
    /// That.
    pub fn check(&self) -> LogResult<()> {
        self.inbox.check()
    }

    /// The lease as of the last entry of this node's log, be it committed or not.
    pub fn last_lease(&self) -> Version {
        self.inbox.with(|told| told.last.lease)
    }

    /// The log on this node, for readers and consumers.
    pub fn view(&self) -> &LocalView {
        &self.view
    }

    /// What it left when it was closed; `None` before, and if it has failed.
    pub fn left(&self) -> Option<Left> {
        self.inbox.with(|told| told.end.left.clone())
    }

    /// Ends, and closes the log.
    ///
    /// # Errors
    /// Those of closing the log; why the member has ended, if it had.
    pub async fn close(&self) -> LogResult<()> {
        let closed = self.inbox.close().await;
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            task.await.map_err(|failed| LogError::Internal(failed.to_string()))?;
        }
        closed
    }
}

fn standing(told: &Told) -> Standing {
    let Told { term, leader, leads, elections, behind, .. } = *told;
    let Progress { followers, lags, committed_index, last_index } = told.progress.clone();
    let (members, members_index) = told.members.clone();
    Standing {
        term,
        leader,
        leads,
        elections,
        followers,
        lags,
        members,
        members_index,
        committed_index,
        last_index,
        behind,
        full: told.full.clone(),
    }
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("id", &self.id).field("leads", &self.leads()).finish()
    }
}
